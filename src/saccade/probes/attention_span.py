"""How closely and how far does attention look?   After Dosovitskiy et al. 2021, Figure 7, for any model"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from saccade.arguments import Count
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError, Settings
from saccade.subjects.attention import AttentionLayer, capture
from saccade.subjects.subject import Subject

PART = 8  # images per forward pass: maps are large


@probe(version=1)
def attention_span(subject: Subject, data: Source, *, split: str = "", n: Count = 32) -> Iterator[Row]:
    """Entropy (0: one key, 1: all alike) and distance (in sides of the image) of attention, by layer and over layers.

    Distance is between the places of query and key, weighted by attention; beside it, what looking at all keys alike
    would give. Layers whose tokens are no grid have no distance, and are counted.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    entropies: dict[int, list[Tensor]] = {}
    distances: dict[int, list[Tensor]] = {}
    names: dict[int, tuple[str, int, float]] = {}
    for start in range(0, len(images), PART):
        index = torch.arange(start, min(start + PART, len(images)), device=images.y.device)
        x = subject.prepared(images.batch(index))
        for i, layer in enumerate(capture(subject.model, x).layers, 1):
            entropies.setdefault(i, []).append(entropy(layer))
            names[i] = (layer.name, layer.heads, float("nan"))
            if (distance := separation(layer)) is not None:
                distances.setdefault(i, []).append(_distance(layer, distance))
                names[i] = (layer.name, layer.heads, float(distance.mean()))
    if not entropies:
        raise SaccadeError("attention_span needs a model with attention, and this one has none.")
    for i, (name, heads, even) in names.items():
        at = {"layer": i, "layer_name": name, "heads": heads}
        yield Row.mean("attention_entropy", torch.cat(entropies[i]).numpy(), **at)
        if i in distances:
            yield Row.mean("attention_distance", torch.cat(distances[i]).numpy(), **at, even=even)
    yield Row.mean("mean_attention_entropy", torch.stack([torch.cat(e) for e in entropies.values()]).mean(0).numpy())
    if distances:
        whole = torch.stack([torch.cat(d) for d in distances.values()]).mean(0)
        even = sum(names[i][2] for i in distances) / len(distances)
        yield Row.mean("mean_attention_distance", whole.numpy(), even=even)
    yield Row("layers_without_grid", float(len(names) - len(distances)), len(images), Settings())


def entropy(layer: AttentionLayer) -> Tensor:
    """(n,) mean over windows, heads and queries, as a share of the log of the number of keys."""
    each: Tensor = torch.special.entr(layer.weights).sum(-1) / math.log(layer.weights.shape[-1])
    return each.flatten(1).mean(1)


def separation(layer: AttentionLayer) -> Tensor | None:
    """(queries, keys) distances between places, in sides of the image; None where either is no grid."""
    if layer.grid is None or layer.query_grid is None:
        return None
    side = 1 / math.sqrt(layer.windows)  # of a window, where the image is cut into some
    places = []
    for rows, columns in (layer.query_grid, layer.grid):
        down, right = ((torch.arange(k) + 0.5) / k * side for k in (rows, columns))
        places.append(torch.cartesian_prod(down, right))
    return torch.cdist(places[0], places[1])


def _distance(layer: AttentionLayer, distance: Tensor) -> Tensor:
    """(n,) over queries and keys on the grid; what falls on other tokens is left out."""
    weights = layer.weights[..., layer.query_prefix :, layer.prefix :]
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-12)
    each: Tensor = (weights * distance).sum(-1)
    return each.flatten(1).mean(1)
