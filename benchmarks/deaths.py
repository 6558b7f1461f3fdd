"""Trials of benchmarks/reliability.py: processes that die or are stopped while a study is at work."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.trials import Outcome, a_task, trial, weights_of

DRAWN = ("digits=procedural_digits", "scenes=procedural_textures")
STUDY = ("run", "digits_on_backgrounds", "--scale", "smoke", "--only", "CNN", "--jobs", "2", "--json", "--set", *DRAWN)
FAST = {"SACCADE_SAVE_EVERY": "0.3"}  # saves so often that kills hit moments of saving too
PLUGIN = '''
import os
from saccade.registry import probe


@probe(version=1)
def faulty(subject, data, *, how="raise"):
    """Fails in a way of its own."""
    if how == "die":
        os._exit(7)
    if how == "print":
        print("noise" * 1000)
    raise MemoryError() if how == "memory" else RuntimeError("broken")
    yield
'''


def command(lab: Path, images: int = 9600) -> list[str]:
    return [sys.executable, "-m", "saccade", *STUDY, f"images={images}", "--lab", str(lab)]


def events_of(lab: Path) -> list[str]:
    lines = [line for p in lab.glob("runs/*/log.jsonl") for line in p.read_text("utf-8").splitlines()]
    return [json.loads(line)["event"] for line in lines if line.endswith("}")]


@functools.cache
def calm() -> dict[str, bytes]:
    """The weights of the same study when nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command(Path(folder) / "lab"), check=True, capture_output=True)
        return weights_of(Path(folder) / "lab")


def start(lab: Path, **env: str) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command(lab), env={**os.environ, **FAST, **env}, start_new_session=True, **quiet)


def workers_of(lab: Path) -> list[int]:
    """Worker processes of this lab, by their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"saccade.lab.worker" in words and str(lab).encode() in words:
                found.append(int(entry.name))
    return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def compared(lab: Path, wanted: dict[str, bytes]) -> tuple[str, ...]:
    have = weights_of(lab)
    lost = [f"run {key} is not there" for key in wanted if key not in have]
    return (*lost, *(f"run {key} has other weights" for key in wanted if key in have and have[key] != wanted[key]))


def storm(folder: Path, times: int, strike: Callable[[Path, subprocess.Popen[bytes]], None]) -> Outcome:
    """The same study again and again, struck while it works; at the end it must be as if nothing had happened."""
    wanted, lab, lost = calm(), folder / "stormy", []
    draw, kept = random.Random(5), dict[str, bytes]()
    for _ in range(times):
        begun = len(events_of(lab))
        process = start(lab)
        while len(events_of(lab)) < begun + 3 and process.poll() is None:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 1.0))
        strike(lab, process)
        process.wait()
        now = weights_of(lab)
        lost += [f"finished run {key} is gone or changed" for key, bits in kept.items() if now.get(key) != bits]
        kept = {k: v for k, v in now.items() if (lab / "runs" / k / "done.json").exists()}
    subprocess.run(command(lab), check=False, capture_output=True)
    again = json.loads(subprocess.run(command(lab), check=False, capture_output=True).stdout)
    lost += ["a finished run was trained again"] if again["trained"] else []
    return Outcome(times, (*lost, *compared(lab, wanted)))


@trial("processes", "kill -9 of a command and all its workers, at random moments, then the same command again")
def killed(folder: Path) -> Outcome:
    def strike(lab: Path, process: subprocess.Popen[bytes]) -> None:
        kill([process.pid, *workers_of(lab)])

    return storm(folder, 6, strike)


@trial("processes", "Ctrl-C and SIGTERM, at random moments, then the same command again")
def stopped(folder: Path) -> Outcome:
    signals = itertools.cycle((signal.SIGINT, signal.SIGTERM))
    return storm(folder, 4, lambda lab, process: process.send_signal(next(signals)))


@trial("processes", "kill -9 of one worker, at its start or at work, while the command goes on")
def killed_worker(folder: Path) -> Outcome:
    wanted, lab, times = calm(), folder / "stormy", 0
    process = start(lab)
    for begun in (0, 0, 1, 3):  # twice before a worker is ready, twice while they train
        while process.poll() is None and (len(events_of(lab)) < begun or not workers_of(lab)):
            time.sleep(0.05)
        if process.poll() is None:
            kill(workers_of(lab)[:1])
            times += 1
            time.sleep(0.5)
    code = process.wait()
    return Outcome(times, (*compared(lab, wanted), *([f"the command ended with {code}"] if code else [])))


@trial("processes", "two commands at once on one lab")
def two(folder: Path) -> Outcome:
    wanted, lab = calm(), folder / "shared"
    for process in [start(lab), start(lab)]:
        process.wait()
    twice = [f"run {p.parent.name} was trained twice" for p in lab.glob("runs/*/log.jsonl") if _twice(p)]
    return Outcome(2, (*compared(lab, wanted), *twice))


def _twice(log: Path) -> bool:
    return [json.loads(line)["event"] for line in log.read_text("utf-8").splitlines()].count("started") > 1


@trial("processes", "a probe that raises, runs out of memory, prints or kills its worker, beside one that works")
def faulty_probes(folder: Path) -> Outcome:
    from saccade import registry
    from saccade.lab import launch, plan
    from saccade.lab.store import Lab
    from saccade.spec import Probe

    plugin, lost = folder / "odd.py", []
    plugin.write_text(PLUGIN, "utf-8")
    registry.load_plugin(str(plugin))
    kinds = ("raise", "memory", "print", "die")
    for how in kinds:
        lab = Lab(folder / how).open()
        task = a_task(Probe("faulty", how=how), Probe("accuracy", splits=("id",), n=20))
        list(launch.local([task], lab, places=["cpu"], plugins=[str(plugin)]))
        table, done = plan.table_of(lab, [task]), lab.done(task.run.key)
        if not done or done["outcome"] != "finished" or not table.series("accuracy", split="id"):
            lost.append(f"a run or its other rows, to a probe that would {how}")
        if [f["probe"] for f in table.faults] != ["faulty"]:
            lost.append(f"the failure of a probe that would {how}")
    return Outcome(len(kinds), tuple(lost))
