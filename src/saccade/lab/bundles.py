"""Runs of one small model go to one worker, which trains them in lock-step (`training/lockstep.py`).

All that the lab knows of lock-step is here: which tasks a launcher hands out together (`bundle`), and what a worker
does with them (`perform`). Everything else sees single tasks and their events.
"""

from __future__ import annotations

import collections
import math
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from saccade import registry
from saccade.lab.events import Event, Stopped
from saccade.lab.lease import Lease
from saccade.lab.store import Lab
from saccade.spec import Run, Task, plain

SCANNED = 256  # tasks that are looked at to find some of the same model
MOST = 8  # runs that a worker may train together; more gain little and wait longer


def bundle(pending: collections.deque[Task], seats: int, place: str, alone: Set[str]) -> list[Task]:
    """The next task, and others of the same small model that may be trained with it, but no more than a fair share."""
    first = pending.popleft()
    if (
        place != "cpu"
        or "TORCHELASTIC_RUN_ID" in os.environ
        or os.environ.get("SACCADE_LOCKSTEP") == "off"
        or first.run.is_fact
        or not registry.card("model", first.run.model).extra.get("lockstep")
    ):
        return [first]

    # Equal runs cost the same and stand together in the queue; of a long one only the beginning is looked at.
    seen = [pending.popleft() for _ in range(min(SCANNED, len(pending)))]
    like = [t for t in seen if t.run.kind == first.run.kind and not {t.run.key, first.run.key} & alone]
    about = len(like) * (1 + len(pending) / max(1, len(seen)))  # so many there are in all
    some = like[: min(MOST, math.ceil((1 + about) / seats)) - 1]
    taken = {id(t) for t in some}
    pending.extendleft(t for t in reversed(seen) if id(t) not in taken)
    return [first, *some]


def perform(
    lab: Lab,
    tasks: Sequence[Task],
    device: str = "cpu",
    stopping: Callable[[], bool] = lambda: False,
    retry: bool = False,
) -> Iterator[Event]:
    """Several tasks of one model: trained in lock-step, then finished one by one. One task is simply done."""
    from saccade.lab import worker  # loads torch, which a launcher does without

    held: dict[str, Lease] = {}
    todo: list[Run] = []
    try:
        for run in (t.run for t in tasks if len(tasks) > 1 and lab.done(t.run.key) is None):
            lease = lab.claim(run, worker.environment(run, device))
            if lease is not None:
                held[run.key] = lease
                todo.append(run)
        if len(todo) > 1:
            yield from _train(lab, todo, device, held, stopping)
    except Exception:  # whatever it was, each meets it again by itself, with the run named
        for run in todo:
            lab.log(run.key, {"event": "parted", "trace": traceback.format_exc()})
    finally:
        for lease in held.values():
            lease.release()
    for task in tasks:
        if stopping():
            yield Stopped(task.run.key)
        else:
            yield from worker.perform(lab, task, device, stopping, retry)


def _train(
    lab: Lab, runs: Sequence[Run], device: str, leases: Mapping[str, Lease], stopping: Callable[[], bool]
) -> Iterator[Event]:
    from saccade.lab.worker import Diary
    from saccade.training.lockstep import Grouped
    from saccade.training.loop import train_together

    diaries = [Diary(lab, run, device, leases[run.key], stopping) for run in runs]
    for i, event in train_together(runs, device, [diary.resume for diary in diaries]):
        if isinstance(event, Grouped):
            lab.log(runs[i].key, {"event": "lock-step", **plain(event)})
        else:
            yield from diaries[i].take(event)
        if all(diary.over for diary in diaries):
            return
