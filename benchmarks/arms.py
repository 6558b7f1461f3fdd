"""Every arm of every study at `large`: its share of the machine's matrix-product rate, its core-hours, and the same arm
as a plain module with a `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from benchmarks import load
from benchmarks.measure import Action, alternate, flops, gemm_speed, ratios
from benchmarks.pure import without_kernels
from saccade import models, registry, rng
from saccade.data.images import Images, Source
from saccade.spec import Run, Scale
from saccade.subjects.subject import standardise
from saccade.training.optimizer import make_optimizer

SCALE = "large"
TRAINING = 3  # a step's work in forward passes: the pass itself, and two products of its size behind it
ROUNDS, SECONDS = 3, 0.3


def measured(only: str = "") -> Iterator[dict[str, Any]]:
    """One row per arm, the first of its runs standing for all of them."""
    yardstick = gemm_speed()
    for study, arm, run, images in planned():
        if only in f"{study} {arm}":
            with load.watched() as beside:
                row = _measure(run, yardstick)
            yield {"study": study, "arm": arm, "images": images, **row, **beside}


def planned() -> Iterator[tuple[str, str, Run, int]]:
    """Study, arm, a run, and the training images that all runs of the arm see together, at most."""
    for name in registry.built_in("study"):
        study = registry.study(name)
        tasks = [t for t in study.tasks(Scale(SCALE), study.choose({})) if not t.run.is_fact]
        for arm in dict.fromkeys(t.arm for t in tasks):
            runs = [t.run for t in tasks if t.arm == arm]
            yield name, arm, max(runs, key=lambda run: run.recipe.images), sum(run.recipe.images for run in runs)


def _measure(run: Run, yardstick: float) -> dict[str, Any]:
    images = Source(run.data, run.data_args, run.seed, "cpu")("train")
    batch = min(run.recipe.batch, len(images))
    mine = ours(run, images, batch)
    with without_kernels():  # a kernel's work is not seen by torch's counter
        work = TRAINING * flops(forward(run, images, batch)) / batch
    times = ratios(*alternate(mine, _plain(run, images, batch), rounds=ROUNDS, seconds=SECONDS), "cpu")
    seconds = times["ours_seconds"]["cpu"] / batch
    return {
        "batch": batch,
        "flops": work,
        "seconds": seconds,
        "share": work / seconds / yardstick,
        "ratio": times["ratio"],
        "peer_seconds": times["peer_seconds"]["cpu"] / batch,
    }


def _model(run: Run, images: Images) -> nn.Module:
    return models.build(run.model, images.classes, seed=run.seed, **run.model_args)


def forward(run: Run, images: Images, batch: int) -> Action:
    model = _model(run, images)
    x = standardise(images.batch(torch.arange(batch)), images.mean, images.std)
    return lambda: model(x)


def ours(run: Run, images: Images, batch: int) -> Action:
    learn = _learner(run, _model(run, images))
    order, at = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)), 0

    def step() -> None:
        nonlocal at
        if at + batch > len(order):
            at = 0
        index = order[at : at + batch]
        at += batch
        x = images.batch(index, rng.stream(run.seed, "augment", at))
        learn(standardise(x, images.mean, images.std), images.y[index])

    return step


class _OneByOne(Dataset[tuple[Tensor, Tensor]]):
    """What one would write: an image at a time, made when it is asked for."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        x = self.images.batch(torch.tensor([i]), self.generator)
        return standardise(x, self.images.mean, self.images.std)[0], self.images.y[i]


def _plain(run: Run, images: Images, batch: int) -> Action:
    learn = _learner(run, _model(run, images))
    shuffle = torch.Generator().manual_seed(0)
    loader = DataLoader(_OneByOne(images), batch, shuffle=True, drop_last=True, generator=shuffle)
    batches = iter(loader)

    def step() -> None:
        nonlocal batches
        with without_kernels():
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            learn(x, y)

    return step


def _learner(run: Run, model: nn.Module) -> Any:
    optimizer = make_optimizer(run.recipe, model)

    def learn(x: Tensor, y: Tensor) -> None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()

    return learn


def totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Per study and for all: core-hours, the share weighted by them, and how many times longer plain modules take."""
    names = [*dict.fromkeys(r["study"] for r in rows), "all"]
    return {name: _total([r for r in rows if name in (r["study"], "all")]) for name in names}


def _total(rows: list[Mapping[str, Any]]) -> dict[str, float]:
    ours = [r["images"] * r["seconds"] for r in rows]
    plain = [r["images"] * r["peer_seconds"] for r in rows]
    shares = sum(t * r["share"] for t, r in zip(ours, rows, strict=True))
    return {"hours": sum(ours) / 3600, "share": shares / sum(ours), "ratio": sum(plain) / sum(ours)}
