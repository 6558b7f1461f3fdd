"""Attention among few tokens, as small vision transformers have it, straight from and to the linear maps around it.

torch's fused attention is made for long sequences: on 17 or 65 tokens it runs at a tenth to a third of the machine's
matrix-product rate, and what it reads and gives has to be copied apart and together. The C kernel does one head of one
image at a time, in cache, on the layout that the maps have. It serves training; evaluation takes torch's own, so that
whoever watches a model's operations sees its attention there.
"""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels

MOST = 128  # tokens; more have maps that leave the second cache
WIDEST = 256  # channels of a head, for the same reason


def attend(packed: Tensor, heads: int, *, native: bool) -> Tensor:
    """softmax(q k / sqrt(width)) v of packed (n, tokens, 3 heads width), q, k, v side by side; a third as wide.

    native: by the C kernel, if there is one and it has room.
    """
    if native and has_kernel(packed, heads, packed.shape[-1] // (3 * heads)):
        return Packed.apply(packed, heads)
    q, k, v = rearrange(packed, "n t (s h w) -> s n h t w", s=3, h=heads)
    return rearrange(F.scaled_dot_product_attention(q, k, v), "n h t w -> n t (h w)")


def attend_apart(q: Tensor, k: Tensor, v: Tensor, heads: int, *, native: bool) -> Tensor:
    """The same from three tensors (n, tokens, heads width) of their own."""
    if native and all(has_kernel(t, heads, t.shape[-1] // heads) for t in (q, k, v)):
        return Apart.apply(q, k, v, heads)
    q, k, v = (rearrange(t, "n t (h w) -> n h t w", h=heads) for t in (q, k, v))
    return rearrange(F.scaled_dot_product_attention(q, k, v), "n h t w -> n t (h w)")


def has_kernel(x: Tensor, heads: int, width: int) -> bool:
    """Whether there is a kernel for such tokens (n, tokens, channels)."""
    return (
        kernels.takes(x)
        and x.shape[1] <= MOST
        and width <= WIDEST
        and heads > 0
        and not torch.is_autocast_enabled("cpu")
        and kernels.few_tokens() is not None
    )


class Packed(torch.autograd.Function):
    """Float32 on the CPU only."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, heads: int) -> Tensor:
        packed = packed.contiguous()
        out, norm = _forward(packed.chunk(3, -1), heads)
        ctx.save_for_backward(packed, norm)
        ctx.heads = heads
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        packed, norm = ctx.saved_tensors
        gpacked = torch.empty_like(packed)
        _backward(packed.chunk(3, -1), norm, grad, gpacked.chunk(3, -1), ctx.heads)
        return gpacked, None


class Apart(torch.autograd.Function):
    """Float32 on the CPU only."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        parts = tuple(t.contiguous() for t in (q, k, v))
        out, norm = _forward(parts, heads)
        ctx.save_for_backward(*parts, norm)
        ctx.heads = heads
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *parts, norm = ctx.saved_tensors
        found = tuple(torch.empty_like(t) for t in parts)
        _backward(tuple(parts), norm, grad, found, ctx.heads)
        return *found, None


def _forward(parts: tuple[Tensor, ...], heads: int) -> tuple[Tensor, Tensor]:
    n, tokens, channels = parts[0].shape
    out, norm = parts[0].new_empty(n, tokens, channels), parts[0].new_empty(n, heads, 2, tokens)
    kernel = kernels.few_tokens()
    assert kernel is not None, "has_kernel() is asked before"
    kernel.forward(
        *_addresses(parts),
        kernels.address(out, (n, tokens, channels)),
        kernels.address(norm, (n, heads, 2, tokens)),
        *(n, heads, tokens, channels // heads, *parts[0].stride()[:2]),
    )
    return out, norm


def _backward(parts: tuple[Tensor, ...], norm: Tensor, grad: Tensor, found: tuple[Tensor, ...], heads: int) -> None:
    n, tokens, channels = parts[0].shape
    kernel = kernels.few_tokens()
    assert kernel is not None, "has_kernel() is asked before"
    kernel.backward(
        *_addresses(parts),
        kernels.address(norm, (n, heads, 2, tokens)),
        kernels.address(grad.contiguous(), (n, tokens, channels)),
        *_addresses(found),
        *(n, heads, tokens, channels // heads, *parts[0].stride()[:2]),
    )


def _addresses(parts: tuple[Tensor, ...]) -> list[int]:
    """Of tensors that lie alike, each token's channels in one piece."""
    like = parts[0]
    if like.stride(2) != 1 or any(t.stride() != like.stride() for t in parts):
        raise ValueError(f"a kernel takes tokens of one layout, and was given {[t.stride() for t in parts]}")
    return [kernels.address(t, like.shape, dense=False) for t in parts]
