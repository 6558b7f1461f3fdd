"""Separable position attention: the C kernel against the dense path in double precision, its limits, and the models."""

import pytest
import torch

from benchmarks.pure import without_kernels
from saccade import models
from saccade.layers import kernels, separable_kernel
from saccade.layers.position_attention import (
    LearnedPositionAttention,
    QuadraticAttention,
    Separable,
    dense,
    product,
    separable,
)
from tests.alike import assert_trains_alike

needs_kernels = pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
GRIDS = [(1, 1), (3, 5), (8, 8), (11, 11), (16, 2)]


def draw(n, h, w, d, heads, out, bias=True):
    """x, rows, columns, weight and perhaps bias."""
    g = torch.Generator().manual_seed(0)
    rows, columns = (torch.randn(heads, side, side, generator=g).softmax(-1) for side in (h, w))
    given = [torch.randn(n, h, w, d, generator=g), rows, columns, torch.randn(out, heads * d, generator=g)]
    return [*given, torch.randn(out, generator=g)] if bias else given


def by_map(x, rows, columns, weight, bias=None):
    return dense(x.flatten(1, 2), product(rows, columns), weight, bias).unflatten(1, x.shape[1:3])


def native(*given):
    assert separable_kernel.has_kernel(*given)
    return separable(*given, native=True)


def answer(function, given):
    """Values and all gradients."""
    given = [t.detach().requires_grad_() for t in given]
    out = function(*given)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out.detach(), *torch.autograd.grad(out, given, weight)]


