"""Numbers per seed that the claims and figures read from the rows: accuracies, speeds, heads, sizes, times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table, minus, per_seed
from saccade.stats import TooFewSeeds

SMOOTH = 5000  # images of the online curve that one point of it is the mean of
MOST = 10  # points of that curve that are averaged at most


def accuracy(table: Table, arm: str) -> Series:
    return table.series("accuracy", arm=arm, split="test")


def percent(series: Series) -> Series:
    return per_seed(lambda v: 100 * v, series)


def shown(label: str, series: Series, digits: int = 2, unit: str = "") -> str:
    """As in `trained 0.31 ± 0.04`."""
    e = stats.estimate(series)
    half = (e.high - e.low) / 2
    spread = f" ± {half:.{digits}f}" if math.isfinite(half) else ""
    return f"{label} {e.value:.{digits}f}{spread}{unit}"


# -- on the way


def course(table: Table, arm: str) -> dict[int, Series]:
    """Accuracy against images seen: held-out where it was looked at often, else on batches before they are learned.

    Below paper scale an image is seen a few times at most, so that a batch not yet learned is nearly as good as held
    out, and much larger than the held-out looks.
    """
    held_out = table.curve("watched", "images", arm=arm)
    if len(held_out) >= 10:
        return held_out
    online = table.curve("online", "images", arm=arm)
    places = list(online)
    if not places:
        return {}
    width = min(MOST, max(1, round(SMOOTH / places[0])))
    return {
        at: per_seed(lambda *v: sum(v) / len(v), *(online[x] for x in places[max(0, i - width + 1) : i + 1]))
        for i, at in enumerate(places)
    }


def time_to_level(table: Table, arms: Sequence[str], reached: float) -> dict[str, Series]:
    """Per seed, after what share of its budget each arm reaches a share of the lowest final accuracy of all of them."""
    courses = {arm: course(table, arm) for arm in arms}
    if any(len(c) < 4 for c in courses.values()):
        raise TooFewSeeds(0)
    level = per_seed(lambda *v: reached * min(v), *(list(c.values())[-1] for c in courses.values()))
    return {
        arm: {s: _first(c, s, goal) for s, goal in level.items() if all(s in v for v in c.values())}
        for arm, c in courses.items()
    }


def _first(course: Mapping[int, Series], seed: int, level: float) -> float:
    """Where the curve first reaches the level, linear between points, as a share of the whole."""
    places = list(course)
    before, previous = 0.0, 0.0
    for at in places:
        now = course[at][seed]
        if now >= level:
            position = before + (at - before) * (level - previous) / (now - previous) if now > previous else float(at)
            return position / places[-1]
        before, previous = float(at), now
    return 1.0


# -- heads


def layers(table: Table, metric: str, arm: str, state: str = "trained") -> dict[int, Series]:
    """A number by layer or pass, of the trained model or of the untrained one of the seed (`start`)."""
    curve = table.curve(metric, "layer", arm=arm, state=state)
    if not curve:
        raise TooFewSeeds(0)
    return curve


def mean(curve: Mapping[int, Series]) -> Series:
    return per_seed(lambda *v: sum(v) / len(v), *curve.values())


def late(curve: Mapping[int, Series]) -> dict[int, Series]:
    """The last two layers, or one of two."""
    return dict(list(curve.items())[-min(2, max(1, len(curve) - 1)) :])


def early(curve: Mapping[int, Series]) -> dict[int, Series]:
    """The layers before them."""
    return dict(list(curve.items())[: -len(late(curve))])


def late_minus_early(curve: Mapping[int, Series]) -> Series:
    if len(curve) < 2:
        raise TooFewSeeds(0)
    return minus(mean(late(curve)), mean(early(curve)))


# -- what is counted or timed


def counted(table: Table, metric: str, name: str) -> dict[Any, float]:
    """Exact numbers by a field: those of the first run that has them."""
    value_by_name: dict[Any, float] = {}
    for row in table.at(metric=metric):
        value_by_name.setdefault(row[name], row["value"])
    if not value_by_name:
        raise TooFewSeeds(0)
    return value_by_name


def parameters(table: Table, model: str) -> int:
    """Of a model at the report's size, as it was built."""
    count_by_model = counted(table, "size", "net")
    if model not in count_by_model:
        raise TooFewSeeds(0)
    return int(count_by_model[model])


def milliseconds(table: Table, family: str, form: str, size: str) -> Series:
    return table.series("milliseconds", family=family, form=form, size=size)


def time_ratio(table: Table, family: str, size: str) -> Series:
    """HA over SA, per seed: the two were timed in turns."""
    return per_seed(lambda ha, sa: ha / sa, *(milliseconds(table, family, form, size) for form in ("HA", "SA")))


def timed_size(table: Table) -> str:
    """The paper's own sizes where they were timed."""
    sizes = table.at(metric="milliseconds").values("size")
    if not sizes:
        raise TooFewSeeds(0)
    return "paper" if "paper" in sizes else str(sizes[0])


def timed_on(table: Table) -> str:
    """As in `a CPU`."""
    devices = table.at(metric="milliseconds").values("device")
    return " and ".join("a CPU" if d == "cpu" else "a GPU" for d in devices) or "an unknown device"
