"""What a worker does with a bundle of tasks: trains their runs in lock-step, then finishes each by itself."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence

from saccade.lab.events import Event, Stopped
from saccade.lab.lease import Lease
from saccade.lab.perform import Diary, environment
from saccade.lab.perform import perform as perform_one
from saccade.lab.store import Lab
from saccade.spec import Run, Task, plain
from saccade.training.lockstep import Grouped, train_together


def perform(
    lab: Lab,
    tasks: Sequence[Task],
    device: str = "cpu",
    stopping: Callable[[], bool] = lambda: False,
    retry: bool = False,
) -> Iterator[Event]:
    """Several tasks of one model: trained in lock-step, then finished one by one. One task is simply done."""
    leases: dict[str, Lease] = {}
    todo: list[Run] = []
    try:
        for run in (t.run for t in tasks if len(tasks) > 1 and lab.done(t.run.key) is None):
            lease = lab.claim(run, environment(run, device))
            if lease is not None:
                leases[run.key] = lease
                todo.append(run)
        if len(todo) > 1:
            yield from _train(lab, todo, device, leases, stopping)
    except Exception:  # whatever it was: each run meets it again when trained alone, and is named then
        for run in todo:
            lab.log(run.key, {"event": "parted", "trace": traceback.format_exc()})
    finally:
        for lease in leases.values():
            lease.release()
    for task in tasks:
        if stopping():
            yield Stopped(task.run.key)
        else:
            yield from perform_one(lab, task, device, stopping, retry)


def _train(
    lab: Lab, runs: Sequence[Run], device: str, leases: Mapping[str, Lease], stopping: Callable[[], bool]
) -> Iterator[Event]:
    diaries = [Diary(lab, run, device, leases[run.key], stopping) for run in runs]
    for i, event in train_together(runs, device, [diary.resume for diary in diaries]):
        if isinstance(event, Grouped):
            lab.log(runs[i].key, {"event": "lock-step", **plain(event)})
        else:
            yield from diaries[i].take(event)
        if all(diary.over for diary in diaries):
            return
