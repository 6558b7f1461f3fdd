"""Nested, balanced subsets; label noise that is wrong, nested and only in training; two-class sets."""

from itertools import pairwise

import pytest
import torch

from saccade.data.images import tensors
from saccade.data.points import points
from saccade.spec import SaccadeError


def make(split="train", **args):
    return points(split, **{"seed": 0, "of": "procedural_digits", **args})


def as_set(images):
    return {(bytes(x.numpy()), int(y)) for x, y in zip(images.x, images.y, strict=True)}


def test_subsets_are_nested_in_p():
    sets = [as_set(make(p=p)) for p in (16, 64, 128, 500)]
    assert all(small < large for small, large in pairwise(sets))
    assert torch.equal(make(p=500).x[:128], make(p=128).x)


@pytest.mark.parametrize("p", [10, 64, 128, 1000, 1024])
def test_every_beginning_has_all_classes_equally_often(p):
    counts = make(p=p).y.bincount(minlength=10)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == p


def test_seeds_draw_other_points_and_repeat_their_own():
    assert as_set(make(p=64)) == as_set(make(p=64))
    assert len(as_set(make(p=64)) & as_set(make(p=64, seed=1))) < 20


@pytest.mark.parametrize("noise", [0.1, 0.2])
def test_noise_is_wrong_in_its_share_and_only_in_training(noise):
    clean, noisy = make(p=4000), make(p=4000, noise=noise)
    assert torch.equal(clean.x, noisy.x)
    assert (clean.y != noisy.y).float().mean() == pytest.approx(noise, abs=0.02)
    assert torch.equal(make("test").y, make("test", noise=noise).y)
    wrong = (noisy.y - clean.y)[noisy.y != clean.y] % 10
    shares = wrong.bincount(minlength=10)[1:] / len(wrong)
    assert shares.min() > 0.06 and shares.max() < 0.17  # uniform over the nine others


def test_noise_is_drawn_once_a_seed():
    a, b, clean = make(p=500, noise=0.1), make(p=2000, noise=0.1), make(p=2000)
    assert torch.equal(a.y, b.y[:500])
    more = make(p=2000, noise=0.2)
    first = b.y != clean.y
    assert torch.equal(more.y[first], b.y[first])  # the wrong labels of 10 % are among those of 20 %
    assert not torch.equal(make(p=2000, noise=0.2, seed=1).y, more.y)


def test_a_label_may_stay_right_where_any_may_replace_it():
    clean, noisy = make(p=4000), make(p=4000, noise=0.5, replacement="any")
    assert (clean.y != noisy.y).float().mean() == pytest.approx(0.45, abs=0.03)
    assert (make(p=200, noise=1.0).y != make(p=200).y).all()


def test_two_classes_are_numbered_from_zero():
    train, test = make(p=100, only=(5, 8)), make("test", only=(5, 8))
    assert train.classes == 2 and train.y.bincount().tolist() == [50, 50]
    assert set(test.y.tolist()) == {0, 1}
    x, y = tensors("procedural_digits", "test")
    assert len(test) == int(((y == 5) | (y == 8)).sum()) and x.shape[0] > len(test)
    flipped = make(p=100, only=(5, 8), noise=1.0)
    assert torch.equal(flipped.y, 1 - train.y)
    assert torch.equal(make(p=100, only=(8, 5)).y, 1 - train.y)  # in the order given


def test_grey_sets_have_one_channel_of_32_pixels_and_stay_uint8():
    for resize in ("bilinear", "pad"):
        images = make(p=20, resize=resize)
        assert images.x.shape == (20, 1, 32, 32) and images.x.dtype == torch.uint8
    raw = tensors("procedural_digits", "train")[0]
    padded = make(p=20, resize="pad")
    assert padded.x[0, 0, 2:30, 2:30].sum() == padded.x[0].sum()
    assert any(torch.equal(padded.x[0, 0, 2:30, 2:30], r) for r in raw)
    assert points("train", seed=0, of="procedural_textures", p=20).x.shape == (20, 3, 32, 32)


@pytest.mark.parametrize("of", ["procedural_digits", "procedural_textures"])
def test_standardised_images_have_mean_zero_and_deviation_one(of):
    images = points("train", seed=0, of=of, p=5000)
    x = images.batch(torch.arange(5000))
    z = (x - torch.tensor(images.mean)[:, None, None]) / torch.tensor(images.std)[:, None, None]
    torch.testing.assert_close(z.mean((0, 2, 3)), torch.zeros(x.shape[1]), atol=0.03, rtol=0)
    torch.testing.assert_close(z.std((0, 2, 3)), torch.ones(x.shape[1]), atol=0.03, rtol=0)
    bare = points("train", seed=0, of=of, p=20, standardise="none")
    assert set(bare.mean) == {0.0} and set(bare.std) == {1.0}


def test_standardisation_is_that_of_the_whole_set_for_every_p():
    assert make(p=10).mean == make(p=1000, only=(5, 8)).mean == make("test").mean


def test_the_test_split_is_whole_and_in_a_seeded_order():
    a, b = make("test"), make("test", seed=1)
    assert len(a) == len(b) == len(tensors("procedural_digits", "test")[1])
    assert not torch.equal(a.x[:50], b.x[:50])
    assert len(make("test", p=10)) == len(a)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"p": 99_999}, "p must be between 1 and 6000, the size of procedural_digits's training set, not 99999"),
        ({"p": 0}, "must be a whole number from 1"),
        ({"p": 9_000, "only": (5, 8)}, "in these classes, not 9000"),
        ({"noise": 1.5}, "noise of points must be a number from 0 to 1"),
        ({"noise": -0.1}, "from 0 to 1"),
        ({"only": (5, 12)}, "has the classes 0 to 9, not 12"),
        ({"only": (5,)}, "at least two different classes"),
        ({"only": (5, 5)}, "at least two different"),
        ({"of": "cifar"}, "did you mean cifar10"),
        ({"resize": "bilinar"}, "did you mean bilinear"),
        ({"split": "tset"}, "did you mean test"),
        ({"replacement": "others"}, "did you mean other"),
        ({"standardise": "chanel"}, "did you mean channel"),
    ],
)
def test_bad_arguments(args, says):
    with pytest.raises(SaccadeError, match=says):
        make(args.pop("split", "train"), **args)
