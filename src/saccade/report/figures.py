"""Rows -> figure data: plain frozen values that the drawing, the web page and the CSV files share."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.spec import Estimate, SaccadeError, plain, suggest

# Of everything that is not data. A page that inlines a drawing replaces them by its own light or dark ones.
INK, MUTED, GRID, PAPER = "#1b1f24", "#59626c", "#e4e7eb", "#ffffff"
DASHES = ("solid", "dashed", "dotted", "dashdot")
Flat = dict[str, Any]
Where = Mapping[str, Any] | None


@dataclass(frozen=True)
class Family:
    """How an architecture family looks everywhere. The diamond is not here: it is the paper's value."""

    label: str
    colour: str
    marker: str


# Colours of Okabe and Ito 2008, which stay apart for every kind of colour blindness.
FAMILIES = {
    "cnn": Family("convolution", "#0072B2", "circle"),
    "attention": Family("attention", "#D55E00", "square"),
    "vit": Family("vision transformer", "#009E73", "triangle up"),
    "local": Family("local attention", "#CC79A7", "triangle down"),
    "hybrid": Family("hybrid", "#E69F00", "plus"),
    "mlp": Family("MLP", "#56B4E9", "cross"),
    "other": Family("other", "#6E7781", "pentagon"),
}


def colour(family: str, shade: float = 0.5) -> str:
    """The family's colour, lighter towards shade 0 (small models) and darker towards 1 (large ones)."""
    if family not in FAMILIES:
        raise SaccadeError(suggest("family", family, FAMILIES))
    code = FAMILIES[family].colour
    towards, share = (255, 0.9 * (0.5 - shade)) if shade < 0.5 else (0, 0.7 * (shade - 0.5))
    mixed = (round((1 - share) * int(code[i : i + 2], 16) + share * towards) for i in (1, 3, 5))
    return "#" + "".join(f"{c:02x}" for c in mixed)


def counted(estimates: Sequence[Estimate]) -> str:
    """As in `n=5`, `n=4 to 5` or `exact`."""
    ns = sorted({e.n for e in estimates if e.method != "exact"})
    return "exact" if not ns else f"n={ns[0]}" if len(ns) == 1 else f"n={ns[0]} to {ns[-1]}"


@dataclass(frozen=True)
class Line:
    """One model or condition: an estimate and the single seeds at each x."""

    label: str
    family: str
    x: tuple[float, ...]
    estimates: tuple[Estimate, ...]
    seeds: tuple[tuple[float, ...], ...]
    dash: str = "solid"
    shade: float = 0.5
    missing: int = 0  # runs that gave no result
    why: str = ""  # the same in words, as in "1 diverged"

    def __post_init__(self) -> None:
        if self.dash not in DASHES:
            raise SaccadeError(suggest("dash", self.dash, DASHES))
        if not 0 <= self.shade <= 1:
            raise SaccadeError(f"shade must be in [0, 1], not {self.shade}.")
        if not len(self.x) == len(self.estimates) == len(self.seeds):
            raise SaccadeError(f'line "{self.label}" needs one estimate and one tuple of seeds for each x.')
        colour(self.family)

    @property
    def caption(self) -> str:
        """As in `CNN, n=4, 1 diverged`."""
        missing_text = f", {self.why or f'{self.missing} missing'}" if self.missing else ""
        n = counted(self.estimates) if self.estimates else "n=0" if missing_text else "no rows yet"
        return f"{self.label}, {n}{missing_text}"

    def rows(self) -> list[Flat]:
        return [
            {
                "kind": "estimate",
                "line": self.label,
                "family": self.family,
                "x": x,
                **_numbers(e),
                "seeds": " ".join(map(repr, s)),
                "missing": self.missing,
            }
            for x, e, s in zip(self.x, self.estimates, self.seeds, strict=True)
        ]


@dataclass(frozen=True)
class Mark:
    """A paper's own value, beside the line of that label (if any). In bars, x counts the categories."""

    x: float
    y: float
    text: str = ""
    line: str = ""


