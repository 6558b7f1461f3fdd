"""How lines, families and keys look in every drawing."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from saccade.report import figures
from saccade.report.figures import FAMILIES, GRID, INK, MUTED, PAPER, Line, Mark, colour

FONTS = "'Inter', 'Helvetica Neue', 'Helvetica', 'Arial', 'DejaVu Sans', sans-serif"
MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle up": "^",
    "triangle down": "v",
    "plus": "P",
    "cross": "X",
    "pentagon": "p",
}
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (4.5, 1.8)),
    "dotted": (0, (1.1, 1.5)),
    "dashdot": (0, (5, 1.6, 1.1, 1.6)),
}
FITTED = (0, (2.4, 1.6))  # unlike every dash of a line
STYLE: Any = {
    # Text is measured in the font that comes with matplotlib, so the layout is the same on every machine;
    # it is wider than the fonts that SVG then asks for, so nothing overflows.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "text.usetex": False,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.labelsize": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 3.2,
    "figure.facecolor": PAPER,
    "savefig.facecolor": "auto",
    "svg.fonttype": "none",
    "svg.hashsalt": "saccade",
    "pdf.fonttype": 42,
    "image.composite_image": False,
}


def legend(
    lines: Sequence[Line], marks: Sequence[Mark], fits: Sequence[figures.Fit], width: int, blocks: bool = False
) -> list[Any]:
    """One entry a look; panels that show the same line share it, with the counts of all of them."""
    merged: dict[tuple[Any, ...], Line] = {}
    for line in lines:
        key = (line.label, line.family, line.dash, line.shade)
        previous = merged.get(key)
        merged[key] = (
            line
            if previous is None
            else replace(
                line if line.missing > previous.missing else previous,
                x=previous.x + line.x,
                estimates=previous.estimates + line.estimates,
                seeds=previous.seeds + line.seeds,
            )
        )
    handles: list[Any] = [
        Patch(
            facecolor=(*to_rgb(colour(line.family, line.shade)), 0.16),
            edgecolor=colour(line.family, line.shade),
            lw=0.8,
            ls=DASHES[line.dash],
            label=wrapped(line.caption, width),
        )
        if blocks
        else Line2D(
            [],
            [],
            color=colour(line.family, line.shade),
            lw=1.3,
            ls=DASHES[line.dash],
            marker=MARKERS[FAMILIES[line.family].marker],
            ms=4.4,
            mec=PAPER,
            mew=0.6,
            label=wrapped(line.caption, width),
        )
        for line in merged.values()
    ]
    handles += [
        Line2D([], [], color=colour(family, 0.9), lw=0.9, ls=FITTED, label=wrapped(label, width))
        for label, family in dict.fromkeys((f.label, f.family) for f in fits)
    ]
    if marks:
        handles.append(Line2D([], [], ls="none", marker="D", ms=5, mfc=PAPER, mec=INK, mew=1.2, label="paper's value"))
    return handles


def wrapped(caption: str, width: int) -> str:
    """Broken at spaces, but not inside `n=4 to 5`, `1 diverged` or `0.5 ± 0.1`."""
    unbroken = r"n=\d+ to \d+|\d+ (diverged|failed|not run yet|missing)|\S+ = \S+ ± \S+|\S+ = \S+"
    return textwrap.fill(re.sub(unbroken, lambda m: m[0].replace(" ", "\u00a0"), caption), width)


def nothing(ax: Any, alone: bool = True) -> None:
    ax.text(0.5, 0.5, "no rows yet", transform=ax.transAxes, ha="center", va="center", color=MUTED)
    ax.set_xticks([])
    if alone:  # else y belongs to the panels beside it too
        ax.set_yticks([])


def unit(label: str, percent: bool) -> str:
    has_unit = any(unit in label for unit in ("%", "(points)", "percentage points"))
    return f"{label} (%)" if percent and not has_unit else label
