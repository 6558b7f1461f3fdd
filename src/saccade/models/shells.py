"""The transformer around relative attention: Cordonnier, Loukas, Jaggi (ICLR 2020), and its reproduction by Varma and
Prabhu (2020). Pixels by space-to-depth, post-norm blocks, the mean of all tokens read out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.content_attention import ContentAttention
from saccade.layers.passes import Passes
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention
from saccade.layers.token_maps import linear, mlp
from saccade.spec import SaccadeError

Shell = Literal["original", "reproduction"]
SIDE = 32  # pixels; grids of learned codes are made for it
Attention = QuadraticAttention | LearnedPositionAttention | ContentAttention


class Block(nn.Module):
    """norm(x + attention(x)), then norm(u + mlp(u)).

    The original has one more linear map behind attention, GELU, and dropout; the reproduction ReLU and neither.
    """

    def __init__(self, attention: Attention, dim: int, hidden: int, shell: str, dropout: float) -> None:
        super().__init__()
        self.attention, self.original, self.dropout = attention, shell == "original", dropout
        self.dense = nn.Linear(dim, dim) if self.original else nn.Identity()
        self.norm1, self.norm2 = (nn.LayerNorm(dim, eps=1e-12) for _ in range(2))
        self.wide, self.narrow = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.gate = nn.GELU() if self.original else nn.ReLU()

    def forward(self, x: Tensor, keys: Any = None) -> tuple[Tensor, Any]:
        if isinstance(self.attention, ContentAttention):
            keys = keys or self.attention.keys(x)
            seen = self.attention(x, keys)
        else:
            seen = self.attention(x)
        if self.training and self.dropout:
            u = self.norm1(x + F.dropout(self.dense(seen), self.dropout))
            return self.norm2(u + F.dropout(self.narrow(self.gate(self.wide(u))), self.dropout)), keys
        u = self.norm1(linear(seen, self.dense, plus=x) if isinstance(self.dense, nn.Linear) else x + seen)
        return self.norm2(mlp(u, nn.Sequential(self.wide, self.gate, self.narrow), plus=u)), keys

    def maps(self, x: Tensor, keys: Any = None) -> list[Tensor]:
        if isinstance(self.attention, ContentAttention):
            return [self.attention.probabilities(x, keys)]
        return [self.attention.probabilities(*x.shape[1:3]).expand(len(x), -1, -1, -1)]


class RelativeEncoder(nn.Module):
    """(n, c, 32, 32) -> (n, classes). `attention(x)` gives one map a pass: (n, heads, tokens, tokens), row by row."""

    def __init__(self, classes: int, passes: Passes, dim: int, patch: int, channels: int) -> None:
        super().__init__()
        self.patch = patch
        self.embed, self.passes = nn.Linear(channels * patch**2, dim), passes
        self.head = nn.Linear(dim, classes)

    def tokens(self, x: Tensor) -> Tensor:
        """(n, h, w, dim); channels inside each pixel of a patch, as published."""
        if x.shape[-2:] != (SIDE, SIDE):
            raise SaccadeError(f"this model reads {SIDE}x{SIDE} images, not {x.shape[-2]}x{x.shape[-1]}.")
        return self.embed(rearrange(x, "n c (h p) (w q) -> n h w (p q c)", p=self.patch, q=self.patch))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.passes(self.tokens(x)).mean((1, 2)))

    def attention(self, x: Tensor) -> list[Tensor]:
        return self.passes.maps(self.tokens(x))

    def layers(self) -> list[Attention]:
        """The attention layers, in order: one that all passes share counts once."""
        return [block.attention for block in self.passes.blocks if isinstance(block, Block)]


def encoder(
    classes: int,
    make: Callable[[bool], Attention],
    *,
    dim: int,
    depth: int,
    shell: str,
    patch: int,
    hidden: int,
    dropout: float | None,
    channels: int,
    shared: bool,
    frozen_keys: bool,
) -> nn.Module:
    """`make(own_keys)` gives the attention of a block. dropout None: as published, .1 and none."""
    drop = (0.1 if shell == "original" else 0.0) if dropout is None else dropout
    passes = Passes(
        lambda own: Block(make(own), dim, hidden, shell, drop), depth, shared=shared, frozen_keys=frozen_keys
    )
    return RelativeEncoder(classes, passes, dim, patch, channels)


def grid(patch: int, dim: int) -> int:
    """Tokens along a side, and a sentence for sizes that make no model."""
    if SIDE % patch:
        raise SaccadeError(f"patch must divide {SIDE}, not be {patch}; 2 is the papers' and 4 is cheap.")
    if dim % 2:
        raise SaccadeError(f"dim must be even, not {dim}.")
    return SIDE // patch
