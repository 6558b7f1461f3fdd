"""A lab of twenty runs that were never trained, written in seconds: what the explorer shows, without a download."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path

from saccade.lab import pipeline
from saccade.lab.plan import TRAINING
from saccade.lab.store import Lab
from saccade.report import profile
from saccade.spec import Estimate, Probe, Recipe, Run, Settings, Task, plain

STUDY, SCALE = "digits_on_backgrounds", "demo"
DRAWN = {"digits": "procedural_digits", "scenes": "procedural_textures"}
FACTS = {
    "versions": {"model": 1, "data": 1},
    "torch": "2.13.0",
    "device": "cpu",
    "data": {"drawn": {"x": "0123456789abcdef"}},
}


def accuracy(task: Task, seed: int, **at: object) -> float:
    """A made-up number that depends on everything that it should depend on."""
    draw = random.Random(f"{task.arm}{task.run.data_args['backgrounds']}{seed}{sorted(at.items())}")
    base = {"train": 0.97, "id": 0.95}.get(
        str(at.get("split")), 0.3 + 0.1 * math.log2(task.run.data_args["backgrounds"])
    )
    lost = 0.06 * abs(float(at.get("severity", 0))) ** 0.5 if "severity" in at else 0.0
    return round(min(0.99, max(0.05, base - lost + draw.gauss(0, 0.02))), 4)


def rows_of(task: Task, probe: Probe) -> list[dict]:
    n = int(probe.settings.get("n", 100))
    if probe.name == "accuracy":
        conditions = [{"split": s} for s in probe.settings["splits"]]
    else:
        names = ("translation", "rotation", "scale")
        conditions = [{"transform": t, "severity": v} for t in names for v in probe.settings[t]]
    return [{"metric": "accuracy", "value": accuracy(task, task.run.seed, **at), "n": n, "at": at} for at in conditions]


def finish(lab: Lab, task: Task, weights: bytes | None = None, outcome: str = "finished") -> None:
    """What a worker leaves behind of one run."""
    run, key = task.run, task.run.key
    lease = lab.claim(run, FACTS)
    assert lease is not None
    images = [round(run.recipe.images * (i + 1) / 8) for i in range(8)]
    for i, seen in enumerate(images):
        for split, value in (("online", 0.1 + 0.1 * i), ("ood", 0.1 + 0.05 * i)):
            lab.log(key, {"event": "watch", "images": seen, "split": split, "accuracy": value, "n": 256})
    if outcome == "finished":
        curve = [{"metric": "watched", "value": 0.1, "n": 256, "at": {"images": v, "split": "ood"}} for v in images]
        size = {"metric": "parameters", "value": 62006, "n": 1, "at": {}}
        lab.put_rows(key, TRAINING, 1, [*curve, size])
        for probe in task.probes:
            lab.put_rows(key, probe, 1, rows_of(task, probe))
    lab.finish(key, {"outcome": outcome, "reason": "all 1000 steps", "seconds": 12.5, "step": 1000}, weights)
    lab.log(key, {"event": outcome, "reason": "all 1000 steps"})
    lease.release()


def weights_of(run: Run) -> bytes:
    import safetensors.torch

    from saccade import models

    model = models.build(run.model, 10, seed=run.seed, **run.model_args)
    return safetensors.torch.save({k: v.contiguous() for k, v in model.state_dict().items()})


def session_of(root: Path) -> pipeline.Session:
    return pipeline.open_session(STUDY, SCALE, root, DRAWN)


def make_lab(root: Path) -> Lab:
    lab = Lab(root).open()
    for task in session_of(root).tasks:
        finish(lab, task, weights_of(task.run) if task.run.seed == 0 else None)
    heads = Run(
        "quadratic",
        "digits_on_backgrounds",
        Recipe(images=320),
        0,
        Settings(depth=2, dim=8, heads=4, hidden=16, patch=4, shell="reproduction"),
        Settings(DRAWN, backgrounds=2),
    )
    finish(lab, Task(heads), weights_of(heads))
    return lab


def put_profile(folder: Path) -> None:
    """As `saccade profile` writes it."""
    estimate = Estimate(0.5, 0.4, 0.6, 100, "wilson, images")
    row = profile.Measured(
        key="accuracy", question="right answers", probe="accuracy", unit="percent", estimate=estimate
    )
    made = {
        "name": "mine",
        "facts": {"parameters": 10, "origin": "a test"},
        "data": {"set": "cifar10", "split": "test", "n": 100},
        "reading": "by its labels",
        "way": "",
    }
    rest = {"rows": (row,), "skipped": {"mosaics": "no"}, "notes": (), "details": (), "seconds": 1.0, "n": 100}
    folder.mkdir(parents=True)
    (folder / "profile.json").write_text(json.dumps(profile.Profile(**made, **rest).plain()))


def key_of(lab: Lab, model: str, **fields: object) -> str:
    for key in lab.keys():  # noqa: SIM118 - a Lab is no mapping
        run = lab.run(key)
        have = {"seed": run.seed, **plain(run.data_args)}
        if run.model == model and all(have[k] == v for k, v in fields.items()):
            return key
    raise AssertionError(f"no {model} with {fields}")


class Served:
    """`saccade serve` in a process of its own."""

    def __init__(self, root: Path, *words: str) -> None:
        command = [sys.executable, "-m", "saccade", "serve", "--lab", str(root), "--json", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        lines = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("}"):
                break
        told = json.loads("".join(lines)) if lines else {}
        assert "address" in told, self.process.stderr.read() if self.process.stderr else ""
        self.address = told["address"]
        self.port = int(self.address.rstrip("/").rpartition(":")[2])

    def stop(self) -> str:
        self.process.terminate()
        _, told = self.process.communicate(timeout=30)
        return told
