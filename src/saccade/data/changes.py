"""Batched changes of images (n, c, h, w) in [0, 1] that keep what they show: moved, covered, worsened, recombined.

Random numbers come in as tensors or as a generator. `colour` (c,) is what comes in where nothing was.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data import pixels

DRAWS = 64
SMALL = 64  # pixels on a side, up to which pooling by matrix products pays: 2 to 5 times as fast at 32, slower at 224
CORRUPTIONS = ("noise", "blur", "contrast", "pixelate")
# Five strengths each. Lengths are shares of the side, so that they mean the same at every size.
NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)  # standard deviation; white minus black is 1
BLUR = (0.02, 0.03, 0.04, 0.055, 0.075)  # standard deviation of the Gaussian, in sides
CONTRAST = (0.75, 0.5, 0.35, 0.2, 0.1)  # what is left of the distance to the image's mean
PIXELATE = (0.8, 0.65, 0.5, 0.35, 0.25)  # pixels on a side that are left


def shifted(x: Tensor, down: Tensor, right: Tensor, colour: Tensor) -> Tensor:
    """Each image moved by whole pixels, its own numbers."""
    n, _, h, w = x.shape
    whole = _filled(x, colour).expand_as(x).clone()
    alike: dict[tuple[int, int], list[int]] = {}
    for place, move in enumerate(zip(down.tolist(), right.tolist(), strict=True)):
        alike.setdefault(move, []).append(place)
    for (dy, dx), places in alike.items():  # copies of rectangles: ten times faster than an index for each pixel
        if abs(dy) < h and abs(dx) < w:
            to = whole[..., max(0, dy) : h + min(0, dy), max(0, dx) : w + min(0, dx)]
            of = x[..., max(0, -dy) : h - max(0, dy), max(0, -dx) : w - max(0, dx)]
            if len(places) == n:
                to.copy_(of)
            else:
                at = torch.tensor(places, device=x.device)
                to.index_copy_(0, at, of.index_select(0, at))
    return whole


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
    if max(x.shape[-2:]) > SMALL:
        return F.interpolate(F.interpolate(x, size=small, mode="area"), size=x.shape[-2:], mode="nearest-exact")
    return _by_lines(x, *(_coarse(side, left).to(x) for side, left in zip(x.shape[-2:], small, strict=True)))


def blurred(x: Tensor, sigma: float) -> Tensor:
    """Gaussian, cut off at three standard deviations, the border repeated outside."""
    return _by_lines(x, *(_gaussian(side, sigma).to(x) for side in x.shape[-2:]))


def _by_lines(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Every row of the result is a sum of rows of x, then every column one of columns. For images of 32 pixels matrix
    products take a fifth of the time of convolutions by channel, and of an area pooling."""
    return torch.matmul(rows, torch.matmul(x, columns.T))


@functools.lru_cache(maxsize=64)
def _gaussian(side: int, sigma: float) -> Tensor:
    """(side, side): the weights of a line's pixels in each pixel of the blurred line."""
    with torch.inference_mode(False):  # kept for other calls
        reach = max(1, math.ceil(3 * sigma))
        at = torch.arange(-reach, reach + 1)
        weights = torch.exp(-0.5 * (at.double() / sigma) ** 2)
        of = (torch.arange(side)[:, None] + at).clamp_(0, side - 1)
        return torch.zeros(side, side).double().scatter_add_(1, of, (weights / weights.sum()).expand(side, -1)).float()


@functools.lru_cache(maxsize=64)
def _coarse(side: int, left: int) -> Tensor:
    """(side, side): means over `left` pixels' areas, each shown where its pixel is. Areas may share pixels, as in
    torch's `area` interpolation; the nearest pixel is that of `nearest-exact`."""
    with torch.inference_mode(False):
        line = torch.eye(side)[None]
        small = F.interpolate(line, size=left, mode="area")
        return F.interpolate(small, size=side, mode="nearest-exact")[0].T.contiguous()


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
