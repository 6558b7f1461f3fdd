"""Figure 4, Figure 5 and Tables 2 and 3 of the report; objects of native size, shuffled squares and the ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from saccade.lab.table import Series, Table
from saccade.report import figures
from saccade.report.figures import Bars, Curves, FigureData, Line, Mark, Panel
from saccade.spec import Estimate
from saccade.stats import TooFewSeeds
from saccade.studies.local_structure import measures
from saccade.studies.local_structure.arms import (
    DYNAMIC,
    HALF,
    KINDS,
    MAIN,
    NATIVE,
    QUARTER,
    RESNET,
    STATIC,
    SWITCHES,
    VIT,
    WINDOWS,
    Cell,
    Kind,
)
from saccade.studies.local_structure.claims import MATCHED, SEEN_SMALL
from saccade.studies.local_structure.measures import BLIND, BLIND_MEAN, CHANCE, TOP, Measure
from saccade.study import figure

LOOK: Mapping[str, Mapping[str, Any]] = {
    RESNET: {"family": "cnn"},
    VIT: {"family": "vit"},
    DYNAMIC: {"family": "hybrid"},  # a convolution whose weights depend on the image, as those of attention do
    WINDOWS: {"family": "local"},
    STATIC: {"family": "cnn", "dash": "dotted", "shade": 0.2},
}
COUNTED = {RESNET: (1, 21, 49, 26, 3), VIT: (2, 27, 48, 22, 1), DYNAMIC: (1, 18, 48, 33, 0)}  # of 100 mosaics
THINGS = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")  # CIFAR-10's classes
SIDE = 32  # pixels of a training image below paper scale


def _line(table: Table, arm: str, curve: Mapping[Any, Series]) -> Line:
    return figures.line(arm, {x: s for x, s in curve.items() if s}, **LOOK[arm], gaps=table.at(arm=arm).gaps)


def _require_rows(*groups: Sequence[Line]) -> None:
    """A figure without rows is left out."""
    if not any(line.x for lines in groups for line in lines):
        raise TooFewSeeds(0)


def _computed(name: str, xs: tuple[float, ...], ys: tuple[float, ...]) -> Line:
    """A line that was computed, not sampled."""
    return Line(name, "other", xs, tuple(Estimate(y, y, y, 0, "exact") for y in ys), tuple((y,) for y in ys), "dotted")


@figure("Accuracy over training", paper="Figure 4")
def fig4_training(table: Table) -> FigureData:
    def panel(metric: str, title: str, every: int) -> Panel:
        curves = {arm: list(table.curve(metric, "images", arm=arm).items()) for arm in MAIN}
        lines = [_line(table, arm, dict(points[every - 1 :: every])) for arm, points in curves.items()]
        return Panel(title, tuple(line for line in lines if line.x), "training images seen")

    panels = (
        panel("watched", "256 held-out images", 1),
        panel("online", "training images, before they are learned from", 5),
    )
    _require_rows(*(p.lines for p in panels))
    return Curves("", tuple(p for p in panels if p.lines), "accuracy", False, True)


@figure("Final test accuracy, one recipe for all", paper="Figure 4, last epoch")
def fig4_final(table: Table) -> FigureData:
    return _by_arm(table, measures.accuracy, "test accuracy", {}, CHANCE, percent=True)


@figure("Mean top-4 matching", paper="Table 2")
def table2_matching(table: Table) -> FigureData:
    return _by_arm(table, measures.matching, "classes found of four", MATCHED, BLIND_MEAN)


def _by_arm(
    table: Table, measure: Measure, y_label: str, paper: Mapping[str, float], blind: float, percent: bool = False
) -> Bars:
    """A bar per model, each with its name under it, and one for guessing."""
    series_by_arm = {arm: series for arm in MAIN if (series := measure(table, arm=arm))}
    lines = [_line(table, arm, {i: series}) for i, (arm, series) in enumerate(series_by_arm.items())]
    _require_rows(lines)
    marks = tuple(Mark(i, paper[arm], line=arm) for i, arm in enumerate(series_by_arm) if arm in paper)
    lines.append(_computed("blind guessing", (float(len(series_by_arm)),), (blind,)))
    note = "Diamonds: the report's models at 224 pixels." if marks else ""
    names = (*series_by_arm, "blind guessing")
    return Bars("", names, tuple(lines), "", y_label, False, percent, marks, note)


@figure("How many of four classes are among the four best answers", paper="Figure 5")
def fig5_histogram(table: Table) -> FigureData:
    lines = [_line(table, arm, {c: measures.share(table, c, arm=arm) for c in range(TOP + 1)}) for arm in COUNTED]
    _require_rows(lines)
    lines.append(_computed("blind guessing", tuple(map(float, range(TOP + 1))), BLIND))
    marks = tuple(Mark(c, n / 100, line=arm) for arm, counts in COUNTED.items() for c, n in enumerate(counts))
    names = tuple(map(str, range(TOP + 1)))
    note = "Diamonds: the report's hundred images. Blind guessing is exact (hypergeometric)."
    return Bars("", names, tuple(lines), "classes found", "share of mosaics", False, True, marks, note)


@figure("Accuracy on objects that shrink with their image", paper="Table 3, at more sizes")
def table3_scale(table: Table) -> FigureData:
    def panel(title: str, scales: tuple[float, ...], plain: bool) -> Panel:
        lines = tuple(
            _line(table, arm, {s: measures.objects(table, arm=arm, scale=s, plain=plain) for s in scales})
            for arm in MAIN
        )
        marks = () if plain else tuple(Mark(QUARTER, value, line=arm) for arm, value in SEEN_SMALL.items())
        shown = tuple(line for line in lines if line.x)
        return Panel(title, shown, "side of the object over side of the image", x_down=True, marks=marks)

    scales = tuple(table.at(metric="object_accuracy").values("scale"))
    names = [b for b in table.at(metric="object_accuracy").values("backdrop") if b != "plain"]
    on_backdrop = panel(names[0].replace("_", " ") if names else "", scales, False)
    on_plain = panel("plain colour: size alone", tuple(s for s in scales if s in (QUARTER, HALF)), True)
    _require_rows(on_backdrop.lines, on_plain.lines)
    panels = tuple(p for p in (on_backdrop, on_plain) if p.lines)
    return Curves("", panels, "accuracy", False, True, "Diamonds: the report's photographs, 200 images.")


@figure("Accuracy on objects of native size by the size of the image around them", paper="not in the report")
def native_objects(table: Table) -> FigureData:
    def panel(title: str, plain: bool) -> Panel:
        lines = []
        for arm in MAIN:
            larger = {c: measures.native(table, arm=arm, canvas=c, plain=plain) for c in NATIVE}
            if any(larger.values()):
                lines.append(_line(table, arm, {SIDE: measures.accuracy(table, arm=arm), **larger}))
        return Panel(title, tuple(lines), "side of the image (px); object: 32")

    panels = (panel("on the backdrop", False), panel("on a plain colour", True))
    _require_rows(*(p.lines for p in panels))
    note = "At 32 pixels the object is the whole image: test accuracy."
    return Curves("", tuple(p for p in panels if p.lines), "accuracy", False, True, note)


@figure("Accuracy after shuffling squares of the image", paper="not in the report")
def shuffled_squares(table: Table) -> FigureData:
    def panel(metric: str, title: str) -> Panel:
        curves = {arm: table.curve(metric, "grid", arm=arm) for arm in MAIN}
        lines = tuple(_line(table, arm, curve) for arm, curve in curves.items() if curve)
        return Panel(title, lines, "squares per side", x_log=2)

    panels = (panel("shuffled_accuracy", "accuracy"), panel("answer_kept", "answers that stay as they were"))
    _require_rows(*(p.lines for p in panels))
    return Curves("", panels, "share", False, True)


def _ablated(table: Table) -> Kind:
    """The ablation that was run; both are only there in a lab of several choices."""
    for kind in KINDS:
        try:
            measures.corners(table, measures.accuracy, kind)
        except TooFewSeeds:
            continue
        return kind
    raise TooFewSeeds(0)


@figure("The ablation: test accuracy of every corner", paper="not in the report")
def ablation_corners(table: Table) -> FigureData:
    kind = _ablated(table)
    groups = {
        f"{'windows' if local else 'whole map'}, {'shared' if shared else 'own'}": (local, shared)
        for local in (True, False)
        for shared in (True, False)
    }
    lines = []
    for dynamic, name, family in ((True, "dynamic", "local"), (False, "static", "other")):
        cells = [Cell(*group, dynamic) for group in groups.values()]
        curve = {i: measures.accuracy(table, **kind.where(cell)) for i, cell in enumerate(cells)}
        gaps = [g for cell in cells for g in table.at(arm=kind.arm(cell)).gaps]
        lines.append(figures.line(f"{kind.name}, {name}", curve, family=family, gaps=gaps))
    note = (
        "Windows or the whole map; one weight per offset (shared) or per pair of positions (own); weights that depend "
        "on the image or not."
    )
    return Bars("", tuple(groups), tuple(lines), "", "test accuracy", False, True, (), note)


@figure("The ablation: what each switch gives", paper="not in the report")
def ablation_effects(table: Table) -> FigureData:
    """In points; matching as a share of four."""
    kind = _ablated(table)

    def matching(table: Table, /, **where: Any) -> Series:
        return {s: v / TOP for s, v in measures.matching(table, **where).items()}

    def half(table: Table, /, **where: Any) -> Series:
        return measures.objects(table, scale=HALF, **where)

    outcomes: tuple[tuple[str, Measure, str], ...] = (
        ("test accuracy", measures.accuracy, "local"),
        ("top-4 matching, of four", matching, "hybrid"),
        ("objects of half the side", half, "mlp"),
        ("kept after shuffling 4 x 4", measures.shuffle_kept, "other"),
    )
    lines = []
    for name, measure, family in outcomes:
        try:
            curve = {i: measures.effect(table, switch, measure, kind) for i, switch in enumerate(SWITCHES)}
        except TooFewSeeds:
            continue
        lines.append(figures.line(name, curve, family=family))
    note = "Mean over the settings of the two other switches."
    return Bars("", SWITCHES, tuple(lines), "", f"gain in {kind.name} (points)", False, True, (), note)


@figure("What the models are asked about", paper="Figures 2 and 3")
def asked_images(table: Table) -> FigureData:
    import numpy as np

    rows = [r for r in table.at(metric="picture") if r["seed"] == 0]
    if not rows:
        raise TooFewSeeds(0)
    has_class_names = rows[0].get("of") == "cifar10"
    kinds = list(dict.fromkeys(r["shown"] for r in rows))
    cells = {(r["shown"], r["index"]): r for r in rows}
    across = sorted({r["index"] for r in rows})

    def pixels(kind: str, i: int) -> Any:
        flat = np.array(cells[kind, i]["picture"], np.uint8)
        side = round((flat.size / 3) ** 0.5)
        return flat.reshape(3, side, side)

    def caption(kind: str, i: int) -> str:
        if kind == "mosaic":  # four names do not fit
            return ""
        return ", ".join(THINGS[label] if has_class_names else str(label) for label in cells[kind, i]["labels"])

    return figures.image_grid(
        [[pixels(kind, i) if (kind, i) in cells else None for i in across] for kind in kinds],
        rows=kinds,
        columns=[str(i + 1) for i in across],
        captions=[[caption(kind, i) if (kind, i) in cells else "" for i in across] for kind in kinds],
        note="As the models of small and large scale see them: 32 x 32, native objects on 64 x 64.",
    )


FIGURES = (
    fig4_training,
    fig4_final,
    fig5_histogram,
    table2_matching,
    table3_scale,
    native_objects,
    shuffled_squares,
    ablation_corners,
    ablation_effects,
    asked_images,
)
