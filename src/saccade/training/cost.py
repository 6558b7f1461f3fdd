"""What a run costs: parameters, and time measured on this machine with a few real steps.

A step of a large model takes longer than a plan may. Its operations are counted on the meta device instead, where
nothing is computed, and valued at what multiplying and moving numbers takes here.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from saccade import models, rng
from saccade.data.images import Source
from saccade.spec import Run
from saccade.subjects.build import build
from saccade.subjects.subject import Subject, standardise
from saccade.training.loop import check_device
from saccade.training.optimizer import make_optimizer

CONTEXT = 600 * 2**20  # bytes that a process takes of a GPU before its first tensor, about
LARGE = 2e10  # operations of a training step that are counted rather than timed: about a second of a core
ENOUGH = 0.2  # seconds to time: a study has dozens of models, and the answer is only for a plan


def cost(run: Run, device: str = "cpu") -> dict[str, float]:
    """Seconds of a step (a fixed part and a part per image) and of an answer for one image, of this run's model.

    Fitted through the run's batch and a quarter of it, so that one measurement serves every batch of this model.
    """
    check_device(run.recipe, device)
    images = Source(run.data, run.data_args, run.seed, device)("train")
    if device == "cpu":
        shape = tuple(images.batch(torch.arange(1)).shape[1:])
        counted = count(run.model, run.model_args, images.classes, shape)
        if counted is not None and BACKWARD * counted.operations * run.recipe.batch > LARGE:
            return _estimate(counted, run.recipe.batch)
    model = build(run, images).to(device)
    optimizer = make_optimizer(run.recipe, model)

    def step(n: int) -> None:
        index = torch.arange(n, device=images.y.device)
        x = images.batch(index, rng.stream(run.seed, "augment", 0))
        loss = F.cross_entropy(model(standardise(x, images.mean, images.std)), images.y[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()

    batch = min(run.recipe.batch, len(images))
    few = max(1, batch // 4)
    fixed, each = line(few, _time(lambda: step(few), device), batch, _time(lambda: step(batch), device))
    subject = Subject(model, images.mean, images.std, device)
    some = images.head(64)
    measured = {
        "step_seconds": fixed,
        "image_seconds": each,
        "parameters": models.parameters(model),
        "answer_seconds": _time(lambda: subject.correct(some), device) / len(some),
        "resident": resident(),
    }
    if device.startswith("cuda"):
        measured["memory"] = torch.cuda.max_memory_reserved(device) + CONTEXT
        measured["device_memory"] = torch.cuda.get_device_properties(device).total_memory
    return measured


TRAFFIC = 3  # of a number that a step writes over one in a long sum: short operations move more than they compute
BACKWARD = 3  # a training step over a forward pass: the backward pass multiplies twice as much


@dataclass(frozen=True)
class Counted:
    """Of one image's forward pass: multiplications and additions, and numbers written."""

    operations: float
    written: float
    parameters: int


class _Written(TorchDispatchMode):
    """Counts the numbers that operations write; views write none."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.numbers += sum(t.numel() for t in (out if isinstance(out, tuple) else (out,)) if torch.is_tensor(t))
        return out


@functools.lru_cache(maxsize=256)
def count(model: str, args: Mapping[str, Any], classes: int, shape: tuple[int, ...]) -> Counted | None:
    """None for a model that does not run without numbers; it is timed."""
    try:
        with torch.device("meta"), torch.no_grad():
            built: nn.Module = models.build(model, classes, **args).train()
            with FlopCounterMode(display=False) as flops, _Written() as written:
                built(torch.empty(2, *shape))  # two: batch normalisation refuses one
    except Exception:
        return None
    return Counted(flops.get_total_flops() / 2, written.numbers / 2, models.parameters(built))


@functools.cache
def _speeds() -> tuple[float, float]:
    """Seconds per operation of a product of matrices, and per number that a sum writes, on one core.

    Against steps of eight built-in models, from SAN to ViT, what they make was 0.5 to 1.5 times the time of a step.
    """
    a, b = torch.rand(2, 512, 512), torch.rand(2, 2**21)
    return _time(lambda: a[0] @ a[1]) / (2 * 512**3), _time(lambda: b[0] + b[1]) / b.shape[1]


def _estimate(counted: Counted, batch: int) -> dict[str, float]:
    operation, number = _speeds()
    forward = counted.operations * operation + counted.written * TRAFFIC * number
    return {
        "step_seconds": counted.parameters * 4 * number,  # the optimiser's
        "image_seconds": BACKWARD * forward,
        "parameters": counted.parameters,
        "answer_seconds": forward,
        "resident": resident() + 16.0 * counted.parameters + 4.0 * counted.written * batch,
    }


def resident() -> float:
    """Bytes of main memory that this process held at its peak. After several models: what the largest one took."""
    try:
        import resource
    except ImportError:  # Windows: not known
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


def line(few: int, t_few: float, many: int, t_many: float) -> tuple[float, float]:
    """The straight line of time over images through two measurements, without a negative part."""
    slope = (t_many - t_few) / (many - few) if many > few else t_many / many
    slope = min(max(slope, 0.0), t_many / many)  # noise must not make a fixed part below zero
    return t_many - slope * many, slope


def _time(action: Callable[[], object], device: str = "cpu") -> float:
    """Seconds of one call. On a processor its own: a plan must not depend on what else runs while it is made."""
    action()  # the first call pays for set-up
    clock = time.process_time if device == "cpu" else time.perf_counter
    end, began, n = time.perf_counter() + ENOUGH, clock(), 0
    while n == 0 or time.perf_counter() < end:
        action()
        n += 1
    return (clock() - began) / n
