"""Batched image operations on (n, c, h, w) float tensors in [0, 1]. Random ones take their numbers as tensors."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Blend = Literal["opacity", "maximum", "hard", "add"]


def floats(x: Tensor, index: Tensor) -> Tensor:
    """These of many uint8 images. `index_select` is several times faster here than brackets, the numbers the same."""
    return torch.div(x.index_select(0, index), 255)


def translation(dy: Tensor, dx: Tensor, size: int) -> Tensor:
    """Maps (n, 2, 3) that move an image down by dy and right by dx pixels."""
    one, zero = torch.ones_like(dx), torch.zeros_like(dx)
    # affine_grid asks where each output pixel comes from, which is why there is a minus; its unit is half the image.
    return _stack(one, zero, -2 * dx / size, zero, one, -2 * dy / size)


def rotation(degrees: Tensor) -> Tensor:
    """Maps that turn an image counter-clockwise about its centre."""
    a = degrees * (math.pi / 180)
    zero = torch.zeros_like(a)
    return _stack(a.cos(), -a.sin(), zero, a.sin(), a.cos(), zero)


def scaling(factor: Tensor) -> Tensor:
    """Maps that shrink (factor below 1) or enlarge an image about its centre."""
    zero = torch.zeros_like(factor)
    return _stack(1 / factor, zero, zero, zero, 1 / factor, zero)


def chain(first: Tensor, then: Tensor) -> Tensor:
    """The map that does `first`, then `then`."""
    square = [torch.cat([m, m.new_tensor([[0.0, 0.0, 1.0]]).expand(len(m), 1, 3)], 1) for m in (first, then)]
    return (square[0] @ square[1])[:, :2]


def warp(x: Tensor, maps: Tensor) -> Tensor:
    """One bilinear resampling of each image by its own map; outside is 0.

    A map is linear in row and column, so its grid is a sum of two lines: three times faster than affine_grid.
    """
    down, right = ((torch.arange(n, device=x.device, dtype=x.dtype) + 0.5) * (2 / n) - 1 for n in x.shape[-2:])
    along, across, start = maps.unbind(-1)  # each (n, 2): x and y of where a pixel comes from
    lines = torch.addcmul(start[:, None], down[:, None], across[:, None])  # (n, h, 2)
    grid = lines[:, :, None] + (right[:, None] * along[:, None])[:, None]
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def compose(ink: Tensor, scene: Tensor, blend: str = "opacity") -> Tensor:
    """Paint white ink (n, 1, h, w) over scenes (n, c, h, w)."""
    if blend == "opacity":
        return torch.mul(1 - ink, scene).add_(ink)
    if blend == "maximum":
        return torch.maximum(ink, scene)
    if blend == "hard":
        return torch.where(ink > 0.5, torch.ones_like(scene), scene)
    return (ink + scene).clamp(max=1.0)


def recolour(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Images (n, c, h, w), each with its own contrast, 1 ± share about mid-grey, and its channels moved by ± share / 2.

    Not clipped to [0, 1]: what is brighter than something else stays so.
    """
    n, channels = x.shape[:2]
    u = (torch.rand(n, 1 + channels, 1, 1, generator=generator) * 2 - 1).to(x.device)
    return (x - 0.5) * (1 + share * u[:, :1]) + (0.5 + share / 2 * u[:, 1:])


def _stack(*six: Tensor) -> Tensor:
    return torch.stack(six, -1).reshape(-1, 2, 3)
