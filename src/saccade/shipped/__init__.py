"""Small trained models that come with the package: their cards, and the models themselves.

Each is one run of the study digits_on_backgrounds (MNIST on CIFAR-10) at seed 0. A card says how it was trained and
what it reaches; docs/make_shipped.py in the repository makes both. Loading a model needs no data.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.spec import Run, SaccadeError, suggest

if TYPE_CHECKING:
    from torch import nn

FOLDER = Path(__file__).parent
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Card:
    """What is known of a shipped model: the run that made it, and what was measured with the weights as shipped."""

    name: str
    about: str
    run: Run
    parameters: int
    classes: int
    mean: Triple
    std: Triple
    size: int
    channels: int
    trained: Mapping[str, Any]
    measured: tuple[Mapping[str, Any], ...]

    def accuracy(self, split: str) -> tuple[float, int]:
        """Share of right answers, and of how many images."""
        found = next(r for r in self.measured if r["metric"] == "accuracy" and r["at"]["split"] == split)
        return found["value"], found["n"]


@functools.cache
def cards() -> dict[str, Card]:
    """Every shipped model by name."""
    return {file.stem: _read(file) for file in sorted(FOLDER.glob("*.json"))}


def card(name: str) -> Card:
    known = cards()
    if name not in known:
        raise SaccadeError(suggest("shipped model", name, known))
    return known[name]


def by_key(key: str) -> Card | None:
    """The shipped model whose run has this key."""
    return next((c for c in cards().values() if c.run.key == key), None)


def load(name: str) -> nn.Module:
    """The trained model, ready to be asked: shipped.load("cnn_x64")(images), images standardised as its card says."""
    import safetensors.torch

    from saccade import models

    found = card(name)
    model = models.build(found.run.model, found.classes, seed=found.run.seed, **found.run.model_args)
    kept = safetensors.torch.load_file(FOLDER / f"{name}.safetensors")
    model.load_state_dict({k: v.float() for k, v in kept.items()})
    return model.eval()


def _read(file: Path) -> Card:
    card = json.loads(file.read_text("utf-8"))
    return Card(
        name=card["name"],
        about=card["about"],
        run=Run.parse(card["run"]),
        parameters=card["parameters"],
        classes=card["classes"],
        mean=tuple(card["mean"]),
        std=tuple(card["std"]),
        size=card["size"],
        channels=card["channels"],
        trained=card["trained"],
        measured=tuple(card["measured"]),
    )
