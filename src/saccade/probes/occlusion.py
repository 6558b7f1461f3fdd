"""How much of the image may be covered before the answer changes?   After Zeiler and Fergus 2014"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from torch import Tensor

from saccade import rng
from saccade.arguments import Count, Range
from saccade.data import changes
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row
from saccade.subjects import answers
from saccade.subjects.subject import Subject


@probe(version=1)
def occlusion(
    subject: Subject,
    data: Source,
    *,
    split: str = "",
    n: Count = 1000,
    shares: Sequence[Annotated[float, Range(above=0, at_most=1)]] = (0.1, 0.25, 0.5),
) -> Iterator[Row]:
    """Accuracy, and how often the answer stays, when a square of the data's mean colour covers a share of the area.

    Its place is uniform, one draw per image and the same for every share, as a share of the room that is left.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    before = answers.said(subject, data, split, n)
    height, width = images.batch(images.y[:1] * 0).shape[-2:]
    colour = torch.tensor(images.mean)
    place = torch.rand(2, len(images), generator=rng.stream(data.seed, "occlusion"))
    for share in shares:
        side = min(height, width, max(1, round(math.sqrt(share * height * width))))
        top, left = ((place[i] * (room - side + 1)).long() for i, room in enumerate((height, width)))
        after = answers.said(
            subject,
            data,
            split,
            n,
            functools.partial(_cover, top, left, side, colour),
            occlusion=float(share),
        )
        yield Row.mean("occluded_accuracy", (after == images.y.cpu()).numpy(), share=float(share))
        yield Row.mean("answer_kept", (after == before).numpy(), share=float(share))


def _cover(top: Tensor, left: Tensor, side: int, colour: Tensor, x: Tensor, index: Tensor) -> Tensor:
    at = index.cpu()
    return changes.covered(x, top[at], left[at], side, colour)
