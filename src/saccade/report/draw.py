"""Figure data -> matplotlib, as Figure objects without pyplot's global state."""

from __future__ import annotations

import base64
import io
import math
import re
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, TwoSlopeNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from saccade.lab.store import write_atomic
from saccade.report import axes, figures, listing, looks
from saccade.report.figures import FAMILIES, GRID, INK, MUTED, PAPER, FigureData, Line, Mark, Panel, colour
from saccade.spec import SaccadeError, suggest

FORMATS = ("svg", "pdf", "png")


def draw(data: FigureData) -> Figure:
    with matplotlib.rc_context(looks.STYLE):
        if isinstance(data, figures.Curves):
            return _curves(data)
        if isinstance(data, figures.Bars):
            return _bars(data)
        if isinstance(data, figures.Budget):
            return _budget(data)
        return _heatmap(data) if isinstance(data, figures.Heatmap) else _images(data)


NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")  # a title may have them, an SVG must not


def render(data: FigureData, kind: str) -> bytes:
    """The file's content; the same data give the same bytes."""
    if kind not in FORMATS:
        raise SaccadeError(suggest("figure format", kind, FORMATS))
    out = io.BytesIO()
    metadata: dict[str, Any] = {
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }[kind]
    if data.title:
        metadata["Title"] = data.title
    figure = draw(data)
    with matplotlib.rc_context(looks.STYLE):
        figure.savefig(out, format=kind, dpi=220 if kind == "png" else 72, metadata=metadata)
    if kind != "svg":
        return out.getvalue()
    text = re.sub(r"'DejaVu Sans'(, sans-serif)?", looks.FONTS, out.getvalue().decode())
    text = NOT_XML.sub("", text)
    return re.sub(r"[ \t]+\n", "\n", text).encode()


def save(data: FigureData, path: str | Path) -> Path:
    """Write svg, pdf or png, by the suffix; a reader never sees half a file."""
    path = Path(path)
    write_atomic(path, render(data, path.suffix.lstrip(".").lower()))
    return path


def _curves(data: figures.Curves) -> Figure:
    k = 100 if data.y_percent else 1
    panels = data.panels or (Panel("", ()),)
    own_axes = any(p.y_label for p in panels)
    columns = min(len(panels), 2 if own_axes and len(panels) == 4 else 3 if own_axes or len(panels) in (5, 6, 9) else 4)
    rows = math.ceil(len(panels) / columns)
    lines = [line for p in panels for line in p.lines]
    marks, fits = [m for p in panels for m in p.marks], [f for p in panels for f in p.fits]
    handles = looks.legend(lines, marks, fits, width=26 if columns == 1 else 60)
    size, place = _room(handles, columns, rows, wide=columns > 1)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=not own_axes)
    shared = _span([p for p in panels if not p.y_label], k, data.y_log)
    for i, (panel, ax) in enumerate(zip(panels, grid.flat, strict=False)):
        span = _span([panel], k, data.y_log) if panel.y_label else shared
        _panel(ax, panel, k, span, data.y_log, 235 if columns == 1 else 400 / columns)
        if panel.y_label or i % columns == 0:
            ax.set_ylabel(looks.unit(panel.y_label or data.y_label, data.y_percent))
        elif own_axes:
            ax.tick_params(labelleft=False)
    for ax in grid.flat[len(panels) :]:
        ax.set_axis_off()
    if handles:
        figure.legend(handles=handles, **place)
    return figure


def _span(panels: Sequence[Panel], k: float, log: bool) -> tuple[float, float] | None:
    lines = [line for p in panels for line in p.lines]
    more = [*(k * m.y for p in panels for m in p.marks), *(k * y for p in panels for f in p.fits for y in f.y)]
    return axes.span(lines, k, more, log)


