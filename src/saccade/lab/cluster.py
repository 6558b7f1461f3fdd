"""The Ray launcher: tasks become Ray tasks, with the event stream of `launch.local`. Ray decides where; this file asks.

A supervisor (an actor that takes no CPU) hands bundles of tasks to Ray and collects their events. On a cluster it
outlives the command that started it, and the same command given again listens to it. It knows nothing that the lab
does not know: when its node is lost, Ray starts it again, and every task finds in the lab how far it had come.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.lab import launch
from saccade.lab.events import Broken, Cost, Event, HandedOver, Refused
from saccade.lab.store import Lab
from saccade.lab.supervisor import ANY, Need, Order, Supervisor, cost, first_line, import_ray, reason_of
from saccade.spec import SaccadeError, Task, digest, plain

NAMESPACE = "saccade"
REACH = 5.0  # seconds to find out whether there is anything at an address
SPARE = 1.2  # of measured memory, for what a few steps did not show


def need_of(device: str, resident: float, memory: float = 0.0, device_memory: float = 0.0) -> Need:
    """From bytes of main memory, and bytes needed and present on a GPU of which half is left alone."""
    if not device.startswith("cuda"):
        return Need(SPARE * resident)
    share = 2 * memory / device_memory if memory and device_memory else 1.0
    return Need(SPARE * resident, min(1.0, max(1 / launch.SHARERS, share)))


# -- the cluster


def connect(address: str = "") -> bool:
    """Join the cluster at an address, or this machine's, or start one; True where it ends with this process."""
    ray = import_ray()
    if ray.is_initialized():
        return _own
    if "://" in address:
        raise SaccadeError(f"--on takes ray:HOST:PORT, not {address}; give the command on a node of the cluster.")
    target = address or os.environ.get("RAY_ADDRESS", "")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "namespace": NAMESPACE}
    before = signal.getsignal(signal.SIGTERM)
    try:
        if target and target not in ("auto", "local"):
            _reach(target)
            ray.init(address=target, **quiet)
        elif target == "local" or _is_gone():
            _start(ray, quiet)
        else:
            try:
                ray.init(address="auto", **quiet)
            except ConnectionError:
                _start(ray, quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SaccadeError(
            f"the Ray cluster at {target or 'this machine'} cannot be joined: {first_line(error)}"
        ) from error
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


def address() -> str:
    """Of the cluster that this process has joined."""
    return str(import_ray().get_runtime_context().gcs_address)


def disconnect() -> None:
    global _own
    import_ray().shutdown()
    _own = False


def _reach(address: str) -> None:
    """Ray itself takes minutes to notice that there is nobody, or somebody else."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise SaccadeError(f'--on takes ray:HOST:PORT, not "ray:{address}"; `ray start --head` says which.')
    try:
        with socket.create_connection((host.strip("[]"), int(port)), REACH) as line:
            line.settimeout(4 * REACH)
            speaks = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_grpc(line)
    except OSError as error:
        raise SaccadeError(
            f"no Ray cluster answers at {address} ({first_line(error)}); start one with `ray start --head`, or see "
            "docs/scale.md for Slurm."
        ) from None
    if not speaks:
        raise SaccadeError(f"what answers at {address} is no Ray cluster; `ray start --head` says where one is.")


def _is_gone() -> bool:
    """Whether Ray remembers a cluster of this machine that no longer answers, as a killed one leaves behind."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        _reach((Path(folder) / "ray" / "ray_current_cluster").read_text("utf-8").strip())
    except OSError:  # it remembers none
        return False
    except SaccadeError:
        return True
    return False


def _speaks_grpc(line: socket.socket) -> bool:
    """Whether the answer to an HTTP/2 greeting is one: nine bytes, of which the fourth says `settings`."""
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    return line.recv(9, socket.MSG_WAITALL)[3:4] == b"\4"


def devices(device: str, jobs: int | None = None) -> list[str]:
    """One entry a seat of the cluster, as `launch.devices` does for one machine."""
    ray = import_ray()
    if jobs is not None and jobs < 1:
        raise SaccadeError(f"--jobs must be at least 1, not {jobs}.")
    kind = device.partition(":")[0]
    if kind not in ("auto", "cpu", "cuda"):
        raise SaccadeError(f"on Ray --device is auto, cpu or cuda, not {device}.")
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if kind != "cpu" else 0
    if kind == "cuda" and not gpus:
        raise SaccadeError("no node of the Ray cluster has a GPU; use --device cpu or auto.")
    return ["cuda"] * (jobs or gpus) if gpus else ["cpu"] * (jobs or max(1, int(resources.get("CPU", 1))))


def check_room(need: Need) -> None:
    """A task larger than every node would wait for ever, and Ray says so only in a log."""
    ray = import_ray()
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
    """Do all tasks on the cluster that `connect` has joined, and yield their events until all have ended.

    The first event, `handed over`, says that the cluster has all of them. `name` says which work this is: a second
    command of that name listens to the first one's supervisor. Closing the events has the work saved and ended, unless
    `leave` was called for that name.
    """
    name = name or uuid.uuid4().hex
    ray, order = import_ray(), _order(lab, places[0], plugins, retry, jobs, need, silence)
    unfinished = {t.run.key: t for t in tasks}
    while unfinished:
        actor = _supervisor(order, name, list(unfinished.values()))
        try:
            yield HandedOver()
            for event in _listen(actor):
                if event.key in unfinished:
                    yield event
                if event.ends:
                    unfinished.pop(event.key, None)
                if isinstance(event, Broken):
                    raise SaccadeError(event.reason)
                if not unfinished:
                    break
            else:
                return  # it was asked to stop
        except ray.exceptions.RayActorError:  # lost with its node: Ray starts it again, or it had nothing more to do
            time.sleep(1.0)
        except GeneratorExit:
            if name not in _left:
                cancel(name)
            raise


_left: set[str] = set()  # names of work that continues without this process


def leave(name: str) -> None:
    """Whoever closes the events of this work leaves it running."""
    _left.add(name)


def cancel(name: str, patience: float = launch.PATIENCE) -> None:
    """Ask the supervisor of this name to save and stop, and wait until it has."""
    ray = import_ray()
    try:
        actor = ray.get_actor(name, namespace=NAMESPACE)
        ray.get(actor.stop.remote(), timeout=patience)
        deadline = time.monotonic() + patience
        while not ray.get(actor.over.remote(), timeout=patience) and time.monotonic() < deadline:
            time.sleep(0.1)
        ray.kill(actor)
    except (ValueError, ray.exceptions.RayError):  # there is none, or no more
        return


def costs(
    tasks: Sequence[Task], lab: Lab, device: str, plugins: Sequence[str] = (), gpu: bool = False
) -> list[Mapping[str, Any]]:
    """Measured cost of each task's model, on whatever nodes Ray chooses."""
    ray = import_ray()
    order = _order(lab, device, plugins, False, None, Need(gpu=1.0 if gpu else 0.0), 0.0)
    measure = ray.remote(cost).options(**order.need.options(), runtime_env={"env_vars": dict(order.env)})
    try:
        answers: list[Cost | Refused] = ray.get([measure.remote(plain(order), plain(t)) for t in tasks])
    except ray.exceptions.RayError as error:
        raise SaccadeError("the cost of a run could not be measured on the cluster: " + reason_of(error)) from error
    for answer in answers:
        if isinstance(answer, Refused):
            raise SaccadeError(answer.reason)
    return [answer.values for answer in answers if isinstance(answer, Cost)]


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
    settings = {k: v for k, v in os.environ.items() if k.startswith("SACCADE_")}
    files = tuple(str(Path(p).resolve()) for p in plugins)
    return Order(
        str(lab.root.resolve()),
        place,
        files,
        retry,
        jobs or 0,
        need,
        silence,
        {**launch.ALLOCATOR, **threads, **settings},
    )


def _supervisor(order: Order, name: str, tasks: Sequence[Task]) -> Any:
    """The one of this name, started if there is none, with these tasks among its own."""
    ray = import_ray()
    lifetime: dict[str, Any] = {} if _own else {"lifetime": "detached", "max_restarts": -1}
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
        **lifetime,
    )
    task_values, mark = [plain(t) for t in tasks], digest(sorted(t.run.key for t in tasks))
    for _ in range(10):
        try:
            ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            Lab(order.lab, opened=True).put_work(name, task_values)
        actor = kind.remote(plain(order), name, mark)
        try:
            if ray.get(actor.began_with.remote(mark)) or ray.get(actor.add.remote(task_values)):
                return actor
            ray.kill(actor)  # it has ended and only waited for readers
        except ray.exceptions.RayTaskError as error:
            raise SaccadeError(reason_of(error)) from error
        except ray.exceptions.RayActorError as error:
            if "creation task" in str(error):
                raise SaccadeError(
                    "the supervisor could not start on the cluster (saccade must be installed on every node): "
                    + reason_of(error)
                ) from error
        time.sleep(0.5)
    raise SaccadeError(f"the supervisor {name} on the Ray cluster ends whenever it is started; see Ray's own logs.")


def _listen(actor: Any) -> Iterator[Event]:
    """Its events, those kept from before first. Ends when the supervisor has ended."""
    ray = import_ray()
    born, after = "", 0
    while True:
        now, after, events, over = ray.get(actor.hear.remote(born, after))
        born = now
        yield from events
        if over and not events:
            return
