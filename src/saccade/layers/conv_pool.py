"""A convolution, ReLU and 2x2 max-pooling as one function, for nets of a few channels.

Such nets spend their time in the seams: in torch the three are four passes over maps that hardly fill a vector. The C
kernel does them in one, and its backward pass visits only the quarter of places that won their window.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade import kernels

MOST = 16  # channels in or out; above, torch's own convolution wins
SPARE = 8  # floats that the kernel may read beyond the last picture
FARTHEST = 2**31 - 1  # the kernel counts in 32 bits


def conv_relu_pool(layer: nn.Module, x: Tensor) -> Tensor:
    """max_pool2d(relu(layer(x)), 2) by the fastest path; any layer will do, a small convolution is fast."""
    if isinstance(layer, nn.Conv2d) and has_kernel(layer, x):
        return Native.apply(x, layer.weight, layer.bias)  # type: ignore[no-any-return]
    return F.max_pool2d(F.relu(layer(x)), 2)


def has_kernel(layer: nn.Conv2d, x: Tensor) -> bool:
    """Whether this convolution runs in C. One that somebody watches (hooks) must be called as a module."""
    size = layer.kernel_size[0]
    plain = (layer.kernel_size == (size, size) and layer.stride == layer.dilation == (1, 1) and layer.groups == 1
             and layer.padding == (0, 0) and layer.bias is not None and type(layer) is nn.Conv2d)
    return (plain and x.device.type == "cpu" and x.dtype == layer.weight.dtype == torch.float32
            and max(layer.in_channels, layer.out_channels) <= MOST and min(x.shape[2:]) > size and x.numel() // x.shape[1] * MOST < FARTHEST
            and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
            and not torch.is_autocast_enabled("cpu")
            and kernels.conv_pool(layer.in_channels, layer.out_channels, size) is not None)


class Native(torch.autograd.Function):
    """The C kernel; float32 on the CPU only. What comes out lies with its channels innermost."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        n, c, h, w = x.shape
        if x.stride(2) != w * x.stride(3):
            x = x.contiguous()
        turned = x.new_empty(n * h * w * _stored(c) + SPARE)
        out = torch.empty((n, len(weight), (h - weight.shape[2] + 1) // 2, (w - weight.shape[3] + 1) // 2),
                          dtype=x.dtype, memory_format=torch.channels_last)
        where = torch.empty(out.numel(), dtype=torch.int32)
        weight, bias, kernel = weight.contiguous(), bias.contiguous(), _kernel(weight)
        kernel.turn(x.data_ptr(), turned.data_ptr(), n, h * w, x.stride(0), x.stride(3), x.stride(1))
        kernel.forward(*(t.data_ptr() for t in (turned, weight, bias, out, where)), n, h, w)
        ctx.save_for_backward(turned, weight, where)
        ctx.shape = x.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        turned, weight, where = ctx.saved_tensors
        n, c, h, w = ctx.shape
        grad = grad.contiguous(memory_format=torch.channels_last)
        gweight, gbias = torch.empty_like(weight), weight.new_empty(len(weight))
        gx = torch.zeros_like(turned) if ctx.needs_input_grad[0] else None
        given = [t.data_ptr() for t in (turned, weight, where, grad, gweight, gbias)]
        _kernel(weight).backward(*given, None if gx is None else gx.data_ptr(), n, h, w)
        if gx is None:
            return None, gweight, gbias
        return gx[:-SPARE].view(n, h, w, -1)[..., :c].permute(0, 3, 1, 2), gweight, gbias


def _stored(channels: int) -> int:
    """Channels as the kernel lays them out (its D)."""
    return channels if channels <= 4 else -(-channels // 8) * 8


def _kernel(weight: Tensor) -> ctypes.CDLL:
    out, channels, size, _ = weight.shape
    library = kernels.conv_pool(channels, out, size)
    assert library is not None, "has_kernel() is asked before"
    return library
