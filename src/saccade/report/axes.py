"""Axes: how far they reach, and plain numbers on logarithmic ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatter, MaxNLocator, NullLocator

from saccade.report.figures import Line

NARROW = 4.0  # largest over smallest value of a logarithmic axis on which powers of ten leave one or two ticks
FAR = 1e4  # from here on only powers of ten have room


def logarithmic(axis: Any, ends: tuple[float, float]) -> None:
    """With at least three numbers along it: round ones where the axis spans less than a few powers of ten."""
    axis._set_axes_scale("log")
    if ends[1] / ends[0] > FAR:
        plain_numbers(axis)
        return
    if ends[1] / ends[0] < NARROW:
        ticks = [t for t in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(*ends) if ends[0] <= t <= ends[1]]
    else:
        every = [
            k * 10.0**e
            for e in range(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])))
            for k in (1, 2, 3, 5)
        ]
        ticks = [t for t in every if ends[0] <= t <= ends[1]]
        ticks = ticks if len(ticks) < 9 else [t for t in ticks if f"{t:e}"[0] != "3"]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    axis.set_minor_locator(NullLocator())


def plain_numbers(axis: Any) -> None:
    """matplotlib writes a logarithmic axis in formulas, which are switched off here because of labels with a $."""
    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


def span(
    lines: Sequence[Line], k: float, more: Iterable[float], log: bool, zero: bool = False
) -> tuple[float, float] | None:
    """The y range: all seeds and means; intervals too, but one of two seeds may not flatten all the rest."""
    values = [k * v for line in lines for v in [*(e.value for e in line.estimates), *sum(line.seeds, ())]]
    values = [v for v in [*values, *more] if math.isfinite(v) and (v > 0 or not log)]
    if not values:
        return None
    ends = [k * b for line in lines for e in line.estimates for b in (e.low, e.high) if math.isfinite(b)]
    into, back = (math.log, math.exp) if log else (float, float)
    low, high = into(min(values)), into(max(values))
    reach = 0.35 * (high - low) or 0.1 * abs(high) or 0.5
    inside = [into(b) for b in ends if b > 0 or not log]
    wide = (max(low - reach, min([low, *inside])), min(high + reach, max([high, *inside])))
    if zero:
        wide = (min(0.0, wide[0]), max(0.0, wide[1]))
    pad = 0.05 * (wide[1] - wide[0]) or reach
    bottom = wide[0] - (0 if zero and wide[0] == 0 else pad)
    top = wide[1] + (0 if zero and wide[1] == 0 else pad)
    if k == 100 and not log and min(values) >= 0 and max(values) <= 100:
        bottom, top = max(bottom, -2.0 if not zero else 0.0), min(top, 102.0)  # shares cannot lie beyond
    return back(bottom), back(top)
