"""The small convolution net of de Kruijff 2022, Sec. 3.1; in shape the LeNet-5 of many tutorials."""

from __future__ import annotations

from einops import rearrange, reduce
from torch import Tensor, nn

from saccade.layers.conv_pool import conv_relu_pool
from saccade.registry import model
from saccade.spec import SaccadeError, suggest

HEADS = ("flatten", "mean", "max")


class Readout(nn.Module):
    """Three linear layers on a 16-channel map, flattened (as in the thesis) or pooled over positions."""

    def __init__(self, classes: int, head: str) -> None:
        super().__init__()
        if head not in HEADS:
            raise SaccadeError(suggest("head", head, HEADS))
        self.head = head
        self.layers = nn.Sequential(nn.Linear(400 if head == "flatten" else 16, 120), nn.ReLU(),
                                    nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes))

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
            raise SaccadeError(f"this net reads 32x32 images, not {x.shape[-2]}x{x.shape[-1]}.")
        return self.readout(conv_relu_pool(self.second, conv_relu_pool(self.first, x)))


@model(family="cnn")
def lenet(classes: int = 10, *, head: str = "flatten", channels: int = 3) -> nn.Module:
    """Two 5x5 convolutions (6, 16 channels) and three linear layers; 62 006 parameters."""
    return Skeleton(nn.Conv2d(channels, 6, 5), nn.Conv2d(6, 16, 5), classes, head)
