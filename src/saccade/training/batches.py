"""Which images a step learns from: an order per epoch from its own random stream, so that resuming needs no state."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from saccade import rng
from saccade.data.images import Images
from saccade.subjects.subject import standardise


@dataclass
class Batches:
    """`part` is this process's share of every batch; the whole of it unless several train one run."""

    images: Images
    size: int
    seed: int
    part: slice = field(default_factory=lambda: slice(None))
    _epoch: int = -1
    _order: Tensor | None = None

    @property
    def per_epoch(self) -> int:
        return len(self.images) // self.size

    def draw(self, step: int) -> tuple[Tensor, Tensor]:
        """Augmented and standardised images with their labels."""
        epoch, i = divmod(step, self.per_epoch)
        if epoch != self._epoch or self._order is None:
            self._epoch, self._order = epoch, order_of(self.images, self.seed, epoch)
        index = self._order[i * self.size : (i + 1) * self.size]
        x = self.images.batch(index, rng.stream(self.seed, "augment", step))[self.part]
        return standardise(x, self.images.mean, self.images.std), self.images.y.index_select(0, index)[self.part]


def order_of(images: Images, seed: int, epoch: int) -> Tensor:
    return torch.randperm(len(images), generator=rng.stream(seed, "order", epoch)).to(images.y.device)
