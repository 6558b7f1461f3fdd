"""The figures of the study; the report has none. One without its rows stays empty and is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table
from saccade.report import figures
from saccade.report.figures import Bars, Curves, FigureData, Heatmap, Line, Mark, Panel, line
from saccade.spec import Estimate
from saccade.stats import TooFewSeeds
from saccade.studies.block_ablations import measures
from saccade.studies.block_ablations.arms import (
    BARE,
    CONV,
    CONV_EPOCHS,
    CONV_SIZES,
    CONV_V2,
    CONV_V3,
    DEEPER,
    DROPOUT,
    HALF_PATCH,
    HEADS,
    PARALLEL,
    POST,
    PRINTED,
    PRINTED_AGAIN,
    SKIP,
    VIT,
    VIT_EPOCHS,
    VIT_SIZES,
    WIDER,
)
from saccade.study import figure

FAMILIES = {CONV: ("ConvNet", "cnn"), VIT: ("ViT", "vit")}  # by the baseline that an arm is compared with
IN_BLOCKS = {CONV_V2: "Conv v2", CONV_V3: "Conv v3", POST: "ViT v2", PARALLEL: "ViT v3", SKIP: "one skip"}
OF_SIZES = {DROPOUT: "dropout", HALF_PATCH: "half patch", WIDER: "wider", DEEPER: "deeper", HEADS: "8 heads"}
ALL_ARMS = (CONV, CONV_V2, CONV_V3, VIT, POST, PARALLEL, SKIP, DROPOUT, HALF_PATCH, WIDER, DEEPER, HEADS, BARE)
MOVES = {
    ("shift", 1.0): "shift 1",
    ("shift", 0.5): "shift ½",
    ("padded_shift", 1.0): "padded 1",
    ("rotate", 90.0): "turn 90°",
    ("rotate", 15.0): "turn 15°",
    ("flip", 1.0): "mirror",
    ("flip_down", 1.0): "head down",
    ("scale", 0.9): "size 0.9",
}
LAYERS = {"output": "logits (invariance)", "stem.0": "first convolution", "embed": "patch embedding"}
SMALLEST = 1e-16


def _present(table: Table, arms: Sequence[str]) -> list[str]:
    return [a for a in arms if measures.score(table, a)]


def _changes(table: Table, names: dict[str, str], printed: Callable[[str], float]) -> Bars:
    """The change against the baseline, and the report's own beside it."""
    arms = _present(table, list(names))
    lines, marks = [], []
    for plain, (label, family) in FAMILIES.items():
        arms_of_baseline = [(i, a) for i, a in enumerate(arms) if measures.baseline(a, table) == plain]
        if not arms_of_baseline:
            continue
        curve: dict[int, Series] = {i: measures.gain(table, a, plain) for i, a in arms_of_baseline}
        lines.append(
            line(label, curve, family=family, gaps=[g for _, a in arms_of_baseline for g in table.at(arm=a).gaps])
        )
        marks += [Mark(i, PRINTED[a] - printed(a), line=label) for i, a in arms_of_baseline if a in PRINTED]
    return Bars(
        "",
        tuple(names[a] for a in arms),
        tuple(lines),
        "",
        "change of test accuracy (points)",
        False,
        True,
        tuple(marks),
        "Paired by seed. Diamonds: the report's single runs, whose differences have a standard error of about 2 "
        "points.",
    )


@figure("Every change inside the blocks against its baseline", paper="tables of parts 1c and 2c")
def changes_in_blocks(table: Table) -> FigureData:
    return _changes(table, IN_BLOCKS, lambda a: PRINTED[CONV] if a in (CONV_V2, CONV_V3) else PRINTED_AGAIN)


@figure("Every change of the ViT's sizes against its baseline", paper="table of part 3c")
def changes_of_sizes(table: Table) -> FigureData:
    return _changes(table, {**OF_SIZES, BARE: "no positions"}, lambda a: PRINTED[VIT])


@figure("Test accuracy of every arm, ours and the report's", paper="tables of parts 1c, 2b, 2c and 3c")
def accuracies(table: Table) -> FigureData:
    arms = _present(table, ALL_ARMS)
    lines, marks = [], []
    for plain, (label, family) in FAMILIES.items():
        arms_of_baseline = [(i, a) for i, a in enumerate(arms) if a == plain or measures.baseline(a, table) == plain]
        gaps = [g for _, a in arms_of_baseline for g in table.at(arm=a).gaps]
        lines.append(line(label, {i: measures.score(table, a) for i, a in arms_of_baseline}, family=family, gaps=gaps))
        marks += [Mark(i, PRINTED[a], line=label) for i, a in arms_of_baseline if a in PRINTED]
    return Bars(
        "",
        tuple(arms),
        tuple(lines),
        "",
        "test accuracy",
        False,
        True,
        tuple(marks),
        "Diamonds: the report's single runs; its images were most likely Imagenette's, its models larger.",
        down=True,
    )


