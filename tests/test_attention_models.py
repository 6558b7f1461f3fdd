"""Quadratic and learned relative attention: sizes of the papers, factorised against dense, hierarchy, slips."""

import copy
import itertools

import pytest
import torch

import saccade
from saccade import models
from saccade.layers import content_attention
from saccade.layers.content_attention import ContentAttention
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention, dense
from saccade.spec import SaccadeError
from saccade.training.optimizer import make_optimizer

AGAIN = {"shell": "reproduction"}
MANY = {"shell": "reproduction", "heads": 16, "dim": 256, "hidden": 400}
TINY = {"dim": 8, "heads": 3, "depth": 2, "patch": 8, "hidden": 10, "dropout": 0.0}


@pytest.mark.parametrize(
    ("name", "args", "count"),
    [
        ("quadratic", {}, 12_086_844),
        ("quadratic", {"isotropic": False}, 12_087_006),
        ("quadratic", {"heads": 16}, 18_806_970),
        ("quadratic", AGAIN, 11_124_444),
        ("quadratic", AGAIN | {"isotropic": False}, 11_124_606),
        ("quadratic", MANY, 7_538_058),
        ("learned_relative", {}, 29_484_282),
        ("learned_relative", {"content": False}, 12_278_682),
        ("learned_relative", {"key_content": False}, 20_822_682),
        ("learned_relative", AGAIN, 28_478_682),
        ("learned_relative", AGAIN | {"content": False}, 11_316_390),
        ("learned_relative", AGAIN | {"hierarchical": True}, 4_754_122),
        ("learned_relative", MANY | {"value_maps": True}, 26_459_754),
        ("learned_relative", MANY | {"value_maps": True, "content": False}, 13_973_802),
        ("learned_relative", MANY | {"value_maps": True, "hierarchical": True}, 4_414_874),
        ("resnet18", {}, 11_173_962),
        ("resnet18", {"stem": "imagenet"}, 11_181_642),
    ],
)
def test_parameter_counts_of_the_papers(name, args, count):
    with torch.device("meta"):
        assert models.parameters(saccade.model(name, **args)) == count


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def by_map(self, x, keys=None):
    """Every attention layer by its dense map."""
    p = self.probabilities(x, keys) if isinstance(self, ContentAttention) else self.probabilities(*x.shape[1:3])
    return dense(x.flatten(1, 2), p, self.value.folded(), self.value.bias).unflatten(1, x.shape[1:3])


def facts(model, x):
    out = model(x)
    return [out, *torch.autograd.grad((out * random(*out.shape, dtype=out.dtype)).sum(), list(model.parameters()))]


KINDS = [
    ("quadratic", {}),
    ("quadratic", {"additive_centre": True}),
    ("quadratic", {"hierarchical": True}),
    ("quadratic", {"isotropic": False, "additive_centre": True}),
    ("learned_relative", {"content": False}),
    ("learned_relative", {"content": False, "value_maps": True}),
    ("learned_relative", {}),
    ("learned_relative", {"key_content": False}),
    ("learned_relative", {"transposed_content": True}),
    ("learned_relative", {"hierarchical": True}),
    ("learned_relative", {"frozen_keys": True, "value_maps": True, "transposed_content": True}),
]


@pytest.mark.parametrize(
    ("name", "args", "kept"), [*((*kind, 10**6) for kind in KINDS), *((*kind, 0) for kind in KINDS[-3:])]
)  # maps kept, and computed again
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_factorised_models_equal_dense_ones(monkeypatch, name, args, kept, dtype, error):
    monkeypatch.setattr(content_attention, "KEPT", kept)
    model = models.build(name, seed=3, **TINY | args).to(dtype)
    x = random(5, 3, 32, 32, dtype=dtype)
    mine = facts(model, x)
    for kind in (QuadraticAttention, LearnedPositionAttention, ContentAttention):
        monkeypatch.setattr(kind, "forward", by_map)
    for a, b in zip(mine, facts(model, x), strict=True):
        assert (a - b).abs().max() <= error * max(1, float(b.detach().abs().max()))


@pytest.mark.parametrize(("name", "args"), KINDS)
@pytest.mark.parametrize("shell", ["original", "reproduction"])
def test_models_learn_and_show_their_maps(name, args, shell):
    model = models.build(name, 7, seed=0, **TINY | args, shell=shell)
    x = random(3, 3, 32, 32, dtype=torch.float32)
    model(x).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    maps = model.attention(x)
    assert [m.shape for m in maps] == [(3, 3, 16, 16)] * 2
    for m in maps:
        torch.testing.assert_close(m.sum(-1), torch.ones(3, 3, 16))


def test_tokens_are_pixel_blocks_with_colours_inside():
    model = models.build("quadratic", seed=0, **TINY | {"patch": 2, "dim": 12})
    with torch.no_grad():
        model.embed.weight.copy_(torch.eye(12))
        model.embed.bias.zero_()
        x = random(1, 3, 32, 32, dtype=torch.float32)
        tokens = model.tokens(x)
    assert tokens.shape == (1, 16, 16, 12)
    expected = torch.cat([x[0, :, 2 * 4 + i, 2 * 7 + j] for i, j in ((0, 0), (0, 1), (1, 0), (1, 1))])
    torch.testing.assert_close(tokens[0, 4, 7], expected)


def test_attention_dropout_takes_the_map_and_acts_in_training_only():
    for name in ("quadratic", "learned_relative"):
        model = models.build(name, seed=0, **TINY | {"attention_dropout": 0.5})
        x = random(2, 3, 32, 32, dtype=torch.float32)
        assert not torch.equal(model(x), model(x))
        model.eval()
        same = models.build(name, seed=0, **TINY).eval()
        torch.testing.assert_close(model(x), same(x))


