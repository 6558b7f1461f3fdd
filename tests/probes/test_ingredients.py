"""Ingredients taken away from models whose use of them is known."""

import math

import pytest
import torch
from torch import nn

from saccade import models
from saccade.data.images import Source
from saccade.probes.ingredients import WITHOUT, ingredients, position_codes
from saccade.spec import SaccadeError, Settings
from saccade.subjects.subject import Subject

DATA = Source("photos", Settings(of="procedural_textures", hold_out=100), 0)
ATTENDING = {
    "vit": {"dim": 16, "depth": 2, "heads": 2, "patch": 8},
    "basic_vit": {"dim": 16, "heads": 2, "depth": 2},
    "basic_vit, one block": {"dim": 16, "heads": 2},  # patches are never embedded there
    "conv_stem_vit": {"dim": 16, "heads": 2, "depth": 2, "width": 4, "hidden": 16, "patch": 8},
    "learned_relative": {"dim": 16, "heads": 2, "depth": 2, "content": True, "patch": 8, "hidden": 16},
    "local_attn": {},
}


def use(model, name, n=40, **settings):
    (row,) = ingredients(Subject(model, (0.5,) * 3, (0.5,) * 3), DATA, ingredients=(name,), n=n, **settings)
    assert (row.metric, row.n, dict(row.at)) == ("use", n, {"ingredient": name})
    return row.value


def built(name):
    return models.build(name.partition(",")[0], 10, seed=0, **ATTENDING[name])


class Weighted(nn.Module):
    """The difference of two logits is a sum over 64 noise values, one for each place, weighted by the place's code."""

    position_codes = (("places", 0),)

    def __init__(self, codes):
        super().__init__()
        self.register_buffer("places", codes)

    def forward(self, x):
        noise = torch.randn(len(x), len(self.places), generator=torch.Generator().manual_seed(0), dtype=x.dtype)
        total = noise @ self.places
        return torch.stack([total, -total], 1)


def test_uncorrelated_weights_change_the_logits_by_root_two_of_their_spread():
    codes = torch.tensor([1.0, -1.0]).repeat(32)
    assert use(Weighted(codes), "positions", n=300, draws=40) == pytest.approx(math.sqrt(2), rel=0.1)


def test_equal_codes_are_not_in_use():
    assert use(Weighted(torch.ones(64)), "positions") < 1e-12


def test_positions_that_start_at_zero_are_not_in_use():
    assert use(built("vit"), "positions") == 0


@pytest.mark.parametrize("name", ["basic_vit", "conv_stem_vit", "learned_relative", "local_attn"])
def test_drawn_codes_are_in_use(name):
    assert use(built(name), "positions") > 1e-3


def test_a_class_token_keeps_its_code():
    model = built("vit")
    with torch.no_grad():
        model.positions[:, 0] += torch.randn(16)  # the same code everywhere else
    assert use(model, "positions") == 0


def test_the_model_is_left_as_it_was():
    model = built("basic_vit").train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    use(model, "positions")
    use(model, "content", n=4)
    assert model.training and all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_an_embedding_of_a_usual_name_is_found():
    model = nn.Module()
    model.pos_embed = nn.Embedding(4, 3)
    ((name, (code, axis)),) = position_codes(model).items()
    assert name == "pos_embed.weight" and code.shape[axis] == 4


def test_a_model_without_codes_says_how_to_name_them():
    with pytest.raises(SaccadeError, match="position_codes ="):
        use(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), "positions")


@pytest.mark.parametrize("name", ATTENDING)
def test_an_images_own_maps_put_in_their_place_change_nothing(name):
    """So the maps that are replaced are those that the model computes with."""
    model, x = built(name).double().eval(), torch.rand(1, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        (z,) = WITHOUT["content"](model, x, 1, 0)
        assert torch.allclose(z, model(x), atol=1e-10)


@pytest.mark.parametrize("name", ATTENDING)
def test_content_of_drawn_weights_is_in_use(name):
    assert use(built(name), "content", n=8) > 1e-4


def test_attention_without_queries_has_no_content():
    model = built("vit")
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight[:16] = 0
            block.attention.qkv.bias[:16] = 0
    assert use(model, "content", n=8) < 1e-12


def test_a_model_without_attention_is_refused():
    with pytest.raises(SaccadeError, match="shows no attention maps"):
        use(models.build("lenet", 10, seed=0), "content", n=2)


def test_an_unknown_ingredient_is_refused():
    with pytest.raises(SaccadeError, match="positions or content"):
        use(built("vit"), "position")
