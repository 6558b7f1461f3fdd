"""A joined arm in a study's figures and tables: every line, bar or row of the arm that it stands beside, once more.

A figure is made a second time with the joined arm's rows in place of that arm's. Whatever comes out otherwise is what
the figure says of the joined arm, and is added to the first one in grey.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade import stats
from saccade.lab.table import ON_THE_WAY, Series, Table
from saccade.report.figures import Bars, Curves, FigureData, Heatmap, ImageGrid, Line, Panel
from saccade.report.writers import Block, Grid, Section, Text
from saccade.spec import Estimate, SaccadeError
from saccade.study import Figure

SHADES = (0.5, 0.15, 0.85)
LISTED = 60  # rows of the table in the report; rows.csv has all of them


@dataclass(frozen=True)
class Beside:
    """A joined arm with its rows, and the planned rows in which its own replace those of the arm `like`."""

    arm: str
    source: str
    like: str
    table: Table
    in_place: Table


def drawn(figure: Figure, table: Table, beside: Sequence[Beside] = ()) -> FigureData:
    """The figure of the planned rows, with the joined arms added."""
    data = planned = figure.make(table)
    for number, one in enumerate(beside):
        try:
            data = _merged(data, planned, figure.make(one.in_place), one, SHADES[number % len(SHADES)])
        except SaccadeError as error:
            data = replace(data, note=f"{data.note} {one.arm} cannot be drawn here: {error}".strip())
    return data


def _merged(data: FigureData, planned: FigureData, other: FigureData, one: Beside, shade: float) -> FigureData:
    """What differs between the two figures, added to the first, which may have other joined arms already."""
    if isinstance(data, Curves) and isinstance(planned, Curves) and isinstance(other, Curves):
        panels = tuple(
            replace(panel, lines=(*panel.lines, *_lines(before.lines, after.lines, one, shade)))
            for panel, before, after in zip(data.panels, planned.panels, _matching(planned, other), strict=True)
        )
        changed: FigureData = replace(data, panels=panels)
    elif isinstance(data, Bars) and isinstance(planned, Bars) and isinstance(other, Bars):
        changed = _bars(data, planned, other, one, shade)
    elif isinstance(data, Heatmap) and isinstance(planned, Heatmap) and isinstance(other, Heatmap):
        changed = _rows(data, planned, other, one)
    elif isinstance(data, ImageGrid) and isinstance(planned, ImageGrid) and isinstance(other, ImageGrid):
        new = [
            (_renamed(label, one), images)
            for label, images in zip(other.row_labels, other.images, strict=False)
            if images not in planned.images
        ]
        changed = replace(
            data, images=(*data.images, *(i for _, i in new)), row_labels=(*data.row_labels, *(n for n, _ in new))
        )
    else:
        return data
    if changed == data:
        return data
    return replace(changed, note=f"{data.note} Grey: {one.arm}, not planned, trained like {one.like}.".strip())


def _matching(planned: Curves, other: Curves) -> list[Panel]:
    """The other figure's panels, by title; rows may give it fewer."""
    panel_by_title = {panel.title: panel for panel in other.panels}
    return [panel_by_title.get(panel.title, replace(panel, lines=())) for panel in planned.panels]


def _lines(before: Sequence[Line], after: Sequence[Line], one: Beside, shade: float) -> Iterator[Line]:
    line_by_label = {line.label: line for line in before}
    for line in after:
        points = _new_points(line_by_label.get(line.label), line)
        mentions_arm = _mentions(line.label, one)
        if points or (mentions_arm and line.missing):
            yield _selected(line, points, _renamed(line.label, one), shade, with_missing=mentions_arm)


def _new_points(before: Line | None, after: Line) -> list[int]:
    seeds_by_x = dict(zip(before.x, before.seeds, strict=True)) if before is not None else {}
    return [i for i, (x, seeds) in enumerate(zip(after.x, after.seeds, strict=True)) if seeds_by_x.get(x) != seeds]


def _selected(line: Line, points: Sequence[int], label: str, shade: float, *, with_missing: bool) -> Line:
    return replace(
        line,
        label=label,
        family="other",
        shade=shade,
        x=tuple(line.x[i] for i in points),
        estimates=tuple(line.estimates[i] for i in points),
        seeds=tuple(line.seeds[i] for i in points),
        missing=line.missing if with_missing else 0,
        why=line.why if with_missing else "",
    )


