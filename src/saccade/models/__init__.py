"""One architecture a file. `build` makes a registered model with weights from a named stream."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from saccade import registry, rng
from saccade.spec import SaccadeError


def build(name: str, classes: int = 10, *, seed: int | None = None, **args: Any) -> nn.Module:
    """A registered model. With a seed, its weights come from that seed's `init` stream alone."""
    if classes < 2:
        raise SaccadeError(f"classes must be at least 2, not {classes}.")
    function = registry.find("model", name)
    registry.check_args("model", name, args)
    assert "classes" in inspect.signature(function).parameters
    if seed is None:
        made: nn.Module = function(classes, **args)
        return made
    # torch initialises layers from global random state; it is put back afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.seed_of(seed, "init", name))
        made = function(classes, **args)
    return made


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
