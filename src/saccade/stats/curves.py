"""Questions about whole curves: where two cross, whether one has a peak, where training error ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.spec import Estimate, Evidence, SaccadeError, suggest
from saccade.stats import LEVEL, ROUNDING, TooFewSeeds, above, curve_arrays, estimate, power_law
from saccade.stats.tests import log

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

NOISE_FLOOR = 0.25  # see `find_peak`
Series = Mapping[int, float]  # one number per seed


@dataclass(frozen=True)
class Crossing:
    """`at` is the size, from the `crossed` of `seeds` seeds whose curves cross in this direction."""

    at: Estimate
    crossed: int
    seeds: int
    direction: str  # "a falls below b", "a rises above b"


@dataclass(frozen=True)
class Peak:
    """`height` is above the higher of the two valleys, which lie at `before` and `after`."""

    place: Estimate
    height: Estimate
    p: float
    before: float
    after: float


@dataclass(frozen=True)
class Hump:
    """One seed's curve at the peak and valleys of the other seeds: none of these numbers is picked for its noise."""

    height: float  # above the higher of the two valleys
    descent: float  # from the peak to the last point
    gain: float  # of the last point over the valley before the peak; positive is below it


def together(*several: Mapping[Any, Series]) -> tuple[list[float], list[int], list[FloatArray]]:
    """Curves of a table as arrays (seeds, x) over the x that all have and the seeds that all have at all of these."""
    x = [v for v in several[0] if all(v in curve for curve in several)]
    seeds_at_x = [set(curve[v]) for curve in several for v in x]
    seeds = sorted(set.intersection(*seeds_at_x)) if seeds_at_x else []
    rows = [np.array([[curve[v][s] for v in x] for s in seeds], dtype=float) for curve in several]
    return [float(v) for v in x], seeds, rows


def crossing(
    sizes: Sequence[float], a: Any, b: Any, *, how: str = "interpolate", level: float = LEVEL
) -> Crossing | None:
    """Where two curves of positive errors cross, seed by seed; rows of a and b are paired.

    "interpolate" joins the points by lines in log error against log size. A seed crosses when the curves have
    changed places between the ends; of several crossings, which noise makes, the middle one counts. "fit"
    takes each seed's two power laws, within the measured sizes only. None when fewer than half of the seeds
    cross in one direction; the seeds that do not are no part of the estimate.
    """
    x, first = curve_arrays(sizes, a)
    second = curve_arrays(sizes, b)[1]
    if first.shape != second.shape:
        raise SaccadeError(f"curves that cross need the same seeds, not {len(first)} and {len(second)} rows.")
    if (first <= 0).any() or (second <= 0).any():
        raise SaccadeError(
            "a curve with zero or negative error points cannot be crossed on a log scale; "
            "drop those sizes or measure on more test images."
        )
    if how not in _CROSSINGS:
        raise SaccadeError(suggest("way to cross", how, _CROSSINGS))
    crossings = _CROSSINGS[how](log(x), log(first), log(second))
    falls = [place for place, fell in crossings if fell]
    rises = [place for place, fell in crossings if not fell]
    places, direction = max((falls, "a falls below b"), (rises, "a rises above b"), key=lambda w: len(w[0]))
    if 2 * len(places) < len(first):
        return None
    at = _geometric(places, f"t on log size, {how}", level)
    return Crossing(at, len(places), len(first), direction)


