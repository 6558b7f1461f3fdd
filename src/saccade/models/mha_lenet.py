"""LeNet with each convolution replaced by attention over all 5x5 patches; de Kruijff 2022, Sec. 3.1.

The thesis says that queries, keys and values have as many dimensions as the convolution has channels, which torch's own
layer cannot do from 75-wide patches; five readings of what was built are kept. "Unfold, then a linear map" is
exactly a convolution, so no patch is ever copied out.
"""

from __future__ import annotations

from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from saccade.arguments import Width
from saccade.layers import short_heads
from saccade.models.lenet import Head, Skeleton
from saccade.registry import model
from saccade.spec import SaccadeError


class PatchAttention(nn.Module):
    """(n, c, h, w) -> (n, out, h-4, w-4): every 5x5 patch attends to every other; no positions, no residual."""

    def __init__(self, channels: int, out: int, heads: int, reading: str) -> None:
        super().__init__()
        width = 25 * channels if reading == "E" else out
        if not 1 <= heads <= width or (reading != "E" and out % heads):
            raise SaccadeError(f"heads must divide {out}, not be {heads}; 1 and 2 divide both layers' widths.")
        self.heads, self.reading = heads, reading
        if reading == "A":  # separate maps 75 -> 6 for q, k, v: one convolution, started as the library starts three
            self.qkv = nn.Conv2d(channels, 3 * out, 5)
            with torch.no_grad():
                self.qkv.weight.copy_(torch.cat([_patches(channels, out).weight for _ in range(3)]))
            _no_bias_yet(self.qkv)
        elif reading == "B":  # a linear map for the query, then the library layer with kdim = vdim = 75
            self.before = nn.Conv2d(channels, out, 5)
            self.q, self.k, self.v = _square(out), _patches(channels, out), _patches(channels, out)
        elif reading in "CD":  # three maps (C) or one shared map (D) to 6, then the square library layer
            self.before = nn.Conv2d(channels, 3 * out if reading == "C" else out, 5)
            self.q, self.k, self.v = (_square(out) for _ in range(3))
        else:  # the library layer on the patches themselves, then a linear map 75 -> 6
            self.q, self.k, self.v = (_patches(channels, width) for _ in range(3))
            self.after = nn.Conv2d(width, out, 1)
        self.out = _no_bias_yet(nn.Conv2d(width, width, 1))

    def maps(self, x: Tensor) -> list[Tensor]:
        """q, k, v as (n, out, h', w')."""
        if self.reading == "A":
            return list(self.qkv(x).chunk(3, 1))
        if self.reading == "B":
            return [self.q(self.before(x)), self.k(x), self.v(x)]
        if self.reading == "E":
            return [self.q(x), self.k(x), self.v(x)]
        parts = self.before(x).chunk(3, 1) if self.reading == "C" else [self.before(x)] * 3
        return [layer(part) for layer, part in zip((self.q, self.k, self.v), parts, strict=True)]

    def split(self, t: Tensor) -> tuple[Tensor, ...]:
        """Heads as (n, heads, width, tokens), in one piece where they are of one width (not so in E with 2)."""
        t = rearrange(t, "n c h w -> n c (h w)")
        if t.shape[1] % self.heads == 0:
            return (rearrange(t, "n (e c) t -> n e c t", e=self.heads),)
        return tuple(part[:, None] for part in t.tensor_split(self.heads, 1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.maps(x)
        groups = zip(*map(self.split, (q, k, v)), strict=True)
        mixed = torch.cat([short_heads.attend(*g).flatten(1, 2) for g in groups], 1)
        y = self.out(rearrange(mixed, "n c (h w) -> n c h w", h=q.shape[2]))
        return self.after(y) if self.reading == "E" else y

    def probabilities(self, x: Tensor) -> Tensor:
        """(n, heads, queries, keys), by the dense path."""
        q, k, _ = self.maps(x)
        parts = [short_heads.probabilities(*g) for g in zip(self.split(q), self.split(k), strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)  # such a map is large, and a copy takes its time


def _patches(channels: int, out: int) -> nn.Conv2d:
    """An input projection of the library layer, read as a convolution; starts as that layer does."""
    layer = nn.Conv2d(channels, out, 5)
    nn.init.xavier_uniform_(layer.weight.view(out, -1))
    return _no_bias_yet(layer)


def _square(out: int) -> nn.Conv2d:
    layer = nn.Conv2d(out, out, 1)
    # The library layer draws its stacked (3 out, out) weight at once, so the bound counts 3 out outputs.
    nn.init.uniform_(layer.weight, -((6 / (4 * out)) ** 0.5), (6 / (4 * out)) ** 0.5)
    return _no_bias_yet(layer)


def _no_bias_yet(layer: nn.Conv2d) -> nn.Conv2d:
    """The library layer starts with zero biases."""
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


@model(family="attention")
def mha_lenet(
    classes: int = 10,
    *,
    reading: Literal["A", "B", "C", "D", "E"] = "A",
    heads: Width = 2,
    head: Head = "flatten",
    channels: Width = 3,
) -> nn.Module:
    """LeNet's shape with attention over 784 and 100 patches; 68 064 parameters in reading A."""
    return Skeleton(PatchAttention(channels, 6, heads, reading), PatchAttention(6, 16, heads, reading), classes, head)
