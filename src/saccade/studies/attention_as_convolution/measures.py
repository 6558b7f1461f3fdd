"""Numbers of the study of attention as convolution, from its rows: accuracies, speeds, heads, sizes, times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.spec import Evidence
from saccade.stats import TooFewSeeds
from saccade.studies.attention_as_convolution.arms import LONGER
from saccade.study import Claim, claim

SMOOTH = 10  # windows of the curve on the way that one point of it is the mean of
REACHED = 0.9  # of the lowest final accuracy of the arms compared: what "convergence" means here
TABLE4 = 4_500_000  # presentations of the shortest training in the report: 100 epochs
VALUE = 0.02  # around a published accuracy, about the spread of single runs
MOVED = 0.5  # tokens, half a step of the lattice: before that, centres are still where they were drawn


def accuracy(table: Table, arm: str) -> Series:
    return table.series("accuracy", arm=arm, split="test")


# -- on the way


def course(table: Table, arm: str) -> dict[int, Series]:
    """Accuracy against presentations: held-out where it was looked at often, else on batches before they are learned.

    Below paper scale pictures are seen about once, so that a batch not yet learned is as good as held out.
    """
    watched = table.curve("watched", "images", arm=arm)
    if len(watched) >= 10:
        return watched
    online = table.curve("online", "images", arm=arm)
    places = list(online)
    return {
        at: per_seed(lambda *v: sum(v) / len(v), *(online[x] for x in places[max(0, i - SMOOTH + 1) : i + 1]))
        for i, at in enumerate(places)
    }


def presentations(table: Table, arms: Sequence[str]) -> dict[str, Series]:
    """By seed, after what share of its budget each arm reaches 90 % of the lowest final accuracy of all of them."""
    courses = {arm: course(table, arm) for arm in arms}
    if any(len(c) < 4 for c in courses.values()):
        raise TooFewSeeds(0)
    final = [list(c.values())[-1] for c in courses.values()]
    level = per_seed(lambda *v: REACHED * min(v), *final)
    return {
        arm: {s: _first(c, s, goal) for s, goal in level.items() if all(s in v for v in c.values())}
        for arm, c in courses.items()
    }


def _first(course: Mapping[int, Series], seed: int, level: float) -> float:
    """Where the curve first stands at the level, linear between points, as a share of the whole."""
    places = list(course)
    before, was = 0.0, 0.0
    for at in places:
        now = course[at][seed]
        if now >= level:
            reached = before + (at - before) * (level - was) / (now - was) if now > was else float(at)
            return reached / places[-1]
        before, was = float(at), now
    return 1.0


# -- heads


def longest(table: Table, arm: str) -> str:
    """The arm that was trained longer for the sake of its centres, where there is one."""
    return arm + LONGER if len(table.at(arm=arm + LONGER)) else arm


def layers(table: Table, metric: str, arm: str, state: str = "trained") -> dict[int, Series]:
    """A number by layer or pass."""
    found = table.curve(metric, "layer", arm=arm, state=state)
    if not found:
        raise TooFewSeeds(0)
    return found


def mean(curve: Mapping[int, Series]) -> Series:
    return per_seed(lambda *v: sum(v) / len(v), *curve.values())


def late(curve: Mapping[int, Series], count: int = 2) -> dict[int, Series]:
    """The last layers: two, or one of two."""
    keep = min(count, max(1, len(curve) - 1))
    return dict(list(curve.items())[-keep:])


def early(curve: Mapping[int, Series], count: int = 2) -> dict[int, Series]:
    """The layers before them."""
    return dict(list(curve.items())[: -len(late(curve, count))])


def contrast(curve: Mapping[int, Series]) -> Series:
    """Last layers minus first ones."""
    if len(curve) < 2:
        raise TooFewSeeds(0)
    return minus(mean(late(curve)), mean(early(curve)))


def minus(a: Series, b: Series) -> Series:
    return per_seed(lambda x, y: x - y, a, b)


def moved_enough(table: Table, arm: str, evidence: Evidence) -> Evidence:
    """The evidence, blocked while centres still stand about where they were drawn."""
    moved = stats.estimate(mean(layers(table, "centre_moved", arm)))
    told = f"centres moved by {moved.value:.2f} tokens on average"
    short = f"{told}, less than {MOVED:g}: still where they were drawn (longer with --set images=N)"
    return replace(
        evidence,
        blocked=evidence.blocked or short * (moved.value < MOVED),
        note="; ".join(part for part in (evidence.note, told) if part),
    )


def told(label: str, series: Series, digits: int = 2, unit: str = "") -> str:
    """As in `trained 0.31 ± 0.04`."""
    e = stats.estimate(series)
    half = (e.high - e.low) / 2
    spread = f" ± {half:.{digits}f}" if math.isfinite(half) else ""
    return f"{label} {e.value:.{digits}f}{spread}{unit}"


# -- what is counted


def numbers(table: Table, metric: str, field: str, **where: object) -> dict[Any, float]:
    """Exact numbers by a field: those of the first run that has them."""
    found: dict[Any, float] = {}
    for row in table.at(metric=metric, **where):
        found.setdefault(row[field], row["value"])
    if not found:
        raise TooFewSeeds(0)
    return found


def size(table: Table, net: str) -> int:
    found = numbers(table, "size", "net")
    if net not in found:
        raise TooFewSeeds(0)
    return int(found[net])


def time(table: Table, family: str, form: str, size: str = "paper") -> Series:
    return table.series("milliseconds", family=family, form=form, size=size)


def time_ratio(table: Table, family: str, size: str = "paper") -> Series:
    """HA over SA, by seed: the two were timed in turns."""
    return per_seed(lambda ha, sa: ha / sa, time(table, family, "HA", size), time(table, family, "SA", size))


def timed_size(table: Table) -> str:
    """The paper's own sizes where they were timed."""
    return "paper" if "paper" in table.at(metric="milliseconds").values("size") else "ours"


# -- published accuracies


def published(
    id: str,
    statement: str,
    arm: str,
    paper: str,
    value: float,
    *,
    needs: str = "paper",
    concluded: str = "measured",
    net: str = "",
    printed: float = 0.0,
) -> Claim:
    """A published accuracy, of its own size where that is printed. Below paper scale it is out of reach."""

    def test(table: Table) -> Evidence:
        found = accuracy(table, arm)
        near = stats.equivalent(found, dict.fromkeys(found, value), margin=VALUE, note=f"accuracy − {value:g}")
        parts = [near, *([printed_size(table, net, printed)] if net else [])]
        evidence = stats.all_of(*parts, note=told("test accuracy", {s: 100 * a for s, a in found.items()}, 1, " %"))
        shown = max(table.at(metric="online", arm=arm).values("images"), default=0)
        short = f"{shown:,} presentations, where the report's Table 4 has at least {TABLE4:,}"
        return replace(evidence, blocked=short * (shown < 0.9 * TABLE4))

    tested = f"test accuracy within ± {100 * VALUE:g} points of {value:g}" + (
        f", and {printed:g} million parameters as printed" if net else ""
    )
    return claim(id, statement, paper=paper, concluded=concluded, needs=needs, tested=tested)(test)


def printed_size(table: Table, net: str, printed: float) -> Evidence:
    """Whether a net has as many million parameters as printed, to the printed digit."""
    count = size(table, net)
    digits = len(f"{printed:g}".partition(".")[2])
    return stats.exact(
        count, round(count / 1e6, digits) == printed, f"{net}: {count:,} for {printed:g} million", unit="parameters"
    )