def test_hidden_dropout_is_the_shells_own_unless_said():
    nets = [
        models.build("quadratic", **TINY | {"dropout": None} | args) for args in ({}, AGAIN, AGAIN | {"dropout": 0.3})
    ]
    drops = [net.passes.blocks[0].dropout for net in nets]
    assert drops == [0.1, 0.0, 0.3]


def test_centres_and_spreads_are_read_off_and_not_decayed():
    model = models.build("quadratic", seed=0, **TINY, isotropic=False)
    assert [layer.centre.shape for layer in model.layers()] == [(3, 2)] * 2
    spread = model.layers()[0].spread
    torch.testing.assert_close(model.layers()[0].precision(), spread @ spread.transpose(1, 2))
    groups = make_optimizer(saccade.Recipe(100, optimizer="sgd", weight_decay=0.1), model).param_groups
    assert groups[1]["weight_decay"] == 0 and len(groups[1]["params"]) == 4


def test_the_additive_centre_is_another_parametrisation():
    layer = QuadraticAttention(4, 3, 4, additive_centre=True).double()
    right = copy.deepcopy(layer)
    right.additive_centre = False
    assert (right.probabilities(6, 6) - layer.probabilities(6, 6)).abs().max() > 0.01
    with torch.no_grad():  # the second centre is effectively 1 + centre / c
        layer.centre[:, 1] = layer.spread.square() * (right.centre[:, 1] - 1)
    assert (right.probabilities(6, 6) - layer.probabilities(6, 6)).abs().max() < 1e-14


def test_transposed_content_uses_the_weights_of_mirrored_pixels():
    layer = ContentAttention(4, 2, 4, size=5, transposed=True).double()
    right = copy.deepcopy(layer)
    right.transposed = False
    x = random(2, 5, 5, 4)
    wrong, good = (net.probabilities(x).view(2, 2, 5, 5, 5, 5) for net in (layer, right))
    assert torch.equal(wrong[:, :, 1, 3, 2, 4], good[:, :, 3, 1, 4, 2])
    assert (wrong - good).abs().max() > 0.01


@pytest.mark.parametrize(("shared", "frozen"), list(itertools.product([False, True], repeat=2)))
def test_hierarchy_is_the_written_out_recursion(shared, frozen):
    model = models.build(
        "learned_relative", seed=0, **TINY | {"depth": 3}, **AGAIN, shared=shared, frozen_keys=frozen
    ).double()
    x = random(2, 3, 32, 32)
    h = first = model.tokens(x)
    blocks = list(model.passes.blocks) * (3 if shared else 1)
    assert len(blocks) == 3
    found = []
    for block in blocks:
        layer, made = block.attention, blocks[0].attention.key if frozen else block.attention.key
        q, k = (t.view(2, 16, 3, 8).transpose(1, 2) for t in (layer.query(h), made(first if frozen else h)))
        at = torch.cartesian_prod(torch.arange(4), torch.arange(4))
        rows, columns = (
            codes[at[None, :, i] - at[:, None, i] + 3] for i, codes in enumerate((layer.row_codes, layer.column_codes))
        )
        codes = torch.cat([rows, columns], -1)
        p = ((q @ k.transpose(2, 3) + torch.einsum("neqc,qkc->neqk", q, codes)) / 8**0.5).softmax(-1)
        found.append(p)
        mean = torch.einsum("neqk,nkd->nqed", p, h.flatten(1, 2)).flatten(2)
        u = block.norm1(h + layer.value(mean).view(2, 4, 4, 8))
        h = block.norm2(u + block.narrow(block.wide(u).relu()))
    assert (model(x) - model.head(h.mean((1, 2)))).abs().max() < 1e-12
    for mine, theirs in zip(model.attention(x), found, strict=True):
        assert (mine - theirs).abs().max() < 1e-12


def test_size_is_independent_of_the_passes_when_shared():
    sizes = {
        models.parameters(saccade.model("learned_relative", **TINY | {"depth": d}, hierarchical=True))
        for d in (1, 2, 5)
    }
    assert len(sizes) == 1
    whole, frozen = (
        models.parameters(saccade.model("learned_relative", **TINY | {"depth": 3}, frozen_keys=f))
        for f in (False, True)
    )
    assert whole - frozen == 2 * (8 * 24 + 24)  # later blocks have no map for keys


def test_resnet_follows_its_width():
    assert models.build("resnet18", width=2, stem="imagenet")(torch.zeros(2, 3, 64, 64)).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("quadratic", {"frozen_keys": True}, "no keys to freeze"),
        ("learned_relative", {"frozen_keys": True, "content": False}, "no keys to freeze"),
        ("learned_relative", {"transposed_content": True, "content": False}, "needs content=True"),
        ("learned_relative", {"key_content": False, "content": False}, "kind of content"),
        ("quadratic", {"shell": "originl"}, "did you mean original"),
        ("quadratic", {"patch": 5}, "patch must divide 32"),
        ("quadratic", {"depth": 0}, "depth of quadratic must be a whole number from 1"),
        ("learned_relative", {"dim": 7}, "dim must be even"),
        (
            "quadratic",
            {"attention_dropout": 1.0},
            "attention_dropout of quadratic must be a number of at least 0 and below 1",
        ),
        ("resnet18", {"stem": "cifr"}, "did you mean cifar"),
    ],
)
def test_bad_arguments_are_one_sentence(name, args, says):
    with pytest.raises(SaccadeError, match=says):
        saccade.model(name, **args)
