"""Does the trained model use an ingredient at all? It is taken away, and the change of the logits is measured.

A model names its position codes by an attribute of the module that holds them, parameter or buffer and the axis along
which positions are counted: `position_codes = (("positions", -2),)`. Without it the usual names are looked for.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from saccade import rng
from saccade.arguments import Count
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError, Settings
from saccade.subjects.subject import CHUNK, Subject

USUAL = ("positions", "pos_embed", "pos_embedding", "position_embedding", "position_embeddings")
USUAL_CODES = tuple((name + more, -2) for name in USUAL for more in ("", ".weight"))  # .weight: an nn.Embedding
SOFTMAXES = (torch.softmax, torch.Tensor.softmax, F.softmax)

Logits = Callable[[Tensor], Tensor]


@probe(version=1)
def ingredients(
    subject: Subject,
    data: Source,
    *,
    ingredients: Sequence[Literal["positions", "content"]] = ("positions",),
    split: str = "",
    n: Count = 300,
    draws: Count = 3,
) -> Iterator[Row]:
    """Root mean square change of the logits without an ingredient, in standard deviations of the logits over images.

    positions: position codes permuted among the places of the grid, `draws` times; a class token keeps its own.
    content: every attention map replaced by its mean over the images, so that maps no longer depend on them.
    A number added to all logits of an image changes no answer and is left out.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    x = subject.prepared(images.batch(torch.arange(len(images), device=images.y.device)))
    # float64 separates small differences from rounding; attention runs in torch calls that can be replaced
    model, x = copy.deepcopy(subject.model).double().eval(), x.double()
    with torch.no_grad():
        whole = _centred(_in_chunks(model, x))
        for name in ingredients:
            changes = [_centred(z) - whole for z in WITHOUT[name](model, x, draws, data.seed)]
            yield Row("use", _relative(torch.stack(changes), whole), len(x), Settings(ingredient=name))


def _without_positions(model: nn.Module, x: Tensor, draws: int, seed: int) -> Iterator[Tensor]:
    """Logits with permuted codes; nothing is written into the model."""
    codes = position_codes(model)
    draw = rng.stream(seed, "probe", "ingredients")
    for _ in range(draws):
        permuted_codes = {name: _permuted(code, axis, draw) for name, (code, axis) in codes.items()}
        yield _in_chunks(functools.partial(torch.func.functional_call, model, permuted_codes), x)


def position_codes(model: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """Position codes by their name in the model, each with the axis that counts positions."""
    codes = {}
    for place, module in model.named_modules():
        for name, axis in getattr(module, "position_codes", USUAL_CODES):
            code = _tensor(module, name)
            if code is not None:
                codes[f"{place}.{name}" if place else name] = (code, axis)
    if not codes:
        raise SaccadeError(
            f"{type(model).__name__} has no position codes that are known; name them in the module that holds them, "
            'as in position_codes = (("positions", -2),), parameter or buffer and the axis of positions.'
        )
    return codes


def _tensor(module: nn.Module, name: str) -> Tensor | None:
    for part in name.split("."):
        module = getattr(module, part, None)  # type: ignore[assignment]
    return module if isinstance(module, Tensor) else None


def _permuted(code: Tensor, axis: int, draw: torch.Generator) -> Tensor:
    """A class token, which makes the places one more than a square, keeps its code."""
    places = code.shape[axis]
    first = int(places > 2 and math.isqrt(places - 1) ** 2 == places - 1)
    order = torch.cat([torch.arange(first), first + torch.randperm(places - first, generator=draw)])
    return code.index_select(axis, order.to(code.device))


def _without_content(model: nn.Module, x: Tensor, draws: int, seed: int) -> Iterator[Tensor]:
    """Image by image, so that a model may form its maps in whatever pieces and order it likes."""
    recorder = _Maps()
    with recorder:
        for i in range(len(x)):
            recorder.start()
            model(x[i : i + 1])
    if not recorder.sums:
        raise SaccadeError(
            f"{type(model).__name__} shows no attention maps: none of its layers calls softmax on three or more axes "
            "or scaled_dot_product_attention; leave content out."
        )
    means = _Maps([total / len(x) for total in recorder.sums])
    with means:
        out = []
        for i in range(len(x)):
            means.start()
            out.append(model(x[i : i + 1]))
    yield torch.cat(out)


class _Maps(TorchFunctionMode):
    """Adds up every attention map of a forward pass in the order of the calls, or uses `replacements` instead."""

    def __init__(self, replacements: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.replacements, self.sums, self.call = replacements, list[Tensor](), 0

    def start(self) -> None:
        self.call = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._recorded_or_replaced(_map_of(*args, **kwargs)) @ (
                args[2] if len(args) > 2 else kwargs["value"]
            )
        result = func(*args, **kwargs)
        if func not in SOFTMAXES or result.ndim < 3:
            return result
        attention_map = self._recorded_or_replaced(result)
        return kwargs["out"].copy_(attention_map) if kwargs.get("out") is not None else attention_map

    def _recorded_or_replaced(self, p: Tensor) -> Tensor:
        if self.replacements:
            p = self.replacements[self.call]
        elif self.call == len(self.sums):
            self.sums.append(p.clone())
        else:
            self.sums[self.call] += p
        self.call += 1
        return p


def _map_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The map that scaled_dot_product_attention forms inside."""
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1)


def _in_chunks(logits: Logits, x: Tensor) -> Tensor:
    return torch.cat([logits(x[i : i + CHUNK]) for i in range(0, len(x), CHUNK)])


def _centred(z: Tensor) -> Tensor:
    return z - z.mean(1, keepdim=True)


def _relative(change: Tensor, whole: Tensor) -> float:
    """A model that says the same of every image uses nothing."""
    spread = whole.var(0, correction=0).mean().sqrt()
    return float(change.square().mean().sqrt() / spread) if spread > 0 else 0.0


WITHOUT: dict[str, Callable[[nn.Module, Tensor, int, int], Iterator[Tensor]]] = {
    "positions": _without_positions,
    "content": _without_content,
}
