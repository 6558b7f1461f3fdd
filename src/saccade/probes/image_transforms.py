"""Does the answer survive when the image moves, turns, shrinks or grows?   After Azulay and Weiss 2019, for any data"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from torch import Tensor

from saccade import rng
from saccade.arguments import Count, Range
from saccade.data import changes, pixels
from saccade.data.images import Images, Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError
from saccade.subjects import answers
from saccade.subjects.subject import Subject


@probe(version=1)
def image_transforms(
    subject: Subject,
    data: Source,
    *,
    split: str = "",
    n: Count = 1000,
    translation: Sequence[float] = (0.03125, 0.0625, 0.125, 0.25),
    rotation: Sequence[float] = (5, 15, 30, 45, 90),
    scale: Sequence[Annotated[float, Range(above=0)]] = (1.5, 1.25, 0.8, 0.6, 0.4),
) -> Iterator[Row]:
    """Accuracy, and how often the answer stays as it was, after a shift, a turn or a change of size of the whole image.

    A shift is a share of the side, in whole pixels, up, down, left or right by a draw per image; a turn is in degrees,
    one way or the other; a scale below 1 shrinks. The data's mean colour comes in.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    before = answers.said(subject, data, split, n)
    for name, severities in (("translation", translation), ("rotation", rotation), ("scale", scale)):
        for severity in severities:
            change = _change(images, name, float(severity), data.seed)
            after = answers.said(subject, data, split, n, change, transform=name, severity=float(severity))
            at = {"transform": name, "severity": float(severity)}
            yield Row.mean("transformed_accuracy", (after == images.y.cpu()).numpy(), **at)
            yield Row.mean("answer_kept", (after == before).numpy(), **at)


def _change(images: Images, name: str, severity: float, seed: int) -> answers.Change:
    colour, n = torch.tensor(images.mean), len(images)
    direction = torch.randint(4, (n,), generator=rng.stream(seed, "image_transforms", name))
    if name == "translation":
        side = images.batch(images.y[:1] * 0).shape[-1]
        pixels_moved = max(1, round(severity * side))
        down, right = (torch.tensor(steps)[direction] * pixels_moved for steps in ((-1, 1, 0, 0), (0, 0, -1, 1)))
        return lambda x, index: changes.shifted(x, down[index.cpu()], right[index.cpu()], _of(colour, x))
    if name == "rotation":
        maps = pixels.rotation(severity * (1.0 - 2.0 * (direction % 2)))
    elif severity > 0:
        maps = pixels.scaling(torch.full((n,), severity))
    else:
        raise SaccadeError(f"a scale must be above 0, not {severity}.")
    return lambda x, index: changes.warped(x, maps[index.cpu()], _of(colour, x))


def _of(colour: Tensor, x: Tensor) -> Tensor:
    """The colour in as many channels as the images have."""
    return colour if len(colour) == x.shape[1] else colour.mean().expand(x.shape[1])