@dataclass(frozen=True)
class Fit:
    """A fitted relation, drawn thin through the points."""

    label: str
    family: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """`x_log` is a base (2, 10) or None; `x_down` lets x fall to the right, as for shrinking scales.

    With a `y_label` the panel has an axis of its own: another quantity, or one that the shared axis would flatten.
    """

    title: str
    lines: tuple[Line, ...]
    x_label: str = ""
    x_log: int | None = None
    x_down: bool = False
    marks: tuple[Mark, ...] = ()
    fits: tuple[Fit, ...] = ()
    y_label: str = ""


@dataclass(frozen=True)
class Curves:
    """Panels side by side that share y, but for those with a label of their own.

    Values are stored in [0, 1] where `y_percent` shows percent.
    """

    title: str
    panels: tuple[Panel, ...]
    y_label: str = ""
    y_log: bool = False
    y_percent: bool = False
    note: str = ""

    def rows(self) -> list[Flat]:
        return [
            {"panel": p.title, **r}
            for p in self.panels
            for r in [*(r for line in p.lines for r in line.rows()), *_extras(p.marks, p.fits)]
        ]


@dataclass(frozen=True)
class Bars:
    """Categories along x, one bar per line in each; `x` of a line counts the categories from 0.

    `down` lists the categories from top to bottom and draws points instead of bars: for many, or for long names.
    """

    title: str
    categories: tuple[str, ...]
    lines: tuple[Line, ...]
    x_label: str = ""
    y_label: str = ""
    y_log: bool = False
    y_percent: bool = False
    marks: tuple[Mark, ...] = ()
    note: str = ""
    down: bool = False

    def rows(self) -> list[Flat]:
        every = [*(r for line in self.lines for r in line.rows()), *_extras(self.marks)]
        return [{"category": self.categories[int(r["x"])], **r} for r in every]


@dataclass(frozen=True)
class Heatmap:
    """An estimate for each row and column; None where there is no row yet. `diverging` centres on 0.

    Colours reach up to `ceiling` at least, so that what is small in its meaning is not shown as large.
    """

    title: str
    cells: tuple[tuple[Estimate | None, ...], ...]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    y_label: str = ""
    x_label: str = ""
    unit: str = ""
    percent: bool = False
    diverging: bool = False
    note: str = ""
    ceiling: float = 0.0

    def rows(self) -> list[Flat]:
        return [
            {"row": row, "column": column, **_numbers(e)}
            for row, line in zip(self.row_labels, self.cells, strict=True)
            for column, e in zip(self.column_labels, line, strict=True)
            if e is not None
        ]


@dataclass(frozen=True)
class Picture:
    """A small image as base64 of a PNG file, ready for a data address."""

    width: int
    height: int
    png: str
    caption: str = ""


@dataclass(frozen=True)
class ImageGrid:
    title: str
    images: tuple[tuple[Picture | None, ...], ...]
    row_labels: tuple[str, ...] = ()
    column_labels: tuple[str, ...] = ()
    note: str = ""

    def rows(self) -> list[Flat]:
        return [
            {
                "row": _name(self.row_labels, i),
                "column": _name(self.column_labels, j),
                "caption": p.caption,
                "width": p.width,
                "height": p.height,
                "png": p.png,
            }
            for i, line in enumerate(self.images)
            for j, p in enumerate(line)
            if p is not None
        ]


@dataclass(frozen=True)
class Path:
    """One contrast at shares of the training budget, and the verdict that it led to."""

    label: str
    says: str
    verdict: str
    shares: tuple[float, ...]
    estimates: tuple[Estimate, ...]
    null: float = 0.0
    unit: str = "points"


@dataclass(frozen=True)
class Budget:
    """A small panel per contrast, each with its own axis; colour and sign say the verdict."""

    title: str
    paths: tuple[Path, ...]
    note: str = ""

    def rows(self) -> list[Flat]:
        return [
            {"claim": p.label, "verdict": p.verdict, "share of budget": share, **_numbers(e)}
            for p in self.paths
            for share, e in zip(p.shares, p.estimates, strict=True)
        ]


