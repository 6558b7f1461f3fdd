"""Attention with content and positions by the C kernel: against the dense path, its limits, and models that use it."""

import pytest
import torch

from benchmarks.pure import without_kernels
from saccade.layers import content_kernel, kernels
from saccade.layers.content_attention import ContentAttention, Keys
from saccade.layers.position_attention import dense
from tests.alike import assert_trains_alike

needs_kernels = pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
GRIDS = [(1, 1, 1), (3, 5, 7), (8, 8, 8), (11, 11, 11), (2, 9, 9), (16, 8, 16), (1, 3, 40)]  # h, w, size


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make(dim, heads, out=None, **more):
    torch.manual_seed(0)
    return ContentAttention(dim, heads, out or dim, **more)


def by_map(layer, x, keys=None):
    p = layer.probabilities(x, keys)
    return dense(x.flatten(1, 2), p, layer.value.folded(), layer.value.bias).unflatten(1, x.shape[1:3])


def facts(function, tensors):
    """Values and all gradients, in double precision."""
    y = function()
    found = torch.autograd.grad(y, tensors, random(*y.shape, seed=1).to(y), allow_unused=True)
    return [y.detach().double(), *(torch.zeros(1).double() if g is None else g.double() for g in found)]


def compare(layer, x, tokens=None, weight=None):
    """The layer in single precision and its map in double precision, keys of their own map given or not."""
    both = []
    for kind, function in ((torch.float32, lambda layer, *given: layer(*given)), (torch.float64, by_map)):
        layer, given = (
            layer.to(kind),
            [t.detach().to(kind).requires_grad_() for t in (x, tokens, weight) if t is not None],
        )
        keys = None if tokens is None else Keys(given[1], given[2], None)
        both.append(facts(lambda f=function, m=layer, t=given[0], k=keys: f(m, t, k), [*given, *layer.parameters()]))
    largest = max(float(t.abs().max()) for t in both[1][1:])
    for i, (mine, exact) in enumerate(zip(*both, strict=True)):
        # some gradients are zero but for rounding, such as that of the keys' bias: measured by the largest of all
        scale = float(exact.abs().max()) if i < 2 else largest
        assert (mine - exact).abs().max() <= 1e-5 * max(scale, 1e-3)


@pytest.fixture
def called(monkeypatch):
    """How often the kernel was asked for."""
    calls, whole = [], kernels.content
    monkeypatch.setattr(kernels, "content", lambda: calls.append(1) or whole())
    return calls


@needs_kernels
@pytest.mark.parametrize(("h", "w", "size"), GRIDS)
@pytest.mark.parametrize(("dim", "out"), [(6, 6), (10, 3), (16, 24), (48, 48)])
def test_values_and_gradients_are_those_of_the_dense_path(h, w, size, dim, out, called):
    compare(make(dim, 3, out, size=size), random(3, h, w, dim))
    assert len(called) >= 3  # asked, forward, backward


@needs_kernels
@pytest.mark.parametrize(
    "more", [{}, {"bias": False}, {"keys": "none"}, {"transposed": True}, {"value_maps": True}], ids=str
)
def test_every_kind_of_layer(more, called):
    compare(make(10, 2, size=6, **more), random(4, 5, 5, 10))
    assert called


@needs_kernels
@pytest.mark.parametrize("transposed", [False, True])
def test_keys_that_are_given(transposed, called):
    layer = make(10, 2, size=6, keys="given", transposed=transposed)
    compare(layer, random(4, 5, 5, 10), random(4, 5, 5, 10, seed=2), random(20, 10, seed=3) / 3)
    assert called


@needs_kernels
def test_tokens_and_gradients_that_are_not_in_one_piece(called):
    compare(make(8, 2, size=5), random(8, 4, 3, 2).permute(3, 2, 1, 0))
    x = random(2, 3, 4, 8).requires_grad_()
    layer = make(8, 2, size=5)
    y = layer(x)
    (mine,) = torch.autograd.grad(y.sum(), x)  # a gradient of ones has no strides
    (theirs,) = torch.autograd.grad(by_map(layer, x).sum(), x)
    assert called and (mine - theirs).abs().max() < 1e-5


