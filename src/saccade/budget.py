"""What a run costs: parameters, and time measured on this machine with a few real steps."""

from __future__ import annotations

import time

import torch
from torch.nn import functional as F

from saccade import models, rng
from saccade.data.images import Source
from saccade.spec import Run
from saccade.subject import Subject, standardise
from saccade.training import make_optimizer

ENOUGH = 0.6  # seconds of steps to time


def cost(run: Run, device: str = "cpu") -> dict[str, float]:
    """Seconds a training step and a pictured answered, from the run's own model, data and batch."""
    images = Source(run.data, run.data_args, run.seed, device)("train")
    model = models.build(run.model, images.classes, seed=run.seed, **run.model_args).to(device)
    optimizer = make_optimizer(run.recipe, model)
    index = torch.arange(min(run.recipe.batch, len(images)), device=images.y.device)

    def step() -> None:
        x = images.batch(index, rng.stream(run.seed, "augment", 0))
        loss = F.cross_entropy(model(standardise(x, images.mean, images.std)), images.y[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()

    subject = Subject(model, images.mean, images.std, device)
    some = images.head(64)
    return {"step_seconds": _time(step), "answer_seconds": _time(lambda: subject.correct(some)) / len(some),
            "parameters": models.parameters(model)}


def _time(action: object) -> float:
    assert callable(action)
    action()  # the first call pays for set-up
    began, n = time.perf_counter(), 0
    while time.perf_counter() - began < ENOUGH:
        action()
        n += 1
    return (time.perf_counter() - began) / n
