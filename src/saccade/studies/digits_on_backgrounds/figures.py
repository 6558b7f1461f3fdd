"""Figures 8 to 12 of the thesis, and four of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saccade import stats
from saccade.lab.table import Table
from saccade.report import figures
from saccade.report.figures import FigureData
from saccade.studies.digits_on_backgrounds.arms import HIGH, LOW, NEUTRAL, OVERVIEW, VARIED
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
    """A panel per kind of images: nine lines in one could not be told apart."""
    kinds = {"ood": "unseen backgrounds (OOD)", "id": "seen backgrounds (ID)", "train": "training images"}
    several = (
        figures.curves(
            table,
            lines=[{"label": arm, **look, "where": {"arm": arm, "split": split}} for arm, look in _LOOK.items()],
            panel=title,
            **{**_OVER_X, "x_label": "backgrounds, x"},
        )
        for split, title in kinds.items()
    )
    return figures.beside(*several)


@figure("Accuracy on unseen backgrounds, digit moved, turned or shrunk", paper="Figure 9")
def fig9_transforms(table: Table) -> FigureData:
    """A panel per way of moving the digit: eight lines in one could not be told apart."""
    units = {"translation": "moved by {} px", "rotation": "turned by {}°", "scale": "scaled to {}"}
    kinds: list[tuple[str, dict[str, Any]]] = [("untouched", {"split": "ood"})]
    kinds += [(units[name].format(v), {"transform": name, "severity": v}) for name, v in OVERVIEW.items()]
    several = (
        figures.curves(
            table,
            lines=[{"label": arm, **_LOOK[arm], "where": {"arm": arm, **where}} for arm in ("CNN", "MHA")],
            panel=title,
            **{**_OVER_X, "x_label": "backgrounds, x"},
        )
        for title, where in kinds
    )
    return figures.beside(*several)


def _severity(transform: str, x_label: str) -> Callable[[Table], FigureData]:
    """Accuracy, and the share of it that is kept: as the thesis trains, then with varied colours, which claims read."""

    def panels(table: Table, extra: str) -> list[Any]:
        lines = [
            {
                "label": f"{arm}, x={x}",
                **_LOOK[arm],
                "dash": dash,
                "shade": shade,
                "where": {"arm": arm + extra, "transform": transform, "backgrounds": x},
            }
            for arm in ("CNN", "MHA")
            for x, dash, shade in ((LOW, "dashed", 0.35), (HIGH, "solid", 0.6))
        ]
        shared: dict[str, Any] = {
            "y": "accuracy",
            "x": "severity",
            "lines": lines,
            "x_label": x_label,
            "y_percent": True,
            "own_axis": True,
            "x_down": transform == "scale",
        }
        how = extra.lstrip(", ")
        return [
            figures.curves(table, **shared, panel=", ".join(filter(None, ("accuracy", how))), y_label="accuracy"),
            figures.curves(
                table,
                **shared,
                panel=", ".join(filter(None, ("retention", how))),
                y_label="share of accuracy kept",
                relative_to=NEUTRAL[transform],
            ),
        ]

    def make(table: Table) -> FigureData:
        varied_suffix = f", {VARIED}"
        arms_run = table.values("arm")
        extras = ["", *([varied_suffix] if any(arm + varied_suffix in arms_run for arm in _LOOK) else [])]
        return figures.beside(
            *(panel for extra in extras for panel in panels(table, extra)),
            note="Retention is accuracy relative to the same replication's unmoved digit.",
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


def _while_training(table: Table, lines: Callable[[int], list[dict[str, Any]]], y_label: str) -> FigureData:
    """Lines over the training images seen, for the two x."""
    several = (
        figures.curves(
            table,
            y="accuracy",
            x="images",
            lines=lines(x),
            x_label="training images seen",
            y_label=y_label,
            y_percent=True,
            panel=f"x = {x}",
        )
        for x in (LOW, HIGH)
    )
    return figures.beside(*several)


@figure("Accuracy against training images seen: does an arm still learn?", paper="")
def images_seen(table: Table) -> FigureData:
    def lines(x: int) -> list[dict[str, Any]]:
        return [
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

    return _while_training(table, lines, "accuracy")


@figure("Colours that vary in training: what each model took from them", paper="")
def varied_colours(table: Table) -> FigureData:
    """Accuracy on unseen backgrounds while training, with and without."""
    if not any(f"{arm}, {VARIED}" in table.values("arm") for arm in _LOOK):
        raise stats.TooFewSeeds(0)

    def lines(x: int) -> list[dict[str, Any]]:
        return [
            {
                "label": arm + extra,
                **_LOOK[arm],
                "dash": dash,
                "y": "watched",
                "where": {"arm": arm + extra, "backgrounds": x, "split": "ood"},
            }
            for arm in ("CNN", "MHA")
            for extra, dash in (("", "solid"), (f", {VARIED}", "dashed"))
        ]

    return _while_training(table, lines, "accuracy on unseen backgrounds")


@figure("What the author proposed: a pooled head, mild augmentation", paper="Section 6, conjectures")
def proposals(table: Table) -> FigureData:
    """A panel per model and way of moving the digit, for models with a proposal that was run."""
    extras = {"": "solid", ", pooled": "dashed", ", augmented": "dotted"}
    arms_run = table.values("arm")
    arms = [arm for arm in ("CNN", "MHA") if any(arm + extra in arms_run for extra in extras if extra)]
    if not arms:
        raise stats.TooFewSeeds(0)

    def panel(arm: str, transform: str, label: str) -> Any:
        lines = [
            {
                "label": arm + extra,
                **_LOOK[arm],
                "dash": dash,
                "where": {"arm": arm + extra, "transform": transform, "backgrounds": HIGH},
            }
            for extra, dash in extras.items()
        ]
        return figures.curves(
            table,
            y="accuracy",
            x="severity",
            lines=lines,
            x_label=label,
            y_label="accuracy",
            y_percent=True,
            panel=f"{arm}: {transform}",
            x_down=transform == "scale",
        )

    moves = {"translation": "translation (px)", "rotation": "rotation (degrees)", "scale": "scale"}
    several = (panel(arm, transform, label) for arm in arms for transform, label in moves.items())
    return figures.beside(*several, note=f"x = {HIGH} backgrounds per digit class, unseen backgrounds.")


FIGURES = (fig8_backgrounds, fig9_transforms, fig10, fig11, fig12, images_seen, varied_colours, proposals)
