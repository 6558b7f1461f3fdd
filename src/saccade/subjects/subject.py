"""Any torch model as the thing that probes ask: pictures in [0, 1] in, logits out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from saccade.data.images import Images, Triple

CHUNK = 256  # pictures a forward pass; larger gains nothing on a CPU and costs memory


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
    """A model with the standardisation it was trained with."""

    model: nn.Module
    mean: Triple
    std: Triple
    device: str = "cpu"

    def logits(self, x: Tensor) -> Tensor:
        """x: (n, c, h, w), float in [0, 1]. The model's training mode is put back afterwards."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                return self.model(standardise(x, self.mean, self.std))
        finally:
            self.model.train(training)

    def all_logits(self, images: Images) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels of a whole split, chunk by chunk."""
        for start in range(0, len(images), CHUNK):
            index = torch.arange(start, min(start + CHUNK, len(images)), device=images.y.device)
            yield self.logits(images.batch(index)), images.y[index]

    def correct(self, images: Images) -> np.ndarray:
        """One truth value a picture."""
        return np.concatenate([(z.argmax(1) == y).cpu().numpy() for z, y in self.all_logits(images)])
