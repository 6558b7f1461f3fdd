"""Attention whose scores depend on positions, after Cordonnier, Loukas, Jaggi (ICLR 2020): averages of the tokens
themselves, then one linear map over all heads side by side.

Scores that are a sum f(row of query, row of key) + g(column of query, column of key) have a softmax that is a product,
so a head is a matrix over rows and one over columns and its map of tokens x tokens is never needed. `separable`
computes with these; `dense` is the reference, and the path where the map itself is wanted or has dropout on it. Exact.
"""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK = 2  # pictures at a time: what a head needs of them stays in cache


def dense(x: Tensor, p: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x: (n, tokens, d). p: (heads, tokens, tokens), or (n, heads, tokens, tokens). weight: (out, heads d)."""
    pattern = "hqk,nkd->nqhd" if p.dim() == 3 else "nhqk,nkd->nqhd"
    return F.linear(torch.einsum(pattern, p, x).flatten(2), weight, bias)


def separable(x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same for p = rows x columns. x: (n, h, w, d). rows: (heads, h, h), columns: (heads, w, w)."""
    return Separable.apply(x, rows, columns, weight, bias)


def product(rows: Tensor, columns: Tensor) -> Tensor:
    """(heads, tokens, tokens) from the two factors."""
    return rearrange(torch.einsum("hik,hjl->hijkl", rows, columns), "e i j k l -> e (i j) (k l)")


class Separable(torch.autograd.Function):
    """A few pictures and one head at a time; the backward pass computes the averages again.

    Matrix products write into buffers made once: torch.matmul of a matrix and a batch would copy first.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        n, h, w, d = x.shape
        heads, out = len(rows), len(weight)
        maps = weight.view(out, heads, d).permute(1, 2, 0)  # (heads, d, out)
        y, start_from = x.new_empty(n, h, w, out), x.new_zeros(out) if bias is None else bias
        room = _room(x, 2)
        for start in range(0, n, CHUNK):
            part, sum_ = x[start : start + CHUNK], y[start : start + CHUNK].view(-1, out)
            t, z = (b[: len(part)] for b in room)
            for e in range(heads):
                _average(part, rows[e], columns[e], t, z)
                torch.addmm(sum_ if e else start_from, z.view(-1, d), maps[e], out=sum_)
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, rows, columns, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, columns, weight = ctx.saved_tensors
        grad = grad.contiguous()
        n, h, w, d = x.shape
        heads, out = len(rows), len(weight)
        gx, gweight = torch.empty_like(x), torch.zeros_like(weight)
        maps, gmaps = (t.view(out, heads, d).transpose(0, 1) for t in (weight, gweight))  # (heads, out, d)
        grows, gcolumns = torch.zeros_like(rows), torch.zeros_like(columns)
        room = _room(x, 4)
        for start in range(0, n, CHUNK):
            part, g = x[start : start + CHUNK], grad[start : start + CHUNK].reshape(-1, out)
            gpart, m = gx[start : start + CHUNK].view(-1, h, w * d), len(part)
            t, z, gz, gt = (b[:m] for b in room)
            for e in range(heads):
                _average(part, rows[e], columns[e], t, z)
                torch.addmm(gmaps[e], g.T, z.view(-1, d), out=gmaps[e])
                torch.mm(g, maps[e], out=gz.view(-1, d))
                gcolumns[e] += torch.bmm(gz.view(-1, w, d), t.view(-1, w, d).transpose(1, 2)).sum(0)
                torch.bmm(columns[e].T.expand(m * h, w, w), gz.view(-1, w, d), out=gt.view(-1, w, d))
                grows[e] += torch.bmm(gt.view(m, h, w * d), part.view(m, h, w * d).transpose(1, 2)).sum(0)
                back = rows[e].T.expand(m, h, h)
                if e:
                    torch.baddbmm(gpart, back, gt.view(m, h, w * d), out=gpart)
                else:
                    torch.bmm(back, gt.view(m, h, w * d), out=gpart)
        gbias = grad.sum((0, 1, 2)) if ctx.has_bias else None
        return gx, grows, gcolumns, gweight, gbias


def _room(x: Tensor, count: int) -> list[Tensor]:
    return [x.new_empty(min(CHUNK, len(x)), *x.shape[1:]) for _ in range(count)]


def _average(x: Tensor, row: Tensor, column: Tensor, t: Tensor, z: Tensor) -> None:
    """t: averaged over rows; z: then over columns."""
    m, h, w, d = x.shape
    torch.bmm(row.expand(m, h, h), x.view(m, h, w * d), out=t.view(m, h, w * d))
    torch.bmm(column.expand(m * h, w, w), t.view(-1, w, d), out=z.view(-1, w, d))


class QuadraticAttention(nn.Module):
    """Each head looks at a Gaussian around a learned shift, cut off at the border. x: (n, h, w, dim) -> (n, h, w, out).

    Isotropic heads separate. With a 2x2 spread the precision is spread spread^T, whose cross term does not.
    """

    def __init__(self, dim: int, heads: int, out: int, *, isotropic: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.isotropic, self.dropout = isotropic, dropout
        self.centre = nn.Parameter(2 * torch.randn(heads, 2))
        start = torch.ones(heads) if isotropic else torch.eye(2).repeat(heads, 1, 1)
        self.spread = nn.Parameter(start + 0.01 * torch.randn(start.shape))
        self.value = nn.Linear(heads * dim, out)

    def factors(self, h: int, w: int) -> tuple[Tensor, Tensor]:
        assert self.isotropic, "only isotropic heads separate"
        rows, columns = (torch.softmax(-0.5 * self.spread.square()[:, None, None] * (
            _shifts(size, self.centre) - self.centre[:, axis, None, None]).square(), -1)
            for axis, size in enumerate((h, w)))
        return rows, columns

    def probabilities(self, h: int, w: int) -> Tensor:
        """(heads, queries, keys), by the dense path."""
        far = _offsets(h, w, self.centre) - self.centre[:, None, None]  # (heads, queries, keys, 2)
        if self.isotropic:
            scores = self.spread.square()[:, None, None] * far.square().sum(-1)
        else:
            scores = torch.einsum("eqki,eij->eqkj", far, self.spread).square().sum(-1)
        return torch.softmax(-0.5 * scores, -1)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[1:3]
        if self.isotropic and not (self.training and self.dropout):
            return separable(x, *self.factors(h, w), self.value.weight, self.value.bias)
        p = F.dropout(self.probabilities(h, w), self.dropout, self.training)  # one mask for the whole batch
        return dense(x.flatten(1, 2), p, self.value.weight, self.value.bias).unflatten(1, (h, w))


class LearnedPositionAttention(nn.Module):
    """Scores from learned codes of the row shift and of the column shift, without content; no scaling.

    x: (n, h, w, dim) -> (n, h, w, out), for grids up to `size`.
    """

    def __init__(self, dim: int, heads: int, out: int, *, size: int = 16, width: int = 400,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.size, self.dropout = size, dropout
        self.row_codes, self.column_codes = (nn.Parameter(torch.randn(2 * size - 1, width)) for _ in range(2))
        self.row_heads, self.column_heads = (nn.Linear(width, heads, bias=False) for _ in range(2))
        self.value = nn.Linear(heads * dim, out)

    def scores(self, h: int, w: int) -> tuple[Tensor, Tensor]:
        """(heads, h, h) and (heads, w, w)."""
        by_shift = self.row_heads(self.row_codes).T, self.column_heads(self.column_codes).T
        rows, columns = (s[:, shifts(n, s.device) + self.size - 1] for s, n in zip(by_shift, (h, w), strict=True))
        return rows, columns

    def factors(self, h: int, w: int) -> tuple[Tensor, Tensor]:
        rows, columns = self.scores(h, w)
        return rows.softmax(-1), columns.softmax(-1)

    def probabilities(self, h: int, w: int) -> Tensor:
        """(heads, queries, keys), by the dense path."""
        rows, columns = self.scores(h, w)
        scores = rows[:, :, None, :, None] + columns[:, None, :, None, :]
        return rearrange(scores, "e i j k l -> e (i j) (k l)").softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[1:3]
        if not (self.training and self.dropout):
            return separable(x, *self.factors(h, w), self.value.weight, self.value.bias)
        p = F.dropout(self.probabilities(h, w).expand(len(x), -1, -1, -1), self.dropout, True)  # a mask a picture
        return dense(x.flatten(1, 2), p, self.value.weight, self.value.bias).unflatten(1, (h, w))


def shifts(size: int, device: torch.device) -> Tensor:
    """(queries, keys): key minus query along one axis."""
    at = torch.arange(size, device=device)
    return at[None] - at[:, None]


def _shifts(size: int, like: Tensor) -> Tensor:
    return shifts(size, like.device).to(like.dtype)


def _offsets(h: int, w: int, like: Tensor) -> Tensor:
    """(queries, keys, 2): row and column shift of every pair of tokens."""
    rows, columns = _shifts(h, like), _shifts(w, like)
    both = torch.broadcast_tensors(rows[:, None, :, None], columns[None, :, None, :])
    return torch.stack([rearrange(s, "i j k l -> (i j) (k l)") for s in both], -1)
