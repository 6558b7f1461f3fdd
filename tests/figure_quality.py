"""What a program can see to be wrong in a figure: text on text, lines that look alike, axes and keys without data."""

from __future__ import annotations

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from saccade.report import draw, figures


def faults(data):
    """Sentences; none for a figure that may be printed."""
    return [*_overlaps(draw.draw(data)), *_equal_styles(data), *_empty(data)]


def _overlaps(figure):
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    boxes = [(t, t.get_window_extent(renderer)) for t in shown if t.axes is None or t.axes.get_visible()]
    boxes = [(t.get_text(), b) for t, b in boxes if b.width > 0 and b.x1 > 0 and b.y1 > 0]
    for (one, a), (other, b) in combinations(boxes, 2):
        across, down = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if across > 1 and down > 2:  # boxes hold the room below the line of letters, too
            yield f"{one!r} lies on {other!r}"


def _equal_styles(data):
    for panel in data.panels if isinstance(data, figures.Curves) else ():
        seen = {}
        for line in panel.lines:
            look = (line.family, line.dash, line.shade)
            if look in seen:
                yield f"{line.label!r} looks like {seen[look]!r}"
            seen[look] = line.label


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
