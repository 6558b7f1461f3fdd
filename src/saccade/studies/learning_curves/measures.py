"""Numbers of the learning-curve study, from its rows: errors, exponents, thresholds, humps, and how closely it looks.

All are pure functions of the table, so that they can be asked of every milestone of the training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.requirements import MIN_PAIRS
from saccade.spec import Evidence
from saccade.stats import TooFewSeeds, curves
from saccade.studies.learning_curves.arms import PHOTOS, SWEPT_P, Arm, vit

INTERPOLATES = 0.01  # training error up to which a model counts as interpolating
FEWEST = 4  # sizes of a power law

Curve = dict[int, Series]


def error(table: Table, arm: Arm, channels: int, p: int, *, noise: float = 0.0, split: str = "test") -> Series:
    """1 - accuracy; clean labels in test, the given ones in training."""
    accuracy_by_seed = table.series("accuracy", arm=arm.name, channels=channels, p=p, noise=noise, split=split)
    return {s: 1 - a for s, a in accuracy_by_seed.items()}


def learning(table: Table, arm: Arm, channels: int, split: str = "test") -> Curve:
    """A clean learning curve: error against p."""
    rows = table.at(metric="accuracy", arm=arm.name, channels=channels, noise=0.0, split=split)
    return {p: error(rows, arm, channels, p, split=split) for p in rows.values("p")}


def learning_together(table: Table, arms: Sequence[Arm], channels: int) -> list[Curve]:
    """The arms' learning curves over the sizes at which all of them were run, by enough seeds for a verdict.

    A size that some seeds have not finished yet would take these seeds from all sizes. While no size has enough seeds,
    those with the most count.
    """
    learning_curves = [learning(table, arm, channels) for arm in arms]
    seeds = {
        p: set.intersection(*(set(curve[p]) for curve in learning_curves))
        for p in set.intersection(*map(set, learning_curves))
    }
    enough = min(MIN_PAIRS, max(map(len, seeds.values()), default=0))
    return [{p: curve[p] for p in sorted(seeds) if len(seeds[p]) >= enough} for curve in learning_curves]


# -- exponents


@dataclass(frozen=True)
class Law:
    """Power laws of one arm, by seed."""

    arm: Arm
    fit: stats.PowerLaw
    seeds: tuple[int, ...]

    @property
    def exponents(self) -> Series:
        return dict(zip(self.seeds, self.fit.exponents, strict=True))

    @property
    def levels(self) -> Series:
        """Fitted log error in the middle of the fitted sizes (their geometric mean)."""
        middle = sum(map(math.log, self.fit.sizes)) / len(self.fit.sizes)
        return {
            s: start + slope * middle
            for s, start, slope in zip(self.seeds, self.fit.log_prefactors, self.fit.exponents, strict=True)
        }

    @property
    def text(self) -> str:
        e = self.fit.exponent
        half = (e.high - e.low) / 2
        spread = f" ± {half:.2f}" if math.isfinite(half) else ""
        return f"{self.arm.name}: α = {e.value:.2f}{spread} over p = {self.fit.sizes[0]:g} to {self.fit.sizes[-1]:g}"


def laws(table: Table, arms: Sequence[Arm], channels: int) -> list[Law]:
    """The arms' power laws over the same sizes: all at which every arm was run. A claim requires that they interpolate
    there; leaving out the sizes that do not would fit other sizes at a half of the budget than at its end."""
    fitted_laws = []
    for arm, curve in zip(arms, learning_together(table, arms, channels), strict=True):
        x, seeds, (rows,) = curves.together(curve)
        if len(seeds) < 2 or len(x) < FEWEST:
            raise TooFewSeeds(len(seeds) if len(x) >= FEWEST else 0)
        fitted_laws.append(Law(arm, stats.power_law(x, rows), tuple(seeds)))
    return fitted_laws


def with_laws(evidence: Evidence, *laws: Law) -> Evidence:
    """The evidence with its laws in the note."""
    note = "; ".join(part for part in (evidence.note, *dict.fromkeys(law.text for law in laws)) if part)
    return replace(evidence, note=note)


def steeper(a: Law, b: Law) -> Evidence:
    """Does a fall faster with p than b?"""
    return stats.greater(b.exponents, a.exponents, unit="exponent", note=f"α({b.arm.name}) − α({a.arm.name})")


def same_slope(a: Law, b: Law, margin: float) -> Evidence:
    note = f"α({a.arm.name}) − α({b.arm.name})"
    return stats.equivalent(a.exponents, b.exponents, margin=margin, unit="exponent", note=note)


def lower(a: Law, b: Law) -> Evidence:
    """Is a's error below b's in the middle of the range, in logarithms?"""
    return stats.greater(b.levels, a.levels, unit="log error", note=f"log error, {b.arm.name} − {a.arm.name}")


def changes_places(table: Table, early: Arm, late: Arm, channels: int, low: int, high: int) -> Evidence:
    """Is `early` better at p = low and `late` better at p = high, so that the curves cross in between?"""
    parts = [
        stats.greater(
            error(table, worse, channels, p),
            error(table, better, channels, p),
            note=f"p = {p}: {worse.name} − {better.name}",
        )
        for p, better, worse in ((low, early, late), (high, late, early))
    ]
    return stats.all_of(*parts, note=crossing_text(table, early, late, channels))


def crossing_text(table: Table, early: Arm, late: Arm, channels: int) -> str:
    sizes, seeds, (a, b) = curves.together(*(learning(table, arm, channels) for arm in (late, early)))
    if len(seeds) < 2 or len(sizes) < 2 or (a <= 0).any() or (b <= 0).any():
        return ""
    crossing = curves.crossing(sizes, a, b)
    if crossing is None:
        return f"no crossing in most seeds between p = {sizes[0]:g} and {sizes[-1]:g}"
    direction = "falls below" if crossing.direction == "a falls below b" else "rises above"
    return (
        f"{late.name} {direction} {early.name} at p = {crossing.at.value:.0f} "
        f"[{crossing.at.low:.0f}, {crossing.at.high:.0f}] ({crossing.crossed} of {crossing.seeds} seeds)"
    )


DEEP_P = 2048  # a size of the depth study at which no widths are swept


def deep(table: Table, heads: int, depth: int) -> Arm:
    """An arm of the depth study, of the report's dimension or of the one that the scale could afford."""
    dims = table.at(metric="accuracy", depth=3, p=DEEP_P, noise=0.0).values("dim")
    return vit(int(max(dims, default=128)), heads, depth)


