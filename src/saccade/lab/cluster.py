"""The Ray launcher: tasks become Ray tasks, with the event stream of `launch.local`. Ray decides where; this file asks.

A supervisor (an actor that takes no CPU) hands bundles of tasks to Ray and collects what they tell. On a cluster it
outlives the command that started it, and the same command given again listens to it. It knows nothing that the lab
does not know: when its node is lost, Ray starts it afresh, and every task finds in the lab how far it had come.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import queue
import signal
import socket
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade import __version__, registry
from saccade.data.fetch import sources
from saccade.lab import launch, plan
from saccade.lab.launch import Event, parse_task
from saccade.lab.store import Lab
from saccade.spec import TRAINING_VERSION, SaccadeError, Task, plain

NAMESPACE = "saccade"
NODE_LOSSES = 20  # how often a task whose node was lost is tried again: not its fault, unless it ends nodes
AHEAD = 2  # bundles handed to Ray for each seat: one works, one waits, and Ray can see that there is more to do
KEPT = 20_000  # events kept for listeners that are behind
LINGER = 30.0  # seconds that a supervisor without work waits for somebody to read its last events
REACH = 5.0  # seconds to find out whether there is anything at an address
ENDED = ("finished", "diverged", "timeout", "failed", "refused")
SPARE = 1.2  # of measured memory, for what a few steps did not show


@dataclass(frozen=True)
class Need:
    """What one task takes of a node, from the measured cost of its run."""

    memory: float = 0.0  # bytes
    gpu: float = 0.0  # share of a GPU

    def options(self) -> dict[str, Any]:
        told: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
        if self.memory:
            told["memory"] = int(self.memory)
        if self.gpu:
            told["num_gpus"] = self.gpu
        return told


ANY = Need()


def need_of(device: str, resident: float, memory: float = 0.0, device_memory: float = 0.0) -> Need:
    """From bytes of main memory, and bytes needed and present on a GPU of which half is left alone."""
    if not device.startswith("cuda"):
        return Need(SPARE * resident)
    share = 2 * memory / device_memory if memory and device_memory else 1.0
    return Need(SPARE * resident, min(1.0, max(1 / launch.SHARERS, share)))


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


# -- the cluster


def _ray() -> Any:
    """Ray, imported where it is needed: it takes half a second."""
    # It prints what its daemons say to standard output, among a command's results; what matters comes as an event.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise SaccadeError("--on ray needs Ray: pip install 'saccade[cluster]'.") from None
    return ray


def connect(address: str = "") -> bool:
    """Join the cluster at an address, or this machine's, or start one; True where it ends with this process."""
    ray = _ray()
    if ray.is_initialized():
        return _own
    if "://" in address:
        raise SaccadeError(f"--on takes ray:HOST:PORT, not {address}; give the command on a node of the cluster.")
    asked = address or os.environ.get("RAY_ADDRESS", "")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "namespace": NAMESPACE}
    before = signal.getsignal(signal.SIGTERM)
    try:
        if asked and asked not in ("auto", "local"):
            _reach(asked)
            ray.init(address=asked, **quiet)
        else:
            try:
                ray.init(address="auto" if asked != "local" else "local", **quiet)
            except ConnectionError:
                _start(ray, quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SaccadeError(f"the Ray cluster at {asked or 'this machine'} cannot be joined: {_first(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray takes it for itself; here it means: save and stop
    return _own


_own = False


def _start(ray: Any, quiet: Mapping[str, Any]) -> None:
    global _own
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # as worker processes without Ray
    # Nothing large travels through Ray's own store: weights go to the lab.
    ray.init(address="local", num_cpus=launch.cores(), include_dashboard=False, object_store_memory=10**8, **quiet)
    _own = True


def is_own() -> bool:
    """Whether the cluster was started by this process, and ends with it."""
    return _own


def disconnect() -> None:
    global _own
    _ray().shutdown()
    _own = False


def _reach(address: str) -> None:
    """Ray itself takes two minutes to notice that there is nobody."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, ValueError, OverflowError) as error:
        raise SaccadeError(
            f"no Ray cluster answers at {address} ({_first(error)}); start one with `ray start --head`, or see "
            "docs/scale.md for Slurm."
        ) from None


def devices(device: str, jobs: int | None = None) -> list[str]:
    """One entry a seat of the cluster, as `launch.devices` does for one machine."""
    ray = _ray()
    if jobs is not None and jobs < 1:
        raise SaccadeError(f"--jobs must be at least 1, not {jobs}.")
    kind = device.partition(":")[0]
    if kind not in ("auto", "cpu", "cuda"):
        raise SaccadeError(f"on Ray --device is auto, cpu or cuda, not {device}.")
    have = ray.cluster_resources()
    gpus = int(have.get("GPU", 0)) if kind != "cpu" else 0
    if kind == "cuda" and not gpus:
        raise SaccadeError("no node of the Ray cluster has a GPU; use --device cpu or auto.")
    return ["cuda"] * (jobs or gpus) if gpus else ["cpu"] * (jobs or max(1, int(have.get("CPU", 1))))


def check_room(need: Need) -> None:
    """A task larger than every node would wait for ever, and Ray says so only in a log."""
    ray = _ray()
    largest = max((n["Resources"].get("memory", 0.0) for n in ray.nodes() if n["Alive"]), default=0.0)
    if need.memory > largest:
        raise SaccadeError(
            f"a run of this study needs about {need.memory / 2**30:.1f} GiB of memory and the largest node of the Ray "
            f"cluster offers {largest / 2**30:.1f}; add a larger node."
        )


# -- the command's side


def on_ray(
    tasks: Sequence[Task],
    lab: Lab,
    *,
    places: Sequence[str],
    plugins: Sequence[str] = (),
    retry: bool = False,
    name: str = "",
    jobs: int | None = None,
    need: Need = ANY,
    silence: float = 0.0,
) -> Generator[Event, None, None]:
    """Do all tasks on the cluster that `connect` has joined, and yield what they tell until all have ended.

    The first event, `handed over`, says that the cluster has all of them. `name` says which work this is: a second
    command of that name listens to the first one's supervisor. Closing the events has the work saved and ended, unless
    `leave` was called for that name.
    """
    name = name or uuid.uuid4().hex
    ray, order = _ray(), _order(lab, places[0], plugins, retry, jobs, need, silence)
    left = {t.run.key: t for t in tasks}
    while left:
        supervisor = _supervisor(order, name, list(left.values()))
        try:
            yield {"event": "handed over", "task": None}
            for event in _listen(supervisor):
                key = event.get("key", "")
                if key in left:
                    yield {**event, "task": left[key]}
                if event["event"] in ENDED:
                    left.pop(key, None)
                if event["event"] == "broken":
                    raise SaccadeError(event["reason"])
                if not left:
                    break
            else:
                return  # it was asked to stop
        except ray.exceptions.RayActorError:  # lost with its node: Ray starts it afresh, or it had nothing more to do
            time.sleep(1.0)
        except GeneratorExit:
            if name not in _left:
                cancel(name)
            raise


_left: set[str] = set()  # names of work that goes on without this process


def leave(name: str) -> None:
    """Whoever closes the events of this work leaves it running."""
    _left.add(name)


def cancel(name: str, patience: float = launch.PATIENCE) -> None:
    """Ask the supervisor of this name to save and stop, and wait until it has."""
    ray = _ray()
    try:
        supervisor = ray.get_actor(name, namespace=NAMESPACE)
        ray.get(supervisor.stop.remote(), timeout=patience)
        deadline = time.monotonic() + patience
        while not ray.get(supervisor.over.remote(), timeout=patience) and time.monotonic() < deadline:
            time.sleep(0.1)
        ray.kill(supervisor)
    except (ValueError, ray.exceptions.RayError):  # there is none, or no more
        return


def costs(
    tasks: Sequence[Task], lab: Lab, device: str, plugins: Sequence[str] = (), gpu: bool = False
) -> list[dict[str, Any]]:
    """Measured cost of each task's model, on whatever nodes Ray chooses."""
    ray = _ray()
    order = _order(lab, device, plugins, False, None, Need(gpu=1.0 if gpu else 0.0), 0.0)
    measure = ray.remote(_cost).options(**order.need.options(), runtime_env={"env_vars": dict(order.env)})
    try:
        told: list[dict[str, Any]] = ray.get([measure.remote(plain(order), plain(t)) for t in tasks])
    except ray.exceptions.RayError as error:
        raise SaccadeError("the cost of a run could not be measured on the cluster: " + _reason(error)) from error
    if refused := next((t["reason"] for t in told if t.get("event") == "refused"), ""):
        raise SaccadeError(refused)
    return told


def _order(
    lab: Lab,
    place: str,
    plugins: Sequence[str],
    retry: bool,
    jobs: int | None,
    need: Need,
    silence: float,
) -> Order:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    ours = {k: v for k, v in os.environ.items() if k.startswith("SACCADE_")}
    files = tuple(str(Path(p).resolve()) for p in plugins)
    return Order(
        str(lab.root.resolve()), place, files, retry, jobs or 0, need, silence, {**launch.ALLOCATOR, **threads, **ours}
    )


def _supervisor(order: Order, name: str, tasks: Sequence[Task]) -> Any:
    """The one of this name, started if there is none, with these tasks among its own."""
    ray = _ray()
    life: dict[str, Any] = {} if _own else {"lifetime": "detached", "max_restarts": -1}
    # Near the command, if it can be: that node was not chosen for being cheap to lose.
    near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=True
    )
    kind = ray.remote(Supervisor).options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        num_cpus=0,
        max_concurrency=8,
        scheduling_strategy=near,
        **life,
    )
    asked = [plain(t) for t in tasks]
    for _ in range(10):
        supervisor = kind.remote(plain(order), asked)
        try:
            if ray.get(supervisor.add.remote(asked)):
                return supervisor
            ray.kill(supervisor)  # it has ended and only waited for readers
        except ray.exceptions.RayTaskError as error:
            raise SaccadeError(_reason(error)) from error
        except ray.exceptions.RayActorError as error:
            if "creation task" in str(error):
                raise SaccadeError(
                    "the supervisor could not start on the cluster; is saccade installed on every node? "
                    + _reason(error)
                ) from error
        time.sleep(0.5)
    raise SaccadeError(f"the supervisor {name} on the Ray cluster ends whenever it is started; see Ray's own logs.")