FigureData = Curves | Bars | Heatmap | ImageGrid | Budget


def line(
    label: str,
    curve: Mapping[Any, Series],
    *,
    family: str,
    dash: str = "solid",
    shade: float = 0.5,
    gaps: Sequence[Mapping[str, Any]] = (),
) -> Line:
    """A line from numbers per seed, for quantities that a study computes itself."""
    points = [(_number(x), s) for x, s in curve.items() if s]
    return Line(
        label,
        family,
        tuple(x for x, _ in points),
        tuple(stats.estimate(s) for _, s in points),
        tuple(tuple(s[k] for k in sorted(s)) for _, s in points),
        dash,
        shade,
        len(gaps),
        _why(gaps),
    )


def curves(
    table: Table,
    *,
    y: str,
    x: str,
    lines: Sequence[Mapping[str, Any]],
    title: str = "",
    panel: str = "",
    where: Where = None,
    x_label: str = "",
    y_label: str = "",
    x_log: int | None = None,
    x_down: bool = False,
    y_log: bool = False,
    y_percent: bool = False,
    relative_to: Any = None,
    marks: Sequence[Mark] = (),
    fits: Sequence[Fit] = (),
    note: str = "",
    own_axis: bool = False,
) -> Curves:
    """One panel. Each of `lines` has label, family and, if wanted, dash, shade, where, and a `y` of its own.

    `relative_to` divides each seed's curve by its own value at that x.
    """
    drawn_lines = []
    for settings in lines:
        curve, style = _selection(table, settings, y, x, where)
        if relative_to is not None and curve:
            curve = _relative(curve, relative_to)
        drawn_lines.append(line(curve=curve, **style))
    axis_label = y_label or y
    panel_label = axis_label if own_axis else ""
    whole = Panel(panel, tuple(drawn_lines), x_label or x, x_log, x_down, tuple(marks), tuple(fits), panel_label)
    return Curves(title, (whole,), axis_label, y_log, y_percent, note)


def beside(*several: Curves, title: str = "", note: str = "") -> Curves:
    """The panels of several curves in one figure; the first one's y axis is everyone's."""
    first = several[0]
    panels = tuple(p for c in several for p in c.panels)
    return replace(first, title=title or first.title, note=note or first.note, panels=panels)


def bars(
    table: Table,
    *,
    y: str,
    x: str,
    lines: Sequence[Mapping[str, Any]],
    title: str = "",
    categories: Sequence[Any] | Mapping[Any, str] = (),
    where: Where = None,
    x_label: str = "",
    y_label: str = "",
    y_log: bool = False,
    y_percent: bool = False,
    marks: Sequence[Mark] = (),
    note: str = "",
) -> Bars:
    """`categories` orders the values of x and, as a mapping, names them; lines are as in `curves`."""
    selections = [_selection(table, settings, y, x, where) for settings in lines]
    x_values = {v for curve, _ in selections for v in curve}
    values = list(categories) or sorted(x_values, key=lambda v: (isinstance(v, str), v))
    drawn_lines = [line(curve={i: c[v] for i, v in enumerate(values) if v in c}, **style) for c, style in selections]
    names = categories if isinstance(categories, Mapping) else {v: str(v) for v in values}
    return Bars(
        title,
        tuple(names[v] for v in values),
        tuple(drawn_lines),
        x_label or x,
        y_label or y,
        y_log,
        y_percent,
        tuple(marks),
        note,
    )


