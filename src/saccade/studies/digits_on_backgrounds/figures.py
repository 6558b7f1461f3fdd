"""Figures 8 to 12 of the thesis, and three of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saccade.lab.table import Table
from saccade.report import figures
from saccade.report.figures import FigureData
from saccade.studies.digits_on_backgrounds.arms import HIGH, LOW, NEUTRAL, OVERVIEW
from saccade.study import Figure, figure

_LOOK = {"CNN": {"family": "cnn"}, "MHA": {"family": "attention"}, "ViT": {"family": "vit"}}
_OVER_X: dict[str, Any] = {
    "y": "accuracy",
    "x": "backgrounds",
    "x_label": "backgrounds per digit class, x",
    "y_label": "accuracy",
    "x_log": 2,
    "y_percent": True,
}


@figure("Accuracy against backgrounds per digit", paper="Figure 8")
def fig8_backgrounds(table: Table) -> FigureData:
    lines = [
        {
            "label": f"{arm}, {split.upper() if split != 'train' else split}",
            **look,
            "dash": dash,
            "where": {"arm": arm, "split": split},
        }
        for arm, look in _LOOK.items()
        for split, dash in (("train", "dotted"), ("id", "dashed"), ("ood", "solid"))
    ]
    return figures.curves(table, lines=lines, **_OVER_X)


@figure("Accuracy on unseen backgrounds, digit moved, turned or shrunk", paper="Figure 9")
def fig9_transforms(table: Table) -> FigureData:
    kinds = [("OOD, untouched", {"split": "ood"}, "solid")] + [
        (f"{name} {value}", {"transform": name, "severity": value}, dash)
        for (name, value), dash in zip(OVERVIEW.items(), ("dashed", "dashdot", "dotted"), strict=True)
    ]
    lines = [
        {"label": f"{arm}, {label}", **_LOOK[arm], "dash": dash, "where": {"arm": arm, **where}}
        for arm in ("CNN", "MHA")
        for label, where, dash in kinds
    ]
    return figures.curves(table, lines=lines, **_OVER_X)


def _severity(transform: str, x_label: str) -> Callable[[Table], FigureData]:
    def make(table: Table) -> FigureData:
        lines = [
            {
                "label": f"{arm}, x={x}",
                **_LOOK[arm],
                "dash": dash,
                "shade": shade,
                "where": {"arm": arm, "transform": transform, "backgrounds": x},
            }
            for arm in ("CNN", "MHA")
            for x, dash, shade in ((LOW, "dashed", 0.35), (HIGH, "solid", 0.6))
        ]
        shared: dict[str, Any] = {
            "y": "accuracy",
            "x": "severity",
            "lines": lines,
            "x_label": x_label,
            "y_label": "accuracy, or share of it kept",
            "y_percent": True,
            "x_down": transform == "scale",
        }
        return figures.beside(
            figures.curves(table, **shared, panel="accuracy"),
            figures.curves(
                table,
                **shared,
                panel="retention: relative to the same replication's unmoved digit",
                relative_to=NEUTRAL[transform],
            ),
        )

    return make


fig10 = Figure("fig10_translation", "Translation of the digit", "Figure 10", _severity("translation", "shift (px)"))
fig11 = Figure(
    "fig11_rotation",
    "Rotation of the digit",
    "Figure 11",
    _severity("rotation", "rotation (degrees, mean of both directions)"),
)
fig12 = Figure("fig12_scale", "Shrinking of the digit", "Figure 12", _severity("scale", "scale"))


@figure("Accuracy against training images seen: does an arm still learn?", paper="")
def images_seen(table: Table) -> FigureData:
    def panel(x: int) -> Any:
        lines = [
            {
                "label": f"{arm}, {label}",
                **look,
                "dash": dash,
                "y": metric,
                "where": {"arm": arm, "backgrounds": x, "split": split},
            }
            for arm, look in _LOOK.items()
            for label, metric, split, dash in (
                ("ID, before it is learned", "online", "online", "dashed"),
                ("OOD", "watched", "ood", "solid"),
            )
        ]
        return figures.curves(
            table,
            y="accuracy",
            x="images",
            lines=lines,
            x_label="training images seen",
            y_label="accuracy",
            y_percent=True,
            panel=f"x = {x}",
        )

    return figures.beside(*(panel(x) for x in (LOW, HIGH)))


@figure("What the author proposed: a pooled head, mild augmentation", paper="Section 6, conjectures")
def proposals(table: Table) -> FigureData:
    arms = [(arm, extra) for arm in ("CNN", "MHA") for extra in ("", ", pooled", ", augmented")]

    def panel(transform: str, label: str) -> Any:
        lines = [
            {
                "label": arm + extra,
                **_LOOK[arm],
                "dash": {"": "solid", ", pooled": "dashed"}.get(extra, "dotted"),
                "where": {"arm": arm + extra, "transform": transform, "backgrounds": HIGH},
            }
            for arm, extra in arms
        ]
        return figures.curves(
            table,
            y="accuracy",
            x="severity",
            lines=lines,
            x_label=label,
            y_label="accuracy",
            y_percent=True,
            panel=f"{transform}, x = {HIGH}",
            x_down=transform == "scale",
        )

    return figures.beside(
        panel("translation", "translation (px)"), panel("rotation", "rotation (degrees)"), panel("scale", "scale")
    )


FIGURES = (fig8_backgrounds, fig9_transforms, fig10, fig11, fig12, images_seen, proposals)