def find_peak(x: Sequence[float], errors: Any, *, alpha: float = 0.05, level: float = LEVEL) -> Peak | None:
    """The peak of error against x, as in double descent; None when there is none to be shown at alpha.

    A peak is an inner x whose error exceeds the smallest error at smaller x and the smallest at larger x. For
    every x, both sides are tested with paired t tests over seeds against every other x. The weaker side
    counts, and the best x is corrected for (k − 1)(k − 2) / 2 comparisons (Bonferroni). That many suffice: a
    mean curve without a peak falls to its lowest point and rises after it; on the falling part an error can
    only by chance exceed those at smaller x, on the rising part those at larger x, and no such curve has more
    pairs.

    Errors are shares of a test set, so among many pairs and few seeds some difference is equal in all seeds
    by chance. The variance of a pair is therefore not taken below 1/16 of the mean over pairs; without this,
    28 % of curves without a peak showed one (14 points, 3 seeds, errors rounded to half a sd).

    Simulated at alpha 0.05 with 3, 4, 5 and 8 seeds, 5, 8 and 14 points, and noise that was normal, rounded,
    heavy-tailed or of unequal size: a flat curve that drops at one end, the worst case, showed a peak in up
    to 5 %, flat, steadily falling and U-shaped curves in up to 1.6 %. A peak six sds of the noise high, on 8
    points, was found in 23, 82, 99 and 100 % with 3, 4, 5 and 8 seeds.

    The place is the seeds' geometric mean, with an interval no narrower than the steps of the grid. The
    height of each seed is taken where the other seeds have peak and valleys, or it would be picked for its
    noise.
    """
    at, rows, p = _tested_for_a_peak(x, errors)
    if p > alpha:
        return None
    seeds = len(rows)
    every = np.arange(seeds)
    peak, left, right = _summit((rows.sum(axis=0) - rows) / (seeds - 1))
    sides = [estimate((rows[every, peak] - rows[every, valley]).tolist(), level) for valley in (left, right)]
    own_peak = _summit(rows)[0]
    place = _geometric(log(at[own_peak]).tolist(), "t on log x, at least the grid's steps", level)
    halfway = np.sqrt(at[1:] * at[:-1])
    place = replace(
        place,
        low=min(place.low, _geometric_mean(halfway[own_peak - 1])),
        high=max(place.high, _geometric_mean(halfway[own_peak])),
    )
    _, before, after = _summit(rows.mean(axis=0, keepdims=True))
    return Peak(place, min(sides, key=lambda side: side.value), p, float(at[before[0]]), float(at[after[0]]))


def _tested_for_a_peak(x: Sequence[float], errors: Any) -> tuple[Any, Any, float]:
    """x, errors (seeds, points), and p for "there is no peak", corrected for the number of places to look."""
    at, rows = curve_arrays(x, errors)
    seeds, points = rows.shape
    if points < 3:
        raise SaccadeError(f"a peak needs a point on either side: at least three x, not {points}.")
    if seeds < 3:
        raise TooFewSeeds(seeds, 3)
    return at, rows, min(1.0, _peak_p(rows) * (points - 1) * (points - 2) / 2)


def humps(errors: Any, like: Any = None) -> list[Hump]:
    """Each seed's hump where the other seeds of `like` (the same seeds; default: these errors) have theirs."""
    rows = np.asarray(errors, dtype=float)
    shape = rows if like is None else np.asarray(like, dtype=float)
    if len(rows) < 2:
        raise TooFewSeeds(len(rows))
    if shape.shape != rows.shape or rows.ndim != 2 or rows.shape[1] < 3:
        raise SaccadeError(f"humps need errors of one shape (seeds, 3 x or more), not {rows.shape} and {shape.shape}.")
    peak, left, right = _summit((shape.sum(axis=0) - shape) / (len(shape) - 1))
    top, before, after = (rows[np.arange(len(rows)), at] for at in (peak, left, right))
    return [
        Hump(*map(float, h))
        for h in zip(top - np.maximum(before, after), top - rows[:, -1], before - rows[:, -1], strict=True)
    ]


