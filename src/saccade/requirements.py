"""What a claim requires before it gets a verdict: models that have learned, an ingredient that is in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saccade import stats
from saccade.lab.table import Table
from saccade.spec import MILESTONES, Met, Reason, SaccadeError, Settings

MIN_PAIRS = 5  # no verdict below this many seeds
SHARE = 0.6  # of the way from chance to the paper's value that an arm must have gone to count as trained
USE = 0.05  # change of the logits, relative to their spread, from which an ingredient counts as used


@dataclass(frozen=True)
class Results:
    """What a judge reads: rows at the whole budget, at shares of it, and of every budget that the lab has."""

    whole: Table
    at: Mapping[float, Table] = field(default_factory=dict)
    every_budget: Callable[[], Table] = Table  # called only where a paper gives no value to reach


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The arm has gone a share of the way from chance to what the paper reports for it.

    `where` picks one value per seed. Without `reaches` the goal is what the same rows show at the largest budget in the
    lab. With a share of 0 the arm must be above chance: for tasks that a shortcut solves.
    """

    where: Settings
    reaches: float | None = None
    chance: float = 0.1
    share: float = SHARE
    metric: str = "accuracy"
    why: str = ""  # due when the share is not the usual one
    optional: bool = False  # an arm that this scale may leave out
    every: str = ""  # a field, such as a training set size: asked at each of its values that was run

    reason = Reason.NOT_LEARNED

    def __post_init__(self) -> None:
        if self.share != SHARE and not self.why:
            raise SaccadeError(
                f"{self.name}: a share of {self.share:g} instead of {SHARE:g} needs its reason (why=...)."
            )

    @property
    def name(self) -> str:
        return _arm_and_fields(self.where)

    @property
    def asks(self) -> str:
        if self.every:
            each = Settings({k: v for k, v in self.where.items() if k != self.every})
            among = f" of {_listed(self.where[self.every])}" if self.every in self.where else ""
            return f"{replace(self, where=each, every='').asks}; at every {self.every}{among} that was run"
        if not self.share:
            return f"{self.name}: {self.metric} clear of chance ({_percent(self.chance)}); {self.why}"
        goal = "its value at the largest budget in the lab" if self.reaches is None else _percent(self.reaches)
        why = f"; {self.why}" if self.why else ""
        return (
            f"{self.name}: {self.metric} at least {self.share:.0%} of the way from chance ({_percent(self.chance)}) "
            f"to {goal}{why}"
        )

    @property
    def _nothing(self) -> Met:
        finding = "no rows; this scale may leave the arm out" if self.optional else "no rows"
        return Met(Reason.NOT_MEASURED, self.asks, self.optional, finding)

    def _each(self, results: Results) -> tuple[Learned, ...]:
        """One requirement for each value of `every` that was run."""
        rows = results.whole.at(metric=self.metric, **self.where)
        seeds = {v: len(rows.at(**{self.every: v}).values("seed")) for v in rows.values(self.every)}
        # A claim that read a value with too few seeds would have too few itself, and no verdict.
        values = [v for v, n in seeds.items() if n >= MIN_PAIRS] or list(seeds)
        return tuple(replace(self, where=Settings(self.where, **{self.every: v}), every="") for v in values)

    def check(self, results: Results) -> Met:
        if self.every:
            each = self._each(results)
            if not each:
                return self._nothing
            checks = [one.check(results) for one in each]
            worst = next((m for m in checks if not m.met), checks[-1])
            values = [one.where[self.every] for one in each]
            return replace(worst, asks=self.asks, found=worst.found + f", {self.every} {_listed(values)}" * worst.met)
        value_by_seed = results.whole.series(self.metric, **self.where)
        if not value_by_seed:
            return self._nothing
        estimate = stats.estimate(value_by_seed)
        goal = self._goal(results)
        rising = goal > self.chance
        end = estimate.low if rising else estimate.high
        clear_of_chance = estimate.n > 1 and (end > self.chance if rising else end < self.chance)
        progress_by_seed = {seed: self._progress(value, goal) for seed, value in value_by_seed.items()}
        progress = self._progress(estimate.value, goal)
        enough = clear_of_chance and progress >= self.share
        finding = f"{self.name}: {_percent(estimate.value)}"
        if self.share and self.reaches is None and estimate.value == goal:
            finding += ", the largest budget in the lab, so that only clear of chance is asked"
        elif self.share:
            close = f"{progress:.0%}" == f"{self.share:.0%}" and progress < self.share
            finding += f", {progress:.{1 if close else 0}%} of the way"
        finding += "" if clear_of_chance else ", not clear of chance"
        seeds_far_enough = sum(one >= self.share for one in progress_by_seed.values())
        if clear_of_chance and not enough and seeds_far_enough:
            finding += f", {seeds_far_enough} of {len(progress_by_seed)} seeds far enough"
        return Met(self.reason, self.asks, enough, finding)

    def _progress(self, value: float, goal: float) -> float:
        """The share of the way from chance to the goal."""
        return (value - self.chance) / (goal - self.chance) if goal != self.chance else 0.0

    def _goal(self, results: Results) -> float:
        if self.reaches is not None:
            return self.reaches
        rows = results.every_budget().at(metric=self.metric, **self.where)
        budgets = rows.values("budget")
        best = rows.at(budget=budgets[-1]) if budgets else results.whole
        return stats.estimate(best.series(self.metric, **self.where)).value

    def takes(self, results: Results) -> str:
        """What an arm that fails takes, where it is not longer training; empty where it may be that.

        Not longer training: over the second half of the budget the arm did not come nearer to what is asked, and what
        the interval of that movement leaves open is less than what is missing, so that twice the budget would not do.
        """
        if self.every:
            failing = (one for one in self._each(results) if not one.check(results).met)
            return next((remedy for one in failing if (remedy := one.takes(results))), "")
        tables = (*(results.at.get(share, Table()) for share in MILESTONES), results.whole)
        levels = [t.series(self.metric, **self.where) for t in tables]
        if min(map(len, levels)) < MIN_PAIRS:
            return ""
        goal = self._goal(results)
        threshold = self.chance + self.share * (goal - self.chance)
        shortfall = threshold - stats.estimate(levels[-1]).value
        movement = stats.greater(levels[-1], levels[0]).estimate
        # It has come far enough and is not clear of chance: that takes seeds.
        if shortfall * (goal - self.chance) <= 0:
            return ""
        nearest, farthest = (movement.high, movement.low) if shortfall > 0 else (-movement.low, -movement.high)
        if farthest > 0 or nearest >= abs(shortfall):
            return ""
        path = " → ".join(f"{100 * stats.estimate(level).value:.1f}" for level in levels)
        return f"takes another recipe: {path} % over the budget, so that twice the training would not do"


