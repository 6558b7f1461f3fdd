"""Probes of local structure on subjects whose answers are known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from saccade.data.images import Source
from saccade.data.points import sized
from saccade.probes.patch_shuffle import patch_shuffle, shuffled
from saccade.probes.small_object_accuracy import small_object_accuracy
from saccade.probes.top_k_matching import top_k_matching
from saccade.spec import SaccadeError, Settings
from saccade.subjects import scores
from saccade.subjects.subject import Subject

DATA = Source("photos", Settings(of="procedural_textures", hold_out=100), 0)


class Fixed(nn.Module):
    """Scores that do not look at the image: the same for all, or random ones."""

    def __init__(self, row=None):
        super().__init__()
        self.row, self.draw = row, torch.Generator().manual_seed(0)

    def forward(self, x):
        return torch.rand(len(x), 10, generator=self.draw) if self.row is None else self.row.expand(len(x), -1)


class Reader(nn.Module):
    """Knows every test image by heart and looks for them in the squares of 32 pixels at these corners."""

    def __init__(self, corners):
        super().__init__()
        x, y = sized("procedural_textures", "test", "bilinear")
        self.known = {p.numpy().tobytes(): int(label) for p, label in zip(x, y, strict=True)}
        self.corners = corners

    def forward(self, x):
        z = torch.zeros(len(x), 10)
        for i, picture in enumerate(x.mul(255).round().byte()):
            for top, left in self.corners:
                label = self.known.get(picture[:, top : top + 32, left : left + 32].contiguous().numpy().tobytes())
                if label is not None:
                    z[i, label] += 1
        return z


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def subject(model):
    return Subject(model, (0.0,) * 3, (1.0,) * 3)


def table(rows):
    return {(r.metric, *r.at.values()): r for r in rows}


def test_chance_is_hypergeometric():
    exact = scores.by_chance(10, 4, 4)
    assert [round(p, 4) for p in exact] == [0.0714, 0.3810, 0.4286, 0.1143, 0.0048]
    assert math.isclose(sum(exact), 1) and math.isclose(sum(i * p for i, p in enumerate(exact)), 1.6)
    assert exact[4] == 1 / 210
    assert scores.by_chance(4, 4, 4) == (0, 0, 0, 0, 1)


def test_random_scores_match_by_chance():
    got = table(top_k_matching(subject(Fixed()), DATA, n=4000))
    assert abs(got["top_k_matching", 4].value - 1.6) < 4 * 0.8 / 4000**0.5
    for count, p in enumerate(scores.by_chance(10, 4, 4)):
        assert got["matching_share_by_chance", 4, count].value == p
        assert abs(got["matching_share", 4, count].value - p) < 4 * (p * (1 - p) / 4000) ** 0.5
    assert math.isclose(got["matching_by_chance", 4].value, 1.6)
    assert got["top_k_matching", 4].n == 4000 and got["top_k_matching", 4].each.shape == (4000,)


def test_who_sees_all_tiles_finds_all_and_who_sees_one_finds_it():
    everywhere = Reader([(0, 0), (0, 32), (32, 0), (32, 32)])
    got = table(top_k_matching(subject(everywhere), DATA, n=20, size=64))
    assert got["top_k_matching", 4].value == 4 and got["matching_share", 4, 4].value == 1
    got = table(top_k_matching(subject(Reader([(32, 0)])), DATA, n=20, size=64, k=1))
    assert got["tile_found", 1, "bottom left"].value == 1 and got["tile_found", 1, "top left"].value == 0
    assert got["top_k_matching", 1].value == 1


def test_equal_scores_go_to_the_lower_class():
    assert scores.top(np.zeros((1, 6)), 4).tolist() == [[True] * 4 + [False] * 2]
    assert scores.top(np.array([[0.0, 1, 1, 1, 2]]), 2).tolist() == [[False, True, False, False, True]]
    assert scores.ties(np.array([[0.0, 1, 1, 1, 2], [1, 2, 3, 4, 5]]), 2) == 1


def test_small_objects_by_scale_place_and_image():
    always_three = Fixed(torch.eye(10)[3])
    got = list(small_object_accuracy(subject(always_three), DATA, n=200, backdrops=("procedural_textures", "plain")))
    whole = [r for r in got if r.metric == "object_accuracy"]
    assert [(r.at["backdrop"], r.at["scale"]) for r in whole] == [
        (b, s) for b in ("procedural_textures", "plain") for s in (1.0, 0.5, 0.25)
    ]
    assert all(r.value == 0.1 and r.n == 200 and r.each.sum() == 20 for r in whole)
    for metric, groups in (("object_accuracy_by_place", 9), ("object_accuracy_by_picture", 20)):
        parts = [
            r for r in got if r.metric == metric and r.at["backdrop"] == "procedural_textures" and r.at["scale"] == 0.25
        ]
        assert len(parts) == groups and sum(r.n for r in parts) == 200
        assert math.isclose(sum(r.value * r.n for r in parts), 20)
    assert not [r for r in got if r.metric == "object_accuracy_by_place" and r.at["scale"] == 1]


def test_an_object_that_fills_the_image_is_the_image():
    got = table(small_object_accuracy(subject(Reader([(0, 0)])), DATA, n=50, scales=(1.0,)))
    assert got["object_accuracy", "procedural_textures", 1.0].value == 1


def test_places_are_separated():
    near = Reader([(top, left) for top in range(11) for left in range(11)])  # a third of the 32 places each way
    got = {
        (r.at["row"], r.at["column"]): r
        for r in small_object_accuracy(subject(near), DATA, n=200, scales=(0.5,), size=64)
        if r.metric == "object_accuracy_by_place"
    }
    assert got.pop((0, 0)).value == 1
    assert sum(r.value * r.n for r in got.values()) / sum(r.n for r in got.values()) < 0.2  # it guesses there


def test_shuffling_moves_squares_and_loses_none():
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert torch.equal(shuffled(x, torch.tensor([[0, 1, 2, 3]]), 2), x)
    odd = torch.arange(25.0).reshape(1, 1, 5, 5)
    swapped = shuffled(odd, torch.tensor([[3, 1, 2, 0]]), 2)
    assert swapped[0, 0, :2, :2].tolist() == odd[0, 0, 2:4, 2:4].tolist() and odd[0, 0, 0, 0] == 0
    assert torch.equal(swapped[..., 4, :], odd[..., 4, :]) and torch.equal(swapped[..., 4], odd[..., 4])
    moved = shuffled(x, torch.tensor([[3, 1, 2, 0]]), 2)
    assert moved[0, 0].tolist() == [[10, 11, 2, 3], [14, 15, 6, 7], [8, 9, 0, 1], [12, 13, 4, 5]]


def test_a_bag_of_pixels_does_not_notice_and_a_corner_does():
    torch.manual_seed(0)
    weight = torch.randn(10, 3)
    bag, corner = (
        subject(Lambda(f))
        for f in (lambda x: x.double().mean((2, 3)) @ weight.double().T, lambda x: (x[:, :, 0, 0] - 0.5) @ weight.T)
    )
    kept = {r.at["grid"]: r.value for r in patch_shuffle(bag, DATA, n=60) if r.metric == "answer_kept"}
    assert kept == {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}
    rows = list(patch_shuffle(corner, DATA, n=200))
    kept = {r.at["grid"]: r.value for r in rows if r.metric == "answer_kept"}
    assert kept[1] == 1 and kept[8] < 0.9
    right = {r.at["grid"]: r for r in rows if r.metric == "shuffled_accuracy"}
    assert right[1].value == corner.correct(DATA("test").head(200)).mean() and right[1].each.shape == (200,)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: list(patch_shuffle(subject(Fixed()), DATA, n=4, grids=(64,))), "cannot be cut into 64 x 64"),
        (lambda: list(top_k_matching(subject(Fixed()), DATA, n=4, k=11)), "k must be between 1 and"),
        (lambda: list(top_k_matching(subject(Lambda(lambda x: x[:, :, 0, 0])), DATA, n=4)), "answers with 3 classes"),
        (lambda: list(top_k_matching(subject(Fixed()), Source("digits_on_backgrounds", Settings(), 0))), "of=cifar10"),
    ],
)
def test_one_sentence_for_what_does_not_fit(call, says):
    with pytest.raises(SaccadeError, match=says):
        call()
