"""Reference cards: built-in models trained by one stated recipe and measured, for src/saccade/profiling/cards.json.

python -m benchmarks.cards --lab lab                 every card (skips what the lab has)
python -m benchmarks.cards --lab lab --models lenet  one model; the other cards stay as they are

Accuracy is that on the first 2000 test images. Models of PROFILED are profiled too, so that they stand beside the rows
of every profile. Small sizes and few images: the whole takes about an hour of one core. san has its plan `small`: a
step of its default takes 2.2 s of a core, 20 times as long, and its three seeds would take two hours. resnet50 and san
are not measured yet: both were begun on a machine without a free core and stopped (resnet50: 2516 of 3000 steps, about
four minutes of a core).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

from saccade import stats
from saccade.lab.pipeline import How, train
from saccade.lab.store import Lab, write_atomic
from saccade.profiling import measure
from saccade.spec import Probe, Recipe, Run, Settings, Task

OUT = Path(__file__).parent.parent / "src" / "saccade" / "profiling" / "cards.json"
RECIPE = Recipe(images=32_000, batch=32, optimizer="adamw", lr=0.002, weight_decay=0.01, schedule="one_cycle", watch=0)
AUGMENT = {"cifar10": "crop_flip", "mnist": "crop"}  # a mirrored digit is no digit
WORDS = "32 000 images seen, AdamW, batch 32, one cycle to lr 0.002, weight decay 0.01, "
SEEDS, N, TESTED = 3, 250, 2000
TRANSFORMER = {"dim": 64, "heads": 4, "depth": 2, "hidden": 128, "patch": 4}
MODELS: dict[str, dict[str, Any]] = {
    "lenet": {},
    "basic_vit": {},
    "basic_cnn": {},
    "local_attn": {},
    "local_dw": {"size": "mini", "window": 3},
    "quadratic": TRANSFORMER,
    "vit": {"dim": 64, "depth": 4},
    "mha_lenet": {},
    "convnet": {"width": 8},
    "resnet18": {"width": 8},
    "learned_relative": TRANSFORMER,
    "resnet50": {"width": 8, "stem": "cifar", "stages": (1, 1, 1, 1)},
    "conv_stem_vit": {**TRANSFORMER, "width": 8},
    "san": {"plan": "small"},
}
PROFILED = ("lenet", "basic_vit", "resnet18", "vit")
SETS = ("cifar10", "mnist")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lab", default="lab")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--accuracy", action="store_true", help="no profiles")
    asked = parser.parse_args()
    lab = Lab(asked.lab).open()
    known = {(c["model"], c["data"]): c for c in json.loads(OUT.read_text("utf-8"))} if OUT.exists() else {}
    for model in asked.models:
        for data in asked.sets:
            known[model, data] = card(lab, model, data, asked.jobs, profiled=model in PROFILED and not asked.accuracy)
            write_atomic(OUT, json.dumps([known[k] for k in sorted(known)], indent=1).encode())
            print(model, data, f"{100 * known[model, data]['accuracy']:.1f} %", flush=True)


def card(lab: Lab, model: str, data: str, jobs: int | None, *, profiled: bool) -> dict[str, Any]:
    args = {**MODELS[model], **({"channels": 1} if data == "mnist" else {})}
    made = Settings(of=data, augment=AUGMENT[data])
    asked = (Probe("accuracy", splits=("test",), n=TESTED),)
    tasks = [Task(Run(model, "photos", RECIPE, seed, Settings(args), made), asked) for seed in range(SEEDS)]
    table = train(lab, tasks, How(jobs=jobs))
    right = stats.estimate(table.series("accuracy", split="test"))
    values: dict[str, float] = {}
    if profiled:
        profiles = [measure.profile(t.run.key, data, n=N, lab=str(lab.root)) for t in tasks]
        keys = [row.key for row in profiles[0].rows if all(any(r.key == row.key for r in p.rows) for p in profiles)]
        values = {k: sum(p.row(k).estimate.value for p in profiles) / SEEDS for k in keys if k != "milliseconds"}
    return {
        "model": model,
        "args": args,
        "data": data,
        "recipe": WORDS + {"crop_flip": "crop and flip", "crop": "crop"}[AUGMENT[data]],
        "seeds": SEEDS,
        "accuracy": right.value,
        "low": right.low,
        "high": right.high,
        "seconds": sum(table.series("train_seconds").values()) / SEEDS,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} when written",
        "values": {**values, "accuracy": right.value},
    }


if __name__ == "__main__":
    main()
