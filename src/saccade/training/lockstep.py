"""Runs of one small model, step by step together: stacked weights, one backward pass, one update for all of them.

A small model's step is mostly calls, not arithmetic. The training loop yields its steps to the driver in this file
(`Ask`) where it would do them itself. Runs keep their own data, order, curve and state: on the machines tried they
end with the same bits either way; elsewhere the last digits may differ, as between two machines.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.spec import Recipe, Run
from saccade.training.events import Event
from saccade.training.loop import Training, learn, start
from saccade.training.progress import Learned

TRIAL = 5  # steps of each kind that decide whether stacking pays
PAYS = 1.05

_gains: dict[tuple[Any, ...], float] = {}  # what trials of this process found


@dataclass(frozen=True)
class Ask:
    """A step that a run wants done: its batch, and what to update."""

    step: int
    x: Tensor
    y: Tensor
    model: nn.Module
    optimizer: torch.optim.Optimizer
    recipe: Recipe
    asked: float = field(default_factory=time.perf_counter)

    def by_itself(self) -> tuple[Learned, float]:
        """The step as the loop would have done it, and the seconds that it took."""
        began = time.perf_counter()
        return learn(self.model, self.optimizer, self.recipe, self.x, self.y), time.perf_counter() - began


@dataclass(frozen=True)
class Grouped:
    """A run's steps were done with others' and timed: `gain` is how many times faster that was than one by one."""

    replicas: int
    gain: float


def train_together(
    runs: Sequence[Run], device: str, resume: Sequence[bytes | None]
) -> Iterator[tuple[int, Event | Grouped]]:
    """Train several runs of one model in lock-step; each event comes with the number of its run."""
    return together([start(run, device, state, elsewhere=Ask) for run, state in zip(runs, resume, strict=True)])


def together(runs: Sequence[Training]) -> Iterator[tuple[int, Event | Grouped]]:
    """The events of several runs, each with its number. A run that is behind (resumed) catches up first."""
    waiting: dict[int, Ask] = {}
    group = _Group()
    kept = torch.get_rng_state()  # runs put it back too, but not in the order in which they took it

    def go_on(i: int, learned: Learned | None) -> Iterator[tuple[int, Event | Grouped]]:
        while True:
            try:
                event: Event | Ask = runs[i].send(learned)
            except StopIteration:
                return
            if isinstance(event, Ask):
                waiting[i] = event
                return
            learned = None
            yield i, event

    try:
        for i in range(len(runs)):
            yield from go_on(i, None)
        while waiting:
            step = min(ask.step for ask in waiting.values())
            now = {i: ask for i, ask in waiting.items() if ask.step == step}
            answers = group.learn(list(now.values()))
            for news in group.news():
                yield from ((i, news) for i in now)
            for i, (learned, seconds) in zip(now, answers, strict=True):
                ask = waiting.pop(i)
                waited = time.perf_counter() - ask.asked - seconds  # that is not this run's time
                yield from go_on(i, replace(learned, waited=waited))
    finally:
        for run in runs:
            run.close()
        torch.set_rng_state(kept)


class _Group:
    """Answers asks of the same step. The first ones one by one, timed; then stacked, timed; then what was faster."""

    def __init__(self) -> None:
        self.stack: Stack | None = None
        self.kind: tuple[Any, ...] = ()
        self.spent: tuple[list[float], list[float]] = ([], [])  # one by one, stacked
        self.grouped: list[Grouped] = []

    def learn(self, asks: Sequence[Ask]) -> list[tuple[Learned, float]]:
        members = tuple(ask.model for ask in asks)
        if self.stack is not None and self.stack.members != members:
            self.stack = None  # views stay valid: nothing else writes to what they show
        if self.stack is None and not fits(asks):
            return [ask.by_itself() for ask in asks]
        kind = (type(members[0]), len(asks), asks[0].x.shape)
        if kind != self.kind:
            self.kind, self.spent = kind, ([], [])
        stacked = _gains[kind] >= PAYS if kind in _gains else len(self.spent[0]) >= TRIAL
        if stacked and self.stack is None:
            self.stack = Stack(asks)
            self.grouped += [Grouped(len(asks), _gains[kind])] if kind in _gains else []
        began = time.perf_counter()
        answers = self.stack.learn(asks) if self.stack else [ask.by_itself() for ask in asks]
        if kind not in _gains:
            self.spent[stacked].append(time.perf_counter() - began)
            if len(self.spent[1]) == TRIAL:
                _gains[kind] = statistics.median(self.spent[0]) / statistics.median(self.spent[1])
                self.grouped.append(Grouped(len(asks), _gains[kind]))
                self.stack = self.stack if _gains[kind] >= PAYS else None
        return answers

    def news(self) -> list[Grouped]:
        grouped, self.grouped = self.grouped, []
        return grouped


def fits(asks: Sequence[Ask]) -> bool:
    """Whether these can be stacked: one kind of model that knows how, one recipe, one shape, a step done already."""
    first = asks[0]
    return (
        len(asks) > 1
        and hasattr(first.model, "together")
        and not first.recipe.clip
        and first.recipe.precision == "float32"
        and os.environ.get("SACCADE_LOCKSTEP") != "off"
        and all(
            type(ask.model) is type(first.model) and ask.recipe == first.recipe and ask.x.shape == first.x.shape
            for ask in asks
        )
        and all(ask.optimizer.state.get(p) for ask in asks for p in ask.model.parameters())
    )


class Stack:
    """The weights of several models and their gradients as stacks; the models' own are views into them.

    The update goes model by model, tensor by tensor, but in one call: its vector and scalar code round differently,
    and which one an element meets depends on where its tensor ends.
    """

    def __init__(self, asks: Sequence[Ask]) -> None:
        self.members = tuple(ask.model for ask in asks)
        self.weights: dict[str, nn.Parameter] = {}
        self.own: dict[str, list[nn.Parameter]] = {}
        for name, _ in self.members[0].named_parameters():
            own = self.own[name] = [member.get_parameter(name) for member in self.members]
            stacked = self.weights[name] = nn.Parameter(torch.stack([p.detach() for p in own]))
            for p, value in zip(own, stacked.detach(), strict=True):
                p.data = value
        each = [ask.optimizer for ask in asks]
        groups = [
            {**same[0], "params": [p for group in same for p in group["params"]]}
            for same in zip(*(o.param_groups for o in each), strict=True)
        ]
        self.optimizer = type(each[0])(groups)  # type: ignore[call-arg]
        self.optimizer.state.update({p: state for o in each for p, state in o.state.items()})

    def learn(self, asks: Sequence[Ask]) -> list[tuple[Learned, float]]:
        began, n = time.perf_counter(), len(asks)
        for group, given in zip(self.optimizer.param_groups, asks[0].optimizer.param_groups, strict=True):
            group["lr"] = given["lr"]
        for weight in self.weights.values():
            weight.grad = None
        logits = self._forward(torch.stack([ask.x for ask in asks]))
        losses = (
            F.cross_entropy(
                logits.flatten(0, 1),
                torch.cat([ask.y for ask in asks]),
                reduction="none",
                label_smoothing=asks[0].recipe.label_smoothing,
            )
            .view(n, -1)
            .mean(1)
        )
        torch.autograd.backward(losses, torch.ones_like(losses))
        for name, weight in self.weights.items():
            assert weight.grad is not None
            for p, grad in zip(self.own[name], weight.grad.unbind(), strict=True):
                p.grad = grad
        self.optimizer.step()
        seconds = (time.perf_counter() - began) / n
        return [(Learned(*each), seconds) for each in zip(logits.detach(), losses.detach(), strict=True)]

    def _forward(self, x: Tensor) -> Tensor:
        function: Callable[[Mapping[str, Tensor], Tensor], Tensor] = self.members[0].together  # type: ignore[assignment]
        return function(self.weights, x)
