"""Large images to paste things on: drawn here, fetched, or those of a folder."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade import rng
from saccade.data.autoaugment import as_tensor
from saccade.data.fetch import photographs
from saccade.spec import SaccadeError, suggest

DRAWN, PLAIN = "procedural_textures", "plain"
SIDE = 512
VARIANTS = 4
KINDS = ("clouds", "slope", "stripes", "marble", "grain")
ENDINGS = (".png", ".jpg", ".jpeg")
MOST = 1600  # pixels on a side of a fetched image; whole, the twenty would take 350 MB in every process


@dataclass(frozen=True)
class Backdrops:
    """Images (3, h, w) uint8 of any sizes, with their names."""

    names: tuple[str, ...]
    images: tuple[Tensor, ...]


def backdrops(name: str, need: int) -> Backdrops:
    """The images of a name, or of a folder; each at least `need` pixels wide and high."""
    if name == DRAWN:
        found = textures(max(SIDE, need))
    elif name == photographs.NAME:
        found = fetched()
    elif Path(name).expanduser().is_dir():
        found = folder(Path(name).expanduser())
    elif "/" in name or "\\" in name:
        raise SaccadeError(f"there is no folder {name} with images to paste on; name one that has PNG or JPEG files.")
    else:
        known = (DRAWN, PLAIN, photographs.NAME)
        raise SaccadeError(suggest("backdrop", name, known, "or the path of a folder with images"))
    for label, image in zip(found.names, found.images, strict=True):
        if min(image.shape[1:]) < need:
            raise SaccadeError(
                f"{label} has {image.shape[2]}x{image.shape[1]} pixels, fewer than the crop of "
                f"{need}x{need}; take it out of {name} or use a larger scale of the object."
            )
    return found


@functools.lru_cache(maxsize=2)
def folder(path: Path) -> Backdrops:
    """Every PNG and JPEG file of a folder, in the order of their names, decoded and kept."""
    files = sorted(f for f in path.iterdir() if f.suffix.lower() in ENDINGS)
    if not files:
        raise SaccadeError(f"{path} has no PNG or JPEG file to paste on; name a folder with images.")
    return Backdrops(tuple(f.name for f in files), tuple(map(read, files)))


@functools.lru_cache(maxsize=1)
def fetched() -> Backdrops:
    files = photographs.files()
    return Backdrops(tuple(f.stem for f in files), tuple(read(f, MOST) for f in files))


def read(file: Path, most: int = 0) -> Tensor:
    """(3, h, w) uint8; averaged over whole squares of pixels until no side is above `most`, if that is given."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
            return as_tensor(upright.reduce(-(-max(upright.size) // most)) if most else upright)
    except Exception as error:  # a broken file raises nearly anything
        raise SaccadeError(f"{file} cannot be read as an image ({error}); repair it or take it out.") from error


@functools.lru_cache(maxsize=2)
def textures(side: int = SIDE) -> Backdrops:
    """Twenty drawn images, the same on every machine: noise in octaves, slopes, stripes, marble, grain."""
    names, images = [], []
    for kind in KINDS:
        for variant in range(VARIANTS):
            draw = rng.stream(0, "backdrops", kind, variant)
            shade = _shade(kind, side, draw).clamp(0, 1)
            dark, light = (
                low + (high - low) * torch.rand(3, 1, 1, generator=draw) for low, high in ((0, 120), (110, 255))
            )
            speckle = 4 * torch.randn(3, side, side, generator=draw)
            images.append((dark * (1 - shade) + light * shade + speckle).clamp(0, 255).byte())
            names.append(f"{kind} {variant + 1}")
    return Backdrops(tuple(names), tuple(images))


def _shade(kind: str, side: int, draw: torch.Generator) -> Tensor:
    """(side, side), about in [0, 1]. Sizes are in pixels, so that a larger image shows more, not larger things."""
    turn, phase, rate = (torch.rand(3, generator=draw) * torch.tensor([6.28, 6.28, 0.5])).tolist()
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    along = x * torch.tensor(turn).cos() + y * torch.tensor(turn).sin()
    smooth = _octaves(side, draw)
    if kind == "clouds":
        return 0.5 + 1.5 * (smooth - 0.5)
    if kind == "slope":
        return 0.5 + (along - along.mean()) / (1.42 * side) + 0.3 * (smooth - 0.5)
    if kind == "stripes":
        return 0.5 + 0.5 * torch.sin((0.15 + rate) * along + phase)
    if kind == "marble":
        return 0.5 + 0.5 * torch.sin((0.05 + rate / 4) * along + phase + 14 * smooth)
    return 0.3 * smooth + 0.7 * _noise(side, 3, draw)


def _octaves(side: int, draw: torch.Generator) -> Tensor:
    cells = (128, 64, 32, 16, 8, 4)
    return torch.stack([_noise(side, c, draw) * c for c in cells]).sum(0) / sum(cells)


def _noise(side: int, cell: int, draw: torch.Generator) -> Tensor:
    """Random values a cell apart, joined smoothly."""
    grid = torch.rand(1, 1, side // cell + 2, side // cell + 2, generator=draw)
    return F.interpolate(grid, scale_factor=float(cell), mode="bilinear", align_corners=False)[0, 0, :side, :side]
