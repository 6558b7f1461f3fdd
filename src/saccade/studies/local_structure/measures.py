"""Numbers of the local-structure study, from its rows: scores on each test, effects of the switches, what blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.spec import Evidence
from saccade.stats import TooFewSeeds
from saccade.studies.local_structure.arms import CELLS, QUARTER, SWITCHES, Cell
from saccade.subjects.scores import by_chance

CLASSES, TILES, TOP = 10, 4, 4
CHANCE = 1 / CLASSES
BLIND = by_chance(CLASSES, TILES, TOP)
BLIND_MEAN = sum(count * share for count, share in enumerate(BLIND))
LEARNED = 0.25  # test accuracy from which an arm counts as trained; chance is 0.1

Measure = Callable[[Table, str], Series]


def accuracy(table: Table, arm: str) -> Series:
    """Test accuracy."""
    return table.series("accuracy", arm=arm, split="test")


def matching(table: Table, arm: str) -> Series:
    """Mean number of classes among the four best answers that are in the mosaic."""
    return table.series("top_k_matching", arm=arm, k=TOP)


def share(table: Table, arm: str, *counts: int) -> Series:
    """Share of mosaics with one of these numbers of matches."""
    return per_seed(
        lambda *shares: sum(shares), *(table.series("matching_share", arm=arm, k=TOP, matches=c) for c in counts)
    )


def objects(table: Table, arm: str, scale: float = QUARTER, backdrop: str = "") -> Series:
    """Accuracy on pasted objects; on anything but the plain backdrop unless one is named."""
    rows = table.at(metric="object_accuracy", arm=arm, scale=scale)
    names = [backdrop] if backdrop else [b for b in rows.values("backdrop") if b != "plain"] or ["plain"]
    return rows.series("object_accuracy", backdrop=names[0])


def shuffle_kept(table: Table, arm: str, grid: int = 4) -> Series:
    """Accuracy above chance that survives shuffling of the squares, as a share of what there was."""
    whole, mixed = (table.series("shuffled_accuracy", arm=arm, grid=g) for g in (1, grid))
    whole = {s: a for s, a in whole.items() if a > CHANCE}
    return per_seed(lambda a, b: (b - CHANCE) / (a - CHANCE), whole, mixed)


TESTS: Mapping[str, tuple[Measure, float, str]] = {  # measure, what blind guessing gives, unit
    "test accuracy": (accuracy, CHANCE, "points"),
    "top-4 matching": (matching, BLIND_MEAN, "classes"),
    "small objects": (objects, CHANCE, "points"),
}


def watched(table: Table, arm: str, part: float) -> Series:
    """Held-out accuracy after this part of training."""
    curve = table.curve("watched", "images", arm=arm, split="held_out")
    if not curve:
        return {}
    want = part * max(curve)
    return curve[min(curve, key=lambda images: abs(images - want))]


# -- the ablation


def cells(table: Table, measure: Measure, kind: str) -> dict[Cell, Series]:
    """The corners of the ablation that have results; all eight, or nothing can be said."""
    found = {cell: measure(table, cell.arm(kind)) for cell in CELLS}
    if not all(found.values()):
        raise TooFewSeeds(0)
    return found


def effect(table: Table, switch: str, measure: Measure, kind: str = "attention") -> Series:
    """What turning a switch on gives, by seed: mean over the four settings of the two others."""
    found = cells(table, measure, kind)
    on, off = ([s for cell, s in found.items() if cell.on(switch) is wanted] for wanted in (True, False))
    return per_seed(lambda *v: sum(v[:4]) / 4 - sum(v[4:]) / 4, *on, *off)


def effects_text(table: Table, measure: Measure, kind: str = "attention", unit: str = "points") -> str:
    told = (f"{switch} {stats.estimate(effect(table, switch, measure, kind)).text(unit)}" for switch in SWITCHES)
    return ", ".join(told)


# -- what nothing may rest on


def why_not(table: Table, arms: Sequence[str]) -> str:
    for arm in arms:
        reached = accuracy(table, arm)
        if reached and (mean := sum(reached.values()) / len(reached)) < LEARNED:
            return f"{arm} is under-trained (test accuracy {100 * mean:.0f} %, below {100 * LEARNED:.0f})"
    return ""


def resting_on(*arms: str) -> Callable[[Callable[[Table], Evidence]], Callable[[Table], Evidence]]:
    """A claim's test that is blocked unless these arms have learned."""

    def wrap(test: Callable[[Table], Evidence]) -> Callable[[Table], Evidence]:
        def blocked(table: Table) -> Evidence:
            found = test(table)
            return replace(found, blocked=found.blocked or why_not(table, arms))

        return blocked

    return wrap


def near(series: Series, value: float, margin: float, *, unit: str = "points", note: str = "") -> Evidence:
    """Is the mean within a margin of a published number?"""
    return stats.equivalent(series, dict.fromkeys(series, value), margin=margin, unit=unit, note=note)


def ours(table: Table, arms: Sequence[str], measure: Measure, percent: bool = True) -> str:
    """As in `ResNet 45.1 ± 1.0 %, ViT 38.0 ± 0.8 %`."""
    told = []
    for arm in arms:
        if not (found := measure(table, arm)):
            continue
        e = stats.estimate(found)
        told.append(f"{arm} {e.short()} %" if percent else f"{arm} {e.value:.2f}")
    return ", ".join(told)
