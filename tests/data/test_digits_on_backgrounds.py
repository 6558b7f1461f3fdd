"""The construction of sheet and thesis: who meets which image, and what the transforms leave alone."""

import dataclasses

import numpy as np
import pytest
import torch

from benchmarks.pure import without_kernels
from saccade import rng
from saccade.data import pixels
from saccade.data.digits_on_backgrounds import digits_on_backgrounds
from saccade.data.images import Source, tensors
from saccade.layers import kernels
from saccade.probes.digit_transforms import transformed
from saccade.spec import SaccadeError, Settings

DRAWN = {"digits": "procedural_digits", "scenes": "procedural_textures"}


def make(split, **args):
    return digits_on_backgrounds(split, **{"seed": 0, **DRAWN, **args})


@pytest.mark.parametrize("x", [1, 2, 4, 8, 16, 32, 64])
def test_backgrounds_are_disjoint_between_classes_and_from_ood(x):
    train, known, ood = (make(s, backgrounds=x) for s in ("train", "id", "ood"))
    sets = [set(train.which[train.y == d].tolist()) for d in range(10)]
    assert all(len(s) == x for s in sets)
    assert len(set.union(*sets)) == 10 * x
    for d in range(10):
        assert set(known.which[known.y == d].tolist()) <= sets[d]
    # Another split altogether: no OOD image is a training image.
    pictures = tensors("procedural_textures", "train")[0]
    training = {bytes(p) for p in pictures[torch.tensor(sorted(set.union(*sets)))].numpy()}
    shown = {bytes(p) for p in ood.scenes[ood.which[:300]].numpy()}
    assert not training & shown


def test_sets_are_nested_in_x_and_labels_balanced():
    small, large = make("train", backgrounds=2), make("train", backgrounds=8)
    for d in range(10):
        assert set(small.which[small.y == d].tolist()) <= set(large.which[large.y == d].tolist())
    counts = torch.bincount(make("ood").head(1000).y, minlength=10)
    assert counts.min() > 60


def test_ood_background_says_nothing_of_the_digit():
    ood = make("ood")
    shares = [len(set(ood.which[ood.y == d].tolist())) for d in range(10)]
    assert min(shares) > 100


def test_random_pairing_lets_any_digit_meet_any_image():
    train = make("train", pairing="random", backgrounds=1)
    assert len(set(train.which[train.y == 3].tolist())) > 500


def test_same_seed_same_images_and_another_seed_other_ones():
    index = torch.arange(10)
    a, b, c = make("train").batch(index), make("train").batch(index), make("train", seed=1).batch(index)
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_composition_by_hand():
    images = make("train", backgrounds=2)
    x = images.batch(torch.tensor([5]))[0]
    ink = np.zeros((32, 32), np.float32)
    ink[2:30, 2:30] = images.ink[5].numpy() / np.float32(255)
    scene = images.scenes[images.which[5]].numpy() / np.float32(255)
    np.testing.assert_allclose(x.numpy(), ink + (1 - ink) * scene, atol=1e-6)


@pytest.mark.parametrize(("name", "neutral"), [("translation", 0), ("rotation", 0), ("scale", 1)])
def test_the_neutral_severity_is_the_plain_image_bit_for_bit(name, neutral):
    images = make("ood").head(20)
    index = torch.arange(20)
    (same,) = transformed(images, name, neutral, seed=0)
    assert torch.equal(same.batch(index), images.batch(index))


@pytest.mark.parametrize(("name", "severity"), [("translation", 4), ("rotation", 20), ("scale", 0.75)])
def test_only_the_digit_is_transformed(name, severity):
    images = make("ood").head(20)
    index = torch.arange(20)
    for moved in transformed(images, name, severity, seed=0):
        assert not torch.equal(moved.batch(index), images.batch(index))
        no_ink = torch.zeros_like(images.ink)
        bare = dataclasses.replace(moved, ink=no_ink).batch(index)
        assert torch.equal(bare, dataclasses.replace(images, ink=no_ink).batch(index))