def _panel(ax: Any, panel: Panel, k: float, span: tuple[float, float] | None, y_log: bool, width: float) -> None:
    """`width` is about that of the axes in points: enough to know what would overlap."""
    ax.set_title(textwrap.fill(panel.title, max(12, int(width / 5.6))))
    ax.set_xlabel(textwrap.fill(panel.x_label, max(12, int(width / 4.6))))
    measured = {x for line in panel.lines for x in line.x}
    xs = sorted(measured | {m.x for m in panel.marks} | {x for f in panel.fits for x in f.x})
    if not xs or span is None:
        looks.nothing(ax, alone=span is None)
        return
    if panel.x_log and xs[0] <= 0:
        raise SaccadeError(f'"{panel.x_label}" has {xs[0]:g}, which a logarithmic axis cannot show.')
    into: Callable[[float], float] = math.log if panel.x_log else float
    reach = (into(xs[-1]) - into(xs[0])) or 1
    places = [width * (into(x) - into(xs[0])) / reach for x in xs]
    # A paper's value beside a measured one does not make the panel crowded.
    measured_places = [place for x, place in zip(xs, places, strict=True) if x in measured]
    gap = min((b - a for a, b in pairwise(measured_places)), default=width / 2)
    room = min(15.0, 0.6 * gap) / max(len(panel.lines), 1)
    # Then bands instead of bars side by side.
    crowded = gap < 7 or room < 1.2 or len(measured) * len(panel.lines) > CROWD
    dodge = 0.0 if crowded else min(4.6, room)
    _x_axis(ax, panel, xs, places, measured)
    if y_log:
        axes.logarithmic(ax.yaxis, span)
    else:  # matplotlib's own choice falls to two numbers in a low panel
        ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    ax.set_ylim(*span)
    offsets = {}
    for i, line in enumerate(panel.lines):
        points = (i - (len(panel.lines) - 1) / 2) * dodge
        shifted = ax.transData + ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)
        offsets[line.label] = (shifted, line)
        _line(ax, line, k, shifted, span, crowded, aside=min(3.4, 0.85 * dodge))
    for fit in panel.fits:
        ax.plot(fit.x, [k * y for y in fit.y], color=colour(fit.family, 0.9), lw=0.9, ls=looks.FITTED, zorder=4.5)
    for mark in panel.marks:
        shifted, owner = offsets.get(mark.line, (ax.transData, None))
        _mark(ax, mark, mark.x, k, shifted, owner)


def _x_axis(ax: Any, panel: Panel, xs: Sequence[float], places: Sequence[float], measured: Collection[float]) -> None:
    """`places` are the positions of xs in points, to leave out labels that would touch; measured ones come first."""
    into, back = (math.log, math.exp) if panel.x_log else (float, float)
    pad = (into(xs[-1]) - into(xs[0])) * 12 / max(places[-1], 1) or 0.5
    ends = (back(into(xs[0]) - pad), back(into(xs[-1]) + pad))
    if panel.x_log:
        ax.set_xscale("log", base=panel.x_log)
    ax.set_xlim(*(ends[::-1] if panel.x_down else ends))
    ax.grid(axis="x", visible=False)
    if len(xs) > 12 or (panel.x_log == 10 and len(xs) > 5):
        if not panel.x_log:
            ax.xaxis.set_major_locator(MaxNLocator(max(3, int(places[-1] / 34))))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
        else:
            axes.plain_numbers(ax.xaxis)
        return
    texts: dict[float, str] = {}
    used_places: list[tuple[float, float]] = []  # the middle of each label and half its width
    for x, place in sorted(zip(xs, places, strict=True), key=lambda at: (at[0] not in measured, at[0])):
        text = f"{x:,.6g}"
        half = 2.6 * len(text)
        free = all(abs(place - other) > half + room for other, room in used_places)
        texts[x] = text if free else ""
        used_places += [(place, half)] if free else []
    ax.set_xticks(list(xs), [texts[x] for x in xs])
    ax.xaxis.set_minor_locator(NullLocator())


