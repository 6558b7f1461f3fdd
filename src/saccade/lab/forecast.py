"""What a sweep would take on a cluster, simulated from figures measured on this machine.

Runs are handed out in order to whichever seat is free; one supervisor hands out a run at a time; nodes are lost at
random, each seat by itself, and what they had not saved is done again. What is written is counted from what a run
leaves in a lab.
"""

from __future__ import annotations

import heapq
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from saccade.lab import index
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run

# Measured by `python -m benchmarks.lab` (docs/performance.md); one figure each, as they enter a sum of many.
DISPATCH = 0.004  # seconds of the supervisor per run
REQUESTS = 6  # to a shared folder's server per file: look up, make, write, flush, close, rename
SIMULATED = 2_000_000  # runs; of more, this many are simulated and the result is scaled up
SAVE_EVERY = 15.0
RESTART = 60.0  # seconds until a lost node's runs continue elsewhere


@dataclass(frozen=True)
class Figures:
    """What was measured here."""

    seconds: tuple[float, ...]  # of one core, of each kind of run
    overhead: float  # seconds per run beside its training
    index: float  # seconds per run to index it
    bytes: float  # per run
    files: float  # per run


@dataclass(frozen=True)
class Sweep:
    """What is asked."""

    runs: int
    nodes: int
    cores: int  # per node
    life: float = 30 * 24 * 3600.0  # seconds that a node lives on average
    price: float = 0.0  # per core and hour


@dataclass(frozen=True)
class Forecast:
    """What it would take."""

    wall: float  # seconds
    ideal: float  # seconds, without losses, waiting and overhead
    core_seconds: float
    busy: float  # share of the cores' time that is training
    lost_nodes: float
    redone: float  # core seconds done twice
    bytes: float
    files: float
    requests: float  # per second, to the server of the shared folder
    index: float  # seconds to build it
    cost: float
    warnings: tuple[str, ...] = ()


def measure(lab: Lab, seconds: Sequence[float]) -> Figures:
    """Overhead, index and size from a lab that has finished runs, else from a few made up for the purpose."""
    overhead = _write_some()
    lab_index = index.of(lab) if (lab.root / "runs").is_dir() else None
    if lab_index is not None:
        try:
            refreshed = lab_index.refresh()
            if refreshed.runs:
                some = lab.keys()[:200]
                files = sum(sum(1 for p in lab.folder(key).rglob("*") if p.is_file()) for key in some) / len(some)
                size = lab_index.database.execute("SELECT avg(bytes) FROM runs WHERE outcome <> ''").fetchone()[0]
                if size:
                    return Figures(tuple(seconds), overhead.overhead, overhead.index, float(size), files)
        finally:
            lab_index.close()
    return Figures(tuple(seconds), overhead.overhead, overhead.index, overhead.bytes, overhead.files)


def _write_some(n: int = 20) -> Figures:
    """What a run of a small model leaves behind, written and indexed n times."""
    weights = bytes(250_000)  # LeNet
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(folder).open()
        began = time.perf_counter()
        for seed in range(n):
            run = Run("lenet", "digits_on_backgrounds", Recipe(images=16), seed)
            lease = lab.claim(run, {})
            assert lease is not None
            lab.log(run.key, {"event": "started"})
            for share in (0.5, 0.75):
                lab.save_milestone(run.key, share, weights)
            for name in ("training", "accuracy"):
                rows = [{"metric": name, "value": 0.5, "n": 100, "at": {"images": i}} for i in range(40)]
                lab.put_rows(run.key, Probe(name), 1, rows, bytes(1000))
            lab.finish(run.key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 1}, weights)
            lease.release()
        seconds_per_run = (time.perf_counter() - began) / n
        _, size, refreshed = index.status(lab)
        files = sum(1 for p in (Path(folder) / "runs").rglob("*") if p.is_file())
    return Figures((), seconds_per_run, refreshed.seconds / n, size / n, files / n)


def simulate(figures: Figures, sweep: Sweep, seed: int = 0) -> Forecast:
    """One course of events. The longest kind of run goes first, as the queue has it.

    Of more runs than SIMULATED, one in so many is simulated on as small a part of the cluster.
    """
    draw = random.Random(seed)
    seats = max(1, min(sweep.nodes * sweep.cores, sweep.runs))
    kinds = sorted(figures.seconds, reverse=True) or [0.0]
    count = min(sweep.runs, SIMULATED)
    each = sweep.runs / count  # runs, and seats, that one of the simulation stands for
    free = [0.0] * max(1, round(seats / each))
    handed_out = ended = training = redone = 0.0
    for i in range(count):
        seconds = kinds[i * len(kinds) // count]
        handed_out += DISPATCH * each
        took, twice = _disturbed(seconds + figures.overhead, sweep.life, draw)
        training += seconds
        redone += twice
        end = max(heapq.heappop(free), handed_out) + took
        ended = max(ended, end)
        heapq.heappush(free, end)
    training, redone = training * each, redone * each
    wall = max(ended * len(free) * each / seats, handed_out, 1e-9)
    forecast = Forecast(
        wall=wall,
        ideal=training / seats,
        core_seconds=training,
        busy=training / (wall * seats),
        lost_nodes=wall * sweep.nodes / sweep.life,
        redone=redone,
        bytes=sweep.runs * figures.bytes,
        files=sweep.runs * figures.files,
        requests=sweep.runs * figures.files * REQUESTS / wall,
        index=sweep.runs * figures.index,
        cost=sweep.price * wall * sweep.nodes * sweep.cores / 3600,
    )
    return replace(forecast, warnings=tuple(_warnings(forecast, sweep, handed_out)))


def _disturbed(seconds: float, life: float, draw: random.Random) -> tuple[float, float]:
    """How long a run takes on nodes that may be lost, and how much of that is done twice."""
    took = repeated = 0.0
    while (lost_at := draw.expovariate(1 / life)) < seconds:
        saved = lost_at - lost_at % SAVE_EVERY
        took += lost_at + RESTART
        repeated += lost_at - saved
        seconds -= saved
    return took + seconds, repeated


LIMITS = {
    "requests": 5000.0,  # per second: what a single NFS server is commonly good for
    "entries": 1e6,  # in one folder, before listing it takes longer than a minute on a shared folder
    "files": 1e8,  # of one file system, before inodes and backups become the question
}


def _warnings(f: Forecast, sweep: Sweep, handed_out: float) -> Iterator[str]:
    """What would break, with the remedy."""
    if handed_out > 0.9 * f.wall:
        yield (
            f"the supervisor hands out {1 / DISPATCH:.0f} runs per second and is what the cluster waits for: use fewer "
            "nodes, longer runs, or several commands with parts of the study (--only)"
        )
    if f.requests > LIMITS["requests"]:
        yield (
            f"the shared folder gets {f.requests:,.0f} requests per second, and one server does about "
            f"{LIMITS['requests']:,.0f}: use several labs on several servers, and merge them"
        )
    if sweep.runs > LIMITS["entries"]:
        yield f"one lab would have {sweep.runs:,} folders side by side: split it, by --only or by seeds"
    if f.files > LIMITS["files"]:
        yield f"{f.files:,.0f} files are too many for most file systems: keep exports instead (saccade lab export)"