def with_rows(data: FigureData) -> FigureData:
    """Without lines, panels and categories that nothing was measured for; a line that diverged stays, and says so."""
    if isinstance(data, Curves):
        panels = (replace(p, lines=tuple(filter(_has_news, p.lines))) for p in data.panels)
        return replace(data, panels=tuple(p for p in panels if any(line.x for line in p.lines)))
    if isinstance(data, Bars):
        lines = tuple(filter(_has_news, data.lines))
        used = sorted({int(x) for line in lines for x in line.x})
        place = {old: float(new) for new, old in enumerate(used)}
        return replace(
            data,
            categories=tuple(data.categories[i] for i in used),
            lines=tuple(replace(line, x=tuple(place[int(x)] for x in line.x)) for line in lines),
            marks=tuple(replace(m, x=place[int(m.x)]) for m in data.marks if int(m.x) in place),
        )
    return data


def _has_news(line: Line) -> bool:
    return bool(line.x) or (line.missing > 0 and line.why != f"{line.missing} not run yet")


def image_grid(
    images: Sequence[Sequence[Any]],
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    captions: Sequence[Sequence[str]] = (),
    title: str = "",
    note: str = "",
) -> ImageGrid:
    """Images are arrays (h, w), (h, w, 3), (1, h, w) or (3, h, w): uint8, or float in [0, 1]; or None."""
    across = max(map(len, images), default=0)
    for name, labels, n in (("rows", rows, len(images)), ("columns", columns, across)):
        if labels and len(labels) != n:
            raise SaccadeError(f"image_grid: {len(labels)} captions of {name} for {n} {name}.")
    pictures = tuple(
        tuple(
            None if image is None else picture(image, captions[i][j] if captions else "") for j, image in enumerate(row)
        )
        for i, row in enumerate(images)
    )
    return ImageGrid(title, pictures, tuple(rows), tuple(columns), note)