def _line(ax: Any, line: Line, k: float, shifted: Any, span: tuple[float, float], crowded: bool, aside: float) -> None:
    ink = colour(line.family, line.shade)
    means = [k * e.value for e in line.estimates]
    bounds = [
        (x, k * e.low, k * e.high)
        for x, e in zip(line.x, line.estimates, strict=True)
        if math.isfinite(e.low) and math.isfinite(e.high) and e.high > e.low
    ]
    if crowded and bounds:
        ax.fill_between(*zip(*bounds, strict=True), color=ink, alpha=0.16, lw=0, zorder=2)
    for x, low, high in bounds if not crowded else ():
        ax.plot(
            [x, x],
            [max(low, span[0]), min(high, span[1])],
            color=ink,
            alpha=0.32,
            lw=3.4,
            solid_capstyle="butt",
            transform=shifted,
            zorder=2.5,
        )
        for end, beyond, arrow in ((span[0], low < span[0], 7), (span[1], high > span[1], 6)):
            if beyond:  # an interval that leaves the frame says so
                ax.plot([x], [end], marker=arrow, ms=3.6, color=ink, transform=shifted, clip_on=False)
    points = [(x, k * v) for x, seeds in zip(line.x, line.seeds, strict=True) if len(seeds) > 1 for v in seeds]
    if points and not crowded:  # a little to the right, or the mean would cover them
        right = shifted + ScaledTranslation(aside / 72, 0, ax.figure.dpi_scale_trans)
        ax.plot(*zip(*points, strict=True), "o", ms=2.1, mec="none", mfc=ink, alpha=0.65, transform=right, zorder=3)
    ax.plot(line.x, means, color=ink, lw=1.3, ls=looks.DASHES[line.dash], transform=shifted, zorder=3.5)
    every = max(1, len(line.x) // 6) if crowded else 1
    ax.plot(
        line.x,
        means,
        ls="none",
        marker=looks.MARKERS[FAMILIES[line.family].marker],
        ms=4,
        mfc=ink,
        mec=PAPER,
        mew=0.6,
        markevery=every,
        transform=shifted,
        zorder=4,
    )


def _mark(ax: Any, mark: Mark, x: float, k: float, shifted: Any, owner: Line | None) -> None:
    edge = colour(owner.family, owner.shade) if owner else INK
    ax.plot([x], [k * mark.y], "D", ms=5, mfc=PAPER, mec=edge, mew=1.2, transform=shifted, zorder=5)
    if mark.text:
        ax.annotate(mark.text, (x, k * mark.y), xytext=(6, 4), textcoords="offset points", fontsize=7.5, color=MUTED)


# A verdict's colour, dark enough for text, and its sign; both, so that colour is never the only one.
VERDICTS = {
    "reproduced": ("#0A6B4B", "✓"),
    "holds": ("#0A6B4B", "✓"),
    "contradicted": ("#A63C00", "✗"),
    "does not hold": ("#A63C00", "✗"),
    "equivalent": ("#1F5FA8", "="),
    "undecided": ("#6E7781", "?"),
}
BUDGET_COLUMNS = 4  # with five, names such as L-F12-cifar-slope are wider than their panel and cut at the edge
CROWD = 40  # intervals of one panel, above which single bars hide one another
CHARACTER = 5.6  # points across of a letter in a label of 8 points, and a little air


def _budget(data: figures.Budget) -> Figure:
    columns = min(BUDGET_COLUMNS, len(data.paths))
    rows = math.ceil(len(data.paths) / columns)
    figure = Figure(figsize=(7.2, 0.35 + 1.35 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for ax in grid[len(data.paths) :]:
        ax.set_visible(False)
    for ax, path in zip(grid, data.paths, strict=False):
        ink, sign = VERDICTS.get(path.says, VERDICTS["undecided"])
        k = 100 if path.unit == "points" else 1
        ax.axhline(k * path.null, color=MUTED, lw=0.7, zorder=1)
        xs = [100 * s for s in path.shares]
        ys = [k * e.value for e in path.estimates]
        ends = [(k * e.low, k * e.high) for e in path.estimates]
        for x, y, (low, high) in zip(xs, ys, ends, strict=True):
            if math.isfinite(low) and math.isfinite(high):
                ax.plot([x, x], [low, high], color=ink, lw=1.6, alpha=0.55, solid_capstyle="butt", zorder=2)
            ax.plot([x], [y], "o", color=ink, ms=3.4, zorder=3)
        ax.plot(xs, ys, color=ink, lw=0.9, zorder=2)
        ax.set_title(f"{sign} {path.label}", fontsize=7, color=ink, pad=3)
        ax.set_ylabel(path.unit, fontsize=6.5, labelpad=2)
        ax.set_xlim(40, 110)
        ax.set_xticks([50, 75, 100])
        ax.tick_params(labelsize=6.5)
        ax.yaxis.set_major_locator(MaxNLocator(3))
        ax.grid(axis="x", visible=False)
    figure.supxlabel("share of the training budget (%)", fontsize=8)
    return figure


def _bars(data: figures.Bars) -> Figure:
    if data.down:
        return listing.draw(data)
    k = 100 if data.y_percent else 1
    # A key that would repeat what stands under the bars, or one word, is left out; n then stands elsewhere.
    label_is_category = all(len(line.x) == 1 and line.label == data.categories[int(line.x[0])] for line in data.lines)
    legend_lines = () if label_is_category or len(data.lines) == 1 else data.lines
    handles = looks.legend(legend_lines, data.marks, (), width=26, blocks=not data.y_log)
    broad = sum(len(line.x) for line in data.lines) > 18
    size, place = _room(handles, 1, 1, wide=broad)
    figure = Figure(figsize=size, layout="constrained")
    ax = figure.subplots()
    ax.set_xlabel(data.x_label)
    count_text = f"\n{_caption_end(data.lines[0])}" if len(data.lines) == 1 and not label_is_category else ""
    ax.set_ylabel(looks.unit(data.y_label, data.y_percent) + count_text)
    ax.grid(axis="x", visible=False)
    if handles:
        figure.legend(handles=handles, **place)
    span = axes.span(data.lines, k, [k * m.y for m in data.marks], data.y_log, zero=not data.y_log)
    if span is None:
        looks.nothing(ax)
        return figure
    # Bars of one category stand side by side around its middle; a line that has none there takes no room.
    members = {x: [line.label for line in data.lines if x in line.x] for x in range(len(data.categories))}
    wide = 0.8 / max(1, *map(len, members.values()))

    def middle(x: float, label: str) -> float:
        labels = members[int(x)]
        return x + (labels.index(label) - (len(labels) - 1) / 2) * wide if label in labels else x

    owners = {line.label: line for line in data.lines}
    if data.y_log:
        axes.logarithmic(ax.yaxis, span)
    for line in data.lines:
        xs, ink = [middle(x, line.label) for x in line.x], colour(line.family, line.shade)
        if not data.y_log:  # on a logarithmic axis a bar's length means nothing
            ax.bar(
                xs,
                [k * e.value for e in line.estimates],
                0.86 * wide,
                color=(*to_rgb(ink), 0.16),
                edgecolor=ink,
                lw=0.8,
                ls=looks.DASHES[line.dash],
                zorder=2,
            )
        for x, e, seeds in zip(xs, line.estimates, line.seeds, strict=True):
            single = replace(line, x=(x,), estimates=(e,), seeds=(seeds,), dash="solid")
            _line(ax, single, k, ax.transData, span, crowded=False, aside=6)
    for mark in data.marks:
        _mark(ax, mark, middle(mark.x, mark.line), k, ax.transData, owners.get(mark.line))
    if span[0] < 0 < span[1]:
        ax.axhline(0, color=MUTED, lw=0.7, zorder=2)
    ax.set_xlim(-0.55, len(data.categories) - 0.45)
    ax.set_ylim(*span)
    room = max(7, int((84 if broad else 46) / len(data.categories)))
    names = [_broken(c, room) for c in data.categories]
    if label_is_category:
        captions = {int(line.x[0]): _caption_end(line) for line in data.lines}
        names = [f"{name}\n{_broken(captions[i], max(room, 11))}" for i, name in enumerate(names)]
    ax.set_xticks(range(len(data.categories)), names)
    ax.tick_params(axis="x", length=0)
    return figure


def _caption_end(line: Line) -> str:
    """As in `n=5, 1 diverged`."""
    return line.caption.removeprefix(f"{line.label}, ")


def _broken(text: str, room: int) -> str:
    return textwrap.fill(text, room, break_long_words=False, break_on_hyphens=False)


def _heatmap(data: figures.Heatmap) -> Figure:
    k = 100 if data.percent else 1
    down, across = len(data.row_labels), len(data.column_labels)
    cells = [(i, j, e) for i, row in enumerate(data.cells) for j, e in enumerate(row)]
    values = [k * e.value for *_, e in cells if e is not None]
    with_numbers = down * across <= 150
    side = min(0.52, 5.2 / max(across, 1))
    figure = Figure(
        figsize=(min(7.0, max(3.4, 1.5 + side * across)), max(2.0, 0.9 + 0.78 * side * down)), layout="constrained"
    )
    ax = figure.subplots()
    ax.set_xlabel(data.x_label)
    ax.set_ylabel(data.y_label)
    ax.grid(visible=False)
    if not values:
        looks.nothing(ax)
        return figure
    top = max(*map(abs, values), k * data.ceiling) or 1.0
    most = max(*values, k * data.ceiling)
    norm = (
        TwoSlopeNorm(0, -top, top)
        if data.diverging
        else Normalize(min(values), most if most > min(values) else min(values) + 1)
    )
    shades = matplotlib.colormaps["PuOr" if data.diverging else "cividis"]
    for i, j, e in cells:
        fill = GRID if e is None else shades(norm(k * e.value))
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=fill, edgecolor=PAPER, lw=1.2))
        if with_numbers:
            # Not quite INK and PAPER: these stand on the cell's colour, which no page changes.
            bright = sum(c * w for c, w in zip(to_rgb(fill), (0.3, 0.59, 0.11), strict=True))
            ink = "#15181c" if bright > 0.5 else "#fdfdfd"
            text = "–" if e is None else "0" if not e.value else f"{k * e.value:.1f}" if k > 1 else _cell(e.value)
            ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color=ink)
    present = [e for *_, e in cells if e is not None]
    unit = f"{looks.unit(data.unit, data.percent)}, {figures.counted(present)}"
    halves = [k * (e.high - e.low) / 2 for e in present if math.isfinite(e.high - e.low)]
    if halves and max(halves) > 0:
        unit += f", 95 % intervals at most ± {max(halves):.2g}"
    if with_numbers:
        room = int((figure.get_figwidth() - 1.3) * 72 / CHARACTER)
        ax.set_title(textwrap.fill(unit, room), fontsize=8.5, fontweight="normal", color=MUTED)
    else:
        bar = figure.colorbar(ScalarMappable(norm, shades), ax=ax, label=unit)
        bar.outline.set_visible(False)
    ax.set_xlim(-0.5, across - 0.5)
    ax.set_ylim(down - 0.5, -0.5)
    across_one = (figure.get_figwidth() - 1.5) / max(across, 1)  # the rest is for the labels of the rows
    _names(ax.xaxis, data.column_labels, wide=int(across_one * 72 / CHARACTER))
    _names(ax.yaxis, data.row_labels, wide=16)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return figure


