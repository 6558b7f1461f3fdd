"""Weights from a file into a model: what does not fit is named, and nothing from outside is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.spec import SaccadeError

ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
INSIDE = (
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "net",
    "weights",
    "params",
)  # where training scripts put the weights
PREFIXES = ("module.", "_orig_mod.", "model.", "net.")  # left by parallel wrappers, torch.compile and trainers
SHOWN = 3  # names that a sentence quotes


def load_into(model: nn.Module, file: str | Path) -> None:
    """Every key must fit. On a mismatch the model is left as it was, and the sentence says what differs."""
    weights = _without_prefix(read(file), model.state_dict().keys())
    own = model.state_dict()
    missing = [k for k in own if k not in weights]
    unknown = [k for k in weights if k not in own]
    other = [
        f"{k} {tuple(weights[k].shape)} instead of {tuple(own[k].shape)}"
        for k in own
        if k in weights and weights[k].shape != own[k].shape
    ]
    if missing or unknown or other:
        counted = [
            f"{len(names)} {what} ({_some(names)})"
            for names, what in (
                (missing, f"of the model's {len(own)} missing"),
                (unknown, "unknown to the model"),
                (other, "of another shape"),
            )
            if names
        ]
        raise SaccadeError(
            f"the keys of {file} do not fit {type(model).__name__}: {'; '.join(counted)}; "
            "give the factory that it was saved from, with the same arguments (--set name=value)."
        )
    model.load_state_dict(weights)


def read(file: str | Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name. A pickle is read with `weights_only`, or refused."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise SaccadeError(f"no checkpoint {path}; give the path of a .safetensors or .pt file.")
    if path.suffix == ".safetensors":
        import safetensors
        import safetensors.torch

        try:
            return safetensors.torch.load_file(path)
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise SaccadeError(f"{path} cannot be read as safetensors ({_first_line(error)}); save it again.") from None
    try:
        inside = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the pickle machinery meets
        raise SaccadeError(
            f"{path} is refused: as a pickle it may run code, and it does not load with weights_only "
            f"({_first_line(error)}); save model.state_dict() alone, best as safetensors."
        ) from None
    return _tensors(inside, path)


def _tensors(inside: Any, path: Path) -> dict[str, Tensor]:
    """The state_dict, also when a training script has put it beside its optimizer and epoch."""
    for name in INSIDE:
        if isinstance(inside, Mapping) and isinstance(inside.get(name), Mapping):
            inside = inside[name]
            break
    if not isinstance(inside, Mapping) or not inside or not all(isinstance(v, Tensor) for v in inside.values()):
        raise SaccadeError(
            f"{path} holds no state_dict (tensors by name), but {_described(inside)}; save model.state_dict()."
        )
    return {str(k): v for k, v in inside.items()}


def _without_prefix(weights: dict[str, Tensor], known: Any) -> dict[str, Tensor]:
    """A prefix that all keys share and that none of the model's has is left out, again and again."""
    stripped = True
    while stripped:
        stripped = False
        for prefix in PREFIXES:
            if all(k.startswith(prefix) for k in weights) and not any(k.startswith(prefix) for k in known):
                weights, stripped = {k.removeprefix(prefix): v for k, v in weights.items()}, True
    return weights


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _described(inside: Any) -> str:
    if isinstance(inside, Mapping):
        return f"a mapping with {_some([str(k) for k in inside])}" if inside else "an empty mapping"
    return f"a value of type {type(inside).__name__}"


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
