"""What a model answers with: a tensor, or the plain one in a tuple, a mapping or a dataclass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from saccade.spec import SaccadeError

LOGITS = ("logits", "out", "output", "outputs", "prediction", "predictions", "preds", "pred", "scores")
FEATURES = ("pooler_output", "features", "embedding", "embeddings", "last_hidden_state")


def unpack(out: Any, n: int, name: str, classes: int = 0) -> tuple[tuple[Any, ...], Tensor]:
    """The answers in an output, and the way to them: a tensor, or the plain one of a tuple, mapping or dataclass.

    Of several that nothing is known of, the only one with as many columns as there are `classes` is taken.
    """
    path = _way(out, n, classes)
    if path is None:
        raise SaccadeError(
            f"{name} answers with {_shape(out)}, in which no row per image can be recognised; return (n, classes)."
        )
    answers = follow(out, path)
    if len(answers) != n:
        raise SaccadeError(f"{name} answers with {len(answers)} rows to {n} images; return one row per image.")
    if not answers.is_floating_point():
        raise SaccadeError(f"{name} answers with {answers.dtype}, not scores; return logits (n, classes).")
    if answers.ndim > 2 and math.prod(answers.shape[2:]) > 1:
        raise SaccadeError(
            f"{name} answers with {tuple(answers.shape)}, more than one row per image; return (n, classes), for "
            "instance by averaging over places or tokens."
        )
    if answers.ndim < 2 or answers.shape[1] < 2:
        raise SaccadeError(f"{name} answers with one number per image; return one score per class, at least two.")
    flat = answers.flatten(1)
    if bool(flat.isnan().any()):
        count = int(flat.isnan().any(1).sum())
        raise SaccadeError(
            f"{name} answers NaN for {count} of {n} ordinary images; check its weights and its normalisation."
        )
    return path, flat


def _way(out: Any, n: int, classes: int) -> tuple[Any, ...] | None:
    if isinstance(out, Tensor):
        return ()
    if isinstance(out, Mapping):
        return _chosen("key", dict(out), n, classes)
    if dataclasses.is_dataclass(out) and not isinstance(out, type):
        return _chosen("name", {f.name: getattr(out, f.name) for f in dataclasses.fields(out)}, n, classes)
    if hasattr(out, "_fields"):  # a named tuple
        return _chosen("name", {k: getattr(out, k) for k in out._fields}, n, classes) or _first(out, n, classes)
    if isinstance(out, Sequence) and not isinstance(out, str):
        return _first(out, n, classes)
    return None


def _chosen(kind: str, inside: Mapping[Any, Any], n: int, classes: int) -> tuple[Any, ...] | None:
    """By the usual names of logits, else the only one of the right shape, else by names of features, else the only."""
    tensors = {k: v for k, v in inside.items() if isinstance(v, Tensor)}
    fitting = [k for k, v in tensors.items() if tuple(v.shape) == (n, classes)]
    names = [k for k in LOGITS if k in tensors] or (fitting if len(fitting) == 1 else [])
    names = names or [k for k in FEATURES if k in tensors] or (list(tensors) if len(tensors) == 1 else [])
    return ((kind, names[0]),) if names else None


def _first(out: Sequence[Any], n: int, classes: int) -> tuple[Any, ...] | None:
    """Of a tuple the only one of the right shape, as logits after features; else the first with a row per image."""
    rows = [i for i, v in enumerate(out) if isinstance(v, Tensor) and v.ndim >= 2 and len(v) == n]
    fitting = [i for i in rows if tuple(out[i].shape) == (n, classes)]
    places = fitting if len(fitting) == 1 else rows
    return (("key", places[0]),) if places else None


def follow(out: Any, path: tuple[Any, ...]) -> Tensor:
    for kind, step in path:
        out = out[step] if kind == "key" else getattr(out, step)
    assert isinstance(out, Tensor)
    return out


def _shape(out: Any) -> str:
    if isinstance(out, Tensor):
        return str(tuple(out.shape))
    if isinstance(out, Mapping):
        return f"a mapping of {', '.join(map(str, list(out)[:4])) or 'nothing'}"
    if isinstance(out, (tuple, list)):
        return f"{type(out).__name__} of {', '.join(_shape(v) for v in out[:4]) or 'nothing'}"
    return type(out).__name__