def _cell(value: float) -> str:
    """Two places, and the power of ten where they would show nothing."""
    return f"{value:.0e}".replace("e-0", "e-") if 0 < abs(value) < 5e-3 else f"{value:.2f}"


def _images(data: figures.ImageGrid) -> Figure:
    down, across = len(data.images), max(map(len, data.images), default=0)
    if not down or not across:
        figure = Figure(figsize=(3.4, 1.6), layout="constrained")
        looks.nothing(figure.subplots())
        return figure
    cells = [(i, j, p) for i, row in enumerate(data.images) for j, p in enumerate(row) if p is not None]
    tall = max((p.height / p.width for *_, p in cells), default=1.0)
    step = tall + (0.3 if any(p.caption for *_, p in cells) else 0.08)
    longest = max((len(part) for r in data.row_labels for part in textwrap.wrap(r, 16)), default=0)
    left = 0.22 + 0.065 * longest
    top = 0.12 + 0.15 * max((len(textwrap.wrap(c, 11)) for c in data.column_labels), default=0)
    side = min(0.86, (7 - left) / (1.08 * across))
    figure = Figure(figsize=(left + 1.08 * across * side, top + step * down * side))
    ax = figure.add_axes(
        (left / figure.get_figwidth(), 0, 1 - left / figure.get_figwidth(), 1 - top / figure.get_figheight())
    )
    ax.set_axis_off()
    for i, j, p in cells:
        x, y = 1.08 * j, i * step
        pixels = imread(io.BytesIO(base64.b64decode(p.png)), format="png")
        ax.imshow(
            pixels,
            cmap="gray",
            vmin=0,
            vmax=1,
            interpolation="none",
            aspect="auto",
            extent=(x, x + 1, y + p.height / p.width, y),
        )
        ax.text(x + 0.5, y + tall + 0.03, p.caption, ha="center", va="top", fontsize=7, color=MUTED)
    for j, label in enumerate(data.column_labels):
        ax.text(1.08 * j + 0.5, -0.06, textwrap.fill(label, 11), ha="center", va="bottom", fontsize=8)
    for i, label in enumerate(data.row_labels):
        ax.text(-0.1, i * step + tall / 2, textwrap.fill(label, 16), ha="right", va="center", fontsize=8)
    ax.set_xlim(0, 1.08 * across)
    ax.set_ylim(step * down, 0)
    return figure


