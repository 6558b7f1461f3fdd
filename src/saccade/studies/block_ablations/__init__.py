"""ConvNet against ViT on few images, and what changes inside their blocks do.   Lehnhausen, Alves Brito, Matthes 2025

    saccade run block_ablations --scale smoke     under a minute, no verdicts
    saccade run block_ablations --scale small     12 arms, five seeds: at most 15 minutes on two cores
    saccade run block_ablations --scale large     the published results: about two hours on two cores
    saccade run block_ablations --scale paper     ResNet-18 and the report's ViT: for a GPU
    saccade run block_ablations --set data=imagenette folder=DIR    the report's data, by inference

One thing changes at a time; all arms of a seed see the same images in the same order. Layers are also asked directly
whether they move with the image, trained and untrained.
"""

from saccade.spec import Difference, Paper, Settings
from saccade.studies.block_ablations.arms import CHOICES, tasks
from saccade.studies.block_ablations.claims import CLAIMS
from saccade.studies.block_ablations.figures import FIGURES
from saccade.study import Study

_BLOCKS = ("B-conv-v2", "B-conv-v3", "B-vit-v2", "B-vit-v3")
_HP = ("B-hp-dropout", "B-hp-patch16", "B-hp-embed180", "B-hp-depth24", "B-hp-heads8")
DIFFERS = (
    Difference(
        "the report names neither data set nor optimiser, rate, schedule, epochs or batch, and its code is not "
        "public; all are choices here, the same for every arm"
    ),
    Difference(
        "CIFAR-10 at 32 pixels with 8 522 training images stands for Imagenette, which 947 = 10 % of 9 469 "
        "points to; a folder of it can be given. What an arm must reach is nevertheless taken from the report"
    ),
    Difference(
        "five to eight paired seeds and all test images instead of one run on 947: there one standard error is 1.6 "
        "points at 50 % and 1.3 at 80 %, of a difference 2.3 and 1.8, so of the report's effects only ConvNet over "
        "ViT (28.6 points) is beyond doubt and patch 16 over 32 (5.3 points) likely",
        ("B-vit-vs-conv", "B-vit-v1b", *_BLOCKS, *_HP),
    ),
    Difference("a seed also draws which images are trained on; the report's runs shared theirs", ("B-vit-v1b",)),
    Difference(
        "below paper scale models of 0.07 to 0.24 million parameters; about 4 passes over the training images at small "
        "and 15 at large scale: effects that need great depth or long training may not have appeared",
        ("B-vit-vs-conv", "B-vit-v2-depth", "B-Q1-data", "B-Q2-vitblock", "B-Q2-vit", *_BLOCKS, *_HP),
    ),
    Difference(
        "below paper scale patches of 8 on 32 pixels (16 of them, as with 32 on 128 pixels) stand for 32, and 4 for "
        "16; depths 4 and 6 stand for 16 and 24, width 68 over 48 for 180 over 128; at paper scale patches of 4 and "
        "2 on CIFAR-10",
        ("B-vit-v1", "B-vit-vs-conv", "B-vit-v2-depth", *_HP),
    ),
    Difference("the last block computes only what the class token needs: the same output to rounding"),
    Difference(
        "block v3 of the ViT is read as parallel sub-modules; one skip around both is run beside it from large on",
        ("B-vit-v3",),
    ),
    Difference(
        "equivariance is measured on 24 test images at small, 32 at large and 64 at paper scale, in float64",
        ("B-Q2-conv", "B-Q2-vitblock", "B-Q2-convnet", "B-Q2-vit"),
    ),
    Difference(
        "shifts are circular, so that nothing leaves the image; padded ones are measured too",
        ("B-Q2-conv", "B-Q2-vitblock", "B-Q2-convnet", "B-Q2-vit"),
    ),
    Difference(
        "the report says small and approximately without a number; here the ConvNet is compared with its own map "
        "before the pooling and with the ViT, and the errors themselves are given beside",
        ("B-Q2-convnet",),
    ),
)

STUDY = Study(
    name="block_ablations",
    question="ConvNet against ViT on few images: what do changes inside their blocks do, and which layers move with "
    "the image?",
    paper=Paper(
        'V. M. Lehnhausen, M. Alves Brito, G. Matthes, "MAI Exercise 2", group 11, Multimodal AI, TU '
        "Darmstadt, 28 May 2025"
    ),
    tasks=tasks,
    figures=FIGURES,
    claims=CLAIMS,
    headline=("B-vit-vs-conv", "B-Q2-vitblock", "B-Q1-data"),
    choices=CHOICES,
    differs=DIFFERS,
    costs=Settings(
        smoke="under a minute",
        small="at most 15 minutes on two cores",
        large="about two hours on two cores",
        paper="days on two cores, hours on a GPU",
    ),
)
