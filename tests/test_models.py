"""Contracts over the registry, parameter counts of the papers, and equality with torch's own layers."""

import pytest
import torch
from torch.nn import functional as F

import saccade
from saccade import models, registry
from saccade.models.mha_lenet import PatchAttention
from saccade.spec import SaccadeError

NAMES = sorted(registry.cards("model"))
# Nets of the papers' sizes are counted elsewhere; the contract holds at any size, and a small one is quick.
SMALL = {
    "quadratic": {"dim": 16, "heads": 3, "depth": 2, "hidden": 16, "patch": 4, "shell": "reproduction"},
    "learned_relative": {"dim": 16, "heads": 3, "depth": 2, "hidden": 16, "patch": 4, "shell": "reproduction"},
    "conv_stem_vit": {"dim": 16, "heads": 3, "depth": 2, "hidden": 16, "patch": 4, "width": 8},
    "san": {"plan": "tiny"},
    "local_dw": {"size": "mini"},
    "resnet18": {"width": 8},
    "resnet50": {"width": 8},
    "convnet": {"width": 8},
    "vit": {"dim": 32, "depth": 2},
}


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    model = models.build(name, 7, seed=1, **SMALL.get(name, {}))
    x = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model.train()
    out = model(x)
    assert out.shape == (3, 7)
    out.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    model.eval()
    torch.testing.assert_close(model(x[1:2]), model(x)[1:2], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_weights_and_no_trace_in_global_state(name):
    before = torch.get_rng_state()
    a, b, c = (models.build(name, seed=s, **SMALL.get(name, {})).state_dict() for s in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert any(not torch.equal(a[k], c[k]) for k in a)


@pytest.mark.parametrize(
    ("name", "args", "count"),
    [
        ("lenet", {}, 62_006),
        ("mha_lenet", {}, 68_064),
        ("mha_lenet", {"reading": "A", "heads": 1}, 68_064),
        ("mha_lenet", {"reading": "B"}, 68_378),
        ("mha_lenet", {"reading": "C"}, 69_006),
        ("mha_lenet", {"reading": "D"}, 63_262),
        ("mha_lenet", {"reading": "E"}, 175_406),
        ("basic_vit", {}, 148_746),
        ("basic_vit", {"channels": 1}, 144_650),
    ],
)
def test_parameter_counts_of_the_papers(name, args, count):
    assert models.parameters(saccade.model(name, **args)) == count


def _tokens(x):
    return F.unfold(x, 5).transpose(1, 2)


def _copy_square(mha, layer):
    """Put a PatchAttention's square projections into torch's layer."""
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.cat([m.weight.flatten(1) for m in (layer.q, layer.k, layer.v)]))
        mha.in_proj_bias.copy_(torch.cat([m.bias for m in (layer.q, layer.k, layer.v)]))
        mha.out_proj.weight.copy_(layer.out.weight.flatten(1))
        mha.out_proj.bias.copy_(layer.out.bias)


def _linear(conv, part=None):
    weight, bias = conv.weight.flatten(1), conv.bias
    if part is not None:
        weight, bias = weight.chunk(3)[part], bias.chunk(3)[part]
    return lambda t: F.linear(t, weight, bias)


@pytest.mark.parametrize(("reading", "heads"), [("A", 1), ("A", 2), ("B", 2), ("C", 2), ("D", 1), ("E", 1), ("E", 3)])
def test_readings_equal_unfold_linear_and_torchs_own_attention(reading, heads):
    torch.manual_seed(0)
    layer = PatchAttention(3, 6, heads, reading).double()
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    tokens, width = _tokens(x), 75 if reading == "E" else 6
    extra = {"kdim": 75, "vdim": 75} if reading == "B" else {}
    mha = torch.nn.MultiheadAttention(width, heads, batch_first=True, **extra).double()
    if reading == "A":  # torch's square layer with identity inside, the maps in front
        with torch.no_grad():
            mha.in_proj_weight.copy_(torch.eye(6).repeat(3, 1))
            mha.in_proj_bias.zero_()
            mha.out_proj.weight.copy_(layer.out.weight.flatten(1))
            mha.out_proj.bias.copy_(layer.out.bias)
        q, k, v = (_linear(layer.qkv, i)(tokens) for i in range(3))
    elif reading == "B":
        with torch.no_grad():
            for name, conv in (("q", layer.q), ("k", layer.k), ("v", layer.v)):
                getattr(mha, f"{name}_proj_weight").copy_(conv.weight.flatten(1))
            mha.in_proj_bias.copy_(torch.cat([layer.q.bias, layer.k.bias, layer.v.bias]))
            mha.out_proj.weight.copy_(layer.out.weight.flatten(1))
            mha.out_proj.bias.copy_(layer.out.bias)
        q, k, v = _linear(layer.before)(tokens), tokens, tokens
    else:
        _copy_square(mha, layer)
        if reading == "C":
            q, k, v = (_linear(layer.before, i)(tokens) for i in range(3))
        else:
            q = k = v = tokens if reading == "E" else _linear(layer.before)(tokens)
    expected, maps = mha(q, k, v, average_attn_weights=False)
    if reading == "E":
        expected = _linear(layer.after)(expected)
    got = layer(x)
    assert got.shape == (2, 6, 5, 5)
    torch.testing.assert_close(got.flatten(2).transpose(1, 2), expected, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(layer.probabilities(x), maps, atol=1e-10, rtol=1e-10)


def test_bad_arguments_are_one_sentence():
    for args, says in (
        ({"reading": "F"}, 'reading of mha_lenet must be one of A, B, C, D, E, not "F"'),
        ({"heads": 4}, "heads must divide 6"),
        ({"hedas": 2}, "did you mean heads"),
        ({"head": "meen"}, "did you mean mean"),
    ):
        with pytest.raises(SaccadeError, match=says):
            saccade.model("mha_lenet", **args)
    with pytest.raises(SaccadeError, match="did you mean lenet"):
        saccade.model("lennet")
    with pytest.raises(SaccadeError, match="does not divide 128"):
        saccade.model("basic_vit", heads=3)
    with pytest.raises(SaccadeError, match="32x32 images"):
        saccade.model("lenet")(torch.zeros(1, 3, 28, 28))


def test_pooled_head_is_blind_to_where_features_are():
    readout = models.build("lenet", head="mean", seed=0).readout
    x = torch.rand(2, 16, 5, 5)
    torch.testing.assert_close(readout(x), readout(x.roll((2, 1), (2, 3))))
    flat = models.build("lenet", seed=0).readout
    assert not torch.allclose(flat(x), flat(x.roll((2, 1), (2, 3))))


def test_vit_maps_are_those_of_the_forward_pass():
    model = models.build("basic_vit", seed=0, dim=32, heads=4, depth=2)
    maps = model.attention(torch.rand(2, 3, 32, 32))
    assert [m.shape for m in maps] == [(2, 4, 65, 65)] * 2
    torch.testing.assert_close(maps[1].sum(-1), torch.ones(2, 4, 65))
