"""Kills at random moments, in numbers: trials of benchmarks/reliability.py.

Rounds of eight short runs are disturbed until they are finished, each in a lab of its own. Moments are drawn uniformly
over the time that the same command takes when nothing happens to it, which is measured first, and counted from its
start or from the kill before: some kills fall on its start, most on its work, when some runs have finished and others
are under way. From the moment that a run is finished
its weights may not be written again; after every round no run may have ended twice or been trained after its end, and
all files but logs, environments and times must be those of an undisturbed lab, to the bit. `python -m benchmarks.kills
WHERE LAB` is the command that is killed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.lab import launch
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run, Settings, Task

SAVE_EVERY = "0.3"  # seconds: kills then hit moments of saving too
KINDS = {  # what is killed, how often
    "a worker process": 40,
    "a command and all its workers": 20,
    "a command alone, whose workers go on without it": 20,
    "a worker process of Ray": 40,
    "a Ray node": 20,
    "a command while its work is on Ray": 30,
    "the supervisor on Ray": 30,
}
PIECE = 10  # kills that are tried and noted together
PATIENCE = 1200.0  # seconds for a round; more is a hang


@dataclass(frozen=True)
class Kill:
    """When: after the start or the kill before, as a share of an undisturbed command; runs finished and under way."""

    share: float
    finished: int
    under_way: int


@dataclass(frozen=True)
class Storm:
    """What was killed when, what was lost, and the seconds that the command takes when nothing happens."""

    kills: tuple[Kill, ...]
    lost: tuple[str, ...]
    calm_seconds: float


def tasks() -> list[Task]:
    """Six runs that train in lock-step and two that do not, of different lengths: they end one after another."""
    data = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
    probe = (Probe("accuracy", splits=("id",), n=20),)

    def run(model: str, images: int, seed: int, **args: int) -> Run:
        return Run(model, "digits_on_backgrounds", Recipe(images=images, watch=1), seed, Settings(**args), data)

    short, long = ([run("lenet", images, seed) for seed in range(3)] for images in (1500, 4500))
    others = [run("mha_lenet", 375, seed, heads=1) for seed in range(2)]
    return [Task(one, probe) for one in (*short, *others, *long)]


def drive(where: str, folder: str) -> None:
    """A launcher over the tasks. Runs that were marked failed after three kills are tried again."""
    from saccade.lab import cluster

    lab, places = Lab(folder).open(), ["cpu"] * 2
    if where == "local":
        events = launch.local(tasks(), lab, places=places, retry=True)
    else:
        cluster.connect(where)
        events = cluster.on_ray(tasks(), lab, places=places, retry=True, name=f"storm-{folder}")
    for _ in events:
        pass


def results(lab: Lab) -> dict[str, str]:
    """A checksum over what a finished run leaves, by key, but for the times that it took."""
    out = {}
    for folder in finished(lab):
        sums = []
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            if path.name in ("log.jsonl", "lease", "run.json") or path.name.endswith(".tmp"):
                continue
            raw = path.read_bytes()
            if path.suffix == ".json":
                document = json.loads(raw)
                document.pop("seconds", None)
                document.pop("sha256", None)
                document["rows"] = [r for r in document.get("rows", ()) if r["metric"] != "train_seconds"]
                raw = json.dumps(document, sort_keys=True).encode()
            sums.append([str(path.relative_to(folder)), hashlib.sha256(raw).hexdigest()])
        out[folder.name] = hashlib.sha256(json.dumps(sums).encode()).hexdigest()
    return out


def finished(lab: Lab) -> list[Path]:
    """Not those that are marked failed, as whatever was killed more than three times is: these are tried again."""
    ended = [path.parent for path in lab.root.glob("runs/*/done.json")]
    return [folder for folder in ended if (lab.done(folder.name) or {}).get("outcome") == "finished"]


def trained(lab: Lab) -> dict[str, tuple[str, int]]:
    """Weights of finished runs, and when they were written: never again, whatever is still being measured."""
    files = {folder.name: folder / "weights.safetensors" for folder in finished(lab)}
    return {key: (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for key, p in files.items()}


def done_twice(lab: Lab) -> list[str]:
    """Runs that were trained after their end: that was work for nothing, and perhaps by two at a time."""
    return [p.parent.name for p in lab.root.glob("runs/*/log.jsonl") if _goes_on_after_end(p.read_text("utf-8"))]


def _goes_on_after_end(log: str) -> bool:
    _, _, after = log.partition('"event": "finished"')
    return any(f'"event": "{kind}"' in after for kind in ("started", "resumed", "saved", "finished"))


def under_way(lab: Lab) -> list[str]:
    """Runs that somebody alive works on."""
    keys = [p.parent.name for p in lab.root.glob("runs/*/lease") if not (p.parent / "done.json").exists()]
    return [key for key in keys if lab.holder(key)]


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()]
    return []


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Command:
    """A driver in a process of its own."""

    def __init__(self, where: str, folder: Path) -> None:
        self.words = [sys.executable, "-m", "benchmarks.kills", where, str(folder)]
        self.began = time.monotonic()
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "SACCADE_SAVE_EVERY": SAVE_EVERY}
        quiet = subprocess.DEVNULL
        return subprocess.Popen(self.words, env=env, start_new_session=True, stderr=quiet, stdout=quiet)

    def again(self) -> None:
        self.process.wait()
        self.began = time.monotonic()
        self.process = self._start()


def strike(kind: str, draw: random.Random, lab: Lab, command: Command, nodes: Any) -> bool:
    """Kill one thing of this kind now; False when there was none."""
    if kind == "a worker process":
        workers = children(command.process.pid)
        return bool(workers) and kill(draw.choice(workers))
    if kind == "a command and all its workers":
        killed = [kill(pid) for pid in (command.process.pid, *children(command.process.pid))]
        command.again()
        return all(killed)
    if kind == "a command alone, whose workers go on without it":
        killed_it = kill(command.process.pid)
        command.again()
        return killed_it
    if kind == "a worker process of Ray":
        busy = under_way(lab)
        holder = lab.holder(draw.choice(busy)) if busy else None
        return bool(holder) and kill(holder["pid"])
    if kind == "a Ray node":  # with its workers, which would outlive its daemon for a while
        node = nodes.list_all_nodes()[-1]
        for pid in children(raylet_of(node)):
            kill(pid)
        nodes.remove_node(node, allow_graceful=False)
        nodes.add_node(num_cpus=1)
        return True
    if kind == "a command while its work is on Ray":
        done = kill(command.process.pid)
        command.again()
        return done
    return any(kill(pid) for pid in supervisors(nodes))


def supervisors(nodes: Any) -> list[int]:
    """Processes of the actor, on whatever node; Ray names a worker after what it does."""
    below = [pid for node in nodes.list_all_nodes() for pid in children(raylet_of(node))]
    return [pid for pid in below if title(pid).startswith("ray::Supervisor")]


def title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    return ""


def raylet_of(node: Any) -> int:
    return next(p.process.pid for name, ps in node.all_processes.items() if name == "raylet" for p in ps)


def storm(kind: str, kills: int, folder: Path, piece: int = 0) -> Storm:
    """Rounds until so many have been killed: when each, and what was lost."""
    with ray_nodes() if "Ray" in kind else contextlib.nullcontext() as nodes:
        return _storm(kind, kills, folder, nodes, random.Random(f"{kind} {piece}"))


def _storm(kind: str, kills: int, folder: Path, nodes: Any, draw: random.Random) -> Storm:
    where = nodes.address if nodes else "local"
    (seconds, _), (_, calm) = undisturbed(where), undisturbed("local")
    struck, lost = list[Kill](), list[str]()
    rounds = 0
    while len(struck) < kills:
        rounds += 1
        lab = Lab(folder / f"lab{rounds}").open()
        command, began = Command(where, lab.root), time.monotonic()
        since, moment = began, draw.uniform(0.0, seconds)
        known: dict[str, tuple[str, int]] = {}  # weights as they were when their run was first seen finished
        while len(finished(lab)) < len(calm) or command.process.poll() is None:
            if command.process.poll() is not None:
                command.again()
            if time.monotonic() - began > PATIENCE:
                kill(command.process.pid)
                return Storm(tuple(struck), (*lost, f"round {rounds} did not end in {PATIENCE:.0f} s"), seconds)
            time.sleep(0.1)
            at = time.monotonic() - since
            if len(struck) < kills and at >= moment:
                seen = Kill(round(at / seconds, 2), len(finished(lab)), len(under_way(lab)))
                if strike(kind, draw, lab, command, nodes):
                    struck.append(seen)
                    since, moment = time.monotonic(), draw.uniform(0.0, seconds)
                    print(f"{len(struck)}/{kills} {kind}; {seen}", flush=True)
            now = trained(lab)
            lost += _changed(known, now)
            known = {**now, **known}
        lost += _changed(known, trained(lab))
        lost += [f"run {key} was done twice" for key in done_twice(lab)]
        found = results(lab)
        lost += [f"run {key} ended with other results" for key in calm if found.get(key) != calm[key]]
        lost += [f"run {key} is one too many" for key in found.keys() - calm.keys()]
        if lost:
            shutil.copytree(lab.root, Path(tempfile.mkdtemp(prefix="lost-")) / "lab")  # to find out why
        shutil.rmtree(lab.root)
    return Storm(tuple(struck), tuple(lost), seconds)


def _changed(known: dict[str, tuple[str, int]], now: dict[str, tuple[str, int]]) -> list[str]:
    return [f"finished run {key} was gone or written again" for key in known if now.get(key) != known[key]]


@functools.cache
def undisturbed(where: str) -> tuple[float, dict[str, str]]:
    """The command when nothing happens to it: seconds, and what it leaves."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab").open()
        command = Command(where, lab.root)
        if command.process.wait():
            raise SystemExit(f"the undisturbed command ended with {command.process.returncode}")
        return time.monotonic() - command.began, results(lab)


@contextlib.contextmanager
def ray_nodes() -> Iterator[Any]:
    """Two nodes of one seat in this process; the first one stays, as the head of a cluster does."""
    os.environ |= {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_raylet_start_wait_time_s": "300",  # on a loaded machine a node takes its time to start
    }
    from ray.cluster_utils import Cluster

    from saccade.lab import cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    cluster.connect(made.address)
    try:
        yield made
    finally:
        cluster.disconnect()
        made.shutdown()


if __name__ == "__main__":
    drive(*sys.argv[1:])
