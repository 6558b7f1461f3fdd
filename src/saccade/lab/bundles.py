"""Which tasks a launcher hands out together: runs of one small model, which a worker trains in lock-step.

What the worker does with them is in `together.py`, the steps themselves in `training/lockstep.py`. Everything else
sees single tasks and their events.
"""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Set

from saccade.spec import Task

MODELS = frozenset({"lenet"})  # small enough to gain from it, with a method `together`; named here, where torch is not
SCANNED = 256  # tasks that are looked at to find some of the same model
MOST = 8  # runs that a worker may train together; more gain little and wait longer


def bundle(pending: collections.deque[Task], seats: int, place: str, alone: Set[str]) -> list[Task]:
    """The next task, and others of the same small model that may be trained with it, but no more than a fair share."""
    first = pending.popleft()
    if (
        place != "cpu"
        or "TORCHELASTIC_RUN_ID" in os.environ
        or os.environ.get("SACCADE_LOCKSTEP") == "off"
        or first.run.model not in MODELS
    ):
        return [first]

    # Equal runs cost the same and are neighbours in the queue; of a long queue only the beginning is looked at.
    next_tasks = [pending.popleft() for _ in range(min(SCANNED, len(pending)))]
    similar = [t for t in next_tasks if t.run.kind == first.run.kind and not {t.run.key, first.run.key} & alone]
    expected = len(similar) * (1 + len(pending) / max(1, len(next_tasks)))  # so many there are in all
    companions = similar[: min(MOST, math.ceil((1 + expected) / seats)) - 1]
    taken_ids = {id(t) for t in companions}
    pending.extendleft(t for t in reversed(next_tasks) if id(t) not in taken_ids)
    return [first, *companions]
