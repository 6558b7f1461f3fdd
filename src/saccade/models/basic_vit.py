"""A vision transformer with one size dial, after Catteau's TP IV report (EPFL): 4x4 patches, class token, pre-norm."""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.arguments import Depth, Width
from saccade.layers.few_tokens import attend
from saccade.layers.readout_block import class_token_attention
from saccade.layers.token_maps import linear, mlp
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
        x = linear(attend(linear(x, self.qkv, self.norm1), self.heads, native=self.training), self.out, plus=x)
        return mlp(x, self.mlp, self.norm2, plus=x)

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


class PatchReadout(torch.autograd.Function):
    """What one query reads from patches through embedding and norm, without embedding them. Exact.

    f (n, t, k) are patches, e (d, k) the embedding, u (t, d) its bias and positions, c (d,) the normed class token, a
    (heads, d) the key-side query; the result (n, heads, d) is the sum of normed tokens, weighted by their attention.
    A patch's token e f + u enters in three ways only: its variance, a quadratic form in f; its score, f . (e^T a) +
    u . a; and the sum, e (sum p f) + sum p u. All of these take k = 16c numbers per patch instead of d, and written out
    by hand two to three times fewer calls than autograd makes, which is what costs at a batch of 32.
    """

    @staticmethod
    def forward(ctx: Any, f: Tensor, e: Tensor, u: Tensor, c: Tensor, a: Tensor, eps: float) -> Tensor:
        n, k = len(f), f.shape[-1]
        e, u = e - e.mean(0), u - u.mean(1, keepdim=True)  # centred over d, as the norm does
        of_f = f @ (e.T @ torch.cat([e, a.T], 1))  # (n, t, k + heads)
        square = torch.linalg.vecdot(of_f[..., :k] + 2 * (u @ e), f) + u.square().sum(1)
        r = square.div_(len(e)).add_(eps).rsqrt_()[..., None]  # 1 / standard deviation of each token
        z = of_f[..., k:] + u @ a.T
        p = torch.softmax(torch.cat([(a @ c).expand(n, 1, -1), z * r], 1), 1).transpose(1, 2)  # (n, heads, 1 + t)
        w = p[..., 1:] * r.transpose(1, 2)
        of_w = w @ f
        ctx.save_for_backward(f, e, u, c, a, r, z, p, w, of_w)
        return of_w @ e.T + w @ u + p[..., :1] * c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        f, e, u, c, a, r, z, p, w, of_w = ctx.saved_tensors
        n, t, k = f.shape
        d, flat, f2 = len(e), grad.flatten(0, 1), f.view(-1, k)
        gw = (grad @ e) @ f.transpose(1, 2) + grad @ u.T  # (n, heads, t)
        gp = torch.cat([grad @ c[:, None], gw * r.transpose(1, 2)], 2)
        gs = p * (gp - torch.linalg.vecdot(gp, p)[..., None])  # of the scores
        own, gs = gs[..., 0].sum(0), gs[..., 1:].transpose(1, 2)
        gr = torch.linalg.vecdot(gw.transpose(1, 2), p[..., 1:].transpose(1, 2)) + torch.linalg.vecdot(gs, z)
        g_square = gr[..., None] * r**3 * (-0.5 / d)  # (n, t, 1)
        gz, gf = gs * r, g_square * f
        of_gz, of_gf = gz.sum(0), 2 * gf.sum(0)
        mixed = f2.T @ torch.cat([2 * gf, gz], 2).view(n * t, -1)  # (k, k + heads)
        ge = flat.T @ of_w.flatten(0, 1) + torch.cat([e, a.T], 1) @ mixed.T + u.T @ of_gf
        gu = w.flatten(0, 1).T @ flat + of_gf @ e.T + 2 * u * g_square.sum(0) + of_gz @ a
        ga = mixed[:, k:].T @ e.T + of_gz.T @ u + own[:, None] * c
        gc = p[..., 0].reshape(-1) @ flat + own @ a
        return None, ge - ge.mean(0), gu - gu.mean(1, keepdim=True), gc, ga, None


class BasicViT(nn.Module):
    position_codes = (("positions", -2),)

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
        if not self.early and x.device.type == "cpu":  # elsewhere the calls cost nothing, and autocast wants its own
            return self.head(self.norm(self.only_block(self.patches(x))))
        x = self.tokens(x)
        for block in self.early:
            x = block(x)
        return self.head(self.norm(self.last.class_token(x)))

    def only_block(self, f: Tensor) -> Tensor:
        """The class token (n, d) after a single block, from patches f that are never embedded. Exact."""
        block, norm = self.last, self.last.norm1
        wq, wk, wv = (rearrange(w, "(h w) d -> h w d", h=block.heads) for w in block.qkv.weight.chunk(3))
        bq, _, bv = block.qkv.bias.chunk(3)
        # Before the first block the class token is the same for all images, so its query is too.
        cls = (self.cls + self.positions[:, :1])[0, 0]
        c = F.layer_norm(cls, cls.shape, eps=norm.eps)
        q = F.linear(c * norm.weight + norm.bias, wq.flatten(0, 1), bq).view(block.heads, 1, -1)
        # What the norm adds is the same for every token, and cancels in the softmax.
        a = (q * q.shape[-1] ** -0.5 @ wk)[:, 0] * norm.weight
        seen = PatchReadout.apply(f, self.embed.weight, self.embed.bias + self.positions[0, 1:], c, a, norm.eps)
        seen = torch.bmm((seen * norm.weight + norm.bias).transpose(0, 1), wv.transpose(1, 2))
        return block.finish(cls, rearrange(seen, "h n w -> n (h w)") + bv)

    def attention(self, x: Tensor) -> list[Tensor]:
        """Probabilities of every block as (n, heads, queries, keys), by the dense path."""
        x, maps = self.tokens(x), []
        for block in self.early:
            assert isinstance(block, Block)
            maps.append(block.probabilities(x))
            x = block(x)
        return [*maps, self.last.probabilities(x)]


@model(family="vit", dial="dim")
def basic_vit(
    classes: int = 10, *, dim: Width = 128, heads: Width = 1, depth: Depth = 1, channels: Width = 3
) -> nn.Module:
    """Class-token ViT on 64 patches; 8Ld² + 11Ld + (16c+79)d + 10 parameters for 10 classes."""
    if dim % heads:
        raise SaccadeError(f"heads must divide dim: {heads} does not divide {dim}.")
    return BasicViT(classes, dim, heads, depth, channels)
