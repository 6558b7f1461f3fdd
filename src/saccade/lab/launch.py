"""Launchers: plain functions over a list of tasks that yield the workers' events. The launcher itself loads no torch.

One process per core with one torch thread each: measured 1.2 to 1.7 times faster than one process with two threads, and
thread counts and the allocator's policy must be set before torch starts, which only a fresh process allows.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from saccade import registry
from saccade.lab import bundles, identity
from saccade.lab.events import Busy, Cost, Died, Ended, Event, ProbeFailed, Probing, Ready, Refused
from saccade.lab.store import Lab
from saccade.spec import Outcome, Probe, SaccadeError, Task, plain, suggest

RETRIES = 2  # how often a task whose worker died is tried again
MOST_JOBS = 256  # worker processes; each loads torch
POLL = 1.0  # seconds between looks at runs that another launcher has
PATIENCE = 60.0  # seconds that a stopping worker gets to save
SHARERS = 4  # runs that share a GPU at most

# Freed memory is kept instead of being handed back page by page: up to 1.2 times faster, the same numbers.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_TOP_PAD_": str(2**26)}


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def devices(device: str, jobs: int | None = None) -> list[str]:
    """One entry per worker. `auto` takes the GPUs when there are any, else every core."""
    kind = device.partition(":")[0]
    if kind not in ("auto", "cpu", "cuda", "mps"):
        raise SaccadeError(suggest("device", device, ("auto", "cpu", "cuda", "cuda:0", "mps")))
    if jobs is not None and jobs < 1:
        raise SaccadeError(f"--jobs must be at least 1, not {jobs}.")
    if jobs is not None and jobs > MOST_JOBS:
        raise SaccadeError(f"--jobs must be at most {MOST_JOBS}, not {jobs}; this machine has {cores()} cores.")
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        jobs = 1  # torchrun: all its processes share one run at a time
    gpus = _gpus() if kind in ("auto", "cuda") else 0
    if kind == "cuda" and not gpus:
        raise SaccadeError("no CUDA device was found (nvidia-smi lists none); use --device cpu or auto.")
    if kind == "cuda" and ":" in device:
        return [device] * (jobs or 1)
    if gpus:
        return [f"cuda:{i % gpus}" for i in range(jobs or gpus)]
    if kind == "mps" or (kind == "auto" and sys.platform == "darwin" and platform.machine() == "arm64"):
        return ["mps"] * (jobs or 1)
    return ["cpu"] * (jobs or cores())


def share(places: Sequence[str], need: float, jobs: int | None) -> list[str]:
    """GPUs again, each as often as runs that need so many bytes fit into what it has free now; not if jobs are given.

    A small model leaves most of a GPU idle. Half of the memory is left alone, as measured need is that of one step.
    """
    if jobs or not need or not places[0].startswith("cuda"):
        return list(places)
    free, most = _free_memory(), max(1, min(SHARERS, cores() // len(places)))
    times = {place: max(1, min(most, int(free.get(place, 0.0) / 2 // need))) for place in places}
    return [place for turn in range(most) for place in places if turn < times[place]]


def _gpus() -> int:
    return sum(line.startswith("GPU ") for line in _ask_nvidia("-L"))


def _free_memory() -> dict[str, float]:
    lines = _ask_nvidia("--query-gpu=memory.free", "--format=csv,noheader,nounits")
    return {f"cuda:{i}": float(mib) * 2**20 for i, mib in enumerate(lines) if mib.strip().isdigit()}


def _ask_nvidia(*words: str) -> list[str]:
    tool = shutil.which("nvidia-smi")
    if not tool:
        return []
    return subprocess.run(
        [tool, *words], capture_output=True, encoding="utf-8", errors="replace", check=False
    ).stdout.splitlines()


@dataclass
class Worker:
    """One process, its inbox, and the tasks it works on: one, or several to be trained in lock-step."""

    process: subprocess.Popen[str]
    device: str
    tasks: dict[str, Task] = field(default_factory=dict)
    waiting: bool = False  # ready for a task
    probing: dict[str, tuple[str, float]] = field(default_factory=dict)  # key and share of the probe each task is at
    heard: float = 0.0  # when its last event came
    silent: float = 0.0  # seconds without a sign of life for which it was ended
    stderr_tail: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=30))

    def send(self, order: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()


def start(lab: Lab, device: str, plugins: Sequence[str], inbox: queue.Queue[tuple[Worker, Event | None]]) -> Worker:
    command = [sys.executable, "-m", "saccade.lab.worker", "--lab", str(lab.root), "--device", device]
    command += [word for plugin in plugins for word in ("--plugin", plugin)]
    env = {**os.environ, **ALLOCATOR, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # A process group of its own: Ctrl-C reaches the launcher alone, which then asks the workers to save. Not a session
    # of its own: Linux shares processor time among sessions first, so that `nice` would count for nothing in it.
    try:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        )
    except OSError as error:
        raise SaccadeError(f"a worker process could not start ({error.strerror}); use fewer --jobs.") from error
    worker = Worker(process, device)

    def read(stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # the last line of a worker that was killed while it wrote
                    inbox.put((worker, Event.parse(json.loads(line))))
        inbox.put((worker, None))  # the end: the worker is gone

    def keep_tail(stream: IO[str]) -> None:
        with stream:
            worker.stderr_tail.extend(stream)

    assert process.stdout is not None and process.stderr is not None
    threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
    threading.Thread(target=keep_tail, args=(process.stderr,), daemon=True).start()
    return worker


def local(
    tasks: Sequence[Task],
    lab: Lab,
    *,
    places: Sequence[str],
    plugins: Sequence[str] = (),
    retry: bool = False,
    silence: float = 0.0,
) -> Generator[Event, None, None]:
    """Do all tasks on this machine, in the order given. On Ctrl-C the workers save before it is raised again.

    A worker that has a task and sends no event for `silence` seconds is ended as if it had died; 0: never.
    """
    pending = collections.deque(tasks)
    elsewhere: dict[str, tuple[Task, float]] = {}
    deaths: collections.Counter[str] = collections.Counter()  # a task that was there when a worker died goes alone
    fatal: set[str] = set()  # tasks with a probe that kills workers: it is not asked again now, also not on `retry`
    inbox: queue.Queue[tuple[Worker, Event | None]] = queue.Queue()
    workers = [start(lab, place, plugins, inbox) for place in places[: len(pending)]]
    failed_starts = 0  # workers in a row that died before they were ready
    try:
        while pending or elsewhere or any(w.tasks for w in workers):
            for worker in workers:
                if worker.waiting and pending:
                    some = bundles.bundle(pending, len(places), worker.device, deaths.keys())
                    worker.tasks, worker.waiting = {t.run.key: t for t in some}, False
                    worker.heard = time.monotonic()
                    once_more = retry and not fatal & worker.tasks.keys()
                    worker.send({"do": "perform", "tasks": [plain(t) for t in some], "retry": once_more})
            for key, (busy_task, next_look) in list(elsewhere.items()):
                if time.monotonic() > next_look:
                    del elsewhere[key]
                    pending.append(busy_task)
            for worker in workers:
                if silence and worker.tasks and time.monotonic() - worker.heard > silence:
                    worker.silent = silence
                    worker.process.kill()
            with contextlib.suppress(queue.Empty):
                worker, event = inbox.get(timeout=POLL / 2)
                if event is None:
                    workers.remove(worker)
                    failed_starts += _check_start(worker, failed_starts)
                    yield from _after_death(lab, worker, pending, deaths, fatal)
                    if pending or elsewhere:
                        workers.append(start(lab, worker.device, plugins, inbox))
                    continue
                worker.heard = time.monotonic()
                task = worker.tasks.get(event.key)
                if isinstance(event, Probing):
                    worker.probing[event.key] = (event.probe_key, event.share)
                if event.frees:
                    worker.tasks.pop(event.key, None)
                    worker.waiting = not worker.tasks
                if isinstance(event, Busy) and task is not None:
                    elsewhere[event.key] = (task, time.monotonic() + POLL)
                if isinstance(event, Ready):
                    failed_starts = 0
                else:
                    yield event
    finally:
        _stop(workers)


def silence_of(seconds: Iterable[float]) -> float:
    """How long a worker may send no event, from what its runs should take; a single probe may be most of a run."""
    if setting := os.environ.get("SACCADE_SILENCE"):
        return float(setting)
    return max(1800.0, 10 * max(seconds, default=0.0))


def costs(tasks: Sequence[Task], lab: Lab, device: str, plugins: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """Measured cost of each task's model, with as many at once as there will be workers."""
    inbox: queue.Queue[tuple[Worker, Event | None]] = queue.Queue()
    workers = [start(lab, place, plugins, inbox) for place in devices(device)[: len(tasks)]]
    out: dict[int, Mapping[str, Any]] = {}
    failed_starts = 0
    try:
        for i, task in enumerate(tasks):
            workers[i % len(workers)].send({"do": "cost", "tasks": [plain(task)], "at": i})
        while len(out) < len(tasks):
            worker, event = inbox.get()
            if event is None:
                _hang_up(worker)
                if failed_starts >= RETRIES or worker.process.wait() >= 0:
                    raise SaccadeError("the cost of a run could not be measured: " + _last_message(worker))
                failed_starts += 1
                at = workers.index(worker)
                workers[at] = start(lab, worker.device, plugins, inbox)
                for i in range(at, len(tasks), len(workers)):
                    if i not in out:
                        workers[at].send({"do": "cost", "tasks": [plain(tasks[i])], "at": i})
                continue
            if isinstance(event, Refused):
                raise SaccadeError(event.reason)
            if isinstance(event, Cost):
                out[event.at] = event.values
    finally:
        _stop(workers)
    return [out[i] for i in range(len(tasks))]


