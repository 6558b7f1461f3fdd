"""ResNet-18, after He et al. (CVPR 2016), with the usual small stem for 32-pixel images or the published one."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.arguments import Width
from saccade.layers.layout import FEWEST, channels_last
from saccade.registry import model


class BasicBlock(nn.Module):
    """relu(x + norm conv relu norm conv x); x goes through a 1x1 convolution where the shape changes."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class ResNet18(nn.Sequential):
    def __init__(self, classes: int, stem: str, width: int, channels: int) -> None:
        first = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        if stem == "imagenet":
            first[0] = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
            first.append(nn.MaxPool2d(3, 2, 1))
        sizes = [width * 2**i for i in range(4)]
        stages = [
            nn.Sequential(BasicBlock(a, b, stride), BasicBlock(b, b))
            for a, b, stride in zip([width, *sizes], sizes, (1, 2, 2, 2), strict=False)
        ]
        super().__init__(*first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], classes))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        self.channels_last = width >= FEWEST

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(channels_last(x) if self.channels_last else x)
        return y


@model(family="cnn", dial="width")
def resnet18(
    classes: int = 10, *, stem: Literal["cifar", "imagenet"] = "cifar", width: Width = 64, channels: Width = 3
) -> nn.Module:
    """Eight residual blocks of 1, 2, 4, 8 times `width` channels; 11 173 962 parameters, stem "imagenet" 11 181 642."""
    return ResNet18(classes, stem, width, channels)
