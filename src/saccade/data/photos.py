"""An image set as it is usually trained on: shifted and mirrored at random, a part of it held out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.arguments import AnyCount, AnySide, Count
from saccade.data.autoaugment import autoaugmented
from saccade.data.images import AnySet, Images, Plain, shuffled
from saccade.data.points import balanced, moments, sized
from saccade.registry import data
from saccade.spec import SaccadeError

PhotoSplit = Literal["train", "train_plain", "held_out", "test"]
Augment = Literal["crop_flip", "crop", "flip", "none"]


@dataclass(frozen=True)
class Shifted(Plain):
    """In training each image is shifted by up to `margin` pixels, black coming in, and mirrored half of the time."""

    margin: int = 4
    mirror: bool = True

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        x = self.x.index_select(0, index)
        if generator is None:
            return torch.div(x, 255)
        n, (height, width) = len(index), x.shape[-2:]
        down, right = torch.randint(2 * self.margin + 1, (2, n), generator=generator).to(x.device)
        flip = torch.rand(n, generator=generator).to(x.device) < 0.5
        if self.margin:  # every window is a view; one gather takes each image's own
            windows = F.pad(x, (self.margin,) * 4).unfold(2, height, 1).unfold(3, width, 1)
            x = windows[torch.arange(n, device=x.device), :, down, right]
        if self.mirror:
            x = torch.where(flip[:, None, None, None], x.flip(-1), x)
        return torch.div(x, 255)


@dataclass(frozen=True)
class Changed(Plain):
    """In training each image goes through a pair of operations of the AutoAugment policy."""

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        x = self.x.index_select(0, index)
        if generator is not None:
            x = autoaugmented(x.cpu(), generator).to(x.device)
        return torch.div(x, 255)


@dataclass(frozen=True)
class Enlarged(Images):
    """Any images at another size, resized batch by batch, so that a set stays as small as it is."""

    inner: Images
    size: int

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        x = self.inner.batch(index, generator)
        return F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False, antialias=True)

    def pick(self, index: Tensor) -> Self:
        return replace(self, y=self.y[index], inner=self.inner.pick(index))

    def to(self, device: str) -> Self:
        return replace(self, y=self.y.to(device), inner=self.inner.to(device))


@data(version=1, watch="held_out", sets=("of",))
def photos(
    split: PhotoSplit,
    *,
    seed: int,
    of: AnySet = "cifar10",
    p: AnyCount = 0,
    hold_out: Count = 5000,
    augment: Augment | Literal["autoaugment"] = "crop_flip",
    size: AnySide = 0,
) -> Images:
    """p images of a set to train on (0: all but the held-out ones), balanced over classes and nested in p.

    `train_plain` holds the training images without augmentation: training accuracy is to be measured there.
    `held_out` comes from the training set and is for choices; `test` is the set's own, in a seeded order.
    Grey sets are enlarged to 32 x 32, and all to `size` pixels if that is given, after augmentation (crop_flip: shifts
    of up to 4 pixels and mirroring; autoaugment: the policy for CIFAR-10). Pixels are standardised by channel.
    """
    x, y = sized(of, "test" if split == "test" else "train", "bilinear")
    mean, std = moments(of, "bilinear")
    if split == "test":
        order = shuffled(len(y), seed, "sample", split)
    else:
        room = len(y) - hold_out
        if not 0 < hold_out < len(y):
            raise SaccadeError(
                f"hold_out must be between 1 and {len(y) - 1}, as {of} has {len(y)} images, not {hold_out}."
            )
        if not 0 <= p <= room:
            raise SaccadeError(f"p must be at most {room}, what {of} has beside the held-out images, not {p}.")
        order = balanced(y, seed)
        order = order[room:] if split == "held_out" else order[: p or room]
    whole = (y[order], int(y.max()) + 1, mean, std, x[order])
    made = Plain(*whole)
    if split == "train" and augment == "autoaugment":
        made = Changed(*whole)
    elif split == "train" and augment != "none":
        made = Shifted(*whole, margin=4 if augment.startswith("crop") else 0, mirror=augment.endswith("flip"))
    return Enlarged(made.y, made.classes, mean, std, made, size) if size else made
