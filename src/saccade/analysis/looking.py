"""Where does a model look in one image? `saccade.attention(model, image)`, for any torch model with attention."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.analysis.attention import open_image
from saccade.data.images import Plain
from saccade.report import draw, figures
from saccade.spec import SaccadeError, suggest
from saccade.subjects.attention import AttentionLayer, capture
from saccade.subjects.find import Wanted, find
from saccade.subjects.fit import Facts, fit
from saccade.subjects.subject import standardise

MOST_SHOWN = 12  # layers and heads in a figure; more are left out, evenly, and said
COLOURS = "magma"  # dark to light in grey too, and safe for colour-blind readers
SIDE = 96  # pixels of a map in a figure
LARGEST, USUAL = 256, 224  # an image above the first is made the second, for a model that takes any size


@dataclass(frozen=True)
class Attention:
    """Maps of one image by layer and head. In a notebook it shows itself; `save` writes png, svg or pdf.

    `layers[i].weights` is (1, windows, heads, queries, keys) with its grid; `map(i, head)` is one map over the image.
    """

    image: np.ndarray  # (c, h, w), float in [0, 1]
    layers: tuple[AttentionLayer, ...]
    facts: Facts
    answer: int

    def __len__(self) -> int:
        return len(self.layers)

    def map(self, layer: int, head: int | None = None, query: int | tuple[int, int] | None = None) -> np.ndarray:
        """(rows, columns), summing to one: where a query looks. None for head: the mean of heads.

        The query is a token's number, a cell (row, column) of the grid, or None: the class token where there are tokens
        before the grid, else the mean of all queries. Of windows the mean is shown, on the grid of one window.
        """
        one = self._layer(layer)
        if one.grid is None:
            raise SaccadeError(
                f"layer {layer} ({one.name}) has {one.weights.shape[-1]} keys, which are no grid of the image."
            )
        if head is not None and not -one.heads <= head < one.heads:
            raise SaccadeError(f"layer {layer} has the heads 0 to {one.heads - 1}, not {head}.")
        weights = one.weights[0].mean(0)  # (heads, queries, keys)
        weights = weights.mean(0) if head is None else weights[head]
        row = weights[_query(one, query)] if query is not None or one.query_prefix else weights.mean(0)
        row = row[one.prefix :]
        row = row / row.sum().clamp_min(1e-12)
        return np.asarray(row.reshape(one.grid).numpy())

    def entropy(self, layer: int) -> list[float]:
        """By head, as a share of the greatest possible: 0 looks at one key, 1 at all alike. Mean over queries."""
        weights = self._layer(layer).weights
        each = torch.special.entr(weights).sum(-1) / math.log(weights.shape[-1])
        return [float(v) for v in each.mean((0, 1, 3))]

    def _layer(self, layer: int) -> AttentionLayer:
        if not -len(self.layers) <= layer < len(self.layers):
            raise SaccadeError(f"there are {len(self.layers)} layers with attention, from 0, not {layer}.")
        return self.layers[layer]

    def figure(self) -> figures.ImageGrid:
        """The image and a map for each layer and head, each from zero (dark) to its own largest value (light)."""
        with_grid = [i for i, one in enumerate(self.layers) if one.grid is not None]
        shown_layers = _evenly_spaced(with_grid)
        across = max((min(self.layers[i].heads, MOST_SHOWN) for i in shown_layers), default=0)
        rows: list[list[Any]] = []
        for i in shown_layers:
            heads: list[Any] = [self._heat_image(i, h) for h in _evenly_spaced(list(range(self.layers[i].heads)))]
            rows.append([self._thumb() if i == shown_layers[0] else None, *heads, *[None] * (across - len(heads))])
        omitted = len(self.layers) - len(shown_layers)
        note = f"{omitted} of {len(self.layers)} layers are not shown" if omitted else ""
        return figures.image_grid(
            rows,
            rows=[self.layers[i].name or f"layer {i}" for i in shown_layers],
            columns=["image", *(f"head {h}" for h in range(across))] if rows else (),
            title=f"attention of {self.facts.name}",
            note=note,
        )

    def save(self, path: str | Path) -> Path:
        """Write the figure; the suffix says whether as png, svg or pdf."""
        kind = Path(path).suffix.lstrip(".").lower()
        if kind not in draw.FORMATS:
            raise SaccadeError(suggest("figure format", kind or "(none)", draw.FORMATS))
        return draw.save(self.figure(), path)

    def _repr_png_(self) -> bytes:
        return draw.render(self.figure(), "png")

    def _repr_html_(self) -> str:
        lines = "".join(
            f"<tr><td>{i}</td><td>{html.escape(one.name)}</td><td>{one.heads}</td><td>{_grid_words(one)}</td>"
            f"<td>{' '.join(f'{e:.2f}' for e in self.entropy(i))}</td></tr>"
            for i, one in enumerate(self.layers)
        )
        image = base64.b64encode(self._repr_png_()).decode()
        return (
            f'<img style="max-width:100%" alt="attention by layer and head" src="data:image/png;base64,{image}">'
            "<table><tr><th>layer</th><th>module</th><th>heads</th><th>grid of keys</th><th>entropy by head</th></tr>"
            f"{lines}</table>"
        )

    def __repr__(self) -> str:
        heads = sum(one.heads for one in self.layers)
        return f"<attention of {self.facts.name}: {len(self.layers)} layers, {heads} heads>"

    def _thumb(self) -> np.ndarray:
        x = torch.from_numpy(self.image)[None]
        return np.asarray(F.interpolate(x, size=(SIDE, SIDE), mode="bilinear", antialias=True)[0].clamp(0, 1).numpy())

    def _heat_image(self, layer: int, head: int) -> np.ndarray:
        import matplotlib

        grid = self.map(layer, head)
        return np.asarray(matplotlib.colormaps[COLOURS](grid / max(float(grid.max()), 1e-12))[..., :3])


def attention(
    model: str | nn.Module | Callable[..., nn.Module],
    image: str | Path | np.ndarray | Tensor,
    *,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    size: int = 0,
    channels: int = 0,
    **wanted: Any,
) -> Attention:
    """Where the model looks in an image: a file, or an array (h, w), (h, w, 3) or (c, h, w), uint8 or in [0, 1].

    The middle square of the image is made as large as the model takes it, and standardised as its source says, or by
    mean and std. The model's output is the same to the bit as without being looked at, and nothing is left on it.
    """
    if bool(mean) != bool(std):
        raise SaccadeError("mean and std go together: give both, or none.")
    x = _square(open_image(image))
    count = x.shape[0]
    resolved = find(model, Wanted(size=size or 224, channels=channels or count, **wanted))
    statistics = (mean or (0.0,) * count, std or (1.0,) * count)
    images = Plain(torch.zeros(1, dtype=torch.long), 2, *statistics, (255 * x[None]).round().byte())
    normalise = "/".join(",".join(map(str, v)) for v in (mean, std)) if mean else ""
    subject, facts = fit(resolved, images, size=size, channels=channels, normalise=normalise)
    prepared = images.batch(torch.arange(1))
    recording = capture(subject.model, standardise(prepared, subject.mean, subject.std))
    if not recording.layers:
        raise SaccadeError(
            f"{facts.name} has no attention: no layer of it weighs places by numbers that sum to one (a convolution "
            "model has none; a layer can speak for itself with a method probabilities(x))."
        )
    return Attention(prepared[0].numpy(), recording.layers, facts, int(subject.logits(prepared).argmax()))


def _square(x: Tensor) -> Tensor:
    side = min(x.shape[-2:])
    top, left = (x.shape[-2] - side) // 2, (x.shape[-1] - side) // 2
    x = x[:, top : top + side, left : left + side]
    if side <= LARGEST:
        return x
    return F.interpolate(x[None], size=(USUAL, USUAL), mode="bilinear", antialias=True)[0].clamp(0, 1)


def _query(one: AttentionLayer, query: int | tuple[int, int] | None) -> int:
    count = one.weights.shape[3]
    if query is None:
        return 0
    if isinstance(query, int):
        if not 0 <= query < count:
            raise SaccadeError(f"{one.name} has the queries 0 to {count - 1}, not {query}.")
        return query
    if one.query_grid is None:
        raise SaccadeError(f"the {count} queries of {one.name} are no grid of the image; give a token's number.")
    row, column = query
    if not (0 <= row < one.query_grid[0] and 0 <= column < one.query_grid[1]):
        raise SaccadeError(f"the queries of {one.name} are a grid of {one.query_grid}, which has no cell {query}.")
    return one.query_prefix + row * one.query_grid[1] + column


def _evenly_spaced(numbers: list[int]) -> list[int]:
    """At most MOST_SHOWN of them, evenly, first and last included."""
    if len(numbers) <= MOST_SHOWN:
        return numbers
    return [numbers[round(i * (len(numbers) - 1) / (MOST_SHOWN - 1))] for i in range(MOST_SHOWN)]


def _grid_words(one: AttentionLayer) -> str:
    if one.grid is None:
        return f"none ({one.weights.shape[-1]} keys)"
    windows = f", {one.windows} windows" if one.windows > 1 else ""
    before = f" after {one.prefix} token{'s' if one.prefix > 1 else ''}" if one.prefix else ""
    return f"{one.grid[0]} x {one.grid[1]}{before}{windows}"
