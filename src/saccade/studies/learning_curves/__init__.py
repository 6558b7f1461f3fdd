"""How does error fall with training points, for a CNN and a ViT with one size dial each?   Catteau, TP IV, EPFL

    saccade run learning_curves --scale smoke     under a minute, no verdicts
    saccade run learning_curves --scale small     five seeds, p up to 1024: at most 15 minutes on two cores
    saccade run learning_curves --scale large     the published results: p up to 8192, depth, double descent
    saccade run learning_curves --scale paper     the report's size
    saccade run learning_curves --set sweep=fig12     only the runs behind one figure; others re-use them

CNN(h) has h, 2h, 4h channels; ViT(d,H,L) has dimension d, H heads, L layers. Errors are fitted as a power alpha of the
number of points p; claims require that the models interpolate (training error at most 1 %).
"""

from saccade.spec import Difference, Paper, Settings
from saccade.studies.learning_curves.arms import CHOICES, tasks
from saccade.studies.learning_curves.claims import CLAIMS
from saccade.studies.learning_curves.figures import FIGURES
from saccade.study import Study

SIZED = (
    "L-F8-mnist-fit",
    "L-F9-cifar-fit",
    "L-F9-dd",
    "L-F9-noise",
    "L-F10-fit",
    "L-F11-fit",
    "L-F10-dd",
    "L-F10-weak",
    "L-A1-stop",
)
WITH_CNN = (
    *SIZED[:4],
    "L-F10-weak",
    "L-A1-stop",
    "L-F12-mnist-alpha",
    "L-F12-mnist-order",
    "L-F12-cifar-slope",
    "L-F12-cifar-cross",
    "L-F12-cifar-cnn8192",
    "L-F15-cifar-cnn",
    "L-F15-mnist",
)
DEEP = (
    "L-F14-mnist-slope",
    "L-F14-mnist-cross",
    "L-F14-cifar",
    "L-F15-cifar-best",
    "L-F15-cifar-cnn",
    "L-F15-mnist",
    "L-F16-maps",
)
HEADS_OR_DEEP = (*DEEP[:6], "L-F13-heads", "L-F13-mnist-opt", "L-F13-cifar-opt")

DIFFERS = (
    Difference(
        "the report's code is not public: normalisation, resizing, batch, momentum, weight decay and the noise model "
        "are choices (listed below), not facts"
    ),
    Difference(
        "paired seeds (five instead of three or four), exponents fitted by seed with t intervals, margins and Holm "
        "correction instead of fits to seed means read by eye"
    ),
    Difference(
        "nested, class-balanced training sets, the same for every model of a seed; the report does not say how points "
        "were drawn"
    ),
    Difference(
        "the CNN follows the laboratory's public mean-field convention, the only reading found in which a learning "
        "rate near h trains; absolute errors of other readings are not comparable",
        WITH_CNN,
    ),
    Difference(
        "below paper scale the CNN's effective learning rate is 4 where the report keeps it near 1, which takes a "
        "third as many steps; on 4096 photographs it is 2 and on 8192 1, because at twice that the training error "
        "stays at some percent, and 1 where widths are swept on photographs or noisy labels, because at 4 some "
        "narrow CNNs stay near chance on noisy labels",
        WITH_CNN,
    ),
    Difference("below paper scale the ViT's learning rate grows as the root of 128 / d", (*SIZED[4:8], *DEEP)),
    Difference(
        "below paper scale the learning rate of ViTs on MNIST rises over the first 200 steps, because without it two "
        "of ten runs of ViT(128,1,1) never fitted their training set; that of ViTs of one head and one layer is a "
        "quarter there, 0.00025 at dimension 128, for one of five runs on 512 digits did not at 0.001, and one on 2048 "
        "not at 0.0005; on 128 digits it is an eighth, for one of ten did not at 0.00025; the report names 0.001 and "
        "no warm-up",
        (
            "L-F10-fit",
            "L-F10-dd",
            "L-F10-weak",
            "L-F12-mnist-alpha",
            "L-F12-mnist-order",
            "L-F13-mnist-opt",
            "L-F14-mnist-slope",
            "L-F14-mnist-cross",
            "L-F15-mnist",
            "L-F16-maps",
            "L-F18",
        ),
    ),
    Difference(
        "the size of the training set behind the report's double-descent figures is unknown, and the width that "
        "interpolates grows with it; here it is 1024 for CNNs and 512 for ViTs and for CNNs on noisy MNIST, "
        "without label noise also 4096 for ViTs on MNIST, and 4096 at paper scale",
        SIZED,
    ),
    Difference(
        "below paper scale double descent of ViTs is looked at on MNIST alone, where the report has CIFAR-10 too",
        ("L-F10-dd", "L-F10-weak"),
    ),
    Difference(
        "at small scale p ends at 1024, where the report goes to 8192 and slopes may differ",
        ("L-F12-mnist-order", "L-F12-cifar-slope", "L-F12-cifar-cross"),
    ),
    Difference("below paper scale slopes by heads end at p = 2048, and by layers run from 256 to 2048", HEADS_OR_DEEP),
    Difference(
        "below paper scale ViTs with several layers, and what they are compared with, have dimension 64 instead of "
        "128; it stands in each arm's name",
        DEEP,
    ),
    Difference(
        "every run ends when its training error is unchanged over 5 epochs, 300 steps at least (20 and 400 at paper "
        "scale), because training starts on a plateau, or after 300 epochs (600 of 8192 photographs), 2000 steps at "
        "least (4800 on digits), the same for all models of a comparison; the report's limits in time and steps are "
        "not given"
    ),
    Difference(
        "below paper scale ViTs take 128 images per step from 4096 points on, as all models do at paper scale; CNNs "
        "take 32, because their learning rate is one per step",
        ("L-F12-mnist-alpha", "L-F12-mnist-order", "L-F12-cifar-slope", "L-F12-cifar-vit8192", "L-F15-cifar-cnn"),
    ),
    Difference(
        "attention maps are judged by numbers over 2 000 images (10 000 at paper scale), of models trained on 512 to "
        "2048 points below paper scale; the report looks at images",
        ("L-F16-maps", "L-F17-maps", "L-F18"),
    ),
)

STUDY = Study(
    name="learning_curves",
    question="How does error fall with training points, for a CNN and a ViT with one size dial each?",
    paper=Paper(
        'L. Catteau, "Comparative analysis of structure and performance of Convolutional Neural Networks and Vision '
        'Transformers", TP IV project, Physics of Complex Systems Laboratory, EPFL'
    ),
    tasks=tasks,
    figures=FIGURES,
    claims=CLAIMS,
    headline=("L-F12-mnist-order", "L-F12-cifar-cross", "L-F9-dd"),
    choices=CHOICES,
    differs=DIFFERS,
    costs=Settings(
        smoke="under a minute",
        small="at most 15 minutes on two cores",
        large="about five hours on two cores",
        paper="days on two cores",
    ),
)
