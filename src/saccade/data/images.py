"""A split on one device: whole data sets as uint8 tensors, made into float batches on demand."""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from saccade import registry, rng
from saccade.data import pixels
from saccade.data.fetch import sources
from saccade.errors import in_words
from saccade.layers import kernels
from saccade.spec import SaccadeError, Settings

Triple = tuple[float, ...]
Grey = Literal["mnist", "fashion_mnist", "procedural_digits"]  # sets of 28 x 28
Colour = Literal["cifar10", "procedural_textures"]  # of 3 x 32 x 32
AnySet = Grey | Colour
LARGEST_INK = 256  # pixels on a side; the kernel keeps one ink on its stack
LONGEST = 2**62  # bytes of a set; the paste kernel counts these in 64 bits


@dataclass(frozen=True)
class Images(ABC):
    """Labelled images. `mean` and `std` say how this data wants to be standardised for a model."""

    y: Tensor
    classes: int
    mean: Triple
    std: Triple

    def __len__(self) -> int:
        return len(self.y)

    @abstractmethod
    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Float images in [0, 1]. With a generator, as in training: with augmentation, whose colours may leave it."""

    @abstractmethod
    def pick(self, index: Tensor) -> Self:
        """The same kind of split with only these images."""

    def head(self, n: int) -> Self:
        return self.pick(torch.arange(min(n, len(self)), device=self.y.device))

    def to(self, device: str) -> Self:
        moved = {
            f.name: getattr(self, f.name).to(device)
            for f in dataclasses.fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        return dataclasses.replace(self, **moved)


@dataclass(frozen=True)
class Plain(Images):
    """Images as they are: x is (n, c, h, w) uint8."""

    x: Tensor

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return pixels.floats(self.x, index)

    def pick(self, index: Tensor) -> Self:
        return dataclasses.replace(self, x=self.x.index_select(0, index), y=self.y[index])


@dataclass(frozen=True)
class Pasted(Images):
    """White ink over scenes, composed batch by batch: the parts are kept, not the products.

    `ink` (n, 28, 28) and `scenes` (m, 3, 32, 32) are uint8; image i shows ink i on scene which[i].
    `maps` (n, 2, 3) warps the ink alone. `redraw`, when given, holds for each image the scenes that training
    draws from every time it is shown. `jitter` is the training-time variation of the ink: degrees, pixels,
    share of scale. `colours` is that of the whole image: by how much contrast and channels vary.
    """

    ink: Tensor
    scenes: Tensor
    which: Tensor
    maps: Tensor | None = None
    redraw: Tensor | None = None
    jitter: Triple = ()
    blend: str = "opacity"
    placement: str = "pad"
    colours: float = 0.0

    def __post_init__(self) -> None:
        """The same demands with the kernel and without, so that both give the same or refuse the same."""
        ink, scenes = self.ink.shape, self.scenes.shape
        if len(ink) != 3 or len(scenes) != 4 or ink[1] != ink[2] or scenes[2] != scenes[3] or ink[1] > scenes[2]:
            raise SaccadeError(
                "ink must be square grey images (n, side, side), and scenes square images (n, channels, side, side) no "
                f"smaller than the ink, not {tuple(ink)} and {tuple(scenes)}; choose other sets for the two."
            )

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        x = self._composed(index, generator)
        if generator is None or not self.colours:
            return x
        return pixels.recolour(x, self.colours, generator)

    def _composed(self, index: Tensor, generator: torch.Generator | None) -> Tensor:
        which, maps = self.which.index_select(0, index), None if self.maps is None else self.maps[index]
        if generator is not None and self.redraw is not None:
            choices = self.redraw[index]
            drawn = torch.randint(choices.shape[1], (len(index),), generator=generator).to(index.device)
            which = choices.gather(1, drawn[:, None])[:, 0]
        if generator is not None and self.jitter:
            maps = self._jittered(len(index), generator).to(index.device)
        if maps is None and (made := self._pasted(index, which)) is not None:
            return made
        ink = self.opacity(index)
        if maps is not None:
            ink = pixels.warp(ink, maps)
        return pixels.compose(ink, pixels.floats(self.scenes, which), self.blend)

    def opacity(self, index: Tensor) -> Tensor:
        """The unmoved ink as (n, 1, size, size) in [0, 1]."""
        size = self.scenes.shape[-1]
        ink = pixels.floats(self.ink, index)[:, None]
        if self.placement == "resize":
            return torch.nn.functional.interpolate(ink, size=(size, size), mode="bilinear", align_corners=False)
        room = size - ink.shape[-1]
        return torch.nn.functional.pad(ink, (room // 2, room - room // 2) * 2)

    def _pasted(self, index: Tensor, which: Tensor) -> Tensor | None:
        """Unmoved ink over scenes by the C kernel, three to four times faster, the same bits; None where it cannot."""
        kernel, (inks, small, _), (places, channels, size, _) = kernels.paste(), self.ink.shape, self.scenes.shape
        if (
            kernel is None
            or index.device.type != "cpu"
            or (self.blend, self.placement) != ("opacity", "pad")
            or small > LARGEST_INK
            or not all(t.is_contiguous() and t.dtype == torch.uint8 for t in (self.ink, self.scenes))
        ):
            return None
        n, index, which = len(index), index.contiguous(), which.contiguous()
        out = torch.empty(n, channels, size, size)
        if kernel.paste(
            kernels.address(self.ink, (inks, small, small), torch.uint8, most=LONGEST),
            kernels.address(self.scenes, (places, channels, size, size), torch.uint8, most=LONGEST),
            kernels.address(index, (n,), torch.int64),
            kernels.address(which, (n,), torch.int64),
            kernels.address(out, (n, channels, size, size)),
            *(inks, places, n, small, size, channels),
        ):
            raise IndexError(f"an image is made of ink and scenes that are not there (of {inks} and {places})")
        return out

    def warped(self, maps: Tensor) -> Self:
        return dataclasses.replace(self, maps=maps.to(self.y.device))

    def pick(self, index: Tensor) -> Self:
        def of(t: Tensor | None) -> Tensor | None:
            return None if t is None else t[index]

        return dataclasses.replace(
            self,
            y=self.y[index],
            ink=self.ink[index],
            which=self.which[index],
            maps=of(self.maps),
            redraw=of(self.redraw),
        )

    def _jittered(self, n: int, generator: torch.Generator) -> Tensor:
        degrees, shift, share = self.jitter
        u = torch.rand(4, n, generator=generator) * 2 - 1
        moved = pixels.chain(pixels.rotation(degrees * u[0]), pixels.scaling(1 + share * u[1]))
        return pixels.chain(moved, pixels.translation(shift * u[2], shift * u[3], self.scenes.shape[-1]))


@dataclass(frozen=True)
class Source:
    """A data construction with its arguments bound: what training and probes ask for splits."""

    name: str
    args: Settings
    seed: int
    device: str = "cpu"

    def __call__(self, split: str) -> Images:
        return _split(self, split)

    @property
    def words(self) -> str:
        """As users call it: the set that photographs are of, or the construction."""
        return str(self.args["of"]) if self.name == "photos" and "of" in self.args else self.name

    def held_out(self, split: str = "") -> str:
        """The split to measure on: the one asked for, else `test`, else the one that is watched in training."""
        card = registry.cards("data").get(self.name)
        if split or card is None or "test" in (card.splits or ("test",)):
            return split or "test"
        return str(card.extra.get("watch", "test"))


@functools.lru_cache(maxsize=4)
def _split(source: Source, split: str) -> Images:
    """Kept, because training and every probe of a run ask for the same few splits."""
    try:
        images: Images = registry.find("data", source.name)(split, seed=source.seed, **source.args)
    except (SaccadeError, OSError):
        raise
    except Exception as error:  # several arguments that are each right and cannot be together
        raise SaccadeError(
            f"{source.name} cannot be made with {source.args or 'its defaults'}: {in_words(error)}."
        ) from error
    return images.to(source.device)


@functools.lru_cache(maxsize=16)
def tensors(name: str, split: str) -> tuple[Tensor, Tensor]:
    """A checked set as uint8 images and int64 labels; read once per process."""
    x, y = sources.load(name, split)
    return torch.from_numpy(x.copy()), torch.from_numpy(y.copy()).long()


def shuffled(n: int, seed: int, *names: str) -> Tensor:
    return torch.randperm(n, generator=rng.stream(seed, *names))