@dataclass(frozen=True, kw_only=True)
class InUse:
    """The ingredient that the claim is about does something in the trained model: taking it away changes the logits."""

    where: Settings  # arm=..., ingredient=...
    least: float = USE
    metric: str = "use"
    unit: str = "of the logits' spread"

    reason = Reason.NOT_IN_USE

    @property
    def asks(self) -> str:
        return f"{self._name}: {self.metric} of at least {self.least:g} {self.unit}"

    @property
    def _name(self) -> str:
        return _arm_and_fields(self.where)

    def takes(self, results: Results) -> str:
        return ""

    def check(self, results: Results) -> Met:
        value_by_seed = results.whole.series(self.metric, **self.where)
        if not value_by_seed:
            return Met(Reason.NOT_MEASURED, self.asks, False, "no rows")
        mean = stats.estimate(value_by_seed).value
        return Met(self.reason, self.asks, mean >= self.least, f"{self._name}: {mean:.3g}")


Requirement = Learned | InUse


def learned(arm: str, reaches: float | None = None, *, split: str = "test", **more: Any) -> Learned:
    """As in learned("ResNet", 0.918): accuracy of one arm on one split; `more` are settings of `Learned` or fields."""
    settings = {k: more.pop(k) for k in ("chance", "share", "metric", "why", "optional", "every") if k in more}
    fields = {"arm": arm, **({"split": split} if split else {}), **more}
    return Learned(where=Settings(fields), reaches=reaches, **settings)


def above_chance(arm: str, *, why: str, split: str = "test", **more: Any) -> Learned:
    """The arm is clear of chance: where a shortcut solves its own task and accuracy on that says nothing."""
    return learned(arm, 1.0, split=split, share=0.0, why=why, **more)


def in_use(arm: str, ingredient: str, **more: Any) -> InUse:
    settings = {k: more.pop(k) for k in ("least", "metric", "unit") if k in more}
    return InUse(where=Settings(arm=arm, ingredient=ingredient, **more), **settings)


def _arm_and_fields(where: Settings) -> str:
    """The arm, then the other fields with their values."""
    more = [f"{k} {_listed(v)}" for k, v in where.items() if k != "arm"]
    return ", ".join([str(where.get("arm", "")), *more]).strip(", ")


def _listed(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"
