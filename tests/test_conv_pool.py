"""Convolution, ReLU and pooling in one: the kernel against torch, to the bit where sums are exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.pure import without_kernels
from saccade import models
from saccade.layers import kernels
from saccade.layers.conv_pool import MOST, Native, conv_relu_pool, has_kernel

native = pytest.mark.skipif(bool(kernels.why_not()), reason="no C compiler here")


def plain(layer: nn.Module, x: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(layer(x)), 2)


def whole_numbers(channels: int, out: int, size: int, seed: int) -> nn.Conv2d:
    """Sums of small whole numbers are exact in any order, and windows often tie."""
    conv, g = nn.Conv2d(channels, out, size), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in conv.parameters():
            p.copy_(torch.randint(-3, 4, p.shape, generator=g))
    return conv


def everything(function: object, conv: nn.Conv2d, x: Tensor) -> list[Tensor]:
    assert callable(function)
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    conv.zero_grad()
    out = function(conv, x)
    out.backward(torch.arange(out.numel()).view_as(out) % 7 - 3.0)
    assert x.grad is not None and conv.weight.grad is not None and conv.bias is not None and conv.bias.grad is not None
    return [out.detach(), x.grad, conv.weight.grad.clone(), conv.bias.grad.clone()]


@pytest.mark.slow
@native
@settings(max_examples=12, deadline=None)  # an example builds a kernel
@given(
    channels=st.integers(1, MOST),
    out=st.integers(1, MOST),
    size=st.sampled_from([1, 2, 3, 5]),
    n=st.integers(1, 9),
    h=st.integers(6, 15),
    w=st.integers(6, 15),
    seed=st.integers(0, 99),
)
def test_equals_torch_to_the_bit_on_whole_numbers(
    channels: int, out: int, size: int, n: int, h: int, w: int, seed: int
) -> None:
    conv = whole_numbers(channels, out, size, seed)
    x = torch.randint(-4, 5, (n, channels, h, w), generator=torch.Generator().manual_seed(seed)).float()
    assert has_kernel(conv, x)
    for ours, theirs in zip(everything(conv_relu_pool, conv, x), everything(plain, conv, x), strict=True):
        assert torch.equal(ours, theirs)


@native
@pytest.mark.parametrize("layout", ["channels last", "cut out of a larger image", "transposed"])
def test_any_layout_of_the_input(layout: str) -> None:
    conv = whole_numbers(3, 6, 5, 0)
    x = torch.randint(-4, 5, (3, 3, 16, 16), generator=torch.Generator().manual_seed(1)).float()
    changed = {
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "cut out of a larger image": F.pad(x, (1, 2, 3, 4))[:, :, 3:-4, 1:-2],
        "transposed": x.transpose(2, 3).contiguous().transpose(2, 3),
    }[layout]
    assert torch.equal(conv_relu_pool(conv, changed), plain(conv, x))


@native
def test_float32_noise_only_against_float64() -> None:
    torch.manual_seed(0)
    conv, x = nn.Conv2d(6, 16, 5), torch.randn(16, 6, 14, 14)
    ours = everything(conv_relu_pool, conv, x)
    exact = everything(plain, conv.double(), x.double())
    for a, b in zip(ours, exact, strict=True):
        assert (a - b).abs().max() < 1e-5 * b.abs().max()


@native
@pytest.mark.parametrize("place", ["picture", "weight", "bias"])
def test_a_number_that_is_none_stays_visible(place: str) -> None:
    conv, x = nn.Conv2d(3, 6, 5), torch.randn(2, 3, 12, 12)
    assert conv.bias is not None
    with torch.no_grad():
        {"picture": x, "weight": conv.weight, "bias": conv.bias}[place].view(-1)[5] = torch.nan
    assert torch.equal(conv_relu_pool(conv, x).isnan(), plain(conv, x).isnan())
    assert conv_relu_pool(conv, x).isnan().any()


@native
def test_a_watched_convolution_is_called_as_a_module() -> None:
    conv, seen = nn.Conv2d(3, 6, 5), []
    conv.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    conv_relu_pool(conv, torch.randn(2, 3, 12, 12))
    assert seen == [(2, 6, 8, 8)]


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 6, 5, padding=1),
        nn.Conv2d(3, 6, 5, stride=2),
        nn.Conv2d(3, 17, 5),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(3, 6, (3, 5)),
        nn.Conv2d(3, 6, 5, bias=False),
        nn.Conv2d(3, 6, 5).double(),
        nn.Conv2d(3, 6, 3, dilation=2),
    ],
)
def test_other_convolutions_take_torchs_way(conv: nn.Conv2d) -> None:
    x = torch.randn(2, conv.in_channels, 14, 14, dtype=conv.weight.dtype)
    assert not has_kernel(conv, x)
    assert torch.equal(conv_relu_pool(conv, x), plain(conv, x))


@native
def test_no_gradient_is_made_for_images_that_ask_for_none() -> None:
    conv = nn.Conv2d(3, 6, 5)
    assert conv.bias is not None
    out = Native.apply(torch.randn(1, 2, 3, 12, 12), conv.weight[None], conv.bias[None])
    out.sum().backward()
    assert conv.weight.grad is not None and conv.weight.grad.abs().sum() > 0


@native
def test_the_model_is_the_same_with_and_without_the_kernel() -> None:
    net, x = models.build("lenet", seed=0), torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    fast = net(x)
    with without_kernels():
        assert (fast - net(x)).abs().max() < 1e-5
