"""Reference cards: built-in models trained by one stated recipe and profiled, for src/saccade/profiling/cards.json.

python -m benchmarks.cards --lab lab                 every card (skips what the lab has)
python -m benchmarks.cards --lab lab --models lenet  one model; the other cards stay as they are
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
from saccade.spec import Recipe, Run, Settings, Task

OUT = Path(__file__).parent.parent / "src" / "saccade" / "profiling" / "cards.json"
RECIPE = Recipe(images=16_000, batch=32, optimizer="adamw", lr=0.002, weight_decay=0.01, schedule="one_cycle", watch=0)
WORDS = "16 000 images seen, AdamW, batch 32, one cycle to lr 0.002, weight decay 0.01, crop and flip"
SEEDS, N = 3, 250
MODELS: dict[str, dict[str, Any]] = {
    "lenet": {},
    "resnet18": {"width": 8},
    "vit": {"dim": 64, "depth": 4},
    "basic_cnn": {},
    "basic_vit": {},
    "mha_lenet": {},
    "local_attn": {},
}
SETS = ("cifar10", "mnist")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lab", default="lab")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--jobs", type=int, default=None)
    asked = parser.parse_args()
    lab = Lab(asked.lab).open()
    known = {(c["model"], c["data"]): c for c in json.loads(OUT.read_text("utf-8"))} if OUT.exists() else {}
    for data in asked.sets:
        for model in asked.models:
            known[model, data] = card(lab, model, data, asked.jobs)
            write_atomic(OUT, json.dumps([known[k] for k in sorted(known)], indent=1).encode())
            print(model, data, f"{100 * known[model, data]['accuracy']:.1f} %", flush=True)


def card(lab: Lab, model: str, data: str, jobs: int | None) -> dict[str, Any]:
    args = {**MODELS[model], **({"channels": 1} if data == "mnist" else {})}
    tasks = [Task(Run(model, "photos", RECIPE, seed, Settings(args), Settings(of=data))) for seed in range(SEEDS)]
    train(lab, tasks, How(jobs=jobs))
    profiles = [measure.profile(t.run.key, data, n=N, lab=str(lab.root)) for t in tasks]
    keys = [row.key for row in profiles[0].rows if all(any(r.key == row.key for r in p.rows) for p in profiles)]
    right = stats.estimate([p.row("accuracy").estimate.value for p in profiles])
    ended = [lab.done(t.run.key) or {} for t in tasks]
    return {
        "model": model,
        "args": args,
        "data": data,
        "recipe": WORDS,
        "seeds": SEEDS,
        "accuracy": right.value,
        "low": right.low,
        "high": right.high,
        "seconds": sum(d["seconds"] for d in ended) / len(ended),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} when written",
        "values": {k: sum(p.row(k).estimate.value for p in profiles) / SEEDS for k in keys if k != "milliseconds"},
    }


if __name__ == "__main__":
    main()
