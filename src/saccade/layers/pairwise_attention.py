"""SAN's pairwise self-attention (subtraction), after Zhao, Jia, Koltun (CVPR 2020), without unfolding anything.

Weights come from [phi(x_i) - psi(x_j); p_i - p_j] by two normalisations, two 1x1 maps and a softmax over the
neighbourhood. Three things make it cheap, all exact: the first normalisation's statistics follow from box sums of phi
and psi; positions do not depend on the picture, so their branch is done once; and a 1x1 map of two parts side by side
is the sum of two maps. What is left is done one shift at a time on maps that stay in cache. `dense` is the reference.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from saccade.kernels import neighbourhoods
from saccade.layers.local_aggregation import aggregate, padded, unfolded, views

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

    def __init__(self, channels: int, size: int = 7, *, share: int = 8, bias: bool = True,
                 own_keys: bool = True) -> None:
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
        p = self.position(_coordinates(h, w, x))
        q, k, pk = (t.flatten(2).unsqueeze(2) if i == 0 else
                    F.unfold(padded(t, self.size), self.size).view(len(t), -1, area, h * w)
                    for i, t in enumerate((self.phi(x), keys, p)))
        apart = (p.flatten(2).unsqueeze(2) - pk).expand(n, -1, -1, -1)
        z = F.relu(self.norm1(torch.cat([q - k, apart], 1)))
        return self.last(F.relu(self.norm2(self.mix(z)))).softmax(2).unflatten(3, (h, w))

    def dense(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        return unfolded(padded(self.beta(x), self.size), self.weights(x, keys))

    def forward(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        return self.attend(*self.maps(x, keys))

    def attend(self, phi: Tensor, psi: Tensor, beta: Tensor) -> Tensor:
        n, _, h, w = phi.shape
        psi, beta = padded(psi, self.size), padded(beta, self.size)
        p = self.position(_coordinates(h, w, phi))
        around = F.unfold(padded(p, self.size), self.size).view(2, -1, h, w)  # one small picture: cheap
        apart = p[0, :, None] - around
        mean, var = self._statistics(phi, psi, apart)
        scale = self.norm1.weight * torch.rsqrt(var + self.norm1.eps)
        shift = self.norm1.bias - mean * scale
        seen, spot = (m.flatten(1) for m in self.mix.weight.split((self.inner, 2), 1))
        where = F.relu(apart * scale[self.inner :, None, None, None] + shift[self.inner :, None, None, None])
        where = torch.einsum("rc,cohw->orhw", spot, where)
        a, c = (t[: self.inner, None, None] for t in (scale, shift))
        assert self.last.bias is not None
        weights, mean2, var2 = _path(phi, self.inner, self.last.out_channels).apply(
            phi * a + c, psi * a, seen, where, self.norm2.weight, self.norm2.bias, self.last.weight.flatten(1),
            None if self.training else (self.norm2.running_mean, self.norm2.running_var), self.norm2.eps)
        if self.training:
            self._remember(self.norm2, mean2, var2, n * self.size**2 * h * w)
        # The last map's bias is one number for a whole neighbourhood and cancels: a gradient of zero, not none.
        return aggregate(beta, weights) + 0 * self.last.bias.sum()

    def _statistics(self, phi: Tensor, psi: Tensor, apart: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the first normalisation, from box sums instead of all differences."""
        if not self.training:
            assert self.norm1.running_mean is not None and self.norm1.running_var is not None
            return self.norm1.running_mean, self.norm1.running_var
        # A pixel counts as often as it lies in a neighbourhood. Centred, the square of a difference opens up safely.
        often = _windows(psi.shape[2], self.size, psi)[:, None] * _windows(psi.shape[3], self.size, psi)
        often = often / often.sum()
        mean_phi, mean_psi = phi.mean((0, 2, 3)), torch.einsum("nrhw,hw->r", psi, often) / len(psi)
        a, b = phi - mean_phi[:, None, None], psi - mean_psi[:, None, None]
        squares = (a * (a - 2 * Box.apply(b, self.size))).mean((0, 2, 3))
        squares = squares + torch.einsum("nrhw,hw->r", b.square(), often) / len(psi)
        var_apart, mean_apart = torch.var_mean(apart, (1, 2, 3), correction=0)
        mean = torch.cat([mean_phi - mean_psi, mean_apart])
        var = torch.cat([squares, var_apart])
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


