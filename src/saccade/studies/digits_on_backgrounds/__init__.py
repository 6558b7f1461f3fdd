"""Does attention see the digit where a convolution sees the background?   de Kruijff 2022, TU Delft

    saccade run digits_on_backgrounds --scale smoke    under a minute, no verdicts
    saccade run digits_on_backgrounds --scale small    five seeds, at most 15 minutes on two cores
    saccade run digits_on_backgrounds --scale large    the published results: about five hours on two cores
    saccade run digits_on_backgrounds --scale paper    the thesis' size: 140 trainings of both models and the extra arms

Each digit class meets only x backgrounds in training. Tested on unseen digits over those backgrounds (in-distribution,
ID) and over unseen ones (out-of-distribution, OOD), then with the digit alone translated, rotated or shrunk.
"""

from saccade.spec import Difference, Paper, Settings
from saccade.studies.digits_on_backgrounds.arms import CHOICES, tasks
from saccade.studies.digits_on_backgrounds.claims import CLAIMS
from saccade.studies.digits_on_backgrounds.figures import FIGURES
from saccade.study import Study

DIFFERS = (
    Difference("the thesis' code is not public: attention layer, heads, blending, optimiser and epochs are choices"),
    Difference("paired seeds, t intervals and Holm correction instead of overlap of one-standard-deviation bands"),
    Difference(
        "below paper scale: fewer training images seen than the thesis may have used, the same for arms that are "
        "compared",
        ("D-H1", "D-H2", "D-F8-x8", "D-F8-rise", "D-F8-cross", "D-F9-pattern", "D-F9-scale", "D-V1"),
    ),
    Difference(
        "at x=8 tested on models whose training images vary in contrast and colour, of which the thesis mentions "
        "nothing: without it attention does not recognise digits on unseen backgrounds there (18.7 % after 240 000 "
        "images, falling), and what does not recognise a digit cannot lose it. How strongly they vary was chosen on "
        "training digits over training images left out, by accuracy alone. At large these arms see 120 000 images. At "
        "x=64 models trained as in the thesis are read, which know more there (90 % against 71 %); that was settled "
        "after five seeds of both had been seen",
        ("D-H3", "D-H4", "D-H5", "D-F9-pattern", "D-F10-slope", "D-F11-slope", "D-F12-slope"),
    ),
    Difference(
        "at small, transformed digits are 400 images per severity instead of 2 000 or more",
        ("D-F9-scale", "D-F10-cnn"),
    ),
    Difference(
        "retention is accuracy relative to the same replication's unmoved accuracy; the thesis reads absolute "
        "curves that start at different heights. Chance is not subtracted: an arm near it has little to lose",
        ("D-H3", "D-H4", "D-H5", "D-L1"),
    ),
    Difference(
        "backgrounds of the OOD set come from CIFAR-10's test split, those of training from its train split, so "
        "they are disjoint for every x"
    ),
)

STUDY = Study(
    name="digits_on_backgrounds",
    question="Does attention see the digit where a convolution sees the background?",
    paper=Paper(
        'P. de Kruijff, "Generalization and Data Transformation Invariance of Visual Attention Models", '
        "bachelor thesis, TU Delft, 2022"
    ),
    tasks=tasks,
    figures=FIGURES,
    claims=CLAIMS,
    headline=("D-H1", "D-H2", "D-H3"),
    choices=CHOICES,
    differs=DIFFERS,
    costs=Settings(
        smoke="under a minute",
        demo="at most 5 minutes on two cores",
        small="at most 15 minutes on two cores",
        large="about five hours on two cores",
        paper="140 trainings and the extra arms: days on two cores, hours on a GPU",
    ),
)
