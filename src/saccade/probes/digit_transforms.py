"""Does the answer survive when the digit alone moves, turns or shrinks?   de Kruijff 2022, Sec. 3.3"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
import torch

from saccade import rng
from saccade.arguments import Count, Range
from saccade.data import pixels
from saccade.data.images import Pasted, Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError
from saccade.subjects.subject import Subject


@probe(version=1)
def digit_transforms(
    subject: Subject,
    data: Source,
    *,
    split: str = "ood",
    n: Count = 1000,
    translation: Sequence[float] = (0, 1, 2, 3, 4, 5),
    rotation: Sequence[float] = (0, 10, 20, 30, 40, 50),
    scale: Sequence[Annotated[float, Range(above=0)]] = (1, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5),
) -> Iterator[Row]:
    """Accuracy when the ink is translated (pixels, random direction), rotated (degrees, both ways) or shrunk."""
    images = data(split).head(n)
    if not isinstance(images, Pasted):
        raise SaccadeError(
            f"digit_transforms moves the digit alone and needs data that knows it; {data.name} "
            "does not (use digits_on_backgrounds)."
        )
    for name, severities in (("translation", translation), ("rotation", rotation), ("scale", scale)):
        for severity in severities:
            each = [subject.correct(v) for v in transformed(images, name, severity, data.seed)]
            yield Row.mean("accuracy", np.concatenate(each), transform=name, severity=severity)


def transformed(images: Pasted, name: str, severity: float, seed: int) -> list[Pasted]:
    """The images with moved ink. The neutral severity gives them untouched, bit for bit."""
    if severity == (1 if name == "scale" else 0):
        return [images]
    n, size = len(images), images.scenes.shape[-1]
    if name == "translation":
        angle = torch.rand(n, generator=rng.stream(seed, "directions")) * 2 * math.pi
        return [images.warped(pixels.translation(severity * angle.sin(), severity * angle.cos(), size))]
    if name == "rotation":  # the thesis reports the mean of both directions
        return [images.warped(pixels.rotation(torch.full((n,), sign * float(severity)))) for sign in (1, -1)]
    if not severity > 0:
        raise SaccadeError(f"scale must be above 0, not {severity}.")
    return [images.warped(pixels.scaling(torch.full((n,), float(severity))))]