def picture(image: Any, caption: str = "") -> Picture:
    import numpy as np

    array = np.asarray(image)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3) or 0 in array.shape:
        raise SaccadeError(f"an image must be (h, w) or (h, w, 3), not {array.shape}.")
    if array.dtype.kind == "f":
        array = np.rint(255 * np.clip(array, 0, 1))
    height, width = array.shape[:2]
    # Written here rather than by Pillow: the same pixels give the same bytes with every version of it.
    lines = b"".join(b"\0" + r.tobytes() for r in np.ascontiguousarray(array.astype(np.uint8)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if array.ndim == 3 else 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    )
    return Picture(width, height, base64.b64encode(png).decode(), caption)


def jsonable(value: Any) -> Any:
    """As `spec.plain`, with null for an interval that does not exist and the kind of figure named."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": type(value).__name__} if isinstance(value, FigureData) else {}
        return {**kind, **{f.name: jsonable(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    return _finite(value) if isinstance(value, float) else plain(value)


def describe(data: FigureData) -> str:
    """The figure in words, for a reader who cannot see it."""
    if isinstance(data, ImageGrid):
        count = sum(p is not None for line in data.images for p in line)
        words = [
            f"{count} images",
            f"rows: {', '.join(data.row_labels)}" if data.row_labels else "",
            f"columns: {', '.join(data.column_labels)}" if data.column_labels else "",
        ]
    elif isinstance(data, Budget):
        words = [
            f"{p.label}, {p.verdict}: "
            + ", ".join(f"{_shown(e, p.unit)} at {s:.0%}" for s, e in zip(p.shares, p.estimates, strict=True))
            for p in data.paths
        ]
    elif isinstance(data, Heatmap):
        values = [e.value for line in data.cells for e in line if e is not None]
        k = 100 if data.percent else 1
        span = f"from {k * min(values):.3g} to {k * max(values):.3g}" if values else "no rows yet"
        words = [f"{data.unit} for {data.y_label} by {data.x_label}", span]
    else:
        panels = data.panels if isinstance(data, Curves) else (Panel("", data.lines, data.x_label),)
        names = data.categories if isinstance(data, Bars) else ()
        k = 100 if data.y_percent else 1
        words = [data.y_label] + [_line_in_words(p, line, k, names) for p in panels for line in p.lines]
    return ". ".join(w for w in (data.title, *words) if w) + "."


def _shown(e: Estimate, unit: str) -> str:
    return f"{100 * e.value:+.1f} points" if unit == "points" else f"{e.value:+.3g} {unit}".rstrip()


def reading(data: FigureData) -> str:
    """What the signs of a drawing mean, for its caption; empty where nothing was sampled."""
    if isinstance(data, ImageGrid):
        return ""
    if isinstance(data, Budget):
        return (
            "Bars: 95 % intervals over seeds. Horizontal line: no difference. ✓ as the paper found, ✗ the opposite, "
            "= equivalent, ? open."
        )
    if isinstance(data, Heatmap):
        sampled = any(e is not None and e.method != "exact" for row in data.cells for e in row)
        return "Cells: means over n seeds." if sampled else ""
    lines = [line for p in data.panels for line in p.lines] if isinstance(data, Curves) else data.lines
    several = any(e.n > 1 and e.method != "exact" for line in lines for e in line.estimates)
    return "Small points: single seeds. Bars or bands: 95 % intervals over the n seeds of the key." if several else ""


def _line_in_words(panel: Panel, line: Line, k: int, names: Sequence[str]) -> str:
    ends = [(names[int(x)] if names else f"{x:g}", k * e.value) for x, e in zip(line.x, line.estimates, strict=True)]
    visible = ends if names else ends[:: max(1, len(ends) - 1)]
    points = ", ".join(f"{v:.3g} at {x}" for x, v in visible)
    along = f" by {panel.x_label}: " if panel.x_label else ": "
    return (f"{panel.title}, " if panel.title else "") + line.caption + (f"{along}{points}" if points else "")


def _selection(
    table: Table, settings: Mapping[str, Any], y: str, x: str, where: Where
) -> tuple[dict[Any, Series], Flat]:
    """The numbers that one of `lines` asks for, and what else `line` takes."""
    looks = ("label", "family", "dash", "shade")
    for name in settings:
        if name not in (*looks, "where", "y"):
            raise SaccadeError(suggest("setting of a line", name, (*looks, "where", "y")))
    selected = table.at(**{**(where or {}), **settings.get("where", {})})
    style = {"family": "other", **{k: settings[k] for k in looks if k in settings}, "gaps": selected.gaps}
    return selected.curve(settings.get("y", y), x), style


def _relative(curve: Mapping[Any, Series], start: Any) -> dict[Any, Series]:
    if start not in curve:
        raise SaccadeError(f"relative_to={start} is not among the values of x: {', '.join(map(str, curve))}.")
    for seed, value in curve[start].items():
        if value == 0:
            raise SaccadeError(f"seed {seed} is 0 at {start}, so nothing can be shown relative to it.")
    return {x: per_seed(lambda a, b: a / b, s, curve[start]) for x, s in curve.items()}


def _why(gaps: Sequence[Mapping[str, Any]]) -> str:
    words = ("diverged", "failed", "not run yet", "missing")
    counts = Counter(next((w for w in words if str(g.get("why", "")).startswith(w)), "missing") for g in gaps)
    return ", ".join(f"{counts[w]} {w}" for w in words if counts[w])


def _number(x: Any) -> float:
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        raise SaccadeError(f"curves need numbers along x, not {x!r}; bars take names.")
    return float(x)


def _extras(marks: Sequence[Mark], fits: Sequence[Fit] = ()) -> list[Flat]:
    paper_rows: list[Flat] = [{"kind": "paper", "line": m.line or m.text, "x": m.x, "value": m.y} for m in marks]
    return paper_rows + [
        {"kind": "fit", "line": f.label, "family": f.family, "x": x, "value": y}
        for f in fits
        for x, y in zip(f.x, f.y, strict=True)
    ]


def _numbers(e: Estimate) -> Flat:
    return {
        "value": e.value,
        "low": _finite(e.low),
        "high": _finite(e.high),
        "n": e.n,
        "method": e.method,
        "level": e.level,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _name(labels: Sequence[str], index: int) -> str:
    return labels[index] if index < len(labels) else str(index)
