import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data import pixels


def images(n=3, size=32):
    """Blobs well inside the frame, so that small moves lose nothing."""
    x = torch.zeros(n, 1, size, size)
    x[:, :, 10:22, 12:20] = torch.rand(n, 1, 12, 8, generator=torch.Generator().manual_seed(0))
    return x


@given(st.integers(-5, 5), st.integers(-5, 5))
@settings(max_examples=20, deadline=None)
def test_whole_pixel_translation_is_a_roll_and_can_be_undone(dy, dx):
    x = images()
    there = pixels.warp(x, pixels.translation(torch.full((3,), float(dy)), torch.full((3,), float(dx)), 32))
    torch.testing.assert_close(there, x.roll((dy, dx), (2, 3)), atol=1e-5, rtol=0)
    back = pixels.warp(there, pixels.translation(torch.full((3,), -float(dy)), torch.full((3,), -float(dx)), 32))
    torch.testing.assert_close(back, x, atol=2e-5, rtol=0)


def test_quarter_turns_are_exact_and_counter_clockwise():
    x = images()
    turned = pixels.warp(x, pixels.rotation(torch.full((3,), 90.0)))
    torch.testing.assert_close(turned, torch.rot90(x, 1, (2, 3)), atol=1e-5, rtol=0)
    for _ in range(3):
        turned = pixels.warp(turned, pixels.rotation(torch.full((3,), 90.0)))
    torch.testing.assert_close(turned, x, atol=1e-4, rtol=0)


def test_scaling_keeps_the_centre_and_shrinks_the_ink():
    x = torch.zeros(1, 1, 32, 32)
    x[:, :, 8:24, 8:24] = 1.0
    small = pixels.warp(x, pixels.scaling(torch.tensor([0.5])))
    assert small.sum() == pytest.approx(64, rel=0.02)  # a quarter of 256 pixels
    torch.testing.assert_close(small, small.flip(2).flip(3))


def test_chain_does_the_first_map_first():
    x = images()
    first, then = pixels.rotation(torch.full((3,), 90.0)), pixels.translation(torch.full((3,), 3.0), torch.zeros(3), 32)
    torch.testing.assert_close(
        pixels.warp(x, pixels.chain(first, then)), pixels.warp(pixels.warp(x, first), then), atol=1e-4, rtol=0
    )


def test_each_image_has_its_own_map():
    x = images()
    both = pixels.warp(x, pixels.rotation(torch.tensor([0.0, 30.0, -60.0])))
    for i, angle in enumerate((0.0, 30.0, -60.0)):
        torch.testing.assert_close(both[i : i + 1], pixels.warp(x[i : i + 1], pixels.rotation(torch.tensor([angle]))))


def test_blends():
    ink, scene = torch.tensor([0.0, 0.4, 0.6, 1.0]).view(4, 1, 1, 1), torch.full((4, 3, 1, 1), 0.5)
    expected = {
        "opacity": (0.5, 0.7, 0.8, 1.0),
        "maximum": (0.5, 0.5, 0.6, 1.0),
        "hard": (0.5, 0.5, 1.0, 1.0),
        "add": (0.5, 0.9, 1.0, 1.0),
    }
    for blend, values in expected.items():
        out = pixels.compose(ink, scene, blend)
        assert out.shape == (4, 3, 1, 1)
        assert out[:, 0, 0, 0].tolist() == pytest.approx(list(values))
    assert set(expected) == set(get_args(pixels.Blend))


def test_translation_of_a_given_length_moves_the_centre_of_mass_by_it():
    x = images(8)
    angle = torch.rand(8, generator=torch.Generator().manual_seed(1)) * 2 * math.pi
    moved = pixels.warp(x, pixels.translation(4 * angle.sin(), 4 * angle.cos(), 32))

    def centre(t):
        w = t[:, 0] / t.sum((1, 2, 3))[:, None, None]
        grid = torch.arange(32.0)
        return torch.stack([(w.sum(2) * grid).sum(1), (w.sum(1) * grid).sum(1)], 1)

    shift = centre(moved) - centre(x)
    torch.testing.assert_close(shift.norm(dim=1), torch.full((8,), 4.0), atol=0.02, rtol=0)
