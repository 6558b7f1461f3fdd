"""The Ray launcher's work on the cluster: a supervisor that hands out tasks, and what a Ray task does with them."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import queue
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade import __version__, registry
from saccade.data.fetch import sources
from saccade.lab import bundles, launch, lease, plan
from saccade.lab.events import Begun, Broken, Busy, Cost, Died, Event, ProbeFailed, Probing, Progress, Refused, Stopped
from saccade.lab.store import Lab
from saccade.spec import TRAINING_VERSION, DamagedFile, SaccadeError, Task, plain

NODE_LOSSES = 20  # how often a task whose node was lost is tried again: not its fault, unless it ends nodes
AHEAD = 2  # bundles handed to Ray for each seat: one works, one waits, and Ray can see that there is more to do
KEPT = 20_000  # events kept for listeners that are behind
LINGER = 30.0  # seconds that a supervisor without work waits for somebody to read its last events


def import_ray() -> Any:
    """Ray, imported where it is needed: it takes half a second."""
    # It prints what its daemons say to standard output, among a command's results; what matters comes as an event.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise SaccadeError("--on ray needs Ray: pip install 'saccade[cluster]'.") from None
    return ray


@dataclass(frozen=True)
class Need:
    """What one task takes of a node, from the measured cost of its run."""

    memory: float = 0.0  # bytes
    gpu: float = 0.0  # share of a GPU

    def options(self) -> dict[str, Any]:
        resources: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
        if self.memory:
            resources["memory"] = int(self.memory)
        if self.gpu:
            resources["num_gpus"] = self.gpu
        return resources


ANY = Need()


@dataclass(frozen=True)
class Order:
    """What a supervisor needs to know; plain values, as they travel."""

    lab: str
    device: str = "cpu"
    plugins: tuple[str, ...] = ()
    retry: bool = False
    jobs: int = 0  # bundles under way at most; 0: as many as the cluster has seats
    need: Need = ANY
    silence: float = 0.0  # seconds without a sign of life after which a task is ended; 0: for ever
    env: Mapping[str, str] = field(default_factory=dict)
    version: tuple[str, int] = (__version__, TRAINING_VERSION)


@dataclass
class Flight:
    """A bundle of tasks that Ray has."""

    tasks: dict[str, Task]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)  # stands in the leases that its tasks take
    heard: float = field(default_factory=time.monotonic)
    probing: dict[str, tuple[str, float]] = field(default_factory=dict)  # key and share of the probe each task is at
    begun: bool = False
    node: str = ""  # Ray's name of the node where it began
    silent: bool = False  # ended for giving no sign of life


class Supervisor:
    """An actor. One thread works; its methods are called by commands and tasks, and only pass things on.

    Its tasks lie in the lab under its name, not in Ray's store, whose objects go with the command that made them: an
    actor that Ray starts again must find them after that command has left.
    """

    def __init__(self, order: Mapping[str, Any], name: str, mark: str) -> None:
        ray = import_ray()
        self.ray: Any = ray
        self.order = Order(
            **{**order, "need": Need(**order["need"]), "plugins": tuple(order["plugins"]), "version": ("", 0)}
        )
        self.plain_order = dict(order)
        self.lab = Lab(self.order.lab, opened=True)
        self.me = ray.get_runtime_context().current_actor
        self.born, self.name, self.mark = uuid.uuid4().hex, name, mark
        self.inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.pending: collections.deque[Task] = collections.deque()
        self.elsewhere: dict[str, tuple[Task, float]] = {}
        self.flights: dict[Any, Flight] = {}
        self.deaths: collections.Counter[str] = collections.Counter()
        self.losses: collections.Counter[str] = collections.Counter()
        self.suspects: list[tuple[str, str]] = []  # node and run of workers that died, perhaps with their node
        self.fatal: set[str] = set()  # tasks with a probe that kills workers
        self.dead: dict[str, str] = {}  # tokens of leases whose holders are known to be dead, by run
        self.news: collections.deque[Event] = collections.deque(maxlen=KEPT)
        self.sent, self.changed = 0, threading.Condition()
        self.stopping, self.ended = False, False
        self.seats, self.counted, self.room = 1, -1e9, 0.0  # room: bytes of memory of the largest node
        _check_lab(self.lab)
        for file in self.order.plugins:
            registry.load_plugin(file)
        self._take(self.lab.work(name))
        threading.Thread(target=self._work, daemon=True).start()

    # called from elsewhere

    def began_with(self, mark: str) -> bool:
        """Whether these are the tasks that it was started with, and it has not ended."""
        return self.mark == mark and not self.ended

    def add(self, tasks: Sequence[Mapping[str, Any]]) -> bool:
        """More tasks; False when this supervisor has ended."""
        if not self.ended:
            self.inbox.put(("add", list(tasks)))
        return not self.ended

    def tell(self, events: Sequence[Event]) -> bool:
        """From a task: what happened; it may continue while this says so."""
        self.inbox.put(("tell", list(events)))
        return not self.stopping

    def hear(self, born: str, after: int) -> tuple[str, int, list[Event], bool]:
        """Events after that number; waits a moment for some. Another `born` means that numbers started again."""
        with self.changed:
            if born != self.born:
                after = 0
            if self.sent <= after and not self.ended:
                self.changed.wait(0.5)
            fresh = min(self.sent - after, len(self.news))
            events = [self.news[i] for i in range(len(self.news) - fresh, len(self.news))]
            return self.born, self.sent, events, self.ended

    def stop(self) -> None:
        self.stopping = True

    def over(self) -> bool:
        return self.ended

    # the working thread

    def _work(self) -> None:
        try:
            while self.pending or self.elsewhere or self.flights or not self.inbox.empty():
                self._turn()
        except Exception as error:
            self._publish(Broken(reason=reason_of(error)))
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        with contextlib.suppress(OSError):  # a lab that has gone away
            self.lab.end_work(self.name)
        time.sleep(LINGER)
        self.ray.kill(self.me, no_restart=True)

    def _turn(self) -> None:
        self._drain()
        if self.stopping:
            self._wind_up()
        else:
            self._submit()
            self._look_elsewhere()
            self._end_silent_ones()
        if not self.flights:
            time.sleep(0.05)
            return
        done, _ = self.ray.wait(list(self.flights), num_returns=min(64, len(self.flights)), timeout=0.05)
        self._drain()
        for ref in done:
            self._land(ref, self.flights.pop(ref))

    def _drain(self) -> None:
        by_key = {key: flight for flight in self.flights.values() for key in flight.tasks}
        while not self.inbox.empty():
            what, events = self.inbox.get()
            if what == "add":
                self.lab.put_work(self.name, [*self.lab.work(self.name), *events])
                self._take(events)
                continue
            for event in events:
                flight = by_key.get(event.key)
                if flight is None or event.key not in flight.tasks:
                    continue  # a late event of a task that has ended
                flight.heard, flight.begun = time.monotonic(), True
                if isinstance(event, Begun):
                    flight.node = event.node
                    continue
                if isinstance(event, Probing):
                    flight.probing[event.key] = (event.probe_key, event.share)
                if event.frees:
                    self._free(flight, event)
                else:
                    self._publish(event)

    def _take(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        under_way = {key for flight in self.flights.values() for key in flight.tasks}
        known_keys = under_way | self.elsewhere.keys() | {t.run.key for t in self.pending}
        self.pending.extend(t for t in map(Task.parse, tasks) if t.run.key not in known_keys)

    def _submit(self) -> None:
        if time.monotonic() - self.counted > 10:  # clusters grow and shrink
            self.seats, self.counted = self._count_seats(), time.monotonic()
            self._forgive()
        most = self.order.jobs or AHEAD * self.seats
        place = "cpu" if self.order.device == "cpu" else "cuda"
        while self.pending and len(self.flights) < most:
            alone = self.deaths.keys() | self.losses.keys()
            bundle = bundles.bundle(self.pending, self.order.jobs or self.seats, place, alone)
            # A task that ran out of memory is alone now; it gets twice as much each time, but what some node can give.
            measured_memory = self.order.need.memory
            memory = max(measured_memory, min(measured_memory * 2 ** self.deaths[bundle[0].run.key], self.room))
            need = Need(memory, self.order.need.gpu)
            remote = self.ray.remote(_perform).options(**need.options(), runtime_env={"env_vars": dict(self.order.env)})
            tasks = {t.run.key: t for t in bundle}
            flight = Flight(tasks)
            order = {
                **self.plain_order,
                "retry": self.order.retry and not self.fatal & tasks.keys(),
                "flight": flight.id,
                "dead": [token for key in tasks if (token := self.dead.pop(key, ""))],
            }
            ref = remote.remote(order, [plain(t) for t in bundle], self.me, max(1.0, self.seats / 50))
            self.flights[ref] = flight

    def _count_seats(self) -> int:
        resources = self.ray.cluster_resources()
        self.room = max((n["Resources"].get("memory", 0.0) for n in self.ray.nodes() if n["Alive"]), default=0.0)
        if self.order.need.gpu:
            return max(1, int(resources.get("GPU", 0) / self.order.need.gpu))
        return max(1, int(resources.get("CPU", 1)))

    def _look_elsewhere(self) -> None:
        """Runs that somebody else has. Only this process looks long enough to see that a far machine is dead."""
        pause = launch.POLL * max(1, len(self.elsewhere) / 100)
        for key, (task, next_look) in list(self.elsewhere.items()):
            if time.monotonic() < next_look:
                continue
            path = self.lab.folder(key) / "lease"
            sight = lease.look(path)
            if sight is not None and lease.alive(path, sight):
                self.elsewhere[key] = (task, time.monotonic() + pause)
                continue
            if sight is not None:
                self.dead[key] = sight.token
            del self.elsewhere[key]
            self.pending.append(task)

    def _end_silent_ones(self) -> None:
        if not self.order.silence:
            return
        for ref, flight in self.flights.items():
            if flight.begun and not flight.silent and time.monotonic() - flight.heard > self.order.silence:
                flight.silent = True
                self.ray.cancel(ref, force=True)

    def _wind_up(self) -> None:
        """Those that run learn of it with their next event, and save; those that wait are taken back.

        By force: one whose worker is still starting has nothing to save, and would hear of it only after that.
        """
        self.pending.clear()
        self.elsewhere.clear()
        for ref, flight in self.flights.items():
            if not flight.begun and not flight.silent:
                flight.silent = True
                self.ray.cancel(ref, force=True)

    def _free(self, flight: Flight, event: Event) -> None:
        task = flight.tasks.pop(event.key)
        if isinstance(event, Busy):
            self.elsewhere[task.run.key] = (task, time.monotonic() + launch.POLL)
        self._publish(event)

    def _land(self, ref: Any, flight: Flight) -> None:
        """A bundle is over. Whatever of it has not been reported yet is in its result, or was lost with its worker."""
        errors = self.ray.exceptions
        try:
            for event in self.ray.get(ref):
                if event.key in flight.tasks:
                    self._free(flight, event)
            return
        except (errors.RayTaskError, errors.RuntimeEnvSetupError, errors.TaskUnschedulableError) as error:
            for key in list(flight.tasks):  # a node without the lab, the data or the plug-in
                self._free(flight, Refused(key, reason_of(error)))
            return
        except (errors.TaskCancelledError, errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            how, counter, most = _how(error), self.deaths, launch.RETRIES
            if flight.silent:
                how = f"it gave no sign of life for {self.order.silence:.0f} s and was ended"
            elif isinstance(error, errors.WorkerCrashedError):
                self.suspects += [(flight.node, key) for key in flight.tasks]
        except errors.RayError as error:  # of the node itself, or of the object that held the result
            how, counter, most = f"its node was lost ({type(error).__name__})", self.losses, NODE_LOSSES
        for key, task in flight.tasks.items():
            sight = lease.look(self.lab.folder(key) / "lease")
            if sight is not None and sight.body.get("purpose") == flight.id:
                self.dead[key] = sight.token  # on whatever node it was: nobody has to wait until it counts as dead
            if self.stopping:
                self._publish(Stopped(key))
                continue
            counter[key] += 1
            if counter[key] > most:
                self._forgive()
            if counter[key] <= most:
                self.pending.appendleft(task)
                self._publish(Died(key, how))
                continue
            reason = f"its worker died {counter[key]} times; the last time {how}"
            ends = launch.give_up(self.lab, task, reason, flight.probing.get(key, ("", 1.0)))
            for event in ends:
                self._publish(event)
            if all(isinstance(event, ProbeFailed) for event in ends):
                counter[key] = 0
                self.fatal.add(key)
                self.pending.appendleft(task)  # for the other probes, and so that it ends as finished

    def _forgive(self) -> None:
        """A lost node is first seen as a crashed worker: once Ray knows better, that was not the run's own death."""
        if not self.suspects:
            return
        lost_nodes = {node["NodeID"] for node in self.ray.nodes() if not node["Alive"]}
        for node, key in self.suspects:
            if node in lost_nodes and self.deaths[key]:
                self.deaths[key] -= 1
                self.losses[key] += 1
        self.suspects = [(node, key) for node, key in self.suspects if node not in lost_nodes]

    def _publish(self, event: Event) -> None:
        with self.changed:
            self.news.append(event)
            self.sent += 1
            self.changed.notify_all()


