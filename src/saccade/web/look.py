"""What a trained model makes of an image: logits, feature maps, attention of one query, centres of Gaussian heads."""

from __future__ import annotations

import base64
import contextlib
import inspect
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from saccade import models, shipped
from saccade.analysis.equivariance import read_grid, stride_of
from saccade.lab.perform import load as load_run
from saccade.lab.store import Lab
from saccade.probes.attention_geometry import quadratic_layers
from saccade.report.figures import picture as as_png
from saccade.spec import MILESTONES, Run, SaccadeError
from saccade.subjects.attention import AttentionLayer, capture, token_grid
from saccade.subjects.build import build
from saccade.subjects.subject import Subject, standardise
from saccade.web import pictures, runs
from saccade.web.pictures import Stock, real

KEPT = 8  # models in memory
CHANNELS = 24  # feature maps of a layer that are sent
CHOSEN = 3  # layers that are shown when none are named
HEADS = 16  # heads of a layer that are sent


@dataclass(frozen=True)
class Layer:
    """A module whose output is a map of the image."""

    name: str
    kind: str
    channels: int
    sides: tuple[int, int]


@dataclass(frozen=True)
class Loaded:
    """A model with what is needed to ask it."""

    run: Run
    state: str
    subject: Subject
    stock: Stock
    channels: int
    size: int
    layers: tuple[Layer, ...]
    attends: bool

    @property
    def model(self) -> nn.Module:
        return self.subject.model


