"""What workers report to their launcher and launchers to their reader: dataclasses here, JSON between processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from saccade.spec import Outcome

_kinds: dict[str, type[Event]] = {}


@dataclass(frozen=True)
class Event:
    """Something happened to the run of this key; an empty key means the worker or the launcher itself."""

    key: str = ""
    name: ClassVar[str]
    frees: ClassVar[bool] = False  # the worker has nothing more to do for this run
    ends: ClassVar[bool] = False  # nobody in this command will take the run up again

    def __init_subclass__(cls, name: str, frees: bool = False, ends: bool = False) -> None:
        cls.name, cls.frees, cls.ends = name, frees or ends, ends
        _kinds[name] = cls

    @property
    def kind(self) -> str:
        """One word for readers that only count; of an ended run it is the outcome."""
        return self.name

    def plain(self) -> dict[str, Any]:
        """As it travels; `parse` reads it."""
        return {"event": self.name, **dataclasses.asdict(self)}

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """The event that `plain()` was made from. Whatever else a process printed is a ValueError."""
        event_class = _kinds.get(values.get("event", "")) if isinstance(values, Mapping) else None
        if event_class is None or not issubclass(event_class, cls):
            raise ValueError(f"not an event: {values!r:.80}")
        return event_class(**{f.name: values[f.name] for f in dataclasses.fields(event_class) if f.name in values})


@dataclass(frozen=True)
class Ready(Event, name="ready", frees=True):
    """A worker has loaded everything and waits for its first task."""


@dataclass(frozen=True)
class Begun(Event, name="begun"):
    """A Ray task has started on this node."""

    node: str = ""


@dataclass(frozen=True)
class Progress(Event, name="step"):
    step: int = 0
    steps: int = 1
    loss: float = 0.0


@dataclass(frozen=True)
class Probing(Event, name="probe"):
    """A probe begins, of the model at this share of its training."""

    probe: str = ""
    probe_key: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class ProbeFailed(Event, name="probe failed"):
    probe: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Ended(Event, name="ended", ends=True):
    """The run has an outcome, and everything that was asked about it is measured."""

    outcome: Outcome = Outcome.FINISHED
    reason: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", Outcome(self.outcome))  # it may have travelled as text

    @property
    def kind(self) -> str:
        return str(self.outcome)


@dataclass(frozen=True)
class Refused(Event, name="refused", ends=True):
    """It was not even tried, or a file or disk was at fault: nothing about the run itself."""

    reason: str = ""


@dataclass(frozen=True)
class Stopped(Event, name="stopped", frees=True):
    """Asked to stop; the run's state is saved."""


@dataclass(frozen=True)
class Busy(Event, name="busy", frees=True):
    """Somebody else works on the run."""

    holder: str = ""


@dataclass(frozen=True)
class Died(Event, name="worker died"):
    """The worker was lost; the run is tried again."""

    how: str = ""


@dataclass(frozen=True)
class HandedOver(Event, name="handed over"):
    """The cluster has all tasks now and keeps them without this process."""


@dataclass(frozen=True)
class Broken(Event, name="broken"):
    """A supervisor cannot continue."""

    reason: str = ""


@dataclass(frozen=True)
class Cost(Event, name="cost"):
    """A measured step: seconds and bytes of the task with this number."""

    at: int = 0
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
