"""SAN and the ViT with a convolutional stem: sizes of the papers, references written out, hierarchy, slips."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import saccade
from saccade import models
from saccade.layers.local_aggregation import padded, scattered, unfolded
from saccade.layers.pairwise_attention import PairwiseAttention
from saccade.layers.patchwise_attention import PatchwiseAttention
from saccade.spec import SaccadeError

HA = {"hierarchical": True}
VIT = {"dim": 8, "heads": 3, "depth": 3, "patch": 8, "hidden": 10, "width": 4}


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize(
    ("name", "args", "count"),
    [
        ("san", {"plan": "truncated"}, 3_737_056),
        ("san", {"plan": "truncated", "pairwise": False}, 3_851_142),
        ("san", HA, 352_750),
        ("san", HA | {"pairwise": False}, 356_282),
        ("san", HA | {"raw_attention": True, "one_key_map": True}, 352_750),
        ("conv_stem_vit", {}, 37_394_506),
        ("conv_stem_vit", HA, 6_531_946),
        ("conv_stem_vit", {"stem": False}, 37_147_082),
        ("conv_stem_vit", HA | {"stem": False}, 6_284_522),
    ],
)
def test_parameter_counts_of_the_papers(name, args, count):
    with torch.device("meta"):
        assert models.parameters(saccade.model(name, **args)) == count


@pytest.mark.parametrize(
    ("plan", "pair", "patch"), [("san10", 10.53, 11.84), ("san15", 14.07, 16.18), ("san19", 17.60, 20.52)]
)
def test_official_sizes_in_millions(plan, pair, patch):
    with torch.device("meta"):
        found = [models.parameters(models.build("san", 1000, plan=plan, pairwise=p)) for p in (True, False)]
    assert [round(n / 1e6, 2) for n in found] == [pair, patch]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("h", "w", "size"), [(6, 7, 3), (5, 5, 7), (2, 3, 7)])
def test_patchwise_equals_everything_unfolded(h, w, size, training):
    torch.manual_seed(0)
    layer, x = PatchwiseAttention(64, size).double().train(training), random(3, 64, h, w)
    around = F.unfold(padded(layer.psi(x), size), size)  # (n, channels places, pixels), channels first
    around = around.unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2).unflatten(2, (h, w))
    z = F.relu(layer.norm1(torch.cat([layer.phi(x), around], 1)))
    w_ = layer.last(F.relu(layer.norm2(layer.mix(z)))).unflatten(1, (2, size**2))
    expected = unfolded(padded(layer.beta(x), size), w_)
    got = layer(x)
    assert got.shape == (3, 16, h, w)
    # in training both calls use the statistics of the batch, so that they do not depend on each other
    assert (got - expected).abs().max() < 1e-12
    if not training:
        assert (layer.weights(x) - w_).abs().max() < 1e-12


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_reflection_goes_back_and_forth(length):
    line = np.arange(length * 2.0).reshape(2, length)
    expected = np.pad(line, 3, mode="reflect")
    got = padded(torch.from_numpy(line)[None, None], 7)
    assert np.array_equal(got[0, 0].numpy(), expected)


@pytest.mark.parametrize("kind", [PairwiseAttention, PatchwiseAttention])
@pytest.mark.parametrize(("h", "w", "size"), [(5, 6, 3), (2, 3, 7)])
def test_maps_over_all_pixels_do_what_the_layer_does(kind, h, w, size):
    torch.manual_seed(0)
    layer, x = kind(64, size).double().eval(), random(2, 64, h, w)
    p = scattered(layer.weights(x))
    assert p.shape == (2, 2, h * w, h * w)
    beta = layer.beta(x).flatten(2).unflatten(1, (-1, 2))  # channel c uses weight channel c mod C / 32
    expected = torch.einsum("nsqk,ngsk->ngsq", p, beta).flatten(1, 2).unflatten(2, (h, w))
    assert (layer(x) - expected).abs().max() < 1e-12
    if kind is PairwiseAttention:
        assert (p.sum(-1) - 1).abs().max() < 1e-12


@pytest.mark.parametrize("kind", [PairwiseAttention, PatchwiseAttention])
def test_given_keys_take_the_place_of_own_ones(kind):
    torch.manual_seed(0)
    layer, x = kind(32, 3).double().eval(), random(2, 32, 5, 5)
    assert (layer(x, layer.psi(x)) - layer(x)).abs().max() < 1e-12
    other = layer.psi(random(2, 32, 5, 5, seed=1))
    assert (layer(x, other) - layer(x)).abs().max() > 1e-3
    if kind is PairwiseAttention:
        assert (layer(x, other) - layer.dense(x, other)).abs().max() < 1e-12
    with pytest.raises(AssertionError, match="must be given"):
        kind(32, 3, own_keys=False)(x.float())


@pytest.mark.parametrize(
    "args",
    [{}, {"flat": True}, HA, {"shared": True}, {"frozen_keys": True}, HA | {"pairwise": False}, {"pairwise": False}],
)
def test_sans_learn_and_show_their_maps(args):
    model = models.build("san", 7, seed=0, plan="tiny", **args)
    x = random(3, 3, 32, 32, dtype=torch.float32)
    model(x).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    shapes = [m.shape[1:] for m in model.eval().attention(x)]
    assert shapes == ([(1, 64, 64)] * 8 if len(args) > ("pairwise" in args) else [(1, 256, 256), (2, 64, 64)])


@pytest.mark.parametrize("pairwise", [True, False])
@pytest.mark.parametrize(("raw", "one"), [(False, False), (True, True)])
def test_hierarchical_san_is_the_written_out_recursion(pairwise, raw, one):
    net = (
        models.build("san", seed=0, plan="tiny", pairwise=pairwise, depth=2, **HA, raw_attention=raw, one_key_map=one)
        .double()
        .eval()
    )
    x = random(2, 3, 32, 32)
    pool, passes = net.stages
    pair, keys, h = passes.blocks[0], {}, pool(net.stem(x))
    for t in range(2):
        h = passes.before[t](h)
        for i, block in enumerate((pair.first, pair.second)):
            z = h if raw else F.relu(block.norm1(h))
            keys.setdefault(0 if one else i, block.attention.psi(z))
            y = unfolded(padded(block.attention.beta(z), 3), block.attention.weights(z, keys[0 if one else i]))
            h = h + block.out(F.relu(block.norm2(y)))
        h = passes.after[t](h)
    assert (net(x) - net.head(h.mean((2, 3)))).abs().max() < 1e-12


def test_san_runs_where_footprints_exceed_the_map():
    net = models.build("san", plan="san10", seed=0).eval()  # 7x7 at 2 and at 1 pixel
    with torch.no_grad():
        assert torch.isfinite(net(random(2, 3, 32, 32, dtype=torch.float32))).all()


@pytest.mark.parametrize(("shared", "frozen"), list(itertools.product([False, True], repeat=2)))
def test_hierarchical_vit_is_the_written_out_recursion(shared, frozen):
    net = models.build("conv_stem_vit", seed=0, **VIT, shared=shared, frozen_keys=frozen).double().eval()
    x = random(2, 3, 32, 32)
    h, keys, found = net.tokens(x), None, []
    assert h.shape == (2, 17, 8)
    for t in range(3):
        block = net.passes.blocks[0 if shared else t]
        z = block.norm1(h)
        if keys is None or not frozen:
            keys = block.key(z).view(2, 17, 3, 8)
        q, v = (layer(z).view(2, 17, 3, 8) for layer in (block.query, block.value))
        p = (torch.einsum("nqec,nkec->neqk", q, keys) / 8**0.5).softmax(-1)
        found.append(p)
        z = block.norm2(z + block.out(torch.einsum("neqk,nkec->nqec", p, v).flatten(2)))
        h = z + block.mlp(z)
    assert (net(x) - net.head(h.mean(1))).abs().max() < 1e-12
    for mine, theirs in zip(net.attention(x), found, strict=True):
        assert (mine - theirs).abs().max() < 1e-12


def test_the_noise_token_differs_from_call_to_call():
    x = random(2, 3, 32, 32, dtype=torch.float32)
    still, noisy = (models.build("conv_stem_vit", seed=0, **VIT, noise_class_token=n).eval() for n in (False, True))
    assert torch.equal(still(x), still(x))
    assert not torch.equal(noisy(x), noisy(x))
    assert torch.equal(noisy.tokens(x)[:, 1:], still.tokens(x)[:, 1:])
    torch.testing.assert_close(still.tokens(x)[0, 0], still.embed.bias + still.positions[0])


@pytest.mark.parametrize("args", [{}, HA, {"shared": True}, {"frozen_keys": True}, {"stem": False}])
def test_vits_learn(args):
    net = models.build("conv_stem_vit", 7, seed=0, **VIT, **args, attention_dropout=0.1)
    net(random(3, 3, 32, 32, dtype=torch.float32)).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("san", {"plan": "san11"}, "did you mean san1"),
        ("san", {"one_key_map": True}, "needs frozen_keys"),
        ("san", {"raw_attention": True}, "set flat=True"),
        ("san", {"depth": 2}, "set flat=True"),
        ("san", {"depth": 0, "flat": True}, "depth of san must be"),
        ("conv_stem_vit", {"width": 0}, "width of conv_stem_vit must be"),
        ("conv_stem_vit", {"patch": 3}, "patch must divide 32"),
    ],
)
def test_bad_arguments_are_one_sentence(name, args, says):
    with pytest.raises(SaccadeError, match=says):
        saccade.model(name, **args)
