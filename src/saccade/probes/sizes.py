"""How many parameters does a model have when it is built?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from saccade import models
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import Subject


@probe(version=1, milestones=False, fact_seconds=5)
def sizes(subject: Subject | None, data: Source, *, nets: Sequence[Mapping[str, Any]] = ()) -> Iterator[Row]:
    """Parameters of each of `nets` (net, model, args), built without memory. No trained model is looked at."""
    for net in nets:
        with torch.device("meta"):
            built = models.build(net["model"], **net["args"])
        yield Row("size", models.parameters(built), 1, Settings(net=net["net"]))
