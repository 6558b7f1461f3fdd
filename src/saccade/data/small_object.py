"""A small image pasted on a crop of a large one.   Feer et al. 2022, "Background" """

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import torch
from torch import Tensor

from saccade import rng
from saccade.arguments import Count, Range, Side
from saccade.data.autoaugment import autoaugmented, jpeg
from saccade.data.backdrops import PLAIN, Backdrops, backdrops
from saccade.data.images import AnySet, Images
from saccade.data.mosaic import Crop, Route, rendered
from saccade.data.points import balanced, moments, sized
from saccade.registry import data

OBJECT = 32
ObjectShare = Annotated[float, Range(at_least=0.005, at_most=1)]  # of the image's side; below, no canvas could hold it


@dataclass(frozen=True)
class SmallObjects(Images):
    """Objects over crops of images, composed batch by batch: the parts are kept, not the products.

    Image i shows objects[i] with its top left corner at place[i] of a canvas cut at corner[i] out of backdrop
    which[i]; `batch` gives the canvas at `size` pixels.
    """

    objects: Tensor
    behind: Backdrops
    which: Tensor
    corner: Tensor
    place: Tensor
    canvas: int
    size: int = 32
    crop: str = "none"
    lossy: bool = False

    @property
    def scale(self) -> float:
        """Side of the object as a share of the image's."""
        return OBJECT / self.canvas

    @property
    def centre(self) -> Tensor:
        """(n, 2): down and right, the middle of the object as a share of the image's side."""
        return (self.place + OBJECT / 2) / self.canvas

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        side, cut = self.canvas, []
        for which, (top, left) in zip(self.which[index].tolist(), self.corner[index].tolist(), strict=True):
            cut.append(self.behind.images[which][:, top : top + side, left : left + side])
        objects = self.objects[index]
        x = torch.stack(cut)
        if objects.shape[1] == 1:
            x = x.float().mean(1, keepdim=True).round_().byte()
        for image, thing, (top, left) in zip(x, objects.cpu(), self.place[index].tolist(), strict=True):
            image[:, top : top + OBJECT, left : left + OBJECT] = thing
        if self.lossy:
            x = jpeg(x)
        return rendered(x.to(objects.device).float().div_(255), self.size, self.crop)

    def pick(self, index: Tensor) -> Self:
        mine = {name: getattr(self, name)[index] for name in ("y", "objects", "which", "corner", "place")}
        return dataclasses.replace(self, **mine)


@data(version=1, watch="test", sets=("of",))
def small_object(
    split: Literal["train", "test"],
    *,
    seed: int,
    of: AnySet = "cifar10",
    n: Count = 2000,
    scale: ObjectShare = 0.25,
    backdrop: str = "procedural_textures",
    size: Side = 32,
    crop: Crop = "none",
    route: Route = "clean",
) -> SmallObjects:
    """n images of a set, each pasted unscaled on a crop of a large image, of which it takes the share `scale`.

    At scale 0.25 the crop has 128 pixels and the object's corner is uniform in {0..95} both ways. Classes are balanced,
    each meets every large image equally often, and the objects and their relative places are the same at every scale.
    backdrop: procedural_textures, drawn here; nature_photos, fetched; plain, the mean colour of the set, so that scale
    can be separated from clutter; or a folder with images. route="report" adds AutoAugment on the object and JPEG;
    crop="centre" cuts a sixteenth off each side.
    """
    canvas = round(OBJECT / scale)
    x, y = sized(of, split, "bilinear")
    mean, std = moments(of, "bilinear")
    behind = plain(mean, canvas) if backdrop == PLAIN else backdrops(backdrop, canvas)
    classes, order = int(y.max()) + 1, repeated(y, n, seed)
    turn = torch.randperm(len(behind.names), generator=rng.stream(seed, "small_object", "pictures"))
    which = turn[torch.arange(n) // classes % len(turn)]
    drawn = torch.rand(n, 4, generator=rng.stream(seed, "small_object", split))
    sides = torch.tensor([p.shape[1:] for p in behind.images])[which]
    objects = x[order]
    if route == "report":
        objects = autoaugmented(objects, rng.stream(seed, "small_object", split, "autoaugment"))
    return SmallObjects(
        y[order],
        classes,
        mean,
        std,
        objects,
        behind,
        which,
        (drawn[:, :2] * (sides - canvas)).long(),
        (drawn[:, 2:] * (canvas - OBJECT)).long(),
        canvas,
        size,
        crop,
        route == "report",
    )


def plain(mean: tuple[float, ...], side: int) -> Backdrops:
    colour = torch.tensor(mean).mul(255).round().byte()[:, None, None]
    return Backdrops((PLAIN,), (colour.expand(3, side, side).contiguous(),))


def repeated(y: Tensor, n: int, seed: int) -> Tensor:
    """n places in y with all classes equally often, up to one; a set that is used up starts again in another order."""
    rounds = [
        balanced(y, seed if not i else rng.seed_of(seed, "small_object", "again", i)) for i in range(-(-n // len(y)))
    ]
    return torch.cat(rounds)[:n]