def _how(error: Exception) -> str:
    name = type(error).__name__
    return "its node was out of memory" if name == "OutOfMemoryError" else f"it was ended from outside ({name})"


def _perform(
    order: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], supervisor: Any, every: float
) -> list[Event]:
    """A Ray task: a bundle of tasks done in this process. Gives back how each ended."""
    ray = import_ray()
    bundle = [Task.parse(t) for t in tasks]
    keys = [t.run.key for t in bundle]
    try:
        _check(order, bundle)
    except SaccadeError as error:
        return [Refused(key, f"{_node()}: {error}") for key in keys]
    from saccade.lab import together  # loads torch, which a supervisor does without

    lease.purpose = order["flight"]
    for token in order["dead"]:
        lease.believe_dead(token)
    stop = threading.Event()
    node = ray.get_runtime_context().get_node_id()
    answer = supervisor.tell.remote([Begun(key, node) for key in keys])
    asked_at = reported_at = time.monotonic()
    endings: list[Event] = []

    def stopping() -> bool:
        """Looks at the last answer only: a question of its own for every step would cost more than the step."""
        nonlocal asked_at
        if not stop.is_set() and time.monotonic() - asked_at > 0.25:
            asked_at = time.monotonic()
            ready, _ = ray.wait([answer], timeout=0)
            with contextlib.suppress(ray.exceptions.RayError):
                if ready and not ray.get(ready[0]):
                    stop.set()
        return stop.is_set()

    with _term_means(stop):
        for event in together.perform(Lab(order["lab"], opened=True), bundle, _device(order), stopping, order["retry"]):
            if event.frees:
                endings.append(event)
            elif isinstance(event, Progress) and time.monotonic() - reported_at < every:
                continue  # on a large cluster each task reports less
            reported_at = time.monotonic()
            answer = supervisor.tell.remote([event])
    return endings


