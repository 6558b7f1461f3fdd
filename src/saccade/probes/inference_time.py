"""How long does one image take?   Varma and Prabhu 2021, Table 3"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from saccade import models
from saccade.arguments import Count
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import Subject, standardise

FORMS = ("sa", "ha")
ENOUGH = 1.5  # seconds of one form of a pair, after which no more repeats are made
FEWEST = 3


@probe(version=2, milestones=False)
def inference_time(
    subject: Subject, data: Source, *, pairs: Sequence[Mapping[str, Any]] = (), repeats: Count = 300
) -> Iterator[Row]:
    """Milliseconds per image at batch 1, in turns for the two forms of each pair (family, size, model, sa, ha).

    Untrained models of this seed, on the same image; the median of the repeats, of which slow models make fewer. In
    turns, so that whatever else the machine does meets both.
    """
    images = data(data.held_out()).head(1)
    x = standardise(images.batch(torch.arange(1, device=images.y.device)), subject.mean, subject.std)
    for pair in pairs:
        timed = [
            models.build(pair["model"], images.classes, seed=data.seed, **pair[form]).to(subject.device).eval()
            for form in FORMS
        ]
        seconds_by_model = alternate(timed, x, repeats)
        for form, model, seconds in zip(FORMS, timed, seconds_by_model, strict=True):
            at = Settings(
                family=pair["family"], size=pair["size"], form=form.upper(), device=subject.device.partition(":")[0]
            )
            yield Row("milliseconds", 1000 * statistics.median(seconds), len(seconds), at)
            yield Row("timed_parameters", models.parameters(model), 1, at)


def alternate(timed: Sequence[nn.Module], x: Tensor, repeats: int) -> list[list[float]]:
    """Seconds of each model's answers, taken in turns."""
    seconds_by_model: list[list[float]] = [[] for _ in timed]
    with torch.no_grad():
        for model in timed:
            model(x)  # the first call pays for set-up
        while len(seconds_by_model[0]) < repeats and (
            len(seconds_by_model[0]) < FEWEST or max(map(sum, seconds_by_model)) < ENOUGH
        ):
            for model, seconds in zip(timed, seconds_by_model, strict=True):
                start = time.perf_counter()
                answer = model(x)
                if answer.device.type != "cpu":
                    answer.sum().item()  # waits for the device
                seconds.append(time.perf_counter() - start)
    return seconds_by_model
