"""The attention of any torch model: maps by layer and head from one forward pass, nothing left on the model.

A dispatch mode watches the tensor operations themselves, below modules and Python: whatever a model calls, attention
ends in a fused attention kernel, or in a product with a matrix whose rows are not negative and sum to one. Every
operation runs as it would without us, so the output has the same bits. (A function mode, one level higher, turns off
the fast paths of `nn.MultiheadAttention` and `nn.TransformerEncoder`, whose output then differs by 7e-7.)

Attention that never becomes a matrix (a kernel in C) can speak for itself: a model by a method `attention(x)` that
returns (n, heads, queries, keys) by layer, a layer by a method `probabilities(x)`.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode

from saccade.spec import SaccadeError
from saccade.subjects.fit import Fitted
from saccade.subjects.readout import Mapped, ReadOut
from saccade.subjects.subject import eager, evaluating

MOST_PREFIX = 8  # class, distillation and register tokens before a grid that the model states
MOST_GUESSED = 2  # of them before a grid that is only guessed: with more, most numbers would make a grid
FEWEST = 2  # keys; a softmax over one thing says nothing
FEWEST_ALONE = (
    4  # keys of a softmax that is used without a matrix product: a gate of two or three branches is no attention
)
SUMS = {torch.float64: 1e-6, torch.float32: 1e-4}  # how far from one a row's sum may be; half precisions: 2e-2
Sides = tuple[int, int]


@dataclass(frozen=True)
class AttentionLayer:
    """One layer's weights (n, windows, heads, queries, keys), rows summing to one, as float32.

    `grid` and `query_grid` are rows and columns of the keys and queries that lie on the image (of one window where
    there are windows), `prefix` and `query_prefix` the tokens before them; None where tokens make no grid of the image.
    `shift` is how far the image had been rolled, in grid cells, when windows were cut.
    """

    name: str
    weights: Tensor
    grid: Sides | None
    prefix: int
    query_grid: Sides | None
    query_prefix: int
    shift: Sides = (0, 0)

    @property
    def windows(self) -> int:
        return self.weights.shape[1]

    @property
    def heads(self) -> int:
        return self.weights.shape[2]


@dataclass(frozen=True)
class Seen:
    """`output` is what the model answered, to the bit what it answers without being watched."""

    layers: tuple[AttentionLayer, ...]
    output: Any


def capture(model: nn.Module, x: Tensor) -> Seen:
    """One forward pass of images x (n, c, h, w), as the model takes them; no layers when it has no attention."""
    if x.ndim != 4 or not len(x):
        raise SaccadeError(f"attention needs images (n, c, h, w), at least one, not {tuple(x.shape)}.")
    model, x = inside(model, x)
    watch = _Watch(len(x))
    with evaluating(model), torch.no_grad(), eager():
        with _naming(model, watch), watch:
            output = model(x)
        watch.finish()
        records = _own(model, x) or _joined(watch.records)
    said = _said_grids(model, (x.shape[-2], x.shape[-1]))
    return Seen(tuple(_placed(record, (x.shape[-2], x.shape[-1]), said) for record in records), output)


def inside(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    """The model within what was put around it to ask it, and the input that it gets for x."""
    while isinstance(model, (Mapped, ReadOut)):
        model = model.model
    return (model.model, model.prepare(x)) if isinstance(model, Fitted) else (model, x)


def token_grid(tokens: int, sides: Sides, said: Sequence[Sides] = ()) -> tuple[int, Sides] | None:
    """How many tokens come before the grid, and the grid: as the model says, or of the image's own shape."""
    for prefix in range(MOST_PREFIX + 1):
        left = tokens - prefix
        for h, w in said:
            if h * w == left:
                return prefix, (h, w)
    for prefix in range(MOST_GUESSED + 1):
        left = tokens - prefix
        h = math.isqrt(left * sides[0] // sides[1]) if left > 1 else 0
        w = left // h if h else 0
        if h and h * w == left and h * sides[1] == w * sides[0]:
            return prefix, (h, w)
    return None


# -- watching


@dataclass(frozen=True)
class _Record:
    name: str
    call: int  # which call of a module it was seen in
    weights: Tensor  # (n, windows, heads, queries, keys)
    shift: Sides


@dataclass(frozen=True)
class _Soft:
    """A softmax result that nothing has used yet. Held, so that its storage is not given away."""

    out: Tensor
    rows: Tensor  # the same with its keys last
    place: int  # how many records were there before it
    where: tuple[str, int]
    shift: Sides


class _Watch(TorchDispatchMode):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n
        self.paused = False
        self.records: list[_Record] = []
        self.stack: list[tuple[str, int]] = [("", 0)]
        self.calls = 0
        self.before: dict[int, tuple[Tensor, tuple[int, ...]]] = {}  # a reshaped tensor, and the shape it had
        self.soft: dict[int, _Soft] = {}  # softmax results by storage, until one is seen in use
        self.rolled: Sides = (0, 0)
        self.silent = [False]  # for each of the stack: a program whose layers are called without hooks

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            out = func(*args, **kwargs)
        except RuntimeError:
            if (given := _as_tensors(func, args)) is None:
                raise
            out = func(*given, **kwargs)
        watch = _WATCHED.get(func._schema.name.removeprefix("aten::"))
        if watch is not None and not self.paused:
            watch(self, _bound(func, args, kwargs), out)
        return out

    def keep(self, weights: Tensor, soft: _Soft | None = None) -> None:
        """Weights as (n, heads, queries, keys), (n·windows, heads, queries, keys), (n·heads, queries, keys) or with a
        grid of queries, (n, heads, h, w, keys)."""
        if weights.ndim == 5:
            weights = weights.flatten(2, 3)
        if weights.ndim == 3:
            weights = weights.view(self.n, -1, *weights.shape[1:]) if len(weights) % self.n == 0 else weights[None]
        if weights.ndim != 4 or weights.shape[-1] < FEWEST or len(weights) % self.n:
            return
        weights = weights.reshape(self.n, -1, *weights.shape[1:]).detach().float().cpu()
        name, call = soft.where if soft else self.stack[-1]
        place = soft.place if soft else len(self.records)
        self.records.insert(place, _Record(name, call, weights.clone(), soft.shift if soft else self.rolled))

    def finish(self) -> None:
        """A softmax over the last of four axes, never seen in use: heads that are mixed before their product."""
        for i, soft in enumerate(list(self.soft.values())):
            if soft.rows.ndim == 4 and soft.rows.shape[2] >= FEWEST_ALONE and soft.out.stride() == soft.rows.stride():
                self.keep(soft.rows, replace(soft, place=soft.place + i))
        self.soft.clear()


def _as_tensors(func: Any, args: Sequence[Any]) -> list[Any] | None:
    """Sizes that a traced program computes arrive as plain numbers where tensors are meant; None: there are none."""
    kinds = [str(a.type) for a in func._schema.arguments]
    plain = [k == "Tensor" and isinstance(a, (int, float)) for a, k in zip(args, kinds, strict=False)]
    return [torch.tensor(a) if one else a for a, one in zip(args, plain, strict=True)] if any(plain) else None


def _own(model: nn.Module, x: Tensor) -> list[_Record]:
    """What the model's own method says, where it has one."""
    ask = getattr(model, "attention", None)
    if not inspect.ismethod(ask):
        return []
    maps = ask(x)
    if not isinstance(maps, (list, tuple)) or not all(isinstance(t, Tensor) and t.ndim == 4 for t in maps):
        return []
    return [_Record(f"layer {i}", 0, t[:, None].detach().float().cpu(), (0, 0)) for i, t in enumerate(maps, 1)]


def _bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = [a.name for a in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _fused(watch: _Watch, given: Mapping[str, Any], out: Any) -> None:
    q, k = given["query"], given["key"]
    mask = given.get("attn_mask", given.get("attn_bias"))
    watch.keep(_weights(q, k, mask, bool(given.get("is_causal")), given.get("scale")))


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool = False, scale: float | None = None) -> Tensor:
    q, k = q.float(), k.float()
    if k.shape[1] != q.shape[1]:  # several query heads share one of keys
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.float()
    return scores.softmax(-1)


def _native(watch: _Watch, given: Mapping[str, Any], out: Any) -> None:
    """`nn.MultiheadAttention` on its fast path: projections and attention are one operation."""
    _projected(watch, given, given["query"], given["key"], given["num_head"])
    _weighted(watch, given, out)


def _encoder(watch: _Watch, given: Mapping[str, Any], out: Any) -> None:
    """`nn.TransformerEncoderLayer` on its fast path: the whole layer is one operation."""
    x = given["src"]
    if given.get("norm_first"):
        x = torch.layer_norm(x, (x.shape[-1],), given["norm_weight_1"], given["norm_bias_1"], given["eps"])
    _projected(watch, given, x, x, given["num_heads"])
    _weighted(watch, given, out)


def _projected(watch: _Watch, given: Mapping[str, Any], query: Tensor, key: Tensor, heads: int) -> None:
    if query.is_nested:  # images of different numbers of tokens, of which a padding mask made it
        return
    weight, bias = (given["qkv_weight"].chunk(3), given["qkv_bias"].chunk(3))
    q, k = (
        torch.nn.functional.linear(x, weight[i], bias[i]).unflatten(-1, (heads, -1)).transpose(1, 2)
        for i, x in enumerate((query, key))
    )
    mask = given.get("mask")
    if mask is not None:
        if given.get("mask_type") == 1:  # (n, keys): padding
            mask = mask[:, None, None]
        mask = ~mask if mask.dtype == torch.bool else mask  # here True is left out
    watch.keep(_weights(q, k, mask))


def _product(first: str, second: str) -> Callable[[_Watch, Mapping[str, Any], Any], None]:
    def look(watch: _Watch, given: Mapping[str, Any], out: Any) -> None:
        left, right = given[first], given[second]
        for operand, turned in ((left, False), (right, True)):
            rows = operand.transpose(-2, -1) if turned else operand
            if rows.ndim == 3 and rows.shape[-1] >= FEWEST and _sums_to_one(rows):
                _, shape = watch.before.get(id(operand), (operand, tuple(operand.shape)))
                shape = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
                _used(watch, rows.numel())
                watch.keep(rows.reshape(shape) if math.prod(shape) == rows.numel() else rows)
                break
        watch.before.clear()

    return look


def _used(watch: _Watch, numbers: int) -> None:
    """Forgets the softmax that a product has just been found to use."""
    for key in reversed(watch.soft):
        if watch.soft[key].out.numel() == numbers:
            del watch.soft[key]
            return


def _sums_to_one(rows: Tensor) -> bool:
    if not rows.is_floating_point():
        return False
    far = SUMS.get(rows.dtype, 2e-2)
    first = rows[0].double()  # most products are none: one image of them decides
    if bool((first < 0).any()) or bool(((first.sum(-1) - 1).abs() > far).any()):
        return False
    whole = rows.double()
    if bool((whole < 0).any()) or bool(((whole.sum(-1) - 1).abs() > far).any()):
        return False
    return bool((whole.amax(-1) < 1).any())  # zeros and ones only: a table look-up written as a product


def _reshaped(watch: _Watch, given: Mapping[str, Any], out: Tensor) -> None:
    """Remembers (n, heads, queries, keys) of what a batched product gets as (n·heads, queries, keys)."""
    shape = tuple(s for s in given["self"].shape if s > 1)
    whole = tuple(given["self"].shape)
    if out.ndim != 3 or len(shape) < 2:
        return
    four = whole if len(whole) == 4 else shape
    if len(four) == 4 and four[2:] == tuple(out.shape[1:]) and four[0] * four[1] == out.shape[0]:
        watch.before[id(out)] = (out, four)


def _softmax(watch: _Watch, given: Mapping[str, Any], out: Tensor) -> None:
    if out.ndim >= 3 and out.shape[given["dim"]] >= FEWEST_ALONE:
        rows = out.movedim(given["dim"], -1)
        soft = _Soft(out, rows, len(watch.records), watch.stack[-1], watch.rolled)
        watch.soft[out.untyped_storage().data_ptr()] = soft


def _multiplied(watch: _Watch, given: Mapping[str, Any], out: Any) -> None:
    """A softmax spread over values: attention written as a weighted sum, as over neighbourhoods."""
    for operand in (given["self"], given["other"]):
        if not isinstance(operand, Tensor) or operand.numel() >= out.numel():
            continue
        soft = watch.soft.get(operand.untyped_storage().data_ptr())
        if soft is not None and soft.out.numel() == operand.numel():
            del watch.soft[operand.untyped_storage().data_ptr()]
            rows = soft.rows
            watch.keep(rows if rows.ndim < 6 else rows.flatten(1, -4), soft)


def _roll(watch: _Watch, given: Mapping[str, Any], out: Any) -> None:
    shifts = tuple(given["shifts"])
    if len(shifts) == 2:
        watch.rolled = (watch.rolled[0] + shifts[0], watch.rolled[1] + shifts[1])


def _weighted(watch: _Watch, given: Mapping[str, Any], out: Any) -> None:
    """In a scripted, traced or exported program a linear layer is what shows that another layer has begun."""
    if watch.silent[-1]:
        watch.calls += 1
        watch.stack[-1] = (watch.stack[-1][0], watch.calls)


_WATCHED: dict[str, Callable[[_Watch, Mapping[str, Any], Any], None]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _fused,
    "_scaled_dot_product_flash_attention": _fused,
    "_scaled_dot_product_efficient_attention": _fused,
    "_scaled_dot_product_cudnn_attention": _fused,
    "_scaled_dot_product_fused_attention_overrideable": _fused,
    "_scaled_dot_product_attention_math_for_mps": _fused,
    "_native_multi_head_attention": _native,
    "_transformer_encoder_layer_fwd": _encoder,
    "bmm": _product("self", "mat2"),
    "baddbmm": _product("batch1", "batch2"),
    "view": _reshaped,
    "_unsafe_view": _reshaped,
    "_softmax": _softmax,
    "mul": _multiplied,
    "roll": _roll,
    "addmm": _weighted,
    "mm": _weighted,
    "linear": _weighted,
}


@contextlib.contextmanager
def _naming(model: nn.Module, watch: _Watch) -> Iterator[None]:
    """Which module is being called, by hooks of torch as a whole: hooks of a module would turn its fast path off."""
    names = {id(m): name for name, m in model.named_modules()}

    def enter(module: nn.Module, _: Any) -> None:
        watch.calls += 1
        watch.silent.append(isinstance(module, (torch.jit.ScriptModule, torch.fx.GraphModule)))
        watch.stack.append((names.get(id(module), watch.stack[-1][0]), watch.calls))

    def leave(module: nn.Module, given: Any, _: Any) -> None:
        ask = getattr(module, "probabilities", None)
        if inspect.ismethod(ask) and id(module) in names:
            watch.paused = True
            watch.keep(ask(*given))
            watch.paused = False
        if len(watch.stack) > 1:
            watch.stack.pop()
            watch.silent.pop()

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# -- reading


def _joined(records: Sequence[_Record]) -> list[_Record]:
    """Heads that one call of a module computes one after another are one layer."""
    out: list[_Record] = []
    for record in records:
        last = out[-1] if out else None
        if last and (last.name, last.call) == (record.name, record.call) and _alike(last, record):
            out[-1] = replace(last, weights=torch.cat([last.weights, record.weights], 2))
        else:
            out.append(record)
    return out


def _alike(a: _Record, b: _Record) -> bool:
    return a.weights.shape[:2] == b.weights.shape[:2] and a.weights.shape[3:] == b.weights.shape[3:]


def _said_grids(model: nn.Module, sides: Sides) -> list[Sides]:
    """Grids that patch embeddings state, as timm's and transformers' do, or that a first convolution cuts the image
    into: one with a kernel as large as its stride, as in most hand-written models."""
    out = []
    for module in model.modules():
        for attribute in ("grid_size", "patches_resolution", "patch_shape"):
            said = getattr(module, attribute, None)
            if isinstance(said, (tuple, list)) and len(said) == 2 and all(isinstance(s, int) for s in said):
                out.append((said[0], said[1]))
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    if first is not None and first.kernel_size == first.stride and min(first.stride) > 1 and first.padding == (0, 0):
        out.append((sides[0] // first.stride[0], sides[1] // first.stride[1]))
    return list(dict.fromkeys(out))


def _placed(record: _Record, sides: Sides, said: Sequence[Sides]) -> AttentionLayer:
    windows, queries, keys = record.weights.shape[1], record.weights.shape[3], record.weights.shape[4]
    shape: Sides = (1, 1) if windows > 1 else sides  # windows are square
    known = () if windows > 1 else said
    q, k = token_grid(queries, shape, known), token_grid(keys, shape, known)
    shift = record.shift if windows > 1 else (0, 0)
    prefix, grid = k or (0, None)
    query_prefix, query_grid = q or (0, None)
    if windows > 1 and prefix:  # windows have no tokens of their own before them
        prefix, grid = 0, None
    return AttentionLayer(record.name, record.weights, grid, prefix, query_grid, query_prefix, shift)
