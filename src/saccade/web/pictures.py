"""Images for the Look page: one of a run's own data, or one from outside, moved, turned, scaled, on any background."""

from __future__ import annotations

import base64
import binascii
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade import registry
from saccade.data import pixels
from saccade.data.images import Images, Pasted, Source
from saccade.report.figures import picture as as_png
from saccade.spec import Run, SaccadeError

THINGS = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")  # CIFAR-10's classes
SHOWN = 24  # images offered for choosing
UNSEEN = 8  # backgrounds offered that training never showed
LARGEST = 512  # pixels on a side of an image from outside


@dataclass(frozen=True)
class Thing:
    """What is moved: colour (3, s, s) and opacity (1, s, s), in [0, 1], and how its ink mixes with a background."""

    colour: Tensor
    opacity: Tensor
    blend: str = "opacity"


@dataclass(frozen=True)
class Stock:
    """Everything that a run's data offers to look at."""

    run: Run

    @property
    def source(self) -> Source:
        return Source(self.run.data, self.run.data_args, self.run.seed)

    @property
    def split(self) -> str:
        return str(registry.card("data", self.run.data).extra.get("watch", "test"))

    @property
    def held_out(self) -> Images:
        return self.source(self.split)

    def size(self) -> tuple[int, int]:
        """Channels and side of the images."""
        x = self.held_out.batch(torch.zeros(1, dtype=torch.long))
        return int(x.shape[1]), int(x.shape[-1])

    def classes(self) -> list[str]:
        """Names where the set has them, else numbers."""
        card, n = registry.card("data", self.run.data), self.held_out.classes
        sets = [self.run.data_args.get(a, card.args[a]) for a in card.extra.get("sets", ())]
        only = tuple(self.run.data_args.get("only", ()))
        if sets and sets[0] == "cifar10" and self.run.data != "digits_on_backgrounds":
            return [THINGS[i] for i in only] if only else list(THINGS[:n])
        return [str(i) for i in only] if only else [str(i) for i in range(n)]

    def shelf(self) -> dict[str, Any]:
        """Images and backgrounds to choose from, as small PNG files."""
        images = self.held_out
        n = min(SHOWN, len(images))
        x = images.batch(torch.arange(n))
        channels, size = self.size()
        return {
            "data": self.run.data,
            "split": self.split,
            "of": len(images),
            "size": size,
            "channels": channels,
            "classes": self.classes(),
            "movable": "the digit" if isinstance(images, Pasted) else "the image",
            "images": [{"index": i, "label": int(images.y[i]), "png": as_png(x[i].numpy()).png} for i in range(n)],
            "scenes": _scenes(self.source, self.split),
        }

    def thing(self, index: int) -> tuple[Thing, Tensor, int]:
        """The object of one held-out image, its own background (3, s, s), and its label."""
        images = self.held_out
        if not 0 <= index < len(images):
            raise SaccadeError(f"the split {self.split} has the images 0 to {len(images) - 1}, not {index}.")
        at, label = torch.tensor([index]), int(images.y[index])
        if isinstance(images, Pasted):
            ink = images.opacity(at)[0]
            behind = pixels.floats(images.scenes, images.which[at])[0]
            return Thing(torch.ones(3, *ink.shape[1:]), ink, images.blend), behind, label
        x = images.batch(at)[0]
        mean = torch.tensor(images.mean if any(images.mean) else (0.5,) * len(images.mean))
        behind = mean.view(-1, 1, 1).expand(-1, *x.shape[1:])
        return Thing(_rgb(x), torch.ones(1, *x.shape[1:])), _rgb(behind), label

    def scene(self, split: str, index: int) -> Tensor:
        if split not in ("train", self.split):
            raise SaccadeError(f'a background is one of "train" or "{self.split}", not "{split[:40]}".')
        images = self.source(split)
        if not isinstance(images, Pasted):
            raise SaccadeError(f"{self.run.data} has no backgrounds of its own; choose a colour or an image.")
        if not 0 <= index < len(images.scenes):
            raise SaccadeError(f"there are the backgrounds 0 to {len(images.scenes) - 1}, not {index}.")
        return pixels.floats(images.scenes, torch.tensor([index]))[0]


@functools.lru_cache(maxsize=8)
def _scenes(source: Source, split: str) -> list[dict[str, Any]]:
    """One training background per class, and some that training never showed."""
    train, unseen = source("train"), source(split)
    if not (isinstance(train, Pasted) and isinstance(unseen, Pasted)):
        return []
    offered: list[dict[str, Any]] = []
    for label in range(train.classes):
        which = train.which[(train.y == label).nonzero()[:1, 0]].tolist()
        offered += [{"split": "train", "index": i, "behind": label} for i in which]
    offered += [{"split": split, "index": int(i), "behind": None} for i in unseen.which[:UNSEEN].tolist()]
    for one in offered:
        images = train if one["split"] == "train" else unseen
        one["png"] = as_png(images.scenes[one["index"]].numpy()).png
    return offered


