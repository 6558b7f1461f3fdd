"""Texture or shape: which wins when they disagree?   After Geirhos et al. 2019, on conflicts made without a network"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from saccade import rng
from saccade.arguments import Count
from saccade.data import changes
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError, Settings
from saccade.subjects import answers
from saccade.subjects.subject import Subject


@probe(version=1)
def cue_conflict(subject: Subject, data: Source, *, split: str = "", n: Count = 1000) -> Iterator[Row]:
    """How often the answer follows the phases of one image, and how often the amplitudes of another of another class.

    Phases hold where edges are (shape), amplitudes how much of each frequency there is (texture). Shape bias is the
    share of shape among the answers that follow one of the two.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    y = images.y.cpu()
    partner = changes.partners(y, False, rng.stream(data.seed, "cue_conflict"))
    if bool((y[partner] == y).any()):
        raise SaccadeError("a conflict of cues needs images of at least two classes.")

    def change(x: Tensor, index: Tensor) -> Tensor:
        return changes.recombined(x, images.batch(partner.to(index.device)[index]))

    after = answers.said(subject, data, split, n, change, conflict="spectrum")
    shape, texture = (after == y).numpy(), (after == y[partner]).numpy()
    yield Row.mean("follows_shape", shape)
    yield Row.mean("follows_texture", texture)
    decided = shape | texture
    if decided.any():
        yield Row.mean("shape_bias", shape[decided])
    else:
        yield Row("undecided_conflicts", float(len(y)), len(y), Settings())
