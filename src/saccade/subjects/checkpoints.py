"""Weights from a file into a model: what does not fit is named, and nothing from outside is unpickled."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import SaccadeError, in_words, quoted

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
UNUSED = "num_batches_tracked"  # a counter that no answer depends on; older checkpoints have none
SHOWN = 3  # names that a sentence quotes


def load_into(model: nn.Module, file: str | Path) -> None:
    """Every key must fit. On a mismatch the model is left as it was, and the sentence says what differs."""
    own = model.state_dict()
    weights = _same_prefix(read(file), own)
    weights = {**{k: v for k, v in own.items() if k.endswith(UNUSED)}, **weights}
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
            raise SaccadeError(f"{path} cannot be read as safetensors ({in_words(error)}); save it again.") from None
    _check_kind(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on pickle protocols
            inside = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the pickle machinery meets
        raise SaccadeError(
            f"{path} is refused: as a pickle it may run code, and it does not load with weights_only{_met(error)}; "
            "save model.state_dict() alone, best as safetensors."
        ) from None
    return _tensors(inside, path)


def _check_kind(path: Path) -> None:
    """A file that is no checkpoint, or only a part of one, is not to be called a dangerous pickle."""
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        raise SaccadeError(f"{path} is empty; save or copy the checkpoint again.")
    if start.startswith(b"PK"):
        if not zipfile.is_zipfile(path):
            raise SaccadeError(f"{path} is damaged: its end is missing; save or copy the checkpoint again.")
        with zipfile.ZipFile(path) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise SaccadeError(
                    f"{path} is a TorchScript program, not weights; give a function that returns torch.jit.load of it, "
                    "as in mynet.py:net."
                )
    elif all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start):
        said = start.decode("ascii").splitlines()[0]
        raise SaccadeError(f"{path} is a text file ({quoted(said)}), not a checkpoint; fetch or save it again.")


def _met(error: Exception) -> str:
    """The class that a pickle wants to make, where torch names one; its advice to load it all the same is left out."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    return f" (it holds {found[1].strip('`.')})" if found else ""


def _tensors(inside: Any, path: Path) -> dict[str, Tensor]:
    """The state_dict, also when a training script has put it beside its optimizer and epoch."""
    while isinstance(inside, Mapping) and (name := next((n for n in INSIDE if _maps(inside.get(n))), "")):
        inside = inside[name]
    if not isinstance(inside, Mapping) or not inside or not all(isinstance(v, Tensor) for v in inside.values()):
        raise SaccadeError(
            f"{path} holds no state_dict (tensors by name), but {_described(inside)}; save model.state_dict()."
        )
    return {str(k): v for k, v in inside.items()}


def _maps(value: Any) -> bool:
    return isinstance(value, Mapping)


def _same_prefix(weights: dict[str, Tensor], own: Mapping[str, Any]) -> dict[str, Tensor]:
    """A first word that all keys of one side share and none of the other has is left out, or put before them.

    Parallel wrappers, torch.compile and trainers leave such words: module., _orig_mod., model., backbone.
    """
    while (prefix := _shared(weights)) and not any(k.startswith(prefix) for k in own):
        weights = {k.removeprefix(prefix): v for k, v in weights.items()}
    before = ""
    while (prefix := _shared({k.removeprefix(before): k for k in own})) and not any(
        k.startswith(prefix) for k in weights
    ):
        before += prefix
    fitting = {before + k: v for k, v in weights.items()}
    return fitting if before and set(fitting) & set(own) else weights


def _shared(keys: Mapping[str, Any]) -> str:
    """The word before the first dot, with it, where all keys have the same."""
    first = {k.partition(".")[0] if "." in k else "" for k in keys}
    return f"{next(iter(first))}." if len(first) == 1 and "" not in first else ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _described(inside: Any) -> str:
    if isinstance(inside, Mapping):
        return f"a mapping with {_some([str(k) for k in inside])}" if inside else "an empty mapping"
    return f"a value of type {type(inside).__name__}"