def cost(order: Mapping[str, Any], task: Mapping[str, Any]) -> Cost | Refused:
    """A Ray task: what a step of this task takes on the node that Ray chose."""
    try:
        parsed_task = Task.parse(task)
        _check(order, [parsed_task])
        from saccade.training import cost as measured

        return Cost(values=measured.cost(parsed_task.run, _device(order)))
    except SaccadeError as error:
        return Refused(reason=f"{_node()}: {error}")


def _device(order: Mapping[str, Any]) -> str:
    return "cuda:0" if order["device"].startswith("cuda") else "cpu"  # Ray shows a task its own GPUs only


def _node() -> str:
    return f"node {socket.gethostname()}"


def _check(order: Mapping[str, Any], tasks: Sequence[Task]) -> None:
    """Whether this node can do the work: the same saccade, the lab, the plug-ins, the data."""
    import torch

    torch.set_num_threads(1)
    if tuple(order["version"]) != (__version__, TRAINING_VERSION):
        raise SaccadeError(
            f"saccade {__version__} (training {TRAINING_VERSION}) is installed here and the command was given with "
            f"{order['version'][0]} (training {order['version'][1]}); install the same on every node."
        )
    _check_lab(Lab(order["lab"]))
    for file in order["plugins"]:
        stamp = Path(file).stat().st_mtime_ns if Path(file).is_file() else 0
        _load_once(file, stamp)
    for name in plan.sets_of(tasks):
        _fetch_once(name)


def _check_lab(lab: Lab) -> None:
    if not lab.is_there():
        raise SaccadeError(f"the lab {lab.root} is not to be seen; it must lie in a folder that all nodes share.")


@functools.cache
def _load_once(file: str, stamp: int) -> None:
    registry.load_plugin(file)


@functools.cache
def _fetch_once(name: str) -> None:
    if name not in sources.DRAWN and sources.status(name).state == "not fetched":
        sources.fetch(name)


@contextlib.contextmanager
def _term_means(stop: threading.Event) -> Iterator[None]:
    """SIGTERM (a preempted node) saves; Ray's own handler would end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def reason_of(error: BaseException) -> str:
    """The sentence behind one of Ray's errors. Of an actor that could not start Ray keeps a printed traceback."""
    cause = getattr(error, "cause", None)
    reasons = re.findall(rf"^\S*\b(?:{SaccadeError.__name__}|{DamagedFile.__name__}): (.+)$", str(error), re.MULTILINE)
    return str(reasons[-1]) if reasons else first_line(cause if isinstance(cause, BaseException) else error)


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
