"""Rasters of the study of attention as convolution: heads' Gaussians as contours, and attention maps over a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saccade.lab.table import Table
from saccade.report import figures
from saccade.report.figures import ImageGrid

if TYPE_CHECKING:
    import numpy as np

LATER = "The runs behind it come with a larger scale."
REACH = 6.0  # tokens to each side of the query that are drawn
PIXELS = 132  # eleven a token
INSIDE = (0.5, 0.9)  # mass inside the solid and inside the dotted contour
BRIGHT = 8.0  # times an even look, from which on a map is brightest
SHOWN = 32  # pixels a side of a map
# Nine that stay apart, the first ones of Okabe and Ito 2008; more heads begin anew
HEADS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E7781", "#8C510A", "#542788")
LEGEND = f"Warm: attention, from none to {BRIGHT:g} times an even look or more. Blue: the picture. Frame: the query."


def centres(table: Table, arm: str) -> ImageGrid:
    """Contours of every head's Gaussian around the query: one column a layer, one row a look."""
    rows = list(table.at(metric="head_centre", arm=arm))
    if not rows:
        return ImageGrid("", (), note=LATER)
    ends = {"start": -1, "trained": 10**9}
    states: dict[str, int] = {r["state"]: ends[r["state"]] if r["state"] in ends else r["step"] for r in rows}
    # The last look on the way is at the trained net itself, so one of the two is enough.
    last = max((at for at in states.values() if at < 10**9), default=-1)
    order = sorted((s for s, at in states.items() if not (0 <= at == last)), key=states.__getitem__)
    depth = max(r["layer"] for r in rows)
    grid = [
        [
            contours([r["gaussian"] for r in rows if r["state"] == s and r["layer"] == layer])
            for layer in range(1, depth + 1)
        ]
        for s in order
    ]
    return figures.image_grid(
        grid,
        rows=order,
        columns=[f"layer {i}" for i in range(1, depth + 1)],
        note="One colour a head. Solid: half of its attention inside; dotted: nine tenths. Lines "
        f"are the borders of tokens, up to {REACH:g} from the query (filled). Seed 0.",
    )


def contours(gaussians: Sequence[Sequence[float]]) -> np.ndarray:
    """(PIXELS, PIXELS, 3) in [0, 1]; each Gaussian is centre row and column and precision a, b, c."""
    import numpy as np

    at = (np.arange(PIXELS) + 0.5) / PIXELS * 2 * REACH - REACH
    y, x = np.meshgrid(at, at, indexing="ij")
    step = 2 * REACH / PIXELS
    image = np.ones((PIXELS, PIXELS, 3))
    border = np.minimum(np.abs((y - 0.5) - np.rint(y - 0.5)), np.abs((x - 0.5) - np.rint(x - 0.5)))
    image[border < step / 2] = 0.88
    image[(np.abs(y) < 0.5) & (np.abs(x) < 0.5)] = 0.78
    for i, (row, column, a, b, c) in enumerate(gaussians):
        colour = np.array([int(HEADS[i % len(HEADS)][k : k + 2], 16) / 255 for k in (1, 3, 5)])
        dy, dx = y - row, x - column
        form = np.sqrt(np.maximum(a * dy * dy + 2 * b * dy * dx + c * dx * dx, 0))  # Mahalanobis distance
        slope = np.hypot(*np.gradient(form, step)) + 1e-9
        angle = np.arctan2(dy, dx)
        for mass in INSIDE:
            off = np.abs(form - math.sqrt(-2 * math.log(1 - mass))) / slope / step  # in pixels from the line
            ink = np.clip(1.3 - off, 0, 1)
            if mass != INSIDE[0]:
                ink = ink * (np.sin(24 * angle) > -0.2) * 0.8
            image = image * (1 - ink[..., None]) + colour * ink[..., None]
        middle = np.clip(2.2 - np.hypot(dy, dx) / step, 0, 1)[..., None]
        image = image * (1 - middle) + colour * middle
    few: np.ndarray = np.rint(15 * image) / 15  # few shades make small files
    return few


def maps(table: Table, arms: Sequence[str], view: str, note: str = "") -> ImageGrid:
    """Layers down, heads across, arms below one another; over the picture where the map is of a single one."""
    grid: list[list[Any]] = []
    labels: list[str] = []
    across = 0
    for arm in arms:
        cells = {(r["layer"], r["head"]): r["map"] for r in table.at(metric="head_map", arm=arm, view=view)}
        seen = next(iter(table.at(metric="looked_at", arm=arm)), None)
        if not cells:
            continue
        layers, heads = (sorted({k[i] for k in cells}) for i in (0, 1))
        query = None if seen is None or view.startswith("average") else seen["query"]
        under = seen if seen is not None and view in ("one", "average") else None
        for layer in layers:
            grid.append([shown(cells[layer, head], query, under) for head in heads])
            labels.append(f"{arm}, layer {layer}" if len(arms) > 1 else f"pass {layer}")
        across = max(across, len(heads))
    if not grid:
        return ImageGrid("", (), note=LATER)
    return figures.image_grid(
        grid,
        rows=labels,
        columns=[f"head {i + 1}" for i in range(across)],
        note=" ".join(part for part in (note, LEGEND, "Seed 0.") if part),
    )


def shown(values: Sequence[float], query: int | None = None, under: Mapping[str, Any] | None = None) -> np.ndarray:
    """A map that sums to one as light, token by token, over a faint picture: (SHOWN, SHOWN, 3) in [0, 1]."""
    import numpy as np

    side = math.isqrt(len(values))
    share = _large(np.clip(np.reshape(np.array(values, float), (side, side)) * side * side / BRIGHT, 0, 1))[..., None]
    ramps = ((1.8, 0.0), (1.7, 0.5), (2.5, 1.7))  # black over red and orange to pale yellow
    heat = np.concatenate([np.clip(rise * share - start, 0, 1) for rise, start in ramps], -1)
    if under is not None:
        image = np.reshape(np.array(under["picture"], float), (-1, 32, 32)).mean(0) / 255
        heat = heat + (1 - heat.max(2, keepdims=True)) * _large(image)[..., None] * np.array([0.1, 0.35, 0.75])
    if query is not None:
        size = SHOWN // side
        i, j = (v * size for v in divmod(query, side))
        for part in (np.s_[i : i + size, [j, j + size - 1]], np.s_[[i, i + size - 1], j : j + size]):
            heat[part] = 0.75
    clipped: np.ndarray = np.clip(heat, 0, 1)
    return clipped


def _large(grid: np.ndarray) -> np.ndarray:
    import numpy as np

    at = np.arange(SHOWN) * len(grid) // SHOWN
    large: np.ndarray = grid[at][:, at]
    return large
