"""The outer design that local_dw and local_attn share: patches, stages of residual blocks, 2x2 merging, mean, linear.

Maps are (n, h, w, c) throughout: with channels last every 1x1 map is one matrix product, which on a CPU was a quarter
faster than convolutions of the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from saccade.layers.token_maps import mlp
from saccade.spec import SaccadeError

Mixer = Callable[[int, int, int], nn.Module]  # width, side of the map, number of the block in its stage


@dataclass(frozen=True)
class Size:
    patch: int
    dims: tuple[int, ...]
    depths: tuple[int, ...]


# base and tiny are the published ones, for 224 pixels; mini is for 32 pixels and a CPU.
SIZES = {
    "base": Size(4, (128, 256, 512, 1024), (2, 2, 18, 2)),
    "tiny": Size(4, (96, 192, 384, 768), (2, 2, 6, 2)),
    "mini": Size(4, (32, 64), (2, 2)),
}


def chosen(size: str, patch: int, dims: Sequence[int], depths: Sequence[int]) -> Size:
    """A named size, with what is given in its place."""
    named = SIZES[size]
    made = Size(patch or named.patch, tuple(dims) or named.dims, tuple(depths) or named.depths)
    if len(made.dims) != len(made.depths):
        raise SaccadeError(f"dims and depths must name the same stages, not {len(made.dims)} and {len(made.depths)}.")
    return made


def sides(image: int, size: Size) -> list[int]:
    """The side of the map in each stage; one sentence if patches or merging do not divide it."""
    unit = size.patch * 2 ** (len(size.dims) - 1)
    if image < 1 or image % unit:
        raise SaccadeError(
            f"a side of {image} pixels does not divide into patches of {size.patch} halved "
            f"{len(size.dims) - 1} times; use a multiple of {unit}."
        )
    return [image // size.patch // 2**i for i in range(len(size.dims))]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of the last axis, over all others."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view(x.shape)


class DropPath(nn.Module):
    """In training leaves out whole branches, image by image, and scales up those that stay."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        kept = torch.rand(len(x), *(1,) * (x.ndim - 1), device=x.device) >= self.rate
        return x * kept / (1 - self.rate)


class Block(nn.Module):
    """x + mix(x), then x + mlp(batch norm of x) with a hidden layer four times as wide."""

    def __init__(self, dim: int, mix: nn.Module, drop: float) -> None:
        super().__init__()
        self.mix, self.drop, self.norm = mix, DropPath(drop), BatchNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.mix(x))
        if self.training and self.drop.rate:
            return x + self.drop(self.mlp(self.norm(x)))
        return mlp(self.norm(x), self.mlp, plus=x)


class Merge(nn.Module):
    """Four neighbours side by side, normed, then mapped to the next width."""

    def __init__(self, dim: int, to: int) -> None:
        super().__init__()
        self.norm, self.map = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, to, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(self.norm(rearrange(x, "n (h p) (w q) c -> n h w (q p c)", p=2, q=2)))


class Pyramid(nn.Module):
    def __init__(self, classes: int, size: Size, mixer: Mixer, *, image: int, drop_path: float, channels: int) -> None:
        super().__init__()
        if not 0 <= drop_path < 1:
            raise SaccadeError(f"drop_path must be in [0, 1), a share of branches left out, not {drop_path}.")
        self.size, maps = size, sides(image, size)
        self.embed = nn.Linear(size.patch**2 * channels, size.dims[0])
        self.embed_norm = nn.LayerNorm(size.dims[0])
        last = max(1, sum(size.depths) - 1)
        rates = [drop_path * i / last for i in range(last + 1)]  # deeper blocks are left out more often
        stages: list[nn.Module] = []
        for i, (dim, depth, side) in enumerate(zip(size.dims, size.depths, maps, strict=True)):
            blocks = [Block(dim, mixer(dim, side, b), rates.pop(0)) for b in range(depth)]
            stages.append(nn.Sequential(*([Merge(size.dims[i - 1], dim)] if i else []), *blocks))
        self.stages = nn.Sequential(*stages)
        self.norm, self.head = nn.LayerNorm(size.dims[-1]), nn.Linear(size.dims[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        for side in x.shape[-2:]:
            sides(side, self.size)
        p = self.size.patch
        x = self.embed_norm(self.embed(rearrange(x, "n c (h p) (w q) -> n h w (c p q)", p=p, q=p)))
        return self.head(self.norm(self.stages(x)).mean((1, 2)))
