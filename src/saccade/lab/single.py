"""One model over seeds as tasks: what `saccade train` and `saccade.train` plan alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saccade import registry
from saccade.data.named import named
from saccade.lab import identity
from saccade.spec import Probe, Recipe, Run, Settings, Task, recipe_of

IMAGES = 8000  # training images seen, where nobody says how many


def tasks(
    model: str,
    data: str,
    *,
    recipe: Recipe | Mapping[str, Any],
    seeds: Iterable[int],
    model_args: Mapping[str, Any] | None = None,
    data_args: Mapping[str, Any] | None = None,
    probes: Sequence[str | Probe] = ("accuracy",),
) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """The tasks, and the files that a process which trains must load; every slip is a sentence before any training.

    `model` is a registered name or file.py:function; `accuracy` by its name alone is asked of training images and of
    every held-out split.
    """
    plugins: tuple[str, ...] = ()
    if model.rpartition(":")[0].endswith(".py"):
        model, plugins = registry.adopt(model), (model,)
    data, data_settings = named(data, data_args)
    card, source = registry.card("model", model), registry.card("data", data)
    registry.check_args("model", model, model_args or {})
    registry.check_args("data", data, data_settings)
    run_recipe = recipe if isinstance(recipe, Recipe) else recipe_of({"images": IMAGES}, recipe)
    test_splits = ("test",) if "test" in source.splits else ()
    splits = tuple(dict.fromkeys(("train", source.extra.get("watch", "test"), *test_splits)))
    parsed_probes = tuple(_probe(p, splits) for p in probes)
    for one in parsed_probes:
        registry.check_args("probe", one.name, one.settings)
    planned = [
        Task(
            Run(card.name, source.name, run_recipe, seed, Settings(model_args), Settings(data_settings)), parsed_probes
        )
        for seed in seeds
    ]
    return identity.identify(planned), plugins


def _probe(probe: str | Probe, splits: tuple[str, ...]) -> Probe:
    if isinstance(probe, Probe):
        return probe
    return Probe(probe, splits=splits) if probe == "accuracy" else Probe(registry.card("probe", probe).name)
