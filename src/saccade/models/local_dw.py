"""The dynamic depth-wise network that stands in for local attention in Feer et al. 2022, after Han et al. 2022."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from saccade.arguments import Chance, Depth, Pixels, Width
from saccade.layers.depthwise import Depthwise
from saccade.layers.pyramid import BatchNorm, Pyramid, chosen
from saccade.registry import model


@model(family="local", dial="dims")
def local_dw(
    classes: int = 10,
    *,
    size: Literal["base", "tiny", "mini"] = "base",
    dynamic: bool = True,
    window: Pixels = 7,
    shared: bool = True,
    patch: Pixels = 0,
    dims: Sequence[Width] = (),
    depths: Sequence[Depth] = (),
    image: Width = 32,
    drop_path: Chance = 0.0,
    channels: Width = 3,
) -> nn.Module:
    """Depth-wise mixing in place of window attention; 160 583 178 parameters (base), static 73 332 362.

    Three switches, in any combination: window (3, 5, 7 ..., 0 for the whole map); shared, one kernel for all positions
    or weights of their own for each pair; dynamic, a part of the kernel computed from the image. Sizes are base, tiny
    and mini, or `patch`, `dims` and `depths`. Whole-map and own weights are made for images of `image` pixels; a
    dynamic whole-map kernel is several times slower than any other combination.
    """

    def mixer(dim: int, side: int, _: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(dim, dim, bias=False),
            BatchNorm(dim),
            nn.ReLU(),
            Depthwise(dim, side, window, shared, dynamic),
            BatchNorm(dim),
            nn.ReLU(),
            nn.Linear(dim, dim, bias=False),
            BatchNorm(dim),
        )

    return Pyramid(
        classes, chosen(size, patch, dims, depths), mixer, image=image, drop_path=drop_path, channels=channels
    )
