"""A vision transformer whose parts can be changed one at a time, after Lehnhausen, Alves Brito and Matthes 2025.

With patch=16, dim=768, depth=12, heads=12, image=224 it has the layout of ViT-B/16 (Dosovitskiy et al. 2021).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.arguments import Chance, Depth, Range, Width
from saccade.layers.few_tokens import attend
from saccade.layers.readout_block import class_token_attention
from saccade.layers.token_maps import mlp
from saccade.registry import model
from saccade.spec import SaccadeError

Form = Literal["v1", "v2", "v3", "single_skip"]
EPS = 1e-6


class PatchEmbedding(nn.Module):
    """A p x p convolution with stride p, as one matrix product: (n, c, h, w) -> (n, tokens, dim)."""

    def __init__(self, image: int, patch: int, channels: int, dim: int) -> None:
        super().__init__()
        self.image, self.patch = image, patch
        self.linear = nn.Linear(channels * patch * patch, dim)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (self.image, self.image):
            raise SaccadeError(
                f"this vit reads {self.image}x{self.image} images, not {x.shape[-2]}x{x.shape[-1]}; "
                f"build it with image={x.shape[-1]}."
            )
        return self.linear(rearrange(x, "n c (h p) (w q) -> n (h w) (c p q)", p=self.patch, q=self.patch))


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, attention_dropout
        self.qkv, self.out, self.drop = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Dropout(dropout)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(rearrange(self.qkv(x), "n t (s h w) -> s n h t w", s=3, h=self.heads))

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.attention_dropout):
            return self.drop(self.out(attend(self.qkv(x), self.heads, native=self.training)))
        q, k, v = self.split(x)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attention_dropout)
        return self.drop(self.out(rearrange(mixed, "n h t w -> n t (h w)")))

    def of_first(self, x: Tensor) -> Tensor:
        """What token 0 gets: (n, dim). With attention dropout all keys are formed, as its mask needs them."""
        if self.training and self.attention_dropout:
            return self(x)[:, 0]
        return self.drop(self.out(class_token_attention(x, self.qkv.weight, self.qkv.bias, self.heads)))

    def probabilities(self, x: Tensor) -> Tensor:
        q, k, _ = self.split(x)
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1)


class Block(nn.Module):
    """Attention and MLP with two norms and a residual stream, in one of four orders.

    v1 (pre-norm):  x + Att(LN1 x), then x + MLP(LN2 x)
    v2 (post-norm): LN1(x + Att x), then LN2(x + MLP x)
    v3 (parallel):  x + Att(LN1 x) + MLP(LN2 x)
    single_skip:    x + MLP(LN2 Att(LN1 x)), the other reading of v3
    """

    def __init__(self, form: str, dim: int, heads: int, ratio: float, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.form, hidden = form, round(ratio * dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim, EPS), nn.LayerNorm(dim, EPS)
        self.attention = Attention(dim, heads, dropout, attention_dropout)
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.join(x, self.attention(self.looked_at(x)))

    def first(self, x: Tensor) -> Tensor:
        """The same for token 0 alone, (n, dim): in every form, other tokens reach it through attention only."""
        return self.join(x[:, 0], self.attention.of_first(self.looked_at(x)))

    def looked_at(self, x: Tensor) -> Tensor:
        return x if self.form == "v2" else self.norm1(x)

    def join(self, x: Tensor, seen: Tensor) -> Tensor:
        if self.form == "v1":
            x = x + seen
            return mlp(x, self.mlp, self.norm2, plus=x)
        if self.form == "v2":
            x = self.norm1(x + seen)
            return self.norm2(mlp(x, self.mlp, plus=x))
        if self.form == "v3":
            return mlp(x, self.mlp, self.norm2, plus=x + seen)
        return mlp(seen, self.mlp, self.norm2, plus=x)


class ViT(nn.Module):
    """With `dense` every token goes through the last block too: the same output, and maps of every layer to look at."""

    position_codes = (("positions", -2),)

    def __init__(
        self,
        classes: int,
        embed: PatchEmbedding,
        dim: int,
        blocks: list[Block],
        dropout: float,
        positions: bool,
        readout: str,
    ) -> None:
        super().__init__()
        self.dense, self.readout, extra = False, readout, int(readout == "class_token")
        self.embed, self.drop = embed, nn.Dropout(dropout)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim)) if extra else None
        tokens = (embed.image // embed.patch) ** 2 + extra
        self.positions = nn.Parameter(torch.zeros(1, tokens, dim)) if positions else None
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(dim, EPS), nn.Linear(dim, classes)

    def reset_parameters(self) -> None:
        """Class token and positions as they start; the layers reset their own."""
        for p in (self.cls, self.positions):
            if p is not None:
                nn.init.zeros_(p)

    def tokens(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1)
        return self.drop(x if self.positions is None else x + self.positions)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x)
        *early, last = self.blocks
        for block in early:
            x = block(x)
        if self.readout == "mean":
            return self.head(self.norm(last(x)).mean(1))
        assert isinstance(last, Block)
        return self.head(self.norm(last(x)[:, 0] if self.dense else last.first(x)))

    def attention(self, x: Tensor) -> list[Tensor]:
        """Probabilities of every block as (n, heads, queries, keys), by the dense path."""
        if self.readout != "class_token":
            raise SaccadeError('attention maps start at a class token; build the vit with readout="class_token".')
        x, maps = self.tokens(x), []
        for block in self.blocks:
            assert isinstance(block, Block)
            maps.append(block.attention.probabilities(block.looked_at(x)))
            x = block(x)
        return maps


@model(family="vit", dial="dim")
def vit(
    classes: int = 10,
    *,
    patch: Width = 4,
    dim: Width = 128,
    depth: Depth = 6,
    heads: Width = 4,
    block: Form = "v1",
    image: Width = 32,
    channels: Width = 3,
    dropout: Chance = 0.0,
    attention_dropout: Chance = 0.0,
    positions: bool = True,
    ratio: Annotated[float, Range(above=0, at_most=1024)] = 4,
    readout: Literal["class_token", "mean"] = "class_token",
) -> nn.Module:
    """ViT with blocks v1 (pre-norm), v2 (post-norm), v3 (parallel) or single_skip; B/16 layout: 85 806 346."""
    if image < patch or image % patch:
        raise SaccadeError(f"patch must divide the image's side: {patch} does not divide {image}.")
    if dim % heads:
        raise SaccadeError(f"heads must divide dim: {heads} does not divide {dim}.")
    if round(ratio * dim) < 1:
        raise SaccadeError(f"ratio must leave the MLP at least one unit, not {ratio}.")
    blocks = [Block(block, dim, heads, ratio, dropout, attention_dropout) for _ in range(depth)]
    return ViT(classes, PatchEmbedding(image, patch, channels, dim), dim, blocks, dropout, positions, readout)
