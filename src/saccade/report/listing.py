"""Bars whose categories are listed from top to bottom, as points with intervals."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from saccade.report import axes, figures, looks
from saccade.report.figures import FAMILIES, INK, MUTED, PAPER, colour


def draw(data: figures.Bars) -> Figure:
    """Categories from top to bottom: the mean with its interval, single seeds below it, the paper's diamond."""
    k = 100 if data.y_percent else 1
    handles = looks.legend(data.lines, data.marks, (), width=60)
    legend_height = 0.2 * math.ceil(len(handles) / 2)
    figure = Figure(figsize=(5.6, 0.7 + 0.3 * max(1, len(data.categories)) + legend_height), layout="constrained")
    ax = figure.subplots()
    span = axes.span(data.lines, k, [k * m.y for m in data.marks], data.y_log)
    if span is None:
        looks.nothing(ax)
        return figure
    owners = {line.label: line for line in data.lines}
    members = {i: [line.label for line in data.lines if i in line.x] for i in range(len(data.categories))}
    step = 9.0 / max(1, *map(len, members.values()))  # points between lines of one category
    if data.y_log:
        axes.logarithmic(ax.xaxis, span)

    def moved(i: float, label: str, more: float = 0.0) -> Any:
        labels = members[int(i)]
        points = ((len(labels) - 1) / 2 - labels.index(label)) * step - more if label in labels else -more
        return ax.transData + ScaledTranslation(0, points / 72, ax.figure.dpi_scale_trans)

    for line in data.lines:
        ink = colour(line.family, line.shade)
        for i, e, seeds in zip(line.x, line.estimates, line.seeds, strict=True):
            place = moved(i, line.label)
            if math.isfinite(e.low) and math.isfinite(e.high) and e.high > e.low:
                ends = [max(k * e.low, span[0]), min(k * e.high, span[1])]
                ax.plot(ends, [i, i], color=ink, alpha=0.32, lw=3.4, solid_capstyle="butt", transform=place, zorder=2.5)
            if len(seeds) > 1:
                dots = moved(i, line.label, 4.0)
                ax.plot(
                    [k * v for v in seeds],
                    [i] * len(seeds),
                    "o",
                    ms=2.1,
                    mec="none",
                    mfc=ink,
                    alpha=0.65,
                    transform=dots,
                    zorder=3,
                )
            marker = looks.MARKERS[FAMILIES[line.family].marker]
            ax.plot([k * e.value], [i], marker, ms=4.6, mfc=ink, mec=PAPER, mew=0.6, transform=place, zorder=4)
    for mark in data.marks:
        owner = owners.get(mark.line)
        edge = colour(owner.family, owner.shade) if owner else INK
        place = moved(mark.x, mark.line)
        ax.plot([k * mark.y], [mark.x], "D", ms=4.6, mfc=PAPER, mec=edge, mew=1.2, transform=place, zorder=5)
    if span[0] < 0 < span[1]:
        ax.axvline(0, color=MUTED, lw=0.7, zorder=1)
    ax.set_xlim(*span)
    ax.set_ylim(len(data.categories) - 0.5, -0.5)
    ax.set_yticks(range(len(data.categories)), data.categories)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(looks.unit(data.y_label, data.y_percent))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(2, len(handles)), columnspacing=1.6)
    return figure
