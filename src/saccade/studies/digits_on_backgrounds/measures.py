"""Numbers per seed that the claims and figures read from the rows."""

from __future__ import annotations

from typing import Any

from saccade.lab.table import Series, Table, minus, per_seed, slope_per_seed
from saccade.studies.digits_on_backgrounds.arms import NEUTRAL


def split_accuracy(table: Table, arm: str, split: str, x: int) -> Series:
    return table.series("accuracy", arm=arm, split=split, backgrounds=x)


def moved(table: Table, arm: str, transform: str, severity: float, x: int) -> Series:
    return table.series("accuracy", arm=arm, transform=transform, severity=severity, backgrounds=x)


def severity_curve(table: Table, arm: str, transform: str, x: int) -> dict[Any, Series]:
    return table.curve("accuracy", "severity", arm=arm, transform=transform, backgrounds=x)


def retention(table: Table, arm: str, transform: str, x: int) -> Series:
    """Mean over severities of accuracy relative to the unmoved digit's: 1 is invariant, whatever the start."""
    curve = severity_curve(table, arm, transform, x)
    start = curve.pop(NEUTRAL[transform], {})
    start = {seed: a for seed, a in start.items() if a > 0}  # nothing right, nothing to keep
    return per_seed(lambda a, *rest: sum(rest) / len(rest) / a, start, *curve.values()) if curve else {}


def fall(table: Table, arm: str, transform: str, x: int) -> Series:
    """Accuracy lost per pixel, per 10 degrees or per unit of scale: minus the slope of each seed's own curve."""
    unit = {"translation": 1.0, "rotation": 0.1, "scale": -1.0}[transform]
    slopes = slope_per_seed(severity_curve(table, arm, transform, x), lambda severity: unit * severity)
    return {s: -v for s, v in slopes.items()}


def gap_to_ood(table: Table, arm: str, x: int) -> Series:
    return minus(split_accuracy(table, arm, "id", x), split_accuracy(table, arm, "ood", x))
