"""Is a thing still recognised when it is small, and on what?   Feer et al. 2022, Table 3, at any scale"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from saccade.arguments import AnySide, Count
from saccade.data.images import AnySet, Source
from saccade.data.mosaic import Crop, Route
from saccade.data.small_object import ObjectShare, SmallObjects, small_object
from saccade.probes.top_k_matching import drawn_from, side_of
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import Subject

CELLS = 3  # rows and columns of places


@probe(version=1)
def small_object_accuracy(
    subject: Subject,
    data: Source,
    *,
    n: Count = 2000,
    scales: Sequence[ObjectShare] = (1.0, 0.5, 0.25),
    backdrops: Sequence[str] = ("procedural_textures",),
    size: AnySide = 0,
    crop: Crop = "none",
    route: Route = "clean",
    of: AnySet | Literal[""] = "",
) -> Iterator[Row]:
    """Accuracy on n objects pasted on large images: by scale and backdrop, by place in thirds, by large image.

    Objects are of the set that the data is made from (or `of`), images of the size of its images (or `size`).
    """
    side, name = size or side_of(data), drawn_from(data, of)
    for backdrop in backdrops:
        for scale in scales:
            images = small_object(
                "test", seed=data.seed, of=name, n=n, scale=scale, backdrop=backdrop, size=side, crop=crop, route=route
            ).to(data.device)
            right = subject.correct(images)
            yield Row.mean("object_accuracy", right, scale=scale, backdrop=backdrop)
            yield from _parts(images, right, Settings(scale=scale, backdrop=backdrop))


def _parts(images: SmallObjects, right: np.ndarray, at: Settings) -> Iterator[Row]:
    room = images.canvas - images.objects.shape[-1]
    if room:
        cell = (images.place.cpu().numpy() * CELLS // room).clip(0, CELLS - 1)
        for down in range(CELLS):
            for across in range(CELLS):
                selected = right[(cell == (down, across)).all(1)]
                if len(selected):
                    yield Row(
                        "object_accuracy_by_place",
                        float(selected.mean()),
                        len(selected),
                        Settings(at, row=down, column=across),
                    )
    if len(images.behind.names) > 1:
        which = images.which.cpu().numpy()
        for i, name in enumerate(images.behind.names):
            selected = right[which == i]
            if len(selected):
                yield Row(
                    "object_accuracy_by_picture", float(selected.mean()), len(selected), Settings(at, picture=name)
                )
