"""Can attention compute any convolution?   theorem and lemma of Cordonnier, Loukas, Jaggi (ICLR 2020)"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from einops import rearrange
from torch import Tensor, nn

from saccade import rng
from saccade.analysis import convolution
from saccade.arguments import Count, Range, Width
from saccade.data.images import Source
from saccade.layers.content_attention import ContentAttention
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention, product
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import Subject

SIDE, CHANNELS, OUT = 12, 6, 5
BORDERS = ("zeros", "replicate", "valid")


@probe(version=1, milestones=False, fact_seconds=5)
def convolution_theorem(
    subject: Subject | None,
    data: Source,
    *,
    kernels: Sequence[Width] = (1, 2, 3, 4, 5),
    trials: Count = 3,
    alphas: Sequence[Annotated[float, Range(above=0)]] = (1, 2, 5, 10, 20, 40),
) -> Iterator[Row]:
    """Errors of random convolutions made into attention, leakage of a head by alpha, and which maps are products.

    No trained model is looked at: these are identities, checked with random weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.seed_of(data.seed, "theorem"))
        yield from _equalities(kernels, trials)
        yield from _leakage(alphas)
        yield from _doubled()
        yield from _products()


def _equalities(kernels: Sequence[int], trials: int) -> Iterator[Row]:
    for dtype in (torch.float64, torch.float32):
        for kernel in kernels:
            worst = {"": 0.0, "dilated": 0.0, "strided": 0.0}
            for _ in range(trials):
                x = torch.randn(2, CHANNELS, SIDE, SIDE, dtype=dtype)
                for border in BORDERS:
                    for twist, more in (("", {}), ("dilated", {"dilation": 2}), ("strided", {"stride": 2})):
                        conv = _conv(kernel, border, dtype, **more)
                        worst[twist] = max(worst[twist], difference(conv, convolution.to_attention(conv), x))
            for twist, value in worst.items():
                yield Row(
                    "theorem_error",
                    value,
                    trials * len(BORDERS),
                    Settings(kernel=kernel, dtype=str(dtype)[6:], twist=twist),
                )


def _conv(kernel: int, border: str, dtype: torch.dtype, dilation: int = 1, stride: int = 1) -> nn.Conv2d:
    pad = 0 if border == "valid" else dilation * (kernel - 1) // 2
    if border == "replicate":
        return nn.Conv2d(CHANNELS, OUT, kernel, stride, pad, dilation, padding_mode="replicate", dtype=dtype)
    return nn.Conv2d(CHANNELS, OUT, kernel, stride, pad, dilation, dtype=dtype)


def difference(conv: nn.Module, attention: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        return float((conv(x) - attention(x)).abs().max())


def _leakage(alphas: Sequence[float]) -> Iterator[Row]:
    """What the middle head of a 3x3 kernel gives to other pixels than its own, and what the layer errs by."""
    conv, x = _conv(3, "zeros", torch.float64), torch.randn(2, CHANNELS, SIDE, SIDE, dtype=torch.float64)
    for alpha in alphas:
        attention = convolution.to_attention(conv, alpha=alpha)
        with torch.no_grad():
            rows, columns = attention.factors(SIDE, SIDE)
        head, query = 4, SIDE // 2  # the middle shift, a query far from the border; keys are shifted by the padding
        p = rows[head, query][:, None] * columns[head, query][None]
        p[query + 1, query + 1] = 0  # its own pixel
        leaked = float(p.sum())
        yield Row("leakage", leaked, 1, Settings(alpha=float(alpha)))
        yield Row("leakage_ratio", leaked / (4 * math.exp(-alpha)), 1, Settings(alpha=float(alpha)))
        yield Row("leakage_error", difference(conv, attention, x), 1, Settings(alpha=float(alpha)))


def _doubled() -> Iterator[Row]:
    """Two heads on one shift: the slice that has lost its head is missing, and no values can bring it back."""
    conv, x = _conv(3, "zeros", torch.float64), torch.randn(2, CHANNELS, SIDE, SIDE, dtype=torch.float64)
    attention = convolution.to_attention(conv)
    with torch.no_grad():
        attention.centre[0] = attention.centre[1]
        tokens = rearrange(attention.extended(x), "n c h w -> n h w c")
        rows, columns = attention.factors(SIDE, SIDE)
        averages = torch.einsum("eik,ejl,nklc->nijec", rows, columns, tokens).flatten(3).flatten(0, 2)
        target = rearrange(conv(x) - conv(torch.zeros_like(x)), "n c h w -> (n h w) c")
        best = torch.linalg.lstsq(averages, target, driver="gelsd").solution
        relative_error = (averages @ best - target).norm() / target.norm()
    yield Row("doubled_head_error", float(relative_error), 1)


def _products() -> Iterator[Row]:
    """Distance of maps from the product of their factors, or of their marginals where there are no factors."""
    heads, dim = 9, 16
    kinds: dict[str, nn.Module] = {
        "isotropic": QuadraticAttention(dim, heads, dim),
        "learned": LearnedPositionAttention(dim, heads, dim, size=SIDE, width=dim),
        "non-isotropic": QuadraticAttention(dim, heads, dim, isotropic=False),
        "learned + content": ContentAttention(dim, heads, dim, size=SIDE),
    }
    for name, layer in kinds.items():
        layer = layer.double()
        with torch.no_grad():
            if isinstance(layer, ContentAttention):
                p = layer.probabilities(torch.randn(1, SIDE, SIDE, dim, dtype=torch.float64))[0]
            elif isinstance(layer, QuadraticAttention):
                layer.spread.add_(0.3 * torch.randn_like(layer.spread))  # with a cross term, where there can be one
                p = layer.probabilities(SIDE, SIDE)
            else:
                assert isinstance(layer, LearnedPositionAttention)
                p = layer.probabilities(SIDE, SIDE)
            if name in ("isotropic", "learned"):
                assert isinstance(layer, (QuadraticAttention, LearnedPositionAttention))
                from_factors = product(*layer.factors(SIDE, SIDE))
            else:
                from_factors = from_marginals(p, SIDE)
        yield Row("product_error", float((p - from_factors).abs().max()), heads, Settings(kind=name))


def from_marginals(p: Tensor, side: int) -> Tensor:
    """The product of what p (heads, queries, keys) gives to each row and to each column."""
    grid = p.view(*p.shape[:2], side, side)
    return (grid.sum(3)[..., :, None] * grid.sum(2)[..., None, :]).flatten(2)
