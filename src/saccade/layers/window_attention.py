"""Attention inside windows that do not overlap, with a learned bias for each offset, after Liu et al. 2021 (Swin)."""

from __future__ import annotations

import functools

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.depthwise import check_side, pairs
from saccade.layers.token_maps import linear
from saccade.spec import SaccadeError

FAR = -100.0  # added to the score of two positions that lie together only because the map was rolled


@functools.lru_cache(maxsize=64)
def apart(h: int, w: int, window: int, shift: int) -> Tensor:
    """(windows, 1, q, k): FAR where the rolled map joins positions from its opposite edges, else 0."""
    with torch.device("cpu"):  # also while a model is counted on the meta device: what is remembered needs numbers
        down, right = (torch.arange(side) + shift >= side for side in (h, w))  # those that came round
        region = down[:, None] + 2 * right
        flat = rearrange(region, "(a p) (b q) -> (a b) (p q)", p=window, q=window)
        return FAR * (flat[:, None, :, None] != flat[:, None, None, :]).float()


class WindowAttention(nn.Module):
    """(n, h, w, c) to the same shape; pre-normed. window=0 is one window over the whole map.

    shared: the bias of a score depends on the offset of key and query; else each pair of positions has its own.
    dynamic: scores also depend on content; else on the bias alone, and the layer is linear.
    """

    undecayed = ("bias",)
    position_codes = (("bias", -1),)

    def __init__(
        self,
        dim: int,
        heads: int,
        side: int,
        window: int,
        *,
        shift: bool = False,
        shared: bool = True,
        dynamic: bool = True,
    ) -> None:
        super().__init__()
        if heads < 1 or dim % heads:
            raise SaccadeError(f"heads must divide the width: {heads} does not divide {dim}.")
        if window < 0:
            raise SaccadeError(f"window must be at least 1, or 0 for the whole map, not {window}.")
        self.window = min(window or side, side)
        _fits(side, side, self.window)
        self.heads, self.side, self.shared, self.dynamic = heads, side, shared, dynamic
        self.shift = self.window // 2 if shift and self.window < side else 0
        self.norm = nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, (3 if dynamic else 1) * dim), nn.Linear(dim, dim)
        area = self.window**2
        table = (heads, (2 * self.window - 1) ** 2) if shared else ((side // self.window) ** 2, heads, area, area)
        self.bias = nn.Parameter(0.02 * torch.randn(table))

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, _ = x.shape
        _fits(h, w, self.window)
        if not self.shared:
            check_side(self.side, h, w)
        y = linear(x, self.qkv, self.norm)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), (1, 2))
        parts = rearrange(
            y,
            "n (a p) (b q) (s e d) -> s n (a b) e (p q) d",
            p=self.window,
            q=self.window,
            s=3 if self.dynamic else 1,
            e=self.heads,
        )
        bias = self.scores(h, w)
        if self.dynamic:
            q, k, v = parts
            mixed = F.scaled_dot_product_attention(q, k, v, bias.expand(n, *q.shape[1:3], -1, -1))
        else:
            mixed = bias.softmax(-1) @ parts[0]
        y = rearrange(mixed, "n (a b) e (p q) d -> n (a p) (b q) (e d)", a=h // self.window, p=self.window)
        if self.shift:
            y = y.roll((self.shift, self.shift), (1, 2))
        return self.out(y)

    def scores(self, h: int, w: int) -> Tensor:
        """What position alone adds to the scores: (windows or 1, heads, q, k)."""
        bias: Tensor = self.bias
        if self.shared:
            index = pairs(self.window, self.window, 2 * self.window - 1, True).to(bias.device)
            bias = bias.index_select(1, index.flatten()).view(1, self.heads, *index.shape)
        return bias + apart(h, w, self.window, self.shift).to(bias.device) if self.shift else bias


def _fits(h: int, w: int, window: int) -> None:
    for side in (h, w):
        if side % window:
            raise SaccadeError(
                f"windows of {window} do not divide a map of {h}x{w} positions; choose a window that "
                "divides its side, or 0 for the whole map."
            )
