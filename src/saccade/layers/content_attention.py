"""Attention with relative positions and content, after Cordonnier, Loukas, Jaggi (ICLR 2020), as wide a head as the
tokens: q.(k + codes) where the codes are of the row shift and of the column shift.

With W_q and W_k folded into one matrix a head, keys are the tokens themselves, and the codes are projected once onto
the shifts: a 16x16 grid has 31 along each axis. The keys' bias cancels in the softmax. Exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers.content_kernel import Native, has_kernel
from saccade.layers.position_attention import Values, dense, shifts

ROOM = 256 * 256  # probabilities of one head that stay in cache
KEPT = 4_000_000  # probabilities that are rather kept for the backward pass than computed again


@dataclass(frozen=True)
class Keys:
    """Tokens (n, h, w, dim) and the map that makes keys of them."""

    tokens: Tensor
    weight: Tensor
    bias: Tensor | None


class ContentAttention(nn.Module):
    """x: (n, h, w, dim) -> (n, h, w, out), for grids up to `size`. Heads average the tokens, `value` maps them.

    keys: "own" are made of x unless they are given; "given" has no map of its own; "none" compares positions only.
    `transposed` is a published slip: weights of (query (a, b), key (k, l)) are those of (query (b, a), key (l, k)).
    """

    position_codes = (("row_codes", -2), ("column_codes", -2))

    def __init__(
        self,
        dim: int,
        heads: int,
        out: int,
        *,
        size: int = 16,
        bias: bool = True,
        dropout: float = 0.0,
        keys: str = "own",
        transposed: bool = False,
        value_maps: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.size, self.dropout, self.compares, self.transposed = heads, size, dropout, keys, transposed
        self.query = nn.Linear(dim, heads * dim, bias=bias)
        self.key = nn.Linear(dim, heads * dim, bias=bias) if keys == "own" else None
        self.row_codes = nn.Parameter(torch.randn(2 * size - 1, dim // 2))
        self.column_codes = nn.Parameter(torch.randn(2 * size - 1, dim - dim // 2))
        self.value = Values(dim, heads, out, value_maps)

    def keys(self, x: Tensor) -> Keys | None:
        """What a later pass may be given."""
        if self.compares == "none":
            return None
        assert self.key is not None, "this layer has no keys of its own and must be given some"
        return Keys(x, self.key.weight, self.key.bias)

    def folded(self, keys: Keys | None) -> tuple[Tensor, Tensor]:
        """What a token is multiplied with, (heads, dim, dim + shifts), and what is added, (heads, dim + shifts)."""
        wq = rearrange(self.query.weight, "(e c) d -> e c d", e=self.heads)
        wk = torch.zeros_like(wq) if keys is None else rearrange(keys.weight, "(e c) d -> e c d", e=self.heads)
        codes = torch.block_diag(self.row_codes, self.column_codes).T  # (dim, shifts): first half rows, then columns
        against = torch.cat([wk, codes.expand(self.heads, -1, -1)], 2) * wk.shape[1] ** -0.5
        maps = wq.transpose(1, 2) @ against
        if self.query.bias is None:
            added = maps.new_zeros(self.heads, maps.shape[2])
        else:
            added = torch.einsum("ec,ecs->es", self.query.bias.view(self.heads, -1), against)
        if keys is not None and keys.bias is not None:
            added = added + 0 * keys.bias.sum()  # a gradient of zero, not none: weight decay acts on it
        return maps, added

    def probabilities(self, x: Tensor, keys: Keys | None = None) -> Tensor:
        """(n, heads, queries, keys), by the dense path: queries, keys and codes as they are."""
        h, w = x.shape[1:3]
        keys = keys or self.keys(x)
        q = rearrange(self.query(x), "n i j (e c) -> n e i j c", e=self.heads)
        rows, columns = (
            codes[shifts(n, x.device) + self.size - 1]  # (queries, keys, half)
            for codes, n in ((self.row_codes, h), (self.column_codes, w))
        )
        half = rows.shape[-1]
        scores = torch.einsum("neijc,ikc->neijk", q[..., :half], rows)[..., None]
        scores = scores + torch.einsum("neijc,jlc->neijl", q[..., half:], columns)[..., None, :]
        if keys is not None:
            k = rearrange(F.linear(keys.tokens, keys.weight, keys.bias), "n i j (e c) -> n e i j c", e=self.heads)
            scores = scores + torch.einsum("neijc,neklc->neijkl", q, k)
        p = rearrange(scores * q.shape[-1] ** -0.5, "n e i j k l -> n e (i j) (k l)").softmax(-1)
        if self.transposed:
            assert h == w, "only square grids have a transpose of the same shape"
            p = rearrange(p, "n e (j i) (l k) -> n e (i j) (k l)", i=h, k=h)
        return p

    def forward(self, x: Tensor, keys: Keys | None = None) -> Tensor:
        keys = keys or self.keys(x)
        if self.training and self.dropout:
            p = F.dropout(self.probabilities(x, keys), self.dropout, True)
            return dense(x.flatten(1, 2), p, self.value.folded(), self.value.bias).unflatten(1, x.shape[1:3])
        seen = x.transpose(1, 2) if self.transposed else x
        given = (x, x if keys is None else keys.tokens, seen, *self.folded(keys), self.value.folded(), self.size)
        y = (Native if self.training and has_kernel(*given) else Folded).apply(*given)
        return (y.transpose(1, 2) if self.transposed else y) + self.value.bias


class Folded(torch.autograd.Function):
    """One head of a few images at a time. Folded queries and averages are kept; large maps are computed again.

    x asks, k is compared with, v is averaged: all (n, h, w, dim), most often one and the same.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor, v: Tensor, maps: Tensor, added: Tensor, weight: Tensor, size: int
    ) -> Tensor:
        x, k, v = (t.contiguous() for t in (x, k, v))
        n, h, w, d = x.shape
        heads, out, tokens = len(maps), len(weight), h * w
        values = weight.view(out, heads, d).permute(1, 2, 0).contiguous()
        asked = x.new_empty(heads, n, tokens, maps.shape[2])
        means, y, room = x.new_empty(heads, n, tokens, d), x.new_empty(n, h, w, out), _room(x)
        keep = any(ctx.needs_input_grad) and heads * n * tokens**2 <= KEPT
        kept = x.new_empty(heads, n, tokens, tokens) if keep else None
        flat = y.view(-1, out)
        for e in range(heads):
            torch.addmm(added[e], x.view(-1, d), maps[e], out=asked[e].view(-1, maps.shape[2]))
            for part in _parts(n, len(room)):
                p = _map(asked[e, part], k[part], size, room if kept is None else kept[e, part])
                torch.bmm(p, v[part].view(-1, tokens, d), out=means[e, part])
            if e:
                torch.addmm(flat, means[e].view(-1, d), values[e], out=flat)
            else:
                torch.mm(means[e].view(-1, d), values[e], out=flat)
        ctx.save_for_backward(x, k, v, maps, asked, means, weight, kept)
        ctx.size = size
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, k, v, maps, asked, means, weight, kept = ctx.saved_tensors
        n, h, w, d = x.shape
        heads, out, tokens, wide = len(maps), len(weight), h * w, maps.shape[2]
        values = weight.view(out, heads, d).transpose(0, 1).contiguous()
        g = grad.reshape(-1, out)
        gx, gk, gv = (torch.zeros_like(t) for t in (x, k, v))
        gmaps, gadded, gvalues = (torch.zeros_like(t) for t in (maps, maps[:, 0], values))
        gmean, gasked = x.new_empty(n, tokens, d), x.new_zeros(n, tokens, wide)
        room, spare = _room(x), _room(x)
        flat, back = x.view(-1, d), gx.view(-1, d)
        for e in range(heads):
            torch.mm(g.T, means[e].view(-1, d), out=gvalues[e])
            torch.mm(g, values[e], out=gmean.view(-1, d))
            for part in _parts(n, len(room)):
                ki, vi, gki, gvi = (t[part].view(-1, tokens, d) for t in (k, v, gk, gv))
                p = _map(asked[e, part], k[part], ctx.size, room) if kept is None else kept[e, part]
                gp = spare[: len(ki)]
                torch.baddbmm(gvi, p.transpose(1, 2), gmean[part], out=gvi)
                torch.bmm(gmean[part], vi.transpose(1, 2), out=gp)
                gp.sub_((gmean[part] * means[e, part]).sum(2, keepdim=True)).mul_(p)
                gasked[part, :, :d] = torch.bmm(gp, ki)
                torch.baddbmm(gki, gp.transpose(1, 2), asked[e, part, :, :d], out=gki)
                by_row, by_column = _by_key(gasked[part], h, w, d, ctx.size)
                by_row.copy_(gp.view(-1, h, w, h, w).sum(4))
                by_column.copy_(gp.view(-1, h, w, h, w).sum(3))
            torch.mm(flat.T, gasked.view(-1, wide), out=gmaps[e])
            torch.sum(gasked.view(-1, wide), 0, out=gadded[e])
            torch.addmm(back, gasked.view(-1, wide), maps[e].T, out=back)
        return gx, gk, gv, gmaps, gadded, gvalues.transpose(0, 1).reshape(weight.shape), None