# -- double descent


def swept_p(table: Table, arms: Sequence[Arm], channels: int, noise: float) -> int:
    """The size at which most of these arms were run, the larger one of equals; 0 when there are none."""
    rows = table.at(metric="accuracy", arm=[arm.name for arm in arms], channels=channels, noise=noise)
    return max(((len(rows.at(p=p).values("arm")), int(p)) for p in rows.values("p")), default=(0, 0))[1]


def sweep(table: Table, arms: Sequence[Arm], channels: int, noise: float, split: str = "test", p: int = 0) -> Curve:
    """Error against the dial (width or dim)."""
    p = p or swept_p(table, arms, channels, noise)
    rows = table.at(metric="accuracy", channels=channels, p=p, noise=noise, split=split)
    error_by_dial = {arm.dial: error(rows, arm, channels, p, noise=noise, split=split) for arm in arms}
    return {dial: series for dial, series in error_by_dial.items() if series}


STUCK = 0.88  # training error of a run at chance among ten classes, with a little room


def threshold(
    table: Table, arms: Sequence[Arm], channels: int, paper: float, *, factor: float, step: int, unit: str
) -> Evidence:
    """Is the smallest dial that interpolates within a factor of the paper's?

    Fewer points are interpolated by smaller models, and the report does not say how many it had: a smaller dial from
    fewer than the recommended ones does not contradict it.
    """
    p = swept_p(table, arms, channels, 0.0)
    x, seeds, (rows,) = curves.together(sweep(table, arms, channels, 0.0, "train", p))
    if len(seeds) < 2 or len(x) < 3:
        raise TooFewSeeds(len(seeds) if len(x) >= 3 else 0)
    note = f"p = {p}; sizes tried: {', '.join(f'{v:g}' for v in x)}"
    evidence = curves.near(x, rows, paper, factor=factor, level=INTERPOLATES, step=step, unit=unit, note=note)
    if p < SWEPT_P and evidence.estimate.value < paper:
        why = f"{p} points, perhaps fewer than the report's, are interpolated by smaller models; takes {SWEPT_P} points"
        return replace(evidence, excuse=why)
    return evidence


def hump(
    table: Table,
    arms: Sequence[Arm],
    channels: int,
    noise: float,
    what: str,
    like: tuple[Sequence[Arm], float] | None = None,
) -> Series:
    """A number of each seed's hump; `like` gives the arms and noise whose peak and valleys are used."""
    p = swept_p(table, arms, channels, like[1] if like else noise)
    curve = sweep(table, arms, channels, noise, p=p)
    shape_curve = sweep(table, like[0], channels, like[1], p=p) if like else curve
    x, seeds, (rows, shape) = curves.together(curve, shape_curve)
    if len(seeds) < 2 or len(x) < 3:
        raise TooFewSeeds(len(seeds) if len(x) >= 3 else 0)
    return {s: getattr(h, what) for s, h in zip(seeds, curves.humps(rows, shape), strict=True)}


