"""p labelled images of a set, nested in p and balanced over classes, with label noise if wanted.   Catteau, TP IV"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade import rng
from saccade.arguments import Count, Label, Share
from saccade.data.images import AnySet, Plain, Triple, shuffled, tensors
from saccade.registry import data
from saccade.spec import SaccadeError

SIZE = 32


@data(version=1, watch="test", sets=("of",))
def points(
    split: Literal["train", "test"],
    *,
    seed: int,
    of: AnySet = "cifar10",
    p: Count = 1024,
    noise: Share = 0.0,
    only: Sequence[Label] = (),
    replacement: Literal["other", "any"] = "other",
    resize: Literal["bilinear", "pad"] = "bilinear",
    standardise: Literal["channel", "none"] = "channel",
) -> Plain:
    """The first p of one seeded, class-balanced order of a training set; the test split whole, in a seeded order.

    Sets are 1 x 32 x 32 (mnist, fashion_mnist, procedural_digits) or 3 x 32 x 32 (cifar10, procedural_textures).
    A label is wrong with probability `noise`, in training only: drawn once per seed, so that the wrong labels of
    10 % are among those of 20 %; replacement="any" may draw the right label again. `only` keeps these classes
    and numbers them from 0.
    """
    x, y = sized(of, split, resize)
    classes = int(y.max()) + 1
    kept = torch.arange(len(y))
    if only:
        kept, y, classes = _keep(y, tuple(only), of, classes)
    if split == "test":
        order = shuffled(len(y), seed, "sample", split)
        y = y[order]
    else:
        if not 1 <= p <= len(y):
            raise SaccadeError(
                f"p must be between 1 and {len(y)}, the size of {of}'s training set"
                f"{' in these classes' if only else ''}, not {p}."
            )
        order = balanced(y, seed)[:p]
        y = noisy(y, classes, noise, seed, replacement)[order]
    mean, std = moments(of, resize) if standardise == "channel" else ((0.0,) * x.shape[1], (1.0,) * x.shape[1])
    return Plain(y, classes, mean, std, x[kept[order]])


def balanced(y: Tensor, seed: int) -> Tensor:
    """An order whose every beginning has all classes equally often, up to one."""
    first = shuffled(len(y), seed, "points")
    rank = torch.empty(len(y))
    for label in range(int(y.max()) + 1):
        mine = first[y[first] == label]
        rank[mine] = torch.arange(len(mine), dtype=rank.dtype)
    return (rank + torch.rand(len(y), generator=rng.stream(seed, "points", "ties"))).argsort()


def noisy(y: Tensor, classes: int, noise: float, seed: int, replacement: str) -> Tensor:
    draw = rng.stream(seed, "label_noise")
    wrong = torch.rand(len(y), generator=draw) < noise
    other = (y + torch.randint(1, classes, (len(y),), generator=draw)) % classes
    if replacement == "any":
        other = torch.randint(classes, (len(y),), generator=draw)
    return torch.where(wrong, other, y)


def _keep(y: Tensor, only: tuple[int, ...], of: str, classes: int) -> tuple[Tensor, Tensor, int]:
    for label in only:
        if not 0 <= label < classes:
            raise SaccadeError(f"{of} has the classes 0 to {classes - 1}, not {label}.")
    if len(set(only)) != len(only) or len(only) < 2:
        raise SaccadeError(f"only needs at least two different classes, as in only=(5, 8), not {only}.")
    place = torch.full((classes,), -1)
    place[list(only)] = torch.arange(len(only))
    kept = (place[y] >= 0).nonzero()[:, 0]
    return kept, place[y[kept]], len(only)


@functools.lru_cache(maxsize=8)
def sized(of: str, split: str, resize: str) -> tuple[Tensor, Tensor]:
    """(n, c, 32, 32) uint8; grey sets of 28 pixels are enlarged or framed."""
    x, y = tensors(of, split)
    if x.ndim == 4:
        return x, y
    x = x[:, None]
    if resize == "pad":
        margin = (SIZE - x.shape[-1]) // 2
        return F.pad(x, (margin,) * 4), y
    large = [
        F.interpolate(x[i : i + 10_000].float(), size=(SIZE, SIZE), mode="bilinear").round_().byte()
        for i in range(0, len(x), 10_000)
    ]  # in parts: the whole as float would take half a gigabyte
    return torch.cat(large), y


@functools.lru_cache(maxsize=8)
def moments(of: str, resize: str) -> tuple[Triple, Triple]:
    """Mean and standard deviation by channel of the whole training set: the same for every p, class choice and seed."""
    x = sized(of, "train", resize)[0]
    first, second = torch.zeros(2, x.shape[1], dtype=torch.double)
    for i in range(0, len(x), 5_000):
        part = x[i : i + 5_000].float().div_(255)
        first += part.mean((0, 2, 3)).double() * len(part) / len(x)
        second += part.square_().mean((0, 2, 3)).double() * len(part) / len(x)
    std = (second - first**2).sqrt()
    return tuple(round(v, 4) for v in first.tolist()), tuple(round(v, 4) for v in std.tolist())
