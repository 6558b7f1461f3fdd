"""A trained model that reads larger images than it was trained on, with the weights that it has."""

from __future__ import annotations

import copy
import math

import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

from saccade.models.vit import ViT


def reads(model: nn.Module, side: int) -> nn.Module:
    """The model for images of `side` pixels.

    Convolutions, pooling and windows take any size. A ViT gets its position codes interpolated on the larger grid, as
    in Dosovitskiy et al. 2021, section 3.2. A layer with weights of its own per position refuses in its own words.
    """
    if not isinstance(model, ViT) or model.embed.image == side:
        return model
    larger = copy.deepcopy(model)
    larger.embed.image = side
    if larger.positions is not None:
        extra = int(larger.cls is not None)
        token, grid = larger.positions[:, :extra], larger.positions[:, extra:]
        old = math.isqrt(grid.shape[1])
        grid = rearrange(grid, "n (h w) c -> n c h w", h=old)
        grid = F.interpolate(grid, size=(side // larger.embed.patch,) * 2, mode="bilinear", align_corners=False)
        larger.positions = nn.Parameter(torch.cat([token, rearrange(grid, "n c h w -> n (h w) c")], 1).detach())
    return larger
