"""A process that trains on demand: a number of steps a line on standard input, an answer a line on standard output.

    python -m benchmarks.steps library 0      the real training loop of a study's CNN replica, seed 0
    python -m benchmarks.steps group:8 0      the same, eight replicas in lock-step, a step of one of them at a time
    python -m benchmarks.steps loader 0       the same net fed by Dataset and DataLoader(num_workers=2)

Threads and the allocator's policy come from the environment, which only a fresh process can have.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from benchmarks.measure import difference
from benchmarks.pure import without_kernels
from saccade import models
from saccade.data.fetch import sources
from saccade.data.images import Images, Pasted, Source
from saccade.spec import Recipe, Run, Settings
from saccade.subjects.subject import standardise
from saccade.training.events import Step
from saccade.training.lockstep import train_together
from saccade.training.loop import train

BATCH = 16
DATA = "digits_on_backgrounds"


def arguments() -> Settings:
    """The study's own sets where they are in the cache, else drawn ones."""
    if all(sources.status(name).state == "ready" for name in ("mnist", "cifar10")):
        return Settings()
    return Settings(digits="procedural_digits", scenes="procedural_textures")


class Composed(Dataset[tuple[Tensor, Tensor]]):
    """One sample at a time: read, scale, pad, compose, standardise."""

    def __init__(self, images: Pasted) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        kept = self.images
        ink = F.pad(kept.ink[i].float() / 255, (2, 2, 2, 2))[None]
        scene = kept.scenes[kept.which[i]].float() / 255
        picture = ink + (1 - ink) * scene
        mean, std = torch.tensor(kept.mean)[:, None, None], torch.tensor(kept.std)[:, None, None]
        return (picture - mean) / std, kept.y[i]


def pictures(seed: int) -> Pasted:
    images: Images = Source(DATA, arguments(), seed)("train")
    assert isinstance(images, Pasted)
    return images


def run_of(seed: int) -> Run:
    return Run("lenet", DATA, Recipe(images=10**9, batch=BATCH, watch=0), seed, data_args=arguments())


def library(seed: int) -> Iterator[float]:
    for event in train(run_of(seed)):
        if isinstance(event, Step):
            yield event.loss.item()


def group(first: int, size: int) -> Iterator[float]:
    runs = [run_of(size * first + i) for i in range(size)]
    for _, event in train_together(runs, "cpu", [None] * len(runs)):
        if isinstance(event, Step):
            yield event.loss.item()


def loader(seed: int) -> Iterator[float]:
    data = DataLoader(
        Composed(pictures(seed)), BATCH, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True
    )
    model = models.build("lenet", seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        for x, y in data:
            optimizer.zero_grad()
            with without_kernels():  # the net as torch's own modules make it
                loss = F.cross_entropy(model(x), y)
                torch.autograd.backward(loss)
            optimizer.step()
            yield loss.item()


def error(seed: int) -> float:
    """How far a batch and its gradients are apart between the two routes."""
    images, index = pictures(seed), torch.arange(BATCH)
    samples = [Composed(images)[i] for i in range(BATCH)]
    batches = (
        (standardise(images.batch(index), images.mean, images.std), images.y[index]),
        (torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])),
    )
    facts = []
    for side, (x, y) in enumerate(batches):
        model = models.build("lenet", seed=seed)
        with contextlib.ExitStack() as path:
            if side:
                path.enter_context(without_kernels())
            torch.autograd.backward(F.cross_entropy(model(x), y))
        facts.append([x, *(p.grad for p in model.parameters() if p.grad is not None)])
    return difference(*facts)


KINDS: dict[str, Callable[..., Iterator[float]]] = {"library": library, "group": group, "loader": loader}


def main() -> None:
    kind, seed = sys.argv[1], int(sys.argv[2])
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    name, _, size = kind.partition(":")
    losses = KINDS[name](seed, *([int(size)] if size else []))
    for line in sys.stdin:
        if line.strip() == "error":
            answer = {"error": error(seed), "data": list(arguments().values()) or ["mnist", "cifar10"]}
        else:
            worked = time.process_time()
            for _ in range(int(line)):
                loss = next(losses)
            answer = {"cpu": time.process_time() - worked, "loss": loss}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
