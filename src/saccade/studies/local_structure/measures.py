"""Numbers per seed that the claims and figures read from the rows. `where` names an arm, or the fields of a corner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.stats import TooFewSeeds
from saccade.studies.local_structure.arms import ATTENTION, CELLS, LARGE, QUARTER, SWITCHES, Cell, Kind
from saccade.subjects.scores import by_chance

CLASSES, TILES, TOP = 10, 4, 4
CHANCE = 1 / CLASSES
BLIND = by_chance(CLASSES, TILES, TOP)
BLIND_MEAN = sum(count * share for count, share in enumerate(BLIND))
AT_MOST = 0.02  # share of the budget that a look at the curve may lie beside the time it stands for
AROUND = 0.03  # the same for the means of the online curve, each over a fortieth of the budget
NEW = 45_000  # training images of CIFAR-10 without those held out: until then none comes a second time


class Measure(Protocol):
    def __call__(self, table: Table, /, **where: Any) -> Series: ...


def accuracy(table: Table, /, **where: Any) -> Series:
    """Test accuracy."""
    return table.series("accuracy", split="test", **where)


def matching(table: Table, /, **where: Any) -> Series:
    """Mean number of classes among the four best answers that are in the mosaic."""
    return table.series("top_k_matching", k=TOP, **where)


def share(table: Table, *counts: int, **where: Any) -> Series:
    """Share of mosaics with one of these numbers of matches."""
    each = (table.series("matching_share", k=TOP, matches=c, **where) for c in counts)
    return per_seed(lambda *shares: sum(shares), *each)


def objects(table: Table, /, *, scale: float = QUARTER, plain: bool = False, **where: Any) -> Series:
    """Accuracy on objects that shrink with their image, on the study's backdrop or on a plain one."""
    rows = table.at(metric="object_accuracy", scale=scale, **where)
    names = [b for b in rows.values("backdrop") if (b == "plain") is plain]
    return rows.series("object_accuracy", backdrop=names[0]) if names else {}


def native(table: Table, /, *, canvas: int = LARGE, plain: bool = False, **where: Any) -> Series:
    """Accuracy on objects as large as in training, on the study's backdrop or on a plain one."""
    return table.series("native_object_accuracy", canvas=canvas, plain=plain, **where)


def shuffle_kept(table: Table, /, *, grid: int = 4, **where: Any) -> Series:
    """Accuracy above chance that survives shuffling of the squares, as a share of what there was."""
    whole, shuffled = (table.series("shuffled_accuracy", grid=g, **where) for g in (1, grid))
    whole = {s: a for s, a in whole.items() if a > CHANCE}
    return per_seed(lambda a, b: (b - CHANCE) / (a - CHANCE), whole, shuffled)


TESTS: Mapping[str, tuple[Measure, str]] = {  # the report's three tests, with their units
    "test accuracy": (accuracy, "points"),
    "top-4 matching": (matching, "classes"),
    "objects on a large background": (native, "points"),
}


def on_the_way(table: Table, part: float, **where: Any) -> Series:
    """Accuracy after this part of the budget on images that are new to the model; nothing before that time has come.

    Training images that come for the first time, each before it is learned from, are as good as held out and far more
    than the 256 held-out ones, which count once images come again.
    """
    means = _near(table.at(metric="online", **where), part, AROUND)
    if means and max(means) <= NEW:
        return per_seed(lambda *values: sum(values) / len(values), *means.values())
    looks = _near(table.at(metric="watched", split="held_out", **where), part, AT_MOST)
    return next(iter(looks.values()), {})


def _near(rows: Table, part: float, within: float) -> dict[int, Series]:
    """The points of a curve about this part of the budget, by the images seen until then."""
    budget = max(rows.values("budget"), default=0)
    points = [images for images in rows.values("images") if abs(images - part * budget) <= within * budget]
    return {images: rows.at(images=images).series(rows.rows[0]["metric"]) for images in points}


def corners(table: Table, measure: Measure, kind: Kind = ATTENTION) -> dict[Cell, Series]:
    """The corners of an ablation; without all eight nothing can be said."""
    series_by_cell = {cell: measure(table, **kind.where(cell)) for cell in CELLS}
    if not all(series_by_cell.values()):
        raise TooFewSeeds(0)
    return series_by_cell


def effect(table: Table, switch: str, measure: Measure, kind: Kind = ATTENTION) -> Series:
    """What turning a switch on gives, per seed: mean over the four settings of the two others."""
    series_by_cell = corners(table, measure, kind)
    on, off = ([s for cell, s in series_by_cell.items() if cell.on(switch) is setting] for setting in (True, False))
    return per_seed(lambda *v: sum(v[:4]) / 4 - sum(v[4:]) / 4, *on, *off)


def effects_text(table: Table, measure: Measure) -> str:
    """As in `locality +1.8 [1.2, 2.5] n=6, sharing ...`."""
    return ", ".join(f"{s} {stats.estimate(effect(table, s, measure)).text()}" for s in SWITCHES)


def summary(table: Table, arms: Sequence[str], measure: Measure, *, percent: bool = True) -> str:
    """As in `ResNet 45.1 ± 1.0 %, ViT 38.0 ± 0.8 %`."""
    estimates = {arm: stats.estimate(series) for arm in arms if (series := measure(table, arm=arm))}
    return ", ".join(f"{arm} {e.short()} %" if percent else f"{arm} {e.value:.2f}" for arm, e in estimates.items())
