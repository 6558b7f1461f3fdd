"""Window attention in the outer design of local_dw: what Feer et al. 2022 meant to train. After Liu et al. 2021."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from saccade.arguments import Chance, Depth, Pixels, Width
from saccade.layers.pyramid import Pyramid, chosen
from saccade.layers.window_attention import WindowAttention
from saccade.registry import model
from saccade.spec import SaccadeError


@model(family="local", dial="dims")
def local_attn(
    classes: int = 10,
    *,
    size: Literal["base", "tiny", "mini"] = "mini",
    window: Pixels = 4,
    shift: bool = True,
    shared: bool = True,
    dynamic: bool = True,
    head_dim: Width = 32,
    patch: Pixels = 0,
    dims: Sequence[Width] = (),
    depths: Sequence[Depth] = (),
    image: Width = 32,
    drop_path: Chance = 0.0,
    channels: Width = 3,
) -> nn.Module:
    """Attention in windows with relative position bias, shifted by half a window on odd blocks if `shift`.

    Everything but the mixing is as in local_dw, and so are the switches: window (0 for the whole map; a map no larger
    is one window); shared, a bias for each offset or for each pair of positions; dynamic, attention by content or by
    the bias alone. At 224 pixels the published windows are of 7: size="base", window=7, image=224.
    """
    made = chosen(size, patch, dims, depths)
    for dim in made.dims:
        if head_dim < 1 or dim % head_dim:
            raise SaccadeError(f"head_dim must divide every width: {head_dim} does not divide {dim}.")

    def mixer(dim: int, side: int, block: int) -> nn.Module:
        return WindowAttention(
            dim, dim // head_dim, side, window, shift=shift and block % 2 == 1, shared=shared, dynamic=dynamic
        )

    return Pyramid(classes, made, mixer, image=image, drop_path=drop_path, channels=channels)