class Box(torch.autograd.Function):
    """Means over all size x size windows, by shifted sums along one axis and then the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int) -> Tensor:
        ctx.size = size
        h, w = x.shape[-2] - size + 1, x.shape[-1] - size + 1
        wide = x[..., :w].clone()
        for j in range(1, size):
            wide += x[..., j : j + w]
        out = wide[..., :h, :].clone()
        for i in range(1, size):
            out += wide[..., i : i + h, :]
        return out.div_(size**2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return Box.apply(F.pad(grad, (ctx.size - 1,) * 4), ctx.size), None


class Weights(torch.autograd.Function):
    """softmax over shifts of last(relu(norm(seen relu(phi - psi) + where))), one shift at a time.

    phi: (n, r, h, w); psi padded; seen: (r, r); where: (area, r, h, w); last: (s, r). Gives (n, s, area, h, w) and the
    mean and variance that were used. Inside, channels come first, so that a 1x1 map is one matrix product.
    """

    @staticmethod
    def forward(ctx: Any, phi: Tensor, psi: Tensor, seen: Tensor, where: Tensor, gain: Tensor, offset: Tensor,
                last: Tensor, known: tuple[Tensor, Tensor] | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        phi, psi = (rearrange(t, "n r h w -> r n h w").contiguous() for t in (phi, psi))
        r, n, h, w = phi.shape
        area, size = len(where), psi.shape[2] - h + 1
        room, mixed = torch.empty_like(phi), phi.new_empty(area, r, n, h, w)
        spot, total, squares = where, phi.new_zeros(r), phi.new_zeros(r, r)
        for o, view in enumerate(views(psi, size)):
            torch.sub(phi, view, out=room).relu_()
            torch.mm(seen, room.view(r, -1), out=mixed[o].view(r, -1))
            mixed[o] += spot[o][:, None]
            if o == 0:  # what is added to all is taken out by the normalisation, so sums are taken near zero
                middle = mixed[0].view(r, -1).mean(1)
                mixed[0] -= middle[:, None, None, None]
                spot = where - middle[:, None, None]
            total += mixed[o].view(r, -1).sum(1)
            squares.addmm_(mixed[o].view(r, -1), mixed[o].view(r, -1).T)
        count = mixed[:, 0].numel()
        mean = total / count
        var = squares.diagonal() / count - mean.square()
        if known is not None:
            mean, var = known[0] - middle, known[1]
        scale = gain * torch.rsqrt(var + eps)
        a, c = scale[:, None], (offset - mean * scale)[:, None]
        p = phi.new_empty(area, len(last), n, h, w)
        for o in range(area):
            torch.addcmul(c, mixed[o].view(r, -1), a, out=room.view(r, -1)).relu_()
            torch.mm(last, room.view(r, -1), out=p[o].view(len(last), -1))
        p = torch.softmax(p, 0)
        ctx.save_for_backward(phi, psi, seen, where, last, mean, var, a, c, mixed, p)
        ctx.trained, ctx.eps = known is None, eps
        used = mean + middle, var
        ctx.mark_non_differentiable(*used)
        return rearrange(p, "o s n h w -> n s o h w"), *used

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        phi, psi, seen, where, last, mean, var, a, c, mixed, p = ctx.saved_tensors
        r, n, h, w = phi.shape
        area, s, size = len(where), len(last), psi.shape[2] - h + 1
        g = rearrange(grad, "n s o h w -> o s n h w").contiguous()
        g = g.sub_((g * p).sum(0)).mul_(p).view(area, s, -1)
        flat, room, spare = mixed.view(area, r, -1), phi.new_empty(r, phi[0].numel()), phi.new_empty(r, phi[0].numel())
        gnormed, glast = torch.empty_like(flat), torch.zeros_like(last)
        total, along = phi.new_zeros(r), phi.new_zeros(r, r)
        for o in range(area):
            torch.addcmul(c, flat[o], a, out=room).relu_()
            glast.addmm_(g[o], room.T)
            torch.mm(last.T, g[o], out=spare)
            torch.ops.aten.threshold_backward.grad_input(spare, room, 0, grad_input=gnormed[o])
            total += gnormed[o].sum(1)
            along.addmm_(gnormed[o], flat[o].T)
        inverse = torch.rsqrt(var + ctx.eps)
        ggain = (along.diagonal() - mean * total) * inverse
        # d mixed = scale (gnormed - its mean - normed * mean of gnormed normed): one gain a channel on each of three.
        by_grad, by_self, by_one = a, torch.zeros_like(a), torch.zeros_like(a)
        if ctx.trained:
            count = flat[:, 0].numel()
            by_self = -a * (inverse * ggain / count)[:, None]
            by_one = -a * (total / count)[:, None] - by_self * mean[:, None]
        gphi, gpsi = torch.zeros_like(phi), torch.zeros_like(psi)
        gseen, gwhere = torch.zeros_like(seen), torch.empty_like(where)
        kept, back = torch.empty_like(phi), torch.empty_like(phi)
        for o, (view, gview) in enumerate(zip(views(psi, size), views(gpsi, size), strict=True)):
            torch.addcmul(by_one, flat[o], by_self, out=room).addcmul_(gnormed[o], by_grad)
            torch.sum(room.view(r, n, h, w), 1, out=gwhere[o])
            torch.sub(phi, view, out=kept).relu_()
            gseen.addmm_(room, kept.view(r, -1).T)
            torch.mm(seen.T, room, out=spare)
            torch.ops.aten.threshold_backward.grad_input(spare.view(r, n, h, w), kept, 0, grad_input=back)
            gphi += back
            gview -= back
        gphi, gpsi = (rearrange(t, "r n h w -> n r h w") for t in (gphi, gpsi))
        return gphi, gpsi, gseen, gwhere, ggain, total, glast, None, None


class Native(torch.autograd.Function):
    """The same by the C kernel; float32 on the CPU only. Nothing of size (n, r, area, h, w) is ever written."""

    @staticmethod
    def forward(ctx: Any, phi: Tensor, psi: Tensor, seen: Tensor, where: Tensor, gain: Tensor, offset: Tensor,
                last: Tensor, known: tuple[Tensor, Tensor] | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        phi, psi, seen, where, last = (t.contiguous() for t in (phi, psi, seen, where, last))
        (n, r, h, w), area = phi.shape, len(where)
        run, shape = _kernel(r, len(last)), (n, h, w, psi.shape[2] - h + 1)
        middle = torch.zeros_like(gain)
        if known is None:
            # Near zero, where squares keep their digits: the normalisation takes out what is added to all.
            middle = torch.mv(seen, F.relu(phi - psi[:, :, :h, :w]).mean((0, 2, 3))) + where.mean((0, 2, 3))
            where = where - middle[:, None, None]
            sums = torch.zeros(2, r, dtype=torch.float64)
            run.moments(*map(_pointer, (phi, psi, seen, where, sums)), *shape)
            sums /= n * area * h * w
            mean, var = sums[0].to(phi.dtype), (sums[1] - sums[0].square()).to(phi.dtype)
        else:
            mean, var = known
        a = gain * torch.rsqrt(var + eps)
        c = offset - mean * a
        p = phi.new_empty(n, len(last), area, h, w)
        run.logits(*map(_pointer, (phi, psi, seen, where, a, c, last, p)), *shape)
        p.sub_(p.amax(2, keepdim=True)).exp_()
        p.div_(p.sum(2, keepdim=True))
        ctx.save_for_backward(phi, psi, seen, where, last, mean, var, a, c, p)
        ctx.trained, ctx.eps = known is None, eps
        used = mean + middle, var.clone()
        ctx.mark_non_differentiable(*used)
        return p, *used

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        phi, psi, seen, where, last, mean, var, a, c, p = ctx.saved_tensors
        (n, r, h, w), area, s = phi.shape, len(where), len(last)
        run, shape = _kernel(r, s), (n, h, w, psi.shape[2] - h + 1)
        g = grad * p
        g.addcmul_(p, g.sum(2, keepdim=True), value=-1)
        sums = torch.zeros(2 + s, r, dtype=torch.float64)
        run.gather(*map(_pointer, (phi, psi, seen, where, a, c, last, g, sums)), *shape)
        total, along, glast = sums[0], sums[1], sums[2:]
        inverse = torch.rsqrt(var.double() + ctx.eps)
        ggain = (along - mean * total) * inverse
        by_self, by_one = torch.zeros_like(a), torch.zeros_like(a)
        if ctx.trained:
            count = n * area * h * w
            by_self = (-a * inverse * ggain / count).to(a.dtype)
            by_one = (-a * total / count - by_self * mean).to(a.dtype)
        gphi, gpsi, gwhere = torch.zeros_like(phi), torch.zeros_like(psi), torch.zeros_like(where)
        gseen = torch.zeros(r, r, dtype=torch.float64)
        into = (gseen, gwhere, gphi, gpsi)
        run.scatter(*map(_pointer, (phi, psi, seen, where, a, c, last, g, a, by_self, by_one, *into)), *shape)
        small = (t.to(phi.dtype) for t in (ggain, total, glast))
        return gphi, gpsi, gseen.to(phi.dtype), gwhere, *small, None, None


def _path(x: Tensor, inner: int, shared: int) -> type[Weights] | type[Native]:
    native = x.device.type == "cpu" and x.dtype == torch.float32 and neighbourhoods.pairwise(inner, shared) is not None
    return Native if native else Weights


def _kernel(inner: int, shared: int) -> ctypes.CDLL:
    library = neighbourhoods.pairwise(inner, shared)
    assert library is not None, "_path() checks that the kernel exists before it comes here"
    return library


def _pointer(t: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(t.data_ptr())


def _windows(length: int, size: int, like: Tensor) -> Tensor:
    """In how many windows each place of a padded line lies."""
    at = torch.arange(1, length + 1, dtype=like.dtype, device=like.device)
    return torch.minimum(at, length + 1 - at).clamp(max=min(size, length + 1 - size))


def _coordinates(h: int, w: int, like: Tensor) -> Tensor:
    """(1, 2, h, w): column and row from -1 to 1."""
    rows, columns = (torch.linspace(-1, 1, n, dtype=like.dtype, device=like.device) for n in (h, w))
    return torch.stack(torch.broadcast_tensors(columns[None], rows[:, None]))[None]
