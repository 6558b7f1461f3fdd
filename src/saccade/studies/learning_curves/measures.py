"""Numbers of the learning-curve study, from its rows: errors, exponents, thresholds, humps, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.spec import Evidence
from saccade.stats import TooFewSeeds, curves

INTERPOLATES = 0.01  # training error up to which a net counts as interpolating
FEWEST = 4  # sizes of a power law
DIALS = {"basic_cnn": "width", "basic_vit": "dim"}

Curve = dict[int, Series]


def cnns(twist: str = "") -> tuple[str, ...]:
    """The arms of every width."""
    return tuple(f"CNN({h}){twist}" for h in range(1, 257))


def vits(heads: int, depth: int, twist: str = "") -> tuple[str, ...]:
    return tuple(f"ViT({d},{heads},{depth}){twist}" for d in range(1, 513))


def errors(table: Table, x: str, split: str = "test", **where: object) -> Curve:
    """1 - accuracy against a field x, one series a value; clean labels in test, the given ones in training."""
    found = table.curve("accuracy", x, split=split, **where)
    return {v: {s: 1 - a for s, a in series.items()} for v, series in found.items()}


def error(table: Table, arm: str, channels: int, p: int, split: str = "test") -> Series:
    return {
        s: 1 - a for s, a in table.series("accuracy", arm=arm, channels=channels, p=p, noise=0.0, split=split).items()
    }


def learning(table: Table, arm: str, channels: int, split: str = "test") -> Curve:
    """A clean learning curve: error against p."""
    return errors(table, "p", split, arm=arm, channels=channels, noise=0.0)


# -- exponents


@dataclass(frozen=True)
class Law:
    """Power laws of one arm, by seed; `blocked` says why nothing may rest on them."""

    arm: str
    fit: stats.PowerLaw
    seeds: tuple[int, ...]
    blocked: str = ""

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
        return f"{self.arm}: α = {e.value:.2f}{spread} over p = {self.fit.sizes[0]:g} to {self.fit.sizes[-1]:g}"


def laws(table: Table, arms: Sequence[str], channels: int) -> dict[str, Law]:
    """The arms' power laws over the same sizes: those at which all have results and a mean training error up to 1 %.

    Where that leaves fewer than four, all sizes are fitted, and the laws say that nothing may rest on them.
    """
    test = {arm: learning(table, arm, channels) for arm in arms}
    sizes = sorted(set.intersection(*(set(curve) for curve in test.values())))
    late = {arm: [p for p in sizes if _mean(error(table, arm, channels, p, "train")) > INTERPOLATES] for arm in arms}
    good = [p for p in sizes if not any(p in each for each in late.values())]
    why = ""
    if len(good) < FEWEST:
        worst = max(late, key=lambda arm: len(late[arm]))
        why = (
            f"fewer than {FEWEST} sizes at which all interpolate; {worst} does not at p = "
            f"{', '.join(map(str, late[worst]))} (more with --set epochs=N)"
        )
        good = sizes
    found = {}
    for arm, curve in test.items():
        x, seeds, (rows,) = curves.together({p: curve[p] for p in good})
        if len(seeds) < 2 or len(x) < FEWEST:
            raise TooFewSeeds(len(seeds) if len(x) >= FEWEST else 0)
        found[arm] = Law(arm, stats.power_law(x, rows), tuple(seeds), why)
    return found


def resting_on(evidence: Evidence, *laws: Law) -> Evidence:
    """The evidence, blocked when a law it rests on is; the laws stand in its note."""
    why = next((law.blocked for law in laws if law.blocked), "")
    note = "; ".join(part for part in (evidence.note, *dict.fromkeys(law.text for law in laws)) if part)
    return replace(evidence, blocked=evidence.blocked or why, note=note)


def steeper(a: Law, b: Law) -> Evidence:
    """Does a fall faster with p than b?"""
    return stats.greater(b.exponents, a.exponents, unit="exponent", note=f"α({b.arm}) − α({a.arm})")


def lower(a: Law, b: Law) -> Evidence:
    """Is a's error below b's in the middle of the range, in logarithms?"""
    return stats.greater(b.levels, a.levels, unit="log error", note=f"log error, {b.arm} − {a.arm}")


def changes_places(table: Table, early: str, late: str, channels: int, low: int, high: int) -> Evidence:
    """Is `early` better at p = low and `late` better at p = high, so that the curves cross in between?

    Where p = high was not run, the first half alone is tested, at the largest p that was: it can only contradict.
    """
    both = set(learning(table, early, channels)) & set(learning(table, late, channels))
    reached = high in both
    low = low if reached else max((p for p in both if p <= low), default=0)
    if not low:
        raise TooFewSeeds(0)
    parts = []
    for p, better, worse in ((low, early, late), (high, late, early))[: 2 if reached else 1]:
        parts.append(
            stats.greater(
                error(table, worse, channels, p), error(table, better, channels, p), note=f"p = {p}: {worse} − {better}"
            )
        )
    whole = stats.all_of(*parts, note=crossing_text(table, early, late, channels))
    return (
        whole
        if reached
        else replace(
            whole,
            limit=f"only p = {low} was tested, which may contradict the claim; p = {high} comes with --scale large",
        )
    )


def no_better_yet(table: Table, arm: str, channels: int, at: int, value: float, margin: float) -> Evidence:
    """Is the error at p = at within the margin of a value? Before p = at was run: is it not below that already?"""
    curve = learning(table, arm, channels)
    if not curve:
        raise TooFewSeeds(0)
    p = max(q for q in curve if q <= at)
    told = f"test error at p = {p}: {stats.estimate(curve[p]).short()} %; in the report {100 * value:.1f} % at {at}"
    if p == at:
        return replace(stats.equivalent(curve[p], dict.fromkeys(curve[p], value), margin=margin), note=told)
    lowest = stats.above(curve[p], value - margin, note=told)
    return replace(
        lowest,
        limit=f"error falls with p, so p = {p} may contradict the claim but not reproduce it; "
        f"p = {at} comes with --scale large",
    )


def deep_dim(table: Table) -> int:
    """The dimension of the ViTs with several layers: the paper's, or what the scale could afford."""
    dims = [int(d) for d in table.at(metric="accuracy", depth=3, heads=1, noise=0.0).values("dim")]
    return max(dims, default=128)


