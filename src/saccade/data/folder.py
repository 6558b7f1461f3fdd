"""A user's own images: one folder per class, of any sizes, with masks beside the images where there are some."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from torch import Tensor

from saccade.arguments import AnyCount, AnySide, Range
from saccade.data.images import Plain, Triple, shuffled
from saccade.data.photos import Augment, PhotoSplit, Shifted
from saccade.registry import data
from saccade.spec import SaccadeError

ENDINGS = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff")
TESTS = ("test", "val", "valid", "validation")  # what the folder of test images may be called
MASKS = (".mask", "_mask")  # NAME.mask.png or NAME_mask.png beside NAME.jpg
LARGEST = 224  # of images whose size nobody says
FEWEST = 8
PARTS = 10  # one in ten images is held out of training; of a folder without a test part two in ten are test images
MOMENTS = 2000  # images that mean and standard deviation are taken from


@dataclass(frozen=True)
class Masked(Plain):
    """`mask` (n, 1, h, w) uint8 is 255 where the object is."""

    mask: Tensor

    def pick(self, index: Tensor) -> Self:
        return replace(self, x=self.x[index], y=self.y[index], mask=self.mask[index])


@data(version=1, watch="held_out", folder="")
def folder(
    split: PhotoSplit,
    *,
    seed: int,
    folder: str,
    size: AnySide = 0,
    p: AnyCount = 0,
    augment: Augment = "crop_flip",
    crop: Annotated[float, Range(at_least=0.05, at_most=1)] = 1.0,
) -> Plain:
    """Images from class folders: FOLDER/CLASS/*.png, or FOLDER/train/CLASS and FOLDER/test (or val)/CLASS.

    The shorter side is made `size` / `crop` long (0: the images' own, at most 224), then the middle square is taken.
    Without a test folder two in ten images are test images, and one in ten of the rest is held out: by a checksum of
    the file's name, so that an added file moves no other one. `p` reads at most so many images, classes in turn.
    """
    if 0 < size < FEWEST:
        raise SaccadeError(f"size must be 0 or at least {FEWEST}, not {size}.")
    listed = listing(folder)
    part = "train" if split.startswith("train") else split
    files = [(f, y) for f, y, where in listed.files if where == part]
    if not files:
        raise SaccadeError(f"{folder} leaves no images for the split {part}; it needs more images per class.")
    order = _in_turn([y for _, y in files], seed, part)[: p or None]
    chosen = tuple(files[i][0] for i in order)
    side = size or usual_side(folder)
    x = read(chosen, side, crop, listed.grey)
    y = torch.tensor([files[i][1] for i in order])
    mean, std = moments(folder, side, crop)
    classes = len(listed.classes)
    if split == "train" and augment != "none":
        margin = side // 8 if augment.startswith("crop") else 0
        return Shifted(y, classes, mean, std, x, margin=margin, mirror=augment.endswith("flip"))
    masks = [mask_of(f) for f in chosen]
    if not any(masks):
        return Plain(y, classes, mean, std, x)
    if not all(masks):
        lacking = next(f for f, m in zip(chosen, masks, strict=True) if m is None)
        raise SaccadeError(
            f"{lacking} has no mask and others have; put {lacking.stem}.mask.png beside it, or none at all."
        )
    mask = read(tuple(m for m in masks if m), side, crop, True)
    return Masked(y, classes, mean, std, x, mask=(mask > 127).byte() * 255)


@dataclass(frozen=True)
class Listing:
    """Names of the classes, every image with its label and split, and whether all of the first ones are grey."""

    classes: tuple[str, ...]
    files: tuple[tuple[Path, int, str], ...]
    grey: bool


@functools.lru_cache(maxsize=4)
def listing(folder: str) -> Listing:
    root = Path(folder).expanduser()
    if not folder or not root.is_dir():
        raise SaccadeError(f'there is no folder "{folder}"; give one with a folder of images per class.')
    inside = {d.name.lower(): d for d in sorted(root.iterdir()) if d.is_dir()}
    test = next((inside[name] for name in TESTS if name in inside), None)
    train = inside.get("train")
    if train is None or test is None:
        found = _images(root)
        parted = [(f, c, _part(f.relative_to(root), PARTS, 2)) for f, c in found]
    else:
        parted = [(f, c, _part(f.relative_to(root), PARTS, 0)) for f, c in _images(train)]
        parted += [(f, c, "test") for f, c in _images(test)]
    classes = tuple(sorted({c for _, c, _ in parted}))
    if len(classes) < 2:
        raise SaccadeError(
            f"{root} needs at least two class folders with images ({', '.join(ENDINGS[:3])} ...), and has "
            f"{len(classes)}."
        )
    files = tuple((f, classes.index(c), where) for f, c, where in parted)
    return Listing(classes, files, all(_grey(f) for f, _, _ in files[:: max(1, len(files) // 8)]))


def _images(root: Path) -> list[tuple[Path, str]]:
    return [
        (f, d.name)
        for d in sorted(root.iterdir())
        if d.is_dir() and not d.name.startswith(".")
        for f in sorted(d.iterdir())
        if f.suffix.lower() in ENDINGS and not f.stem.endswith(MASKS) and not f.name.startswith(".")
    ]


def _part(name: Path, parts: int, test: int) -> str:
    drawn = int(hashlib.sha256(name.as_posix().encode()).hexdigest()[:8], 16) % parts
    return "test" if drawn < test else "held_out" if drawn == parts - 1 else "train"


def _in_turn(labels: list[int], seed: int, part: str) -> list[int]:
    """A seeded order in which classes take turns, so that every beginning is balanced as far as it goes."""
    order = shuffled(len(labels), seed, "folder", part).tolist()
    rank: dict[int, int] = {}
    placed: list[tuple[int, int, int]] = []
    for i in order:
        rank[labels[i]] = rank.get(labels[i], 0) + 1
        placed.append((rank[labels[i]], len(placed), i))
    return [i for _, _, i in sorted(placed)]


def mask_of(file: Path) -> Path | None:
    return next((m for end in MASKS if (m := file.with_name(f"{file.stem}{end}.png")).is_file()), None)


@functools.lru_cache(maxsize=4)
def usual_side(folder: str) -> int:
    """The middle one of the images' shorter sides, at most 224."""
    files = listing(folder).files
    sides: list[int] = sorted(min(_open(f).size) for f, _, _ in files[:: max(1, len(files) // 50)])
    return max(FEWEST, min(LARGEST, sides[len(sides) // 2]))


@functools.lru_cache(maxsize=4)
def moments(folder: str, side: int, crop: float) -> tuple[Triple, Triple]:
    """Mean and standard deviation by channel of the training images, of 2000 where there are more."""
    listed = listing(folder)
    files = [f for f, _, where in listed.files if where == "train"] or [f for f, _, _ in listed.files]
    some = tuple(files[:: max(1, len(files) // MOMENTS)])[:MOMENTS]
    x = read(some, min(side, 64), crop, listed.grey).float().div_(255)
    std = x.std((0, 2, 3)).clamp_min(1e-3)
    return tuple(round(v, 4) for v in x.mean((0, 2, 3)).tolist()), tuple(round(v, 4) for v in std.tolist())


@functools.lru_cache(maxsize=6)
def read(files: tuple[Path, ...], side: int, crop: float, grey: bool) -> Tensor:
    """(n, 3 or 1, side, side) uint8."""
    x = torch.empty(len(files), 1 if grey else 3, side, side, dtype=torch.uint8)
    for i, file in enumerate(files):
        x[i] = _square(file, side, crop, grey)
    return x


def _square(file: Path, side: int, crop: float, grey: bool) -> Tensor:
    import numpy as np
    from PIL import Image

    image = _open(file).convert("L" if grey else "RGB")
    scale = side / crop / min(image.size)
    width, height = (max(side, round(scale * s)) for s in image.size)
    left, top = (width - side) // 2, (height - side) // 2
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    array = np.asarray(image.crop((left, top, left + side, top + side))).copy()
    return torch.from_numpy(array)[None] if grey else torch.from_numpy(array).permute(2, 0, 1)


def _grey(file: Path) -> bool:
    return _open(file).mode in ("1", "L", "I;16", "LA")


def _open(file: Path) -> Any:
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as opened:
            return ImageOps.exif_transpose(opened)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SaccadeError(f"{file} cannot be read as an image ({error}); repair it or take it out.") from None
