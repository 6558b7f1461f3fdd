"""SAN's pairwise self-attention (subtraction), after Zhao, Jia, Koltun (CVPR 2020), without unfolding anything.

Weights come from [phi(x_i) - psi(x_j); p_i - p_j] by two normalisations, two 1x1 maps and a softmax over the
neighbourhood. Three things make it cheap, all exact: the first normalisation's statistics follow from means over
windows of phi and psi; the second's from those of what is mixed, before it is mixed, and so does all that comes back
through them; and positions are two more channels of phi and psi. So of all that has a value for each pixel and shift
only the weights need be kept, and by the C kernel not even these. `dense` is the reference.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.layers import kernels
from saccade.layers.kernels import neighbourhoods
from saccade.layers.local_aggregation import padded, reflected, unfolded, views

Known = tuple[Tensor, Tensor] | None  # a normalisation's mean and variance where they do not come from the batch
NO_KEYS = "this layer has no keys of its own and must be given some"


class NeighbourhoodMaps(nn.Module):
    """Queries phi, keys psi and values beta of both kinds of SAN; without keys of its own it must be given some.

    x: (n, channels, h, w) -> (n, channels / 4, h, w) in the layers made of it; reflection padding.
    """

    def __init__(self, channels: int, size: int, bias: bool, own_keys: bool) -> None:
        super().__init__()
        self.size, self.inner, self.out = size, channels // 16, channels // 4
        self.phi = nn.Conv2d(channels, self.inner, 1, bias=bias)
        self.psi = nn.Conv2d(channels, self.inner, 1, bias=bias) if own_keys else None
        self.beta = nn.Conv2d(channels, self.out, 1, bias=bias)

    def maps(self, x: Tensor, keys: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """phi, psi (the keys, where given) and beta."""
        if keys is None:
            assert self.psi is not None, NO_KEYS
            phi, psi, beta = side_by_side(x, self.phi, self.psi, self.beta)
            return phi, psi, beta
        phi, beta = side_by_side(x, self.phi, self.beta)
        return phi, keys, beta


class PairwiseAttention(NeighbourhoodMaps):
    """`share` channels have one weight."""

    def __init__(
        self, channels: int, size: int = 7, *, share: int = 8, bias: bool = True, own_keys: bool = True
    ) -> None:
        super().__init__(channels, size, bias, own_keys)
        inner, out = self.inner, self.out
        self.position = nn.Conv2d(2, 2, 1)
        self.norm1, self.norm2 = nn.BatchNorm2d(inner + 2), nn.BatchNorm2d(inner)
        self.mix, self.last = nn.Conv2d(inner + 2, inner, 1, bias=False), nn.Conv2d(inner, out // share, 1)

    def weights(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        """(n, out / share, size size, h, w), by the dense path: everything unfolded and side by side."""
        if keys is None:
            assert self.psi is not None, NO_KEYS
            keys = self.psi(x)
        n, _, h, w = x.shape
        area = self.size**2
        p = self.position(_coordinates(h, w, x.dtype, x.device))
        q, k, pk = (
            t.flatten(2).unsqueeze(2)
            if i == 0
            else F.unfold(padded(t, self.size), self.size).view(len(t), -1, area, h * w)
            for i, t in enumerate((self.phi(x), keys, p))
        )
        apart = (p.flatten(2).unsqueeze(2) - pk).expand(n, -1, -1, -1)
        z = F.relu(self.norm1(torch.cat([q - k, apart], 1)))
        return self.last(F.relu(self.norm2(self.mix(z)))).softmax(2).unflatten(3, (h, w))

    def dense(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        return unfolded(padded(self.beta(x), self.size), self.weights(x, keys))

    def forward(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        return self.attend(*self.maps(x, keys))

    def attend(self, phi: Tensor, psi: Tensor, beta: Tensor) -> Tensor:
        n, _, h, w = phi.shape
        mean, var = self._statistics(phi, psi)
        scale = (self.norm1.weight * torch.rsqrt(var + self.norm1.eps))[:, None, None]
        # A position's bias cancels between two of them, the last map's in the softmax: gradients of zero, not none.
        assert self.position.bias is not None and self.last.bias is not None
        nothing = 0 * (self.position.bias.sum() + self.last.bias.sum())
        shift = (self.norm1.bias - mean * scale[:, 0, 0] + nothing)[:, None, None]
        places = _coordinates(h, w, phi.dtype, phi.device).flatten(2)[0]
        place = torch.mm(self.position.weight.flatten(1), places).view(-1, h, w).expand(n, -1, -1, -1)
        phi, psi = torch.cat([phi, place], 1) * scale + shift, torch.cat([psi, place], 1) * scale
        known = None if self.training else (self.norm2.running_mean, self.norm2.running_var)
        path = _path((phi, psi, beta), self.inner, self.last.out_channels, self.size)
        if path is Shifted:  # the kernel pads itself
            psi, beta = padded(psi, self.size), padded(beta, self.size)
        out, mean2, var2 = path.apply(
            phi,
            psi,
            beta,
            self.mix.weight.flatten(1),
            self.norm2.weight,
            self.norm2.bias,
            self.last.weight.flatten(1),
            known,
            self.norm2.eps,
            self.size,
        )
        if self.training:
            self._remember(self.norm2, mean2, var2, n * self.size**2 * h * w)
        y: Tensor = out
        return y

    def _statistics(self, phi: Tensor, psi: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the first normalisation, from means over windows instead of all differences."""
        if not self.training:
            assert self.norm1.running_mean is not None and self.norm1.running_var is not None
            return self.norm1.running_mean, self.norm1.running_var
        mean_seen, var_seen = Differences.apply(phi, psi, self.size)
        mean_apart, var_apart = _apart(*phi.shape[2:], self.size, phi.dtype, phi.device)
        weight = self.position.weight.flatten(1)
        mean = torch.cat([mean_seen, weight @ mean_apart])
        var = torch.cat([var_seen, weight.square() @ var_apart])
        self._remember(self.norm1, mean, var, phi[:, 0].numel() * self.size**2)
        return mean, var

    @staticmethod
    @torch.no_grad()
    def _remember(norm: nn.BatchNorm2d, mean: Tensor, var: Tensor, count: int) -> None:
        assert norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None
        assert norm.momentum is not None
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(var * (count / (count - 1)), norm.momentum)


