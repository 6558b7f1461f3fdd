"""What the claims and drawings read from the rows: scores by arm, differences, errors of equivariance, costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.spec import Estimate, Evidence
from saccade.stats import TooFewSeeds
from saccade.studies.block_ablations.arms import CONV, TRAIN, VIT, cost

LEARNED = 0.2  # test accuracy from which an arm counts as trained: twice what guessing gives
ROUNDING = 1e-9  # an equivariance error up to here is none, in float64
CLOSE = 0.1  # up to here a map moves approximately with the picture; 1 is another picture's map

Test = Callable[[Table], Evidence]


def whole(table: Table) -> int:
    """The training set size of all arms but those of the data-size factor."""
    ps = table.at(metric="accuracy", split="test").values("p")
    if not ps:
        raise TooFewSeeds(0)
    return TRAIN if TRAIN in ps else int(ps[-1])


def score(
    table: Table, arm: str, metric: str = "accuracy", split: str = "test", transform: str = "test", p: int = 0
) -> Series:
    return table.series(metric, arm=arm, split=split, transform=transform, p=p or whole(table))


def gain(table: Table, arm: str, than: str, metric: str = "accuracy", p: int = 0) -> Series:
    """Paired by seed: arm minus the other one."""
    a, b = score(table, arm, metric, p=p), score(table, than, metric, p=p)
    return per_seed(lambda x, y: x - y, a, b)


def by_depth(table: Table, block: str) -> dict[int, Series]:
    """Accuracy against depth, of the arms that differ in nothing else from the baseline."""
    rows = table.at(metric="accuracy", split="test", model="vit", block=block, p=whole(table))
    return {
        d: found
        for d in rows.values("depth")
        for arm in rows.at(depth=d).values("arm")
        if arm in (f"ViT {block}", f"ViT {block}, depth {d}") and (found := score(table, arm))
    }


def by_size(table: Table, arm: str) -> dict[int, Series]:
    return table.curve("accuracy", "p", arm=arm, split="test", transform="test")


def minus(a: Mapping[int, Series], b: Mapping[int, Series]) -> dict[int, Series]:
    return {x: per_seed(lambda u, v: u - v, a[x], b[x]) for x in a if x in b}


def untaught(table: Table, *arms: str) -> str:
    """Why no claim may rest on these arms."""
    for arm in arms:
        reached = score(table, arm)
        if reached and (mean := sum(reached.values()) / len(reached)) < LEARNED:
            return f"{arm} is under-trained (test accuracy {100 * mean:.0f} %, below {100 * LEARNED:.0f})"
    return ""


def taught(*arms: str) -> Callable[[Test], Test]:
    """A claim's test that is blocked unless these arms have learned."""
    return lambda test: lambda table: replace(test(table), blocked=untaught(table, *arms))


def beside(table: Table, arm: str, than: str) -> str:
    """As in `loss +0.021; parameters x 1.00, multiply-adds x 3.94`."""
    words = []
    change = gain(table, arm, than, "loss")
    if change:
        words.append(f"loss {sum(change.values()) / len(change):+.3f}")
    mine, other = cost_of(table, arm), cost_of(table, than)
    if mine and other:
        words.append(f"parameters x {mine[0] / other[0]:.2f}, multiply-adds x {mine[1] / other[1]:.2f}")
    return "; ".join(words)


def cost_of(table: Table, arm: str) -> tuple[int, int] | None:
    row = next(iter(table.at(arm=arm, metric="parameters")), None)
    if row is None:
        return None
    names = ("patch", "dim", "depth", "image", "positions") if row["model"] == "vit" else ("width", "stages", "stem")
    return cost(row["model"], {k: row[k] for k in names if k in row}, int(row.get("size", 32)))


def counted(table: Table, arm: str) -> int | None:
    """Parameters as the trained net has them."""
    row = next(iter(table.at(arm=arm, metric="parameters")), None)
    return None if row is None else int(row["value"])


# -- equivariance


def moved(table: Table, arm: str, metric: str, **where: Any) -> Series:
    return table.series(metric, arm=arm, p=whole(table), **where)


def first_and_last(table: Table, arm: str) -> tuple[str, str]:
    """The names of the first and the last block that were looked at."""
    names = [n for n in table.at(arm=arm, metric="equivariance_error").values("layer") if n.startswith("blocks.")]
    if not names:
        raise TooFewSeeds(0)
    names.sort(key=lambda n: int(n.partition(".")[2]))
    return names[0], names[-1]


def far(table: Table, arm: str) -> float:
    """The largest shift: whole patches and whole strides."""
    found = table.at(arm=arm, metric="invariance_error", layer="output", move="shift").values("amount")
    if not found:
        raise TooFewSeeds(0)
    return float(found[-1])


def worst(table: Table, arm: str, metric: str, **where: Any) -> float:
    """The largest value over seeds, trained or not."""
    found = [r["value"] for r in table.at(arm=arm, metric=metric, **where)]
    if not found:
        raise TooFewSeeds(0)
    return float(max(found))


def mildest(table: Table, arm: str, metric: str, **where: Any) -> float:
    found = [r["value"] for r in table.at(arm=arm, metric=metric, **where)]
    if not found:
        raise TooFewSeeds(0)
    return float(min(found))


def below(series: Series, limit: float, note: str) -> Evidence:
    """Is the mean error below a limit?"""
    found = stats.above({s: limit - v for s, v in series.items()}, 0.0, unit="error", note=note)
    e = found.estimate
    return replace(found, estimate=replace(e, value=limit - e.value, low=limit - e.high, high=limit - e.low))


def spread_above(series: Series, sd: float, note: str) -> Evidence:
    """Is the standard deviation over seeds above a constant? The chi-square test of a normal variance."""
    from scipy.special import chdtrc, chdtri

    n = len(series)
    if n < 3:
        raise TooFewSeeds(n, 3)
    mean = sum(series.values()) / n
    square = sum((v - mean) ** 2 for v in series.values())
    p = float(chdtrc(n - 1, square / sd**2))
    low, high = (math.sqrt(square / float(chdtri(n - 1, q))) for q in (0.025, 0.975))
    shown = Estimate(math.sqrt(square / (n - 1)), low, high, n, "chi-square")
    return Evidence(shown, p, 1 - p, f"chi-square, sd {100 * sd:.2g} points", "points", None, note)


def deeper_arm(table: Table) -> str:
    """The arm with 3/2 of the baseline's depth, as 24 is of 16."""
    plain = table.at(arm=VIT).values("depth")
    if not plain:
        raise TooFewSeeds(0)
    return f"ViT v1, depth {plain[0] * 3 // 2}"


BASELINE = {"ConvNet": CONV, "ViT": VIT}


def baseline_of(arm: str) -> str:
    return BASELINE[arm.partition(" ")[0].rstrip(",")]
