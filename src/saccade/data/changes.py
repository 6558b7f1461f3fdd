"""Batched changes of images (n, c, h, w) in [0, 1] that keep what they show: moved, covered, worsened, recombined.

Random numbers come in as tensors or as a generator. `colour` (c,) is what comes in where nothing was.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data import pixels

DRAWS = 64
CORRUPTIONS = ("noise", "blur", "contrast", "pixelate")
# Five strengths each. Lengths are shares of the side, so that they mean the same at every size.
NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)  # standard deviation; white minus black is 1
BLUR = (0.02, 0.03, 0.04, 0.055, 0.075)  # standard deviation of the Gaussian, in sides
CONTRAST = (0.75, 0.5, 0.35, 0.2, 0.1)  # what is left of the distance to the image's mean
PIXELATE = (0.8, 0.65, 0.5, 0.35, 0.25)  # pixels on a side that are left


def shifted(x: Tensor, down: Tensor, right: Tensor, colour: Tensor) -> Tensor:
    """Each image moved by whole pixels, its own numbers."""
    n, _, h, w = x.shape
    rows = torch.arange(h, device=x.device) - down.to(x.device)[:, None]  # where a row comes from
    columns = torch.arange(w, device=x.device) - right.to(x.device)[:, None]
    inside = ((rows >= 0) & (rows < h))[:, None, :, None] & ((columns >= 0) & (columns < w))[:, None, None]
    each = torch.arange(n, device=x.device)
    moved = x.permute(0, 2, 3, 1)[
        each[:, None, None], rows.clamp(0, h - 1)[:, :, None], columns.clamp(0, w - 1)[:, None]
    ]
    return torch.where(inside, moved.permute(0, 3, 1, 2), _filled(x, colour))


def warped(x: Tensor, maps: Tensor, colour: Tensor) -> Tensor:
    """One bilinear resampling by each image's map (see `pixels`); what was outside has the colour."""
    fill = _filled(x, colour)
    return pixels.warp(x - fill, maps.to(x)).add_(fill)


def covered(x: Tensor, top: Tensor, left: Tensor, side: int, colour: Tensor) -> Tensor:
    """A square of the colour on each image."""
    rows, columns = (torch.arange(s, device=x.device) for s in x.shape[-2:])
    down, right = top.to(x.device)[:, None], left.to(x.device)[:, None]
    inside = ((rows >= down) & (rows < down + side))[:, None, :, None] & (
        (columns >= right) & (columns < right + side)
    )[:, None, None]
    return torch.where(inside, _filled(x, colour), x)


def corrupted(x: Tensor, kind: str, strength: int, draw: torch.Generator | None = None) -> Tensor:
    """One of CORRUPTIONS at a strength from 1 to 5. Only noise draws."""
    level = strength - 1
    if kind == "noise":
        return (x + NOISE[level] * torch.randn(x.shape, generator=draw).to(x.device)).clamp_(0, 1)
    if kind == "blur":
        return blurred(x, BLUR[level] * x.shape[-1])
    if kind == "contrast":
        mean = x.mean((1, 2, 3), keepdim=True)
        return (mean + CONTRAST[level] * (x - mean)).clamp_(0, 1)
    small = [max(1, round(PIXELATE[level] * s)) for s in x.shape[-2:]]
    return F.interpolate(F.interpolate(x, size=small, mode="area"), size=x.shape[-2:], mode="nearest-exact")


def blurred(x: Tensor, sigma: float) -> Tensor:
    """Gaussian, cut off at three standard deviations, the border repeated outside."""
    reach = max(1, math.ceil(3 * sigma))
    at = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    weights = torch.exp(-0.5 * (at / sigma) ** 2)
    weights = (weights / weights.sum()).expand(x.shape[1], 1, -1)
    padded = F.pad(x, (reach,) * 4, mode="replicate")
    lines = F.conv2d(padded, weights[:, :, :, None], groups=x.shape[1])
    return F.conv2d(lines, weights[:, :, None], groups=x.shape[1])


def recombined(phase: Tensor, amplitude: Tensor) -> Tensor:
    """By channel, the phases of the one image's spectrum with the amplitudes of the other's."""
    one, other = torch.fft.rfft2(phase), torch.fft.rfft2(amplitude)
    size = one.abs()
    turned = torch.where(size > 1e-6, one / size.clamp_min(1e-6), torch.ones_like(one))
    mixed: Tensor = torch.fft.irfft2(turned * other.abs(), s=phase.shape[-2:])
    return mixed.clamp_(0, 1)


def partners(y: Tensor, same: bool, draw: torch.Generator) -> Tensor:
    """For each label the place of another, of the same class or of a different one; its own where there is none."""
    own, n = torch.arange(len(y)), len(y)
    chosen, left = own.clone(), torch.ones(n, dtype=torch.bool)
    for _ in range(DRAWS):
        other = torch.randint(n, (n,), generator=draw)
        fits = left & (other != own) & ((y[other] == y) == same)
        chosen[fits] = other[fits]
        left &= ~fits
    for i in left.nonzero()[:, 0].tolist():  # of a rare class: its few are looked for
        fits = ((y == y[i]) == same) & (own != i)
        found = fits.nonzero()[:, 0]
        if len(found):
            chosen[i] = found[int(torch.randint(len(found), (1,), generator=draw))]
    return chosen


def _filled(x: Tensor, colour: Tensor) -> Tensor:
    return colour.to(x)[:, None, None].expand(x.shape[1:])