@figure("What each change costs, relative to the baseline", paper="not in the report")
def costs(table: Table) -> FigureData:
    arms = [a for a in _present(table, ALL_ARMS) if a not in FAMILIES]
    pairs = [(a, measures.cost_of(table, a), measures.cost_of(table, measures.baseline(a, table))) for a in arms]
    complete = [(a, own_cost, base_cost) for a, own_cost, base_cost in pairs if own_cost and base_cost]
    costs = [f"{a}: {c[0]:,} and {c[1]:,}" for a in (CONV, VIT) if (c := measures.cost_of(table, a))]
    kinds = (("parameters", "other"), ("multiply-adds", "hybrid"))
    return Bars(
        "",
        tuple(a for a, *_ in complete),
        tuple(
            _counted(label, family, [own_cost[k] / base_cost[k] for _, own_cost, base_cost in complete])
            for k, (label, family) in enumerate(kinds)
        ),
        "",
        "times the baseline",
        note="Counted, not sampled. Baselines, parameters and multiply-adds per image: " + "; ".join(costs) + ".",
        down=True,
    )


def _counted(label: str, family: str, values: Sequence[float]) -> Line:
    exact = tuple(Estimate(v, v, v, 0, "exact") for v in values)
    return Line(label, family, tuple(map(float, range(len(values)))), exact, tuple((v,) for v in values))


@figure("Pre-norm and post-norm by depth", paper="part 2c, conjecture")
def depth(table: Table) -> FigureData:
    lines = []
    for block, label, dash, shade in (("v1", "v1, pre-norm", "solid", 0.6), ("v2", "v2, post-norm", "dashed", 0.25)):
        curve = measures.by_depth(table, block)
        if len(curve) > 1:
            lines.append(line(label, curve, family="vit", dash=dash, shade=shade))
    both = tuple(lines) if len(lines) == 2 else ()  # one of the two says nothing about the other
    return Curves("", (Panel("", both, "blocks", 2),), "test accuracy", False, True)


@figure("ConvNet and ViT by number of training images", paper="question part 1")
def data_size(table: Table) -> FigureData:
    panels = []
    for title, conv, vit in (("equal images seen", CONV_SIZES, VIT_SIZES), ("equal epochs", CONV_EPOCHS, VIT_EPOCHS)):
        a, b = measures.by_size(table, CONV, conv), measures.by_size(table, VIT, vit)
        if len(a) < 2 or len(b) < 2:
            continue
        lines = (
            line("ConvNet", a, family="cnn", gaps=table.at(arm=conv).gaps),
            line("ViT", b, family="vit", gaps=table.at(arm=vit).gaps),
        )
        difference = (line("ConvNet − ViT, paired", measures.apart(a, b), family="other", dash="dashed"),)
        panels += [
            Panel(title, lines, "training images", 2, y_label="test accuracy"),
            Panel(f"{title}: difference", difference, "training images", 2, y_label="ConvNet − ViT (points)"),
        ]
    return Curves("", tuple(panels), "test accuracy", False, True)


# -- equivariance


def _moves(table: Table, arm: str) -> dict[tuple[str, float], str]:
    try:
        whole = measures.whole_cells(table, arm)
    except TooFewSeeds:
        return {}
    return {("shift", 1.0): MOVES["shift", 1.0], ("shift", whole): f"shift {whole:g}", **MOVES}


def _cell(table: Table, arm: str, layer: str, move: tuple[str, float], trained: bool = True) -> Estimate | None:
    error_by_seed = table.series(
        "invariance_error" if layer == "output" else "equivariance_error",
        arm=arm,
        layer=layer,
        scope="network",
        move=move[0],
        amount=move[1],
        region="whole",
        trained=trained,
    )
    return stats.estimate(error_by_seed) if error_by_seed else None


def _heat(table: Table, arm: str) -> Heatmap:
    moves, rows = _moves(table, arm), [*measures.layers(table, arm), "output"]
    return Heatmap(
        "",
        tuple(tuple(_cell(table, arm, layer, m) for m in moves) for layer in rows) if moves else (),
        tuple(LAYERS.get(r, r.replace("blocks.", "after block ")) for r in rows) if moves else (),
        tuple(moves.values()),
        "",
        "",
        "error",
        note=f"{arm}, trained, from the image on. Shifts in pixels. 0: the map moves with the image; 1: as far off as "
        "another image's map.",
    )


@figure("ConvNet: which maps move with the image", paper="question part 2")
def equivariance_convnet(table: Table) -> FigureData:
    return _heat(table, CONV)


@figure("ViT: which maps move with the image", paper="question part 2")
def equivariance_vit(table: Table) -> FigureData:
    return _heat(table, VIT)


@figure("ViT without position codes: which maps move with the image", paper="question part 2")
def equivariance_bare(table: Table) -> FigureData:
    return _heat(table, BARE)


