"""Where do Gaussian heads go while they are trained?   Varma and Prabhu 2021, Fig. 2"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from saccade import models
from saccade.arguments import Count
from saccade.data.images import Source
from saccade.probes.attention_geometry import SHOWN_SEED, drawn_centres, quadratic_layers
from saccade.registry import probe
from saccade.spec import Recipe, Row, SaccadeError
from saccade.subjects.subject import Subject
from saccade.training import events, loop


@probe(version=2, milestones=False)
def centres_in_training(
    subject: Subject,
    data: Source,
    *,
    model: str = "",
    args: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] | None = None,
    looks: Count = 3,
) -> Iterator[Row]:
    """Of seed 0, the training once more with `looks` at the centres on the way, evenly spaced and the end included.

    Training is the same bit for bit on a CPU, so the last look is at the trained model itself; elsewhere this is said.
    """
    if data.seed != SHOWN_SEED:
        return
    if recipe is None or not model:
        raise SaccadeError("centres_in_training trains once more and needs model, args and recipe of the run.")
    how = Recipe(**recipe)
    retrained = models.build(model, data("train").classes, seed=data.seed, **(args or {})).to(subject.device)
    at = {round(how.steps * (i + 1) / looks) for i in range(looks)}
    for event in loop.fit(retrained, data, how):
        if isinstance(event, events.Step) and event.step in at:
            yield from drawn_centres(quadratic_layers(retrained), f"{event.step * how.batch:,} images", event.step)
    pairs = zip(quadratic_layers(retrained), quadratic_layers(subject.model), strict=True)
    same = all(torch.equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))
    yield Row("same_as_trained", float(same), 1)
