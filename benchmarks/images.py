"""Rows: pictures moved and composed by the batch, against one picture at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import PIL
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import Pair, difference
from saccade.data import pixels, procedural

TORCH = f"torch {torch.__version__}"
DEGREES, SHIFT, SCALE = 20.0, 4.0, 0.25  # how far pictures are turned, moved and sized


def affine(per_image: Callable[[Tensor, Tensor], Tensor], against: str, aim: float, tolerance: float) -> Pair:
    """Turn, scale and shift digits, each by numbers of its own, from uint8 pictures to a float batch."""
    n, size = 256, 32
    digits, _ = procedural.digits(n, seed=0)
    kept = F.pad(torch.from_numpy(digits), (2, 2, 2, 2))
    u = torch.rand(4, n, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def batched() -> Tensor:
        turned = pixels.chain(pixels.rotation(DEGREES * u[0]), pixels.scaling(1 + SCALE * u[1]))
        maps = pixels.chain(turned, pixels.translation(SHIFT * u[2], SHIFT * u[3], size))
        return pixels.warp(kept[:, None].float().div_(255), maps)

    def one_by_one() -> Tensor:
        return torch.stack([per_image(kept[i], u[:, i]) for i in range(n)])

    return Pair(
        "batched affine",
        f"{n} digits of 32x32: turn, scale, shift",
        against,
        aim,
        batched,
        one_by_one,
        f"pictures{', PIL rounds to 1/255' if tolerance > 1e-3 else ', float32'}",
        lambda: difference([batched()], [one_by_one()]),
        tolerance,
        counted=False,
    )


def _inverse(u: Tensor, size: int) -> tuple[float, ...]:
    """Where each output pixel comes from, in pixels about the corner, as PIL asks: a, b, c, d, e, f."""
    turn, sized, down, right = u.tolist()
    angle, factor = math.radians(DEGREES * turn), 1 + SCALE * sized
    cos, sin, middle = math.cos(angle) / factor, math.sin(angle) / factor, size / 2
    dx, dy = SHIFT * right, SHIFT * down
    return (
        cos,
        -sin,
        middle - cos * (middle + dx) + sin * (middle + dy),
        sin,
        cos,
        middle - sin * (middle + dx) - cos * (middle + dy),
    )


def by_pillow(picture: Tensor, u: Tensor) -> Tensor:
    size = picture.shape[-1]
    moved = Image.fromarray(picture.numpy()).transform(
        (size, size), Image.Transform.AFFINE, _inverse(u, size), Image.Resampling.BILINEAR
    )
    return torch.from_numpy(np.asarray(moved).copy())[None].float().div_(255)


def by_tensor(picture: Tensor, u: Tensor) -> Tensor:
    """The route of tensor transforms: a map, a grid and a sampling for each picture."""
    size = picture.shape[-1]
    a, b, c, d, e, f = _inverse(u, size)
    half = size / 2  # from pixels about the corner to halves of the picture about its middle
    theta = torch.tensor([[a, b, (c + (a + b - 1) * half) / half], [d, e, (f + (d + e - 1) * half) / half]])
    grid = F.affine_grid(theta[None], [1, 1, size, size], align_corners=False)
    return F.grid_sample(picture[None, None].float().div_(255), grid, align_corners=False)[0]


def cases(quick: bool) -> list[Callable[[], Pair | str]]:
    return [
        lambda: affine(by_pillow, f"a PIL transform an image, pillow {PIL.__version__}", 7.0, 0.012),
        lambda: affine(by_tensor, f"a tensor transform an image, {TORCH}", 7.0, 1e-4),
    ]