def peaked(x: Sequence[float], errors: Any, *, least: float = 0.02, note: str = "") -> Evidence:
    """Is there a peak? p as in `find_peak`; against it counts that no inner x stands out by `least` or more.

    For the latter, at every inner x one side must show no drop of `least` to any of its points (intersection–union
    over the points and over x, Bonferroni over the two sides).
    """
    at, rows, p = _tested_for_a_peak(x, errors)
    points = rows.shape[1]
    below = _pair_p(least - (rows[:, :, None] - rows[:, None, :]))  # p for "x exceeds this other x by less than least"
    flat = max(min(1.0, 2 * min(below[i, :i].max(), below[i, i + 1 :].max())) for i in range(1, points - 1))
    heights = [h.height for h in humps(rows)]
    height = estimate(heights)
    place = at[_summit(rows.mean(axis=0, keepdims=True))[0][0]]
    criterion = f"a peak: above 0, none: below {100 * least:g} points"
    note = "; ".join(part for part in (note, f"highest at {place:g}", criterion) if part)
    return Evidence(
        height,
        p,
        float(flat),
        f"paired t over all pairs of x, Bonferroni; none: below {least:g}",
        note=note,
        each=tuple(enumerate(heights)),
    )


def near(
    x: Sequence[float],
    train_errors: Any,
    value: float,
    *,
    factor: float = 2.0,
    level: float = 0.01,
    step: float = 1.0,
    unit: str = "",
    note: str = "",
) -> Evidence:
    """Does the interpolation threshold lie within a factor of a value? Two one-sided t tests on its logarithm.

    Of each seed it is known that its threshold lies after the last x that does not interpolate, by at least one `step`
    of the dial, and at or before the first that does; each test takes the end that is worse for it. A seed that
    never gets there lies above the last x.
    """
    at, rows = curve_arrays(x, train_errors)
    first = [_first_staying(row <= level) for row in rows]
    low = {i: math.log((at[k - 1] if k else 0.0) + step) for i, k in enumerate(first)}
    high = {i: math.log(at[k]) if k < len(at) else math.inf for i, k in enumerate(first)}
    # Half a step beyond, so that a dial at just the factor counts as within it.
    bottom, top = math.log(max(value / factor - step / 2, step / 4)), math.log(value * factor + step / 2)
    never = any(math.isinf(h) for h in high.values())
    lows, tops = above(low, bottom), above(low, top)
    p_top, p_below = (1.0, 1.0) if never else (above(high, top).p_against, above(high, bottom).p_against)
    interval = threshold(at.tolist(), rows, level, step=step)
    if interval is None:
        interval = replace(
            _geometric(list(low.values()), "t on log x, lower ends: most seeds never get there", LEVEL), high=math.inf
        )
    return Evidence(
        interval,
        max(lows.p, p_top),
        min(1.0, 2 * min(tops.p, p_below)),
        f"two one-sided t on the log threshold, factor {factor:g}",
        unit,
        None,
        "; ".join(filter(None, (f"asked: {math.exp(bottom):g} to {math.exp(top):g}", note))),
    )


def _first_staying(holds: NDArray[np.bool_]) -> int:
    """The first index from which all hold; the length when the last does not."""
    bad = np.flatnonzero(~holds)
    return int(bad[-1]) + 1 if len(bad) else 0


def threshold(x: Sequence[float], train_errors: Any, level: float = 0.01, *, step: float = 0.0) -> Estimate | None:
    """The interpolation threshold: the smallest x from which training error stays at or below `level`.

    Geometric mean over the seeds that get there; None when fewer than half do. Each seed's threshold lies
    between two points of the grid, so the interval reaches down to the earlier ones (to 0 before the first), and with a
    dial that goes in steps to one step beyond them.
    """
    at, rows = curve_arrays(x, train_errors)
    stays = np.logical_and.accumulate((rows <= level)[:, ::-1], axis=1)[:, ::-1]
    reaches = stays[:, -1]
    if 2 * reaches.sum() < len(rows):
        return None
    first = stays[reaches].argmax(axis=1)
    method = f"t on log x, {reaches.sum()} of {len(rows)} seeds get there"
    place = _geometric(log(at[first]).tolist(), method, LEVEL)
    below = np.where(first > 0, at[first - 1], 0.0) + step
    earlier = _geometric_mean(below) if (below > 0).all() else 0.0
    return replace(place, low=min(place.low, earlier))