@figure("Do the logits stay when the image moves? Trained and untrained", paper="question part 2")
def invariance(table: Table) -> FigureData:
    moves = _moves(table, CONV)
    rows = [(arm, trained) for arm in (CONV, VIT, BARE) for trained in (True, False)] if moves else []
    return Heatmap(
        "",
        tuple(tuple(_cell(table, arm, "output", m, trained) for m in moves) for arm, trained in rows),
        tuple(f"{arm}, {'trained' if trained else 'untrained'}" for arm, trained in rows),
        tuple(moves.values()),
        "",
        "",
        "change of logits",
        note="1: as much as between two images. Shifts in pixels.",
    )


@figure(
    "Layers on their own: a conv layer and a ViT block, shifted by one and by two positions, and permuted",
    paper="question part 2",
)
def alone(table: Table) -> FigureData:
    layers = [
        (CONV, "stem.0", "first convolution", "cnn", 0.3),
        (CONV, "blocks.1", "ConvNet block, stride 2", "cnn", 0.9),
        (VIT, "embed", "patch embedding", "vit", 0.2),
        (VIT, "blocks.0", "ViT block", "vit", 0.8),
    ]
    looks = {
        "shift 1": ("shift", 1.0, "whole"),
        "shift 1, interior": ("shift", 1.0, "interior"),
        "shift 2, interior": ("shift", 2.0, "interior"),
        "permuted": ("permute", 1.0, "whole"),
    }
    lines = []
    for arm, layer, label, family, shade in layers:
        curve: dict[int, Series] = {}
        for i, (move, amount, region) in enumerate(looks.values()):
            where: dict[str, Any] = {"arm": arm, "layer": layer, "move": move, "amount": amount, "region": region}
            error_by_seed = table.series("equivariance_error", scope="alone", trained=True, **where)
            if error_by_seed:
                curve[i] = {s: -math.log10(min(1.0, max(v, SMALLEST))) for s, v in error_by_seed.items()}
        if curve:
            lines.append(line(label, curve, family=family, shade=shade, dash="solid" if shade > 0.5 else "dashed"))
    return Bars(
        "",
        tuple(looks),
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
            label, shade = f"{arm}, {'trained' if trained else 'untrained'}", 0.65 if trained else 0.15
            lines.append(line(label, curve, family=family, dash="solid" if trained else "dotted", shade=shade))
    return Bars(
        "",
        tuple(f"{m}, {u}" for m, u in units.items()),
        tuple(each for each in lines if each.x),
        "",
        "change of logits (1: another image's)",
        False,
        False,
        (),
        "Lie derivative of the logits over the distance between two images' logits.",
    )


@figure("Does the ViT use its position codes, and the content of images in its attention?", paper="not in the report")
def ingredients(table: Table) -> FigureData:
    names = {"positions": "position codes permuted", "content": "attention maps averaged over images"}
    use = {i: table.series("use", arm=VIT, ingredient=k) for i, k in enumerate(names)}
    return Bars(
        "",
        tuple(names.values()),
        (line(VIT, use, family="vit"),),
        "",
        "change of logits (standard deviations)",
        False,
        False,
        (),
        "In standard deviations of the logits over images; from 0.05 on an ingredient counts as used.",
    )


# -- training


@figure("Training accuracy through the training and the test transform", paper="part 1b")
def transforms(table: Table) -> FigureData:
    kinds = {
        "training images, training transform": ("train", "training"),
        "training images, test transform": ("train", "test"),
        "test images": ("test", "test"),
    }
    lines = []
    for arm, (label, family) in FAMILIES.items():
        curve = {i: measures.score(table, arm, split=s, transform=t) for i, (s, t) in enumerate(kinds.values())}
        lines.append(line(label, curve, family=family))
    return Bars("", tuple(kinds), tuple(each for each in lines if each.x), "", "accuracy", False, True)


@figure("Accuracy against training images seen: does an arm still learn?", paper="not in the report")
def images_seen(table: Table) -> FigureData:
    lines = [
        {
            "label": f"{label}, {what}",
            "family": family,
            "dash": dash,
            "y": metric,
            "where": {"arm": arm, "split": split},
        }
        for arm, (label, family) in FAMILIES.items()
        for what, metric, split, dash in (
            ("before it is learned", "online", "online", "dashed"),
            ("held out", "watched", "held_out", "solid"),
        )
    ]
    return figures.curves(
        table,
        y="accuracy",
        x="images",
        lines=lines,
        x_label="training images seen",
        y_label="accuracy",
        y_percent=True,
    )


FIGURES = (
    changes_in_blocks,
    changes_of_sizes,
    accuracies,
    depth,
    data_size,
    equivariance_convnet,
    equivariance_vit,
    equivariance_bare,
    invariance,
    alone,
    lie,
    ingredients,
    transforms,
    costs,
    images_seen,
)
