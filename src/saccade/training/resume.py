"""What a killed run goes on from: weights, optimiser, step and curve, as tensors in safetensors. No pickle."""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn


def pack_weights(model: nn.Module) -> bytes:
    """The model's tensors in safetensors. Tied ones are written out under every name."""
    return safetensors.torch.save({k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()})


def pack_state(meta: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> bytes:
    text = json.dumps({name: int(value) if isinstance(value, Tensor) else value for name, value in meta.items()})
    tensors = {"meta": torch.tensor(list(text.encode()), dtype=torch.uint8)}
    tensors |= {f"model.{k}": v.detach().contiguous() for k, v in model.state_dict().items()}
    for i, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{k}": v.contiguous() for k, v in slots.items() if isinstance(v, Tensor)}
    return safetensors.torch.save({k: v.cpu().clone() for k, v in tensors.items()})


def restore(state: bytes, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    tensors = safetensors.torch.load(state)
    meta: dict[str, Any] = json.loads(bytes(tensors.pop("meta").tolist()))
    model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, i, slot = name.split(".", 2)
            slots.setdefault(int(i), {})[slot] = value
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
    return meta