def assert_near(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


def assert_exact(given):
    assert_near(answer(native, given), answer(by_map, [t.double() for t in given]))


@needs_kernels
@pytest.mark.parametrize(("d", "heads"), [(48, 9), (32, 16), (6, 1), (10, 9), (1, 16), (72, 1)])
@pytest.mark.parametrize(("h", "w"), GRIDS)
def test_kernel_equals_the_dense_path(h, w, d, heads):
    assert_exact(draw(3, h, w, d, heads, 7))


@needs_kernels
def test_without_a_bias_and_with_other_queries_than_tokens():
    assert_exact(draw(2, 4, 6, 10, 3, 5, bias=False))
    x, rows, columns, weight = draw(2, 4, 6, 10, 3, 5, bias=False)
    given = [x, rows[:, :3], columns[:, 1:], weight]  # fewer queries, in tensors with gaps
    p = torch.einsum("hik,hjl->hijkl", given[1].double(), given[2].double()).flatten(3).flatten(1, 2)
    truth = dense(x.double().flatten(1, 2), p, weight.double()).unflatten(1, (3, 5))
    assert_near([native(*given)], [truth])


@needs_kernels
@pytest.mark.parametrize("room", [1, 2 * 30 * 24, 10**9])
def test_any_number_of_images_at_a_time(monkeypatch, room):
    given = draw(5, 5, 6, 8, 3, 4)
    truth = answer(by_map, [t.double() for t in given])
    monkeypatch.setattr(separable_kernel, "ROOM", room)
    assert_near(answer(separable_kernel.attend, given), truth)


@needs_kernels
@pytest.mark.parametrize("d", [16, 10])
def test_inputs_and_gradients_that_are_not_in_one_piece(d):
    x, rows, columns, weight, bias = draw(4, 3, 5, d, 2, 6)
    given = [
        x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        rows.mT.contiguous().mT,
        columns.repeat(1, 1, 2)[:, :, :5],
        weight.T.contiguous().T,
        bias,
    ]
    assert not any(t.is_contiguous() for t in given[:4])
    assert_exact(given)
    given = [t.detach().requires_grad_() for t in given]
    exact = [t.detach().double().requires_grad_() for t in given]
    mine, theirs = (torch.autograd.grad(f(*g).sum(), g) for f, g in ((native, given), (by_map, exact)))
    assert_near(mine, theirs)  # a gradient of ones has no strides


@needs_kernels
def test_nan_stays_visible_and_in_its_image():
    given = draw(3, 8, 8, 10, 9, 5)
    given[0][1, 2, 3, 4] = float("nan")
    out, gx, grows, gcolumns, gweight, _ = answer(native, given)
    assert torch.isnan(out[1]).all() and torch.isfinite(out[[0, 2]]).all()
    assert torch.isfinite(gx).all()  # linear in x
    assert torch.isnan(grows).any() and torch.isnan(gcolumns).any() and torch.isnan(gweight).any()
    given = draw(3, 8, 8, 10, 9, 5)
    given[1][4, 2, 3] = float("nan")  # one query of one head
    out = answer(native, given)[0]
    assert torch.isnan(out[:, 2]).all() and torch.isfinite(out[:, :2]).all() and torch.isfinite(out[:, 3:]).all()


@needs_kernels
def test_the_same_bits_every_time():
    given = draw(5, 8, 8, 48, 9, 48)
    first, second = (answer(native, given) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_is_not_for_the_kernel_goes_through_torch():
    given = draw(2, 3, 4, 8, 2, 5)
    has = separable_kernel.has_kernel
    assert has(*given) == (not kernels.why_not())
    assert not has(*(t.double() for t in given))
    assert not has(*given[:4], given[4].double())
    assert not has(given[0][:0], *given[1:])
    assert not has(*(t.to("meta") for t in given))
    with torch.autocast("cpu"):
        assert not has(*given)
    with without_kernels():
        assert not has(*given)
        both = [answer(lambda *g: separable(*g, native=use), given) for use in (True, False)]  # noqa: B023
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


def test_what_is_too_large_is_not_given_to_the_kernel(monkeypatch):
    def sized(n, h, w, d, heads, out):
        return [torch.empty(s).expand(*t) for s, t in ((1, (n, h, w, d)), (1, (heads, h, h)), (1, (heads, w, w)))] + [
            torch.empty(1).expand(out, heads * d)
        ]

    monkeypatch.setattr(kernels, "separable", lambda: object())
    has, longest = separable_kernel.has_kernel, separable_kernel.LONGEST
    assert has(*sized(64, 8, 8, 48, 9, 48))
    assert has(*sized(1, longest, longest, 8, 1, 8))
    assert not has(*sized(1, longest + 1, 1, 8, 1, 8)) and not has(*sized(1, 1, longest + 1, 8, 1, 8))
    assert not has(*sized(16, 16, 16, 400, 9, 400))  # heads side by side leave the cache
    assert not has(*sized(16, 8, 8, 400, 9, 400))  # the weight does
    assert not has(*sized(2**31 // 64, 8, 8, 8, 1, 8))  # more than the kernel can count


def test_the_kernel_gets_no_odd_channels():
    x, rows, columns, *_ = draw(1, 2, 2, 6, 1, 3)
    with pytest.raises(ValueError, match="multiples of 8"):
        separable_kernel._average(x, rows, columns, torch.empty(1, 2, 2, 6))


@needs_kernels
@pytest.mark.parametrize("kind", [QuadraticAttention, LearnedPositionAttention])
def test_layers_use_it_in_training_only(kind, monkeypatch):
    torch.manual_seed(0)
    layer, x = kind(6, 3, 5), torch.randn(2, 4, 4, 6)
    tensors = [x.requires_grad_(), *layer.parameters()]
    names = []
    for path in (separable_kernel.Native, Separable):
        whole = path.apply
        monkeypatch.setattr(path, "apply", lambda *a, w=whole, n=path.__name__: names.append(n) or w(*a))
    by_kernel = torch.autograd.grad(layer(x).square().sum(), tensors)
    plain = torch.autograd.grad(layer.eval()(x).square().sum(), tensors)
    assert names == ["Native", "Separable"]
    largest = max(t.abs().max() for t in plain)
    assert all((a - b).abs().max() <= 1e-5 * largest for a, b in zip(by_kernel, plain, strict=True))


@needs_kernels
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("quadratic", {}),
        ("quadratic", {"shell": "reproduction", "additive_centre": True}),
        ("learned_relative", {"content": False, "value_maps": True}),
    ],
)
def test_models_train_alike_with_and_without_the_kernel(name, settings, monkeypatch):
    size = {"dim": 12, "heads": 3, "depth": 2, "hidden": 16, "patch": 4, "dropout": 0.0}
    assert_trains_alike("separable", name, {**size, **settings}, monkeypatch)


@needs_kernels
def test_dropout_on_the_map_is_dense(monkeypatch):
    monkeypatch.setattr(kernels, "separable", lambda: pytest.fail("the kernel was asked"))
    size = {"dim": 12, "heads": 3, "depth": 1, "hidden": 16, "patch": 4, "attention_dropout": 0.1}
    models.build("quadratic", 10, seed=0, **size).train()(torch.rand(2, 3, 32, 32))
