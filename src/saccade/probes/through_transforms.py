"""Does training accuracy look too low when measured through the augmentation?   Lehnhausen et al. 2025, Part 1b"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from saccade import rng
from saccade.arguments import AnyCount, Chance, Count
from saccade.data.images import Images, Source
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import CHUNK, Subject


@probe(version=1)
def through_transforms(
    subject: Subject,
    data: Source,
    *,
    splits: Sequence[str] = (),
    n: Count = 1000,
    train: AnyCount = 1000,
    label_smoothing: Chance = 0.0,
) -> Iterator[Row]:
    """Accuracy and loss of n images of each split, and of some training images through both transforms.

    `training` is the random transform that the model was trained with, seeded; `test` is none. The images are the same.
    """
    for split in splits or (data.held_out(),):
        yield from _rows(subject, data(split).head(n), label_smoothing, split, "test")
    if train:
        images = data("train").head(train)
        yield from _rows(subject, images, label_smoothing, "train", "test")
        generator = rng.stream(data.seed, "probe", "augment")
        yield from _rows(subject, images, label_smoothing, "train", "training", generator)


def _rows(
    subject: Subject,
    images: Images,
    smoothing: float,
    split: str,
    transform: str,
    generator: torch.Generator | None = None,
) -> Iterator[Row]:
    right, losses = [], []
    for start in range(0, len(images), CHUNK):
        index = torch.arange(start, min(start + CHUNK, len(images)), device=images.y.device)
        logits, y = subject.logits(images.batch(index, generator)), images.y[index]
        right.append((logits.argmax(1) == y).cpu().numpy())
        losses.append(F.cross_entropy(logits, y, label_smoothing=smoothing, reduction="none").double().cpu().numpy())
    yield Row.mean("accuracy", np.concatenate(right), split=split, transform=transform)
    yield Row("loss", float(np.concatenate(losses).mean()), len(images), Settings(split=split, transform=transform))
