"""What the report did to its probe images: the AutoAugment policy for CIFAR-10, and storage as JPEG.

The policy is Table 7 of Cubuk et al. 2019: one of 25 pairs of operations per image, each done with its probability at
its strength from 0 to 9, in a random direction where there are two.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

Step = tuple[str, float, int]

POLICY: tuple[tuple[Step, Step], ...] = (
    (("invert", 0.1, 0), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("right", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_down", 0.5, 8), ("down", 0.7, 9)),
    (("autocontrast", 0.5, 0), ("equalize", 0.9, 0)),
    (("shear_down", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 0), ("equalize", 0.5, 0)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("right", 0.5, 8)),
    (("equalize", 0.3, 0), ("autocontrast", 0.4, 0)),
    (("down", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 0)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 0), ("equalize", 0.6, 0)),
    (("color", 0.9, 9), ("equalize", 0.6, 0)),
    (("autocontrast", 0.8, 0), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 0)),
    (("down", 0.9, 9), ("down", 0.7, 9)),
    (("autocontrast", 0.9, 0), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 0), ("invert", 0.1, 0)),
    (("down", 0.7, 9), ("autocontrast", 0.9, 0)),
)


def autoaugmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """x: (n, c, h, w) uint8, each image by a pair of operations of its own."""
    drawn = torch.rand(len(x), 5, generator=generator).tolist()
    return torch.stack([_one(tensor, *numbers) for tensor, numbers in zip(x, drawn, strict=True)]) if len(x) else x


def _one(tensor: Tensor, pair: float, first: float, second: float, sign1: float, sign2: float) -> Tensor:
    image = as_image(tensor)
    for (name, chance, strength), u, sign in zip(
        POLICY[int(pair * len(POLICY))], (first, second), (sign1, sign2), strict=True
    ):
        if u < chance:
            image = operate(image, name, strength, 1 if sign < 0.5 else -1)
    return as_tensor(image)


def operate(image: Image, name: str, strength: int, sign: int) -> Image:
    """One operation of the policy on a PIL image; black comes in from outside."""
    from PIL import ImageEnhance, ImageOps
    from PIL.Image import Transform

    share = sign * strength / 9
    if name in ("color", "contrast", "brightness", "sharpness"):
        kind = {
            "color": ImageEnhance.Color,
            "contrast": ImageEnhance.Contrast,
            "brightness": ImageEnhance.Brightness,
            "sharpness": ImageEnhance.Sharpness,
        }[name]
        return kind(image).enhance(1 + 0.9 * share)
    if name in ("right", "down", "shear_down"):
        shift = int(share * image.width * 150 / 331)
        moved = {
            "right": (1, 0, shift, 0, 1, 0),
            "down": (1, 0, 0, 0, 1, shift),
            "shear_down": (1, 0, 0, 0.3 * share, 1, 0),
        }
        return image.transform(image.size, Transform.AFFINE, moved[name])
    if name == "rotate":
        return image.rotate(30 * share)
    if name == "posterize":
        return ImageOps.posterize(image, 8 - round(4 * strength / 9))
    if name == "solarize":
        return ImageOps.solarize(image, round(255 - 255 * strength / 9))
    if name == "invert":
        return ImageOps.invert(image)
    return ImageOps.equalize(image) if name == "equalize" else ImageOps.autocontrast(image)


def jpeg(x: Tensor) -> Tensor:
    """x: (n, c, h, w) uint8, each written as JPEG at PIL's own quality (75) and read again."""
    import PIL.Image

    out = []
    for tensor in x:
        written = io.BytesIO()
        as_image(tensor).save(written, "JPEG")
        out.append(as_tensor(PIL.Image.open(written)))
    return torch.stack(out) if out else x


def as_image(tensor: Tensor) -> Image:
    """(c, h, w) uint8 with one or three channels as a PIL image."""
    import PIL.Image

    return PIL.Image.fromarray(tensor[0].numpy() if len(tensor) == 1 else tensor.permute(1, 2, 0).numpy())


def as_tensor(image: Image) -> Tensor:
    """The reverse."""
    values = torch.from_numpy(np.array(image))
    return values[None] if values.ndim == 2 else values.permute(2, 0, 1).contiguous()
