"""Rows: exact layers against their dense references, forward and backward with all gradients."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measure import Pair, difference
from benchmarks.pure import without_kernels
from saccade.layers import kernels
from saccade.layers.content_attention import ContentAttention, Keys
from saccade.layers.conv_pool import conv_relu_pool
from saccade.layers.local_aggregation import aggregate, unfolded
from saccade.layers.pairwise_attention import PairwiseAttention
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention, dense

TORCH = f"torch {torch.__version__}"
Layer = QuadraticAttention | LearnedPositionAttention | ContentAttention
Run = Callable[[nn.Module, Tensor], Tensor]


def both_ways(forward: Run, layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The output and the gradients of the input and of all parameters."""
    y = forward(layer, x)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters()], _arriving(y.shape, y.dtype))]


@functools.lru_cache(maxsize=2)
def _arriving(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A gradient of the output; kept, so that neither side's time or memory has its making in it."""
    return torch.linspace(-1, 1, shape.numel(), dtype=dtype).reshape(shape)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype).requires_grad_()


def by_map(layer: nn.Module, x: Tensor, keys: Keys | None = None) -> Tensor:
    """The dense path: the whole map of probabilities, heads side by side, one linear map."""
    assert isinstance(layer, Layer)
    p = layer.probabilities(x, keys) if isinstance(layer, ContentAttention) else layer.probabilities(*x.shape[1:3])
    return dense(x.flatten(1, 2), p, layer.value.folded(), layer.value.bias).view(*x.shape[:3], -1)