def _room(handles: Sequence[Any], columns: int, rows: int, wide: bool) -> tuple[tuple[float, float], dict[str, Any]]:
    """Figure size in inches and the legend's place: right of one panel, below several."""
    labels = [str(h.get_label()).split("\n") for h in handles]
    longest = max((len(text) for label in labels for text in label), default=0)
    if not wide:
        tall = sum(0.085 + 0.135 * len(label) for label in labels)
        size = (4.1 + (0.7 + 0.068 * longest if handles else 0), max(3.0, tall + 0.2))
        return size, {"loc": "outside right center", "labelspacing": 0.7}
    across = max(1, min(len(handles), int(7.0 / (0.72 + 0.066 * longest))))
    below = math.ceil(len(handles) / across)
    across = math.ceil(len(handles) / below) if handles else 1
    size = (7.0 if columns > 1 else 6.2, 2.5 * rows + 0.2 * below)
    return size, {"loc": "outside lower center", "ncols": across, "columnspacing": 1.6}


def _names(axis: Any, labels: Sequence[str], wide: int) -> None:
    """Broken into lines of `wide` characters; turned upright where a single word is wider."""
    every = max(1, math.ceil(len(labels) / 24))
    visible = labels[::every]
    upright = max((len(word) for v in visible for word in v.split()), default=0) > wide * every
    names = [textwrap.fill(v, 22 if upright else max(1, wide * every), break_long_words=False) for v in visible]
    axis.set_ticks(range(0, len(labels), every), names, rotation=90 if upright else 0)
