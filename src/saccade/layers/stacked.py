"""Layers of several models at once: weights and images have one more dimension in front, the model's number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import conv_pool


class Linear(torch.autograd.Function):
    """x (r, n, in), weight (r, out, in), bias (r, out). The products have the shapes that one model's would have.

    Left to autograd, the weights' gradient comes as its own transpose, and small ones then differ in the last digit.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return torch.bmm(grad, weight), torch.bmm(grad.transpose(1, 2), x), grad.sum(1)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return Linear.apply(x, weight, bias)


def conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (r, n, c, h, w), weight (r, out, c, k, k). A loop of convolutions: torch's grouped one takes twice as long."""
    if conv_pool.has_room(x[0], weight[0]):
        return conv_pool.Native.apply(x, weight, bias)
    maps = [F.conv2d(*each) for each in zip(x.unbind(), weight.unbind(), bias.unbind(), strict=True)]
    return F.max_pool2d(F.relu(torch.stack(maps).flatten(0, 1)), 2).unflatten(0, x.shape[:2])
