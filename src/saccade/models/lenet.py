"""The small convolutional model of de Kruijff 2022, Sec. 3.1; in shape the LeNet-5 of many tutorials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from einops import rearrange, reduce
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.arguments import Width
from saccade.layers import stacked
from saccade.layers.conv_pool import conv_relu_pool
from saccade.registry import model
from saccade.spec import SaccadeError

Head = Literal["flatten", "mean", "max"]


class Readout(nn.Module):
    """Three linear layers on a 16-channel map, flattened (as in the thesis) or pooled over positions."""

    def __init__(self, classes: int, head: str) -> None:
        super().__init__()
        self.head = head
        self.layers = nn.Sequential(
            nn.Linear(400 if head == "flatten" else 16, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.head == "flatten":
            return self.layers(rearrange(x, "n c h w -> n (c h w)"))
        return self.layers(reduce(x, "n c h w -> n c", self.head))


class Skeleton(nn.Module):
    """Two 5x5 layers without padding, each with ReLU and 2x2 max-pooling, then the readout."""

    def __init__(self, first: nn.Module, second: nn.Module, classes: int, head: str) -> None:
        super().__init__()
        self.first, self.second, self.readout = first, second, Readout(classes, head)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (32, 32):
            raise SaccadeError(f"this model reads 32x32 images, not {x.shape[-2]}x{x.shape[-1]}.")
        return self.readout(conv_relu_pool(self.second, conv_relu_pool(self.first, x)))


class LeNet(Skeleton):
    """The skeleton with convolutions, which knows how to be several models at once (training/lockstep.py)."""

    def together(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Logits (r, n, classes) of r such models; weights by name and images have r in front."""
        for layer in ("first", "second"):
            x = stacked.conv_relu_pool(x, weights[f"{layer}.weight"], weights[f"{layer}.bias"])
        if self.readout.head == "flatten":
            x = rearrange(x, "r n c h w -> r n (c h w)")
        else:
            x = reduce(x, "r n c h w -> r n c", self.readout.head)
        for i in (0, 2, 4):
            x = stacked.linear(x, weights[f"readout.layers.{i}.weight"], weights[f"readout.layers.{i}.bias"])
            x = F.relu(x) if i < 4 else x
        return x


@model(family="cnn")
def lenet(classes: int = 10, *, head: Head = "flatten", channels: Width = 3) -> nn.Module:
    """Two 5x5 convolutions (6, 16 channels) and three linear layers; 62 006 parameters."""
    return LeNet(nn.Conv2d(channels, 6, 5), nn.Conv2d(6, 16, 5), classes, head)
