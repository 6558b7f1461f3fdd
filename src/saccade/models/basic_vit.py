"""A vision transformer with one size dial, after Catteau's TP IV report (EPFL): 4x4 patches, class token, pre-norm."""

from __future__ import annotations

import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.readout_block import class_token_attention
from saccade.registry import model
from saccade.spec import SaccadeError

PATCH, TOKENS = 4, 64


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x) with a hidden layer twice as wide."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(rearrange(self.qkv(self.norm1(x)), "n t (s h w) -> s n h t w", s=3, h=self.heads))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(rearrange(mixed, "n h t w -> n t (h w)"))
        return x + self.mlp(self.norm2(x))

    def class_token(self, x: Tensor) -> Tensor:
        """The same, for token 0 alone: (n, dim)."""
        seen = class_token_attention(self.norm1(x), self.qkv.weight, self.qkv.bias, self.heads)
        return self.finish(x[:, 0], seen)

    def finish(self, token: Tensor, seen: Tensor) -> Tensor:
        token = token + self.out(seen)
        return token + self.mlp(self.norm2(token))

    def probabilities(self, x: Tensor) -> Tensor:
        q, k, _ = self.split(x)
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1)


class BasicViT(nn.Module):
    def __init__(self, classes: int, dim: int, heads: int, depth: int, channels: int) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH * channels, dim)
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, TOKENS + 1, dim))
        self.early = nn.ModuleList(Block(dim, heads) for _ in range(depth - 1))
        self.last = Block(dim, heads)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def patches(self, x: Tensor) -> Tensor:
        if x.shape[-2:] != (32, 32):
            raise SaccadeError(f"basic_vit reads 32x32 images, not {x.shape[-2]}x{x.shape[-1]}.")
        return rearrange(x, "n c (h p) (w q) -> n (h w) (c p q)", p=PATCH, q=PATCH)

    def tokens(self, x: Tensor) -> Tensor:
        x = self.embed(self.patches(x))
        return torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.positions

    def forward(self, x: Tensor) -> Tensor:
        if not self.early:
            return self.head(self.norm(self.only_block(self.patches(x))))
        x = self.tokens(x)
        for block in self.early:
            x = block(x)
        return self.head(self.norm(self.last.class_token(x)))

    def only_block(self, f: Tensor) -> Tensor:
        """The class token after a single block, from patches f (n, 64, k) that are never embedded. Exact.

        Before the first block the class token is the same for all pictures, so its query is too. An embedded patch
        E f + u then enters in three ways only: its variance, a quadratic form in f; its score, f . (E^T a); and the
        attended sum, E (sum p f). All three need k = 16c numbers a patch instead of d.
        """
        block, norm = self.last, self.last.norm1
        wq, wk, wv = block.qkv.weight.chunk(3)
        bq, _, bv = block.qkv.bias.chunk(3)
        cls = (self.cls + self.positions[:, :1])[0, 0]
        # Centred over d, as the norm does: E (d, k), u (64, d), the class token (d,).
        e = self.embed.weight - self.embed.weight.mean(0)
        u = self.embed.bias + self.positions[0, 1:]
        u, c = u - u.mean(1, keepdim=True), cls - cls.mean()
        c = c * (c.square().mean() + norm.eps).rsqrt()
        q = rearrange(F.linear(c * norm.weight + norm.bias, wq, bq), "(h w) -> h w", h=block.heads)
        asked = einsum(q * q.shape[-1] ** -0.5, rearrange(wk, "(h w) d -> h w d", h=block.heads), "h w, h w d -> h d")
        a = asked * norm.weight  # what the norm adds is the same for every token, and cancels in the softmax
        ea = e.T @ torch.cat([e, a.T], 1)  # (k, k + heads): variance and score share one product with f
        of_f = f @ ea
        k = f.shape[-1]
        square = ((of_f[..., :k] + 2 * (u @ e)) * f).sum(-1) + u.square().sum(1)
        r = (square / len(e) + norm.eps).rsqrt()  # (n, 64)
        scores = torch.cat([(a @ c).expand(len(f), 1, -1), (of_f[..., k:] + u @ a.T) * r[..., None]], 1)
        p = torch.softmax(scores, 1)  # (n, 65, heads)
        own, w = p[:, 0, :, None], (p[:, 1:] * r[..., None]).transpose(1, 2)
        seen = (w @ f) @ e.T + w @ u + own * c  # (n, heads, d)
        seen = einsum(seen * norm.weight + norm.bias, rearrange(wv, "(h w) d -> h w d", h=block.heads),
                      "n h d, h w d -> n h w")
        return block.finish(cls, rearrange(seen, "n h w -> n (h w)") + bv)

    def attention(self, x: Tensor) -> list[Tensor]:
        """Probabilities of every block as (n, heads, queries, keys), by the dense path."""
        x, maps = self.tokens(x), []
        for block in (*self.early, self.last):
            assert isinstance(block, Block)
            maps.append(block.probabilities(x))
            x = block(x)
        return maps


@model(family="vit", dial="dim")
def basic_vit(classes: int = 10, *, dim: int = 128, heads: int = 1, depth: int = 1, channels: int = 3) -> nn.Module:
    """Class-token ViT on 64 patches; 8Ld² + 11Ld + (16c+79)d + 10 parameters for 10 classes."""
    if heads < 1 or dim % heads:
        raise SaccadeError(f"heads must divide dim: {heads} does not divide {dim}.")
    if depth < 1:
        raise SaccadeError(f"depth must be at least 1, not {depth}.")
    return BasicViT(classes, dim, heads, depth, channels)
