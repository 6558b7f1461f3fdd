"""The arms of the studies by two checkouts of saccade that take turns: what a change of its code gains.

`python -m benchmarks --part arms --before DIR`, with an older checkout in DIR. A process a checkout, each with the
environment that the lab gives its workers; the steps are those of `arms.py`. Beside every turn a matrix product is
timed in the same process, so that a share of its rate says the same on a busy machine as on an idle one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.measure import interval
from benchmarks.processes import ONE_THREAD

ROUNDS, SECONDS = 5, 0.12
HERE = Path(__file__).parents[1]


class Checkout:
    """A process that trains with the saccade of one folder, and with the benchmark of this one."""

    def __init__(self, tree: Path) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.trees"],
            env={**clean, **ONE_THREAD, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{HERE}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, what: Mapping[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a training process of the benchmark ended early; its message is above")
        told: dict[str, Any] = json.loads(line)
        return told

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measured(before: Path, only: str = "") -> Iterator[dict[str, Any]]:
    """One row per arm that both have; arms that train the same model in the same batches are measured once."""
    from benchmarks import arms

    seen: dict[Any, dict[str, Any]] = {}
    now, then = Checkout(HERE), Checkout(before)
    try:
        known = {tuple(each) for each in then.ask({"list": True})["arms"]}
        for study, arm, run, images in arms.planned():
            if (study, arm) not in known or not any(words in f"{study} {arm}" for words in only.split("|")):
                continue
            if (key := arms.kind(run)) not in seen:
                with load.watched() as beside:
                    seen[key] = _compared((now, then), study, arm)
                seen[key] |= beside
            yield {"study": study, "arm": arm, "images": images, **seen[key]}
    finally:
        now.close()
        then.close()


def _compared(pair: tuple[Checkout, Checkout], study: str, arm: str) -> dict[str, Any]:
    asked = {"arm": [study, arm], "seconds": SECONDS}
    told: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for side in pair:
        side.ask({**asked, "seconds": 0.0})  # builds the model, and the first steps pay for set-up
    for turn in range(ROUNDS):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            told[side].append(pair[side].ask(asked))
    gains = [then["seconds"] / now["seconds"] for now, then in zip(*told, strict=True)]
    low, high, chance = interval(gains)
    row: dict[str, Any] = {"gain": statistics.median(gains), "low": low, "high": high, "chance": chance}
    row["flops"] = pair[0].ask({"arm": [study, arm], "work": True})["flops"]
    for name, side in zip(("after", "before"), told, strict=True):
        seconds = statistics.median(t["seconds"] for t in side)
        row[name] = {
            "seconds": seconds,
            "share": statistics.median(row["flops"] / t["seconds"] / t["gemm"] for t in side),
        }
    return row


def totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Per study and for all: core-hours and the share weighted by them, before and after."""
    names = [*sorted({r["study"] for r in rows}), "all"]
    return {name: _total([r for r in rows if name in (r["study"], "all")]) for name in names}


def _total(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for side in ("before", "after"):
        spent = [r["images"] * r[side]["seconds"] for r in rows]
        found[side] = sum(spent) / 3600
        found[f"{side}_share"] = sum(t * r[side]["share"] for t, r in zip(spent, rows, strict=True)) / sum(spent)
    return {**found, "gain": found["before"] / found["after"]}


def _answer() -> None:
    """The process of one checkout: it reads the name of an arm per line, and answers with its seconds per image and the
    speed of a matrix product at that moment."""
    import torch

    from benchmarks import arms
    from benchmarks.measure import flops, gemm_speed
    from benchmarks.pure import without_kernels
    from saccade.data.images import Source

    torch.set_num_threads(1)
    runs = {(study, arm): run for study, arm, run, _ in arms.planned()}
    built: tuple[Any, Any, int] = (None, None, 0)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("list"):
            print(json.dumps({"arms": list(runs)}), flush=True)
            continue
        run = runs[tuple(asked["arm"])]
        if asked.get("work"):
            images = Source(run.data, run.data_args, run.seed, "cpu")("train")
            with without_kernels():
                work = arms.TRAINING * flops(arms.forward(run, images, 2)) / 2
            print(json.dumps({"flops": work}), flush=True)
            continue
        if built[0] != asked["arm"]:
            images = Source(run.data, run.data_args, run.seed, "cpu")("train")
            batch = min(run.recipe.batch, len(images))
            built = (asked["arm"], arms.ours(run, images, batch), batch)
            for _ in range(3):
                built[1]()
        began, steps = time.process_time(), 0
        while steps == 0 or time.process_time() - began < asked["seconds"]:
            built[1]()
            steps += 1
        seconds = (time.process_time() - began) / steps / built[2]
        print(json.dumps({"seconds": seconds, "gemm": gemm_speed(512, 5)}), flush=True)


if __name__ == "__main__":
    _answer()
