"""The vision transformer of Varma and Prabhu (ML Reproducibility Challenge 2020): a convolutional stem, heads as wide
as the tokens, residuals around the normalised input, the mean of all tokens read out.
"""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.arguments import Chance, Depth, Width
from saccade.layers.few_tokens import attend_apart
from saccade.layers.layout import FEWEST, channels_last
from saccade.layers.passes import Passes, switches
from saccade.layers.token_maps import linear, mlp
from saccade.models.resnet18 import BasicBlock
from saccade.models.shells import SIDE, grid
from saccade.registry import model
from saccade.spec import SaccadeError


class Block(nn.Module):
    """z + attention(z) of z = norm x, then the same with two linear maps: what is added to is normed, as published."""

    def __init__(self, dim: int, heads: int, hidden: int, dropout: float, own_keys: bool) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.value = (nn.Linear(dim, heads * dim, bias=False) for _ in range(2))
        self.key = nn.Linear(dim, heads * dim, bias=False) if own_keys else None
        self.out = nn.Linear(heads * dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def split(self, t: Tensor) -> Tensor:
        return rearrange(t, "n t (e c) -> n e t c", e=self.heads)

    def keys(self, z: Tensor, keys: Any) -> Tensor:
        if keys is not None:
            return keys
        assert self.key is not None, "this block has no keys of its own and must be given some"
        return self.key(z)

    def forward(self, x: Tensor, keys: Any = None) -> tuple[Tensor, Any]:
        z = self.norm1(x)
        keys = self.keys(z, keys)
        q, v = self.query(z), self.value(z)
        if self.training and self.dropout:
            q, k, v = (self.split(t) for t in (q, keys, v))
            seen = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)
            seen = rearrange(seen, "n e t c -> n t (e c)")
        else:
            seen = attend_apart(q, keys, v, self.heads, native=self.training)
        z = self.norm2(linear(seen, self.out, plus=z))
        return mlp(z, self.mlp, plus=z), keys

    def maps(self, x: Tensor, keys: Any = None) -> list[Tensor]:
        z = self.norm1(x)
        q, k = self.split(self.query(z)), self.split(self.keys(z, keys))
        return [torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)]


class ConvStemViT(nn.Module):
    """(n, c, 32, 32) -> (n, classes). `attention(x)`: one map a pass, (n, heads, 1 + tokens, 1 + tokens).

    Token 0 stands for no patch: it has only its learned place, so it is a class token; it is read out like all others.
    With `noise` its patch is drawn again, uniformly, at every call.
    """

    position_codes = (("positions", -2),)

    def __init__(
        self, classes: int, passes: Passes, dim: int, side: int, stem: nn.Module, width: int, patch: int, noise: bool
    ) -> None:
        super().__init__()
        self.patch, self.noise, self.channels_last = patch, noise, width >= FEWEST
        self.stem, self.embed = stem, nn.Linear(width * patch**2, dim)
        self.positions = nn.Parameter(torch.randn(1 + side**2, dim))
        self.passes, self.head = passes, nn.Linear(dim, classes)

    def tokens(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (SIDE, SIDE):
            raise SaccadeError(f"this model reads {SIDE}x{SIDE} images, not {x.shape[-2]}x{x.shape[-1]}.")
        x = channels_last(x) if self.channels_last else x
        x = rearrange(self.stem(x), "n c (h p) (w q) -> n (h w) (c p q)", p=self.patch, q=self.patch)
        extra = torch.rand_like(x[:, :1]) if self.noise else torch.zeros_like(x[:, :1])
        return self.embed(torch.cat([extra, x], 1)) + self.positions

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.passes(self.tokens(x)).mean(1))

    def attention(self, x: Tensor) -> list[Tensor]:
        return self.passes.maps(self.tokens(x))


@model(family="vit", dial="dim")
def conv_stem_vit(
    classes: int = 10,
    *,
    heads: Width = 9,
    dim: Width = 400,
    depth: Depth = 6,
    hierarchical: bool = False,
    shared: bool = False,
    frozen_keys: bool = False,
    patch: Width = 2,
    hidden: Width = 512,
    stem: bool = True,
    width: Width = 64,
    attention_dropout: Chance = 0.0,
    noise_class_token: bool = False,
    channels: Width = 3,
) -> nn.Module:
    """ViT behind the first stage of a ResNet-18 of `width` channels; 37 394 506 parameters, hierarchical 6 531 946.

    stem=False reads pixels (37 147 082, 6 284 522). hierarchical is shared and frozen_keys at once.
    noise_class_token is a slip of the published code.
    """
    side = grid(patch, dim)
    one, frozen = switches(hierarchical, shared, frozen_keys)
    passes = Passes(
        lambda own: Block(dim, heads, hidden, attention_dropout, own), depth, shared=one, frozen_keys=frozen
    )
    before: nn.Module = nn.Identity()
    if stem:
        before = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            BasicBlock(width, width),
            BasicBlock(width, width),
        )
    return ConvStemViT(classes, passes, dim, side, before, width if stem else channels, patch, noise_class_token)
