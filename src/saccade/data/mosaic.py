"""Four images of four classes in one, with all four as its label.   Feer et al. 2022, "Combined CIFAR-10" """

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from saccade import rng
from saccade.arguments import Count, Label, Side
from saccade.data import pixels
from saccade.data.autoaugment import autoaugmented, jpeg
from saccade.data.images import AnySet, Plain
from saccade.data.points import moments, sized
from saccade.registry import data
from saccade.spec import SaccadeError

Route = Literal["clean", "report"]
Crop = Literal["none", "centre"]
TILES = 4
DRAWS = 64  # indices drawn at once for each mosaic; of ten equal classes about five are needed


@dataclass(frozen=True)
class Mosaic(Plain):
    """x is (n, c, 64, 64) uint8; y is the class of the first tile, `shown` (n, 4) those of all, row by row.

    `batch` gives images of `size` pixels, so that a tile has half of that.
    """

    shown: Tensor
    size: int = 32
    crop: str = "none"

    @property
    def present(self) -> Tensor:
        """The label vectors: (n, classes) bool, four of them true."""
        none = torch.zeros(len(self.y), self.classes, dtype=torch.bool, device=self.y.device)
        return none.scatter(1, self.shown, True)

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return rendered(pixels.floats(self.x, index), self.size, self.crop)

    def pick(self, index: Tensor) -> Self:
        return dataclasses.replace(self, x=self.x[index], y=self.y[index], shown=self.shown[index])


@data(version=1, watch="test", sets=("of",))
def mosaic(
    split: Literal["train", "test"],
    *,
    seed: int,
    of: AnySet = "cifar10",
    n: Count = 2000,
    size: Side = 32,
    crop: Crop = "none",
    route: Route = "clean",
    only: Sequence[Label] = (),
) -> Mosaic:
    """n mosaics of two by two images from a set, all of different classes, at `size` pixels.

    Images are drawn uniformly, and dropped if their class is there already; the first kept is top left, then top
    right, bottom left, bottom right. The first mosaics of a larger n are those of a smaller one. `only` draws from
    these classes. route="report" puts each tile through AutoAugment and the whole through JPEG; crop="centre" cuts a
    sixteenth off each side, as resizing to 256 and cropping to 224 does.
    """
    x, y = sized(of, split, "bilinear")
    classes = int(y.max()) + 1
    pool = torch.arange(len(y)) if not only else torch.isin(y, torch.tensor(tuple(only))).nonzero()[:, 0]
    kinds = int((torch.bincount(y[pool]) > 0).sum())
    if kinds < TILES:
        raise SaccadeError(
            f"a mosaic needs images of {TILES} different classes, and there are only {kinds} to draw "
            f"from in {of}{f' with only={tuple(only)}' if only else ''}."
        )
    chosen = pool[draw(y[pool], n, seed, split)]  # (n, 4)
    tiles = x[chosen.flatten()]
    if route == "report":
        tiles = autoaugmented(tiles, rng.stream(seed, "mosaic", split, "autoaugment"))
    whole = rearrange(tiles, "(n a b) c h w -> n c (a h) (b w)", a=2, b=2)
    shown = y[chosen]
    return Mosaic(
        shown[:, 0], classes, *moments(of, "bilinear"), jpeg(whole) if route == "report" else whole, shown, size, crop
    )


def draw(y: Tensor, n: int, seed: int, split: str) -> Tensor:
    """(n, 4) places in y of four different labels, by rejection."""
    kept = torch.full((n, TILES), -1)
    have = torch.zeros(n, dtype=torch.long)
    for again in range(10_000):
        drawn = torch.randint(len(y), (n, DRAWS), generator=rng.stream(seed, "mosaic", split, again))
        for place in drawn.T:
            labels = torch.where(kept >= 0, y[kept], -1)
            new = ((labels != y[place][:, None]).all(1) & (have < TILES)).nonzero()[:, 0]
            kept[new, have[new]] = place[new]
            have[new] += 1
        if bool((have == TILES).all()):
            break
    return kept


def rendered(x: Tensor, size: int, crop: str) -> Tensor:
    """Square images at another size, smoothed as far as they shrink; without their rim if crop is "centre"."""
    if crop == "centre":
        rim = x.shape[-1] // 16
        x = x[..., rim : x.shape[-2] - rim, rim : x.shape[-1] - rim]
    if x.shape[-1] == size:
        return x
    return F.interpolate(x, size=(size, size), mode="bilinear", antialias=True, align_corners=False).clamp_(0, 1)
