"""What a program can see to be wrong in a figure: text on text or cut off, lines that look alike, unnamed axes."""

from __future__ import annotations

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from saccade.report import draw, figures

FEWEST = 3  # numbers along a y axis from which a value can be read


def faults(data):
    """Sentences; none for a figure that may be printed."""
    figure = draw.draw(data)
    FigureCanvasAgg(figure).draw()
    return [
        *_overlaps(figure),
        *_cut(figure),
        *_few_numbers(figure, data),
        *_equal_styles(data),
        *_unnamed(data),
        *_empty(data),
        *_said_twice(figure),
    ]


def _boxes(figure):
    """Every text that is seen, with its frame. A tick beyond the ends of its axis has a text, which is not drawn."""
    renderer = figure.canvas.get_renderer()
    unseen = {label for ax in figure.axes for axis in (ax.xaxis, ax.yaxis) for label in _beyond(axis)}
    for text in figure.findobj(Text):
        if text in unseen or not text.get_visible() or not text.get_text().strip():
            continue
        if text.axes is not None and not text.axes.get_visible():
            continue
        box = text.get_window_extent(renderer)
        if box.width > 0:
            yield text.get_text(), box


def _beyond(axis):
    low, high = sorted(axis.get_view_interval())
    for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
        if not low <= tick.get_loc() <= high:
            yield from (tick.label1, tick.label2)


def _overlaps(figure):
    for (one, a), (other, b) in combinations(_boxes(figure), 2):
        across, down = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if across > 1 and down > 2:  # boxes hold the room below the line of letters, too
            yield f"{one!r} lies on {other!r}"


def _cut(figure):
    edge = figure.bbox
    for text, box in _boxes(figure):
        if box.x0 < edge.x0 - 1 or box.x1 > edge.x1 + 1 or box.y0 < edge.y0 - 2 or box.y1 > edge.y1 + 2:
            yield f"{text!r} reaches beyond the figure"


def _few_numbers(figure, data):
    """A logarithmic axis over less than a power of ten has one tick or none, unless somebody cares."""
    if not isinstance(data, figures.Curves):
        return
    for ax in figure.axes:
        low, high = sorted(ax.yaxis.get_view_interval())
        shown = [
            t for t in ax.yaxis.get_ticklabels(which="both") if t.get_text() and low <= t.get_position()[1] <= high
        ]
        if ax.axison and ax.lines and ax.yaxis.get_tick_params()["labelleft"] and len(shown) < FEWEST:
            yield f"only {len(shown)} numbers along y of {ax.get_title()!r}"


def _equal_styles(data):
    for panel in data.panels if isinstance(data, figures.Curves) else ():
        seen = {}
        for line in panel.lines:
            look = (line.family, line.dash, line.shade)
            if look in seen:
                yield f"{line.label!r} looks like {seen[look]!r}"
            seen[look] = line.label


def _unnamed(data):
    """Axes that do not say what they show, and those that say two things."""
    if isinstance(data, figures.Curves):
        named = {f"y of {p.title!r}": p.y_label or data.y_label for p in data.panels}
        named |= {f"x of {p.title!r}": p.x_label for p in data.panels}
    elif isinstance(data, figures.Bars):
        named = {"y": data.y_label}
    elif isinstance(data, figures.Heatmap):
        named = {"colour": data.unit}
    else:
        return
    for axis, label in named.items():
        if not label:
            yield f"nothing says what {axis} shows"
        if any(word in label for word in (", and ", ", or ")):
            yield f"{axis} shows two quantities: {label!r}"


def _empty(data):
    if isinstance(data, figures.Curves):
        groups = {p.title: p.lines for p in data.panels}
    elif isinstance(data, figures.Bars):
        groups = {"bars": data.lines}
    else:
        return
    for name, lines in groups.items():
        if not any(line.x for line in lines):
            yield f"nothing is drawn in {name!r}"
        for line in lines:
            if not line.x and not line.missing:
                yield f"the key names {line.label!r}, which is not drawn"


def _said_twice(figure):
    for key in (*figure.legends, *(ax.get_legend() for ax in figure.axes)):
        labels = [text.get_text() for text in key.get_texts()] if key else []
        yield from (f"the key has {label!r} twice" for label in dict.fromkeys(labels) if labels.count(label) > 1)