def as_is(layer: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = layer(x)
    return y


def attention(kind: type[Layer], name: str, n: int, aim: float, memory_aim: float | None) -> Pair:
    torch.manual_seed(0)
    layer, x = kind(400, 9, 400), numbers(n, 16, 16, 400)
    exact, few = copy.deepcopy(layer).double(), numbers(2, 16, 16, 400, dtype=torch.float64)

    def error() -> float:
        mine, theirs = (
            [y.flatten(1) if y.dim() > 1 else y for y in both_ways(run, exact, few)] for run in (as_is, by_map)
        )
        if isinstance(exact, ContentAttention):  # the keys' bias has a gradient of zero: taken with the queries'
            names = ["out", "x", *(name for name, _ in exact.named_parameters())]
            at = [names.index("query.bias"), names.index("key.bias")]
            mine, theirs = (
                [*(t for i, t in enumerate(ts) if i not in at), torch.cat([ts[i] for i in at])] for ts in (mine, theirs)
            )
        return difference(mine, theirs)

    return Pair(
        name,
        f"9 heads, 16x16 tokens, width 400, batch {n}",
        f"the dense path, {TORCH}",
        aim,
        lambda: both_ways(as_is, layer, x),
        lambda: both_ways(by_map, layer, x),
        "outputs and all gradients, float64",
        error,
        1e-12,
        memory_aim,
    )


def _either(native: bool) -> tuple[str, torch.dtype, float, Callable[[], contextlib.AbstractContextManager[None]]]:
    """How the path is called, and where it is compared. Kernels know float32 only; pure torch is exact in float64."""
    if native:
        return "C kernel", torch.float32, 1e-4, contextlib.nullcontext
    return "pure torch", torch.float64, 1e-11, without_kernels


def aggregation(n: int, native: bool) -> Pair | str:
    name, (path, dtype, tolerance, context) = "SAN aggregation", _either(native)
    setting = f"64 channels, 8 to a weight, 7x7, 32x32, batch {n}, {path}"
    if native and (why := kernels.why_not()):
        return f"{name} ({setting}): no kernel, {why}"

    def make(n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return numbers(n, 64, 38, 38, dtype=dtype), numbers(n, 8, 49, 32, 32, dtype=dtype)

    def run(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, weights: Tensor) -> list[Tensor]:
        with context():
            y = function(x, weights)
            return [y, *torch.autograd.grad(y, [x, weights], torch.ones_like(y))]

    timed, compared = make(n, torch.float32), make(2, dtype)
    return Pair(
        name,
        setting,
        f"F.unfold, {TORCH}",
        12.0,
        lambda: run(aggregate, *timed),
        lambda: run(unfolded, *timed),
        f"outputs and all gradients, {str(dtype)[6:]}",
        lambda: difference(run(aggregate, *compared), run(unfolded, *compared)),
        tolerance,
        8.0,
        counted=False,
    )


def pairwise(n: int, native: bool) -> Pair | str:
    name, (path, dtype, tolerance, context) = "SAN pairwise layer", _either(native)
    setting = f"64 channels, 7x7, 32x32, batch {n}, {path}"
    if native and (why := kernels.why_not()):
        return f"{name} ({setting}): no kernel, {why}"
    torch.manual_seed(0)
    layer, x = PairwiseAttention(64, 7), numbers(n, 64, 32, 32)
    compared, few = copy.deepcopy(layer).to(dtype), numbers(2, 64, 32, 32, dtype=dtype)
    # Equal positions lie exactly on the kink of the ReLU when biases are zero, where rounding decides the gradient.
    for norm in (compared.norm1, compared.norm2):
        nn.init.uniform_(norm.bias, 0.1, 0.9)

    def ours(layer: nn.Module, x: Tensor) -> list[Tensor]:
        with context():
            return both_ways(as_is, layer, x)

    def naive(layer: nn.Module, x: Tensor) -> list[Tensor]:
        assert isinstance(layer, PairwiseAttention)
        return both_ways(lambda _, x: layer.dense(x), layer, x)

    def error() -> float:
        names = ["out", "x", *(name for name, _ in compared.named_parameters())]
        # Their gradients are zero: what they add is taken out by a normalisation or by the softmax.
        zero = {"phi.bias", "psi.bias", "position.bias", "last.bias"}
        mine, theirs = (
            [t for name, t in zip(names, run(compared, few), strict=True) if name not in zero] for run in (ours, naive)
        )
        return difference(mine, theirs)

    return Pair(
        name,
        setting,
        f"the naive layer, {TORCH}",
        3.0,
        lambda: ours(layer, x),
        lambda: naive(layer, x),
        f"outputs and all gradients, {str(dtype)[6:]}",
        error,
        tolerance,
        1.0,
        counted=False,
    )


def small_convolution(n: int) -> Pair | str:
    name, setting = "small convolution, ReLU and pooling", f"3 to 6 channels, 5x5, 32x32, batch {n}, C kernel"
    if why := kernels.why_not():
        return f"{name} ({setting}): no kernel, {why}"
    torch.manual_seed(0)
    conv, x = nn.Conv2d(3, 6, 5), numbers(n, 3, 32, 32)
    # Where two places of a window are almost equal, rounding decides which one wins: compared on whole numbers.
    whole, few = copy.deepcopy(conv), torch.randint(-4, 5, (4, 3, 32, 32)).float().requires_grad_()
    for p in whole.parameters():
        p.data = torch.randint(-3, 4, p.shape).float()

    def theirs(layer: nn.Module, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(layer(x)), 2)

    return Pair(
        name,
        setting,
        f"Conv2d, relu, max_pool2d, {TORCH}",
        2.0,
        lambda: both_ways(conv_relu_pool, conv, x),
        lambda: both_ways(theirs, conv, x),
        "outputs and all gradients, float32",
        lambda: difference(both_ways(conv_relu_pool, whole, few), both_ways(theirs, whole, few)),
        1e-6,
        counted=False,
    )


def cases(quick: bool) -> list[Callable[[], Pair | str]]:
    n, less = (10, None) if quick else (50, 5.0)  # the weights' own gradients hide the saving in a small batch
    kinds: list[tuple[type[Layer], str, int, float, float | None]] = [
        (QuadraticAttention, "quadratic attention layer", n, 1.6, less),
        (LearnedPositionAttention, "learned positions without content, layer", n, 1.5, less),
    ]
    if not quick:
        kinds.append((ContentAttention, "learned positions with content, layer", 8, 1.1, None))
    made: list[Callable[[], Pair | str]] = [functools.partial(attention, *kind) for kind in kinds]
    made += [functools.partial(make, 8, native) for make in (aggregation, pairwise) for native in (False, True)]
    return made if quick else [*made, functools.partial(small_convolution, 16)]
