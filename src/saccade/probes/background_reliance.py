"""Does it look at the object or at what is behind it?   After Xiao et al. 2021, with masks"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from saccade import rng
from saccade.arguments import Count
from saccade.data import changes, pixels
from saccade.data.folder import Masked
from saccade.data.images import Images, Pasted, Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError
from saccade.subjects import answers
from saccade.subjects.subject import Subject

SHOWN = ("original", "own", "foreign", "none")


@probe(version=1)
def background_reliance(subject: Subject, data: Source, *, split: str = "", n: Count = 1000) -> Iterator[Row]:
    """Accuracy with the object on its background, on one of its own class, on one of another class, and on none.

    The gap is own minus foreign, image by image. `follows_background` is how often, on a foreign background, the answer
    is the class that the background came from. None is the data's mean colour. Data with masks or pasted objects only.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    if not isinstance(images, (Pasted, Masked)):
        raise SaccadeError(
            f"background_reliance needs to know where the object is, and {data.name} has no masks (digits_on_"
            "backgrounds has; in a folder put NAME.mask.png beside NAME.png)."
        )
    y = images.y.cpu()
    donors = {
        show: changes.partners(y, show == "own", rng.stream(data.seed, "background_reliance", show))
        for show in ("own", "foreign")
    }
    right = {}
    for show in SHOWN:
        after = (
            answers.said(subject, data, split, n)
            if show == "original"
            else answers.said(
                subject,
                data,
                split,
                n,
                functools.partial(_compose, images, donors.get(show)),
                background=show,
            )
        )
        right[show] = (after == y).numpy()
        yield Row.mean("background_accuracy", right[show], show=show)
        if show == "foreign":
            yield Row.mean("follows_background", (after == y[donors["foreign"]]).numpy())
    yield Row.mean("background_gap", right["own"].astype(float) - right["foreign"])


def composed(images: Pasted | Masked, index: Tensor, donors: Tensor | None) -> Tensor:
    """These images' objects on the backgrounds of the images `behind[index]`, or on the mean colour."""
    background_index = index if donors is None else donors.to(index.device)[index]
    scene = _background(images, background_index)
    if donors is None:
        scene = torch.tensor(images.mean).to(scene)[:, None, None].expand_as(scene)
    if isinstance(images, Pasted):
        ink = images.opacity(index)
        ink = ink if images.maps is None else pixels.warp(ink, images.maps[index])
        return pixels.compose(ink, scene, images.blend)
    mask = pixels.floats(images.mask, index)
    return mask * pixels.floats(images.x, index) + (1 - mask) * scene


def _background(images: Images, index: Tensor) -> Tensor:
    """What is behind the object; where a photograph cannot show it, its background's mean colour."""
    if isinstance(images, Pasted):
        return pixels.floats(images.scenes, images.which.index_select(0, index))
    assert isinstance(images, Masked)
    x, mask = pixels.floats(images.x, index), pixels.floats(images.mask, index)
    bare = (1 - mask).sum((2, 3), keepdim=True)
    mean = (x * (1 - mask)).sum((2, 3), keepdim=True) / bare.clamp_min(1)
    return (1 - mask) * x + mask * mean


def _compose(images: Pasted | Masked, donors: Tensor | None, x: Tensor, index: Tensor) -> Tensor:
    return composed(images, index, donors)
