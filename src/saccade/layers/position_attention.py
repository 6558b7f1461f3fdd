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

from saccade.layers import separable_kernel

CHUNK = 0  # images at a time; 0: as many as stay in cache
ROOM = 6 * 16 * 16 * 400  # numbers that do, of what a head needs


def dense(x: Tensor, p: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x: (n, tokens, d). p: (heads, tokens, tokens), or (n, heads, tokens, tokens). weight: (out, heads d)."""
    pattern = "hqk,nkd->nqhd" if p.dim() == 3 else "nhqk,nkd->nqhd"
    return F.linear(torch.einsum(pattern, p, x).flatten(2), weight, bias)


def separable(
    x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None = None, *, native: bool = False
) -> Tensor:
    """The same for p = rows x columns. x: (n, h, w, d). rows: (heads, queries, h), columns: (heads, queries, w).

    native: by the C kernel, if there is one and it has room.
    """
    if native and separable_kernel.has_kernel(x, rows, columns, weight, bias):
        return separable_kernel.attend(x, rows, columns, weight, bias)
    return Separable.apply(x, rows, columns, weight, bias)


def product(rows: Tensor, columns: Tensor) -> Tensor:
    """(heads, tokens, tokens) from the two factors."""
    return rearrange(torch.einsum("hik,hjl->hijkl", rows, columns), "e i j k l -> e (i j) (k l)")


class Separable(torch.autograd.Function):
    """A few images and one head at a time; the backward pass computes the averages again.

    Matrix products write into buffers made once: torch.matmul of a matrix and a batch would copy first.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        n, d = len(x), x.shape[3]
        heads, out, h, w = len(rows), len(weight), rows.shape[1], columns.shape[1]
        maps = weight.view(out, heads, d).permute(1, 2, 0)  # (heads, d, out)
        y, start_from = x.new_empty(n, h, w, out), x.new_zeros(out) if bias is None else bias
        chunk = _chunk(x)
        room = _room(x, chunk, h, w)
        for start in range(0, n, chunk):
            part, sum_ = x[start : start + chunk], y[start : start + chunk].view(-1, out)
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
        n, height, width, d = x.shape
        heads, out, h, w = len(rows), len(weight), rows.shape[1], columns.shape[1]
        gx, gweight = torch.empty_like(x), torch.zeros_like(weight)
        maps, gmaps = (t.view(out, heads, d).transpose(0, 1) for t in (weight, gweight))  # (heads, out, d)
        grows, gcolumns = torch.zeros_like(rows), torch.zeros_like(columns)
        chunk = _chunk(x)
        room = _room(x, chunk, h, w)
        for start in range(0, n, chunk):
            part, g = x[start : start + chunk], grad[start : start + chunk].reshape(-1, out)
            m = len(part)
            flat, gpart = (a.view(m, height, width * d) for a in (part, gx[start : start + chunk]))
            t, z = (b[:m] for b in room)  # and later their gradients: each is no longer needed when its own is made
            for e in range(heads):
                _average(part, rows[e], columns[e], t, z)
                torch.addmm(gmaps[e], g.T, z.view(-1, d), out=gmaps[e])
                torch.mm(g, maps[e], out=z.view(-1, d))
                gcolumns[e] += torch.bmm(z.view(-1, w, d), t.view(-1, width, d).transpose(1, 2)).sum(0)
                torch.bmm(columns[e].T.expand(m * h, width, w), z.view(-1, w, d), out=t.view(-1, width, d))
                grows[e] += torch.bmm(t.view(m, h, width * d), flat.transpose(1, 2)).sum(0)
                back = rows[e].T.expand(m, height, h)
                if e:
                    torch.baddbmm(gpart, back, t.view(m, h, width * d), out=gpart)
                else:
                    torch.bmm(back, t.view(m, h, width * d), out=gpart)
        gbias = grad.sum((0, 1, 2)) if ctx.has_bias else None
        return gx, grows, gcolumns, gweight, gbias


def _chunk(x: Tensor) -> int:
    return min(CHUNK or max(1, ROOM // x[0].numel()), len(x)) or 1


def _room(x: Tensor, chunk: int, h: int, w: int) -> list[Tensor]:
    """For averages over rows, and then over columns, of a chunk."""
    return [x.new_empty(chunk, h, x.shape[2], x.shape[3]), x.new_empty(chunk, h, w, x.shape[3])]


def _average(x: Tensor, row: Tensor, column: Tensor, t: Tensor, z: Tensor) -> None:
    """t: averaged over rows; z: then over columns."""
    m, height, width, d = x.shape
    h, w = len(row), len(column)
    torch.bmm(row.expand(m, h, height), x.view(m, height, width * d), out=t.view(m, h, width * d))
    torch.bmm(column.expand(m * h, w, width), t.view(-1, width, d), out=z.view(-1, w, d))


class Values(nn.Linear):
    """What heads have averaged, side by side (..., heads dim), to (..., out).

    With `maps`, each head first maps tokens to values of its own; averages commute with that, so the two maps of a
    head act as one.
    """

    def __init__(self, dim: int, heads: int, out: int, maps: bool = False) -> None:
        super().__init__(heads * dim, out)
        self.maps = nn.Linear(dim, heads * dim, bias=False) if maps else None

    def folded(self) -> Tensor:
        """(out, heads dim)."""
        if self.maps is None:
            return self.weight
        dim = self.maps.in_features
        both = self.weight.view(len(self.weight), -1, dim).transpose(0, 1) @ self.maps.weight.view(-1, dim, dim)
        return both.transpose(0, 1).flatten(1)


class QuadraticAttention(nn.Module):
    """Each head looks at a Gaussian around a learned shift, cut off at the border. x: (n, h, w, dim) -> (n, h, w, out).

    Isotropic heads separate. With a 2x2 spread the precision is spread spread^T, whose cross term does not.
    `additive_centre` is a published slip: the second linear coefficient is c + centre instead of c centre, c being
    the precision along columns.
    """

    undecayed = ("centre", "spread")

    def __init__(
        self,
        dim: int,
        heads: int,
        out: int,
        *,
        isotropic: bool = True,
        dropout: float = 0.0,
        additive_centre: bool = False,
        value_maps: bool = False,
    ) -> None:
        super().__init__()
        self.isotropic, self.dropout, self.additive_centre = isotropic, dropout, additive_centre
        self.centre = nn.Parameter(2 * torch.randn(heads, 2))
        start = torch.ones(heads) if isotropic else torch.eye(2).repeat(heads, 1, 1)
        self.spread = nn.Parameter(start + 0.01 * torch.randn(start.shape))
        self.value = Values(dim, heads, out, value_maps)

    def precision(self) -> Tensor:
        """(heads, 2, 2): inverse covariance of each head's Gaussian, rows first."""
        if self.isotropic:
            return self.spread.square()[:, None, None] * torch.eye(2).to(self.spread)
        return self.spread @ self.spread.transpose(1, 2)

    def factors(self, h: int, w: int) -> tuple[Tensor, Tensor]:
        assert self.isotropic, "only isotropic heads separate"
        sharp = self.spread.square()[:, None, None]
        far = [_shifts(size, self.centre) - self.centre[:, axis, None, None] for axis, size in enumerate((h, w))]
        scores = [-0.5 * sharp * f.square() for f in far]
        if self.additive_centre:
            across = _shifts(w, self.centre)
            scores[1] = (sharp + self.centre[:, 1, None, None]) * across - 0.5 * sharp * across.square()
        rows, columns = (torch.softmax(s, -1) for s in scores)
        return rows, columns

    def probabilities(self, h: int, w: int) -> Tensor:
        """(heads, queries, keys), by the dense path."""
        offsets = _offsets(h, w, self.centre)  # (queries, keys, 2)
        far = offsets - self.centre[:, None, None]
        if self.isotropic:
            scores = self.spread.square()[:, None, None] * far.square().sum(-1)
        else:
            scores = torch.einsum("eqki,eij->eqkj", far, self.spread).square().sum(-1)
        scores = -0.5 * scores
        if self.additive_centre:  # what stands there instead of c centre
            c, centre = self.precision()[:, 1, 1], self.centre[:, 1]
            scores = scores + (c + centre - c * centre)[:, None, None] * offsets[..., 1]
        return torch.softmax(scores, -1)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[1:3]
        if self.isotropic and not (self.training and self.dropout):
            return separable(x, *self.factors(h, w), self.value.folded(), self.value.bias, native=self.training)
        p = F.dropout(self.probabilities(h, w), self.dropout, self.training)  # one mask for the whole batch
        return dense(x.flatten(1, 2), p, self.value.folded(), self.value.bias).unflatten(1, (h, w))


class LearnedPositionAttention(nn.Module):
    """Scores from learned codes of the row shift and of the column shift, without content; no scaling.

    x: (n, h, w, dim) -> (n, h, w, out), for grids up to `size`. A head's bias is the same for all shifts and cancels.
    """

    position_codes = (("row_codes", -2), ("column_codes", -2))

    def __init__(
        self,
        dim: int,
        heads: int,
        out: int,
        *,
        size: int = 16,
        width: int = 400,
        dropout: float = 0.0,
        bias: bool = False,
        value_maps: bool = False,
    ) -> None:
        super().__init__()
        self.size, self.dropout = size, dropout
        self.row_codes, self.column_codes = (nn.Parameter(torch.randn(2 * size - 1, width)) for _ in range(2))
        self.row_heads, self.column_heads = (nn.Linear(width, heads, bias=bias) for _ in range(2))
        self.value = Values(dim, heads, out, value_maps)

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
            return separable(x, *self.factors(h, w), self.value.folded(), self.value.bias, native=self.training)
        p = F.dropout(self.probabilities(h, w).expand(len(x), -1, -1, -1), self.dropout, True)  # one mask per image
        return dense(x.flatten(1, 2), p, self.value.folded(), self.value.bias).unflatten(1, (h, w))


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
