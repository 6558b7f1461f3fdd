"""Objects of native size on larger images, by subjects whose answers are known; a ViT on a larger grid."""

import pytest
import torch
from torch import nn

from saccade import models
from saccade.data.images import Source
from saccade.data.points import sized
from saccade.data.small_object import small_object
from saccade.probes.native_object_accuracy import native_object_accuracy
from saccade.spec import SaccadeError, Settings
from saccade.subjects.larger import reads
from saccade.subjects.subject import Subject

DATA = Source("photos", Settings(of="procedural_textures", hold_out=100), 0)


class Finder(nn.Module):
    """Knows every test image by heart and looks for it at the places where the probe puts objects."""

    def __init__(self, canvas, n):
        super().__init__()
        x, y = sized("procedural_textures", "test", "bilinear")
        self.known = {p.numpy().tobytes(): int(label) for p, label in zip(x, y, strict=True)}
        self.place = small_object("test", seed=0, of="procedural_textures", n=n, scale=32 / canvas).place.tolist()

    def forward(self, x):
        z = torch.zeros(len(x), 10)
        for i, (image, (top, left)) in enumerate(zip(x.mul(255).round().byte(), self.place, strict=True)):
            label = self.known.get(image[:, top : top + 32, left : left + 32].contiguous().numpy().tobytes())
            z[i, label if label is not None else 0] = 1
        return z


def subject(model):
    return Subject(model, (0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize("canvas", [32, 48, 64])
def test_an_object_keeps_every_pixel(canvas):
    rows = list(native_object_accuracy(subject(Finder(canvas, 50)), DATA, n=50, canvases=(canvas,)))
    assert [(r.value, r.n, r.at["plain"]) for r in rows] == [(1.0, 50, False), (1.0, 50, True)]


def test_one_answer_for_all_is_right_once_in_ten():
    class Three(nn.Module):
        def forward(self, x):
            return torch.eye(10)[3].expand(len(x), -1)

    rows = list(native_object_accuracy(subject(Three()), DATA, n=200, canvases=(48, 64)))
    assert [(r.at["canvas"], r.at["backdrop"], r.value) for r in rows] == [
        (c, b, 0.1) for c in (48, 64) for b in ("procedural_textures", "plain")
    ]


def test_a_vit_without_use_of_positions_says_of_four_copies_what_it_says_of_one():
    model = models.build("vit", seed=0, dim=24, depth=2, heads=2, readout="mean").double()
    x = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
    assert torch.allclose(reads(model, 64)(x.repeat(1, 1, 2, 2)), model(x))


def test_position_codes_are_interpolated_and_the_class_token_keeps_its_own():
    model = models.build("vit", seed=0, dim=8, depth=1, heads=2)
    ramp = torch.arange(8.0).repeat(8)[:, None].expand(64, 8)  # rises to the right
    model.positions.data = torch.cat([torch.full((1, 8), 9.0), ramp])[None]
    larger = reads(model, 64)
    codes = larger.positions[0]
    assert codes.shape == (1 + 16 * 16, 8) and bool((codes[0] == 9).all())
    rows = codes[1:, 0].view(16, 16)
    assert torch.allclose(rows, rows[:1].expand(16, 16)) and torch.allclose(
        rows[0, 3:13], torch.arange(3, 13) / 2 - 0.25, atol=1e-5
    )
    assert larger(torch.rand(1, 3, 64, 64)).shape == (1, 10)
    assert model.positions.shape[1] == 65 and model.embed.image == 32  # the trained model is left alone


def test_weights_for_one_size_of_map_are_refused():
    model = models.build("local_attn", seed=0, window=0, shared=False)
    with pytest.raises(SaccadeError, match="maps of 8x8 positions, not 16x16"):
        reads(model, 64)(torch.rand(1, 3, 64, 64))
