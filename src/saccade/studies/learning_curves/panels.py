"""Pictures of the learning-curve study, from its rows: curves with their fits, and attention maps over images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saccade.lab.table import Table
from saccade.report import figures
from saccade.report.figures import Curves, Fit, ImageGrid, Line, Mark, Panel
from saccade.stats import TooFewSeeds
from saccade.studies.learning_curves import measures
from saccade.studies.learning_curves.measures import Law

if TYPE_CHECKING:
    import numpy as np

SETS = {1: "MNIST", 3: "CIFAR-10"}
NAMES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "fashion_mnist": "Fashion-MNIST",
    "procedural_digits": "drawn digits",
    "procedural_textures": "drawn textures",
}
ARMS_LOOK = {"CNN": "cnn", "ViT": "vit"}
THINGS = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")  # CIFAR-10's classes
BRIGHT = 5.0  # times an even look, from which on a map is brightest
LEGEND = f"Warm: attention, from none to {BRIGHT:g} times an even look or more, the same for all maps. Blue: picture."
LATER = "The runs behind it come with a larger scale."


def set_name(table: Table, channels: int) -> str:
    found = table.at(channels=channels).values("of")
    return NAMES.get(found[0], str(found[0])) if found else SETS[channels]


def learning_panel(
    table: Table, channels: int, arms: Sequence[Mapping[str, Any]], *, fits: bool = True, marks: Sequence[Mark] = ()
) -> Panel:
    """Test error against p, log-log, one line an arm with its power law; arms have arm and, if wanted, dash, shade."""
    lines, drawn = [], []
    for look in arms:
        arm = look["arm"]
        lines.append(arm_line(table, look, measures.learning(table, arm, channels), channels=channels, noise=0.0))
        found = law_or_none(table, arm, channels)
        if fits and found is not None:
            drawn.append(_fit(found, f"{set_name(table, channels)}, {found.text}", ARMS_LOOK[arm[:3]]))
    return Panel(set_name(table, channels), tuple(lines), "training points p", 2, False, tuple(marks), tuple(drawn))


def law_or_none(table: Table, arm: str, channels: int) -> Law | None:
    try:
        found = measures.laws(table, [arm], channels)[arm]
    except TooFewSeeds:
        return None
    return None if found.blocked else found


def _fit(law: Law, label: str, family: str) -> Fit:
    ends = (law.fit.sizes[0], law.fit.sizes[-1])
    return Fit(
        label, family, ends, tuple(math.exp(law.fit.log_prefactor + law.fit.exponent.value * math.log(p)) for p in ends)
    )


def arm_line(table: Table, look: Mapping[str, Any], curve: Mapping[Any, Any], **where: Any) -> Line:
    arm = look["arm"]
    return figures.line(
        look.get("label", arm),
        curve,
        family=ARMS_LOOK[arm[:3]],
        dash=look.get("dash", "solid"),
        shade=look.get("shade", 0.5),
        gaps=table.at(arm=arm, **where).gaps,
    )


def log_log(panels: Sequence[Panel], note: str = "") -> Curves:
    return Curves("", tuple(panels), "test error", True, True, note)


def residuals(table: Table, arms: Sequence[str]) -> Curves:
    """Log error minus fitted log error, seed by seed: a bend here means that no power law holds."""
    panels = []
    for channels in (1, 3):
        lines = []
        for arm in arms:
            found = law_or_none(table, arm, channels)
            if found is None:
                continue
            curve = {
                p: {s: row[i] for s, row in zip(found.seeds, found.fit.residuals, strict=True)}
                for i, p in enumerate(found.fit.sizes)
            }
            lines.append(figures.line(arm, curve, family=ARMS_LOOK[arm[:3]]))
        panels.append(Panel(set_name(table, channels), tuple(lines), "training points p", 2))
    return Curves("", tuple(panels), "log error minus fit")


def exponents(table: Table, along: Mapping[str, Mapping[int, str]], x_label: str) -> Curves:
    """Exponents against heads or layers: for each set, the arms by their x."""
    lines = []
    for (channels, dash), arms in zip(((1, "solid"), (3, "dashed")), along.values(), strict=True):
        try:
            found = measures.laws(table, list(arms.values()), channels)
        except TooFewSeeds:
            found = {}
        curve = {x: found[arm].exponents for x, arm in arms.items() if arm in found}
        lines.append(
            figures.line(
                set_name(table, channels), curve, family="vit", dash=dash, shade=0.35 if channels == 1 else 0.65
            )
        )
    return Curves("", (Panel("", tuple(lines), x_label, 2),), "exponent α", note="Lower is steeper.")


def descent(
    table: Table,
    channels: int,
    sweeps: Sequence[Mapping[str, Any]],
    x_label: str,
    marks: Sequence[Mark] = (),
    title: str = "",
) -> Panel:
    """Train (dotted) and test error against the dial; each of `sweeps` has arms, noise, label and a shade."""
    lines = []
    for wanted in sweeps:
        p = measures.swept_p(table, wanted["arms"], channels)
        if not p:
            continue
        for split, dash in (("test", wanted.get("dash", "solid")), ("train", "dotted")):
            curve = measures.sweep(table, wanted["arms"], channels, wanted["noise"], split, p)
            gaps = table.at(arm=wanted["arms"], channels=channels, noise=wanted["noise"], p=p).gaps
            if curve or gaps:
                lines.append(
                    figures.line(
                        f"{wanted['label']}, {split}",
                        curve,
                        family=ARMS_LOOK[wanted["arms"][0][:3]],
                        dash=dash,
                        shade=wanted.get("shade", 0.5),
                        gaps=gaps,
                    )
                )
    return Panel(title or set_name(table, channels), tuple(lines), x_label, 2, False, tuple(marks))


# -- maps


def stacked(*grids: ImageGrid) -> ImageGrid:
    """Grids of the same columns below one another."""
    full = [g for g in grids if g.images]
    if not full:
        return grids[0]
    return replace(
        full[0],
        images=tuple(row for g in full for row in g.images),
        row_labels=tuple(label for g in full for label in g.row_labels),
    )


def maps(
    table: Table,
    channels: int,
    nets: Sequence[tuple[str, str]],
    *,
    shown: Sequence[str] = ("instance",),
    twist: str = "",
    names: Mapping[int, str] | None = None,
) -> ImageGrid:
    """The pictures above, then one row of overlays for each net and way of reading its maps ("map" or "rollout")."""
    arms = tuple(arm + twist for arm, _ in nets)
    rows = [r for r in table.at(metric="picture", arm=arms, channels=channels) if r["shown"] in shown]
    last = max((r["p"] for r in rows), default=0)
    rows = [r for r in rows if r["p"] == last or twist]
    columns = sorted({(shown.index(r["shown"]), r["label"]) for r in rows})
    cells = {(r["arm"], shown.index(r["shown"]), r["label"]): r for r in rows}
    if not columns:
        return ImageGrid("", (), note=LATER)
    first = [next(c for arm in arms if (c := cells.get((arm, *at)))) for at in columns]
    grid: list[list[Any]] = [[_image(r) for r in first]]
    labels = ["image" if len(shown) > 1 or shown[0] == "instance" else shown[0]]
    for arm, view in nets:
        found = [cells.get((arm + twist, *at)) for at in columns]
        if any(found):
            grid.append([None if r is None else overlay(r, view) for r in found])
            labels.append(arm + (", rollout" if view == "rollout" else ""))
    said = names or (dict(enumerate(THINGS)) if first[0]["of"] == "cifar10" else {})
    titles = [
        r["shown"]
        if r["label"] < 0
        else f"{'mean ' if r['shown'] == 'class mean' else ''}{said.get(r['label'], r['label'])}"
        for r in first
    ]
    return figures.image_grid(grid, rows=labels, columns=titles, note=LEGEND)


def head_maps(table: Table, arm: str, channels: int) -> ImageGrid:
    """One picture's maps by layer (down) and head (across)."""
    import numpy as np

    rows = list(table.at(metric="head_map", arm=arm, channels=channels))
    last = max((r["p"] for r in rows), default=0)
    cells = {(r["layer"], r["head"]): np.reshape(r["map"], (8, 8)) for r in rows if r["p"] == last}
    layers, heads = (sorted({k[i] for k in cells}) for i in (0, 1))
    grid = [[_heat(cells[i, j]) for j in heads] for i in layers]
    return figures.image_grid(
        grid,
        rows=[f"layer {i}" for i in layers],
        columns=[f"head {j}" for j in heads],
        note=f"{arm} on the first picture above, scaled as there." if grid else LATER,
    )