def peak(table: Table, arms: Sequence[Arm], channels: int, noise: float, note: str = "") -> Evidence:
    x, seeds, (rows,) = curves.together(sweep(table, arms, channels, noise))
    if len(seeds) < 3 or len(x) < 3:
        raise TooFewSeeds(len(seeds) if len(x) >= 3 else 0)
    return curves.peaked(x, rows, note="; ".join(filter(None, (note, stuck(table, arms, channels, noise)))))


def stuck(table: Table, arms: Sequence[Arm], channels: int, noise: float) -> str:
    """Runs of a sweep that never left chance on their own training images. They count, and may make a peak."""
    names = {arm.dial: arm.name for arm in arms}
    train_errors = sweep(table, arms, channels, noise, "train")
    stuck_runs = [
        f"{names[dial]} seed {seed}" for dial, errors in train_errors.items() for seed, e in errors.items() if e > STUCK
    ]
    return f"never learned, and counted: {', '.join(stuck_runs)}" if stuck_runs else ""


# -- maps


def maps_p(table: Table, arm: Arm, channels: int) -> int:
    """The most training points at which this arm's attention was looked at."""
    sizes = table.at(metric="effective_patches", arm=arm.name, channels=channels, noise=0.0).values("p")
    if not sizes:
        raise TooFewSeeds(0)
    return int(sizes[-1])


def map_number(table: Table, arm: Arm, channels: int, metric: str, p: int) -> Series:
    """A number of the last layer's maps, mean over heads."""
    return table.series(metric, arm=arm.name, channels=channels, p=p, noise=0.0, view="last")


def head_patches(table: Table, arm: Arm, channels: int, p: int) -> Series:
    """Effective patches of a single head of the last layer, by the mean entropy of its heads. A mean over heads of maps
    is flatter than its parts, the more of them the flatter."""
    rows = table.at(metric="entropy", arm=arm.name, channels=channels, p=p, noise=0.0)
    last = rows.at(layer=max(rows.values("layer"), default=0))
    by_head = [last.series("entropy", head=h) for h in last.values("head")]
    return per_seed(lambda *e: math.exp(sum(e) / len(e)), *by_head) if by_head else {}


def mapped(table: Table, p: int) -> list[Arm]:
    """The ViTs whose maps on photographs were measured at p points."""
    rows = table.at(metric="effective_patches", channels=PHOTOS, noise=0.0, p=p, view="last")
    return [vit(*shape) for shape in sorted({(r["dim"], r["heads"], r["depth"]) for r in rows})]


def correlations(a: Mapping[Arm, Series], b: Mapping[Arm, Series]) -> Series:
    """Each seed's correlation over the arms that both have."""
    arms = [k for k in a if k in b]
    if len(arms) < 3:
        raise TooFewSeeds(0)
    return per_seed(_correlation, *(a[k] for k in arms), *(b[k] for k in arms))


def _correlation(*values: float) -> float:
    half = len(values) // 2
    x, y = values[:half], values[half:]
    mx, my = sum(x) / half, sum(y) / half
    cross = sum((u - mx) * (v - my) for u, v in zip(x, y, strict=True))
    spread = math.sqrt(sum((u - mx) ** 2 for u in x) * sum((v - my) ** 2 for v in y))
    return cross / spread if spread else 0.0


# -- how runs ended


def endings(table: Table) -> str:
    """Which stopping rule ended how many runs. The one look at held-out images comes with the last step."""
    finished = {r["run"] for r in table.at(metric="parameters")} - {g["run"] for g in table.gaps}
    full = {r["run"] for r in table.at(metric="watched")} & finished
    count_by_reason: dict[str, int] = {}
    for gap in table.gaps:
        why = str(gap.get("why", "")).partition(":")[0]
        count_by_reason[why] = count_by_reason.get(why, 0) + 1
    train = {r["run"]: 1 - r["value"] for r in table.at(metric="accuracy", split="train")}
    short = sum(e > INTERPOLATES for e in train.values())
    words = [
        f"{len(full)} of {len(finished)} runs ended with their last step, "
        f"{len(finished - full)} with a settled training error"
    ] + [f"{n} {why}" for why, n in sorted(count_by_reason.items())]
    return f"{', '.join(words)}; {short} ended above {INTERPOLATES:.0%} training error."
