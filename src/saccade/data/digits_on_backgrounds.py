"""Digits pasted on images; each digit class meets only its own few images in training.  de Kruijff 2022, Sec. 3."""

from __future__ import annotations

from typing import Literal

import torch

from saccade import rng
from saccade.arguments import Count
from saccade.data.images import Colour, Grey, Pasted, shuffled, tensors
from saccade.data.pixels import Blend
from saccade.registry import data
from saccade.spec import SaccadeError

# Degrees, pixels, share of scale of the digit: about half of the overview severities in tests (20 degrees, 4 px, 0.75).
JITTER = {"mild": (10.0, 2.0, 0.125)}
# Contrast from none to twice, every channel moved by up to half of its range, so that colours say less of which of the
# few training images this is. Tried on training digits over training images left out, seed 100001.
COLOURS = {"colours": 1.0}
NORMS = {"half": ((0.5,) * 3, (0.5,) * 3), "none": ((0.0,) * 3, (1.0,) * 3)}


@data(version=1, watch="ood", sets=("digits", "scenes"))
def digits_on_backgrounds(
    split: Literal["train", "id", "ood"],
    *,
    seed: int,
    backgrounds: Count = 8,
    pairing: Literal["by_class", "random"] = "by_class",
    assign: Literal["once", "every_time"] = "once",
    blend: Blend = "opacity",
    placement: Literal["pad", "resize"] = "pad",
    normalise: Literal["half", "none"] = "half",
    augment: Literal["none", "mild", "colours"] = "none",
    digits: Grey = "mnist",
    scenes: Colour = "cifar10",
) -> Pasted:
    """White digits on small photographs, `backgrounds` of them for each digit class.

    Splits: `train`; `id`, unseen digits on the training images of their class; `ood`, unseen digits on
    unseen images. pairing="random" lets any digit meet any training image (the fully random mode).
    Image sets are disjoint between classes and nested in `backgrounds`, so that curves over it are paired.
    Training images vary by `augment`: the digit's place, angle and size (mild), or all colours.
    """
    home = "test" if split == "ood" else "train"
    ink, y = tensors(digits, "train" if split == "train" else "test")
    photographs, _ = tensors(scenes, home)
    if not 1 <= backgrounds <= len(tensors(scenes, "train")[0]) // 10:
        raise SaccadeError(
            f"backgrounds must be between 1 and {len(tensors(scenes, 'train')[0]) // 10} "
            f"(ten disjoint sets from {scenes}), not {backgrounds}."
        )
    if split != "train":  # a fresh order each seed, so that the first n are a random sample
        order = shuffled(len(y), seed, "sample", split)
        ink, y = ink[order], y[order]
    redraw = None
    if split == "ood" or pairing == "random":
        which = torch.randint(len(photographs), (len(y),), generator=rng.stream(seed, "assign", split))
    else:
        own = shuffled(len(photographs), seed, "backgrounds")[: 10 * backgrounds].reshape(backgrounds, 10).T
        drawn = torch.randint(backgrounds, (len(y),), generator=rng.stream(seed, "assign", split))
        which = own[y, drawn]
        if assign == "every_time" and split == "train":
            redraw = own[y]
    mean, std = NORMS[normalise]
    return Pasted(
        y,
        10,
        mean,
        std,
        ink,
        photographs,
        which,
        None,
        redraw,
        JITTER.get(augment, ()) if split == "train" else (),
        blend,
        placement,
        COLOURS.get(augment, 0.0) if split == "train" else 0.0,
    )
