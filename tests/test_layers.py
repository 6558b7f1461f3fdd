"""Every exact layer against its dense reference, outputs and gradients."""

from pathlib import Path

import pytest
import torch

from saccade.layers import kernels, short_heads
from saccade.layers.kernels import neighbourhoods
from saccade.layers.readout_block import class_token_attention
from saccade.models.basic_vit import Block


def inputs(n=2, heads=2, width=3, tokens=100, dtype=torch.float64, scale=1.0):
    g = torch.Generator().manual_seed(0)
    return [(torch.randn(n, heads, width, tokens, generator=g, dtype=dtype) * scale).requires_grad_() for _ in range(3)]


def gradients(function, tensors):
    out = function(*tensors)
    # Drawn in one precision: from one seed, float32 and float64 give different numbers.
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(out.dtype)
    return [out, *torch.autograd.grad((out * weight).sum(), tensors)]


def recompute(q, k, v):
    return short_heads.Recompute.apply(q * (short_heads.LOG2_E * q.shape[2] ** -0.5), k, v)


def native(q, k, v):
    return short_heads.Native.apply(q * (short_heads.LOG2_E * q.shape[2] ** -0.5), k, v)


@pytest.mark.parametrize(("heads", "width", "tokens"), [(2, 3, 100), (1, 6, 70), (2, 8, 100), (1, 1, 65)])
def test_recompute_equals_dense_in_float64(heads, width, tokens):
    args = inputs(heads=heads, width=width, tokens=tokens)
    for a, b in zip(gradients(recompute, args), gradients(short_heads.dense, args), strict=True):
        assert (a - b).abs().max() < 1e-12


def test_recompute_passes_gradcheck():
    q, k, v = inputs(1, 1, 2, 5)
    assert torch.autograd.gradcheck(short_heads.Recompute.apply, (q, k, v))


@pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
@pytest.mark.parametrize(
    ("heads", "width", "tokens"),
    [(2, 3, 784), (2, 8, 100), (1, 6, 97), (3, 1, 65), (1, 6, 784), (1, 16, 100), (2, 7, 17), (1, 13, 33)],
)
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_native_is_as_close_to_float64_as_torch_itself(heads, width, tokens, scale):
    exact = gradients(short_heads.dense, inputs(1, heads, width, tokens, scale=scale))
    single = inputs(1, heads, width, tokens, torch.float32, scale)
    with torch.no_grad():
        for s, d in zip(single, inputs(1, heads, width, tokens, scale=scale), strict=True):
            s.copy_(d)
    for mine, theirs, truth in zip(gradients(native, single), gradients(short_heads.dense, single), exact, strict=True):
        error = (mine.double() - truth).abs().max()
        # Larger scores leave fewer digits for what is behind the point, also in the logarithm of the row's sum.
        assert error <= 4 * (theirs.double() - truth).abs().max() + 1e-6 * scale * truth.abs().max()


@pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
def test_native_does_not_hide_nan_or_overflow():
    q, k, v = (t.detach().float() for t in inputs(1, 1, 3, 80))
    q[0, 0, 0, 3] = float("nan")
    assert torch.isnan(short_heads.Native.apply(q, k, v)[0, 0, :, 3]).all()
    q, k, v = (t.detach().float() * 60 for t in inputs(1, 1, 3, 80))  # scores of thousands
    assert torch.isfinite(short_heads.Native.apply(q, k, v)).all()


@pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_native_gradients_of_nan_stay_in_its_row(sign):
    q, k, v = (t.detach().float().requires_grad_() for t in inputs(1, 1, 6, 70))  # 70: rows have to be filled up
    weight = torch.ones(1, 1, 6, 70)
    weight[..., 3] = sign * float("nan")
    gq, gk, gv = torch.autograd.grad(short_heads.Native.apply(q, k, v), (q, k, v), weight)
    assert torch.isnan(gq[..., 3]).all() and torch.isnan(gk).all() and torch.isnan(gv).all()
    assert torch.isfinite(gq[..., :3]).all() and torch.isfinite(gq[..., 4:]).all()


@pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")
def test_native_gradients_when_every_score_is_far_below_zero():
    """Then 2^-norm is beyond float32, and a token that only fills up the row must not bring infinity in."""
    q, k, v = (t.detach() for t in inputs(1, 1, 3, 70))
    q, k = q.abs() * 10, -k.abs() * 10 - 20
    exact = gradients(short_heads.dense, [t.clone().requires_grad_() for t in (q, k, v)])
    for a, b in zip(gradients(native, [t.float().requires_grad_() for t in (q, k, v)]), exact, strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max()


@pytest.mark.skipif(kernels._compiler() is None, reason="no C compiler on PATH")
def test_where_there_is_a_compiler_every_kernel_builds():
    """Tests of kernels are skipped where there are none, so a source that does not compile must fail here."""
    assert not kernels.why_not()
    built = {
        "short_heads.c": kernels.short_heads(6),
        "few_tokens.c": kernels.few_tokens(),
        "content.c": kernels.content(),
        "token_maps.c": kernels.token_maps(),
        "separable.c": kernels.separable(),
        "conv_pool.c": kernels.conv_pool(3, 6, 5),
        "conv_average.c": kernels.conv_average(5),
        "paste.c": kernels.paste(),
        "pairwise.c": neighbourhoods.pairwise(4, 2),
        "local_aggregation.c": neighbourhoods.aggregation(),
    }
    assert all(built.values())
    assert set(built) == {file.name for file in Path(kernels.__file__).parent.glob("*.c")}


def test_attend_works_without_a_compiler(monkeypatch):
    monkeypatch.setattr(kernels, "short_heads", lambda width: None)
    q, k, v = (t.detach().float() for t in inputs(1, 2, 3, 100))
    torch.testing.assert_close(short_heads.attend(q, k, v), short_heads.dense(q, k, v), atol=1e-5, rtol=1e-5)


def test_probabilities_sum_to_one():
    q, k, _ = inputs()
    p = short_heads.probabilities(q, k)
    assert p.shape == (2, 2, 100, 100)
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 2, 100, dtype=torch.float64))


@pytest.mark.parametrize("heads", [1, 4])
def test_class_token_block_equals_the_whole_block(heads):
    torch.manual_seed(0)
    block = Block(16, heads).double()
    x = torch.randn(3, 9, 16, dtype=torch.float64, requires_grad=True)
    outs = []
    for function in (lambda t: block(t)[:, 0], block.class_token):
        out = function(x)
        tensors = [x, *(p for p in block.parameters())]
        outs.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    for a, b in zip(*outs, strict=True):
        assert (a - b).abs().max() < 1e-12
    assert class_token_attention(x, block.qkv.weight, block.qkv.bias, heads).shape == (3, 16)
