"""A study of your own: what to run, what to claim, what that requires.   saccade run examples/own_study.py

Does LeNet read the background less when it meets more of them? The claim holds, does not hold, or stays undecided with
its reason; nothing else has to be written for seeds, intervals, reports and resuming.
"""

import saccade as sc
from saccade import stats
from saccade.lab.table import minus
from saccade.report import figures


def tasks(scale, chosen):
    recipe = sc.Recipe(images=scale(smoke=320, small=16_000, large=60_000, paper=200_000))
    n = scale(smoke=100, small=10_000, large=10_000, paper=10_000)
    return [
        sc.Task(
            sc.Run("lenet", "digits_on_backgrounds", recipe, seed, data_args=sc.Settings(chosen, backgrounds=x)),
            (sc.Probe("accuracy", splits=("id", "ood"), n=n),),
            "LeNet",
        )
        for x in (2, 32)
        for seed in range(scale(smoke=2, small=5, large=10, paper=10))
    ]


def gap(table, x):
    id_, ood = (table.series("accuracy", split=split, backgrounds=x) for split in ("id", "ood"))
    return minus(id_, ood)


@sc.claim(
    "GAP",
    "The gap between known and unknown backgrounds shrinks when there are more of them.",
    tested="ID minus OOD accuracy at x=2 exceeds that at x=32 by more than {least} (share of one)",
    requires=(sc.above_chance("LeNet", split="ood", backgrounds=32, why="backgrounds solve the training task"),),
    least=0.05,
)
def gap_shrinks(table, *, least):
    return stats.greater(gap(table, 2), gap(table, 32), margin=least)


@sc.figure("Accuracy on known and unknown backgrounds")
def accuracy(table):
    lines = [{"label": split, "family": "cnn", "where": {"split": split}} for split in ("id", "ood")]
    lines[1]["dash"] = "dashed"
    return figures.curves(table, y="accuracy", x="backgrounds", lines=lines, x_log=2, y_percent=True)


STUDY = sc.Study(
    name="own_study",
    question="Does LeNet read the background less when it meets more of them?",
    paper=None,
    tasks=tasks,
    figures=(accuracy,),
    claims=(gap_shrinks,),
    choices=(
        sc.Choice("digits", "mnist", ("mnist", "procedural_digits"), "what is pasted"),
        sc.Choice("scenes", "cifar10", ("cifar10", "procedural_textures"), "what it is pasted on"),
    ),
)
