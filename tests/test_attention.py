"""Maps: rows sum to one, known answers for even and pointed looks, images from files and arrays."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import saccade
from saccade import models
from saccade.analysis import attention
from saccade.data.images import Source
from saccade.probes.attention_maps import _difference, attention_maps, draw_eight
from saccade.spec import SaccadeError, Settings
from saccade.subjects.subject import Subject


class Staring(nn.Module):
    """Attends with given probabilities, whatever the image."""

    def __init__(self, *layers, classes=10):
        super().__init__()
        self.layers, self.classes = layers, classes

    def forward(self, x):
        return torch.zeros(len(x), self.classes)

    def attention(self, x):
        return [p.expand(len(x), *p.shape) for p in self.layers]


def even(heads=1, tokens=65):
    return torch.full((heads, tokens, tokens), 1 / tokens)


def at(patch, tokens=65):
    p = torch.zeros(1, tokens, tokens)
    p[:, :, 1 + patch] = 1
    return p


def subject(model):
    return Subject(model, (0.13,), (0.3,))


DATA = Source("points", Settings(of="procedural_digits", p=64), 0)


def rows(model, data=DATA, **settings):
    return list(attention_maps(subject(model), data, n=40, **settings))


def value(found, metric, **where):
    hits = [r.value for r in found if r.metric == metric and all(r.at.get(k) == v for k, v in where.items())]
    assert len(hits) == 1
    return hits[0]


def test_maps_and_rollout_of_a_vit_sum_to_one():
    model = models.build("basic_vit", seed=0, dim=32, heads=4, depth=3)
    found = attention.maps(model, torch.rand(5, 3, 32, 32))
    assert [m.shape for m in found.layers] == [(5, 4, 8, 8)] * 3
    for grid in (*found.layers, found.last, found.rollout):
        torch.testing.assert_close(grid.sum((-2, -1)), torch.ones(grid.shape[:-2]))
    full = attention.rollout(model.attention(torch.rand(5, 3, 32, 32)))
    torch.testing.assert_close(full.sum(-1), torch.ones(5, 65))
    assert model.training  # as it was


def test_rollout_by_hand():
    torch.manual_seed(0)
    a, b = (torch.softmax(torch.randn(2, 3, 5, 5, dtype=torch.double), -1) for _ in range(2))
    eye = torch.eye(5, dtype=torch.double)
    want = (b.mean(1) + eye) / 2 @ ((a.mean(1) + eye) / 2)
    torch.testing.assert_close(attention.rollout([a, b]), want)
    torch.testing.assert_close(attention.rollout([eye.expand(1, 2, 5, 5)] * 4)[0], eye)


def test_chunks_join_to_the_same_maps(monkeypatch):
    model, x = models.build("basic_vit", seed=0, dim=16), torch.rand(7, 3, 32, 32)
    whole = attention.maps(model, x)
    monkeypatch.setattr(attention, "CHUNK", 3)
    parts = attention.maps(model, x)
    torch.testing.assert_close(parts.last, whole.last)
    torch.testing.assert_close(parts.kept[0], whole.kept[0])


def test_entropy_of_even_and_pointed_looks():
    assert float(attention.entropy(torch.full((8, 8), 1 / 64))) == pytest.approx(math.log(64))
    pointed = torch.zeros(8, 8)
    pointed[3, 4] = 1
    assert float(attention.entropy(pointed)) == 0 and float(attention.effective_patches(pointed)) == 1


def test_an_even_look_gives_the_area_of_ink_and_of_the_middle():
    found = rows(Staring(even(2)))
    for view in ("last", "rollout"):
        assert value(found, "ink_share", view=view) == pytest.approx(value(found, "ink_area", view=view), rel=1e-5)
        assert value(found, "ink_contrast", view=view) == pytest.approx(1, rel=1e-5)
        assert value(found, "centre_share", view=view) == pytest.approx(0.25)
        assert value(found, "effective_patches", view=view) == pytest.approx(64, rel=1e-4)
    assert value(found, "entropy", layer=1, head=2) == pytest.approx(math.log(64), rel=1e-5)
    assert value(found, "kept", layer=1) == pytest.approx(1 / 65)


def test_a_look_at_the_corner_sees_no_ink_and_one_at_the_middle_sees_it():
    corner, middle = rows(Staring(at(0))), rows(Staring(at(8 * 4 + 4)))
    assert value(corner, "ink_share", view="last") == 0 and value(corner, "centre_share", view="last") == 0
    assert value(middle, "centre_share", view="last") == 1 and value(middle, "ink_contrast", view="last") > 1


def test_ink_mask_is_the_share_of_each_patch():
    x = torch.zeros(1, 1, 32, 32)
    x[0, 0, :4, :2] = 0.9  # half of the first patch
    x[0, 0, 4:8, 4:8] = 0.4  # too faint
    mask = attention.ink_mask(x, 8)
    assert mask[0, 0, 0] == 0.5 and mask.sum() == 0.5


def test_where_two_classes_differ():
    data = Source("points", Settings(of="procedural_digits", p=200, only=(5, 8)), 0)
    mask = _difference(data("train"), 8)
    assert (mask == 1).sum() == (mask == -1).sum() == 16
    best = int(mask.flatten().argmax())
    assert value(rows(Staring(at(best), classes=2), data), "difference_share", view="last") == pytest.approx(1)
    assert value(rows(Staring(even(), classes=2), data), "difference_share", view="last") == pytest.approx(0, abs=1e-6)
    assert not [r for r in rows(Staring(even())) if r.metric == "difference_share"]


def test_images_are_kept_of_seed_0_only_and_carry_their_maps():
    model = models.build("basic_vit", seed=0, dim=16, heads=2, depth=2, channels=1)
    found = rows(model, show=(0, 3), means=True, eight=True)
    shown = [(r.at["shown"], r.at["label"]) for r in found if r.metric == "image"]
    assert shown == [("instance", 0), ("class mean", 0), ("instance", 3), ("class mean", 3), ("made-up 8", -1)]
    one = next(r for r in found if r.metric == "image")
    assert len(one.at["image"]) == 1024 and len(one.at["map"]) == len(one.at["rollout"]) == 64
    assert sum(one.at["map"]) == pytest.approx(1, abs=1e-3)
    assert [(r.at["layer"], r.at["head"]) for r in found if r.metric == "head_map"] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    other = Source("points", DATA.args, 1)
    assert not [r for r in rows(model, other, show=(0,)) if r.metric == "image"]


def test_the_made_up_eight_has_two_holes():
    eight = draw_eight() > 0.5
    middle = eight[:, 15].astype(int)
    assert (np.diff(middle) == 1).sum() in (3, 4)  # three or four strokes crossed on the way down
    assert eight.sum() > 60


def test_look_takes_files_and_arrays(tmp_path):
    from PIL import Image

    model = models.build("basic_vit", seed=0, dim=16, heads=2, channels=1)
    Image.fromarray(np.uint8(255 * draw_eight(32))).resize((40, 40)).save(tmp_path / "eight.png")
    seen = saccade.analysis.attention.look(model, tmp_path / "eight.png", mean=(0.13,), std=(0.3,))
    assert seen.image.shape == (1, 32, 32) and seen.last.shape == seen.rollout.shape == (8, 8)
    assert len(seen.layers) == 1 and len(seen.entropy[0]) == 2
    assert seen.last.sum() == pytest.approx(1, abs=1e-5)
    colour = models.build("basic_vit", seed=0, dim=16)
    for image in (np.zeros((32, 32), np.uint8), np.random.rand(3, 20, 20), torch.rand(32, 32, 3)):
        assert saccade.analysis.attention.look(colour, image, channels=3).image.shape == (3, 32, 32)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: attention.look(models.build("lenet"), np.zeros((32, 32, 3))), "has no attention maps"),
        (lambda: attention.look(models.build("basic_vit", dim=8), "nowhere.png"), "no image nowhere.png"),
        (lambda: attention.read(np.zeros((4, 4, 4, 4))), "an image must be"),
        (lambda: attention.read(np.full((4, 4), 7.0)), r"float in \[0, 1\]"),
        (lambda: attention.to_patches(torch.rand(1, 1, 7, 7)), "6 patches are no square grid"),
        (lambda: attention.maps(models.build("basic_vit", dim=8), torch.zeros(0, 3, 32, 32)), "at least one image"),
    ],
)
def test_bad_input_gets_a_sentence(call, says):
    with pytest.raises(SaccadeError, match=says):
        call()


def test_a_file_that_is_no_image(tmp_path):
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(SaccadeError, match="cannot be read as an image"):
        attention.read(tmp_path / "text.png")