def _listen(supervisor: Any) -> Iterator[Event]:
    """Its events, those kept from before first. Ends when the supervisor has ended."""
    ray = _ray()
    born, after = "", 0
    while True:
        now, after, events, over = ray.get(supervisor.hear.remote(born, after))
        born = now
        yield from events
        if over and not events:
            return


# -- the cluster's side


@dataclass
class Flight:
    """A bundle of tasks that Ray has."""

    tasks: dict[str, Task]
    heard: float = field(default_factory=time.monotonic)
    begun: bool = False
    silent: bool = False  # ended for giving no sign of life


class Supervisor:
    """An actor. One thread works; its methods are called by commands and tasks, and only pass things on."""

    def __init__(self, order: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> None:
        ray = _ray()
        self.ray: Any = ray
        self.order = Order(
            **{**order, "need": Need(**order["need"]), "plugins": tuple(order["plugins"]), "version": ("", 0)}
        )
        self.plain_order = dict(order)
        self.lab = Lab(self.order.lab)
        self.me = ray.get_runtime_context().current_actor
        self.born = uuid.uuid4().hex
        self.inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.pending: collections.deque[Task] = collections.deque()
        self.elsewhere: dict[str, tuple[Task, float]] = {}
        self.flights: dict[Any, Flight] = {}
        self.deaths: collections.Counter[str] = collections.Counter()
        self.losses: collections.Counter[str] = collections.Counter()
        self.news: collections.deque[Event] = collections.deque(maxlen=KEPT)
        self.told, self.changed = 0, threading.Condition()
        self.stopping, self.ended = False, False
        self.seats, self.counted = 1, -1e9
        for file in self.order.plugins:
            registry.load_plugin(file)
        self._take(tasks)
        threading.Thread(target=self._work, daemon=True).start()

    # called from elsewhere

    def add(self, tasks: Sequence[Mapping[str, Any]]) -> bool:
        """More tasks; False when this supervisor has ended."""
        if not self.ended:
            self.inbox.put(("add", list(tasks)))
        return not self.ended

    def tell(self, events: Sequence[Event]) -> bool:
        """From a task: what happened; it may go on while this says so."""
        self.inbox.put(("tell", list(events)))
        return not self.stopping

    def hear(self, born: str, after: int) -> tuple[str, int, list[Event], bool]:
        """Events after that number; waits a moment for some. Another `born` means that numbers began anew."""
        with self.changed:
            if born != self.born:
                after = 0
            if self.told <= after and not self.ended:
                self.changed.wait(0.5)
            fresh = min(self.told - after, len(self.news))
            events = [self.news[i] for i in range(len(self.news) - fresh, len(self.news))]
            return self.born, self.told, events, self.ended

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
            self._publish({"event": "broken", "reason": _reason(error)})
        with self.changed:
            self.ended = True
            self.changed.notify_all()
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
            what, told = self.inbox.get()
            if what == "add":
                self._take(told)
                continue
            for event in told:
                flight = by_key.get(event["key"])
                if flight is None or event["key"] not in flight.tasks:
                    continue  # an echo of a task that has ended
                flight.heard, flight.begun = time.monotonic(), True
                if event["event"] in launch.FREE:
                    self._free(flight, event)
                elif event["event"] != "begun":
                    self._publish(event)

    def _take(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        under_way = {key for flight in self.flights.values() for key in flight.tasks}
        have = under_way | self.elsewhere.keys() | {t.run.key for t in self.pending}
        self.pending.extend(t for t in map(parse_task, tasks) if t.run.key not in have)

    def _submit(self) -> None:
        if time.monotonic() - self.counted > 10:  # clusters grow and shrink
            self.seats, self.counted = self._count_seats(), time.monotonic()
        most = self.order.jobs or AHEAD * self.seats
        place = "cpu" if self.order.device == "cpu" else "cuda"
        while self.pending and len(self.flights) < most:
            alone = self.deaths.keys() | self.losses.keys()
            some = launch.bundle(self.pending, self.order.jobs or self.seats, place, alone)
            # A task that ran out of memory is alone now; it gets twice as much each time.
            need = Need(self.order.need.memory * 2 ** self.deaths[some[0].run.key], self.order.need.gpu)
            remote = self.ray.remote(_perform).options(**need.options(), runtime_env={"env_vars": dict(self.order.env)})
            ref = remote.remote(self.plain_order, [plain(t) for t in some], self.me, max(1.0, self.seats / 50))
            self.flights[ref] = Flight({t.run.key: t for t in some})

    def _count_seats(self) -> int:
        have = self.ray.cluster_resources()
        if self.order.need.gpu:
            return max(1, int(have.get("GPU", 0) / self.order.need.gpu))
        return max(1, int(have.get("CPU", 1)))

    def _look_elsewhere(self) -> None:
        for key, (late, again) in list(self.elsewhere.items()):
            if time.monotonic() > again:
                del self.elsewhere[key]
                self.pending.append(late)

    def _end_silent_ones(self) -> None:
        if not self.order.silence:
            return
        for ref, flight in self.flights.items():
            if flight.begun and not flight.silent and time.monotonic() - flight.heard > self.order.silence:
                flight.silent = True
                self.ray.cancel(ref, force=True)

    def _wind_up(self) -> None:
        """Those that run hear of it when they tell something, and save; those that wait are taken back."""
        self.pending.clear()
        self.elsewhere.clear()
        for ref, flight in self.flights.items():
            if not flight.begun and not flight.silent:
                flight.silent = True
                self.ray.cancel(ref)

    def _free(self, flight: Flight, event: Event) -> None:
        task = flight.tasks.pop(event["key"])
        if event["event"] == "busy":
            self.elsewhere[task.run.key] = (task, time.monotonic() + launch.POLL)
        self._publish(event)

    def _land(self, ref: Any, flight: Flight) -> None:
        """A bundle is over. Whatever of it has not been told yet is in its result, or was lost with its worker."""
        errors = self.ray.exceptions
        try:
            for event in self.ray.get(ref):
                if event["key"] in flight.tasks:
                    self._free(flight, event)
            return
        except (errors.NodeDiedError, errors.LocalRayletDiedError, errors.OwnerDiedError) as error:
            how, counter, most = f"its node was lost ({type(error).__name__})", self.losses, NODE_LOSSES
        except (errors.TaskCancelledError, errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            how, counter, most = _how(error), self.deaths, launch.RETRIES
            if flight.silent:
                how = f"it gave no sign of life for {self.order.silence:.0f} s and was ended"
        except errors.RayTaskError as error:  # a node without the lab, the data or the plug-in
            for key in list(flight.tasks):
                self._free(flight, {"event": "refused", "key": key, "reason": _reason(error)})
            return
        for key, task in flight.tasks.items():
            if self.stopping:
                self._publish({"event": "stopped", "key": key})
                continue
            counter[key] += 1
            if counter[key] <= most:
                self.pending.appendleft(task)
                self._publish({"event": "worker died", "key": key, "how": how})
                continue
            reason = f"its worker died {counter[key]} times; the last time {how}"
            self.lab.finish(key, {"outcome": "failed", "reason": reason, "seconds": 0.0, "step": 0}, None)
            self._publish({"event": "failed", "key": key, "reason": reason})

    def _publish(self, event: Event) -> None:
        with self.changed:
            self.news.append(event)
            self.told += 1
            self.changed.notify_all()


def _how(error: Exception) -> str:
    name = type(error).__name__
    return "its node was out of memory" if name == "OutOfMemoryError" else f"it was ended from outside ({name})"


def _perform(
    order: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], supervisor: Any, every: float
) -> list[Event]:
    """A Ray task: a bundle of tasks done in this process. Gives back how each ended."""
    ray = _ray()
    some = [parse_task(t) for t in tasks]
    keys = [t.run.key for t in some]
    try:
        _check(order, some)
    except SaccadeError as error:
        return [{"event": "refused", "key": key, "reason": f"{_node()}: {error}"} for key in keys]
    from saccade.lab import worker

    stop = threading.Event()
    answer = supervisor.tell.remote([{"event": "begun", "key": key} for key in keys])
    asked = told = time.monotonic()
    endings: list[Event] = []

    def stopping() -> bool:
        """Looks at the last answer only: a question of its own for every step would cost more than the step."""
        nonlocal asked
        if not stop.is_set() and time.monotonic() - asked > 0.25:
            asked = time.monotonic()
            ready, _ = ray.wait([answer], timeout=0)
            with contextlib.suppress(ray.exceptions.RayError):
                if ready and not ray.get(ready[0]):
                    stop.set()
        return stop.is_set()

    with _term_means(stop):
        for event in worker.perform_together(Lab(order["lab"]), some, _device(order), stopping, order["retry"]):
            if event["event"] in launch.FREE:
                endings.append(event)
            elif event["event"] == "step" and time.monotonic() - told < every:
                continue  # on a large cluster each task tells less
            told = time.monotonic()
            answer = supervisor.tell.remote([event])
    return endings


def _cost(order: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    try:
        asked = parse_task(task)
        _check(order, [asked])
        from saccade.training import cost

        return dict(cost.cost(asked.run, _device(order)))
    except SaccadeError as error:
        return {"event": "refused", "reason": f"{_node()}: {error}"}


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
    if not (Path(order["lab"]) / ".saccade").exists():
        raise SaccadeError(f"the lab {order['lab']} is not to be seen; it must lie in a folder that all nodes share.")
    for file in order["plugins"]:
        stamp = Path(file).stat().st_mtime_ns if Path(file).is_file() else 0
        _load_once(file, stamp)
    for name in plan.sets_of(tasks):
        _fetch_once(name)


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


def _reason(error: BaseException) -> str:
    """The sentence behind one of Ray's errors."""
    cause = getattr(error, "cause", None)
    return _first(cause if isinstance(cause, BaseException) else error)


def _first(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
