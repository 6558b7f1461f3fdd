"""A convolution that keeps the size, ReLU and a 2x2 average as one function, for images of 8, 16 or 32 pixels a side.

Nets of a few channels leave torch's vectors, which run along channels, mostly empty. The C kernel's run along rows of
pixels, which are full whatever the channels. A step of CNN(1), CNN(2) and CNN(4) is 3.5, 2.2 and 1.3 times faster; of
CNN(10) no longer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels

SIDES = (8, 16, 32)
LARGEST = 9  # side of a patch
MOST = 32  # channels in or out; above, torch's own convolution is as fast
PAIRS = 400  # of channels in and out: 10 to 20 is 1.35, 12 to 24 is 1.2 times faster, 16 to 32 is 0.7 to 0.85


def conv_relu_average(x: Tensor, weight: Tensor, bias: Tensor | None, *, native: bool = True) -> Tensor:
    """avg_pool2d(relu(conv2d(x, weight, bias)), 2), zeros around the image so that its size stays.

    native: by the C kernel, if there is one and it has room.
    """
    if native and has_kernel(x, weight, bias):
        return Native.apply(x, weight, bias)
    return F.avg_pool2d(F.relu(F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)), 2)


def has_kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether this convolution runs in C."""
    out, channels, size, across = weight.shape
    return (
        kernels.takes(x, weight, *(() if bias is None else (bias,)))
        and x.ndim == 4
        and x.shape[1] == channels
        and x.shape[2] == x.shape[3]
        and x.shape[2] in SIDES
        and size == across
        and size % 2 == 1
        and size <= LARGEST
        and max(channels, out) <= MOST
        and channels * out <= PAIRS
        and len(x) * out * x.shape[2] ** 2 < kernels.MOST
        and not torch.is_autocast_enabled("cpu")
        and kernels.conv_average(size) is not None
    )


class Native(torch.autograd.Function):
    """The C kernel. x (n, c, s, s), weight (out, c, k, k), bias (out) or None. Float32 on the CPU only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        n, _, side, _ = x.shape
        out, channels, size, _ = weight.shape
        maps, y = x.new_empty(n, out, side, side), x.new_empty(n, out, side // 2, side // 2)
        done = _kernel(size).forward(
            kernels.address(x, (n, channels, side, side)),
            kernels.address(weight, (out, channels, size, size)),
            None if bias is None else kernels.address(bias, (out,)),
            kernels.address(maps, (n, out, side, side)),
            kernels.address(y, (n, out, side // 2, side // 2)),
            *(n, channels, out, side),
        )
        if not done:
            raise MemoryError("no memory for a convolution's kernel")
        ctx.save_for_backward(x, weight, maps)
        ctx.bias = bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        x, weight, maps = ctx.saved_tensors
        n, channels, side, _ = x.shape
        out, _, size, _ = weight.shape
        grad, gweight = grad.contiguous(), torch.empty_like(weight)
        gbias = weight.new_zeros(out) if ctx.bias else None
        gx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        done = _kernel(size).backward(
            kernels.address(x, (n, channels, side, side)),
            kernels.address(weight, (out, channels, size, size)),
            kernels.address(maps, (n, out, side, side)),
            kernels.address(grad, (n, out, side // 2, side // 2)),
            kernels.address(gweight, weight.shape),
            None if gbias is None else kernels.address(gbias, (out,)),
            None if gx is None else kernels.address(gx, x.shape),
            *(n, channels, out, side),
        )
        if not done:
            raise MemoryError("no memory for a convolution's kernel")
        return gx, gweight, gbias


def _kernel(size: int) -> Any:
    library = kernels.conv_average(size)
    assert library is not None, "has_kernel() is asked before"
    return library
