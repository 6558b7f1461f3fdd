"""Imagenette (Howard 2019), ten easy classes of ImageNet, or any folder with train/CLASS/*.jpg and val/CLASS/*.jpg."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from saccade.arguments import AnyCount, Count, Range
from saccade.data.images import Plain, Triple, shuffled
from saccade.data.photos import Augment, PhotoSplit, Shifted
from saccade.data.points import balanced
from saccade.lab.store import cache_folder
from saccade.registry import data
from saccade.spec import SaccadeError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
ENDINGS = (".jpeg", ".jpg", ".png")


@data(version=1, watch="held_out", folder="imagenette")
def imagenette(
    split: PhotoSplit,
    *,
    seed: int,
    size: Annotated[int, Range(at_least=8, at_most=4096)] = 128,
    p: AnyCount = 0,
    hold_out: Count = 947,
    crop: Annotated[float, Range(at_least=0.05, at_most=1)] = 1.0,
    augment: Augment = "crop_flip",
    folder: str = "",
) -> Plain:
    """Images from class folders: the shorter side made `size` / `crop` long, then the middle `size` x `size`.

    `held_out` is drawn from the training folders (947 of 9 469, so that 8 522 are left); `test` is the folder val. In
    training an image is shifted by up to an eighth of its side and mirrored. The folder is looked for in the cache
    folder (`saccade doctor` names it) unless given.
    """
    x, y = read(folder or str(cache_folder() / "imagenette"), "val" if split == "test" else "train", size, crop)
    classes = int(y.max()) + 1
    if split == "test":
        order = shuffled(len(y), seed, "sample", split)
        return Plain(y[order], classes, MEAN, STD, x[order])
    room = len(y) - hold_out
    if not 0 < hold_out < len(y) or not 0 <= p <= room:
        raise SaccadeError(
            f"p and hold_out must leave images of the {len(y)} in the training folders, not {p} and {hold_out}."
        )
    order = balanced(y, seed)
    order = order[room:] if split == "held_out" else order[: p or room]
    mean: Triple = MEAN
    if split != "train" or augment == "none":
        return Plain(y[order], classes, mean, STD, x[order])
    return Shifted(
        y[order],
        classes,
        mean,
        STD,
        x[order],
        margin=size // 8 if augment.startswith("crop") else 0,
        mirror=augment.endswith("flip"),
    )


@functools.lru_cache(maxsize=2)
def read(folder: str, part: str, size: int, crop: float) -> tuple[Tensor, Tensor]:
    """(n, 3, size, size) uint8 and labels, classes in the order of their folders' names."""
    root = Path(folder).expanduser()
    if not (root / part).is_dir():
        raise SaccadeError(
            f"there is no folder {root / part} with a folder of images for each class; unpack "
            "Imagenette there, or name its place with folder=DIR."
        )
    classes = sorted(d for d in (root / part).iterdir() if d.is_dir())
    files = [(f, label) for label, d in enumerate(classes) for f in sorted(d.iterdir()) if f.suffix.lower() in ENDINGS]
    if len({label for _, label in files}) < 2:
        raise SaccadeError(f"{root / part} needs at least two class folders with .jpg or .png images.")
    x = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    for i, (file, _) in enumerate(files):
        x[i] = _picture(file, size, crop)
    return x, torch.tensor([label for _, label in files])


def _picture(file: Path, size: int, crop: float) -> Tensor:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(file) as opened:
            image = opened.convert("RGB")
    except Exception as error:  # a broken file raises nearly anything
        raise SaccadeError(f"{file} cannot be read as an image: {error}; unpack the folder again.") from None
    scale = size / crop / min(image.size)
    width, height = (max(size, round(scale * s)) for s in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    small = image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
    return torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1)