def side_by_side(x: Tensor, *layers: nn.Conv2d) -> tuple[Tensor, ...]:
    """1x1 convolutions of one map as one matrix product: torch's own to this few channels is slow."""
    weight = torch.cat([layer.weight.flatten(1) for layer in layers]).expand(len(x), -1, -1)
    if layers[0].bias is None:
        y = torch.bmm(weight, x.flatten(2))
    else:
        bias = torch.cat([layer.bias for layer in layers if layer.bias is not None])
        y = torch.baddbmm(bias[:, None], weight, x.flatten(2))
    return y.unflatten(2, x.shape[2:]).split([layer.out_channels for layer in layers], 1)


class Differences(torch.autograd.Function):
    """Mean and variance, a channel each, of phi minus psi at all neighbours: from means over windows."""

    @staticmethod
    def forward(ctx: Any, phi: Tensor, psi: Tensor, size: int) -> tuple[Tensor, Tensor]:
        rows, columns = (_windows(length, size, phi.dtype, phi.device) for length in phi.shape[2:])
        often = rows.mean(0)[:, None] * columns.mean(0)  # how often a key lies in a neighbourhood
        mean_phi, mean_psi = phi.mean((0, 2, 3)), (psi.mean(0) * often).sum((1, 2))
        a, b = phi - mean_phi[:, None, None], psi - mean_psi[:, None, None]  # centred, squares open up safely
        around = a - rows @ b @ columns.T
        var = (a * (2 * around - a)).mean((0, 2, 3)) + (b.square().mean(0) * often).sum((1, 2))
        ctx.save_for_backward(a, b, around, often, rows, columns)
        return mean_phi - mean_psi, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gmean: Tensor, gvar: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b, around, often, rows, columns = ctx.saved_tensors
        one, two = (g[:, None, None] / a[:, 0].numel() for g in (gmean, 2 * gvar))
        back = often * often.numel()
        return one + two * around, two * (b * back - rows.T @ a @ columns) - one * back, None


