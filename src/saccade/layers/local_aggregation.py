"""Sums over neighbourhoods whose weights differ from pixel to pixel, after Zhao, Jia, Koltun (CVPR 2020).

A neighbourhood is a set of shifted views of one padded map, so nothing is unfolded, forward or backward: 49 additions
for 7x7. `unfolded` is the reference. Exact.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels
from saccade.layers.kernels import neighbourhoods


def unfolded(x: Tensor, weights: Tensor) -> Tensor:
    """x: (n, c, h + k - 1, w + k - 1), padded by the caller. weights: (n, s, k k, h, w) -> (n, c, h, w).

    Channel c uses weight channel c mod s.
    """
    n, s, area, h, w = weights.shape
    patches = F.unfold(x, round(area**0.5)).view(n, -1, s, area, h, w)
    return (patches * weights[:, None]).sum(3).flatten(1, 2)


def aggregate(x: Tensor, weights: Tensor) -> Tensor:
    """The same by shifted views: a C kernel for float32 on a CPU where one can be built, else pure torch."""
    if kernels.takes(x, weights) and neighbourhoods.aggregation():
        return Native.apply(x, weights)
    return Shifted.apply(x, weights)


def padded(x: Tensor, size: int) -> Tensor:
    """By reflection, so that every pixel has a size x size neighbourhood; back and forth where a map is too small."""
    h, w = x.shape[2:]
    if size // 2 < min(h, w):
        return F.pad(x, (size // 2,) * 4, mode="reflect")
    return x[:, :, reflected(h, size // 2, x.device)[:, None], reflected(w, size // 2, x.device)]


def reflected(length: int, more: int, device: torch.device) -> Tensor:
    """Places of a line that is reflected at both ends as often as needed; a line of one is repeated."""
    at, period = torch.arange(-more, length + more, device=device), max(1, 2 * length - 2)
    return torch.minimum(at % period, period - at % period)


def scattered(weights: Tensor) -> Tensor:
    """(n, s, k k, h, w) -> (n, s, queries, keys): where reflection shows a pixel twice, its weights are added."""
    n, s, area, h, w = weights.shape
    size, at = round(area**0.5), torch.arange(h * w, device=weights.device).view(1, 1, h, w)
    keys = torch.stack([v.flatten() for v in views(padded(at.double(), size).long(), size)], -1)  # (queries, k k)
    out = weights.new_zeros(n, s, h * w, h * w)
    return out.scatter_add(3, keys.expand(n, s, -1, -1), weights.flatten(3).transpose(2, 3))


def views(x: Tensor, size: int) -> Iterator[Tensor]:
    """The size x size shifted views of a padded (..., h, w) map, row by row: each (..., h - size + 1, w - size + 1)."""
    h, w = x.shape[-2] - size + 1, x.shape[-1] - size + 1
    for row in x.unfold(-2, h, 1).unfold(-2, w, 1).unbind(-4):
        yield from row.unbind(-3)


class Shifted(torch.autograd.Function):
    """The whole batch at every shift: one image at a time stays in cache, but pays more for calls than it saves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, weights)
        n, s, area, h, w = weights.shape
        out = x.new_zeros(n, x.shape[1] // s, s, h, w)
        for o, view in enumerate(views(x.unflatten(1, (-1, s)), round(area**0.5))):
            out.addcmul_(view, weights[:, None, :, o])
        return out.flatten(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weights = ctx.saved_tensors
        s, area = weights.shape[1:3]
        size, grad = round(area**0.5), grad.contiguous().unflatten(1, (-1, s))
        gx, gweights = torch.zeros_like(x, memory_format=torch.contiguous_format), torch.empty_like(weights)
        room = torch.empty_like(grad)
        shifted = zip(*(views(t.unflatten(1, (-1, s)), size) for t in (x, gx)), strict=True)
        for o, (view, gview) in enumerate(shifted):
            gview.addcmul_(grad, weights[:, None, :, o])
            torch.sum(torch.mul(grad, view, out=room), 1, out=gweights[:, :, o])
        return gx, gweights


class Native(torch.autograd.Function):
    """The same by the C kernel; float32 on the CPU only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        x, weights = x.contiguous(), weights.contiguous()
        ctx.save_for_backward(x, weights)
        maps, around, shares, sizes = _shapes(x, weights)
        out = x.new_empty(maps)
        _kernel().forward(
            kernels.address(x, around), kernels.address(weights, shares), kernels.address(out, maps), *sizes
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weights = ctx.saved_tensors
        gx, gweights = torch.zeros_like(x), torch.empty_like(weights)
        grad = grad.contiguous()  # with a name, for a pointer does not keep its tensor
        maps, around, shares, sizes = _shapes(x, weights)
        given = ((x, around), (weights, shares), (grad, maps), (gx, around), (gweights, shares))
        _kernel().backward(*(kernels.address(t, shape) for t, shape in given), *sizes)
        return gx, gweights


def _kernel() -> ctypes.CDLL:
    library = neighbourhoods.aggregation()
    assert library is not None, "aggregate() checks that the kernel exists before it comes here"
    return library


def _shapes(x: Tensor, weights: Tensor) -> tuple[tuple[int, ...], ...]:
    """Of the result, of maps with their rim, of weights; and the numbers that the kernel takes."""
    n, s, area, h, w = weights.shape
    size, groups = round(area**0.5), x.shape[1] // s
    return (
        (n, groups * s, h, w),
        (n, groups * s, h + size - 1, w + size - 1),
        (n, s, size * size, h, w),
        (n, groups, s, h, w, size),
    )
