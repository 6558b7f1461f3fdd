"""What a training reports: one value per kind of event. Stores, tables and tests are readers of the same stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from saccade.spec import Outcome

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


Event = Step | Watch | Milestone | Done
