"""The figures of the local-structure study: training, mosaics, small objects, shuffled squares, the ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saccade.lab.table import Series, Table
from saccade.report import figures
from saccade.report.figures import Bars, Curves, FigureData, Heatmap, ImageGrid, Line, Mark, Panel
from saccade.spec import Estimate
from saccade.stats import TooFewSeeds, estimate
from saccade.studies.local_structure import measures
from saccade.studies.local_structure.arms import (
    CELLS,
    DYNAMIC,
    KINDS,
    MAIN,
    QUARTER,
    RESNET,
    STATIC,
    SWITCHES,
    VIT,
    WINDOWS,
)
from saccade.studies.local_structure.measures import BLIND, BLIND_MEAN, CHANCE, TOP
from saccade.study import figure

LOOK: Mapping[str, Mapping[str, Any]] = {
    RESNET: {"family": "cnn"},
    VIT: {"family": "vit"},
    DYNAMIC: {"family": "cnn", "dash": "dashed", "shade": 0.8},
    STATIC: {"family": "cnn", "dash": "dotted", "shade": 0.25},
    WINDOWS: {"family": "local"},
}
PAPER_COUNTS = {RESNET: (1, 21, 49, 26, 3), VIT: (2, 27, 48, 22, 1), DYNAMIC: (1, 18, 48, 33, 0)}
PAPER_MATCHING = {RESNET: 2.09, VIT: 1.93, DYNAMIC: 2.13}
PAPER_SMALL = {RESNET: 0.15, VIT: 0.105, DYNAMIC: 0.145}
THINGS = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")  # CIFAR-10's classes
LATER = "The runs behind it come with a larger scale."
PLACES = ("top", "middle", "bottom"), ("left", "centre", "right")


def _lines(**where: Any) -> list[dict[str, Any]]:
    return [{"label": arm, **LOOK[arm], "where": {"arm": arm, **where}} for arm in MAIN]


def _known(name: str, xs: tuple[float, ...], ys: tuple[float, ...]) -> Line:
    """A line that was computed, not sampled."""
    return Line(name, "other", xs, tuple(Estimate(y, y, y, 0, "exact") for y in ys), tuple((y,) for y in ys), "dotted")


@figure("Accuracy over training", paper="Figure 4")
def fig4_training(table: Table) -> FigureData:
    def panel(metric: str, title: str, every: int) -> Panel:
        lines = []
        for arm in MAIN:
            points = list(table.curve(metric, "images", arm=arm).items())
            lines.append(figures.line(arm, dict(points[every - 1 :: every]), **LOOK[arm], gaps=table.at(arm=arm).gaps))
        return Panel(title, tuple(lines), "training pictures shown")

    return Curves(
        "",
        (
            panel("watched", "held out, 256 pictures", 1),
            panel("online", "in training, before a picture is learned from", 5),
        ),
        "accuracy",
        False,
        True,
    )


@figure("Final test accuracy, one recipe for all", paper="Figure 4, last epoch")
def fig4_final(table: Table) -> FigureData:
    return _by_arm(table, measures.accuracy, "test accuracy", {}, CHANCE, percent=True)


@figure("How many of four classes are among the four best answers", paper="Figure 5")
def fig5_histogram(table: Table) -> FigureData:
    drawn = []
    for arm in MAIN:
        curve = {c: measures.share(table, arm, c) for c in range(TOP + 1)}
        drawn.append(figures.line(arm, {c: s for c, s in curve.items() if s}, **LOOK[arm], gaps=table.at(arm=arm).gaps))
    drawn.append(_known("blind guessing", tuple(map(float, range(TOP + 1))), BLIND))
    marks = (
        tuple(Mark(c, count / 100, line=arm) for arm, counts in PAPER_COUNTS.items() for c, count in enumerate(counts))
        if any(line.x for line in drawn[:-1])
        else ()
    )
    return Bars(
        "",
        tuple(map(str, range(TOP + 1))),
        tuple(drawn),
        "classes found",
        "share of mosaics",
        False,
        True,
        marks,
        "Diamonds: the report's hundred images. Blind guessing is exact (hypergeometric).",
    )


@figure("Mean top-4 matching", paper="Table 2")
def table2_matching(table: Table) -> FigureData:
    return _by_arm(table, measures.matching, "classes found of four", PAPER_MATCHING, BLIND_MEAN)


def _by_arm(
    table: Table,
    measure: measures.Measure,
    y_label: str,
    paper: Mapping[str, float],
    blind: float,
    percent: bool = False,
) -> Bars:
    lines = []
    for arm in MAIN:
        series = measure(table, arm)
        lines.append(figures.line(arm, {0: series} if series else {}, **LOOK[arm], gaps=table.at(arm=arm).gaps))
    marks = tuple(Mark(0, value, line=arm) for arm, value in paper.items()) if any(line.x for line in lines) else ()
    lines.append(_known("blind guessing", (0.0,), (blind,)))
    note = "Diamonds: the report's nets at 224 pixels." if paper else ""
    return Bars("", ("",), tuple(lines), "", y_label, False, percent, marks, note)


@figure("Accuracy on objects by their size", paper="Table 3, at more sizes")
def table3_scale(table: Table) -> FigureData:
    def panel(backdrop: str, title: str) -> Curves:
        marks = [Mark(QUARTER, value, line=arm) for arm, value in PAPER_SMALL.items()] if backdrop != "plain" else []
        return figures.curves(
            table,
            y="object_accuracy",
            x="scale",
            lines=_lines(backdrop=backdrop),
            panel=title,
            x_label="side of the object over side of the picture",
            y_label="accuracy",
            x_down=True,
            y_percent=True,
            marks=marks,
        )

    names = [b for b in table.at(metric="object_accuracy").values("backdrop") if b != "plain"] or ["plain"]
    return figures.beside(
        panel(names[0], names[0].replace("_", " ")),
        panel("plain", "plain backdrop: size alone"),
        note="Diamonds: the report's photographs, 200 images.",
    )


@figure("Accuracy on small objects by their place", paper="not in the report")
def place_map(table: Table) -> FigureData:
    rows = table.at(metric="object_accuracy_by_place", scale=QUARTER)
    names = [b for b in rows.values("backdrop") if b != "plain"]
    arms = [arm for arm in MAIN if len(rows.at(arm=arm))]

    def cell(arm: str, row: int, column: int) -> Estimate | None:
        series = rows.series("object_accuracy_by_place", arm=arm, row=row, column=column, backdrop=names[0])
        return estimate(series) if series else None

    down, across = PLACES
    cells = tuple(tuple(cell(arm, r, c) for c in range(3)) for arm in arms for r in range(3))
    labels = tuple(f"{arm}, {where}" for arm in arms for where in down)
    return Heatmap(
        "",
        cells,
        labels,
        across,
        "net, place of the object",
        "place of the object",
        "accuracy",
        percent=True,
        note="Objects of a quarter of the side; thirds of the room they can move in.",
    )


@figure("Accuracy after shuffling squares of the picture", paper="not in the report")
def shuffled_squares(table: Table) -> FigureData:
    shared: dict[str, Any] = {
        "x": "grid",
        "lines": _lines(),
        "x_label": "squares on a side",
        "x_log": 2,
        "y_percent": True,
    }
    return figures.beside(
        figures.curves(table, y="shuffled_accuracy", y_label="share", panel="accuracy", **shared),
        figures.curves(table, y="answer_kept", y_label="share", panel="answers that stay as they were", **shared),
    )


@figure("The ablation: test accuracy of every corner", paper="not in the report")
def ablation_corners(table: Table) -> FigureData:
    lines = []
    for kind, family in zip(KINDS, ("local", "cnn"), strict=True):
        curve: dict[int, Series] = {i: measures.accuracy(table, cell.arm(kind)) for i, cell in enumerate(CELLS)}
        gaps = [g for cell in CELLS for g in table.at(arm=cell.arm(kind)).gaps]
        if kind == KINDS[0] or all(curve.values()):
            lines.append(figures.line(kind, {i: s for i, s in curve.items() if s}, family=family, gaps=gaps))
    words = tuple(cell.words.replace(",", "") for cell in CELLS)
    return Bars(
        "",
        words,
        tuple(lines),
        "",
        "test accuracy",
        False,
        True,
        (),
        "Windows or the whole map; one bias or kernel for all positions or their own; weights from the picture "
        "or fixed.",
    )


@figure("The ablation: what each switch gives", paper="not in the report")
def ablation_effects(table: Table) -> FigureData:
    """In points; matching as a share of four."""
    panels = []
    asked: tuple[tuple[str, measures.Measure, str, str], ...] = (
        ("test accuracy", measures.accuracy, "local", "solid"),
        (
            "top-4 matching, of four",
            lambda t, arm: {s: v / TOP for s, v in measures.matching(t, arm).items()},
            "hybrid",
            "dashed",
        ),
        ("small objects", measures.objects, "mlp", "dashdot"),
        ("kept after shuffling 4 x 4", measures.shuffle_kept, "other", "dotted"),
    )
    for kind in KINDS:
        lines = []
        for name, measure, family, dash in asked:
            curve = {}
            for i, switch in enumerate(SWITCHES):
                try:
                    curve[i] = measures.effect(table, switch, measure, kind)
                except TooFewSeeds:
                    continue
            lines.append(figures.line(name, curve, family=family, dash=dash))
        if any(line.x for line in lines):
            panels.append((kind, tuple(lines)))
    if not panels:
        return Bars("", SWITCHES, (), "", "gain", False, True, (), LATER)
    if len(panels) == 1:
        return Bars(
            "",
            SWITCHES,
            panels[0][1],
            "",
            f"gain in {panels[0][0]}",
            False,
            True,
            (),
            "Mean over the settings of the two other switches.",
        )
    return Curves(
        "",
        tuple(Panel(kind, lines, "switch: 0 locality, 1 sharing, 2 dynamic") for kind, lines in panels),
        "gain",
        False,
        True,
        "Mean over the settings of the two other switches.",
    )


@figure("What the nets are asked about", paper="Figures 2 and 3")
def pictures(table: Table) -> FigureData:
    import numpy as np

    rows = [r for r in table.at(metric="picture") if r["seed"] == 0]
    kinds = list(dict.fromkeys(r["shown"] for r in rows))
    if not kinds:
        return ImageGrid("", (), note=LATER)
    named = rows[0].get("of") == "cifar10"
    cells = {(r["shown"], r["index"]): r for r in rows}
    across = sorted({r["index"] for r in rows})
    grid = [
        [
            np.reshape(np.array(cells[kind, i]["picture"], np.uint8), (3, 32, 32)) if (kind, i) in cells else None
            for i in across
        ]
        for kind in kinds
    ]
    captions = [
        [
            ", ".join(THINGS[label] if named else str(label) for label in cells[kind, i]["labels"])
            if (kind, i) in cells and kind != "mosaic"
            else ""
            for i in across
        ]
        for kind in kinds
    ]
    return figures.image_grid(
        grid,
        rows=kinds,
        columns=[str(i + 1) for i in across],
        captions=captions,
        note="As the nets of small and large scale see them, 32 x 32.",
    )


FIGURES = (
    fig4_training,
    fig4_final,
    fig5_histogram,
    table2_matching,
    table3_scale,
    place_map,
    shuffled_squares,
    ablation_corners,
    ablation_effects,
    pictures,
)
