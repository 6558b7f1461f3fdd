"""Separable position attention for training, by a C kernel.

torch's batched products of matrices as small as a side of the grid run at a quarter of the machine's matrix-product
rate. The kernel averages over rows and columns in cache, all heads of a few images side by side, so that their linear
map is one large product, which torch does well. Evaluation takes torch alone, so that whoever watches a model's
operations sees its averages there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels

LANES = 8  # channels that the kernel takes at once
LONGEST = 16  # side of a grid; products along longer ones are large enough for torch
ROOM = 2**18  # numbers at a time of heads side by side; the weight is read once for as many, so it has to be as small


def has_kernel(x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether there is a kernel for these, and it is the faster way."""
    tensors = (x, rows, columns, weight) if bias is None else (x, rows, columns, weight, bias)
    return (
        kernels.takes(*tensors)
        and max(*rows.shape[1:], *columns.shape[1:]) <= LONGEST
        and max(_of_an_image(x, rows, columns), weight.numel()) <= ROOM
        and not torch.is_autocast_enabled("cpu")
        and kernels.separable() is not None
    )


def attend(x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x: (n, h, w, d). rows: (heads, queries, h), columns: (heads, queries, w). weight: (out, heads d)."""
    missing = -x.shape[3] % LANES
    if missing:  # channels of zeros, which add nothing
        weight = F.pad(weight.unflatten(1, (len(rows), -1)), (0, missing)).flatten(1)
        x = F.pad(x, (0, missing))
    return Native.apply(x, rows, columns, weight, bias)


class Native(torch.autograd.Function):
    """Float32 on the CPU only. A few images at a time; the backward pass computes the averages again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, rows, columns, weight = (t.contiguous() for t in (x, rows, columns, weight))
        out, start_from = len(weight), x.new_zeros(len(weight)) if bias is None else bias
        y = x.new_empty(len(x), rows.shape[1], columns.shape[1], out)
        for part, z in _parts(x, rows, columns):
            _average(x[part], rows, columns, z)
            torch.addmm(start_from, z.flatten(0, 2), weight.T, out=y[part].view(-1, out))
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, rows, columns, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, columns, weight = ctx.saved_tensors
        grad, gx = grad.contiguous(), torch.empty_like(x)
        grows, gcolumns, gweight = (torch.zeros_like(t) for t in (rows, columns, weight))
        for part, z in _parts(x, rows, columns):
            g, flat = grad[part].view(-1, len(weight)), z.flatten(0, 2)
            _average(x[part], rows, columns, z)
            torch.addmm(gweight, g.T, flat, out=gweight)
            torch.mm(g, weight, out=flat)  # z is no longer needed when its gradient is made
            _average_backward(x[part], rows, columns, z, gx[part], grows, gcolumns)
        gbias = grad.sum((0, 1, 2)) if ctx.has_bias else None
        return gx, grows, gcolumns, gweight, gbias


def _parts(x: Tensor, rows: Tensor, columns: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Images that are taken together, about as many each time, and a buffer for their averages."""
    n = len(x)
    most = max(1, ROOM // _of_an_image(x, rows, columns))
    step = -(-n // -(-n // most))
    room = x.new_empty(step, rows.shape[1], columns.shape[1], len(rows) * x.shape[3])
    for start in range(0, n, step):
        yield slice(start, start + step), room[: n - start]


def _of_an_image(x: Tensor, rows: Tensor, columns: Tensor) -> int:
    """Numbers in the averages of all heads."""
    return rows.shape[1] * columns.shape[1] * len(rows) * x.shape[3]


def _average(x: Tensor, rows: Tensor, columns: Tensor, z: Tensor) -> None:
    """z: (n, queries, queries, heads d) is written."""
    n, heads, height, width, h, w, d = sizes = _sizes(x, rows, columns)
    kernel = kernels.separable()
    assert kernel is not None, "has_kernel() is asked before"
    kernel.forward(
        kernels.address(x, (n, height, width, d)),
        kernels.address(rows, (heads, h, height)),
        kernels.address(columns, (heads, w, width)),
        kernels.address(z, (n, h, w, heads * d)),
        *sizes,
    )


def _average_backward(
    x: Tensor, rows: Tensor, columns: Tensor, gz: Tensor, gx: Tensor, grows: Tensor, gcolumns: Tensor
) -> None:
    """gx is written, grows and gcolumns are added to."""
    n, heads, height, width, h, w, d = sizes = _sizes(x, rows, columns)
    kernel = kernels.separable()
    assert kernel is not None, "has_kernel() is asked before"
    kernel.backward(
        kernels.address(x, (n, height, width, d)),
        kernels.address(rows, (heads, h, height)),
        kernels.address(columns, (heads, w, width)),
        kernels.address(gz, (n, h, w, heads * d)),
        kernels.address(gx, (n, height, width, d)),
        kernels.address(grows, (heads, h, height)),
        kernels.address(gcolumns, (heads, w, width)),
        *sizes,
    )


def _sizes(x: Tensor, rows: Tensor, columns: Tensor) -> tuple[int, ...]:
    n, height, width, d = x.shape
    if d % LANES:
        raise ValueError(f"the kernel takes multiples of {LANES} channels, and was given {d}")
    return n, len(rows), height, width, rows.shape[1], columns.shape[1], d
