"""Drawn digits and textures, the same for the same seed: data for trying things out where no real set is.

Never a stand-in for a real set: they are used only when asked for by name.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Random = np.random.Generator

CLASSES = 10
BOX = 20.0  # digits fill a 20-pixel box in the middle of 28 pixels, as in MNIST
VARIANTS = 16  # hands per class and seed: skeletons with their own bends
STEP = 0.5  # pixels between points of a distance field, which reaches MARGIN pixels beyond the image
MARGIN = 6.0


def _arc(x: float, y: float, rx: float, ry: float, start: float, end: float) -> list[tuple[float, float]]:
    """Points on an ellipse; degrees run clockwise from the right, as y points down."""
    turn = np.radians(np.linspace(start, end, max(4, int(abs(end - start) / 24) + 1)))
    return [(x + rx * float(np.cos(t)), y + ry * float(np.sin(t))) for t in turn]


def _skeletons() -> list[list[list[tuple[float, float]]]]:
    """The strokes of each digit in a unit box, x to the right and y down."""
    return [
        [_arc(0.5, 0.5, 0.33, 0.5, 0, 360)],
        [[(0.3, 0.22), (0.54, 0.0), (0.54, 1.0)]],
        [[*_arc(0.48, 0.27, 0.33, 0.27, -170, 35), (0.15, 1.0), (0.86, 1.0)]],
        [
            [*_arc(0.45, 0.25, 0.32, 0.25, -150, 80), (0.4, 0.49)],
            [(0.4, 0.49), *_arc(0.45, 0.745, 0.36, 0.255, -80, 150)],
        ],
        [[(0.58, 0.0), (0.1, 0.66), (0.92, 0.66)], [(0.68, 0.3), (0.68, 1.0)]],
        [[(0.82, 0.0), (0.28, 0.0), (0.22, 0.45), *_arc(0.46, 0.68, 0.36, 0.32, -125, 145)]],
        [[(0.74, 0.02), (0.46, 0.2), (0.26, 0.45), *_arc(0.5, 0.72, 0.3, 0.28, 180, 540)]],
        [[(0.12, 0.0), (0.88, 0.0), (0.58, 0.45), (0.4, 1.0)]],
        [_arc(0.5, 0.24, 0.27, 0.24, 0, 360), _arc(0.5, 0.74, 0.34, 0.26, 0, 360)],
        [_arc(0.5, 0.28, 0.3, 0.28, 0, 360), [(0.8, 0.28), (0.76, 0.6), (0.62, 1.0)]],
    ]


def _fields(strokes: list[list[tuple[float, float]]], random: Random) -> Floats:
    """Distance in pixels to the nearest stroke, on a grid of points, for each of VARIANTS bent skeletons."""
    ends = np.array([pair for stroke in strokes for pair in pairwise(stroke)], np.float32) - 0.5
    # One smooth bend for the whole plane of a hand, so that strokes which meet still do.
    size = random.normal(0, 0.036, (2, VARIANTS, 2, 2)).astype(np.float32)
    phase = random.uniform(0, 2 * np.pi, (VARIANTS, 1, 1, 2)).astype(np.float32)
    bend = (
        np.einsum("vdk,vsek->vsed", size[0], np.sin(4 * ends + phase))
        + np.einsum("vdk,vsek->vsed", size[1], np.cos(7 * ends + phase)) / 2
    )
    placed = (14 + BOX * (ends + bend))[..., None, None]
    ticks = np.arange(-MARGIN, 28 + MARGIN + STEP / 2, STEP, dtype=np.float32)
    px, py = ticks[None, :], ticks[:, None]
    field = np.full((VARIANTS, len(ticks), len(ticks)), np.inf, np.float32)
    # Axis by axis: with x and y together in a last axis of two, this took ten times as long.
    for i in range(len(ends)):
        x, y = placed[:, i, 0, 0], placed[:, i, 0, 1]
        dx, dy = placed[:, i, 1, 0] - x, placed[:, i, 1, 1] - y
        length = np.maximum(dx * dx + dy * dy, 1e-6)
        share = ((px - x) * (dx / length) + (py - y) * (dy / length)).clip(0, 1)
        away_x, away_y = px - x - share * dx, py - y - share * dy
        np.minimum(field, away_x * away_x + away_y * away_y, out=field)
    return np.sqrt(field)


def _look_up(field: Floats, which: NDArray[np.intp], x: Floats, y: Floats) -> Floats:
    """Bilinear values of field[which] at pixel positions x, y."""
    last = field.shape[-1] - 1.001
    u, v = (((at + MARGIN) / STEP).clip(0, last) for at in (x, y))
    i, j = v.astype(np.intp), u.astype(np.intp)
    v, u = v - i, u - j
    base = (which * field.shape[1] + i) * field.shape[2] + j
    flat, row = field.ravel(), field.shape[2]
    top = flat[base] * (1 - u) + flat[base + 1] * u
    bottom = flat[base + row] * (1 - u) + flat[base + row + 1] * u
    mixed: Floats = top * (1 - v) + bottom * v
    return mixed


def _balanced(n: int, seed: int) -> Bytes:
    y = (np.arange(n) % CLASSES).astype(np.uint8)
    return np.random.default_rng([seed, CLASSES]).permutation(y)


def digits(n: int, seed: int) -> tuple[Bytes, Bytes]:
    """n digits, x (n, 28, 28) and labels y, equally many of each class, in mixed order."""
    x, y = np.empty((n, 28, 28), np.uint8), _balanced(n, seed)
    for digit, strokes in enumerate(_skeletons()):
        random = np.random.default_rng([seed, digit])
        here = np.flatnonzero(y == digit)
        x[here] = _write(_fields(strokes, random), len(here), random)
    return x, y


def _write(field: Floats, n: int, random: Random) -> Bytes:
    """n images of a digit: a hand each, and its own slant, turn, size, place, thickness and pressure."""

    def draw(low: float, high: float) -> Floats:
        return random.uniform(low, high, (n, 1, 1)).astype(np.float32)

    turn, slant = draw(-0.22, 0.22), draw(-0.3, 0.25)
    wide, tall = draw(0.75, 1.08), draw(0.85, 1.05)
    right, down = draw(-1.5, 1.5), draw(-1.5, 1.5)
    thick, ink = draw(0.9, 1.9), draw(0.85, 1.0)
    which = random.integers(0, VARIANTS, (n, 1, 1))
    ticks = np.arange(28, dtype=np.float32) - 13.5
    px, py = ticks[None, None, :] - right, ticks[None, :, None] - down
    # From the image back to the skeleton, so that each pixel needs one look-up.
    ux = (np.cos(turn) * px + np.sin(turn) * py) / wide
    uy = (np.cos(turn) * py - np.sin(turn) * px) / tall
    distance = _look_up(field, which, ux + slant * uy + 14.0, uy + 14.0) * np.sqrt(wide * tall)
    return np.asarray((thick + 0.5 - distance).clip(0, 1) * ink * 255, np.uint8)


def _noise(n: int, cells: int, random: Random) -> Floats:
    """Smooth noise of one octave, (n, 32, 32): random values on a grid, joined by smoothstep."""
    at = np.linspace(0, cells, 32, endpoint=False, dtype=np.float32)
    low = at.astype(np.intp)
    share = (at - low) ** 2 * (3 - 2 * (at - low))
    weights = np.zeros((32, cells + 1), np.float32)
    weights[np.arange(32), low] = 1 - share
    weights[np.arange(32), low + 1] = share
    grid = random.random((n, cells + 1, cells + 1), np.float32)
    return np.asarray(weights @ grid @ weights.T, np.float32)


def textures(n: int, seed: int) -> tuple[Bytes, Bytes]:
    """n textures in two random colours, x (n, 3, 32, 32) and kinds y, equally many of each, in mixed order.

    Kinds: slope, glow, waves, stripes, checks, rings, dots, clouds, grain, marble.
    """
    x, y = np.empty((n, 3, 32, 32), np.uint8), _balanced(n, seed)
    for kind in range(CLASSES):
        random = np.random.default_rng([seed, kind, 1])
        here = np.flatnonzero(y == kind)
        shade = _shade(kind, len(here), random)[:, None]
        dark, light = (
            random.uniform(*span, (len(here), 3, 1, 1)).astype(np.float32) for span in ((0, 140), (115, 255))
        )
        speckle = 6 * random.standard_normal((len(here), 3, 32, 32), np.float32)
        x[here] = (dark * (1 - shade) + light * shade + speckle).clip(0, 255)
    return x, y


def _shade(kind: int, n: int, random: Random) -> Floats:
    """n images (n, 32, 32) in [0, 1] of one kind, each turned, shifted and scaled by chance."""

    def draw(low: float, high: float) -> Floats:
        return random.uniform(low, high, (n, 1, 1)).astype(np.float32)

    ticks = np.linspace(-1, 1, 32, dtype=np.float32)
    turn, phase, rate = draw(0, 2 * np.pi), draw(0, 2 * np.pi), draw(9, 16)
    px, py = ticks[None, None, :], ticks[None, :, None]
    u, v = np.cos(turn) * px + np.sin(turn) * py, np.cos(turn) * py - np.sin(turn) * px
    far = np.hypot(px - draw(-0.5, 0.5), py - draw(-0.5, 0.5))
    wave, cross = np.sin(rate * u + phase), np.sin(rate * v + phase)
    if kind == 0:
        shade = 0.5 + 0.5 * u / 1.42
    elif kind == 1:
        shade = np.exp(-((far / draw(0.4, 0.8)) ** 2))
    elif kind == 2:
        shade = 0.5 + 0.5 * wave
    elif kind == 3:
        shade = 0.5 + (4 * wave).clip(-0.5, 0.5)
    elif kind == 4:
        shade = 0.5 + (6 * wave * cross).clip(-0.5, 0.5)
    elif kind == 5:
        shade = 0.5 + 0.5 * np.sin(1.3 * rate * far + phase)
    elif kind == 6:
        shade = (4 * (wave * cross - 0.55) * (wave > 0) + 0.5).clip(0, 1) * (wave > 0)
    elif kind == 7:
        octaves = sum((_noise(n, cells, random) / cells for cells in (4, 8)), _noise(n, 2, random) / 2)
        shade = 0.5 + 1.6 * (octaves / 0.875 - 0.5)
    elif kind == 8:
        shade = 0.6 * _noise(n, 16, random) + 0.4 * random.random((n, 32, 32), np.float32)
    else:
        shade = 0.5 + 0.5 * np.sin(0.6 * rate * u + phase + 7 * _noise(n, 4, random))
    return np.asarray(shade, np.float32).clip(0, 1)
