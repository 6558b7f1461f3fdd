"""One architecture a file. `build` makes a registered model with weights from a named stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from saccade import arguments, registry, rng
from saccade.errors import SaccadeError, in_words

CLASSES = (arguments.Kind("int", range=arguments.Range(at_least=2, at_most=10**6)),)


def build(name: str, classes: int = 10, *, seed: int | None = None, **args: Any) -> nn.Module:
    """A registered model. With a seed, its weights come from that seed's `init` stream alone."""
    arguments.check_value("classes", CLASSES, classes)
    function = registry.find("model", name)
    registry.check_args("model", name, args)
    if seed is None:
        return _made(function, name, classes, args)
    # torch initialises layers from global random state; it is put back afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.seed_of(seed, "init", name))
        return _made(function, name, classes, args)


def _made(function: Callable[..., nn.Module], name: str, classes: int, args: Mapping[str, Any]) -> nn.Module:
    try:
        return function(classes, **args)
    except SaccadeError:
        raise
    except Exception as error:  # several arguments that are each right and make no model together
        if not args:
            raise
        given = ", ".join(f"{k}={v}" for k, v in args.items())
        raise SaccadeError(f"{name} cannot be built with {given}: {in_words(error)}.") from error


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
