"""Kills at random moments, in numbers: `python -m benchmarks.storm --kills 200` writes docs/reliability.md.

Rounds of short runs are disturbed until they are finished, each in a lab of its own. After every kill, finished runs
must be as they were; after every round, all results must be those of an undisturbed lab, to the bit.
"""

from __future__ import annotations

import argparse
import contextlib
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
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.lab import launch
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run, Settings, Task

SAVE_EVERY = "0.3"  # seconds: kills then hit moments of saving too
LOCAL = {"a worker process": 4, "the command with all its workers": 1}  # how often one is drawn against another
ON_RAY = {"a worker process of Ray": 5, "a Ray node": 2, "the command": 1, "the supervisor": 1}
PATIENCE = 1800.0  # seconds for a round; more is a hang


def tasks(images: int) -> list[Task]:
    """Six runs that train in lock-step and two that do not."""
    data = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
    probe = (Probe("accuracy", splits=("id",), n=20),)
    lenets = [
        Run("lenet", "digits_on_backgrounds", Recipe(images=images, watch=1), s, data_args=data) for s in range(6)
    ]
    others = [
        Run("mha_lenet", "digits_on_backgrounds", Recipe(images=images // 8, watch=1), s, Settings(heads=1), data)
        for s in range(2)
    ]
    return [Task(run, probe) for run in (*lenets, *others)]


def drive(where: str, folder: str, images: int) -> None:
    """The command that is killed: a launcher over the tasks. Runs that were marked failed are tried again."""
    from saccade.lab import cluster

    lab, places = Lab(folder).open(), ["cpu"] * 2
    if where == "local":
        events = launch.local(tasks(images), lab, places=places, retry=True)
    else:
        cluster.connect(where)
        events = cluster.on_ray(tasks(images), lab, places=places, retry=True, name=f"storm-{folder}")
    for event in events:
        if event["event"] in ("failed", "refused", "worker died"):
            print(json.dumps({k: v for k, v in event.items() if k != "task"}), flush=True)


@dataclass
class Tally:
    """What happened to one kind of victim."""

    kills: int = 0
    under_way: int = 0  # runs that had begun and not ended, over all kills
    lost: int = 0  # finished runs that were gone or changed
    rounds: set[int] = field(default_factory=set)


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
    return [path.parent for path in lab.root.glob("runs/*/done.json")]


def trained(lab: Lab) -> dict[str, str]:
    """Weights of finished runs: these may never change again, whatever is still being measured."""
    return {
        p.parent.name: hashlib.sha256((p.parent / "weights.safetensors").read_bytes()).hexdigest()
        for p in lab.root.glob("runs/*/done.json")
        if (p.parent / "weights.safetensors").exists()
    }


def under_way(lab: Lab) -> list[str]:
    return [p.parent.name for p in lab.root.glob("runs/*/lease") if not (p.parent / "done.json").exists()]


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Command:
    """A driver in a process of its own."""

    def __init__(self, where: str, folder: Path, images: int) -> None:
        self.words = [sys.executable, "-m", "benchmarks.storm", "drive", where, str(folder), str(images)]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "SACCADE_SAVE_EVERY": SAVE_EVERY}
        return subprocess.Popen(
            self.words, env=env, start_new_session=True, stderr=subprocess.DEVNULL, stdout=sys.stderr
        )

    def again(self) -> None:
        self.process.wait()
        self.process = self._start()


def disturb(
    draw: random.Random, lab: Lab, command: Command, victims: dict[str, int], nodes: Any, tally: dict[str, Tally]
) -> str:
    """Kill one thing now; gives back its kind, or nothing when there was none of the kind that was drawn."""
    kind = draw.choices(list(victims), list(victims.values()))[0]
    busy, before = under_way(lab), trained(lab)
    if not busy:
        return ""
    done = False
    if kind == "a worker process":
        workers = children(command.process.pid)
        done = bool(workers) and kill(draw.choice(workers))
    elif kind == "the command with all its workers":
        killed = [kill(pid) for pid in (command.process.pid, *children(command.process.pid))]
        done = all(killed)
        command.again()
    elif kind == "a worker process of Ray":
        holder = lab.holder(draw.choice(busy))
        done = bool(holder) and kill(holder["pid"])
    elif kind == "a Ray node":
        nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
        nodes.add_node(num_cpus=1)
        done = True
    elif kind == "the command":
        done = kill(command.process.pid)
        command.again()
    else:
        import ray

        with contextlib.suppress(ValueError):
            ray.kill(ray.get_actor(f"storm-{lab.root}", namespace="saccade"), no_restart=False)
            done = True
    if not done:
        return ""
    after = trained(lab)
    mine = tally[kind]
    mine.kills += 1
    mine.under_way += len(busy)
    mine.lost += sum(after.get(key) != value for key, value in before.items())
    return kind


def storm(kills: int, images: int, where: str, nodes: Any, tally: dict[str, Tally], calm: dict[str, str]) -> Row:
    """Rounds until so many kills have happened. Gives what the rounds came to."""
    draw = random.Random(images + kills)
    victims = LOCAL if where == "local" else ON_RAY
    done = rounds = wrong = twice = 0
    while done < kills:
        rounds += 1
        folder = Path(tempfile.mkdtemp(prefix="storm-"))
        lab = Lab(folder / "lab").open()
        command, began = Command(where, lab.root, images), time.monotonic()
        while len(finished(lab)) < len(calm) or command.process.poll() is None:
            if command.process.poll() is not None:
                command.again()
            if time.monotonic() - began > PATIENCE:
                raise SystemExit(f"round {rounds} did not end in {PATIENCE:.0f} s; its lab is {lab.root}")
            time.sleep(draw.uniform(0.2, 2.5))
            if done < kills and (kind := disturb(draw, lab, command, victims, nodes, tally)):
                done += 1
                tally[kind].rounds.add(rounds)
                print(f"{done}/{kills} {kind}; {len(finished(lab))} of {len(calm)} runs finished", file=sys.stderr)
        found = results(lab)
        wrong += sum(found.get(key) != value for key, value in calm.items())
        twice += len(list(lab.root.glob("runs/*"))) - len(calm)
        shutil.rmtree(folder)
    return {"rounds": rounds, "runs": rounds * len(calm), "wrong": wrong, "twice": twice}


Row = dict[str, Any]


def undisturbed(images: int) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(folder).open()
        for _ in launch.local(tasks(images), lab, places=["cpu"] * 2):
            pass
        return results(lab)


@contextlib.contextmanager
def ray_nodes() -> Iterator[Any]:
    """Two nodes of one seat in this process; the first one stays, as the head of a cluster does."""
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
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


def tested() -> list[tuple[str, int, bool]]:
    """The faults of tests/lab/test_faults.py: what, how many times, whether the test passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        words = ["tests/lab/test_faults.py", "-m", "", "-p", "no:xdist", f"--junitxml={report}"]
        words += [f"--basetemp={folder}/tests", "-o", "junit_family=xunit1"]
        subprocess.run([sys.executable, "-m", "pytest", *words], check=False, stdout=sys.stderr)
        out = []
        for case in xml.parse(report).getroot().iter("testcase"):
            said = {p.get("name"): p.get("value") for p in case.iter("property")}
            if "fault" in said:
                bad = any(case.find(tag) is not None for tag in ("failure", "error"))
                out.append((str(said["fault"]), int(said["times"] or 0), not bad))
        return out


def page(found: Row) -> str:
    head = "| what | how often | runs under way then | finished runs lost |\n| --- | --- | --- | --- |\n"
    rows = "".join(
        f"| `kill -9` of {k} | {t['kills']} | {t['under_way']} | {t['lost']} |\n" for k, t in found["tally"].items()
    )
    total = sum(t["kills"] for t in found["tally"].values())
    others = "".join(
        f"| {what} | {n} | {'nothing' if good else 'THE TEST FAILED'} |\n" for what, n, good in found["tests"]
    )
    ends = found["ends"]
    return PAGE.format(
        rows=head + rows,
        total=total,
        rounds=sum(e["rounds"] for e in ends),
        runs=sum(e["runs"] for e in ends),
        wrong=sum(e["wrong"] for e in ends),
        twice=sum(e["twice"] for e in ends),
        others="| what | how often | lost |\n| --- | --- | --- |\n" + others,
        seconds=found["seconds"],
        cores=launch.cores(),
        save=SAVE_EVERY,
    )


PAGE = """# What survives what, counted

Written by `python -m benchmarks.storm`; do not edit. One machine with {cores} cores, {seconds:.0f} s.

## Kills at random moments

Rounds of eight short runs, six of them in lock-step, each round in a lab of its own and disturbed until it is
finished. States are saved every {save} s here, so that kills hit moments of saving too. The Ray cluster has two nodes
in one process. After every kill the weights of finished runs are compared with what they were; after every round all
files of all runs but logs, environments and times are compared with those of a lab that nobody disturbed.

{rows}
{total} kills in {rounds} rounds. Of {runs} results {wrong} differ from those of the undisturbed lab; {twice} runs were
there twice.

## Other faults

From `tests/lab/test_faults.py`. After each of them the same work goes on and ends with the bits of an undisturbed lab,
or is refused in one sentence with the remedy.

{others}"""


def main() -> None:
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    flags = argparse.ArgumentParser(prog="python -m benchmarks.storm", description=__doc__)
    flags.add_argument("--kills", type=int, default=200)
    flags.add_argument("--images", type=int, default=8000, help="of a LeNet run: how long a run is")
    flags.add_argument("--only", choices=("local", "ray"), default=None, help="writes nothing")
    flags.add_argument("--to", default="docs/reliability.md")
    asked = flags.parse_args()
    began = time.monotonic()
    calm = undisturbed(asked.images)
    tally = {kind: Tally() for kind in (*LOCAL, *ON_RAY)}
    ends = []
    parts: Sequence[str] = (asked.only,) if asked.only else ("local", "ray")
    if "local" in parts:
        ends.append(storm(asked.kills // len(parts), asked.images, "local", None, tally, calm))
    if "ray" in parts:
        with ray_nodes() as nodes:
            ends.append(storm(asked.kills // len(parts), asked.images, nodes.address, nodes, tally, calm))
    counted = {k: {"kills": t.kills, "under_way": t.under_way, "lost": t.lost} for k, t in tally.items() if t.kills}
    found = {"tally": counted, "ends": ends, "tests": [] if asked.only else tested()}
    text = page({**found, "seconds": time.monotonic() - began})
    print(text)
    if not asked.only:
        Path(asked.to).write_text(text)
    if any(t["lost"] for t in counted.values()) or any(e["wrong"] or e["twice"] for e in ends):
        raise SystemExit("something was lost; the table says what")


if __name__ == "__main__":
    main()
