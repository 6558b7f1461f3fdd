"""Reference cards: built-in models trained by a stated recipe, measured; so that "is mine broken?" has an answer.

`cards.json` is written by `python -m benchmarks.cards`, which trains and profiles them; nothing in it is typed in.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from saccade.report.profile import Reference


@dataclass(frozen=True, kw_only=True)
class Card:
    """A model on a set: mean over seeds of every row of its profiles, and what its training took."""

    model: str
    args: Mapping[str, object]
    data: str
    recipe: str
    seeds: int
    accuracy: float
    low: float
    high: float
    seconds: float  # of training one seed, on the machine named
    machine: str
    values: Mapping[str, float]

    def sentence(self) -> str:
        """As in `cifar10: 44.8 % [42.1, 47.5] over 3 seeds, 12 s each; width=8; 32 000 images seen, ...`."""
        arguments = ", ".join(f"{k}={v}" for k, v in self.args.items()) or "its defaults"
        return (
            f"{self.data}: {100 * self.accuracy:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}] over {self.seeds} "
            f"seeds, {self.seconds:.0f} s each ({self.machine}); {arguments}; {self.recipe}"
        )


@functools.cache
def cards() -> tuple[Card, ...]:
    file = resources.files("saccade.profiling").joinpath("cards.json")
    return tuple(Card(**one) for one in json.loads(file.read_text("utf-8"))) if file.is_file() else ()


def of(data: str) -> tuple[Card, ...]:
    """The cards of a set."""
    return tuple(card for card in cards() if card.data == data)


def of_model(model: str) -> tuple[Card, ...]:
    """The cards of a model, one per set."""
    return tuple(card for card in cards() if card.model == model)


def reference(card: Card, key: str) -> Reference:
    return Reference(name=card.model, value=card.values[key], about=f"{card.recipe}, {card.seeds} seeds")
