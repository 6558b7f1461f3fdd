"""A residual ConvNet whose activations can be moved inside the block, after Lehnhausen, Alves Brito and Matthes 2025.

With width 64 and stages 2-2-2-2 it is ResNet-18 (He et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from saccade.arguments import Depth, Range, Width
from saccade.registry import model


def conv3(inside: int, out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inside, out, 3, stride, 1, bias=False)


class Thin(nn.Module):
    """Every stride-th pixel. Before a 1x1 convolution this is its stride; torch 2.13's own crashes on a CPU in its
    backward pass, channels last, with fewer than 8 channels.
    """

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return x[..., :: self.stride, :: self.stride]


class Block(nn.Module):
    """Two 3x3 convolutions with norms around an identity or 1x1 skip s, in one of three orders.

    v1: conv1, norm1, ReLU, conv2, norm2, + s(x), ReLU
    v2: conv1, norm1, conv2, ReLU, norm2, + s(x), ReLU: both convolutions compose linearly
    v3: conv1, norm1, ReLU, conv2, norm2, ReLU, + s(x): the residual stream only grows
    """

    def __init__(self, form: str, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.form, self.relu = form, nn.ReLU()
        self.conv1, self.norm1 = conv3(inside, out, stride), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = conv3(out, out), nn.BatchNorm2d(out)
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or inside != out:
            self.skip = nn.Sequential(Thin(stride), nn.Conv2d(inside, out, 1, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(self.conv1(x))
        if self.form == "v2":
            return self.relu(self.norm2(self.relu(self.conv2(y))) + self.skip(x))
        y = self.norm2(self.conv2(self.relu(y)))
        if self.form == "v3":
            return self.relu(y) + self.skip(x)
        return self.relu(y + self.skip(x))


class ConvNet(nn.Module):
    def __init__(self, classes: int, form: str, stem: str, width: int, stages: Sequence[int], channels: int) -> None:
        super().__init__()
        if stem == "cifar":
            self.stem = nn.Sequential(conv3(channels, width), nn.BatchNorm2d(width), nn.ReLU())
        else:
            self.stem = nn.Sequential(
                nn.Conv2d(channels, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
            )
        blocks, inside = [], width
        for stage, depth in enumerate(stages):
            for i in range(depth):
                blocks.append(Block(form, inside, width << stage, 2 if stage and not i else 1))
                inside = width << stage
        self.blocks = nn.ModuleList(blocks)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.contiguous(memory_format=torch.channels_last))
        for block in self.blocks:
            x = block(x)
        return self.head(self.pool(x).flatten(1))


@model(family="cnn", dial="width")
def convnet(
    classes: int = 10,
    *,
    block: Literal["v1", "v2", "v3"] = "v1",
    stem: Literal["cifar", "imagenet"] = "cifar",
    width: Width = 64,
    stages: Annotated[Sequence[Depth], Range(at_least=1)] = (2, 2, 2, 2),
    channels: Width = 3,
) -> nn.Module:
    """Residual ConvNet with blocks v1, v2 or v3; ResNet-18's 11 173 962 parameters (11 181 642 with its own stem)."""
    return ConvNet(classes, block, stem, width, stages, channels)
