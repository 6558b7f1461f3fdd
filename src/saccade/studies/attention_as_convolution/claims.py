"""The claims of the paper, each with its test."""

from __future__ import annotations

from saccade.spec import Difference, Paper, Settings
from saccade.studies.attention_as_convolution import encodings, hierarchy
from saccade.studies.attention_as_convolution.arms import CHOICES, tasks
from saccade.studies.attention_as_convolution.figures import FIGURES
from saccade.study import Study

CLAIMS = (*encodings.CLAIMS, *hierarchy.CLAIMS)
_EXACT = ("R-TH1", "R-LEM1", "R-FACT", "R-T1-params", "R-T3-params", "R-HA-const")
_TRAINED = tuple(c.id for c in CLAIMS if c.id not in (*_EXACT, "R-T3-time"))
_QUADRATIC = (
    "R-T1-quadratic-iso",
    "R-T1-quadratic-noniso",
    "R-T1-order",
    "R-F2-grid",
    "R-F2-depth",
    "R-F2-noniso",
    "R-F2-degenerate",
    "R-T2-quadratic",
)
_FIGURE2 = ("R-F2-grid", "R-F2-depth", "R-F2-noniso", "R-F2-degenerate")
_CONTENT = (
    "R-T1-learned-content",
    "R-T1-order",
    "R-F3-content",
    "R-F5-avg",
    "R-T2-learned-content",
    "R-O1",
    "R-O2",
    "R-T3-learned-SA",
    "R-T3-learned-HA",
    "R-T3-better",
    "R-T3-gain5",
    "R-F8-dense",
    "R-F8-conv",
    "R-HA-distinct",
)
_MAPS = (*_FIGURE2, "R-F3-nocontent", "R-F3-content", "R-F5-avg", "R-O2", "R-F8-dense", "R-F8-conv", "R-HA-distinct")
_FAMILIES = ("R-T3-better", "R-T3-gain5")
_SAN = ("R-T3-sanpair-SA", "R-T3-sanpair-HA", "R-T3-sanpatch-SA", "R-T3-sanpatch-HA", *_FAMILIES)
_VIT = ("R-T3-vit-SA", "R-T3-vit-HA", *_FAMILIES)
_SPEED = ("R-F1-resnet-fast", "R-F1b-slow")

DIFFERS = (
    Difference("five paired seeds with intervals, margins and Holm correction, where the report has one", _TRAINED),
    Difference(
        "accuracy on the test set once, at the end; the report takes the best of many looks at the test set. At "
        "paper scale 5 000 training pictures are held out for looks on the way",
        _TRAINED,
    ),
    Difference(
        "below paper scale nets are narrow and shallow (48 wide, 3 layers, 64 tokens of 4x4 pixels at small) "
        "and see some thousand pictures once, with AdamW at one recipe for all; the report has 300 epochs",
        _TRAINED,
    ),
    Difference(
        "below paper scale the Gaussian heads of Figure 2 have arms of their own, trained six times as "
        "long at 2.5 times the learning rate, because centres have far to go",
        _FIGURE2,
    ),
    Difference(
        "no dropout below paper scale; at paper scale 0.1, also on attention, as in the original (its shell)", _TRAINED
    ),
    Difference(
        "the reproduction compares content at transposed pixels; that is left out here, and an arm of its own", _CONTENT
    ),
    Difference(
        "the reproduction has a wrong coefficient of the second centre; left out here, and an arm of its own",
        _QUADRATIC,
    ),
    Difference(
        "nets are told that training is over before they are tested; the reproduction's are not, so that batch "
        "norms learn from test pictures. What this changes is measured",
        ("R-T1-resnet18", "R-T1-order", *_SAN, *_VIT[:2]),
    ),
    Difference(
        "SA and HA share recipe, resolution and width below paper scale; the report changes schedule for all, "
        "and resolution and width of SAN too. At paper scale its own plans are taken",
        _FAMILIES,
    ),
    Difference(
        "the report's plan of SAN with independent layers is not published; SAN10 without its last stage has "
        "the printed 3.74 million parameters for pairwise, and 3.85 million for patchwise",
        _SAN,
    ),
    Difference(
        "the class token is learned, where the reproduction draws it anew at every pass; with noise there is an "
        "arm of its own. Its ViT has a convolutional stem, and so has this one",
        _VIT,
    ),
    Difference("time is measured on a CPU, of untrained nets, where the report has a GPU", ("R-T3-time",)),
    Difference(
        "maps are judged by numbers on 50 pictures, and against the untrained net of the same seed where "
        "training is said to have done something; the report looks at single maps",
        _MAPS,
    ),
    Difference("equation 4 as printed is constant; the mean over queries is taken, as in the code", ("R-F5-avg",)),
    Difference("below paper scale ResNet-18 is thin (8 channels at small)", ("R-T1-order", "R-F1-resnet-fast")),
    Difference(
        "convergence is the share of the budget until 90 % of the lowest final accuracy of the nets compared, "
        "not a look at curves",
        _SPEED,
    ),
    Difference(
        "sixteen heads come with a narrower net (32 for 48 at small), as in the report (256 for 400), so heads "
        "and width change together",
        ("R-T2-heads", "R-F1b-slow"),
    ),
)

STUDY = Study(
    name="attention_as_convolution",
    question="Does attention become convolution, and does hierarchical attention beat it?",
    paper=Paper(
        'M. Varma T, N. Prabhu, "[Re] On the Relationship between Self-Attention and Convolutional Layers", '
        "ML Reproducibility Challenge 2020; after J.-B. Cordonnier, A. Loukas, M. Jaggi, ICLR 2020"
    ),
    tasks=tasks,
    figures=FIGURES,
    claims=CLAIMS,
    choices=CHOICES,
    differs=DIFFERS,
    costs=Settings(
        smoke="under a minute",
        small="at most 15 minutes on two cores",
        large="six to seven hours on two cores",
        paper="weeks on two cores, days on GPUs",
    ),
)