def _room(x: Tensor) -> Tensor:
    """For the maps of one head and a few images."""
    tokens = x.shape[1] * x.shape[2]
    return x.new_empty(max(1, min(ROOM // tokens**2, len(x))), tokens, tokens)


def _parts(n: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n, size)]


def _map(asked: Tensor, k: Tensor, size: int, room: Tensor) -> Tensor:
    """The probabilities of one head, in `room`. asked: (n, tokens, dim + shifts), k: (n, h, w, dim)."""
    n, h, w, d = k.shape
    p = room[:n]
    torch.bmm(asked[..., :d], k.view(n, -1, d).transpose(1, 2), out=p)
    by_row, by_column = _by_key(asked, h, w, d, size)
    p.view(n, h, w, h, w).add_(by_row[..., None]).add_(by_column[..., None, :])
    torch.softmax(p, 2, out=p)
    return p


def _by_key(asked: Tensor, h: int, w: int, d: int, size: int) -> tuple[Tensor, Tensor]:
    """The columns of `asked` that belong to shifts, seen by key row (n, h, w, h) and by key column (n, h, w, w): views.

    The score of key row k for a query in row i stands at shift k - i + size - 1, so a step in i is a step back.
    """
    image, line, start = asked.stride(0), asked.stride(1), asked.storage_offset() + d + size - 1
    return (
        asked.as_strided((len(asked), h, w, h), (image, w * line - 1, line, 1), start),
        asked.as_strided((len(asked), h, w, w), (image, w * line, line - 1, 1), start + 2 * size - 1),
    )