def crossing_text(table: Table, early: str, late: str, channels: int) -> str:
    sizes, seeds, (a, b) = curves.together(*(learning(table, arm, channels) for arm in (late, early)))
    if len(seeds) < 2 or len(sizes) < 2 or (a <= 0).any() or (b <= 0).any():
        return ""
    found = curves.crossing(sizes, a, b)
    if found is None:
        return f"no crossing in most seeds between p = {sizes[0]:g} and {sizes[-1]:g}"
    way = "falls below" if found.direction == "a falls below b" else "rises above"
    return (
        f"{late} {way} {early} at p = {found.at.value:.0f} [{found.at.low:.0f}, {found.at.high:.0f}] "
        f"({found.crossed} of {found.seeds} seeds)"
    )


# -- double descent


def swept_p(table: Table, arms: Sequence[str], channels: int) -> int:
    """The size at which most of these arms were run, the larger one of equals; 0 when there are none."""
    rows = table.at(metric="accuracy", arm=arms, channels=channels)
    return max(((len(rows.at(p=p).values("arm")), int(p)) for p in rows.values("p")), default=(0, 0))[1]


def sweep(table: Table, arms: Sequence[str], channels: int, noise: float, split: str = "test", p: int = 0) -> Curve:
    """Error against the dial (width or dim)."""
    p = p or swept_p(table, arms, channels)
    dial = "width" if arms[0].startswith("CNN") else "dim"
    return errors(table, dial, split, arm=arms, channels=channels, noise=noise, p=p)


def threshold(table: Table, arms: Sequence[str], channels: int, paper: float, *, step: int, unit: str) -> Evidence:
    """Is the smallest dial that interpolates within a factor 2 of the paper's?"""
    p = swept_p(table, arms, channels)
    x, seeds, (rows,) = curves.together(sweep(table, arms, channels, 0.0, "train", p))
    if len(seeds) < 2 or len(x) < 3:
        raise TooFewSeeds(len(seeds) if len(x) >= 3 else 0)
    return curves.near(
        x,
        rows,
        paper,
        factor=2,
        level=INTERPOLATES,
        step=step,
        unit=unit,
        note=f"p = {p}; dials tried: {', '.join(f'{v:g}' for v in x)}",
    )


def hump(
    table: Table,
    arms: Sequence[str],
    channels: int,
    noise: float,
    what: str,
    like: tuple[Sequence[str], float] | None = None,
) -> Series:
    """A number of each seed's hump; `like` names the arms and noise whose peak and valleys are used."""
    p = swept_p(table, arms, channels)
    mine = sweep(table, arms, channels, noise, p=p)
    other = sweep(table, like[0], channels, like[1], p=p) if like else mine
    x, seeds, (rows, shape) = curves.together(mine, other)
    if len(seeds) < 2 or len(x) < 3:
        raise TooFewSeeds(len(seeds) if len(x) >= 3 else 0)
    return {s: getattr(h, what) for s, h in zip(seeds, curves.humps(rows, shape), strict=True)}


def peak(table: Table, arms: Sequence[str], channels: int, noise: float = 0.2, note: str = "") -> Evidence:
    x, seeds, (rows,) = curves.together(sweep(table, arms, channels, noise))
    if len(seeds) < 3 or len(x) < 3:
        raise TooFewSeeds(len(seeds) if len(x) >= 3 else 0)
    return curves.peaked(x, rows, note=note)


# -- maps


def head_patches(table: Table, arm: str, channels: int, p: int) -> Series:
    """Effective patches of a single head of the last layer, by the mean entropy of its heads. A mean over heads of maps
    is flatter than its parts, the more of them the flatter."""
    rows = table.at(metric="entropy", arm=arm, channels=channels, p=p, noise=0.0)
    last = rows.at(layer=max(rows.values("layer"), default=0))
    by_head = [last.series("entropy", head=h) for h in last.values("head")]
    return per_seed(lambda *e: math.exp(sum(e) / len(e)), *by_head) if by_head else {}


# -- how runs ended


def endings(table: Table) -> str:
    """Which stopping rule ended how many runs. The one look at held-out pictures comes with the last step."""
    ran = {r["run"] for r in table.at(metric="parameters")} - {g["run"] for g in table.gaps}
    full = {r["run"] for r in table.at(metric="watched")} & ran
    lost: dict[str, int] = {}
    for gap in table.gaps:
        why = str(gap.get("why", "")).partition(":")[0]
        lost[why] = lost.get(why, 0) + 1
    train = {r["run"]: 1 - r["value"] for r in table.at(metric="accuracy", split="train")}
    short = sum(e > INTERPOLATES for e in train.values())
    words = [
        f"{len(full)} of {len(ran)} runs ended with their last step, {len(ran - full)} with a settled training error"
    ] + [f"{n} {why}" for why, n in sorted(lost.items())]
    return f"{', '.join(words)}; {short} ended above {INTERPOLATES:.0%} training error."


def _mean(series: Series) -> float:
    return sum(series.values()) / len(series) if series else math.inf


def correlations(a: Mapping[str, Series], b: Mapping[str, Series]) -> Series:
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
