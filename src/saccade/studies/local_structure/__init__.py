"""Is local structure what a CNN knows and attention has to learn?   Feer, Hilmarsson, Noruišis, Ray, ETH Zurich 2022

    saccade run local_structure --scale smoke    about a minute, no verdicts
    saccade run local_structure --scale small    the report's three models, at most 15 minutes on two cores
    saccade run local_structure --scale large    the published results: about two hours on two cores
    saccade run local_structure --scale paper    the report's models and recipes at 224 pixels: needs GPUs
    torchrun --nproc-per-node 4 -m saccade run local_structure --scale paper     one run at a time over four of them

A CNN, a ViT and models with local mixing are trained on CIFAR-10 from scratch, then asked about images of four things,
about things on large backgrounds and about shuffled images. An ablation switches locality, weight sharing and dynamic
weights one by one.
"""

from saccade.spec import Difference, Paper, Settings
from saccade.studies.local_structure.arms import CHOICES, tasks
from saccade.studies.local_structure.claims import CLAIMS
from saccade.studies.local_structure.figures import FIGURES
from saccade.study import Study

_ACCURACY = ("E-H2", "E-H3", "E-F4-order", "E-F4-early")
_MOSAIC = ("E-T2-order", "E-F5-hist", "E-F5-skew")
_OBJECT = ("E-H4", "E-H5")
_PAPER = (
    "E-H1",
    "E-F4-resnet50",
    "E-F4-vit",
    "E-F4-localvit",
    "E-T2-resnet50",
    "E-T2-vit",
    "E-T2-localvit",
    "E-T3-resnet50",
    "E-T3-vit",
    "E-T3-localvit",
)  # what only the report's own models can decide
_LOCAL = ("E-H3", "E-F4-localvit", "E-F4-order", "E-F4-early", "E-T2-localvit", *_MOSAIC, *_OBJECT, "E-T3-localvit")
_VIT = ("E-H2", "E-H3", "E-F4-vit", "E-F4-order", "E-F4-early", "E-T2-vit", *_MOSAIC, "E-H5", "E-T3-vit")

DIFFERS = (
    Difference(
        "the model that the report calls Local ViT has no attention: it is a depth-wise convolution with dynamic "
        "weights. That model is trained here under its own name, and window attention beside it",
        (*_LOCAL, "E-C1"),
    ),
    Difference(
        "below paper scale one recipe for all: AdamW, one-cycle, 32 pixels, random shift and flip, shuffled. The "
        "report's local model has another optimiser, batch, augmentation and length than the two others",
        (*_ACCURACY, *_MOSAIC, *_OBJECT, "E-C1"),
    ),
    Difference(
        "below paper scale models of about 115 000 to 145 000 parameters instead of 23.5, 85.8 and 160.6 million, and "
        "56 320 (small) or 153 600 (large; ablation 61 440) images seen instead of 4 million",
        (*_ACCURACY, *_MOSAIC, *_OBJECT, "E-C1"),
    ),
    Difference(
        "the report's ViT was trained on unshuffled batches and tested on AutoAugmented images; here batches are "
        "shuffled and test images plain, at every scale",
        (*_VIT, "E-C1"),
    ),
    Difference(
        "2 000 mosaics per seed instead of 100, below paper scale lossless and not AutoAugmented (the report's way: "
        "--set route=report), at the training resolution, so that a tile has half the side in both",
        (*_MOSAIC, "E-C1"),
    ),
    Difference(
        "objects keep the 32 pixels of training on an image of 64, a quarter of its area. In the report the image is "
        "shrunk and the object has a sixteenth of the area; at 32 pixels that leaves 8, where every model guesses. A "
        "ViT reads the larger image with interpolated position codes",
        (*_OBJECT, "E-C1"),
    ),
    Difference(
        "2 000 objects per seed (1 000 at small) instead of 200, lossless, on drawn textures unless a folder is named "
        "(--set backdrop=DIR); the report's photographs are not included",
        (*_OBJECT, "E-C1"),
    ),
    Difference(
        "accuracy on the way is measured on 11 520 training images that come for the first time, each before it is "
        "learned from, and on 256 held-out images once images come again, not on all test images",
        ("E-F4-early",),
    ),
    Difference(
        "five paired seeds or more with t intervals and Holm correction instead of one run per model; the seed, not "
        "the image, is what is repeated"
    ),
    Difference(
        "at paper scale the local model's mixup, cutmix, RandAugment, colour jitter and random erasing are missing: it "
        "trains on AutoAugmented images as the others do, with label smoothing and drop path",
        ("E-F4-localvit", "E-T2-localvit", "E-T3-localvit"),
    ),
    Difference(
        "pixels are standardised by the mean and deviation of the training set, not of ImageNet; 5 000 training images "
        "are held out",
        _PAPER,
    ),
)

STUDY = Study(
    name="local_structure",
    question="Is local structure what a CNN knows and attention has to learn?",
    paper=Paper(
        'A. Feer, H. Hilmarsson, M. Noruišis, S. Ray, "Investigating Possible Inductive Biases in Local Sparse '
        'Attention ViT Architectures Against Traditional CNNs", course report, ETH Zurich, 2022',
        "https://github.com/Siddhant-Ray/Deep-Learning-Project-2021",
    ),
    tasks=tasks,
    figures=FIGURES,
    claims=CLAIMS,
    headline=("E-H2", "E-H3", "E-H5"),
    choices=CHOICES,
    differs=DIFFERS,
    costs=Settings(
        smoke="about a minute",
        small="at most 15 minutes on two cores",
        large="about two hours on two cores",
        paper="days on several GPUs; mixed precision is refused on a CPU",
    ),
)
