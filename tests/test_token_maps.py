"""Norm, linear maps and GELU of tokens: the C kernel against double precision, and what it leaves to torch."""

import copy

import pytest
import torch
from torch import nn

from saccade.layers import kernels, token_maps
from tests.alike import assert_trains_alike

needs_kernels = pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
SHAPES = [((2, 65), 64, 128, 64), ((3, 17), 60, 240, 60), ((1, 1), 1, 1, 1), ((2, 49), 7, 13, 5), ((101,), 16, 300, 33)]


def normal(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def layers(wide, inside, out):
    torch.manual_seed(0)
    norm = nn.LayerNorm(wide)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm, nn.Linear(wide, out), nn.Linear(wide, out, bias=False), mlp_of(wide, inside, out)


def mlp_of(wide, inside, out):
    return nn.Sequential(nn.Linear(wide, inside), nn.GELU(), nn.Linear(inside, out))


def answers(function, x, plus, norm, part, kernel):
    """Output and gradients of everything, with copies of the layers in the type of x."""
    norm, part = (None if m is None else copy.deepcopy(m).to(x.dtype).train(kernel) for m in (norm, part))
    x = x.clone().requires_grad_()
    plus = x if plus is x else None if plus is None else plus.to(x.dtype).clone().requires_grad_()
    out = function(x, part, norm, plus)
    given = [x, *([] if plus is None else [plus]), *part.parameters(), *([] if norm is None else norm.parameters())]
    grads = torch.autograd.grad(out, given, normal(*out.shape, seed=2).to(out), allow_unused=True)
    return [out.detach(), *grads]


@needs_kernels
@pytest.mark.parametrize(("shape", "wide", "inside", "out"), SHAPES)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.parametrize("sum_", [True, False])
def test_kernel_is_as_near_to_double_precision_as_torch(shape, wide, inside, out, normed, which, sum_):
    made = layers(wide, inside, out)
    function = token_maps.mlp if which == 3 else token_maps.linear
    x, plus = normal(*shape, wide, scale=2.0), normal(*shape, out, seed=1) if sum_ else None
    given = made[0] if normed else None, made[which]
    assert token_maps._native(x.float(), [*made[:2], *made[3][::2]], None)
    exact = answers(function, x, plus, *given, kernel=False)
    ours, torchs = (answers(function, x.float(), plus, *given, kernel=kernel) for kernel in (True, False))
    for mine, theirs, truth in zip(ours, torchs, exact, strict=True):
        error = (mine - truth).abs().max()
        assert error <= 4 * (theirs - truth).abs().max() + 2e-6 * truth.abs().max()


@needs_kernels
@pytest.mark.parametrize("normed", [True, False])
def test_a_residual_around_the_maps_has_its_part_of_the_gradient(normed):
    norm, _, _, part = layers(24, 40, 24)
    given = norm if normed else None, part
    residual = lambda x, part, norm, _: token_maps.mlp(x, part, norm, plus=x)  # noqa: E731
    x = normal(5, 7, 24)
    exact = answers(residual, x, None, *given, kernel=False)
    for mine, truth in zip(answers(residual, x.float(), None, *given, kernel=True), exact, strict=True):
        assert (mine - truth).abs().max() <= 1e-5 * truth.abs().max()


@needs_kernels
def test_gelu_far_out_and_nan():
    part = mlp_of(1, 1, 1)
    for p in part.parameters():
        nn.init.ones_(p) if p.ndim == 2 else nn.init.zeros_(p)
    x = torch.tensor([-1e30, -100.0, -12.0, -5.0, -1e-3, 0.0, 1e-3, 5.0, 12.0, 100.0, 1e18])[:, None]
    exact = nn.functional.gelu(x.double())  # in single precision torch's own loses all digits below -5
    torch.testing.assert_close(token_maps.mlp(x, part).double(), exact, rtol=2e-6, atol=1e-12)
    assert torch.isnan(token_maps.mlp(torch.full((1, 1), torch.nan), part)).all()


@needs_kernels
def test_the_same_bits_every_time_and_row_by_row():
    norm, _, _, part = layers(48, 192, 48)
    x = normal(300, 48).float()
    first, second = (answers(token_maps.mlp, x, x, norm, part, kernel=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(token_maps.mlp(x[200:217], part, norm), token_maps.mlp(x, part, norm)[200:217])


@needs_kernels
def test_layers_that_are_watched_replaced_or_not_training_are_called_themselves(monkeypatch):
    norm, map_, _, part = layers(8, 16, 8)
    x = normal(3, 8).float()
    assert token_maps._native(x, [norm, map_], None)
    assert not token_maps._native(x.double(), [norm, map_], None)
    assert not token_maps._native(x, [norm, map_.eval()], None)
    seen = []
    part[1].register_forward_hook(lambda *_: seen.append(1))
    token_maps.mlp(x, part, norm)
    assert seen
    dropout = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 8))
    monkeypatch.setattr(token_maps.Fused, "apply", lambda *_: pytest.fail("dropout is not in the kernel"))
    token_maps.mlp(x, dropout, norm)


@needs_kernels
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("basic_vit", {"dim": 24, "heads": 3, "depth": 3}),
        *(("vit", {"dim": 24, "heads": 2, "depth": 3, "patch": 8, "block": b}) for b in ("v1", "v2", "v3")),
        ("vit", {"dim": 24, "heads": 2, "depth": 3, "patch": 8, "block": "single_skip"}),
        ("conv_stem_vit", {"dim": 16, "heads": 3, "depth": 2, "hidden": 16, "patch": 8, "width": 4}),
        ("quadratic", {"dim": 16, "heads": 3, "depth": 2, "hidden": 24, "patch": 8, "dropout": 0.0}),
        ("local_attn", {"size": "mini", "window": 2}),
    ],
)
def test_models_train_alike_with_and_without_the_kernel(name, settings, monkeypatch):
    assert_trains_alike("token_maps", name, settings, monkeypatch)


@needs_kernels
def test_widths_that_do_not_fit_are_refused_before_they_reach_c():
    norm, map_, _, part = layers(8, 16, 8)
    x = torch.zeros(3, 7)
    with pytest.raises((RuntimeError, ValueError)):
        token_maps.linear(x, map_, plus=torch.zeros(3, 8))
    with pytest.raises((RuntimeError, ValueError)):
        token_maps.mlp(x, part, norm)
    with pytest.raises(ValueError, match="a kernel takes"):
        token_maps.linear(torch.zeros(3, 8), map_, norm, plus=torch.zeros(2, 8))
    with pytest.raises(ValueError, match="a kernel takes"):
        token_maps.mlp(torch.zeros(3, 8), nn.Sequential(part[0], nn.GELU(), nn.Linear(15, 8)), norm)
