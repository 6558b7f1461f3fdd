"""Attention with relative positions and content, after Cordonnier, Loukas, Jaggi (ICLR 2020), as wide a head as the
tokens: q.(k + codes) where the codes are of the row shift and of the column shift.

With W_q and W_k folded into one matrix a head, keys are the tokens themselves, and the codes are projected once onto
the shifts: a 16x16 grid has 31 along each axis. The keys' bias cancels in the softmax. Exact.
"""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers.position_attention import dense, shifts


class ContentAttention(nn.Module):
    """x: (n, h, w, dim) -> (n, h, w, out), for grids up to `size`. Heads average the tokens, `value` maps them."""

    def __init__(self, dim: int, heads: int, out: int, *, size: int = 16, bias: bool = True,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.size, self.dropout = heads, size, dropout
        self.query, self.key = (nn.Linear(dim, heads * dim, bias=bias) for _ in range(2))
        self.row_codes = nn.Parameter(torch.randn(2 * size - 1, dim // 2))
        self.column_codes = nn.Parameter(torch.randn(2 * size - 1, dim - dim // 2))
        self.value = nn.Linear(heads * dim, out)

    def folded(self) -> tuple[Tensor, Tensor]:
        """What a token is multiplied with, (heads, dim, dim + shifts), and what is added, (heads, dim + shifts)."""
        wq, wk = (rearrange(layer.weight, "(e c) d -> e c d", e=self.heads) for layer in (self.query, self.key))
        codes = torch.block_diag(self.row_codes, self.column_codes).T  # (dim, shifts): first half rows, then columns
        against = torch.cat([wk, codes.expand(self.heads, -1, -1)], 2) * wk.shape[1] ** -0.5
        maps = wq.transpose(1, 2) @ against
        if self.query.bias is None or self.key.bias is None:
            return maps, maps.new_zeros(self.heads, maps.shape[2])
        added = torch.einsum("ec,ecs->es", self.query.bias.view(self.heads, -1), against)
        return maps, added + 0 * self.key.bias.sum()  # a gradient of zero, not none: weight decay acts on it

    def probabilities(self, x: Tensor) -> Tensor:
        """(n, heads, queries, keys), by the dense path: queries, keys and codes as they are."""
        h, w = x.shape[1:3]
        q, k = (rearrange(layer(x), "n i j (e c) -> n e i j c", e=self.heads) for layer in (self.query, self.key))
        rows, columns = (codes[shifts(n, x.device) + self.size - 1]  # (queries, keys, half)
                         for codes, n in ((self.row_codes, h), (self.column_codes, w)))
        half = rows.shape[-1]
        scores = torch.einsum("neijc,neklc->neijkl", q, k)
        scores = scores + torch.einsum("neijc,ikc->neijk", q[..., :half], rows)[..., None]
        scores = scores + torch.einsum("neijc,jlc->neijl", q[..., half:], columns)[..., None, :]
        return rearrange(scores * q.shape[-1] ** -0.5, "n e i j k l -> n e (i j) (k l)").softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.dropout):
            y = Folded.apply(x, *self.folded(), self.value.weight, self.size)
            return y if self.value.bias is None else y + self.value.bias
        p = F.dropout(self.probabilities(x), self.dropout, True)
        return dense(x.flatten(1, 2), p, self.value.weight, self.value.bias).unflatten(1, x.shape[1:3])


class Folded(torch.autograd.Function):
    """One head of one picture at a time. Folded queries and averages are kept, the map is computed again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, maps: Tensor, added: Tensor, weight: Tensor, size: int) -> Tensor:
        x = x.contiguous()
        n, h, w, d = x.shape
        heads, out, tokens = len(maps), len(weight), h * w
        values = weight.view(out, heads, d).permute(1, 2, 0).contiguous()
        asked = x.new_empty(heads, n, tokens, maps.shape[2])
        means, y, p = x.new_empty(heads, n, tokens, d), x.new_empty(n, h, w, out), x.new_empty(tokens, tokens)
        for e in range(heads):
            torch.addmm(added[e], x.view(-1, d), maps[e], out=asked[e].view(-1, maps.shape[2]))
            for i in range(n):
                _map(asked[e, i], x[i], size, p)
                torch.mm(p, x[i].view(tokens, d), out=means[e, i])
            flat = y.view(-1, out)
            if e:
                torch.addmm(flat, means[e].view(-1, d), values[e], out=flat)
            else:
                torch.mm(means[e].view(-1, d), values[e], out=flat)
        ctx.save_for_backward(x, maps, asked, means, weight)
        ctx.size = size
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, maps, asked, means, weight = ctx.saved_tensors
        n, h, w, d = x.shape
        heads, out, tokens, wide = len(maps), len(weight), h * w, maps.shape[2]
        values = weight.view(out, heads, d).transpose(0, 1).contiguous()
        g = grad.reshape(-1, out)
        gx, gmaps, gadded, gvalues = (torch.zeros_like(t) for t in (x, maps, maps[:, 0], values))
        gmean, gasked = x.new_empty(n, tokens, d), x.new_zeros(n, tokens, wide)
        p, gp = x.new_empty(tokens, tokens), x.new_empty(tokens, tokens)
        flat, back = x.view(-1, d), gx.view(-1, d)
        for e in range(heads):
            torch.mm(g.T, means[e].view(-1, d), out=gvalues[e])
            torch.mm(g, values[e], out=gmean.view(-1, d))
            for i in range(n):
                xi, gxi = x[i].view(tokens, d), gx[i].view(tokens, d)
                _map(asked[e, i], x[i], ctx.size, p)
                torch.addmm(gxi, p.T, gmean[i], out=gxi)
                torch.mm(gmean[i], xi.T, out=gp)
                gp.sub_((gmean[i] * means[e, i]).sum(1, keepdim=True)).mul_(p)
                torch.mm(gp, xi, out=gasked[i, :, :d])
                torch.addmm(gxi, gp.T, asked[e, i, :, :d], out=gxi)
                by_row, by_column = _by_key(gasked[i], h, w, d, ctx.size)
                by_row.copy_(gp.view(h, w, h, w).sum(3))
                by_column.copy_(gp.view(h, w, h, w).sum(2))
            torch.mm(flat.T, gasked.view(-1, wide), out=gmaps[e])
            torch.sum(gasked.view(-1, wide), 0, out=gadded[e])
            torch.addmm(back, gasked.view(-1, wide), maps[e].T, out=back)
        return gx, gmaps, gadded, gvalues.transpose(0, 1).reshape(weight.shape), None


def _map(asked: Tensor, x: Tensor, size: int, p: Tensor) -> None:
    """Into p: the probabilities of one head and picture. asked: (tokens, dim + shifts), x: (h, w, dim)."""
    h, w, d = x.shape
    torch.mm(asked[:, :d], x.view(-1, d).T, out=p)
    by_row, by_column = _by_key(asked, h, w, d, size)
    p.view(h, w, h, w).add_(by_row[..., None]).add_(by_column[:, :, None, :])
    torch.softmax(p, 1, out=p)


def _by_key(asked: Tensor, h: int, w: int, d: int, size: int) -> tuple[Tensor, Tensor]:
    """The columns of `asked` that belong to shifts, seen by key row (h, w, h) and by key column (h, w, w): views.

    The score of key row k for a query in row i stands at shift k - i + size - 1, so a step in i is a step back.
    """
    line, start = asked.stride(0), asked.storage_offset() + d + size - 1
    return (asked.as_strided((h, w, h), (w * line - 1, line, 1), start),
            asked.as_strided((h, w, w), (w * line, line - 1, 1), start + 2 * size - 1))