def moved(thing: Thing, scene: Tensor, *, dx: float, dy: float, turn: float, scale: float) -> Tensor:
    """(3, s, s): the object turned counter-clockwise, scaled, shifted by pixels, and put over the scene."""
    size = thing.opacity.shape[-1]
    ink, colour = thing.opacity[None], (thing.colour * thing.opacity)[None]
    if (dx, dy, turn, scale) != (0, 0, 0, 1):
        one = torch.ones(1)
        maps = pixels.chain(
            pixels.chain(pixels.rotation(turn * one), pixels.scaling(scale * one)),
            pixels.translation(dy * one, dx * one, size),
        )
        warped = pixels.warp(torch.cat([ink, colour], 1), maps)
        ink, colour = warped[:, :1], warped[:, 1:]
    if thing.blend != "opacity":
        return pixels.compose(ink, scene[None], thing.blend)[0]
    return (torch.mul(1 - ink, scene[None]) + colour)[0].clamp(0, 1)


def compose(stock: Stock, request: Mapping[str, Any]) -> tuple[Tensor, int | None]:
    """The image that was asked for, (3, s, s) in [0, 1], and its label where it has one. Every field is checked."""
    _, size = stock.size()
    own_scene, label = None, None
    if "pixels" in request:
        rgba = outside(request["pixels"], size)
        thing = Thing(rgba[:3], rgba[3:])
    else:
        thing, own_scene, label = stock.thing(whole_number(request.get("index", 0), "index"))
    move = request.get("move", {})
    if not isinstance(move, dict):
        raise SaccadeError('"move" must have dx, dy, turn and scale.')
    values = {
        name: real(move.get(name, start), name) for name, start in (("dx", 0), ("dy", 0), ("turn", 0), ("scale", 1))
    }
    if not 0.05 <= values["scale"] <= 8 or max(abs(values["dx"]), abs(values["dy"])) > 4 * size:
        raise SaccadeError("the object can be scaled by 0.05 to 8, and shifted by four times the image's side.")
    scene = _scene(stock, request.get("scene"), own_scene, size)
    return moved(thing, scene, dx=values["dx"], dy=values["dy"], turn=values["turn"], scale=values["scale"]), label


def _scene(stock: Stock, request: Any, own_scene: Tensor | None, size: int) -> Tensor:
    if request is None and own_scene is not None:
        return own_scene
    if request is None:
        return torch.full((3, size, size), 0.5)
    if not isinstance(request, dict):
        raise SaccadeError('"scene" must name a background, a colour or pixels.')
    if "colour" in request:
        rgb = request["colour"]
        if not isinstance(rgb, list) or len(rgb) != 3:
            raise SaccadeError('"colour" must be three numbers from 0 to 255.')
        values = [real(v, "colour") for v in rgb]
        if not all(0 <= v <= 255 for v in values):
            raise SaccadeError('"colour" must be three numbers from 0 to 255.')
        return (torch.tensor(values) / 255).view(3, 1, 1).expand(3, size, size)
    if "pixels" in request:
        return outside(request["pixels"], size)[:3]
    return stock.scene(str(request.get("split", "")), whole_number(request.get("index", 0), "index"))


def outside(text: Any, size: int) -> Tensor:
    """An image that the page sends: base64 of s x s x 4 bytes, row by row; (4, size, size) in [0, 1]."""
    if not isinstance(text, str):
        raise SaccadeError('"pixels" must be base64 text.')
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaccadeError('"pixels" is no base64 text.') from None
    side = math.isqrt(len(raw) // 4)
    if not raw or side * side * 4 != len(raw) or side > LARGEST:
        raise SaccadeError(f"pixels are red, green, blue and opacity of a square of at most {LARGEST} pixels a side.")
    x = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(side, side, 4).permute(2, 0, 1).float() / 255
    if side != size:
        x = F.interpolate(x[None], size=(size, size), mode="bilinear", antialias=True)[0]
    return x.contiguous()


def fitted(x: Tensor, channels: int, size: int) -> Tensor:
    """An image (3, s, s) as another model's data has them: (1, channels, size, size)."""
    x = x[None]
    if channels == 1:
        x = x.mean(1, keepdim=True)
    if x.shape[-1] != size:
        x = F.interpolate(x, size=(size, size), mode="bilinear", antialias=True)
    return x


def _rgb(x: Tensor) -> Tensor:
    return x if x.shape[0] == 3 else x[:1].expand(3, -1, -1)


def real(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SaccadeError(f'"{name}" must be a number.')
    return float(value)


def whole_number(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SaccadeError(f'"{name}" must be a whole number.')
    return value
