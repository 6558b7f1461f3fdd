"""Any torch model as the thing that probes ask: images in [0, 1] in, logits out."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.data.images import Images, Triple
from saccade.spec import SaccadeError

CHUNK = 256  # images per forward pass; larger gains nothing on a CPU and costs memory


def standardise(x: Tensor, mean: Triple, std: Triple) -> Tensor:
    """(x - mean) / std by channel."""
    m, s = (_by_channel(tuple(v), x.dtype, x.device) for v in (mean, std))
    return (x - m).div_(s)


@functools.lru_cache(maxsize=32)
def _by_channel(values: Triple, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # kept for calls that may need gradients
        return torch.tensor(values, dtype=dtype, device=device)[:, None, None]


@dataclass(frozen=True)
class Subject:
    """A model with the standardisation it was trained with.

    With `classes`, the number that the data have, every answer is checked before a number is made of it. `size` and
    `channels` are what the model takes, where the data have another size (resized) or number of channels (averaged, or
    one repeated). `kept`, when it is given, holds the answers to images and their variants that were asked already.
    """

    model: nn.Module
    mean: Triple
    std: Triple
    device: str = "cpu"
    classes: int = 0
    size: int = 0
    channels: int = 0
    kept: dict[Any, Tensor] | None = field(default=None, compare=False, repr=False)  # answers that probes share

    def prepared(self, x: Tensor) -> Tensor:
        """x: (n, c, h, w), float in [0, 1] -> what the model takes: standardised, its size, channels and precision."""
        x = standardise(x, self.mean, self.std)
        if self.size and x.shape[-2:] != (self.size, self.size):
            x = F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False, antialias=True)
        if self.channels == 1:
            x = x.mean(1, keepdim=True)
        elif self.channels and x.shape[1] == 1:
            x = x.expand(-1, self.channels, -1, -1)
        return x.to(precision(self.model))

    def logits(self, x: Tensor) -> Tensor:
        """x: (n, c, h, w), float in [0, 1]. The modes of the model and of all its parts are put back afterwards."""
        with evaluating(self.model), torch.no_grad():
            return self.checked(self.model(self.prepared(x)), len(x))

    def checked(self, answer: Tensor, n: int) -> Tensor:
        """The answer to n images, in at least single precision."""
        if self.classes:
            check_answer(answer, n, self.classes)
        return answer.float() if answer.dtype in (torch.float16, torch.bfloat16) else answer

    def all_logits(self, images: Images) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels of a whole split, chunk by chunk."""
        for start in range(0, len(images), CHUNK):
            index = torch.arange(start, min(start + CHUNK, len(images)), device=images.y.device)
            yield self.logits(images.batch(index)), images.y[index]

    def correct(self, images: Images) -> np.ndarray:
        """One truth value per image."""
        return np.concatenate([(z.argmax(1) == y).cpu().numpy() for z, y in self.all_logits(images)])


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards each part is in its own mode again, also where a user froze some of them."""
    training = [part for part in model.modules() if part.training]
    if training:  # asked for every few images, and for a small model the switch takes as long as a layer
        with contextlib.suppress(NotImplementedError):  # an exported program has the mode that it was exported in
            model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Compiled parts run as they are written; torch before 2.6 has no such switch, and then shows what it can."""
    stance = getattr(torch.compiler, "set_stance", None)
    with warnings.catch_warnings(), stance("force_eager") if stance else contextlib.nullcontext():
        # Hooks of torch as a whole also see the wrapper around a compiled module, which has no name and does no harm.
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        yield


def precision(model: nn.Module) -> torch.dtype:
    """Of the model's first weights."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def check_answer(answer: object, n: int, classes: int) -> None:
    """Refuse what is no score for each of n images and each class: no number may be made of it."""
    if not isinstance(answer, Tensor):
        raise SaccadeError(
            f"the model answers with {type(answer).__name__}, and a tensor (images, classes) is needed; wrap it in a "
            "module that returns its logits."
        )
    if answer.shape != (n, classes):
        raise SaccadeError(
            f"the model answers {n} images with a tensor of shape {tuple(answer.shape)}, not ({n}, {classes}): one row "
            f"per image and one score for each of the {classes} classes of the data are needed."
        )
    wrong = int((~torch.isfinite(answer)).any(1).sum())
    if wrong:
        raise SaccadeError(
            f"the model's scores are not finite (NaN or infinite) for {wrong} of {n} images, of which no number can be "
            "made; check its weights and its normalisation."
        )
