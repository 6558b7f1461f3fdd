"""Attention with content and relative positions among few tokens, by a C kernel.

torch needs some ten calls for a head of a few images, each of them over matrices of 64 by 48, and what they leave goes
through memory. The kernel does all of a head of one image in cache, linear maps included. It serves training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels

MOST = 128  # tokens; more have maps that leave the second cache
WIDEST = 128  # channels; at 256, torch's products are as fast
LANES = 8  # numbers in a vector; the kernel takes widths that are a multiple


def has_kernel(x: Tensor, k: Tensor, v: Tensor, maps: Tensor, added: Tensor, weight: Tensor, size: int) -> bool:
    """Whether there is a kernel for what `Native` is given."""
    (n, h, w, d), heads, out, shifts = x.shape, len(maps), len(weight), _shifts(size)
    widest = max(heads * (_whole(d) + _whole(shifts)), _whole(out))  # numbers of a token in the largest tensor
    return (
        kernels.takes(x, k, v, maps, added, weight)
        and x.shape == k.shape == v.shape
        and maps.shape == (heads, d, d + shifts)
        and added.shape == (heads, d + shifts)
        and weight.shape == (out, heads * d)
        and max(h, w) <= size
        and h * w <= MOST
        and max(d, out) <= WIDEST
        and n * h * w * widest <= kernels.MOST
        and not torch.is_autocast_enabled("cpu")
        and kernels.content() is not None
    )


class Native(torch.autograd.Function):
    """As `Folded` of content_attention.py. Float32 on the CPU only."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor, v: Tensor, maps: Tensor, added: Tensor, weight: Tensor, size: int
    ) -> Tensor:
        (n, h, w, d), heads, out = x.shape, len(maps), len(weight)
        x, k, v = (_filled(t.flatten(1, 2)) for t in (x, k, v))
        # dim and shifts are filled up apart: the kernel looks for shifts behind the last vector of channels
        maps, added = (torch.cat([_filled(t[..., :d]), _filled(t[..., d:])], -1) for t in (_filled(maps, 1), added))
        values = _filled(_filled(weight.view(out, heads, d).permute(1, 2, 0)), 1)
        sizes = (n, heads, h, w, x.shape[2], x.shape[2] + _whole(_shifts(size)), values.shape[2], size)
        asked, means = (x.new_empty(n, heads, h * w, t.shape[2]) for t in (maps, x))
        norm, y = x.new_empty(n, heads, 2, h * w), x.new_empty(n, h * w, values.shape[2])
        _kernel().forward(
            *_addresses(sizes, x=x, k=k, v=v, maps=maps, added=added, values=values),
            *_addresses(sizes, asked=asked, means=means, norm=norm, y=y),
            *sizes,
        )
        ctx.save_for_backward(x, k, v, maps, values, asked, means, norm)
        ctx.sizes, ctx.given = sizes, (h, w, d, out, _shifts(size))
        return y[..., :out].unflatten(1, (h, w))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, k, v, maps, values, asked, means, norm = ctx.saved_tensors
        h, w, d, out, shifts = ctx.given
        gy = _filled(grad.flatten(1, 2))
        gx, gk, gv = (torch.empty_like(x) for _ in range(3))
        gmaps, gadded, gvalues = (torch.zeros_like(t) for t in (maps, maps[:, 0], values))
        maps, values = (t.transpose(1, 2).contiguous() for t in (maps, values))
        _kernel().backward(
            *_addresses(ctx.sizes, x=x, k=k, v=v, turned_maps=maps, turned_values=values),
            *_addresses(ctx.sizes, asked=asked, means=means, norm=norm, gy=gy),
            *_addresses(ctx.sizes, gx=gx, gk=gk, gv=gv, gmaps=gmaps, gadded=gadded, gvalues=gvalues),
            *ctx.sizes,
        )
        full = x.shape[2]
        gmaps, gadded = (torch.cat([t[..., :d], t[..., full : full + shifts]], -1) for t in (gmaps[:, :d], gadded))
        gweight = gvalues[:, :d, :out].permute(2, 0, 1).reshape(out, -1)
        return *(t[..., :d].unflatten(1, (h, w)) for t in (gx, gk, gv)), gmaps, gadded, gweight, None


def _kernel() -> Any:
    kernel = kernels.content()
    assert kernel is not None, "has_kernel() is asked before"
    return kernel


def _shifts(size: int) -> int:
    """Of rows and of columns, on a grid of this many."""
    return 2 * (2 * size - 1)


def _whole(n: int) -> int:
    return -(-n // LANES) * LANES


def _filled(t: Tensor, dim: int = -1) -> Tensor:
    """In one piece, with zeros behind the last of this dimension up to whole vectors."""
    more = _whole(t.shape[dim]) - t.shape[dim]
    return F.pad(t.movedim(dim, -1), (0, more)).movedim(-1, dim).contiguous() if more else t.contiguous()


def _addresses(sizes: tuple[int, ...], **tensors: Tensor) -> list[int]:
    """Of tensors by the names that they have in C; a gradient has the shape of what it is named after."""
    n, heads, h, w, d, asks, out, _ = sizes
    tokens = h * w
    shapes = {
        **dict.fromkeys(("x", "k", "v"), (n, tokens, d)),
        "y": (n, tokens, out),
        "maps": (heads, d, asks),
        "turned_maps": (heads, asks, d),
        "added": (heads, asks),
        "values": (heads, d, out),
        "turned_values": (heads, out, d),
        "asked": (n, heads, tokens, asks),
        "means": (n, heads, tokens, d),
        "norm": (n, heads, 2, tokens),
    }
    return [kernels.address(t, shapes[name.removeprefix("g")]) for name, t in tensors.items()]
