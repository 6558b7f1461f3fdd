"""Do what is missing for one task: claim, train, save, measure."""

from __future__ import annotations

import io
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import safetensors.torch
import torch

from saccade import models, registry
from saccade.data.fetch.sets import SETS
from saccade.data.images import Source
from saccade.errors import in_words
from saccade.lab import identity, origin
from saccade.lab.events import Busy, Ended, Event, ProbeFailed, Probing, Progress, Refused, Stopped
from saccade.lab.lease import Lease
from saccade.lab.plan import sets_of, unmeasured
from saccade.lab.store import TRAINING, Lab
from saccade.layers import kernels
from saccade.spec import MILESTONES, DamagedFile, Outcome, Row, Run, SaccadeError, Task, plain
from saccade.subjects.build import build
from saccade.subjects.subject import Subject
from saccade.training import distributed
from saccade.training.events import Done, Milestone, Step, Watch
from saccade.training.loop import train
from saccade.training.resume import pack_weights

SAVE_EVERY = float(os.environ.get("SACCADE_SAVE_EVERY", "15"))  # seconds of training that a kill may cost
REPORT_EVERY = 0.5


def perform(
    lab: Lab, task: Task, device: str = "cpu", stopping: Callable[[], bool] = lambda: False, retry: bool = False
) -> Iterator[Event]:
    """Everything that the lab lacks of this task. The last event says how it ended."""
    key = task.run.key
    try:
        lease = lab.claim(task.run, environment(task.run, device))
    except SaccadeError as error:
        yield Refused(key, str(error))
        return
    if lease is None:
        holder = lab.holder(key) or {}
        yield Busy(key, f"process {holder.get('pid', '?')} on {holder.get('host', '?')}")
        return
    try:
        done = lab.done(key)
        if done is None or (retry and done["outcome"] == Outcome.FAILED):
            if task.run.is_fact:
                lab.put_rows(key, TRAINING, 1, [])
                lab.finish(key, {"outcome": Outcome.FINISHED, "reason": "", "seconds": 0.0, "step": 0}, None)
            else:
                yield from _train(lab, task.run, device, lease, stopping)
            done = lab.done(key)
        if done is None:  # not asked to stop: then another machine took the run for abandoned and continues it
            yield Stopped(key) if stopping() else Busy(key, "another machine")
            return
        if done["outcome"] == Outcome.FINISHED:
            yield from _measure(lab, task, device, stopping, retry)
            if stopping() and any(unmeasured(lab, task, share, retry) for share in (1.0, *MILESTONES)):
                yield Stopped(key)
                return
        yield Ended(key, Outcome(done["outcome"]), done["reason"], done["seconds"])
    except SaccadeError as error:  # damage or a full disk: nothing about the run itself
        yield Refused(key, str(error))
    finally:
        lease.release()


def _train(lab: Lab, run: Run, device: str, lease: Lease, stopping: Callable[[], bool]) -> Iterator[Event]:
    try:
        diary = Diary(lab, run, device, lease, stopping)
        if distributed.current().size > 1:
            distributed.send({"run": plain(run)}, diary.resume or b"")
        for event in train(run, device, diary.resume):
            yield from diary.take(event)
            if diary.over:
                return
    except SaccadeError:
        raise
    except Exception as error:
        lab.log(run.key, {"event": "failed", "trace": traceback.format_exc()})
        lab.finish(run.key, {"outcome": Outcome.FAILED, "reason": in_words(error), "seconds": 0.0, "step": 0}, None)


class Diary:
    """Keeps what one run reports: its curve, its state every so often, its end."""

    def __init__(self, lab: Lab, run: Run, device: str, lease: Lease, stopping: Callable[[], bool]) -> None:
        self.lab, self.run, self.lease, self.stopping = lab, run, lease, stopping
        self.saved, self.reported, self.over = time.monotonic(), 0.0, False
        self.resume = lab.load_state(run.key)
        lab.log(run.key, {"event": "resumed" if self.resume else "started", "device": device, "pid": os.getpid()})

    def take(self, event: Step | Watch | Milestone | Done) -> Iterator[Progress]:
        """Yields what is worth reporting. `over`: nothing more will be kept."""
        key = self.run.key
        if self.over or self.lease.lost.is_set():  # this machine slept or hung, and another one went on with the run
            self.over = True
        elif isinstance(event, Watch):
            self.lab.log(key, {"event": "watch", **plain(event)})
        elif isinstance(event, Milestone):
            self.lab.save_milestone(key, event.share, event.weights())
        elif isinstance(event, Done):
            if self.lab.holds(self.lease):
                _finish(self.lab, self.run, event)
            self.over = True
        else:
            now, self.over = time.monotonic(), self.stopping()
            if self.over or now - self.saved > SAVE_EVERY:
                self.lab.save_state(key, event.state())
                self.lab.log(key, {"event": "saved", "step": event.step})
                self.saved = time.monotonic()
            if not self.over and now - self.reported > REPORT_EVERY:
                self.reported = now
                yield Progress(key, event.step, event.steps, float(event.loss))


