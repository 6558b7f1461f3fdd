"""The one training loop. It yields events and knows nothing of progress bars, stores or trackers."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade import models, registry, rng
from saccade.data.images import Images, Source
from saccade.spec import MILESTONES, Outcome, Recipe, Run, SaccadeError
from saccade.subjects.subject import Subject, standardise
from saccade.training import distributed, lockstep
from saccade.training.distributed import ALONE, Group
from saccade.training.lockstep import Answer, Ask, Asking

WATCHED = 256  # held-out pictures looked at on the way
WINDOWS = 40  # points of the online accuracy curve
SYNC = 20  # steps between looks at the loss on devices where looking waits for the device

Curve = list[dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """After every step. `state()` gives what a resumed run needs, bit for bit."""

    step: int
    steps: int
    loss: Tensor
    state: Callable[[], bytes]


@dataclass(frozen=True)
class Watch:
    """A point of the curve: accuracy on batches before they were learned (`online`) or on a held-out split."""

    images: int
    split: str
    accuracy: float
    n: int


@dataclass(frozen=True)
class Milestone:
    """A share of the budget is spent. `weights()` gives the model as it is now, to be measured like a finished one."""

    share: float
    weights: Callable[[], bytes]


@dataclass(frozen=True)
class Done:
    outcome: Outcome
    reason: str
    step: int
    seconds: float  # over all sittings of a run that was stopped and resumed
    curve: Curve
    model: nn.Module


def train(run: Run, device: str = "cpu", resume: bytes | None = None) -> Iterator[Step | Watch | Milestone | Done]:
    """Train one run, from the start or from a saved state. On a CPU both end with the same bits."""
    return lockstep.alone(_asking(run, device, resume, distributed.current()))


def train_together(
    runs: Sequence[Run], device: str, resume: Sequence[bytes | None]
) -> Iterator[tuple[int, Step | Watch | Milestone | Done | lockstep.Grouped]]:
    """Train several runs of one net in lock-step; each event comes with the number of its run."""
    return lockstep.together([_asking(run, device, state) for run, state in zip(runs, resume, strict=True)])


def _asking(
    run: Run, device: str, resume: bytes | None, team: Group = ALONE
) -> Asking[Step | Watch | Milestone | Done]:
    check_device(run.recipe, device)
    data = Source(run.data, run.data_args, run.seed, device)
    model = models.build(run.model, data("train").classes, seed=run.seed, **run.model_args).to(device)
    return _steps(model, data, run.recipe, resume, team)


def fit(
    model: nn.Module, data: Source, recipe: Recipe, resume: bytes | None = None, team: Group = ALONE
) -> Iterator[Step | Watch | Milestone | Done]:
    """Train a model that exists already; order and augmentation come from the data's seed."""
    return lockstep.alone(_steps(model, data, recipe, resume, team))


def _steps(
    model: nn.Module, data: Source, recipe: Recipe, resume: bytes | None, team: Group
) -> Asking[Step | Watch | Milestone | Done]:
    """The loop. It asks for every step to be done, so that steps of several runs may be done at once.

    The processes of a team go through this together, each with its share of every batch.
    """
    began, device, seed = time.perf_counter(), data.device, data.seed
    images = data("train")
    batch = min(recipe.batch, len(images))
    part = team.part(batch)
    model.train()
    net = team.wrap(model)
    optimizer = make_optimizer(recipe, model)
    watch_split = registry.card("data", data.name).extra.get("watch", "test")
    held_out = data(watch_split).head(WATCHED)
    subject = Subject(model, images.mean, images.std, device)

    per_epoch = len(images) // batch
    window = max(1, recipe.steps // WINDOWS)
    watch_at = {round(recipe.steps * i / recipe.watch) for i in range(1, recipe.watch + 1)}
    milestones = {round(recipe.steps * share): share for share in MILESTONES if round(recipe.steps * share)}
    curve: Curve = []
    errors: list[float] = []  # on an epoch's batches before each was learned, an entry an epoch: they cost nothing
    (right, epoch_right), first, order_of, order = torch.zeros(2, dtype=torch.long, device=device), 0, -1, images.y
    if resume is not None:
        meta = _restore(resume, model, optimizer)
        first, curve, errors = meta["step"], meta["curve"], meta["errors"]
        right += meta["right"]
        epoch_right += meta.get("epoch_right", 0)  # not in states of before there was `settle`
        began -= meta["seconds"]
    reason, outcome, done = f"all {recipe.steps} steps", Outcome.FINISHED, first

    reseed = _reseeder(device)
    global_state = torch.get_rng_state()  # dropout draws from it; it is seeded step by step and put back
    try:
        for step in range(first, recipe.steps):
            team.agree()  # to go on
            epoch, i = divmod(step, per_epoch)
            if epoch != order_of:
                order_of, order = epoch, _order(images, seed, epoch)
            reseed(rng.seed_of(seed, "noise", step, *([team.rank] if team.rank else ())))
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr * lr_factor(recipe, step)

            index = order[i * batch : (i + 1) * batch]
            x = standardise(images.batch(index, rng.stream(seed, "augment", step))[part], images.mean, images.std)
            y = images.y.index_select(0, index)[part]
            asked = time.perf_counter()
            answer = yield Ask(
                step, x, y, model, optimizer, recipe, functools.partial(_learn, net, model, optimizer, recipe, x, y)
            )
            assert answer is not None
            logits, loss, seconds = answer
            began += time.perf_counter() - asked - seconds  # others' work is not this run's time

            done, spent = step + 1, time.perf_counter() - began
            loss = team.mean(loss)
            hits = team.sum((logits.argmax(1) == y).sum())
            right += hits
            epoch_right += hits
            if (device == "cpu" or done % SYNC == 0 or done == recipe.steps) and not math.isfinite(loss.item()):
                reason, outcome = f"the loss was {loss.item()} at step {done}", Outcome.DIVERGED
                break
            if done % window == 0:
                curve.append(_point(done * batch, "online", right.item() / (window * batch), window * batch))
                right.zero_()
                yield Watch(**curve[-1])
            if done in watch_at:
                seen = subject.correct(held_out)
                curve.append(_point(done * batch, watch_split, float(seen.mean()), len(seen)))
                yield Watch(**curve[-1])
            if done in milestones:
                yield Milestone(milestones[done], functools.partial(pack_weights, model))
            if done % per_epoch == 0:
                if recipe.settle:
                    errors.append(1 - epoch_right.item() / (per_epoch * batch))
                    if settled(errors, recipe.settle, len(images)):
                        reason = f"training error unchanged over {recipe.settle} epochs"
                        break
                epoch_right.zero_()
            if recipe.max_seconds and team.agree(spent) > recipe.max_seconds:
                reason, outcome = f"{recipe.max_seconds:.0f} seconds were up at step {done}", Outcome.TIMEOUT
                break
            meta = {
                "step": done,
                "curve": curve,
                "errors": errors,
                "right": right,
                "epoch_right": epoch_right,
                "seconds": spent,
            }
            yield Step(done, recipe.steps, loss, functools.partial(_state, meta, model, optimizer))
    except GeneratorExit:
        team.leave()
        raise
    finally:
        torch.set_rng_state(global_state)
    if outcome is Outcome.FINISHED and not all(bool(torch.isfinite(p).all()) for p in model.parameters()):
        reason, outcome = "a weight was not finite after the last step", Outcome.DIVERGED
    yield Done(outcome, reason, done, time.perf_counter() - began, curve, model)


def _learn(
    net: nn.Module, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, x: Tensor, y: Tensor
) -> Answer:
    """One step of one run."""
    began = time.perf_counter()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=recipe.precision == "mixed"):
        logits = net(x)
        loss = F.cross_entropy(logits, y, label_smoothing=recipe.label_smoothing)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.clip:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    return logits.detach(), loss.detach(), time.perf_counter() - began


