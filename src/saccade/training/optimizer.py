"""The optimiser of a recipe, and its learning rate at each step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from saccade.spec import Recipe


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Fused: 1.1 to 1.17 times faster for the smallest models, the same numbers.

    A module may name parameters of its own in `undecayed`: positions and widths, which decay would pull to 0.
    """
    spared = {id(getattr(m, name)) for m in model.modules() for name in getattr(m, "undecayed", ())}
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if id(p) not in spared]}]
    if spared:
        groups.append({"params": [p for p in model.parameters() if id(p) in spared], "weight_decay": 0.0})
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            groups,
            recipe.lr,
            recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.nesterov,
            fused=True,
        )
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    return kind(groups, recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = recipe.lr * lr_factor(recipe, step)


def lr_factor(recipe: Recipe, step: int) -> float:
    """The share of the peak learning rate at a step."""
    t = step / recipe.steps
    if recipe.schedule == "one_cycle":  # torch's own shape: 1/25 up to 1 over 30 %, then down to 1/250 000
        if t < 0.3:
            return _cosine(1 / 25, 1.0, t / 0.3)
        return _cosine(1.0, 1 / 250_000, (t - 0.3) / 0.7)
    if t < recipe.warmup:
        return (step + 1) / (recipe.warmup * recipe.steps + 1)
    if recipe.schedule == "cosine":
        return _cosine(1.0, 0.0, (t - recipe.warmup) / (1 - recipe.warmup))
    if recipe.schedule == "steps":
        return 0.1 ** sum(t >= share for share in (1 / 3, 2 / 3, 5 / 6))
    return 1.0


def _cosine(start: float, end: float, t: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2
