"""Attention among few tokens: the C kernel against double precision, its limits, and the models that use it."""

import pytest
import torch

from saccade.layers import few_tokens, kernels
from tests.alike import assert_trains_alike

needs_kernels = pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
SHAPES = [(2, 65, 1, 64), (3, 17, 4, 12), (2, 64, 3, 8), (1, 128, 2, 30), (4, 5, 2, 3), (1, 1, 1, 1), (2, 9, 2, 16)]


def packed(n, tokens, heads, width, scale=1.0):
    return scale * torch.randn(n, tokens, 3 * heads * width, generator=torch.Generator().manual_seed(0)).double()


def answer(x, heads, native):
    x = x.clone().requires_grad_()
    out = few_tokens.attend(x, heads, native=native)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return out.detach(), *torch.autograd.grad(out, x, weight)


@needs_kernels
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize(("n", "tokens", "heads", "width"), SHAPES)
def test_kernel_is_as_near_to_double_precision_as_torch(n, tokens, heads, width, scale):
    x = packed(n, tokens, heads, width, scale)
    assert few_tokens.has_kernel(x.float(), heads, width)
    exact = answer(x, heads, native=False)
    ours, torchs = (answer(x.float(), heads, native) for native in (True, False))
    for mine, theirs, truth in zip(ours, torchs, exact, strict=True):
        error = (mine - truth).abs().max()
        assert error <= 4 * (theirs - truth).abs().max() + 2e-6 * scale**2 * truth.abs().max()


@needs_kernels
def test_parts_of_their_own_give_the_same_bits_as_packed_ones():
    x = packed(2, 17, 4, 12).float()
    apart = [t.clone().requires_grad_() for t in x.chunk(3, -1)]
    out = few_tokens.attend_apart(*apart, 4, native=True)
    assert torch.equal(out, few_tokens.attend(x, 4, native=True))
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    together = torch.cat(torch.autograd.grad(out, apart, weight), -1)
    assert torch.equal(together, answer(x, 4, native=True)[1])


@needs_kernels
def test_nan_stays_in_its_row_and_large_scores_stay_finite():
    x = packed(1, 17, 1, 12).float()
    x[0, 3, 0] = float("nan")  # of a query
    out = few_tokens.attend(x, 1, native=True)
    assert torch.isnan(out[0, 3]).all() and torch.isfinite(out[0, :3]).all() and torch.isfinite(out[0, 4:]).all()
    found = answer(packed(1, 17, 1, 12, 60.0).float(), 1, native=True)
    assert all(torch.isfinite(t).all() for t in found)


@needs_kernels
def test_the_same_bits_every_time():
    x = packed(2, 65, 4, 16).float()
    first, second = (answer(x, 4, native=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_the_kernel_does_not_take_goes_through_torch(monkeypatch):
    x = packed(2, 9, 2, 4)
    assert not few_tokens.has_kernel(x, 2, 4)  # double precision
    assert not few_tokens.has_kernel(torch.zeros(1, few_tokens.MOST + 1, 24), 2, 4)
    assert not few_tokens.has_kernel(torch.zeros(0, 9, 24), 2, 4)
    monkeypatch.setattr(kernels, "few_tokens", lambda: None)
    assert torch.equal(answer(x, 2, native=True)[1], answer(x, 2, native=False)[1])


def test_tokens_that_lie_differently_are_refused():
    with pytest.raises(ValueError, match="one layout"):
        few_tokens._addresses((torch.zeros(2, 3, 4), torch.zeros(2, 4, 3).transpose(1, 2)))


@needs_kernels
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("basic_vit", {"dim": 24, "heads": 3, "depth": 3}),
        ("vit", {"dim": 24, "heads": 2, "depth": 2, "patch": 8}),
        ("conv_stem_vit", {"dim": 16, "heads": 3, "depth": 2, "hidden": 16, "patch": 8, "width": 4}),
        (
            "conv_stem_vit",
            {"dim": 16, "heads": 3, "depth": 2, "hidden": 16, "patch": 8, "width": 4, "hierarchical": True},
        ),
    ],
)
def test_models_train_alike_with_and_without_the_kernel(name, settings, monkeypatch):
    assert_trains_alike("few_tokens", name, settings, monkeypatch)