class Looker:
    """Models of one lab, the last used ones kept. One request at a time."""

    def __init__(self, lab: Lab) -> None:
        # Small models on one image: a second thread gains nothing, and waits long where the cores are busy training.
        torch.set_num_threads(1)
        self.lab = lab
        self._kept: OrderedDict[tuple[str, str], tuple[int, Loaded]] = OrderedDict()
        self._lock = threading.Lock()

    def stock(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """{run: key}: images and backgrounds of its data, its states, its layers."""
        with self._lock:
            loaded = self._load(request.get("run"), request.get("state", ""))
            return {**about(loaded), **loaded.stock.shelf(), "states": self.states(loaded.run.key)}

    def states(self, key: str) -> list[dict[str, Any]]:
        """The moments of training at which the weights are known: the start always, since a seed makes it."""
        entries = [{"state": "0", "label": "untrained"}]
        if not self.lab.folder(key).is_dir():
            return [*entries, {"state": "1", "label": "trained"}]  # shipped
        entries += [
            {"state": f"{s:g}", "label": f"{100 * s:g} %"} for s in MILESTONES if self.lab.has_milestone(key, s)
        ]
        if self.lab.done(key) is None and (self.lab.folder(key) / "state.sealed").exists():
            entries.append({"state": "saved", "label": "last saved"})
        if (self.lab.folder(key) / "weights.safetensors").exists():
            entries.append({"state": "1", "label": "trained"})
        return entries

    def see(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """{models: [{run, state, layers}], picture, query}: the image as composed, and each model's answer.

        The first model's data make the image; others get it in their own size and channels.
        """
        with self._lock:
            began = time.perf_counter()
            model_requests = request.get("models")
            if (
                not isinstance(model_requests, list)
                or not 1 <= len(model_requests) <= 2
                or not all(isinstance(m, dict) for m in model_requests)
            ):
                raise SaccadeError('"models" must be a list of one or two, each with the key of its "run".')
            loaded = [self._load(m.get("run"), m.get("state", "")) for m in model_requests]
            picture = request.get("picture", {})
            if not isinstance(picture, dict):
                raise SaccadeError('"picture" must be an object.')
            x, label = pictures.compose(loaded[0].stock, picture)
            query = place(request.get("query"))
            answers = []
            for one, m in zip(loaded, model_requests, strict=True):
                ready = pictures.fitted(x, one.channels, one.size)
                answers.append(answer(one, ready, query, m.get("layers")))
            return {
                "png": as_png(x.numpy()).png,
                "size": x.shape[-1],
                "label": label,
                "answers": answers,
                "milliseconds": round(1000 * (time.perf_counter() - began), 2),
            }

    def _load(self, key: Any, state: Any) -> Loaded:
        in_lab = isinstance(key, str) and runs.is_key(key) and self.lab.folder(key).is_dir()
        card = None if in_lab or not isinstance(key, str) else shipped.by_key(key)
        if not in_lab and card is None:
            raise SaccadeError(f'no run "{str(key)[:40]}" in this lab; choose one of its finished runs.')
        state_names = [s["state"] for s in self.states(key)]
        if not isinstance(state, str) or (state and state not in state_names):
            raise SaccadeError(f"run {key} kept the states {', '.join(state_names)}, not {str(state)[:40]}.")
        state = state or state_names[-1]
        stamp = runs.folder_stamp(self.lab.folder(key)) if in_lab else 0
        entry = self._kept.get((key, state))
        if entry is None or (entry[0] != stamp and state != "0"):
            entry = (stamp, load(self.lab, key, state) if card is None else load_shipped(card, state))
            self._kept[key, state] = entry
        self._kept.move_to_end((key, state))
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return entry[1]


def load(lab: Lab, key: str, state: str) -> Loaded:
    run = lab.run(key)
    stock = Stock(run)
    if state in ("0", "saved"):
        images = stock.source("train")
        model = build(run, images)
        if state == "saved":
            saved_state = safetensors.torch.load(lab.load_state(key) or b"")
            model.load_state_dict(
                {k.removeprefix("model."): v for k, v in saved_state.items() if k.startswith("model.")}
            )
        subject = Subject(model.eval(), images.mean, images.std)
    else:
        subject = load_run(lab, run, "cpu", float(state))
    return with_layers(run, state, subject, stock)


def load_shipped(card: shipped.Card, state: str) -> Loaded:
    if state == "0":
        model = models.build(card.run.model, card.classes, seed=card.run.seed, **card.run.model_args).eval()
    else:
        model = shipped.load(card.name)
    return with_layers(card.run, state, Subject(model, card.mean, card.std), Stock(card.run))


def with_layers(run: Run, state: str, subject: Subject, stock: Stock) -> Loaded:
    """The model with those of its parts whose output is a map of the image, found by one pass."""
    channels, size = stock.size()
    layers = []
    with torch.no_grad(), captured(subject.model) as outputs:
        subject.model(standardise(torch.rand(1, channels, size, size), subject.mean, subject.std))
    for name, out in outputs.items():
        grid = read_grid(out, (size, size))
        if name and grid is not None and min(grid.map.shape[-2:]) > 1:
            module = subject.model.get_submodule(name)
            sides = (int(grid.map.shape[-2]), int(grid.map.shape[-1]))
            layers.append(Layer(name, type(module).__name__, int(grid.map.shape[1]), sides))
    with torch.no_grad():
        attends = bool(maps_of(subject.model, torch.zeros(1, channels, size, size)))
    return Loaded(run, state, subject, stock, channels, size, tuple(layers), attends)


@contextlib.contextmanager
def captured(model: nn.Module, names: Sequence[str] | None = None) -> Iterator[dict[str, Tensor]]:
    """What modules give during the forward passes inside, by name; the hooks are gone afterwards."""
    outputs: dict[str, Tensor] = {}

    def hook(name: str) -> Any:
        def keep(module: nn.Module, inputs: Any, out: Any) -> None:
            if isinstance(out, Tensor):
                outputs[name] = out.detach().clone()  # the next layer may write over it

        return keep

    modules = [(n, m) for n, m in model.named_modules() if n and (names is None or n in names)]
    handles = [module.register_forward_hook(hook(name)) for name, module in modules]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def about(loaded: Loaded) -> dict[str, Any]:
    return {
        "run": loaded.run.key,
        "model": loaded.run.model,
        "state": loaded.state,
        "parameters": models.parameters(loaded.model),
        "layers": [
            {"name": v.name, "kind": v.kind, "channels": v.channels, "sides": list(v.sides)} for v in loaded.layers
        ],
        "chosen": chosen(loaded.layers),
        "attends": loaded.attends,
        "centres": centres(loaded),
    }


def chosen(layers: Sequence[Layer]) -> list[str]:
    """A few layers from first to last: the outermost ones that there are enough of."""
    for depth in range(8):
        outer = [v.name for v in layers if v.name.count(".") <= depth]
        if len(outer) >= 2:
            break
    else:
        outer = [v.name for v in layers]
    if len(outer) <= CHOSEN:
        return outer
    return [outer[round(i * (len(outer) - 1) / (CHOSEN - 1))] for i in range(CHOSEN)]


def answer(loaded: Loaded, x: Tensor, query: tuple[float, float] | None, names: Any = None) -> dict[str, Any]:
    """Logits, feature maps of the named layers (or of a few), and where each head looks from the query."""
    layer_names = {layer.name for layer in loaded.layers}
    if names is not None and (
        not isinstance(names, list) or not all(n in layer_names for n in names) or len(names) > 6
    ):
        raise SaccadeError("layers must name at most six of the model's own layers.")
    chosen_names = chosen(loaded.layers) if names is None else names
    began = time.perf_counter()
    ready = standardise(x, loaded.subject.mean, loaded.subject.std)
    with torch.no_grad(), captured(loaded.model, chosen_names) as outputs:
        logits = loaded.model(ready)[0].double()
    features = [feature(name, outputs[name], loaded.size) for name in chosen_names if name in outputs]
    answer = {
        "run": loaded.run.key,
        "state": loaded.state,
        "logits": logits.tolist(),
        "probabilities": logits.softmax(0).tolist(),
        "features": [f for f in features if f],
        "attention": attention(loaded, ready, query),
    }
    return {**answer, "milliseconds": round(1000 * (time.perf_counter() - began), 2)}


def feature(name: str, out: Tensor, size: int) -> dict[str, Any] | None:
    grid = read_grid(out, (size, size))
    if grid is None:
        return None
    maps = grid.map[0, :CHANNELS].float()
    low, high = float(maps.min()), float(maps.max())
    return {
        "name": name,
        "shape": list(maps.shape),
        "of": int(grid.map.shape[1]),
        "low": low,
        "high": high,
        "data": as_bytes((maps - low) / ((high - low) or 1.0)),
    }


def speakers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that report their attention themselves, several times faster than it can be captured.

    The model itself when it reports all of it; else layers with `probabilities(x)`, x being their own input.
    """
    if callable(getattr(model, "attention", None)):
        return [("", model)]
    return [(n, m) for n, m in model.named_modules() if n and _needed(getattr(m, "probabilities", None)) == 1]


def _needed(method: Any) -> int:
    """How many arguments a method must be given; 0 for what is no method."""
    if not callable(method):
        return 0
    return sum(p.default is p.empty for p in inspect.signature(method).parameters.values())


def maps_of(model: nn.Module, x: Tensor) -> list[AttentionLayer]:
    """The weights of every layer that attends, in order; of a model that does not report them, by capturing them."""
    layers = speakers(model)
    if not layers:
        return list(capture(model, x).layers)
    if not layers[0][0]:
        try:
            weights: Sequence[Tensor] = model.attention(x)  # type: ignore[operator]
        except SaccadeError:  # a read-out without a class token, say
            return []
        return [_placed(f"layer {i}", p, x) for i, p in enumerate(weights, 1)]
    inputs: dict[str, Tensor] = {}
    handles = [
        m.register_forward_pre_hook(lambda _, args, name=n: inputs.__setitem__(name, args[0].detach()))
        for n, m in layers
    ]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return [_placed(n, m.probabilities(inputs[n]), x) for n, m in layers if n in inputs]  # type: ignore[operator]


def _placed(name: str, p: Tensor, x: Tensor) -> AttentionLayer:
    sides = (int(x.shape[-2]), int(x.shape[-1]))
    query, key = (token_grid(int(n), sides) or (0, None) for n in p.shape[-2:])
    return AttentionLayer(name, p[:1, None], key[1], key[0], query[1], query[0])


def attention(loaded: Loaded, x: Tensor, query: tuple[float, float] | None) -> list[dict[str, Any]]:
    """For each layer: where the query's token looks, a map per head, and the mass that tokens without a place get."""
    if not loaded.attends:
        return []
    with torch.no_grad():
        layers = maps_of(loaded.model, x)
    return [answer for layer in layers if (answer := seen_from(layer, loaded.size, query)) is not None]


def seen_from(layer: AttentionLayer, size: int, query: tuple[float, float] | None) -> dict[str, Any] | None:
    if layer.grid is None or layer.query_grid is None:
        return None  # tokens that make no grid of the image
    along = math.isqrt(layer.windows)
    if along * along != layer.windows:
        return None
    sides = tuple(along * n for n in layer.query_grid)
    stride = stride_of((size, size), sides)
    margin = [(size - n * s) / 2 for n, s in zip(sides, stride, strict=True)]
    at: list[int] | None = None
    if query is None and layer.query_prefix:
        heads = layer.weights[0, 0, :HEADS, 0].float()
    else:
        point = query or (size / 2, size / 2)
        at = [min(max(int((v - m) // s), 0), n - 1) for v, m, s, n in zip(point, margin, stride, sides, strict=True)]
        window, token = _cell(layer, at, along)
        heads = layer.weights[0, window, :HEADS, layer.query_prefix + token].float()
    grid = heads[:, layer.prefix :].reshape(-1, *layer.grid)
    if layer.windows > 1:
        grid = _whole(layer, grid, window, along)
    key_stride = stride_of((size, size), grid.shape[-2:])
    share = heads / heads.sum(1, keepdim=True).clamp_min(1e-12)
    return {
        "name": layer.name,
        "shape": list(grid.shape),
        "of": layer.heads,
        "stride": list(key_stride),
        "margin": [(size - n * s) / 2 for n, s in zip(grid.shape[-2:], key_stride, strict=True)],
        "at": at,
        "top": grid.amax((1, 2)).tolist(),
        "low": float(grid.min()),
        "kept": heads[:, : layer.prefix].sum(1).tolist() if layer.prefix else [],
        "effective": torch.special.entr(share.clamp_min(0)).sum(1).exp().tolist(),
        "data": as_bytes(grid / grid.amax((1, 2), keepdim=True).clamp_min(1e-12)),
    }


def _cell(layer: AttentionLayer, at: Sequence[int], along: int) -> tuple[int, int]:
    """The window and the token in it of a place of the image, which was rolled by `shift` before windows were cut."""
    assert layer.query_grid is not None
    h, w = layer.query_grid
    row, column = ((v + s) % (along * n) for v, s, n in zip(at, layer.shift, (h, w), strict=True))
    return (row // h) * along + column // w, (row % h) * w + column % w


def _whole(layer: AttentionLayer, grid: Tensor, window: int, along: int) -> Tensor:
    """One window's map at its place in the whole image; nothing is looked at outside."""
    h, w = grid.shape[-2:]
    image_map = grid.new_zeros(len(grid), along * h, along * w)
    top, left = (window // along) * h, (window % along) * w
    image_map[:, top : top + h, left : left + w] = grid
    return image_map.roll((-layer.shift[0], -layer.shift[1]), (1, 2))


def centres(loaded: Loaded) -> list[dict[str, Any]]:
    """Of heads that look at a Gaussian around a learned shift: shift (down, right) and precision, in tokens."""
    patch = getattr(loaded.model, "patch", 1)
    return [
        {"layer": f"layer {i}", "patch": int(patch), "centre": centre.tolist(), "precision": precision.tolist()}
        for i, (centre, precision) in enumerate(quadratic_layers(loaded.model), 1)
    ]


def place(query: Any) -> tuple[float, float] | None:
    """The query as (down, right) in pixels of the image; None for the class token, or the middle."""
    if query is None:
        return None
    if not isinstance(query, dict):
        raise SaccadeError('"query" must have x and y in pixels of the image.')
    return real(query.get("y"), "y"), real(query.get("x"), "x")


def as_bytes(values: Tensor) -> str:
    """Numbers in [0, 1] as base64 of one byte each."""
    return base64.b64encode((255 * values.clamp(0, 1)).round().byte().contiguous().numpy().tobytes()).decode()