def _reseeder(device: str) -> Callable[[int], object]:
    """Seeds what dropout draws from. On a CPU the generator itself: torch.manual_seed takes a millisecond more."""
    return torch.default_generator.manual_seed if device == "cpu" else torch.manual_seed


def settled(errors: list[float], epochs: int, n: int) -> bool:
    """Whether the training error moved by at most one picture over the last epochs."""
    last = errors[-epochs:]
    return len(errors) > epochs and max(last) - min(last) <= 1 / n + 1e-12


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Fused: 1.1 to 1.17 times faster for the smallest nets, the same numbers.

    A module may name parameters of its own in `undecayed`: positions and widths, which decay would pull to 0.
    """
    spared = {id(getattr(m, name)) for m in model.modules() for name in getattr(m, "undecayed", ())}
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if id(p) not in spared]}]
    if spared:
        groups.append({"params": [p for p in model.parameters() if id(p) in spared], "weight_decay": 0.0})
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            groups, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov, fused=True
        )
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    return kind(groups, recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def lr_factor(recipe: Recipe, step: int) -> float:
    """The share of the peak learning rate at a step."""
    t = step / recipe.steps
    if recipe.schedule == "one_cycle":  # torch's own shape: 1/25 up to 1 over 30 %, then down to 1/250 000
        if t < 0.3:
            return _cosine(1 / 25, 1.0, t / 0.3)
        return _cosine(1.0, 1 / 250_000, (t - 0.3) / 0.7)
    if t < recipe.warmup:
        return (step + 1) / (recipe.warmup * recipe.steps + 1)
    if recipe.schedule == "cosine":
        return _cosine(1.0, 0.0, (t - recipe.warmup) / (1 - recipe.warmup))
    if recipe.schedule == "steps":
        return 0.1 ** sum(t >= share for share in (1 / 3, 2 / 3, 5 / 6))
    return 1.0


def check_device(recipe: Recipe, device: str) -> None:
    if recipe.precision == "mixed" and device == "cpu":
        raise SaccadeError("precision=mixed needs a GPU; on the cpu set precision=float32 (bf16 is slower there).")


def _cosine(start: float, end: float, t: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2


def _order(images: Images, seed: int, epoch: int) -> Tensor:
    return torch.randperm(len(images), generator=rng.stream(seed, "order", epoch)).to(images.y.device)


def _point(images: int, split: str, accuracy: float, n: int) -> dict[str, Any]:
    return {"images": images, "split": split, "accuracy": accuracy, "n": n}


def pack_weights(model: nn.Module) -> bytes:
    """The model's tensors in safetensors. Tied ones are written out once each, under every name."""
    return safetensors.torch.save({k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()})


def _state(meta: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> bytes:
    """Tensors only, in safetensors: nothing is ever unpickled."""
    text = json.dumps({name: int(value) if isinstance(value, Tensor) else value for name, value in meta.items()})
    tensors = {"meta": torch.tensor(list(text.encode()), dtype=torch.uint8)}
    tensors |= {f"model.{k}": v.detach().contiguous() for k, v in model.state_dict().items()}
    for i, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{k}": v.contiguous() for k, v in slots.items() if isinstance(v, Tensor)}
    return safetensors.torch.save({k: v.cpu().clone() for k, v in tensors.items()})


def _restore(state: bytes, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    tensors = safetensors.torch.load(state)
    meta: dict[str, Any] = json.loads(bytes(tensors.pop("meta").tolist()))
    model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, i, slot = name.split(".", 2)
            slots.setdefault(int(i), {})[slot] = value
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
    return meta
