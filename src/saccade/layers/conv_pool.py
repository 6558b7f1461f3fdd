"""A convolution, ReLU and 2x2 max-pooling as one function, for models of a few channels.

Such models spend their time in the seams: in torch the three are four passes over maps that hardly fill a vector. The C
kernel does them in one, and its backward pass visits only the quarter of places that won their window.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels

MOST = 16  # channels in or out; above, torch's own convolution wins
LARGEST = 11  # side of a patch: the kernel keeps all weights on its stack
SPARE = 8  # floats that the kernel may read beyond the last image


def conv_relu_pool(layer: nn.Module, x: Tensor) -> Tensor:
    """max_pool2d(relu(layer(x)), 2) by the fastest path; any layer will do, a small convolution is fast."""
    if isinstance(layer, nn.Conv2d) and has_kernel(layer, x):
        assert layer.bias is not None
        return Native.apply(x[None], layer.weight[None], layer.bias[None])[0]
    return F.max_pool2d(F.relu(layer(x)), 2)


def has_kernel(layer: nn.Conv2d, x: Tensor) -> bool:
    """Whether this convolution runs in C. One that somebody watches (hooks) must be called as a module."""
    size = layer.kernel_size[0]
    plain = (
        layer.kernel_size == (size, size)
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding == (0, 0)
        and layer.bias is not None
        and type(layer) is nn.Conv2d
    )
    watched = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return plain and not watched and has_room(x, layer.weight)


def has_room(x: Tensor, weight: Tensor) -> bool:
    """Whether there is a kernel for such images and weights."""
    out, channels, size, _ = weight.shape
    return (
        kernels.takes(x, weight)
        and x.ndim == 4
        and x.shape[1] == channels
        and max(channels, out) <= MOST
        and size <= LARGEST
        and min(x.shape[2:]) > size
        and len(x) * x.shape[2] * x.shape[3] * MOST < kernels.MOST
        and not torch.is_autocast_enabled("cpu")
        and kernels.conv_pool(channels, out, size) is not None
    )


class Native(torch.autograd.Function):
    """The C kernel for r models, r = 1 for a single one: x (r, n, c, h, w), weight (r, out, c, k, k), bias (r, out).

    Float32 on the CPU only. What comes out lies with its channels innermost.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        r, n, c, h, w = x.shape
        out, size = weight.shape[1], weight.shape[3]
        if x.stride(3) != w * x.stride(4):
            x = x.contiguous()
        turned = x.new_empty(r, n * h * w * _stored(c) + SPARE)
        maps = x.new_empty(r, n, (h - size + 1) // 2, (w - size + 1) // 2, out)
        where = torch.empty(maps.shape, dtype=torch.int32)
        weight, bias, kernel = weight.contiguous(), bias.contiguous(), _kernel(weight)
        given = (
            _addresses(turned, (r, n * h * w * _stored(c) + SPARE)),
            _addresses(weight, (r, out, c, size, size)),
            _addresses(bias, (r, out)),
            _addresses(maps, maps.shape),
            _addresses(where, maps.shape, torch.int32),
        )
        first, apart = kernels.address(x, (r, n, c, h, w), dense=False), x.stride(0) * x.element_size()
        for i, each in enumerate(zip(*given, strict=True)):
            kernel.turn(first + i * apart, each[0], n, h * w, x.stride(1), x.stride(4), x.stride(2))
            kernel.forward(*each, n, h, w)
        ctx.save_for_backward(turned, weight, where)
        ctx.shape = x.shape
        return maps.permute(0, 1, 4, 2, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        turned, weight, where = ctx.saved_tensors
        r, n, c, h, w = ctx.shape
        grad = grad.permute(0, 1, 3, 4, 2).contiguous()
        gweight, gbias = torch.empty_like(weight), weight.new_empty(weight.shape[:2])
        gx = torch.zeros_like(turned) if ctx.needs_input_grad[0] else None
        given = [
            _addresses(turned, (r, n * h * w * _stored(c) + SPARE)),
            _addresses(weight, weight.shape),
            _addresses(where, where.shape, torch.int32),
            _addresses(grad, where.shape),
            _addresses(gweight, weight.shape),
            _addresses(gbias, weight.shape[:2]),
        ]
        for each in zip(*given, [None] * r if gx is None else _addresses(gx, turned.shape), strict=True):
            _kernel(weight).backward(*each, n, h, w)
        if gx is None:
            return None, gweight, gbias
        return gx[:, :-SPARE].view(r, n, h, w, -1)[..., :c].permute(0, 1, 4, 2, 3), gweight, gbias


def _stored(channels: int) -> int:
    """Channels as the kernel lays them out (its D)."""
    return channels if channels <= 4 else -(-channels // 8) * 8


def _kernel(weight: Tensor) -> ctypes.CDLL:
    out, channels, size, _ = weight.shape[1:]
    library = kernels.conv_pool(channels, out, size)
    assert library is not None, "has_kernel() is asked before"
    return library


def _addresses(t: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> range:
    """Where each model's part begins."""
    first, step = kernels.address(t, shape, dtype), t[0].numel() * t.element_size()
    return range(first, first + len(t) * step, step)