def _image(row: Mapping[str, Any]) -> np.ndarray:
    import numpy as np

    image = np.reshape(np.array(row["picture"], np.uint8), (-1, 32, 32)).transpose(1, 2, 0)
    return np.repeat(image, 3, 2) if image.shape[2] == 1 else image


def overlay(row: Mapping[str, Any], view: str = "map") -> np.ndarray:
    """The map as warm light over the picture in faint blue: (32, 32, 3), float in [0, 1]."""
    import numpy as np

    heat = _heat(np.reshape(np.array(row[view], float), (8, 8)))
    blue = _image(row).mean(2, keepdims=True) / 255 * np.array([0.1, 0.35, 0.75])
    mixed: np.ndarray = np.clip(heat + (1 - heat.max(2, keepdims=True)) * blue, 0, 1)
    return mixed


def _heat(grid: np.ndarray) -> np.ndarray:
    """A map that sums to one, as 32 x 32 light: black over red and orange to pale yellow."""
    import numpy as np

    share = _large(np.clip(grid * grid.size / BRIGHT, 0, 1)[..., None])
    ramps = ((1.8, 0.0), (1.7, 0.5), (2.5, 1.7))
    return np.concatenate([np.clip(rise * share - start, 0, 1) for rise, start in ramps], -1)


def _large(heat: np.ndarray) -> np.ndarray:
    """8 x 8 to 32 x 32, linear between the patches' middles."""
    import numpy as np

    at = np.clip((np.arange(32) + 0.5) / 4 - 0.5, 0, 7)
    low = np.floor(at).astype(int)
    high, share = np.minimum(low + 1, 7), (at - low)[:, None, None]
    rows = heat[low] * (1 - share) + heat[high] * share
    share = share.transpose(1, 0, 2)
    large: np.ndarray = rows[:, low] * (1 - share) + rows[:, high] * share
    return large