def _after_death(
    lab: Lab, worker: Worker, pending: collections.deque[Task], deaths: collections.Counter[str], fatal: set[str]
) -> Iterator[Event]:
    """A worker died. Its tasks are tried again, each alone; a task that kills workers is marked failed."""
    code = worker.process.wait()
    how = f"signal {-code}, perhaps out of memory" if code < 0 else f"exit code {code}"
    if worker.silent:
        how = f"it gave no sign of life for {worker.silent:.0f} s and was ended"
    for key, task in worker.tasks.items():
        deaths[key] += 1
        if deaths[key] <= RETRIES:
            pending.appendleft(task)
            yield Died(key, how)
            continue
        reason = f"its worker process died {deaths[key]} times ({how}): {_last_message(worker)}"
        events = give_up(lab, task, reason, worker.probing.get(key, ("", 1.0)))
        yield from events
        if all(isinstance(event, ProbeFailed) for event in events):
            deaths[key] = 0
            fatal.add(key)
            pending.appendleft(task)  # for the other probes, and so that it ends as finished


def give_up(lab: Lab, task: Task, reason: str, probing: tuple[str, float]) -> Sequence[Ended | ProbeFailed]:
    """Mark what killed its workers: the run as failed, or, where it is finished, the probe that it was at."""
    key, done = task.run.key, lab.done(task.run.key)
    if done is None or done["outcome"] != Outcome.FINISHED:
        lab.finish(key, {"outcome": Outcome.FAILED, "reason": reason, "seconds": 0.0, "step": 0}, None)
        return [Ended(key, Outcome.FAILED, reason)]
    probe_key, share = probing
    events = []
    for probe in _fatal(lab, task, probe_key, share):
        version, outside = registry.card("probe", probe.name).version, identity.of_probe(probe)
        lab.put_failure(key, probe, version, reason, share, outside)
        events.append(ProbeFailed(key, probe.name, reason))
    return events


