"""Heads whose numbers are known: Gaussians on a grid, a look at one pixel, a look that follows content."""

import math

import pytest
import torch
from torch import nn

from saccade import models
from saccade.data.images import Source
from saccade.layers.position_attention import QuadraticAttention
from saccade.probes import attention_geometry as geometry
from saccade.probes.centres_in_training import centres_in_training
from saccade.probes.conversion import conversion
from saccade.probes.convolution_theorem import convolution_theorem, from_marginals
from saccade.probes.inference_time import alternate, inference_time
from saccade.probes.sizes import sizes
from saccade.probes.train_mode_accuracy import train_mode_accuracy
from saccade.spec import Recipe, SaccadeError, Settings
from saccade.subjects.subject import Subject

DATA = Source("photos", Settings(of="procedural_textures", p=64, hold_out=100), 0)
TINY = {"dim": 8, "heads": 4, "depth": 2, "hidden": 8, "patch": 8, "dropout": 0.0}
NINE = torch.tensor([[i, j] for i in (-1, 0, 1) for j in (-1, 0, 1)], dtype=torch.float)


def subject_of(name, **args):
    images = DATA("train")
    return Subject(models.build(name, images.classes, seed=0, **args).eval(), images.mean, images.std)


def found(rows, metric, **at):
    return [r.value for r in rows if r.metric == metric and all(r.at.get(k) == v for k, v in at.items())]


# -- centres


def test_a_convolution_is_on_the_grid_and_covers_it():
    told = geometry.of_centres(NINE, torch.eye(2).expand(9, 2, 2))
    assert told["lattice_distance"] == 0 and told["coverage"] == 1 and told["anisotropy"] == 0
    assert told["centre_norm"] == pytest.approx((4 + 4 * math.sqrt(2)) / 9) and told["degenerate"] == 0
    off = geometry.of_centres(NINE + 0.3, torch.eye(2).expand(9, 2, 2))
    assert off["lattice_distance"] == pytest.approx(0.3 * math.sqrt(2)) and off["coverage"] == 1
    assert geometry.coverage(torch.tensor([[0.2, 0.1], [-0.3, 0.4], [5.0, 0.0]])) == 1


def test_random_centres_are_as_far_from_the_grid_as_the_figure_says():
    centre = 2 * torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
    told = geometry.of_centres(centre, torch.eye(2).expand(len(centre), 2, 2))
    assert told["lattice_distance"] == pytest.approx(0.3826, abs=0.005)


def test_strips_and_even_looks_are_degenerate():
    shapes = torch.stack([torch.diag(torch.tensor(v)) for v in ((1.0, 1.0), (2000.0, 1.0), (1e-6, 1e-6), (900.0, 1.0))])
    told = geometry.of_centres(torch.zeros(4, 2), shapes)
    assert told["degenerate"] == 0.5
    assert told["anisotropy"] == pytest.approx((math.log(2000) + math.log(900)) / 4, rel=1e-5)


