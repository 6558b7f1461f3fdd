"""ResNet-50, after He et al. 2016, and smaller models of the same bottleneck blocks for small images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.arguments import Depth, Range, Width
from saccade.layers.layout import FEWEST, channels_last
from saccade.registry import model

EXPANSION = 4


def conv(into: int, out: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the side (but for its stride), with batch norm."""
    return nn.Sequential(nn.Conv2d(into, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out))


class Bottleneck(nn.Module):
    """1x1 down to the width, 3x3, 1x1 up to four times the width, around a shortcut."""

    def __init__(self, into: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.down, self.middle, self.up = conv(into, width, 1), conv(width, width, 3, stride), conv(width, out, 1)
        self.shortcut = conv(into, out, 1, stride) if stride > 1 or into != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(F.relu(self.middle(F.relu(self.down(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes: int, stem: str, width: int, stages: Sequence[int], channels: int) -> None:
        super().__init__()
        large = stem == "imagenet"
        first = conv(channels, width, 7 if large else 3, 1 if stem == "cifar" else 2)
        self.stem = nn.Sequential(first, nn.ReLU(), *([nn.MaxPool2d(3, 2, 1)] if large else []))
        into, blocks = width, []
        for stage, depth in enumerate(stages):
            for block in range(depth):
                blocks.append(Bottleneck(into, width * 2**stage, 2 if stage and not block else 1))
                into = EXPANSION * width * 2**stage
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(into, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

        self.channels_last = width >= FEWEST

    def forward(self, x: Tensor) -> Tensor:
        x = channels_last(x) if self.channels_last else x
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@model(family="cnn", dial="width")
def resnet50(
    classes: int = 10,
    *,
    stem: Literal["imagenet", "half", "cifar"] = "imagenet",
    width: Width = 64,
    stages: Annotated[Sequence[Depth], Range(at_least=1)] = (3, 4, 6, 3),
    channels: Width = 3,
) -> nn.Module:
    """Bottleneck ResNet of 3-4-6-3 blocks; 23 528 522 parameters for 10 classes.

    Stems: imagenet, 7x7 with stride 2 and max-pooling, a quarter of the side; half, 3x3 with stride 2; cifar, 3x3.
    """
    return ResNet(classes, stem, width, stages, channels)
