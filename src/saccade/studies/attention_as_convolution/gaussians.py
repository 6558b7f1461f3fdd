"""Figure 2 of the report: heads as Gaussians around the query, drawn as small images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

REACH = 6.0  # tokens to each side of the query that are drawn
PIXELS = 132  # eleven per token
INSIDE = (0.5, 0.9)  # mass inside the solid and inside the dotted contour
# Nine that stay apart, the first ones of Okabe and Ito 2008; more heads begin anew
HEADS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E7781", "#8C510A", "#542788")


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
        colour = _rgb(i)
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


def _rgb(head: int) -> np.ndarray:
    import numpy as np

    code = HEADS[head % len(HEADS)]
    return np.array([int(code[k : k + 2], 16) / 255 for k in (1, 3, 5)])


def head_key() -> np.ndarray:
    """The colours of heads 1 to 9, three in a row."""
    import numpy as np

    image = np.ones((PIXELS, PIXELS, 3))
    third = PIXELS // 3
    for i in range(9):
        row, column = divmod(i, 3)
        image[row * third + 6 : (row + 1) * third - 6, column * third + 6 : (column + 1) * third - 6] = _rgb(i)
    return image