@pytest.mark.parametrize("isotropic", [True, False])
def test_the_acting_centre_is_where_probabilities_peak(isotropic):
    torch.manual_seed(0)
    layer = QuadraticAttention(4, 6, 4, isotropic=isotropic, additive_centre=True)
    with torch.no_grad():
        layer.centre.copy_(torch.tensor([[0, 1.0], [1, -2], [-1, 3], [2, 0], [0, 0], [-2, -1]]))
        centre, side = geometry.acting_centre(layer), 21
        grid = torch.stack(torch.meshgrid(*(torch.arange(side) - 10.0,) * 2, indexing="ij"), -1).view(-1, 2)
        p = layer.probabilities(side, side)[:, side * side // 2]
    torch.testing.assert_close(p @ grid, centre, atol=0.02, rtol=0.01)  # the mean of a Gaussian is its centre


# -- maps


def shift_map(side, down, right):
    p = torch.zeros(side, side, side, side)
    for i in range(side):
        for j in range(side):
            p[i, j, min(max(i + down, 0), side - 1), min(max(j + right, 0), side - 1)] = 1
    return p.view(side * side, side * side)


def test_heads_that_shift_are_single_positional_and_separated():
    p = torch.stack([shift_map(8, 0, 1), shift_map(8, -1, 0), shift_map(8, -1, 0)]).expand(5, -1, -1, -1)
    told = geometry.of_maps(p)
    assert told["single_heads"] == 1 and told["entropy"] == 0 and told["far_heads"] == 0
    assert told["positional_share"] == pytest.approx(1) and told["positional_heads"] == 1
    assert told["distinct_shifts"] == pytest.approx(2 / 3) and told["average_variation"] == 0
    assert told["distance"] == pytest.approx(7 / 8)  # the border stays where it is
    assert geometry.favourite_shifts(p[0]) == [(0, 1), (-1, 0), (-1, 0)]


def test_an_even_look_and_a_look_by_content():
    even = geometry.of_maps(torch.full((4, 2, 16, 16), 1 / 16))
    assert even["entropy"] == pytest.approx(math.log(16)) and even["single_heads"] == 0
    assert even["far_heads"] == 0  # far on average, but no pattern
    follows = torch.zeros(16, 1, 16, 16)
    for i in range(16):
        follows[i, 0, :, i] = 1  # every query at one token, another one in each image
    told = geometry.of_maps(follows)
    assert told["positional_share"] == pytest.approx(0, abs=1e-6) and told["positional_heads"] == 0
    assert told["average_positional"] == pytest.approx(0, abs=1e-6)
    assert told["average_variation"] == pytest.approx(15 / 16)
    half = torch.cat([follows, torch.stack([shift_map(4, 0, 0)] * 16)[:, None]], 1)
    assert geometry.of_maps(half)["positional_heads"] == 0.5


def test_a_head_that_looks_at_a_far_token_looks_far():
    told = geometry.of_maps(torch.stack([shift_map(8, 4, 0), shift_map(8, 0, 1)]).expand(3, -1, -1, -1))
    assert told["far_heads"] == 0.5


def test_distances_are_euclidean():
    d = geometry.distances(3)
    assert d[0, 8] == pytest.approx(2 * math.sqrt(2)) and d[4].sum() == pytest.approx(4 + 4 * math.sqrt(2))


def test_the_probe_compares_with_the_untrained_model_of_its_seed():
    subject = subject_of("quadratic", **TINY)
    with torch.no_grad():
        for layer in subject.model.modules():
            if isinstance(layer, QuadraticAttention):
                layer.centre += torch.tensor([0.3, 0.4])
    rows = list(geometry.attention_geometry(subject, DATA, n=3, model="quadratic", args=TINY, show=True))
    assert found(rows, "centre_moved", state="trained") == pytest.approx([0.5, 0.5])
    assert found(rows, "moved", ingredient="centres") == pytest.approx([0.5])
    assert found(rows, "varies", ingredient="content") == pytest.approx([0], abs=1e-6)  # no content to follow
    assert len(found(rows, "entropy")) == 4 and len(found(rows, "head_map")) == 2 * 4 * 3
    assert len(found(rows, "head_centre", state="start")) == 8
    assert max(found(rows, "average_variation")) < 1e-6  # position only, up to the rounding of a mean


def test_maps_need_attention_on_a_square_grid():
    with pytest.raises(SaccadeError, match="has no attention maps"):
        geometry.probabilities(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(SaccadeError, match="square grid"):
        geometry.probabilities(subject_of("basic_vit", dim=8).model, torch.zeros(1, 3, 32, 32))


def test_a_second_training_ends_where_the_first_did():
    from saccade.training.loop import fit

    recipe = Recipe(images=64, batch=16, optimizer="adamw", lr=0.01, watch=0)
    subject = subject_of("quadratic", **TINY)
    for _ in fit(subject.model, DATA, recipe):
        pass
    rows = list(centres_in_training(subject, DATA, model="quadratic", args=TINY, recipe=recipe.essence(), looks=2))
    assert found(rows, "same_as_trained") == [1.0] and {r.at.get("step") for r in rows} == {2, 4, None}
    assert not list(centres_in_training(subject, Source(DATA.name, DATA.args, 1), model="quadratic"))


# -- exact checks


def test_the_theorem_is_checked_with_numbers():
    rows = list(convolution_theorem(None, DATA, kernels=(2, 3), trials=1, alphas=(2, 10)))
    assert max(found(rows, "theorem_error", dtype="float64")) < 1e-12
    assert max(found(rows, "theorem_error", dtype="float32")) < 1e-5
    assert found(rows, "leakage_ratio", alpha=10.0)[0] == pytest.approx(1, abs=1e-3)
    assert found(rows, "leakage", alpha=2.0)[0] > found(rows, "leakage", alpha=10.0)[0] > 0
    assert found(rows, "doubled_head_error")[0] > 0.05
    assert (
        found(rows, "product_error", kind="isotropic")[0]
        < 1e-12
        < 1e-3
        < found(rows, "product_error", kind="non-isotropic")[0]
    )


def test_a_product_is_the_product_of_its_marginals():
    rows, columns = (torch.rand(2, 16, 4, dtype=torch.double).softmax(-1) for _ in range(2))
    p = (rows[..., :, None] * columns[..., None, :]).flatten(2)
    torch.testing.assert_close(from_marginals(p, 4), p)


def test_sizes_are_counted_without_memory():
    rows = list(
        sizes(
            None,
            DATA,
            nets=(
                {"net": "a", "model": "learned_relative", "args": {}},
                {"net": "b", "model": "conv_stem_vit", "args": {"hierarchical": True}},
            ),
        )
    )
    assert found(rows, "size", net="a") == [29_484_282] and found(rows, "size", net="b") == [6_531_946]


# -- a convolutional model made into attention, time, training mode


def test_conversion_keeps_the_answers_and_then_drifts():
    rows = list(conversion(subject_of("lenet"), DATA, n=50, steps=2, batch=8, lr=0.01))
    exact = {"form": "attention, exact"}
    assert found(rows, "logit_difference", **exact)[0] < 1e-5
    assert found(rows, "agreement", when="before", **exact) == [1]
    assert found(rows, "converted_accuracy", when="before", **exact) == found(
        rows, "converted_accuracy", when="before", form="convolution"
    )
    assert max(found(rows, "nearest_distance", when="before", **exact)) < 1e-6
    loose = {"form": "attention, alpha 3", "when": "after"}
    assert min(found(rows, "centre_drift", **loose)) > 1e-4
    assert max(found(rows, "nearest_distance", when="before", form="attention, alpha 3")) > 0.01


def test_models_are_timed_in_turns():
    order = []

    class Told(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def forward(self, x):
            order.append(self.name)
            return x

    taken = alternate([Told("a"), Told("b")], torch.zeros(1), 3)
    assert order == list("abababab") and [len(t) for t in taken] == [3, 3]
    pair = {"family": "f", "size": "ours", "model": "quadratic", "sa": TINY, "ha": {**TINY, "hierarchical": True}}
    rows = list(inference_time(subject_of("quadratic", **TINY), DATA, pairs=(pair,), repeats=2))
    assert all(v > 0 for v in found(rows, "milliseconds")) and len(rows) == 4
    assert found(rows, "timed_parameters", form="HA") < found(rows, "timed_parameters", form="SA")


def test_training_mode_moves_a_copy_only():
    subject = subject_of("resnet18", width=2)
    before = {k: v.clone() for k, v in subject.model.state_dict().items()}
    (row,) = train_mode_accuracy(subject, DATA, n=60, batch=20)
    assert row.metric == "accuracy_in_train_mode" and 0 <= row.value <= 1
    assert all(torch.equal(before[k], v) for k, v in subject.model.state_dict().items())
    assert not subject.model.training