@needs_kernels
def test_far_scores_stay_finite_and_nan_stays_in_sight():
    layer, x = make(8, 2, size=4), random(2, 4, 4, 8)
    y = layer(60 * x)
    assert torch.isfinite(y).all() and all(
        torch.isfinite(g).all() for g in torch.autograd.grad(y.sum(), layer.parameters())
    )
    x[1, 2, 3, 0] = float("nan")  # a key of every query of its image
    y = layer(x)
    assert torch.isfinite(y[0]).all() and torch.isnan(y[1]).all()
    assert all(torch.isnan(g).any() for g in torch.autograd.grad(y[1].sum(), [layer.query.weight, layer.row_codes]))
    keys = Keys(random(2, 4, 4, 8), random(16, 8, seed=3), None)
    layer = make(8, 2, size=4, keys="given", transposed=False)
    grad = random(2, 4, 4, 8)
    grad[0, 1, 1, 2] = float("nan")
    (found,) = torch.autograd.grad(layer(random(2, 4, 4, 8), keys), layer.query.weight, grad)
    assert torch.isnan(found).any()


@needs_kernels
def test_the_same_bits_every_time():
    layer, x = make(10, 3, size=8), random(5, 8, 8, 10)
    first, second = (facts(lambda: layer(x), list(layer.parameters())) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@needs_kernels
def test_evaluation_agrees_with_training_and_takes_torchs_path(called):
    layer, x = make(48, 9, size=8), random(2, 8, 8, 48)
    trained = layer(x)
    called.clear()
    torch.testing.assert_close(layer.eval()(x), trained, atol=1e-5, rtol=1e-5)
    assert not called


def test_without_a_compiler_the_numbers_are_the_same():
    layer, x = make(10, 2, size=6), random(3, 4, 6, 10)
    mine = facts(lambda: layer(x), list(layer.parameters()))
    with without_kernels():
        assert kernels.content() is None
        theirs = facts(lambda: layer(x), list(layer.parameters()))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-5)


def test_what_the_kernel_does_not_take_goes_through_torch():
    def given(n=2, h=4, w=4, dim=8, size=4, dtype=torch.float32, device="cpu"):
        x = torch.empty(n, h, w, dim, dtype=dtype, device=device)
        maps = torch.empty(2, dim, dim + 2 * (2 * size - 1), dtype=dtype, device=device)
        return x, x, x, maps, maps[:, 0], torch.empty(dim, 2 * dim, dtype=dtype, device=device), size

    fits = content_kernel.has_kernel
    assert fits(*given()) == (not kernels.why_not())
    assert not fits(*given(dtype=torch.float64))
    assert not fits(*given(n=0))
    assert not fits(*given(h=16, w=16, size=16))  # tokens
    assert not fits(*given(dim=content_kernel.WIDEST + 1))
    assert not fits(*given(h=5))  # grids larger than the codes
    assert not fits(*given(device="meta"))
    x, *_, maps, added, weight, size = given()
    large = x[:1].expand(2**22, -1, -1, -1)
    assert large.numel() <= kernels.MOST
    assert not fits(large, large, large, maps, added, weight, size)  # what they ask is too large
    assert not fits(x, x[:1], x, maps, added, weight, size)
    assert not fits(x, x, x, maps, added, weight, size + 1)  # maps for other shifts
    assert not fits(x, x, x, maps, added, weight[:, 1:], size)
    with torch.autocast("cpu"):
        assert not fits(*given())


def test_a_grid_of_many_tokens_never_asks_for_the_kernel(monkeypatch):
    monkeypatch.setattr(kernels, "content", lambda: pytest.fail("the kernel was asked for"))
    compare(make(6, 2, size=16), random(1, 16, 16, 6))


@needs_kernels
@pytest.mark.parametrize(
    "more",
    [{}, {"hierarchical": True}, {"key_content": False}, {"transposed_content": True}, {"shell": "reproduction"}],
    ids=str,
)
def test_models_train_alike_with_and_without_the_kernel(more, monkeypatch):
    settings = {"dim": 12, "heads": 3, "depth": 3, "hidden": 16, "patch": 4, "dropout": 0.0}
    assert_trains_alike("content", "learned_relative", settings | more, monkeypatch)
