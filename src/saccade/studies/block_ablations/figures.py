"""The figures of the study; the report has none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table
from saccade.report import figures
from saccade.report.figures import Bars, Curves, FigureData, Heatmap, Line, Mark, Panel, line
from saccade.spec import Estimate
from saccade.stats import TooFewSeeds
from saccade.studies.block_ablations import measures
from saccade.studies.block_ablations.arms import CONV, VIT
from saccade.study import figure

LATER = "No rows yet."
# What the report prints for an arm, and for the baseline in the same place.
PRINTED = {
    "ConvNet v1": (0.8015, 0.8015),
    "ConvNet v2": (0.7825, 0.8015),
    "ConvNet v3": (0.8089, 0.8015),
    "ViT v1": (0.5153, 0.5153),
    "ViT v2": (0.4889, 0.4963),
    "ViT v3": (0.5026, 0.4963),
    "ViT with dropout": (0.5026, 0.5153),
    "ViT, half the patch": (0.5681, 0.5153),
    "ViT, wider": (0.5090, 0.5153),
    "deeper": (0.5121, 0.5153),
    "ViT, 8 heads": (0.5143, 0.5153),
}
LOOK = {"ConvNet": "cnn", "ViT": "vit"}
SHORT = {
    "ConvNet v1": "Conv v1",
    "ConvNet v2": "Conv v2",
    "ConvNet v3": "Conv v3",
    "ViT v3, single skip": "v3, one skip",
    "ViT without positions": "no codes",
    "ViT with dropout": "dropout",
    "ViT, half the patch": "half patch",
    "ViT, wider": "wider",
    "ViT, 8 heads": "8 heads",
}
MOVES = (
    ("shift", 1.0),
    ("shift", 0.5),
    ("padded_shift", 1.0),
    ("rotate", 90.0),
    ("rotate", 15.0),
    ("flip", 1.0),
    ("flip_down", 1.0),
    ("scale", 0.9),
)
SAID = {
    "shift": "shift {:g}",
    "padded_shift": "padded {:g}",
    "rotate": "turn {:g}°",
    "flip": "mirror",
    "flip_down": "head down",
    "scale": "size {:g}",
}
SMALLEST = 1e-16
NAMES = {"output": "logits (invariance)", "stem.0": "first convolution", "embed": "patch embedding"}


def _arms(table: Table) -> list[str]:
    """Arms at the study's training size, baselines first; of the depths only the report's, as they have a figure."""
    try:
        found = {r["arm"] for r in table.at(metric="accuracy", split="test", p=measures.whole(table))}
        found = {a for a in found if "depth" not in a or a == measures.deeper_arm(table)}
    except TooFewSeeds:
        return []
    first = [a for a in PRINTED if a in found]
    return sorted(found, key=lambda a: (a.startswith("ViT"), first.index(a) if a in first else len(first), a))


def _short(arm: str) -> str:
    return "deeper" if "depth" in arm else SHORT.get(arm, arm)


def _printed(table: Table, arm: str) -> tuple[float, float] | None:
    try:
        deep = measures.deeper_arm(table)
    except TooFewSeeds:
        deep = ""
    return PRINTED.get("deeper" if arm == deep else arm)


def _bars(table: Table, arms: Sequence[str], of: Any, marks: Sequence[Mark], y_label: str, note: str) -> Bars:
    lines = []
    for family, look in LOOK.items():
        curve: dict[int, Series] = {i: of(arm) for i, arm in enumerate(arms) if arm.startswith(family)}
        gaps = [g for arm in arms if arm.startswith(family) for g in table.at(arm=arm).gaps]
        lines.append(line(family, curve, family=look, gaps=gaps))
    return Bars(
        "",
        tuple(_short(a) for a in arms),
        tuple(lines),
        "",
        y_label,
        False,
        True,
        tuple(marks),
        note if arms else LATER,
    )


@figure("Every change against its baseline", paper="tables of parts 1c, 2c and 3c")
def changes(table: Table) -> FigureData:
    arms = [a for a in _arms(table) if a not in (CONV, VIT)]
    marks = [
        Mark(i, found[0] - found[1], line=a.partition(" ")[0].rstrip(","))
        for i, a in enumerate(arms)
        if (found := _printed(table, a))
    ]
    return _bars(
        table,
        arms,
        lambda a: measures.gain(table, a, measures.baseline_of(a)),
        marks,
        "change of test accuracy",
        "Paired by seed. Diamonds: the report's single runs, whose differences have a standard error of about "
        "2 points.",
    )


@figure("Test accuracy of every arm", paper="tables of parts 1c, 2b, 2c and 3c")
def accuracies(table: Table) -> FigureData:
    arms = _arms(table)
    marks = [
        Mark(i, found[0], line=a.partition(" ")[0].rstrip(","))
        for i, a in enumerate(arms)
        if (found := _printed(table, a))
    ]
    return _bars(
        table,
        arms,
        lambda a: measures.score(table, a),
        marks,
        "test accuracy",
        "Diamonds: the report, most likely on Imagenette and with longer training.",
    )


@figure("Pre-norm and post-norm by depth", paper="part 2c, conjecture")
def depth(table: Table) -> FigureData:
    lines = []
    for block, label, dash in (("v1", "v1, pre-norm", "solid"), ("v2", "v2, post-norm", "dashed")):
        try:
            curve = measures.by_depth(table, block)
        except TooFewSeeds:
            curve = {}
        lines.append(
            line(
                label,
                curve,
                family="vit",
                dash=dash,
                shade=0.6 if block == "v1" else 0.35,
                gaps=table.at(model="vit", block=block).gaps,
            )
        )
    return Curves("", (Panel("", tuple(lines), "blocks", 2),), "test accuracy", False, True)


@figure("ConvNet and ViT by number of training pictures", paper="question part 1")
def data_size(table: Table) -> FigureData:
    lines = [
        line(arm, measures.by_size(table, arm), family=LOOK[arm.partition(" ")[0]], gaps=table.at(arm=arm).gaps)
        for arm in (CONV, VIT)
    ]
    gap = measures.minus(measures.by_size(table, CONV), measures.by_size(table, VIT))
    lines.append(line("gap, paired", gap, family="other", dash="dotted"))
    return Curves(
        "",
        (Panel("", tuple(lines), "training pictures", 2),),
        "test accuracy, or difference",
        False,
        True,
        "The same number of presentations at every size.",
    )


def _far(table: Table, arm: str) -> float:
    try:
        return measures.far(table, arm)
    except TooFewSeeds:
        return 8.0


def _moves(table: Table, arm: str) -> list[tuple[str, float]]:
    return [MOVES[0], ("shift", _far(table, arm)), *MOVES[1:]]


def _said(move: tuple[str, float]) -> str:
    return SAID[move[0]].format(move[1])


def _layers(table: Table, arm: str) -> list[str]:
    found = table.at(arm=arm, metric="equivariance_error", scope="network").values("layer")
    return sorted(found, key=lambda n: (n.startswith("blocks."), int(n.partition(".")[2] or 0)))


def _heat(table: Table, arm: str) -> Heatmap:
    moves, layers = _moves(table, arm), _layers(table, arm)

    def cell(layer: str, move: tuple[str, float]) -> Estimate | None:
        name = "invariance_error" if layer == "output" else "equivariance_error"
        found = (
            table.series(
                name, arm=arm, layer=layer, scope="network", move=move[0], amount=move[1], region="whole", trained=True
            )
            if layers
            else {}
        )
        return stats.estimate(found) if found else None

    rows = [*layers, "output"] if layers else []
    return Heatmap(
        "",
        tuple(tuple(cell(layer, m) for m in moves) for layer in rows),
        tuple(NAMES.get(r, r.replace("blocks.", "after block ")) for r in rows),
        tuple(_said(m) for m in moves),
        "",
        "",
        "error",
        note=(
            f"{arm}, trained, from the picture on. Shifts in pixels. 0: the map moves with the picture; "
            "1: as far off as another picture's map."
            if rows
            else LATER
        ),
    )


@figure("ConvNet: which maps move with the picture", paper="question part 2")
def equivariance_convnet(table: Table) -> FigureData:
    return _heat(table, CONV)


@figure("ViT: which maps move with the picture", paper="question part 2")
def equivariance_vit(table: Table) -> FigureData:
    return _heat(table, VIT)


@figure("ViT without position codes: which maps move with the picture", paper="question part 2")
def equivariance_bare(table: Table) -> FigureData:
    return _heat(table, "ViT without positions")


@figure(
    "Layers on their own: a conv layer and a ViT block, shifted by one and by two positions, and permuted",
    paper="question part 2",
)
def alone(table: Table) -> FigureData:
    asked = [
        (CONV, "stem.0", "first convolution"),
        (CONV, "blocks.1", "ConvNet block, stride 2"),
        (VIT, "embed", "patch embedding"),
        (VIT, "blocks.0", "ViT block"),
    ]
    looks = [
        ("shift", 1.0, "whole", "shift 1", 0.3),
        ("shift", 1.0, "interior", "shift 1, interior", 0.15),
        ("shift", 2.0, "interior", "shift 2, interior", 0.6),
        ("permute", 1.0, "whole", "permuted", 0.9),
    ]
    lines = []
    for move, amount, region, label, shade in looks:
        curve: dict[int, Series] = {}
        for i, (arm, layer, _) in enumerate(asked):
            found = table.series(
                "equivariance_error",
                arm=arm,
                layer=layer,
                scope="alone",
                move=move,
                amount=amount,
                region=region,
                trained=True,
            )
            if found:
                curve[i] = {s: -math.log10(min(1.0, max(v, SMALLEST))) for s, v in found.items()}
        lines.append(line(label, curve, family="other", shade=shade))
    return Bars(
        "",
        tuple(name for _, _, name in asked),
        tuple(lines),
        "",
        "digits of agreement",
        False,
        False,
        (),
        "Minus the decimal logarithm of the equivariance error; 15 or 16 is rounding. Zero padding breaks the "
        "border only, a stride of 2 the odd shifts, a patch all shifts but those by its side; a ViT block "
        "follows every order of its tokens.",
    )


@figure("Do the logits stay when the picture moves? Trained and untrained", paper="question part 2")
def invariance(table: Table) -> FigureData:
    moves = _moves(table, CONV)
    lines = []
    for arm, family, shade in ((CONV, "cnn", 0.65), (VIT, "vit", 0.65), ("ViT without positions", "vit", 0.9)):
        for trained in (True, False):
            curve: dict[int, Series] = {}
            for i, (move, amount) in enumerate(moves):
                found = table.series(
                    "invariance_error",
                    arm=arm,
                    layer="output",
                    scope="network",
                    move=move,
                    amount=amount,
                    region="whole",
                    trained=trained,
                )
                if found:
                    curve[i] = found
            lines.append(
                line(
                    f"{arm}, {'trained' if trained else 'untrained'}",
                    curve,
                    family=family,
                    shade=shade if trained else shade - 0.45,
                )
            )
    return Bars(
        "",
        tuple(_said(m) for m in moves),
        tuple(lines),
        "",
        "change of logits",
        False,
        False,
        (),
        "1: as much as between two pictures. Shifts in pixels.",
    )


@figure("Local error: the same for an infinitely small move", paper="not in the report")
def lie(table: Table) -> FigureData:
    units = {"shift": "per pixel", "rotate": "per 10 degrees", "scale": "per 10 % of size"}
    lines: list[Line] = []
    for arm, family in ((CONV, "cnn"), (VIT, "vit")):
        for trained in (True, False):
            curve = {
                i: table.series("lie_error", arm=arm, layer="output", move=m, region="whole", trained=trained)
                for i, m in enumerate(units)
            }
            lines.append(
                line(
                    f"{arm}, {'trained' if trained else 'untrained'}",
                    curve,
                    family=family,
                    shade=0.65 if trained else 0.25,
                )
            )
    return Bars(
        "",
        tuple(f"{m}, {u}" for m, u in units.items()),
        tuple(lines),
        "",
        "change of logits",
        False,
        False,
        (),
        "Lie derivative of the logits over the distance between two pictures' logits.",
    )


@figure("Training accuracy through the training and the test transform", paper="part 1b")
def transforms(table: Table) -> FigureData:
    arms = [a for a in (CONV, VIT) if a in _arms(table)]
    lines = []
    for split, transform, label, shade in (
        ("train", "training", "training pictures, training transform", 0.2),
        ("train", "test", "training pictures, test transform", 0.5),
        ("test", "test", "test pictures", 0.85),
    ):
        curve = {i: measures.score(table, a, split=split, transform=transform) for i, a in enumerate(arms)}
        lines.append(line(label, curve, family="other", shade=shade))
    return Bars("", tuple(arms), tuple(lines), "", "accuracy", False, True, (), "" if arms else LATER)


@figure("What each change costs, relative to the baseline", paper="not in the report")
def costs(table: Table) -> FigureData:
    arms = _arms(table)
    found = [(measures.cost_of(table, a), measures.cost_of(table, measures.baseline_of(a))) for a in arms]
    lines = []
    for k, label, shade in ((0, "parameters", 0.3), (1, "multiply-adds", 0.8)):
        points = [(i, mine[k] / other[k]) for i, (mine, other) in enumerate(found) if mine and other]
        lines.append(
            Line(
                label,
                "other",
                tuple(float(i) for i, _ in points),
                tuple(Estimate(v, v, v, 0, "exact") for _, v in points),
                tuple((v,) for _, v in points),
                shade=shade,
            )
        )
    told = [f"{a}: {c[0]:,} and {c[1]:,}" for a in (CONV, VIT) if (c := measures.cost_of(table, a))]
    return Bars(
        "",
        tuple(_short(a) for a in arms),
        tuple(lines),
        "",
        "times the baseline",
        False,
        False,
        (),
        "Baselines, parameters and multiply-adds a picture: " + "; ".join(told) + "." if told else LATER,
    )


@figure("Accuracy against training presentations: is an arm under-trained?", paper="not in the report")
def presentations(table: Table) -> FigureData:
    try:
        p = measures.whole(table)
    except TooFewSeeds:
        p = 0
    lines = [
        {
            "label": f"{arm}, {label}",
            "family": LOOK[arm.partition(" ")[0]],
            "dash": dash,
            "y": metric,
            "where": {"arm": arm, "p": p, "split": split},
        }
        for arm in (CONV, VIT)
        for label, metric, split, dash in (
            ("before it is learned", "online", "online", "dashed"),
            ("held out", "watched", "held_out", "solid"),
        )
    ]
    return figures.curves(
        table,
        y="accuracy",
        x="images",
        lines=lines,
        x_label="training pictures shown",
        y_label="accuracy",
        y_percent=True,
    )


FIGURES = (
    changes,
    accuracies,
    depth,
    data_size,
    equivariance_convnet,
    equivariance_vit,
    equivariance_bare,
    alone,
    invariance,
    lie,
    transforms,
    costs,
    presentations,
)
