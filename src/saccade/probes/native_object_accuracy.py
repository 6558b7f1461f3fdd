"""Is a thing as large as in training still recognised on a large background?   after Feer et al. 2022, Table 3

There the image is shrunk to the size that the model takes, so that an object is small and on a background at once. Here
the image is larger than those of training instead and the object keeps its pixels: what is lost is lost to background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from saccade.arguments import Count, Side
from saccade.data.backdrops import PLAIN
from saccade.data.images import AnySet, Source
from saccade.data.mosaic import Route
from saccade.data.small_object import OBJECT, small_object
from saccade.probes.top_k_matching import drawn_from, side_of
from saccade.registry import probe
from saccade.spec import Row
from saccade.subjects.larger import reads
from saccade.subjects.subject import Subject

PART = 64  # images per forward pass: of 64 pixels twice as fast as the usual 256, whose maps leave the cache


@probe(version=1)
def native_object_accuracy(
    subject: Subject,
    data: Source,
    *,
    n: Count = 2000,
    canvases: Sequence[Side] = (64,),
    backdrops: Sequence[str] = ("procedural_textures", "plain"),
    route: Route = "clean",
    of: AnySet | Literal[""] = "",
) -> Iterator[Row]:
    """Accuracy on n objects of 32 pixels pasted on images of `canvas` pixels, by canvas and backdrop.

    A model of enlarged images gets objects enlarged as much. Places and objects are those of small_object_accuracy.
    """
    side, name = side_of(data), drawn_from(data, of)
    for canvas in canvases:
        size = side * canvas // OBJECT
        larger = replace(subject, model=reads(subject.model, size))
        for backdrop in backdrops:
            images = small_object(
                "test",
                seed=data.seed,
                of=name,
                n=n,
                scale=OBJECT / canvas,
                backdrop=backdrop,
                size=size,
                route=route,
            ).to(data.device)
            parts = torch.split(torch.arange(n, device=images.y.device), PART)
            right = np.concatenate([larger.correct(images.pick(part)) for part in parts])
            yield Row.mean("native_object_accuracy", right, canvas=canvas, backdrop=backdrop, plain=backdrop == PLAIN)