def test_a_five_pixel_move_loses_no_ink_and_rotation_goes_both_ways():
    images = make("ood").head(50)
    boxed = torch.zeros_like(images.ink)
    boxed[:, 4:24, 4:24] = 200  # MNIST's ink lives in the central 20x20
    images = dataclasses.replace(images, ink=boxed)
    (moved,) = transformed(images, "translation", 5, seed=0)
    index = torch.arange(50)
    before, after = images.opacity(index), pixels.warp(images.opacity(index), moved.maps)
    torch.testing.assert_close(after.sum((1, 2, 3)), before.sum((1, 2, 3)), rtol=0.01, atol=0.1)
    plus, minus = transformed(images, "rotation", 30, seed=0)
    torch.testing.assert_close(plus.maps[:, 0, 1], -minus.maps[:, 0, 1])


def test_training_draws_augmentation_and_backgrounds_from_the_generator_only():
    def shown(seed, **args):
        images = make("train", backgrounds=4, **args)
        return images.batch(torch.arange(8), torch.Generator().manual_seed(seed))

    assert torch.equal(shown(0), shown(1))
    for args in ({"augment": "mild"}, {"augment": "colours"}, {"assign": "every_time"}):
        assert torch.equal(shown(0, **args), shown(0, **args))
        assert not torch.equal(shown(0, **args), shown(1, **args))
    for augment in ("mild", "colours"):
        images = make("train", augment=augment)
        assert torch.equal(images.batch(torch.arange(8)), make("train").batch(torch.arange(8)))
    assert make("ood", augment="mild").jitter == ()
    assert make("ood", augment="colours").colours == 0


def test_varied_colours_leave_the_drawing_alone():
    """One straight line per image and channel from old to new values, all of an image's with the same slope."""
    plain, index = make("train"), torch.arange(16)
    old = plain.batch(index).flatten(2)
    new = make("train", augment="colours").batch(index, torch.Generator().manual_seed(3)).flatten(2)
    centred = old - old.mean(-1, keepdim=True)
    slope = (centred * (new - new.mean(-1, keepdim=True))).sum(-1) / centred.square().sum(-1)
    torch.testing.assert_close(slope, slope[:, :1].expand_as(slope), rtol=1e-4, atol=1e-5)
    assert slope.min() >= 0 and slope.max() <= 2 and slope[:, 0].std() > 0.2
    line = slope[..., None] * (old - 0.5) + 0.5
    moved = new - line
    torch.testing.assert_close(moved, moved[..., :1].expand_as(moved), rtol=1e-4, atol=1e-5)
    assert moved.abs().max() <= 0.5 + 1e-5 and moved[:, 0, 0].std() > 0.1


def test_every_blend_and_placement_stays_in_range():
    for blend in ("opacity", "maximum", "hard", "add"):
        for placement in ("pad", "resize"):
            x = make("ood", blend=blend, placement=placement).batch(torch.arange(30))
            assert x.shape == (30, 3, 32, 32) and x.min() >= 0 and x.max() <= 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"backgrounds": 0}, "must be a whole number from 1"),
        ({"backgrounds": 99999}, "between 1 and"),
        ({"blend": "opacty"}, "did you mean opacity"),
        ({"split": "oood"}, "did you mean ood"),
        ({"digits": "mnst"}, "did you mean mnist"),
    ],
)
def test_bad_arguments(args, says):
    with pytest.raises(SaccadeError, match=says):
        make(args.pop("split", "train"), **args)


def test_source_binds_and_picks():
    source = Source("digits_on_backgrounds", Settings(DRAWN, backgrounds=2), 3)
    images = source("id")
    some = images.pick(torch.tensor([4, 2]))
    assert torch.equal(some.batch(torch.tensor([0, 1])), images.batch(torch.tensor([4, 2])))
    assert len(images.head(7)) == 7


@pytest.mark.skipif(bool(kernels.why_not()), reason="no C compiler here")
@pytest.mark.parametrize("assign", ["once", "every_time"])
def test_the_kernel_pastes_the_same_bits(assign):
    train = make("train", assign=assign)
    index = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:50]
    fast = train.batch(index, rng.stream(0, "augment", 1))
    with without_kernels():
        assert torch.equal(fast, train.batch(index, rng.stream(0, "augment", 1)))
    assert torch.equal(train.batch(index[::2]), train.batch(index)[::2])  # also from a view of numbers


@pytest.mark.parametrize("index", [[0, 10**6], [-1, 0]])
def test_an_image_that_is_not_there_is_refused(index):
    with pytest.raises(IndexError):
        make("train").batch(torch.tensor(index))
    broken = dataclasses.replace(make("train"), which=torch.full((len(make("train")),), 10**6))
    with pytest.raises(IndexError):
        broken.batch(torch.tensor([0, 1]))
