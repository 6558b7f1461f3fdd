"""Rows where environments or numbers of processes differ: persistent workers take turns, and the wall clock counts."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measure import FEWEST, PATIENCE, Timing, ratios
from benchmarks.steps import BATCH
from saccade.lab import bundles, launch

GROUP = f"group:{bundles.MOST}"
SET_UP = 20 * bundles.MOST  # steps: a group's trial is over then
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
ONE_THREAD = {**launch.ALLOCATOR, **dict.fromkeys(THREADS, "1")}  # what the launcher gives its workers


class Trainer:
    """A module as a process that answers lines. `env` is added to an environment in which nobody set thread counts."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        clean = {k: v for k, v in os.environ.items() if k not in THREADS and not k.startswith("MALLOC_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**clean, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, what: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a training process of the benchmark ended early; its message is above")
        told: dict[str, Any] = json.loads(line)
        return told

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def trainers(*wanted: tuple[str, int, Mapping[str, str]]) -> Iterator[list[Trainer]]:
    made = [Trainer(("benchmarks.steps", kind, str(seed)), env) for kind, seed, env in wanted]
    try:
        yield made
    finally:
        for trainer in made:
            trainer.close()


def together(group: Sequence[Trainer], steps: int) -> float:
    """Wall seconds until all of the group have done `steps` each."""
    began = time.perf_counter()
    for trainer in group:
        trainer.ask(steps)
    for trainer in group:
        trainer.answer()
    return time.perf_counter() - began


def take_turns(
    groups: tuple[Sequence[Trainer], Sequence[Trainer]], *, rounds: int, seconds: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds a picture of both groups, a value a round, the order reversed every other round."""
    steps = []
    for group in groups:
        together(group, SET_UP)
        steps.append(max(10, round(50 * seconds / together(group, 50))))
    spent: tuple[list[float], list[float]] = ([], [])
    start = time.perf_counter()
    for turn in range(rounds):
        if turn >= FEWEST and time.perf_counter() - start > PATIENCE * 2 * rounds * seconds:
            break  # too busy a machine; the interval says so
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            done = steps[side] * len(groups[side]) * BATCH
            spent[side].append(together(groups[side], steps[side]) / done)
    return tuple(spent[0]), tuple(spent[1])


def _ratio(spent: tuple[tuple[float, ...], tuple[float, ...]]) -> dict[str, Any]:
    ours, peer = (Timing(each, each) for each in spent)
    row = ratios(ours, peer, "wall")
    row["ratio_cpu"] = None
    for side in ("ours_seconds", "peer_seconds"):
        row[side] = {"wall": row[side]["wall"]}
    return row


def _compared(
    row: dict[str, Any], sides: Sequence[tuple[Trainer, int]], ours: Sequence[Trainer], *, rounds: int, seconds: float
) -> dict[str, Any]:
    """The row with its ratio, if the losses of the peer and of ours, after so many steps each, are the same."""
    losses = []
    for trainer, steps in sides:
        trainer.ask(steps)
        losses.append(trainer.answer()["loss"])
    row["error"] = abs(losses[0] - losses[1]) / abs(losses[0])
    row["is_equal"] = row["error"] <= row["tolerance"]
    if row["is_equal"]:
        row |= _ratio(take_turns((ours, [sides[0][0]]), rounds=rounds, seconds=seconds))
    return row


def replicas(tuned: bool, *, rounds: int, seconds: float) -> dict[str, Any]:
    """The whole machine on a study's CNN replicas, a picture's time against the per-sample route's."""
    torch = importlib.metadata.version("torch")
    n = launch.cores()
    peer_env = dict.fromkeys(THREADS, "1") if tuned else {}
    row: dict[str, Any] = {
        "name": "digits study, CNN replicas, whole machine",
        "setting": f"LeNet, batch {BATCH}, {n} processes of {bundles.MOST} replicas, "
        f"peer with {'one thread' if tuned else 'default threads'}",
        "against": f"Dataset + DataLoader(num_workers=2), one model at a time, torch {torch}",
        "aim": 8.0,
        "equal": "a batch and its gradients, float32",
        "tolerance": 1e-4,
        "memory_aim": None,
    }
    with trainers(("loader", 0, peer_env), *((GROUP, seed, ONE_THREAD) for seed in range(n))) as (peer, *ours):
        peer.ask("error")
        told = peer.answer()
        row |= {"error": told["error"], "is_equal": told["error"] <= row["tolerance"]}
        row["setting"] += f", {' on '.join(told['data'])}"
        if row["is_equal"]:
            row |= _ratio(take_turns((ours, [peer]), rounds=rounds, seconds=seconds))
    return row


def lockstep(*, rounds: int, seconds: float) -> dict[str, Any]:
    """Replicas of a worker together against the same worker with one after another."""
    torch = importlib.metadata.version("torch")
    row: dict[str, Any] = {
        "name": "replicas in lock-step, one process",
        "setting": f"LeNet, batch {BATCH}, {bundles.MOST} replicas",
        "against": f"the same loop, one replica at a time, torch {torch}",
        "aim": 1.0,
        "equal": "the first replica's loss after 10 steps",
        "tolerance": 1e-5,
        "memory_aim": None,
    }
    with trainers(("library", 0, ONE_THREAD), (GROUP, 0, ONE_THREAD)) as (peer, ours):
        return _compared(row, ((peer, 10), (ours, 9 * bundles.MOST + 1)), [ours], rounds=rounds, seconds=seconds)


def workers(native: bool, *, rounds: int, seconds: float) -> dict[str, Any]:
    """A process a core against one process with a thread a core, the same code on both sides."""
    torch, n = importlib.metadata.version("torch"), launch.cores()
    row: dict[str, Any] = {
        "name": f"{n} worker processes of one thread, smallest net",
        "setting": f"LeNet, batch {BATCH}, {'C kernel' if native else 'pure torch'} on both sides",
        "against": f"one process with {n} threads, torch {torch}",
        "aim": 1.5,
        "equal": "the loss after 5 steps",
        "tolerance": 1e-4,
        "memory_aim": None,
    }
    path = {} if native else {"SACCADE_KERNELS": "off"}
    several, single = {**launch.ALLOCATOR, **dict.fromkeys(THREADS, str(n)), **path}, {**ONE_THREAD, **path}
    with trainers(("library", 0, several), *(("library", seed, single) for seed in range(n))) as (peer, *ours):
        return _compared(row, ((peer, 5), (ours[0], 5)), ours, rounds=rounds, seconds=seconds)
