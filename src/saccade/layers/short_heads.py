"""Attention for many tokens and heads of a few channels, without ever holding the tokens x tokens map.

Channel-major (n, heads, width, tokens), the layout that a convolution leaves behind. Three equal paths:
`dense` is the reference; `Recompute` is pure torch, one (sample, head) at a time, several times faster on a CPU
because the map stays in cache; `Native` is a C kernel, faster again.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels

WIDEST = 16  # the kernel takes half the time of `Recompute` at this width; wider is not tried
STEP = 32  # the kernel wants rows of a multiple of this many tokens
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453  # both fast paths work in powers of two
FEWEST = 64  # below this many tokens the dense map fits in cache anyway


def probabilities(q: Tensor, k: Tensor) -> Tensor:
    """(n, heads, queries, keys); rows sum to one."""
    return torch.softmax(torch.einsum("nhwq,nhwk->nhqk", q * q.shape[2] ** -0.5, k), dim=-1)


def dense(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("nhqk,nhwk->nhwq", probabilities(q, k), v)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k / sqrt(width)) v by the fastest exact path for this device and shape."""
    if q.device.type != "cpu":
        out = F.scaled_dot_product_attention(q.transpose(2, 3), k.transpose(2, 3), v.transpose(2, 3))
        return out.transpose(2, 3)
    width, tokens = q.shape[2:]
    if tokens < FEWEST:
        return dense(q, k, v)
    fast = all(_has_kernel(t, width) for t in (q, k, v))
    q = q * (LOG2_E * width**-0.5)
    return Native.apply(q, k, v) if fast else Recompute.apply(q, k, v)


def _has_kernel(x: Tensor, width: int) -> bool:
    """Whether attention on such numbers in heads of this width should run in C."""
    return kernels.takes(x) and width <= WIDEST and kernels.short_heads(width) is not None


class Recompute(torch.autograd.Function):
    """Pure torch; q scaled by log2(e) / sqrt(width).

    Two measured oddities decide its speed on a CPU: exp2 is several times faster than exp, and v P^T is five times
    faster than (P v^T)^T. The row sum and the shift by its logarithm ride along as one more channel.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n, heads, width, tokens = q.shape
        mixed, top = q.new_empty(n, heads, width + 1, tokens), q.new_empty(n, heads, tokens)
        v1, p = _and_ones(v), q.new_empty(tokens, tokens)
        for i, h in itertools.product(range(n), range(heads)):
            torch.mm(q[i, h].T, k[i, h], out=p)
            torch.amax(p, 1, out=top[i, h])
            p.sub_(top[i, h][:, None]).exp2_()
            torch.mm(v1[i, h], p.T, out=mixed[i, h])
        sums = mixed[:, :, width]
        out = mixed[:, :, :width] / sums[:, :, None]
        ctx.save_for_backward(q, k, v, out, top + sums.log2())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, out, norm = ctx.saved_tensors
        n, heads, _, tokens = q.shape
        gq, gk, gv = (q.new_empty(q.shape) for _ in range(3))
        shifted, inner = torch.cat([q, -norm[:, :, None]], 2), (grad * out).sum(2, keepdim=True)
        centred, k1, v1 = torch.cat([grad, -inner], 2), _and_ones(k), _and_ones(v)
        p, g = q.new_empty(tokens, tokens), q.new_empty(tokens, tokens)
        for i, h in itertools.product(range(n), range(heads)):
            torch.mm(shifted[i, h].T, k1[i, h], out=p).exp2_()
            torch.mm(centred[i, h].T, v1[i, h], out=g).mul_(p)
            torch.mm(k[i, h], g.T, out=gq[i, h])
            torch.mm(q[i, h], g, out=gk[i, h])
            torch.mm(grad[i, h], p, out=gv[i, h])
        return gq.mul_(LN_2), gk.mul_(LN_2), gv  # d 2^x = ln 2 2^x dx


class Native(torch.autograd.Function):
    """The C kernel; float32 on the CPU only; q scaled by log2(e) / sqrt(width)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.tokens = q.shape[3]
        q, k, v = map(_filled_up, (q, k, v))
        out, norm = torch.empty_like(q), q.new_empty(*q.shape[:2], q.shape[3])
        maps = (kernels.address(t, q.shape) for t in (q, k, v, out))
        _kernel(q).forward(*maps, kernels.address(norm, norm.shape), len(q) * q.shape[1], ctx.tokens)
        ctx.save_for_backward(q, k, v, out, norm)
        return out[..., : ctx.tokens]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, out, norm = ctx.saved_tensors
        grad, gq, gk, gv = _filled_up(grad), torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        maps = [kernels.address(t, q.shape) for t in (q, k, v, out, grad, gq, gk, gv)]
        maps.insert(4, kernels.address(norm, norm.shape))
        _kernel(q).backward(*maps, len(q) * q.shape[1], ctx.tokens)
        return gq[..., : ctx.tokens], gk[..., : ctx.tokens], gv[..., : ctx.tokens]


def _and_ones(t: Tensor) -> Tensor:
    """One more channel, of ones."""
    return torch.cat([t, torch.ones_like(t[:, :, :1])], 2)


def _kernel(q: Tensor) -> ctypes.CDLL:
    library = kernels.short_heads(q.shape[2])
    assert library is not None, "attend() checks that the kernel exists before it comes here"
    return library


def _filled_up(t: Tensor) -> Tensor:
    """In one piece, with zeros after the last token up to a multiple of STEP."""
    missing = -t.shape[3] % STEP
    return (F.pad(t, (0, missing)) if missing else t).contiguous()
