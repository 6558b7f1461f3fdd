"""Where a class token looks: maps by layer and head, their mean, rollout, and numbers instead of eyeballing.

    import saccade
    seen = saccade.analysis.attention.look(model, "eight.png", mean=(0.13,), std=(0.29,))
    seen.last, seen.rollout       # (8, 8) arrays that sum to one
    seen.entropy                  # of each layer and head, in nats

Works for any model with `.attention(x)`: a list, one entry per layer, of probabilities (n, heads, queries, keys) whose
token 0 is the class token and whose other tokens are a square grid of patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.spec import SaccadeError
from saccade.subjects.subject import evaluating, standardise

CHUNK = 128  # images at once; all maps of a chunk are held


@dataclass(frozen=True)
class Maps:
    """Maps of n images; those of a layer are (n, heads, side, side) and sum to one over the patches.

    What the class token keeps for itself is left out of them, and given by `kept` (n, heads) for each layer.
    """

    layers: tuple[Tensor, ...]
    kept: tuple[Tensor, ...]
    rollout: Tensor  # (n, side, side)

    @property
    def last(self) -> Tensor:
        """The last layer's map, mean over heads: (n, side, side)."""
        return self.layers[-1].mean(1)

    def join(self, other: Maps) -> Maps:
        def both(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(torch.cat(pair) for pair in zip(a, b, strict=True))

        return Maps(
            both(self.layers, other.layers), both(self.kept, other.kept), torch.cat([self.rollout, other.rollout])
        )


@dataclass(frozen=True)
class Look:
    """One image's maps as arrays: `layers[l][h]`, `last` (head mean) and `rollout` are (side, side)."""

    image: np.ndarray  # (c, 32, 32), float in [0, 1], as the model saw it
    layers: tuple[np.ndarray, ...]
    last: np.ndarray
    rollout: np.ndarray
    entropy: tuple[tuple[float, ...], ...]


def maps(model: nn.Module, x: Tensor) -> Maps:
    """Maps of standardised images x (n, c, h, w)."""
    attention = getattr(model, "attention", None)
    if not callable(attention):
        raise SaccadeError(
            f"{type(model).__name__} has no attention maps; they need a model with .attention(x), such as basic_vit."
        )
    if not len(x):
        raise SaccadeError("attention maps need at least one image.")
    with evaluating(model), torch.no_grad():
        parts = [_of(attention(x[i : i + CHUNK])) for i in range(0, len(x), CHUNK)]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.join(part)
    return joined


def _of(layers: list[Tensor]) -> Maps:
    kept = tuple(p[:, :, 0, 0] for p in layers)
    return Maps(tuple(to_patches(p) for p in layers), kept, to_patches(rollout(layers)))


def to_patches(probabilities: Tensor) -> Tensor:
    """From the class token to each patch: (..., tokens, tokens) -> (..., side, side), summing to one."""
    row = probabilities[..., 0, 1:]
    side = math.isqrt(row.shape[-1])
    if side * side != row.shape[-1]:
        raise SaccadeError(f"{row.shape[-1]} patches are no square grid, so they make no map.")
    return (row / row.sum(-1, keepdim=True).clamp_min(1e-12)).view(*row.shape[:-1], side, side)


def rollout(layers: list[Tensor]) -> Tensor:
    """(n, tokens, tokens): attention followed through the layers, after Abnar and Zuidema 2020.

    Heads are averaged; half of each token stays where it is, for the residual connection. Rows sum to one.
    """
    flow: Tensor | None = None
    for p in layers:
        step = (p.mean(1) + torch.eye(p.shape[-1], device=p.device, dtype=p.dtype)) / 2
        flow = step if flow is None else step @ flow
    assert flow is not None, "a model without layers has no attention"
    return flow


def entropy(grid: Tensor) -> Tensor:
    """Over the patches, in nats: 0 for one patch, log(side²) for an even look."""
    each: Tensor = torch.special.entr(grid)
    return each.sum((-2, -1))


def effective_patches(grid: Tensor) -> Tensor:
    """exp(entropy): as many patches as would be looked at evenly."""
    return entropy(grid).exp()


def ink_mask(x: Tensor, side: int) -> Tensor:
    """The share of each patch that is ink, (n, side, side): pixels above one half of grey images in [0, 1]."""
    return F.adaptive_avg_pool2d((x.mean(1, keepdim=True) > 0.5).float(), side)[:, 0]


def share(grid: Tensor, mask: Tensor) -> Tensor:
    """How much of a map falls on a mask (side, side) or (n, side, side) in [0, 1]; an even look gives its area."""
    return (grid * mask.to(grid)).sum((-2, -1))


def centre(side: int) -> Tensor:
    """A mask of the middle quarter of the image."""
    mask = torch.zeros(side, side)
    mask[side // 4 : side - side // 4, side // 4 : side - side // 4] = 1
    return mask


def look(
    model: nn.Module,
    image: str | Path | np.ndarray | Tensor,
    *,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    channels: int = 0,
) -> Look:
    """Where the model looks in one image: a file, or an array (h, w), (h, w, 3), (c, h, w), uint8 or in [0, 1].

    It is made 32 x 32, with as many channels as `channels` or `mean` says (default: its own), and standardised by
    mean and std.
    """
    x = read(image, channels or len(mean))
    standardised = standardise(x, mean, std) if mean else x
    image_maps = maps(model, standardised)
    return Look(
        x[0].numpy(),
        tuple(m[0].numpy() for m in image_maps.layers),
        image_maps.last[0].numpy(),
        image_maps.rollout[0].numpy(),
        tuple(tuple(entropy(m[0]).tolist()) for m in image_maps.layers),
    )


def read(image: str | Path | np.ndarray | Tensor, channels: int = 0, size: int = 32) -> Tensor:
    """An image as (1, c, size, size), float in [0, 1]."""
    x = open_image(image)[None]
    if channels == 1 and x.shape[1] == 3:
        x = x.mean(1, keepdim=True)
    elif channels == 3 and x.shape[1] == 1:
        x = x.expand(-1, 3, -1, -1)
    if x.shape[-2:] != (size, size):
        x = F.interpolate(x, size=(size, size), mode="bilinear", antialias=True)
    return x.contiguous()


def open_image(image: str | Path | np.ndarray | Tensor) -> Tensor:
    """An image as (c, h, w), float in [0, 1], one or three channels: from a file or an array."""
    array = _open(Path(image)) if isinstance(image, (str, Path)) else np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise SaccadeError(f"an image must be (h, w), (h, w, 3) or (c, h, w), not {array.shape}.")
    values = torch.from_numpy(array.copy()).float() / (255 if array.dtype == np.uint8 else 1)
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise SaccadeError("an image must be uint8, or float in [0, 1].")
    return values.permute(2, 0, 1)


def _open(path: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("L" if image.mode in ("1", "L", "I;16") else "RGB"))
    except FileNotFoundError:
        raise SaccadeError(f"no image {path}; give the path of an image file.") from None
    except (UnidentifiedImageError, OSError) as error:
        raise SaccadeError(f"{path} cannot be read as an image: {error}.") from None
