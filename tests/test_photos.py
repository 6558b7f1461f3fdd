"""The photos data: splits apart, nested, augmented only in training."""

import pytest
import torch

from saccade import rng
from saccade.data.photos import Shifted, photos
from saccade.spec import SaccadeError

ARGS = {"seed": 0, "of": "procedural_textures", "hold_out": 100}


def test_splits_are_disjoint_and_nested():
    few, many = (photos("train", p=p, **ARGS).x.flatten(1) for p in (50, 200))
    assert torch.equal(few, many[:50])
    held = photos("held_out", **ARGS).x.flatten(1)
    assert len(held) == 100
    assert not (held[:, None] == many[None]).all(-1).any()


def test_classes_are_balanced():
    y = photos("train", p=200, **ARGS).y
    counts = torch.bincount(y)
    assert counts.max() - counts.min() <= 1


def test_augmentation_is_only_for_training_and_is_a_shift_with_mirror():
    train, plain = photos("train", p=64, **ARGS), photos("train_plain", p=64, **ARGS)
    index = torch.arange(64)
    assert torch.equal(train.batch(index), plain.batch(index))
    seen = train.batch(index, rng.stream(0, "augment", 0))
    padded = torch.nn.functional.pad(plain.batch(index), (4,) * 4)
    for i in range(64):
        views = (
            v
            for dy in range(9)
            for dx in range(9)
            for v in (padded[i, :, dy : dy + 32, dx : dx + 32], padded[i, :, dy : dy + 32, dx : dx + 32].flip(-1))
        )
        assert any(torch.equal(seen[i], v) for v in views)


def test_margin_and_mirror_can_be_switched_off():
    index = torch.arange(32)
    for augment, same in (("none", True), ("flip", False), ("crop", False)):
        split = photos("train", p=32, augment=augment, **ARGS)
        assert torch.equal(split.batch(index, rng.stream(0, "a")), split.batch(index)) is same
    flip = photos("train", p=32, augment="flip", **ARGS)
    assert isinstance(flip, Shifted)
    seen, plain = flip.batch(index, rng.stream(0, "a")), flip.batch(index)
    assert all(torch.equal(a, b) or torch.equal(a, b.flip(-1)) for a, b in zip(seen, plain, strict=True))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"p": 10**6}, "at most"),
        ({"hold_out": 0}, "hold_out"),
        ({"augment": "blur"}, "augment"),
        ({"of": "cifr"}, "did you mean cifar10"),
    ],
)
def test_one_sentence_for_bad_input(change, word):
    with pytest.raises(SaccadeError, match=word):
        photos("train", **{**ARGS, **change})