def _interpolated(x: FloatArray, a: FloatArray, b: FloatArray) -> list[tuple[float, bool]]:
    crossings = []
    for gaps in a - b:
        nonzero = np.flatnonzero(gaps)  # points where the curves touch take no side
        sign_changes = [(i, j) for i, j in pairwise(nonzero) if gaps[i] * gaps[j] < 0]
        if len(sign_changes) % 2:  # an even number of turns ends where it began
            i, j = sign_changes[len(sign_changes) // 2]
            place = x[i + 1 : j].mean() if j > i + 1 else x[i] + (x[j] - x[i]) * gaps[i] / (gaps[i] - gaps[j])
            crossings.append((float(place), bool(gaps[i] > 0)))
    return crossings


def _fitted(x: FloatArray, a: FloatArray, b: FloatArray) -> list[tuple[float, bool]]:
    sizes = [math.exp(v) for v in x]
    first, second = (power_law(sizes, [[math.exp(v) for v in row] for row in rows]) for rows in (a, b))
    crossings = []
    for slope_a, slope_b, start_a, start_b in zip(
        first.exponents, second.exponents, first.log_prefactors, second.log_prefactors, strict=True
    ):
        place = (start_b - start_a) / (slope_a - slope_b) if slope_a != slope_b else math.inf
        if x[0] <= place <= x[-1]:
            crossings.append((place, slope_a < slope_b))
    return crossings


_CROSSINGS = {"interpolate": _interpolated, "fit": _fitted}


def _summit(rows: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Per row: the inner point that is highest above the higher of its two valleys, and those valleys."""
    columns = np.arange(rows.shape[1])
    left = np.minimum.accumulate(rows, axis=1)[:, :-2]
    right = np.minimum.accumulate(rows[:, ::-1], axis=1)[:, ::-1][:, 2:]
    peak = (rows[:, 1:-1] - np.maximum(left, right)).argmax(axis=1) + 1
    before = np.where(columns < peak[:, None], rows, np.inf).argmin(axis=1)
    after = np.where(columns > peak[:, None], rows, np.inf).argmin(axis=1)
    return peak, before, after


def _pair_p(gaps: FloatArray) -> FloatArray:
    """p for "the gap is above 0" for every pair of x, from gaps (seeds, x, x)."""
    from scipy.special import stdtr

    seeds, points = gaps.shape[:2]
    mean, variance = gaps.mean(axis=0), gaps.var(axis=0, ddof=1)
    pooled = variance.sum() / (points * (points - 1))
    # The second floor is for seeds that agree up to rounding: any real difference then decides.
    floor = max(NOISE_FLOOR**2 * pooled, (ROUNDING * (np.abs(gaps).max() or 1.0)) ** 2)
    p: FloatArray = stdtr(seeds - 1, -mean / np.sqrt(np.maximum(variance, floor) / seeds))
    return p


def _peak_p(rows: FloatArray) -> float:
    """Smallest over inner points of the larger of the two sides' smallest p, before correction."""
    p = _pair_p(rows[:, :, None] - rows[:, None, :])
    left = np.tril(np.ones_like(p, dtype=bool), -1)
    sides = np.maximum(np.where(left, p, 1.0).min(axis=1), np.where(left.T, p, 1.0).min(axis=1))
    return float(sides[1:-1].min())


def _geometric(logs: Sequence[float], method: str, level: float) -> Estimate:
    log_estimate = estimate(logs, level)
    return Estimate(
        math.exp(log_estimate.value),
        math.exp(log_estimate.low),
        math.exp(log_estimate.high),
        log_estimate.n,
        method,
        level,
    )


def _geometric_mean(values: FloatArray) -> float:
    return math.exp(math.fsum(log(values)) / values.size)
