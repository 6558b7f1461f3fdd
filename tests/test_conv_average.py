"""Convolution, ReLU and average in one: the kernel against torch, to the bit where sums are exact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.pure import without_kernels
from saccade import models
from saccade.layers import kernels
from saccade.layers.conv_average import MOST, SIDES, conv_relu_average, has_kernel

native = pytest.mark.skipif(bool(kernels.why_not()), reason="no C compiler here")


def plain(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.avg_pool2d(F.relu(F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)), 2)


def everything(function: object, *given: Tensor) -> list[Tensor]:
    assert callable(function)
    given = tuple(t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in given)
    out = function(*given, *([None] if len(given) == 2 else []))
    return [out.detach(), *torch.autograd.grad(out, given, torch.arange(out.numel()).view_as(out) % 7 - 3.0)]


@native
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("channels", "out"), [(1, 1), (3, 4), (2, 5), (7, 3), (MOST, 10), (4, MOST)])
@pytest.mark.parametrize("biased", [True, False])
def test_equals_torch_to_the_bit_on_whole_numbers(side: int, channels: int, out: int, biased: bool) -> None:
    """Sums of small whole numbers are exact in any order; quarters of them too."""
    draw = torch.Generator().manual_seed(side)
    x = torch.randint(-4, 5, (5, channels, side, side), generator=draw).float()
    weight = torch.randint(-3, 4, (out, channels, 5, 5), generator=draw).float()
    given = (x, weight, torch.randint(-3, 4, (out,), generator=draw).float()) if biased else (x, weight)
    assert has_kernel(*given)
    for ours, theirs in zip(everything(conv_relu_average, *given), everything(plain, *given), strict=True):
        assert torch.equal(ours, theirs)


@native
@pytest.mark.parametrize("layout", ["channels last", "cut out of a larger image"])
def test_any_layout_of_the_input(layout: str) -> None:
    draw = torch.Generator().manual_seed(1)
    x = torch.randint(-4, 5, (3, 3, 16, 16), generator=draw).float()
    weight = torch.randint(-3, 4, (6, 3, 3, 3), generator=draw).float()
    changed = {
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "cut out of a larger image": F.pad(x, (1, 2, 3, 4))[:, :, 3:-4, 1:-2],
    }[layout]
    assert torch.equal(conv_relu_average(changed, weight, None), plain(x, weight))


@native
@pytest.mark.parametrize("place", ["image", "weight", "bias"])
def test_a_number_that_is_none_stays_visible(place: str) -> None:
    given = {"image": torch.randn(2, 3, 16, 16), "weight": torch.randn(4, 3, 5, 5), "bias": torch.randn(4)}
    given[place].view(-1)[3] = torch.nan
    ours, theirs = conv_relu_average(*given.values()).isnan(), plain(*given.values()).isnan()
    assert theirs.any() and bool(ours[theirs].all())  # at the border ours has more: it multiplies it by its zeros


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        ((2, 3, 28, 28), (4, 3, 5, 5)),
        ((2, 3, 16, 8), (4, 3, 5, 5)),
        ((2, 3, 16, 16), (MOST + 1, 3, 5, 5)),
        ((2, 16, 16, 16), (MOST, 16, 5, 5)),  # torch's own is faster
        ((2, 3, 16, 16), (4, 3, 11, 11)),
        ((2, 3, 16, 16), (4, 3, 3, 5)),
    ],
)
def test_other_convolutions_take_torchs_way(x: tuple[int, ...], weight: tuple[int, ...]) -> None:
    assert not has_kernel(torch.zeros(x), torch.zeros(weight))


@native
@pytest.mark.parametrize("width", [1, 8, 10])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_model_is_the_same_with_and_without_the_kernel(width: int, channels: int) -> None:
    net = models.build("basic_cnn", seed=0, width=width, channels=channels, bias=True)
    x = torch.randn(5, channels, 32, 32, generator=torch.Generator().manual_seed(0))
    assert net.is_small(x) == (width < 10)
    fast = net(x)
    with without_kernels():
        assert (fast - net(x)).abs().max() < 1e-5
