"""What the lab costs beside the training: overhead per run, and how long a large lab takes to answer.

`python -m benchmarks.lab overhead 1000`, `... ray 1000` or `... status 100000` makes one row by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import load
from saccade.lab import index, launch, plan
from saccade.lab.store import Lab, seal
from saccade.spec import Probe, Recipe, Run, Settings, Task, plain

Row = dict[str, Any]
PROBE = Probe("accuracy", n=100)


def trivial(seed: int, probes: Sequence[Probe] = ()) -> Task:
    """The shortest run there is: one step of a net with a handful of weights on 32 images."""
    recipe = Recipe(images=32, batch=32, watch=0)
    data = Settings(of="procedural_textures", p=32)
    return Task(Run("basic_cnn", "points", recipe, seed, Settings(width=1), data), tuple(probes))


def overhead(runs: int, on: str = "local") -> Row:
    """Wall time per run beyond what the runs themselves took, by one worker, from the first end to the last.

    A run's own time is that of its data, its model and its step, timed in this process for the same specifications.
    """
    tasks = [trivial(seed) for seed in range(runs)]
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(folder).open()
        ends = []
        with _launcher(on) as work:
            for event in work(tasks, lab):
                if event.kind == "finished":
                    ends.append(time.perf_counter())
        if len(ends) != runs:
            raise SystemExit(f"only {len(ends)} of {runs} runs finished")
    wall, own = (ends[-1] - ends[0]) / (runs - 1), _own_seconds(tasks[: min(runs, 100)])
    return {
        "name": f"overhead per run, {'Ray' if on == 'ray' else 'worker processes of this machine'}",
        "setting": f"{runs:,} runs of one step, one worker",
        "aim": 0.05 if on == "ray" else 0.02,
        "seconds": wall - own,
        "beside": f"{1000 * wall:.1f} ms from end to end, of which the run itself {1000 * own:.1f} ms",
    }


@contextlib.contextmanager
def _launcher(on: str) -> Iterator[Any]:
    if on == "local":
        yield lambda tasks, lab: launch.local(tasks, lab, places=["cpu"])
        return
    from saccade.lab import cluster

    cluster.connect("local")
    try:
        yield lambda tasks, lab: cluster.on_ray(tasks, lab, places=["cpu"], jobs=1)
    finally:
        cluster.disconnect()


def _own_seconds(tasks: Sequence[Task]) -> float:
    """What training alone takes: the loop with its data and model, no lab."""
    import torch

    from saccade.training.loop import train

    torch.set_num_threads(1)
    for _ in train(tasks[0].run):  # the first pays for imports
        pass
    began = time.perf_counter()
    for task in tasks:
        for _ in train(task.run):
            pass
    return (time.perf_counter() - began) / len(tasks)


def synthetic(folder: Path, runs: int, make: Callable[[int, list[Probe]], Task] = trivial) -> list[Task]:
    """A lab as such runs would leave it, made without training; its times lie a minute back."""
    lab = Lab(folder).open()
    tasks = [make(number, [PROBE]) for number in range(runs)]
    curve = [
        {"metric": "online", "value": 0.5, "n": 32, "at": {"images": 32 * i, "split": "online"}} for i in range(40)
    ]
    training = seal({"probe": "training", "settings": {}, "version": 1, "rows": curve})
    rows = seal(
        {
            "probe": PROBE.name,
            "settings": plain(PROBE.settings),
            "version": 1,
            "rows": [{"metric": "accuracy", "value": 0.5, "n": 100, "at": {"split": s}} for s in ("train", "test")],
        }
    )
    done = seal({"outcome": "finished", "reason": "all 1 steps", "seconds": 0.01, "step": 1, "files": {}})
    past = time.time() - 60
    for task in tasks:
        home = lab.folder(task.run.key)
        (home / "rows").mkdir(parents=True)
        (home / "run.json").write_bytes(seal({"run": plain(task.run), "facts": {"versions": {}}}))
        (home / "rows" / f"{plan.TRAINING.key}.json").write_bytes(training)
        (home / "rows" / f"{PROBE.key}.json").write_bytes(rows)
        (home / "log.jsonl").write_bytes(b'{"event": "finished"}\n')
        (home / "done.json").write_bytes(done)
        os.utime(home, (past, past))
    return tasks


def answers(runs: int) -> Iterator[Row]:
    """How long `status` and a table take on a lab of so many runs."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = synthetic(Path(folder), runs)
        lab = Lab(folder)
        counts, _, built = index.status(lab)
        if counts["finished"] != runs:
            raise SystemExit(f"the index counts {counts} of {runs} runs")
        setting = f"{runs:,} runs"
        yield {
            "name": "index built from nothing",
            "setting": setting,
            "aim": None,
            "seconds": built.seconds,
            "beside": f"{1e6 * built.seconds / runs:.0f} µs per run",
        }
        yield {
            "name": "saccade status, warm",
            "setting": setting,
            "aim": 1.0,
            "seconds": min(_status(folder) for _ in range(3)),
            "beside": "the whole command in this process, without starting Python",
        }
        some = tasks[: min(runs, 10_000)]
        for name in ("first", "again"):
            began = time.perf_counter()
            with index.reading(lab) as read:
                table = plan.table_of(read, some)
            yield {
                "name": f"a table of {len(some):,} runs, {name}",
                "setting": setting,
                "aim": None,
                "seconds": time.perf_counter() - began,
                "beside": f"{len(table):,} rows",
            }


def _status(folder: str) -> float:
    from saccade.cli import commands

    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        commands.main(["status", "--lab", folder, "--json"])
    return time.perf_counter() - began


def parts(quick: bool) -> dict[str, Callable[[], Iterator[Row]]]:
    """What `make bench` measures of the lab, by a name to choose it by."""
    runs, many = (50, 1000) if quick else (1000, 100_000)
    made: dict[str, Callable[[], Iterator[Row]]] = {"lab: overhead": lambda: iter([overhead(runs)])}
    if not quick:
        made["lab: overhead on Ray"] = lambda: iter([overhead(runs, "ray")])
    return made | {"lab: answers": lambda: answers(many)}


def beside_others(make: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Rows with the work of other programs while each was measured."""
    rows = make()
    while True:
        with load.watched() as beside:
            row = next(rows, None)
        if row is None:
            return
        yield row | beside


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.lab", description=__doc__)
    flags.add_argument("what", choices=("overhead", "ray", "status"))
    flags.add_argument("runs", type=int)
    asked = flags.parse_args()
    makes: dict[str, Callable[[], Iterator[Row]]] = {
        "overhead": lambda: iter([overhead(asked.runs)]),
        "ray": lambda: iter([overhead(asked.runs, "ray")]),
        "status": lambda: answers(asked.runs),
    }
    for row in beside_others(makes[asked.what]):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