def _finish(lab: Lab, run: Run, end: Done) -> None:
    rows: list[dict[str, Any]] = [
        {
            "metric": "online" if p["split"] == "online" else "watched",
            "value": p["accuracy"],
            "n": p["n"],
            "at": {"images": p["images"], "split": p["split"]},
        }
        for p in end.curve
    ]
    rows += [
        {"metric": "parameters", "value": models.parameters(end.model), "n": 1, "at": {}},
        {"metric": "train_seconds", "value": end.seconds, "n": 1, "at": {}},
    ]
    lab.put_rows(run.key, TRAINING, 1, rows)
    outcome = {"outcome": end.outcome, "reason": end.reason, "seconds": end.seconds, "step": end.step}
    lab.finish(run.key, outcome, pack_weights(end.model) if end.outcome is Outcome.FINISHED else None)
    lab.log(run.key, {"event": end.outcome, "reason": end.reason})


def _measure(lab: Lab, task: Task, device: str, stopping: Callable[[], bool], retry: bool) -> Iterator[Event]:
    """Every probe that the lab lacks, of the finished model first and then at its milestones.

    A probe's failure belongs to the probe: it is kept with its reason, and the run stays finished.
    """
    key, failed = task.run.key, set()
    for share in (1.0, *MILESTONES):
        subject = None
        for probe in (p for p in unmeasured(lab, task, share, retry) if p not in failed):
            if stopping():
                return
            yield Probing(key, probe.name, probe.key, share)
            version, outside = registry.card("probe", probe.name).version, identity.of_probe(probe)
            try:
                subject = subject or (None if task.run.is_fact else _stoppable(lab, task.run, device, share, stopping))
                data = Source(task.run.data, task.run.data_args, task.run.seed, device)
                rows = list(registry.find("probe", probe.name)(subject, data, **probe.settings))
                stored = [plain({"metric": r.metric, "value": float(r.value), "n": r.n, "at": r.at}) for r in rows]
                each = _pack_outcomes(rows) if share == 1 else None  # of a milestone only the numbers are kept
            except _Leave:  # nothing is kept of half a probe: it is asked again from its start
                return
            except DamagedFile:  # weights or data, not the probe
                raise
            except Exception as error:
                reason = str(error) if isinstance(error, SaccadeError) else in_words(error)
                lab.log(key, {"event": "probe failed", "probe": probe.name, "trace": traceback.format_exc()})
                lab.put_failure(key, probe, version, reason, share, outside)
                failed.add(probe)
                yield ProbeFailed(key, probe.name, reason)
                continue
            lab.put_rows(key, probe, version, stored, each, share, outside)


class _Leave(BaseException):
    """Asked to stop in the middle of a probe. No Exception, which a probe of a user's own may catch."""


@dataclass(frozen=True)
class _Stoppable(Subject):
    """A subject that leaves its probe when it is shown the next images after a request to stop."""

    stopping: Callable[[], bool] = field(default=lambda: False, compare=False, repr=False)

    def prepared(self, x: torch.Tensor) -> torch.Tensor:
        if self.stopping():
            raise _Leave
        return super().prepared(x)


def _stoppable(lab: Lab, run: Run, device: str, share: float, stopping: Callable[[], bool]) -> _Stoppable:
    one = load(lab, run, device, share)
    return _Stoppable(one.model, one.mean, one.std, one.device, one.classes, stopping=stopping)


def _pack_outcomes(rows: Sequence[Row]) -> bytes | None:
    each = {f"row{i}": np.asarray(r.each) for i, r in enumerate(rows) if r.each is not None}
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **each)
    return packed.getvalue() if each else None


def load(lab: Lab, run: Run, device: str = "cpu", share: float = 1.0) -> Subject:
    """A trained run from the lab, or as it was at a milestone; weights checked."""
    data = Source(run.data, run.data_args, run.seed, device)
    images = data("train")
    model = build(run, images)
    weights = lab.weights(run.key) if share == 1 else lab.load_milestone(run.key, share)
    assert weights is not None  # asked for only where there is one
    model.load_state_dict(safetensors.torch.load(weights))
    return Subject(model.to(device).eval(), images.mean, images.std, device, images.classes)


def environment(run: Run, device: str) -> dict[str, Any]:
    """What a reader of run.json needs to judge a difference between two machines."""
    return {
        "versions": {kind: registry.card(kind, name).version for kind, name in run.parts},
        **origin.software(),
        "outside": identity.described(run),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cpu": origin.cpu(),
        "system": platform.system(),
        "device": device,
        "threads": torch.get_num_threads(),
        "kernels": kernels.why_not() or "native",
        "data": {
            name: {k: a.sha256[:16] for k, a in SETS[name].arrays.items()}
            for name in sets_of([Task(run)])
            if name in SETS
        },
    }
