"""Drawn sets: the same for the same seed, balanced, varied, and each class recognisable."""

import numpy as np
import pytest

from saccade.data import procedural

MAKERS = {"digits": (procedural.digits, (28, 28)), "textures": (procedural.textures, (3, 32, 32))}


@pytest.mark.parametrize("name", MAKERS)
def test_same_seed_same_images(name):
    make, shape = MAKERS[name]
    x, y = make(60, 3)
    again, labels = make(60, 3)
    other, _ = make(60, 4)
    assert x.shape == (60, *shape)
    assert x.dtype == y.dtype == np.uint8
    np.testing.assert_array_equal(x, again)
    np.testing.assert_array_equal(y, labels)
    assert not (x == other).all(axis=tuple(range(1, x.ndim))).any()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("n", [0, 1, 57, 200])
def test_classes_are_balanced_and_images_differ(name, n):
    make, _ = MAKERS[name]
    x, y = make(n, 0)
    counts = np.bincount(y, minlength=10)
    assert len(y) == n
    assert counts.max() - counts.min() <= 1
    assert len({picture.tobytes() for picture in x}) == n


def test_labels_come_in_mixed_order():
    _, y = procedural.digits(100, 0)
    assert len(set(y[:10].tolist())) < 10 or (y[:20].reshape(2, 10).argsort(1) != np.arange(10)).any()


def test_digits_are_strokes_of_ink_inside_the_image():
    x, _ = procedural.digits(1000, 0)
    ink = (x > 127).mean((1, 2))
    assert ink.min() > 0.03
    assert ink.max() < 0.4
    border = np.concatenate([x[:, 0], x[:, -1], x[:, :, 0], x[:, :, -1]], 1)
    assert (border > 127).mean() < 0.01
    partly = ((x > 20) & (x < 200)).sum() / (x > 20).sum()
    assert partly > 0.1, "edges are smooth, not steps"


def _nearest_mean(x, y, u, v):
    means = np.stack([x[y == k].mean(0) for k in range(10)])
    far = ((u[:, None] - means[None]) ** 2).sum(-1)
    return (far.argmin(1) == v).mean()


def test_digits_of_another_seed_are_recognised():
    x, y = procedural.digits(2000, 0)
    u, v = procedural.digits(500, 1)
    share = _nearest_mean(x.reshape(2000, -1) / 255, y, u.reshape(500, -1) / 255, v)
    assert 0.6 < share < 1.0, "learnable, and not by one template a class alone"


def test_textures_of_another_seed_are_recognised_by_their_spectrum():
    def features(x):
        grey = x.mean(1)
        grey = grey - grey.mean((1, 2), keepdims=True)
        grey /= grey.std((1, 2), keepdims=True) + 1e-6
        power = np.log1p(np.abs(np.fft.rfft2(grey)))
        far = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.rfftfreq(32)[None])
        rings = [power[:, (far >= lo) & (far < lo + 0.04)].mean(1) for lo in np.arange(0, 0.6, 0.04)]
        return np.stack([*rings, (grey**3).mean((1, 2)), (grey**4).mean((1, 2)) / 3], 1)

    x, y = procedural.textures(1000, 0)
    u, v = procedural.textures(500, 1)
    assert _nearest_mean(features(x), y, features(u), v) > 0.5
