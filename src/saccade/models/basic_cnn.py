"""A CNN with one size dial, after Catteau's TP IV report (EPFL): h, 2h, 4h channels, two linear layers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.arguments import Width
from saccade.layers.conv_average import MOST, conv_relu_average, has_kernel
from saccade.registry import model
from saccade.spec import SaccadeError

BIAS = 0.1  # biases act at a tenth in mean-field models, as in the laboratory's public code


class BasicCNN(nn.Module):
    """Three times: 5x5 convolution, ReLU, 2x2 average; then 64h -> 4h, ReLU, 4h -> classes.

    mean_field: weights and biases start as N(0, 1); a layer's sum is divided by the root of its fan-in, the last
    layer's by its fan-in. Outputs and their changes then keep their size as h grows if the learning rate grows as h.
    """

    def __init__(self, classes: int, width: int, channels: int, bias: bool, parametrisation: str) -> None:
        super().__init__()
        sizes = (channels, width, 2 * width, 4 * width)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 5, padding=2, bias=bias) for a, b in pairwise(sizes))
        self.hidden = nn.Linear(64 * width, 4 * width, bias=bias)
        self.head = nn.Linear(4 * width, classes, bias=bias)
        layers = [*self.convs, self.hidden, self.head]
        self.scales, self.bias_scale = [1.0] * len(layers), 1.0
        if parametrisation == "mean_field":
            for p in self.parameters():
                nn.init.normal_(p)
            fans = [layer.weight[0].numel() for layer in layers]
            self.scales = [1 / math.sqrt(fan) for fan in fans[:-1]] + [1 / fans[-1]]
            self.bias_scale = BIAS

    def parts(self, layer: nn.Module, scale: float) -> tuple[Tensor, Tensor | None]:
        """Weight and bias as they act. To scale the small weight, not the large output, is the same and cheaper."""
        assert isinstance(layer, (nn.Conv2d, nn.Linear))
        if scale == 1.0:
            return layer.weight, layer.bias
        return layer.weight * scale, None if layer.bias is None else layer.bias * self.bias_scale

    def is_small(self, x: Tensor) -> bool:
        """Whether all convolutions run in the kernel for few channels, which wants its images channel by channel."""
        first, last = self.convs[0].weight, self.convs[-1].weight
        assert isinstance(first, Tensor) and isinstance(last, Tensor)
        return len(last) <= MOST and has_kernel(x, first)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (32, 32):
            raise SaccadeError(f"basic_cnn reads 32x32 images, not {x.shape[-2]}x{x.shape[-1]}.")
        *deep, hidden, head = self.scales
        small = self.is_small(x)
        # Of a larger net the kernel may take the first two convolutions; with vectors of 16, torch's own are faster.
        native = small or torch.backends.cpu.get_cpu_capability() != "AVX512"
        x = x if small else _channels_last(x)
        for conv, scale in zip(self.convs, deep, strict=True):
            x = conv_relu_average(x, *self.parts(conv, scale), native=native)
        x = F.relu(F.linear(rearrange(x, "n c h w -> n (c h w)"), *self.parts(self.hidden, hidden)))
        return F.linear(x, *self.parts(self.head, head))


def _channels_last(x: Tensor) -> Tensor:
    """1.3 times faster on a CPU with 10 or more channels, 1.4 to 1.8 times from a single grey one.

    A grey image counts as lying in either order, and torch then takes the slow one unless the strides say otherwise.
    """
    if x.shape[1] == 1:
        return rearrange(rearrange(x, "n 1 h w -> n h w").contiguous()[..., None], "n h w c -> n c h w")
    return x.contiguous(memory_format=torch.channels_last)


@model(family="cnn", dial="width")
def basic_cnn(
    classes: int = 10,
    *,
    width: Width = 10,
    channels: Width = 3,
    bias: bool = False,
    parametrisation: Literal["mean_field", "default"] = "mean_field",
) -> nn.Module:
    """CNN(h): 506h² + (25c+40)h parameters for 10 classes without biases, 506h² + (25c+51)h + 10 with them."""
    return BasicCNN(classes, width, channels, bias, parametrisation)