def _check_start(worker: Worker, earlier_failures: int) -> bool:
    """Whether a worker died before it was ready. Trying again for ever would loop, but one that was killed is replaced.

    A worker that ended by itself failed for a reason that would stop the next one too.
    """
    _hang_up(worker)
    if worker.tasks or worker.waiting:
        return False
    code = worker.process.wait()
    if code >= 0 or earlier_failures >= RETRIES:
        count = f" ({earlier_failures + 1} were killed at their start, the last by signal {-code})" if code < 0 else ""
        raise SaccadeError(f"a worker process could not start{count}: {_last_message(worker)}")
    return True


def _fatal(lab: Lab, task: Task, probe_key: str, share: float) -> list[Probe]:
    """The probe that a worker died of; all that are left where it died before it named one."""
    unmeasured = [p for p in task.probes if lab.rows(task.run.key, p, share) is None]
    return [p for p in unmeasured if p.key == probe_key] or unmeasured


def _last_message(worker: Worker) -> str:
    time.sleep(0.1)  # let the last lines arrive
    lines = [line.strip() for line in worker.stderr_tail if line.strip()]
    return lines[-1] if lines else "it left no message"


def _stop(workers: Sequence[Worker]) -> None:
    """End of input means: save and leave. A worker that does not is killed; what it saved before is kept."""
    for worker in workers:
        _hang_up(worker)
    deadline = time.monotonic() + PATIENCE
    for worker in workers:
        try:
            worker.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def _hang_up(worker: Worker) -> None:
    with contextlib.suppress(OSError):  # closing flushes, and the other end may be gone
        assert worker.process.stdin is not None
        worker.process.stdin.close()
