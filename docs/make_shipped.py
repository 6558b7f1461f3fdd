"""Trains the models of src/saccade/shipped on real data and measures them: python docs/make_shipped.py [NAME ...]

One run per model, seed 0, nothing chosen among several. Weights are kept in half precision, and what a card says was
measured with them as they are shipped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import safetensors.torch
import torch

from saccade import __version__, models, registry, shipped
from saccade.data.images import Source
from saccade.spec import Probe, Recipe, Run, Settings, plain
from saccade.subjects.subject import Subject
from saccade.training import loop
from saccade.training.events import Done

FOLDER = Path(shipped.__file__).parent
RECIPE = Recipe(images=40_000)  # two thirds of the training digits, once each; batch 16, Adam at 0.001, as in the study
VIT = Settings(dim=48, heads=4, depth=2)
RUNS = {
    "cnn_x8": Run("lenet", "digits_on_backgrounds", RECIPE, 0, data_args=Settings(backgrounds=8)),
    "cnn_x64": Run("lenet", "digits_on_backgrounds", RECIPE, 0, data_args=Settings(backgrounds=64)),
    "mha_x64": Run("mha_lenet", "digits_on_backgrounds", RECIPE, 0, Settings(heads=2), Settings(backgrounds=64)),
    "mha_x8": Run("mha_lenet", "digits_on_backgrounds", RECIPE, 0, Settings(heads=2), Settings(backgrounds=8)),
    "vit_x64": Run("basic_vit", "digits_on_backgrounds", RECIPE, 0, VIT, Settings(backgrounds=64)),
}
ASKED = Probe("accuracy", splits=("id", "ood"), n=10_000)


def make(name: str, run: Run) -> None:
    torch.set_num_threads(1)
    *_, done = loop.train(run)
    assert isinstance(done, Done) and done.outcome == "finished", done
    kept = {k: v.half().contiguous() for k, v in done.model.state_dict().items()}
    safetensors.torch.save_file(kept, FOLDER / f"{name}.safetensors")
    done.model.load_state_dict({k: v.float() for k, v in kept.items()})
    data = Source(run.data, run.data_args, run.seed)
    subject = Subject(done.model.eval(), data("train").mean, data("train").std)
    measured = [
        {"metric": r.metric, "at": dict(r.at), "value": r.value, "n": r.n}
        for r in registry.find("probe", ASKED.name)(subject, data, **ASKED.settings)
    ]
    card = {
        "name": name,
        "about": f"{registry.card('model', run.model).about} Trained with {run.data_args['backgrounds']} backgrounds "
        "per digit.",
        "run": plain(run),
        "parameters": models.parameters(done.model),
        "classes": data("train").classes,
        "mean": list(data("train").mean),
        "std": list(data("train").std),
        "size": 32,
        "channels": 3,
        "trained": {"images": RECIPE.images, "steps": done.step, "seconds": round(done.seconds, 1), "device": "cpu"},
        "measured": measured,
        "made_with": {"saccade": __version__, "torch": torch.__version__},
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    print(name, measured, flush=True)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or RUNS:
        make(wanted, RUNS[wanted])
