"""Of four things in one image, how many are among the four best answers?   Feer et al. 2022, Table 2 and Figure 5"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch

from saccade import registry
from saccade.arguments import AnySide, Count
from saccade.data.images import AnySet, Source
from saccade.data.mosaic import TILES, Crop, Route, mosaic
from saccade.registry import probe
from saccade.spec import Row, SaccadeError, Settings
from saccade.subjects import scores
from saccade.subjects.subject import Subject

PLACES = ("top left", "top right", "bottom left", "bottom right")


@probe(version=1)
def top_k_matching(
    subject: Subject,
    data: Source,
    *,
    n: Count = 2000,
    k: Count = 4,
    size: AnySide = 0,
    crop: Crop = "none",
    route: Route = "clean",
    of: AnySet | Literal[""] = "",
) -> Iterator[Row]:
    """Matches between the k best answers and the classes of n mosaics: mean, histogram, by tile, and by chance.

    Mosaics are of the set that the data is made from (or `of`), at the size of its images (or `size`).
    """
    images = mosaic(
        "test", seed=data.seed, of=drawn_from(data, of), n=n, size=size or side_of(data), crop=crop, route=route
    ).to(data.device)
    logits = torch.cat([z for z, _ in subject.all_logits(images)]).cpu().numpy()
    if logits.shape[1] != images.classes:
        raise SaccadeError(
            f"the model answers with {logits.shape[1]} classes, and the mosaics have {images.classes}; "
            "train it on all classes of the set."
        )
    present, best_answers = images.present.cpu().numpy(), scores.top(logits, k)
    counts = (best_answers & present).sum(1)
    yield Row.mean("top_k_matching", counts.astype(np.uint8), k=k)
    for count in range(k + 1):
        yield Row("matching_share", float((counts == count).mean()), n, Settings(k=k, matches=count))
    for place, label in zip(PLACES, images.shown.T.cpu().numpy(), strict=True):
        yield Row("tile_found", float(best_answers[np.arange(n), label].mean()), n, Settings(k=k, place=place))
    chance = scores.by_chance(images.classes, TILES, k)
    yield Row("matching_by_chance", k * TILES / images.classes, 1, Settings(k=k))
    for count, share in enumerate(chance):
        yield Row("matching_share_by_chance", share, 1, Settings(k=k, matches=count))


def drawn_from(data: Source, of: str) -> str:
    """The set whose images a probe draws its own from: the one asked for, or the one the data is made from."""
    arguments = registry.card("data", data.name).args
    if not of and "of" not in arguments:
        raise SaccadeError(f"{data.name} does not say which set its images are from; name one, as in of=cifar10.")
    return of or str(data.args.get("of", arguments["of"]))


def side_of(data: Source) -> int:
    """Pixels on a side of the images that a model of this data takes."""
    images = data(registry.card("data", data.name).extra.get("watch", "test"))
    return images.batch(torch.arange(1, device=images.y.device)).shape[-1]
