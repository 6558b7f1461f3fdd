"""The one training loop. It yields events and knows nothing of progress bars, stores or trackers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade import registry, rng
from saccade.data.images import Source
from saccade.spec import Outcome, Recipe, Run, SaccadeError
from saccade.subjects.build import build
from saccade.subjects.subject import Subject
from saccade.training import distributed, lockstep
from saccade.training.batches import Batches
from saccade.training.distributed import ALONE, Group
from saccade.training.events import Done, Event, Milestone, Step
from saccade.training.lockstep import Ask, Asking
from saccade.training.optimizer import make_optimizer, set_learning_rate
from saccade.training.progress import WATCHED, Progress
from saccade.training.resume import pack_state, pack_weights, restore


def train(run: Run, device: str = "cpu", resume: bytes | None = None) -> Iterator[Event]:
    """Train one run, from the start or from a saved state. On a CPU both end with the same bits."""
    return lockstep.alone(_start(run, device, resume, distributed.current()))


def train_together(
    runs: Sequence[Run], device: str, resume: Sequence[bytes | None]
) -> Iterator[tuple[int, Event | lockstep.Grouped]]:
    """Train several runs of one model in lock-step; each event comes with the number of its run."""
    return lockstep.together([_start(run, device, state) for run, state in zip(runs, resume, strict=True)])


def fit(
    model: nn.Module, data: Source, recipe: Recipe, resume: bytes | None = None, team: Group = ALONE
) -> Iterator[Event]:
    """Train a model that exists already; order and augmentation come from the data's seed."""
    return lockstep.alone(_loop(model, data, recipe, resume, team))


def _start(run: Run, device: str, resume: bytes | None, team: Group = ALONE) -> Asking[Event]:
    check_device(run.recipe, device)
    data = Source(run.data, run.data_args, run.seed, device)
    model = build(run, data("train")).to(device)
    return _loop(model, data, run.recipe, resume, team)


def _loop(model: nn.Module, data: Source, recipe: Recipe, resume: bytes | None, team: Group) -> Asking[Event]:
    """Draw the batch, forward, loss, backward, optimiser step, yield.

    The step itself is asked for (`Ask`), so that a driver may do those of several runs at once; alone, it is `learn`.
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

            def learn(x: Tensor = x, y: Tensor = y) -> tuple[Tensor, Tensor]:
                with torch.autocast(x.device.type, torch.bfloat16, enabled=recipe.precision == "mixed"):
                    logits = wrapped(x)
                    loss = F.cross_entropy(logits, y, label_smoothing=recipe.label_smoothing)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                if recipe.clip:
                    nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
                optimizer.step()
                return logits.detach(), loss.detach()

            ask = Ask(step, x, y, model, optimizer, recipe, learn)
            answer = yield ask
            assert answer is not None
            progress.count(ask, answer)
            loss = team.mean(answer.loss)
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
