"""What the claims and figures read from the rows: accuracies by arm, errors of equivariance, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table, minus
from saccade.studies.block_ablations.arms import CONV, DEEPER, POST, POST_DEPTHS, PRE_DEPTHS, VIT

CLASSES = 10


def score(table: Table, arm: str, metric: str = "accuracy", split: str = "test", transform: str = "test") -> Series:
    """One number per seed, of an arm that stands for one model and one training set."""
    return table.series(metric, arm=arm, split=split, transform=transform)


def gain(table: Table, arm: str, than: str, metric: str = "accuracy") -> Series:
    """Paired by seed: arm minus the other one."""
    return minus(score(table, arm, metric), score(table, than, metric))


def by_depth(table: Table, block: str) -> dict[int, Series]:
    """Accuracy against depth, of the arms that differ in nothing else."""
    arms = {"v1": (VIT, DEEPER, PRE_DEPTHS), "v2": (POST, POST_DEPTHS)}[block]
    return table.curve("accuracy", "depth", arm=arms, split="test", transform="test")


def by_size(table: Table, arm: str, series: str) -> dict[int, Series]:
    """Accuracy against training images: the baseline and the series of its other sizes."""
    return table.curve("accuracy", "p", arm=(arm, series), split="test", transform="test")


def apart(a: Mapping[int, Series], b: Mapping[int, Series]) -> dict[int, Series]:
    """a - b at every point that both curves have."""
    return {x: minus(a[x], b[x]) for x in a if x in b}


def listed(curve: Mapping[int, Series]) -> str:
    """As in `+1.9 at 2, +0.5 at 4`, in points."""
    return ", ".join(f"{100 * stats.estimate(s).value:+.1f} at {x}" for x, s in curve.items() if s)


def beside(table: Table, arm: str, than: str) -> str:
    """As in `loss +0.021; parameters x 1.00, multiply-adds x 3.94`."""
    words = []
    change = gain(table, arm, than, "loss")
    if change:
        words.append(f"loss {stats.estimate(change).value:+.3f}")
    own_cost, other_cost = cost_of(table, arm), cost_of(table, than)
    if own_cost and other_cost:
        words.append(
            f"parameters x {own_cost[0] / other_cost[0]:.2f}, multiply-adds x {own_cost[1] / other_cost[1]:.2f}"
        )
    return "; ".join(words)


# -- equivariance


def moved(table: Table, arm: str, metric: str, layer: str, amount: float, *, trained: bool = True) -> Series:
    """The error of a layer's map, or of the output, when the image is shifted in a circle."""
    return table.series(
        metric, arm=arm, layer=layer, move="shift", amount=amount, scope="network", region="whole", trained=trained
    )


def first_and_last(table: Table, arm: str) -> tuple[str, str]:
    """The names of the first and the last block that were looked at."""
    names = [n for n in table.at(arm=arm, metric="equivariance_error").values("layer") if n.startswith("blocks.")]
    if not names:
        raise stats.TooFewSeeds(0)
    names.sort(key=_number)
    return names[0], names[-1]


def layers(table: Table, arm: str) -> list[str]:
    """What comes before the blocks, then the blocks in their order."""
    names = table.at(arm=arm, metric="equivariance_error", scope="network").values("layer")
    return sorted(names, key=lambda n: (n.startswith("blocks."), _number(n)))


def _number(layer: str) -> int:
    return int(layer.partition(".")[2] or 0)


def whole_cells(table: Table, arm: str) -> float:
    """The largest shift that was asked: by whole patches and whole cells of the last map."""
    amounts = table.at(arm=arm, metric="invariance_error", layer="output", move="shift").values("amount")
    if not amounts:
        raise stats.TooFewSeeds(0)
    return float(amounts[-1])


def extremes(table: Table, arm: str, metric: str, **where: Any) -> tuple[float, float]:
    """The smallest and the largest value over seeds, trained and untrained."""
    values = [r["value"] for r in table.at(arm=arm, metric=metric, **where)]
    if not values:
        raise stats.TooFewSeeds(0)
    return min(values), max(values)


# -- costs, for ten classes


def cost_of(table: Table, arm: str) -> tuple[int, int] | None:
    """Parameters and multiply-adds per image of an arm that was run."""
    row = next(iter(table.at(arm=arm, metric="parameters")), None)
    if row is None:
        return None
    names = ("patch", "dim", "depth", "image", "positions") if row["model"] == "vit" else ("width", "stages", "stem")
    return cost(row["model"], {k: row[k] for k in names if k in row}, int(row.get("size", 32)))


def cost(model: str, args: Mapping[str, Any], side: int = 32) -> tuple[int, int]:
    """Parameters and multiply-adds per image."""
    if model == "vit":
        return parameters_of_vit(**args), operations_of_vit(**args)
    return parameters_of_convnet(**args), operations_of_convnet(**args, image=side)


def parameters_of_vit(*, patch: int, dim: int, depth: int, image: int, positions: bool = True, **rest: Any) -> int:
    tokens = (image // patch) ** 2 + 1
    block = 12 * dim**2 + 13 * dim
    codes = tokens * dim if positions else 0
    return (3 * patch**2 + 1) * dim + dim + codes + depth * block + 2 * dim + (dim + 1) * CLASSES


def operations_of_vit(*, patch: int, dim: int, depth: int, image: int, **rest: Any) -> int:
    """Multiply-adds per image, forward, of the model as drawn: every token through every block."""
    patches = (image // patch) ** 2
    tokens = patches + 1
    return patches * 3 * patch**2 * dim + depth * (12 * tokens * dim**2 + 2 * tokens**2 * dim) + CLASSES * dim


def parameters_of_convnet(*, width: int, stages: Sequence[int], stem: str = "cifar", **rest: Any) -> int:
    total, inside = 3 * width * (9 if stem == "cifar" else 49) + 2 * width, width
    for stage, count in enumerate(stages):
        out = width << stage
        for _ in range(count):
            total += 9 * (inside + out) * out + 4 * out + (inside * out + 2 * out if inside != out else 0)
            inside = out
    return total + (inside + 1) * CLASSES


def operations_of_convnet(
    *, width: int, stages: Sequence[int], stem: str = "cifar", image: int = 32, **rest: Any
) -> int:
    side = image if stem == "cifar" else image // 2
    total, inside = side**2 * 3 * width * (9 if stem == "cifar" else 49), width
    side = side if stem == "cifar" else side // 2
    for stage, count in enumerate(stages):
        out, side = width << stage, side if stage == 0 else side // 2
        for _ in range(count):
            total += side**2 * (9 * (inside + out) * out + (inside * out if inside != out else 0))
            inside = out
    return total + inside * CLASSES


def baseline(arm: str, table: Table) -> str:
    return CONV if table.at(arm=arm).values("model") == ["convnet"] else VIT
