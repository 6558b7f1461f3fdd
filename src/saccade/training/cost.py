"""What a run costs: parameters, and time measured on this machine with a few real steps."""

from __future__ import annotations

import sys
import time

import torch
from torch.nn import functional as F

from saccade import models, rng
from saccade.data.images import Source
from saccade.spec import Run
from saccade.subjects.subject import Subject, standardise
from saccade.training.loop import check_device
from saccade.training.optimizer import make_optimizer

CONTEXT = 600 * 2**20  # bytes that a process takes of a GPU before its first tensor, about
ENOUGH = 0.2  # seconds to time: a study has dozens of models, and the answer is only for a plan


def cost(run: Run, device: str = "cpu") -> dict[str, float]:
    """Seconds of a step (a fixed part and a part per image) and of an answer for one image, of this run's model.

    Fitted through the run's batch and a quarter of it, so that one measurement serves every batch of this model.
    """
    check_device(run.recipe, device)
    images = Source(run.data, run.data_args, run.seed, device)("train")
    model = models.build(run.model, images.classes, seed=run.seed, **run.model_args).to(device)
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
    fixed, each = line(few, _time(lambda: step(few)), batch, _time(lambda: step(batch)))
    subject = Subject(model, images.mean, images.std, device)
    some = images.head(64)
    measured = {
        "step_seconds": fixed,
        "image_seconds": each,
        "parameters": models.parameters(model),
        "answer_seconds": _time(lambda: subject.correct(some)) / len(some),
        "resident": resident(),
    }
    if device.startswith("cuda"):
        measured["memory"] = torch.cuda.max_memory_reserved(device) + CONTEXT
        measured["device_memory"] = torch.cuda.get_device_properties(device).total_memory
    return measured


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


def _time(action: object) -> float:
    assert callable(action)
    action()  # the first call pays for set-up
    began, n = time.perf_counter(), 0
    while time.perf_counter() - began < ENOUGH:
        action()
        n += 1
    return (time.perf_counter() - began) / n