class Shifted(torch.autograd.Function):
    """From queries, keys and values on, one shift at a time for the whole batch.

    out = sum of beta times softmax over shifts of last(relu(norm(mix t))), t = relu(phi - psi). phi: (n, t, h, w); psi
    and beta padded; mix: (r, t); last: (s, r). Gives (n, channels of beta, h, w) and the mean and variance that the
    normalisation used. These, and their part of the gradients, follow from the average and the covariance of t. Inside,
    channels come first, so that a 1x1 map is one matrix product, and t has a channel of ones, which adds offsets.
    """

    @staticmethod
    def forward(
        ctx: Any,
        phi: Tensor,
        psi: Tensor,
        beta: Tensor,
        mix: Tensor,
        gain: Tensor,
        offset: Tensor,
        last: Tensor,
        known: Known,
        eps: float,
        size: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k = (rearrange(x, "n t h w -> t n h w").contiguous() for x in (phi, psi))
        v = rearrange(beta, "n (g s) h w -> g s n h w", s=len(last)).contiguous()
        t, n, h, w = q.shape
        room = q.new_ones(t + 1, n, h, w)
        kept, flat, keys = room[:t], room.view(t + 1, -1), list(views(k, size))
        average = cov = q.new_zeros(0)
        if known is None:
            middle = F.relu(q - keys[0]).mean((1, 2, 3))  # squares keep their digits near zero
            centred, least = q - middle[:, None, None, None], -middle[:, None, None, None]
            products, turned = q.new_zeros(t + 1, t + 1), flat.T
            for view in keys:
                torch.maximum(torch.sub(centred, view, out=kept), least, out=kept)
                products.addmm_(flat, turned)
            products /= products[t, t].clone()
            average, cov = products[t, :t] + middle, products[:t, :t] - torch.outer(products[t, :t], products[t, :t])
        first, used, norm = norm_of(mix, gain, offset, average, cov, known, eps)
        z, p = q.new_empty(len(mix), n * h * w), q.new_empty(size**2, len(last), n * h * w)
        for view, logits in zip(keys, p.unbind(), strict=True):
            torch.sub(q, view, out=kept).relu_()
            torch.mm(last, torch.mm(first, flat, out=z).relu_(), out=logits)
        p.sub_(p.amax(0)).exp_()
        p.mul_(p.sum(0).reciprocal_())
        out = q.new_zeros(len(v), len(last), n, h, w)
        for view, weight in zip(views(v, size), p.view(-1, *out.shape[1:]).unbind(), strict=True):
            out.addcmul_(view, weight)
        ctx.save_for_backward(q, k, v, first, last, out, p, *norm)
        ctx.mark_non_differentiable(*used)
        return rearrange(out, "g s n h w -> n (g s) h w"), *used

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, first, last, out, p, *norm = ctx.saved_tensors
        (t, n, h, w), (s, r), size = q.shape, last.shape, k.shape[2] - q.shape[2] + 1
        grad = rearrange(grad, "n (g s) h w -> g s n h w", s=s).contiguous()
        inner = (grad * out).sum(0)
        gq, gk, gv = (torch.zeros_like(x) for x in (q, k, v))
        wide, gp, gt = (torch.empty_like(x) for x in (grad, inner, q))
        room = q.new_ones(t + 1, n, h, w)
        z, gz = (q.new_empty(r, n * h * w) for _ in range(2))
        glast, products = torch.zeros_like(last), torch.zeros_like(first)
        # Views of all these, made once: in loops as short as these the making would show.
        kept, flat, g, gflat = room[:t], room.view(t + 1, -1), gp.view(s, -1), gt.view(t, -1)
        turned, zturned, lturned, back = flat.T, z.T, last.T, first[:, :t].T
        keys, gkeys = (list(views(x, size)) for x in (k, gk))
        weights = p.view(-1, s, n, h, w).unbind()
        for o, (value, gvalue) in enumerate(zip(views(v, size), views(gv, size), strict=True)):
            gvalue.addcmul_(grad, weights[o])
            torch.sum(torch.mul(grad, value, out=wide), 0, out=gp)
            gp.sub_(inner).mul_(weights[o])
            torch.sub(q, keys[o], out=kept).relu_()
            torch.mm(first, flat, out=z).relu_()
            glast.addmm_(g, zturned)
            torch.mm(lturned, g, out=gz)
            _where_positive(gz, z)
            products.addmm_(gz, turned)
            torch.mm(back, gz, out=gflat)
            _where_positive(gt, kept)
            gq += gt
            gkeys[o] -= gt
        gmix, ggain, by_t = through_norm(products, n * h * w * size**2, *norm)
        for o in range(size**2 if len(by_t) else 0):
            torch.sub(q, keys[o], out=kept).relu_()
            torch.mm(by_t, flat, out=gflat)
            _where_positive(gt, kept)
            gq += gt
            gkeys[o] -= gt
        gphi, gpsi = (rearrange(x, "t n h w -> n t h w") for x in (gq, gk))
        gbeta = rearrange(gv, "g s n h w -> n (g s) h w")
        return gphi, gpsi, gbeta, gmix, ggain, products[:, t].clone(), glast, None, None, None


_threshold_backward = torch.ops.aten.threshold_backward.grad_input


def _where_positive(grad: Tensor, x: Tensor) -> None:
    _threshold_backward(grad, x, 0, grad_input=grad)


def norm_of(
    mix: Tensor, gain: Tensor, offset: Tensor, average: Tensor, cov: Tensor, known: Known, eps: float
) -> tuple[Tensor, tuple[Tensor, Tensor], list[Tensor]]:
    """The normalisation of mix t, with its map, as one map of [t; 1]; the mean and variance it uses; what is kept.

    Both follow from the average and the covariance of t, unless they are known.
    """
    across = mix @ cov if known is None else cov
    mean, var = (mix @ average, (across * mix).sum(1)) if known is None else (known[0].clone(), known[1].clone())
    inverse = torch.rsqrt(var + eps)
    normed = torch.cat([mix, -mean[:, None]], 1).mul_(inverse[:, None])
    first = normed * gain[:, None]
    first[:, -1] += offset
    return first, (mean, var), [mix, gain, inverse, normed, average, across]


def through_norm(
    products: Tensor,
    count: int,
    mix: Tensor,
    gain: Tensor,
    inverse: Tensor,
    normed: Tensor,
    average: Tensor,
    across: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of mix and of the gain, and the matrix by which that of t still misses a map of [t; 1].

    products: (r, t + 1), sums of what arrives at the normalised maps times [t; 1]. Nothing is missing where the
    statistics were known (average is empty). Else d (mix t) = a (g - mean of g - normed * mean of g normed).
    """
    a, total, ggain = (gain * inverse)[:, None], products[:, -1:], (products * normed).sum(1)
    if not len(average):
        return a * products[:, :-1], ggain, products[:0]
    gmix = a * (products[:, :-1] - (ggain * inverse)[:, None] * across - total * average)
    missing = normed * ggain[:, None]
    missing[:, -1:] += total
    return gmix, ggain, mix.T @ (missing * (-a / count))


class Native(torch.autograd.Function):
    """The same by the C kernel; float32 on the CPU only. Nothing of size (n, ..., area, h, w) is ever written."""

    @staticmethod
    def forward(
        ctx: Any,
        phi: Tensor,
        psi: Tensor,
        beta: Tensor,
        mix: Tensor,
        gain: Tensor,
        offset: Tensor,
        last: Tensor,
        known: Known,
        eps: float,
        size: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        phi, mix, last = (x.contiguous() for x in (phi, mix, last))
        (n, t, h, w), s = phi.shape, len(last)
        run, shape = _kernel(len(mix), s), (n, h, w, size)
        psi, beta = (_pad(run, x, size) for x in (psi, beta))
        to = _Addresses(run, *shape, len(mix), s, beta.shape[1] // s)
        average, cov = torch.empty(0), torch.empty(0)
        if known is None:
            average, cov = torch.empty(t, dtype=torch.float64), torch.empty(t, t, dtype=torch.float64)
            run.moments(to.phi(phi), to.psi(psi), to.sums(average, t), to.sums(cov, t, t), *shape)
        first, (mean, var), norm = norm_of(mix.double(), gain, offset, average, cov, known, eps)
        first = first.to(mix.dtype)
        out, top, part = (phi.new_empty(n, channels, h, w) for channels in (beta.shape[1], s, s))
        run.forward(*to.maps(phi, psi, beta, first, last, out, top, part), *shape, to.groups)
        ctx.save_for_backward(phi, psi, beta, first, last, out, top, part, *norm)
        ctx.size, mean, var = size, mean.to(mix.dtype), var.to(mix.dtype)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        phi, psi, beta, first, last, out, top, part, *norm = ctx.saved_tensors
        (n, t, h, w), (s, r) = phi.shape, last.shape
        run, shape = _kernel(r, s), (n, h, w, ctx.size)
        to = _Addresses(run, *shape, r, s, beta.shape[1] // s)
        glast, products = torch.zeros(s, r, dtype=torch.float64), torch.zeros(r, t + 1, dtype=torch.float64)
        gphi, gpsi, gbeta = (torch.zeros_like(x) for x in (phi, psi, beta))
        grad = grad.contiguous()  # with a name, for a pointer does not keep its tensor
        run.gather(
            *to.maps(phi, psi, beta, first, last, out, top, part),
            to.out(grad),
            to.sums(glast, s, r),
            to.sums(products, r, t + 1),
            to.phi(gphi),
            to.psi(gpsi),
            to.beta(gbeta),
            *shape,
            to.groups,
        )
        gmix, ggain, by_t = through_norm(products, n * h * w * ctx.size**2, *norm)
        if len(by_t):
            by_t = by_t.to(first.dtype).contiguous()
            run.spread(to.phi(phi), to.psi(psi), kernels.address(by_t, (t, t + 1)), to.phi(gphi), to.psi(gpsi), *shape)
        small = (x.to(first.dtype) for x in (gmix, ggain, products[:, t], glast))
        gpsi, gbeta = (_fold(run, x, w, ctx.size) for x in (gpsi, gbeta))
        return gphi, gpsi, gbeta, *small, None, None, None


@dataclass(frozen=True)
class _Addresses:
    """Where each array of the kernel begins, after a look at its shape. Two of the channels of phi are positions."""

    run: ctypes.CDLL
    n: int
    h: int
    w: int
    size: int
    inner: int
    shared: int
    groups: int

    def maps(
        self,
        phi: Tensor,
        psi: Tensor,
        beta: Tensor,
        first: Tensor,
        last: Tensor,
        out: Tensor,
        top: Tensor,
        part: Tensor,
    ) -> tuple[int, ...]:
        return (
            self.phi(phi),
            self.psi(psi),
            self.beta(beta),
            kernels.address(first, (self.inner, self.inner + 3)),
            kernels.address(last, (self.shared, self.inner)),
            self.out(out),
            kernels.address(top, (self.n, self.shared, self.h, self.w)),
            kernels.address(part, (self.n, self.shared, self.h, self.w)),
        )

    def phi(self, x: Tensor) -> int:
        return kernels.address(x, (self.n, self.inner + 2, self.h, self.w))

    def psi(self, x: Tensor) -> int:
        return kernels.address(x, (self.n, self.inner + 2, *_rim(self.run, self.h, self.w, self.size)))

    def beta(self, x: Tensor) -> int:
        return kernels.address(x, (self.n, self.groups * self.shared, *_rim(self.run, self.h, self.w, self.size)))

    def out(self, x: Tensor) -> int:
        return kernels.address(x, (self.n, self.groups * self.shared, self.h, self.w))

    def sums(self, x: Tensor, *shape: int) -> int:
        return kernels.address(x, shape, torch.float64)


def _rim(run: ctypes.CDLL, h: int, w: int, size: int) -> tuple[int, int]:
    """Height and width of a map with its rim, rows as long as the kernel wants them."""
    return h + size - 1, run.padded_row(w, size)


def _pad(run: ctypes.CDLL, x: Tensor, size: int) -> Tensor:
    """As `padded`, with longer rows."""
    x, (n, channels, h, w) = x.contiguous(), x.shape
    out = x.new_empty(n, channels, *_rim(run, h, w, size))
    run.pad(kernels.address(x, (n, channels, h, w)), kernels.address(out, out.shape), n * channels, h, w, size)
    return out


def _fold(run: ctypes.CDLL, x: Tensor, w: int, size: int) -> Tensor:
    n, channels, h = *x.shape[:2], x.shape[2] - size + 1
    out = x.new_zeros(n, channels, h, w)
    around = kernels.address(x, (n, channels, *_rim(run, h, w, size)))
    run.fold(around, kernels.address(out, out.shape), n * channels, h, w, size)
    return out


def _path(maps: Sequence[Tensor], inner: int, shared: int, size: int) -> type[Shifted] | type[Native]:
    native = (
        size <= neighbourhoods.LARGEST and kernels.takes(*maps) and neighbourhoods.pairwise(inner, shared) is not None
    )
    return Native if native else Shifted


def _kernel(inner: int, shared: int) -> ctypes.CDLL:
    library = neighbourhoods.pairwise(inner, shared)
    assert library is not None, "_path() checks that the kernel exists before it comes here"
    return library


@functools.lru_cache(maxsize=16)
@torch.inference_mode(False)  # what is remembered here must serve training too
def _windows(length: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(length, length): a row times a line is the line's mean over the window there, the line reflected at its ends."""
    at = F.one_hot(reflected(length, size // 2, device), length).to(dtype)
    return at.unfold(0, size, 1).mean(-1)


@functools.lru_cache(maxsize=16)
@torch.inference_mode(False)
def _apart(h: int, w: int, size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and variance of how far a pixel's column and its row, from -1 to 1, are from those of its neighbours.

    The two are uncorrelated, for columns are the same in all rows; so those of any map of both follow.
    """
    facts = []
    for length in (w, h):
        line = torch.linspace(-1, 1, length, dtype=torch.float64)
        around = line[reflected(length, size // 2, line.device)].unfold(0, size, 1)
        facts.append(torch.var_mean(line[:, None] - around, correction=0))
    var, mean = (torch.stack(fact).to(device, dtype) for fact in zip(*facts, strict=True))
    return mean, var


@functools.lru_cache(maxsize=16)
@torch.inference_mode(False)
def _coordinates(h: int, w: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(1, 2, h, w): column and row from -1 to 1."""
    rows, columns = (torch.linspace(-1, 1, n, dtype=dtype, device=device) for n in (h, w))
    return torch.stack(torch.broadcast_tensors(columns[None], rows[:, None]))[None]
