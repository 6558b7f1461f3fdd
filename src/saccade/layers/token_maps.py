"""What a transformer does to each token by itself, in training, as one C function: norm, linear map, GELU, linear map.

A step of a small transformer is mostly such maps. torch does them one after another over all tokens, each pass through
memory, with a few calls in autograd for each; the kernel takes some rows at a time through all of them, and adds up the
weights' gradients on the way back. Where there is no kernel, or in evaluation, the modules themselves are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from saccade.layers import kernels

WIDEST = 1024  # channels; with more, weights leave the near caches and torch's own products are as fast


def linear(x: Tensor, map_: nn.Linear, norm: nn.LayerNorm | None = None, plus: Tensor | None = None) -> Tensor:
    """map_(norm(x)) + plus. A map alone is torch's own: its product of matrices is as fast."""
    if (norm or plus is not None) and _native(x, [map_, *([norm] if norm else [])], plus):
        return Fused.apply(x, *_of(norm), map_.weight, map_.bias, None, None, plus, norm.eps if norm else 0.0)
    y = map_(norm(x) if norm else x)
    return y if plus is None else plus + y


def mlp(x: Tensor, layers: nn.Sequential, norm: nn.LayerNorm | None = None, plus: Tensor | None = None) -> Tensor:
    """layers(norm(x)) + plus; fused where layers are a linear map, GELU and a linear map, and dropouts of nothing."""
    plain = [layer for layer in layers if not (isinstance(layer, nn.Dropout) and layer.p == 0)]
    if len(plain) == 3 and isinstance(plain[1], nn.GELU) and plain[1].approximate == "none":
        first, gelu, second = plain
        if (
            _native(x, [first, second, *([norm] if norm else [])], plus)
            and not _watched(layers, gelu)
            and first.bias is not None
            and second.bias is not None
        ):
            assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
            maps = first.weight, first.bias, second.weight, second.bias
            return Fused.apply(x, *_of(norm), *maps, plus, norm.eps if norm else 0.0)
    y = layers(norm(x) if norm else x)
    return y if plus is None else plus + y


def _native(x: Tensor, layers: list[nn.Module], plus: Tensor | None) -> bool:
    """Whether these run in C. Layers that somebody watches (hooks) or has replaced must be called as modules."""
    for layer in layers:
        if not layer.training or type(layer) not in (nn.Linear, nn.LayerNorm) or _watched(layer):
            return False
        weight, bias = layer.weight, layer.bias
        if not isinstance(weight, Tensor) or max(weight.shape) > WIDEST or not kernels.takes(weight):
            return False
        if type(layer) is nn.LayerNorm and (bias is None or layer.normalized_shape != x.shape[-1:]):
            return False
    tensors = (x,) if plus is None else (x, plus)
    return kernels.takes(*tensors) and not torch.is_autocast_enabled("cpu") and kernels.token_maps() is not None


def _watched(*layers: nn.Module) -> bool:
    return any(
        layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
        for layer in layers
    )


def _of(norm: nn.LayerNorm | None) -> tuple[Tensor | None, Tensor | None]:
    return (norm.weight, norm.bias) if norm else (None, None)


class Fused(torch.autograd.Function):
    """Float32 on the CPU only. x (..., in). nw, nb: of the norm, or None. w2, b2: of the second map, or None."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        nw: Tensor | None,
        nb: Tensor | None,
        w1: Tensor,
        b1: Tensor | None,
        w2: Tensor | None,
        b2: Tensor | None,
        plus: Tensor | None,
        eps: float,
    ) -> Tensor:
        ctx.same = plus is not None and plus is x
        x, out = x.contiguous(), (w1 if w2 is None else w2).shape[0]
        plus = None if plus is None else x if ctx.same else plus.contiguous()
        rows, inside = x.numel() // x.shape[-1], 0 if w2 is None else len(w1)
        y, stats = x.new_empty(*x.shape[:-1], out), None if nw is None else x.new_empty(rows, 2)
        h = None if w2 is None else x.new_empty(rows, inside)
        sizes = rows, x.shape[-1], inside, out
        given = zip((nw, nb, w1, b1, w2, b2), _shapes(*sizes[1:]), strict=True)
        _kernel().forward(
            _address(x, x.shape),
            *(_address(p, shape) for p, shape in given),
            _address(plus, y.shape),
            _address(stats, (rows, 2)),
            _address(h, (rows, inside)),
            _address(y, y.shape),
            *sizes,
            eps,
        )
        ctx.save_for_backward(x, nw, nb, w1, b1, w2, b2, stats, h)
        ctx.sizes, ctx.plus = sizes, plus is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, nw, nb, w1, b1, w2, b2, stats, h = ctx.saved_tensors
        grad = grad.contiguous()
        asked = nw is not None or ctx.needs_input_grad[0]
        gx = torch.empty_like(x) if asked else None
        found = [None if p is None else torch.empty_like(p) for p in (nw, nb, w1, b1, w2, b2)]
        rows, _, inside, out = ctx.sizes
        shapes = _shapes(*ctx.sizes[1:])
        given = ((p, shapes[i]) for i, p in enumerate((nw, nb, w1, b1, w2, b2)) if i not in (3, 5))  # not the biases
        _kernel().backward(
            _address(x, x.shape),
            *(_address(p, shape) for p, shape in given),
            _address(stats, (rows, 2)),
            _address(h, (rows, inside)),
            _address(grad, (*x.shape[:-1], out)),
            _address(gx, x.shape),
            *(_address(p, shape) for p, shape in zip(found, shapes, strict=True)),
            int(ctx.same and asked),
            *ctx.sizes,
        )
        return gx, *found, grad if ctx.plus and not ctx.same else None, None


def _kernel() -> Any:
    library = kernels.token_maps()
    assert library is not None, "_native() is asked before"
    return library


def _shapes(wide: int, inside: int, out: int) -> tuple[tuple[int, ...], ...]:
    """Of the norm's weight and bias, and of the maps' weights and biases."""
    first = inside or out
    return (wide,), (wide,), (first, wide), (first,), (out, inside), (out,)


def _address(t: Tensor | None, shape: Sequence[int]) -> int | None:
    return None if t is None else kernels.address(t, shape)
