"""The arms of the studies on the whole machine: saccade's worker processes against the script that one would write.

`python -m benchmarks --part machine`. Ours is one process per core with one thread each, as the lab starts them. The
script is one process with torch's default number of threads that trains plain modules from a `DataLoader`, with 0 or
with 2 workers, whichever is faster for the arm. All run for the same time, in turns; the wall clock counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import load
from benchmarks.measure import interval
from benchmarks.processes import ONE_THREAD, Trainer
from saccade.lab import launch

ROUNDS, SECONDS = 5, 0.5
MODULE = "benchmarks.machine"
LOADERS = (0, 2)  # workers of the script's DataLoader


def measured(only: str = "") -> Iterator[dict[str, Any]]:
    """One row per arm; those that train the same model in the same batches are measured once."""
    from benchmarks import arms

    seen: dict[Any, dict[str, Any]] = {}
    sides = [[Trainer((MODULE, "ours"), ONE_THREAD) for _ in range(launch.cores())]]
    sides += [[Trainer((MODULE, f"script:{workers}"), {})] for workers in LOADERS]
    try:
        for study, arm, run, images in arms.planned():
            if only not in f"{study} {arm}":
                continue
            if (key := arms.kind(run)) not in seen:
                with load.watched() as beside:
                    seen[key] = _compared(sides, study, arm)
                seen[key] |= beside
            yield {"study": study, "arm": arm, "images": images, **seen[key]}
    finally:
        for side in sides:
            for trainer in side:
                trainer.close()


def _compared(sides: Sequence[Sequence[Trainer]], study: str, arm: str) -> dict[str, Any]:
    spent: list[list[float]] = [[] for _ in sides]
    for side in sides:
        together(side, study, arm, 0.0)  # builds the model, and the first steps pay for set-up
    for turn in range(ROUNDS):
        for i in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
            spent[i].append(together(sides[i], study, arm, SECONDS))
    return compared(spent[0], spent[1:])


def together(side: Sequence[Trainer], study: str, arm: str, seconds: float) -> float:
    """Seconds per image of processes that train at the same time."""
    for trainer in side:
        trainer.ask(json.dumps({"arm": [study, arm], "seconds": seconds}))
    return 1 / sum(told["images"] / told["seconds"] for told in [trainer.answer() for trainer in side])


def compared(ours: Sequence[float], scripts: Sequence[Sequence[float]]) -> dict[str, Any]:
    """How many times longer an image takes in the faster of the scripts, round by round."""
    best = min(range(len(scripts)), key=lambda i: statistics.median(scripts[i]))
    ratios = [theirs / mine for mine, theirs in zip(ours, scripts[best], strict=True)]
    low, high, chance = interval(ratios)
    return {
        "seconds": statistics.median(ours),
        "peer_seconds": statistics.median(scripts[best]),
        "workers": LOADERS[best],
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "chance": chance,
    }


def totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Per study and for all: hours of the whole machine for all runs at `large`, ours and the script's, at most."""
    found = {}
    for name in (*dict.fromkeys(r["study"] for r in rows), "all"):
        some = [r for r in rows if name in (r["study"], "all")]
        ours, theirs = (sum(r["images"] * r[side] for r in some) / 3600 for side in ("seconds", "peer_seconds"))
        found[name] = {"hours": ours, "peer_hours": theirs, "ratio": theirs / ours}
    return found


def _answer(side: str) -> None:
    """The process of one side: it reads an arm and a time per line, and answers with images and seconds."""
    import torch

    from benchmarks import arms
    from saccade.data.images import Source

    name, _, workers = side.partition(":")
    if name == "ours":
        torch.set_num_threads(1)
    runs = {(study, arm): run for study, arm, run, _ in arms.planned()}
    known, step, batch = None, None, 0
    for line in sys.stdin:
        asked = json.loads(line)
        if known != asked["arm"]:
            run = runs[tuple(asked["arm"])]
            images = Source(run.data, run.data_args, run.seed, "cpu")("train")
            batch = min(run.recipe.batch, len(images))
            step = None  # workers of the last arm's loader end before the next begin
            step = arms.ours(run, images, batch) if name == "ours" else arms.plain(run, images, batch, int(workers))
            known = asked["arm"]
            for _ in range(3):
                step()
        assert step is not None
        began, steps = time.perf_counter(), 0
        while steps == 0 or time.perf_counter() - began < asked["seconds"]:
            step()
            steps += 1
        print(json.dumps({"images": steps * batch, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    _answer(sys.argv[1])
