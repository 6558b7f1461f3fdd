"""Attention by position, and with content, against the dense references: outputs and gradients in float64."""

import pytest
import torch

from saccade.layers import position_attention
from saccade.layers.content_attention import ContentAttention
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention, dense, product, separable


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def facts(function, tensors):
    out = function()
    return [out, *torch.autograd.grad((out * random(*out.shape, seed=9)).sum(), tensors)]


def largest(mine, theirs):
    return max((a - b).abs().max() for a, b in zip(mine, theirs, strict=True))


def make(kind, **args):
    torch.manual_seed(0)
    return kind(6, 3, 5, **args).double()


LAYERS = [
    (QuadraticAttention, {}),
    (LearnedPositionAttention, {"size": 7, "width": 8}),
    (ContentAttention, {"size": 7}),
    (ContentAttention, {"size": 7, "bias": False}),
]


def reference(layer, x):
    p = layer.probabilities(x) if isinstance(layer, ContentAttention) else layer.probabilities(*x.shape[1:3])
    return dense(x.flatten(1, 2), p, layer.value.weight, layer.value.bias).unflatten(1, x.shape[1:3])


@pytest.mark.parametrize(("kind", "args"), LAYERS)
@pytest.mark.parametrize(("n", "h", "w"), [(5, 7, 7), (1, 4, 6), (2, 1, 3)])
def test_layers_equal_their_dense_reference(kind, args, n, h, w):
    layer, x = make(kind, **args), random(n, h, w, 6).requires_grad_()
    tensors = [x, *layer.parameters()]
    mine, theirs = facts(lambda: layer(x), tensors), facts(lambda: reference(layer, x), tensors)
    assert largest(mine, theirs) < 1e-12


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_separable_equals_the_product_for_any_chunk(monkeypatch, chunk):
    monkeypatch.setattr(position_attention, "CHUNK", chunk)
    x, rows, columns, weight = random(5, 4, 3, 6), random(2, 4, 4), random(2, 3, 3), random(7, 12)
    tensors = [t.requires_grad_() for t in (x, rows, columns, weight)]
    mine = facts(lambda: separable(*tensors), tensors)
    theirs = facts(lambda: dense(x.flatten(1, 2), product(rows, columns), weight).unflatten(1, (4, 3)), tensors)
    assert largest(mine, theirs) < 1e-12


def test_separable_takes_views_and_gradients_that_are_not_contiguous():
    x = random(6, 3, 4, 2).permute(3, 2, 1, 0).requires_grad_()  # (2, 4, 3, 6)
    rows, columns, weight = random(2, 4, 4), random(2, 3, 3), random(7, 12)
    a = torch.autograd.grad(separable(x, rows, columns, weight).sum(), x)[0]  # a gradient of ones has no strides
    b = torch.autograd.grad(dense(x.flatten(1, 2), product(rows, columns), weight).sum(), x)[0]
    assert (a - b).abs().max() < 1e-12


@pytest.mark.parametrize(("kind", "args"), LAYERS[:2])
def test_factors_multiply_to_the_map(kind, args):
    layer = make(kind, **args)
    p = layer.probabilities(4, 5)
    assert p.shape == (3, 20, 20)
    assert (p - product(*layer.factors(4, 5))).abs().max() < 1e-12
    assert (p.sum(-1) - 1).abs().max() < 1e-12


def test_a_sharp_quadratic_head_is_a_shift():
    layer, x = make(QuadraticAttention), random(1, 5, 5, 6)
    with torch.no_grad():
        layer.centre.copy_(torch.tensor([[0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]]))
        layer.spread.fill_(12.0)
        p = layer.probabilities(5, 5).view(3, 5, 5, 5, 5)
        y = separable(x, *layer.factors(5, 5), torch.eye(18, dtype=torch.float64))
    assert p[0, 2, 2, 2, 3] > 1 - 1e-12 and p[1, 2, 2, 1, 2] > 1 - 1e-12
    assert p[0, 2, 4, 2, 4] > 1 - 1e-12  # at the border, the nearest pixel inside
    torch.testing.assert_close(y[:, :, :4, :6], x[:, :, 1:])


def test_what_does_not_separate_is_dense():
    layer, x = make(QuadraticAttention, isotropic=False), random(2, 4, 4, 6)
    with torch.no_grad():
        layer.spread.add_(0.3 * random(3, 2, 2))
    assert (layer(x) - reference(layer, x)).abs().max() < 1e-12
    with pytest.raises(AssertionError, match="isotropic"):
        layer.factors(4, 4)


def test_isotropic_is_a_case_of_the_general_spread():
    round_, general = make(QuadraticAttention), make(QuadraticAttention, isotropic=False)
    with torch.no_grad():
        general.centre.copy_(round_.centre)
        general.spread.copy_(round_.spread[:, None, None] * torch.eye(2))
    assert (round_.probabilities(4, 5) - general.probabilities(4, 5)).abs().max() < 1e-12


@pytest.mark.parametrize(("kind", "args"), LAYERS)
def test_dropout_on_the_map_acts_in_training_only(kind, args):
    layer, x = make(kind, dropout=0.5, **args), random(2, 4, 4, 6)
    a, b = layer(x), layer(x)
    assert not torch.equal(a, b)
    layer.eval()
    assert (layer(x) - reference(layer, x)).abs().max() < 1e-12


def test_learned_masks_differ_between_images_and_quadratic_ones_do_not():
    same = random(1, 4, 4, 6).expand(2, -1, -1, -1)
    learned, quadratic = make(LearnedPositionAttention, dropout=0.5, size=7), make(QuadraticAttention, dropout=0.5)
    first, second = learned(same)
    assert not torch.equal(first, second)
    first, second = quadratic(same)
    torch.testing.assert_close(first, second)
