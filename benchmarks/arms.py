"""Every arm of every study at `large`: its share of the machine's matrix-product rate, its core-hours, and the same arm
as a plain module with a `DataLoader`. One thread; whole machines are in `machine.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from benchmarks import load
from benchmarks import plain as plainly
from benchmarks.measure import Action, alternate, difference, flops, gemm_speed, ratios
from benchmarks.pure import without_kernels
from saccade import models, registry, rng
from saccade.data.images import Images, Source
from saccade.spec import Run, Scale
from saccade.subjects.subject import standardise
from saccade.training.optimizer import make_optimizer

SCALE = "large"
TRAINING = 3  # a step's work in forward passes: the pass itself, and two products of its size behind it
ROUNDS, SECONDS = 3, 0.3
TOLERANCE = 1e-9  # float64, in units of the largest entry


def measured(only: str = "") -> Iterator[dict[str, Any]]:
    """One row per arm, the first of its runs standing for all of them."""
    yardstick = gemm_speed()
    seen: dict[Any, dict[str, Any]] = {}
    for study, arm, run, images in planned():
        if only not in f"{study} {arm}":
            continue
        if (key := kind(run)) not in seen:
            with load.watched() as beside:
                row = _measure(run, yardstick)
            seen[key] = row | beside
        yield {"study": study, "arm": arm, "images": images, **seen[key]}


def planned() -> Iterator[tuple[str, str, Run, int]]:
    """Study, arm, a run, and the training images that all runs of the arm see together, at most."""
    for name in registry.built_in("study"):
        study = registry.study(name)
        tasks = [t for t in study.tasks(Scale(SCALE), study.choose({})) if not t.run.is_fact]
        for arm in dict.fromkeys(t.arm for t in tasks):
            runs = [t.run for t in tasks if t.arm == arm]
            yield name, arm, max(runs, key=lambda run: run.recipe.images), sum(run.recipe.images for run in runs)


def kind(run: Run) -> tuple[Any, ...]:
    """What a step's time depends on: arms that agree in it are measured once."""
    return run.model, run.model_args, run.data, run.recipe.batch, run.recipe.optimizer


def _measure(run: Run, yardstick: float) -> dict[str, Any]:
    images = Source(run.data, run.data_args, run.seed, "cpu")("train")
    batch = min(run.recipe.batch, len(images))
    with without_kernels():  # a kernel's work is not seen by torch's counter
        done, dense = (TRAINING * flops(forward(run, images, 2, made)) / 2 for made in (_same, plainly.plain))
    row = {"batch": batch, "flops": dense, "computed": done, "error": error(run, images)}
    row["is_equal"] = row["error"] <= TOLERANCE
    if not row["is_equal"]:
        return row
    times = ratios(
        *alternate(ours(run, images, batch), plain(run, images, batch), rounds=ROUNDS, seconds=SECONDS), "cpu"
    )
    seconds = times["ours_seconds"]["cpu"] / batch
    return {
        **row,
        "seconds": seconds,
        "share": dense / seconds / yardstick,
        "share_computed": done / seconds / yardstick,
        "ratio": times["ratio"],
        "peer_seconds": times["peer_seconds"]["cpu"] / batch,
    }


def _same(model: nn.Module) -> nn.Module:
    return model


def error(run: Run, images: Images) -> float:
    """How far logits and gradients are apart between a model and its plain form, in float64."""
    x = standardise(images.batch(torch.arange(3)), images.mean, images.std).double()
    found = []
    with without_kernels():
        for made in (_same, plainly.plain):
            model, seen = made(_model(run, images)).double().eval(), x.clone().requires_grad_()
            logits = model(seen)
            weights = [p for p in model.parameters() if p.requires_grad]
            given, *back = torch.autograd.grad(logits.square().sum(), [seen, *weights], allow_unused=True)
            found.append((logits, given, back))
    if all(given is not None for _, given, _ in found):  # passes through every layer, however its weights are stored
        return difference(*([logits, given] for logits, given, _ in found))
    return difference(*([logits, *back] for logits, _, back in found))


def _model(run: Run, images: Images) -> nn.Module:
    return models.build(run.model, images.classes, seed=run.seed, **run.model_args)


def forward(run: Run, images: Images, batch: int, made: Callable[[nn.Module], nn.Module] = _same) -> Action:
    model = made(_model(run, images))
    x = standardise(images.batch(torch.arange(batch)), images.mean, images.std)
    return lambda: model(x)


def ours(run: Run, images: Images, batch: int) -> Action:
    learn = _learner(model := _model(run, images), make_optimizer(run.recipe, model))
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


def plain(run: Run, images: Images, batch: int, workers: int = 0) -> Action:
    """The same step as one would write it: plain modules, torch's own optimiser, one image at a time."""
    learn = _learner(model := plainly.plain(_model(run, images)), plainly.optimizer(run.recipe, model))
    shuffle = torch.Generator().manual_seed(0)
    loader = DataLoader(
        _OneByOne(images),
        batch,
        shuffle=True,
        drop_last=True,
        generator=shuffle,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    batches = _for_ever(loader)

    def step() -> None:
        with without_kernels():
            learn(*next(batches))

    return step


def _for_ever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _learner(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor, Tensor], None]:
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
    rows = [r for r in rows if "seconds" in r]
    ours = [r["images"] * r["seconds"] for r in rows]
    plain = [r["images"] * r["peer_seconds"] for r in rows]
    shares = {
        name: sum(t * r.get(name, r["share"]) for t, r in zip(ours, rows, strict=True)) / sum(ours)
        for name in ("share", "share_computed")
    }
    return {"hours": sum(ours) / 3600, **shares, "ratio": sum(plain) / sum(ours)}