def _bars(data: Bars, planned: Bars, other: Bars, one: Beside, shade: float) -> Bars:
    """A new bar in each category, or a new category where the categories are the arms."""
    line_by_label = {line.label: line for line in planned.lines}
    place = {name: i for i, name in enumerate(planned.categories)}
    categories, lines = list(data.categories), list(data.lines)
    for line in other.lines:
        points = _new_points(line_by_label.get(line.label), line)
        by_arm = [i for i in points if _mentions(other.categories[int(line.x[i])], one)]
        if by_arm and not _mentions(line.label, one):
            at = next(i for i, old in enumerate(lines) if old.label == line.label)
            for i in by_arm:
                name = _renamed(other.categories[int(line.x[i])], one)
                if name not in categories:
                    categories.append(name)
                old = lines[at]
                lines[at] = replace(
                    old,
                    x=(*old.x, float(categories.index(name))),
                    estimates=(*old.estimates, line.estimates[i]),
                    seeds=(*old.seeds, line.seeds[i]),
                )
        elif points:
            new = _selected(line, points, _renamed(line.label, one), shade, with_missing=_mentions(line.label, one))
            at_same = tuple(float(place.get(other.categories[int(x)], int(x))) for x in new.x)
            lines.append(replace(new, x=at_same))
    return replace(data, categories=tuple(categories), lines=tuple(lines))


def _rows(data: Heatmap, planned: Heatmap, other: Heatmap, one: Beside) -> Heatmap:
    """Rows that differ; a column that differs is a row of nothing else, so that columns are looked at first."""
    if any(_mentions(label, one) for label in other.column_labels):
        transposed = _rows(_transposed(data), _transposed(planned), _transposed(other), one)
        return _transposed(transposed)
    before = dict(zip(planned.row_labels, planned.cells, strict=True))
    cells, labels = list(data.cells), list(data.row_labels)
    for label, row in zip(other.row_labels, other.cells, strict=True):
        by_column: dict[str, Estimate | None] = dict(zip(other.column_labels, row, strict=True))
        aligned = tuple(by_column.get(name) for name in data.column_labels)
        if aligned != before.get(label) and any(aligned):
            cells.append(aligned)
            labels.append(_renamed(label, one))
    return replace(data, cells=tuple(cells), row_labels=tuple(labels))


def _transposed(data: Heatmap) -> Heatmap:
    cells = tuple(zip(*data.cells, strict=True)) if data.cells else tuple(() for _ in data.column_labels)
    return replace(data, cells=cells, row_labels=data.column_labels, column_labels=data.row_labels)


def _pattern(one: Beside) -> str:
    return rf"(?<!\w){re.escape(one.like)}(?!\w)"


def _mentions(label: str, one: Beside) -> bool:
    return re.search(_pattern(one), label) is not None


def _renamed(label: str, one: Beside) -> str:
    if _mentions(label, one):
        return re.sub(_pattern(one), lambda _: one.arm, label)
    return f"{label} ({one.arm} for {one.like})" if label else one.arm


# -- the table


def table_of(one: Beside, planned: Table) -> Iterator[Block]:
    """A section of the report: every measured number of the joined arm beside that of the arm it was trained like."""
    yield Section(f"Not planned: {one.arm}")
    yield Text(
        (
            f"{one.arm} ({one.source}) was trained with recipe, data and seeds of {one.like}. No claim rests on it. "
            "Differences are paired by seed, without a correction for their number: exploratory.",
        )
    )
    rows = list(_compared(one, planned))
    more = f" {len(rows) - LISTED} more rows are in rows.csv." if len(rows) > LISTED else ""
    gap_count = len(one.table.gaps)
    missing_text = f" {gap_count} of its runs gave no result." if gap_count else ""
    yield Grid(
        f"Mean over seeds with 95 % interval.{missing_text}{more}",
        ("metric", "at", one.arm, one.like, "difference"),
        tuple(tuple((cell,) for cell in row) for row in rows[:LISTED]),
        (0.16, 0.3, 0.18, 0.18, 0.18),
    )
    for fault in dict.fromkeys(f"{f['why']}" for f in one.table.faults):
        yield Text((f"Not measured of {one.arm}: {fault}.",))


def _compared(one: Beside, planned: Table) -> Iterator[tuple[str, ...]]:
    like_rows = planned.at(arm=one.like)
    for metric in dict.fromkeys(r["metric"] for r in one.table if r["metric"] not in ON_THE_WAY):
        for where in one.table.conditions(metric):
            a, b = (_series(rows, metric, where) for rows in (one.table, like_rows))
            at = ", ".join(f"{k} {v}" for k, v in where.items())
            yield metric, at or "–", _shown(a, metric), _shown(b, metric), _difference(a, b, metric)


def _series(rows: Table, metric: str, where: Mapping[str, Any]) -> Series:
    """The row of each seed; nothing where that is more than one."""
    try:
        return rows.series(metric, **where)
    except SaccadeError:
        return {}


def _percent(metric: str) -> bool:
    return "accuracy" in metric


def _shown(series: Series, metric: str) -> str:
    if not series:
        return "–"
    estimate = stats.estimate(series)
    if _percent(metric):
        return f"{estimate.short()} %"
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.value:.4g}" + (
        f" ± {half:.2g}" if len(series) > 2 and half == half and half < float("inf") else ""
    )


def _difference(a: Series, b: Series, metric: str) -> str:
    try:
        estimate = stats.greater(a, b).estimate
    except SaccadeError:
        return "–"
    return estimate.text("points" if _percent(metric) else "")
