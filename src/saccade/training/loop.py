"""The one training loop. It yields events and knows nothing of progress bars, stores or trackers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade import registry, rng
from saccade.data.images import Source
from saccade.spec import Outcome, Recipe, Run, SaccadeError
from saccade.subjects.build import build
from saccade.subjects.subject import Subject
from saccade.training import distributed
from saccade.training.batches import Batches
from saccade.training.distributed import ALONE, Group
from saccade.training.events import Done, Event, Milestone, Step
from saccade.training.optimizer import make_optimizer, set_learning_rate
from saccade.training.progress import WATCHED, Learned, Progress
from saccade.training.resume import pack_state, pack_weights, restore

Training = Generator[Event, Any, None]
# What is yielded in the place of `learn` where a driver takes the steps of several runs at once (lockstep.py): it is
# made of step, x, y, model, optimizer and recipe, and answered with a Learned. Nobody else needs it.
Elsewhere = Callable[..., Any]


def train(run: Run, device: str = "cpu", resume: bytes | None = None) -> Iterator[Event]:
    """Train one run, from the start or from a saved state. On a CPU both end with the same bits."""
    return start(run, device, resume, distributed.current())


def fit(
    model: nn.Module, data: Source, recipe: Recipe, resume: bytes | None = None, team: Group = ALONE
) -> Iterator[Event]:
    """Train a model that exists already; order and augmentation come from the data's seed."""
    return _loop(model, data, recipe, resume, team)


def start(
    run: Run, device: str, resume: bytes | None, team: Group = ALONE, elsewhere: Elsewhere | None = None
) -> Training:
    check_device(run.recipe, device)
    data = Source(run.data, run.data_args, run.seed, device)
    model = build(run, data("train")).to(device)
    return _loop(model, data, run.recipe, resume, team, elsewhere)


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, x: Tensor, y: Tensor) -> Learned:
    """Forward, loss, backward, optimiser step."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=recipe.precision == "mixed"):
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=recipe.label_smoothing)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.clip:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    return Learned(logits.detach(), loss.detach())


def _loop(
    model: nn.Module,
    data: Source,
    recipe: Recipe,
    resume: bytes | None,
    team: Group,
    elsewhere: Elsewhere | None = None,
) -> Training:
    """Draw the batch, learn from it (forward, loss, backward, optimiser step), yield.

    The processes of a team go through this together, each with its share of every batch.
    """
    images = data("train")
    size = min(recipe.batch, len(images))
    batches = Batches(images, size, data.seed, team.part(size))
    progress = Progress(recipe, size, batches.per_epoch, data.device, team)
    split = registry.card("data", data.name).extra.get("watch", "test")
    held_out, subject = data(split).head(WATCHED), Subject(model, images.mean, images.std, data.device)
    wrapped, optimizer = team.wrap(model.train()), make_optimizer(recipe, model)
    if resume is not None:
        progress.restore(restore(resume, model, optimizer))

    seed_dropout = _seeder(data.device)
    global_state = torch.get_rng_state()  # dropout draws from it; it is seeded step by step and put back
    try:
        for step in range(progress.step, recipe.steps):
            team.agree()  # to go on
            seed_dropout(rng.seed_of(data.seed, "noise", step, *([team.rank] if team.rank else ())))
            set_learning_rate(optimizer, recipe, step)
            x, y = batches.draw(step)
            if elsewhere is None:
                learned = learn(wrapped, optimizer, recipe, x, y)
            else:
                learned = yield elsewhere(step, x, y, model, optimizer, recipe)
            progress.count(learned, y)
            loss = team.mean(learned.loss)
            if progress.diverged(loss):
                break
            yield from progress.watch(subject, held_out, split)
            if progress.milestone:
                yield Milestone(progress.milestone, functools.partial(pack_weights, model))
            if progress.over(len(images)):
                break
            state = functools.partial(pack_state, progress.meta(), model, optimizer)
            yield Step(progress.step, recipe.steps, loss, state)
    except GeneratorExit:
        team.leave()
        raise
    finally:
        torch.set_rng_state(global_state)
    outcome, reason = progress.outcome, progress.reason
    if outcome is Outcome.FINISHED and not all(bool(torch.isfinite(p).all()) for p in model.parameters()):
        outcome, reason = Outcome.DIVERGED, "a weight was not finite after the last step"
    yield Done(outcome, reason, progress.step, progress.seconds, progress.curve, model)


def _seeder(device: str) -> Callable[[int], object]:
    """Seeds what dropout draws from. On a CPU the generator itself: torch.manual_seed takes a millisecond more."""
    return torch.default_generator.manual_seed if device == "cpu" else torch.manual_seed


def check_device(recipe: Recipe, device: str) -> None:
    if recipe.precision == "mixed" and device == "cpu":
        raise SaccadeError("precision=mixed needs a GPU; on the cpu set precision=float32 (bf16 is slower there).")
