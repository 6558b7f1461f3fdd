"""What do heads look at: fixed shifts or content, one pixel or many, near or far?   Varma and Prabhu 2021, Figs. 2 to 5

Numbers in place of impressions: they are taken of the trained model and of the untrained one of the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from saccade import models
from saccade.analysis.attention import entropy
from saccade.arguments import Count
from saccade.data.images import Source
from saccade.layers.position_attention import QuadraticAttention, shifts
from saccade.registry import probe
from saccade.spec import Row, SaccadeError, Settings
from saccade.subjects.subject import Subject

SHOWN_SEED = 0  # maps are kept of one replication only
DECIMALS = 4
SINGLE = 2.0  # effective pixels up to which a head singles out one
FAR = 0.25  # of the grid's side: mean distance from which on a head looks far,
SPREAD = 0.5  # if it looks at no more than this share of the tokens: an even look is no pattern
WIDEST = 1000.0  # condition number beyond which a head is a strip (pruning rule of the original code)
FLATTEST = 1e-5  # largest precision below which it looks evenly


@probe(version=2)
def attention_geometry(
    subject: Subject,
    data: Source,
    *,
    split: str = "",
    n: Count = 50,
    model: str = "",
    args: Mapping[str, object] | None = None,
    show: bool = False,
) -> Iterator[Row]:
    """By layer: entropy, effective pixels, distance, positional share, kinds of heads, and the geometry of centres.

    `model` and `args` say how to build the untrained model that the trained one is compared with. Two ingredients have
    a number of their own: how far centres have `moved` (tokens), how much of the attention `varies` between images.
    With `show`, seed 0 also keeps maps: of the middle query on the first image and averaged over all n, and averaged
    over queries.
    """
    images = data(data.held_out(split)).head(n)
    x = images.batch(torch.arange(len(images), device=images.y.device))
    states: dict[str, nn.Module] = {"trained": subject.model}
    if model:
        built = models.build(model, images.classes, seed=data.seed, **(args or {})).to(subject.device)
        states["start"] = built.eval()
    prepared = subject.prepared(x)
    centres = {state: quadratic_layers(built) for state, built in states.items()}
    if model and centres["trained"]:
        pairs = zip(centres["trained"], centres["start"], strict=True)
        far = torch.cat([(now[0] - initial[0]).norm(dim=1) for now, initial in pairs])
        yield _row("moved", float(far.mean()), len(far), ingredient="centres")
    for state, built in states.items():
        maps = probabilities(built, prepared)
        if state == "trained":
            yield _row("varies", sum(map(_varying_mass, maps)) / len(maps), len(x), ingredient="content")
        for layer, p in enumerate(maps, 1):
            for name, value in of_maps(p).items():
                yield _row(name, value, len(x), state=state, layer=layer)
            if layer > 1:
                yield _row("pass_change", _moved_mass(maps[layer - 2], p), len(x), state=state, layer=layer)
        for layer, gaussians in enumerate(centres[state], 1):
            for name, value in of_centres(*gaussians).items():
                yield _row(name, value, len(gaussians[0]), state=state, layer=layer)
            if model and state == "trained":
                moved = (gaussians[0] - centres["start"][layer - 1][0]).norm(dim=1).mean()
                yield _row("centre_moved", float(moved), len(gaussians[0]), state=state, layer=layer)
        if show and data.seed == SHOWN_SEED:
            if state == "trained":
                yield from _shown_maps(maps, x)
            yield from drawn_centres(centres[state], state)


def probabilities(model: nn.Module, x: Tensor) -> list[Tensor]:
    """(n, heads, queries, keys) of every layer or pass, for tokens on a square grid."""
    attention = getattr(model, "attention", None)
    if not callable(attention):
        raise SaccadeError(
            f"{type(model).__name__} has no attention maps; they need a model with .attention(x), "
            "such as quadratic or learned_relative."
        )
    with torch.no_grad():
        maps: list[Tensor] = [p.detach() for p in attention(x)]
    side = math.isqrt(maps[0].shape[-1])
    if side * side != maps[0].shape[-1]:
        raise SaccadeError(
            f"attention_geometry reads tokens on a square grid, and {maps[0].shape[-1]} are none; "
            "a class token has no place."
        )
    return [p.expand(len(x), -1, -1, -1) for p in maps]


def quadratic_layers(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Centres (heads, 2) and precisions (heads, 2, 2) of every layer whose heads are Gaussians, as they act."""
    return [
        (acting_centre(m).detach(), m.precision().detach())
        for m in model.modules()
        if isinstance(m, QuadraticAttention)
    ]


def acting_centre(layer: QuadraticAttention) -> Tensor:
    """Where a head looks: with the published slip the second coefficient c + centre puts it at A^-1 (...)."""
    if not layer.additive_centre:
        return layer.centre
    a, centre = layer.precision(), layer.centre
    linear = (a @ centre[..., None])[..., 0]
    slipped = linear[:, 1] - a[:, 1, 1] * centre[:, 1] + a[:, 1, 1] + centre[:, 1]
    acting: Tensor = torch.linalg.solve(a, torch.stack([linear[:, 0], slipped], 1))
    return acting


def of_centres(centre: Tensor, precision: Tensor) -> dict[str, float]:
    """A layer's centres against the integer grid and the nine shifts of a 3x3 kernel, and the shape of its heads."""
    values = torch.linalg.eigvalsh(precision.double()).clamp_min(1e-30)
    ratio = values[:, 1] / values[:, 0]
    return {
        "lattice_distance": float((centre - centre.round()).norm(dim=1).mean()),
        "coverage": coverage(centre) / 9,
        "centre_norm": float(centre.norm(dim=1).mean()),
        "anisotropy": float(ratio.log().mean()),
        "degenerate": float(((ratio > WIDEST) | (values[:, 1] < FLATTEST)).double().mean()),
        "width": float(values.rsqrt().mean()),
    }


def coverage(centre: Tensor) -> int:
    """How many of the nine shifts of a 3x3 kernel are the nearest one to some centre."""
    nearest = {tuple(at) for at in centre.round().long().tolist()}
    return len(nearest & {(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)})


def of_maps(p: Tensor) -> dict[str, float]:
    """Of one layer, p (n, heads, queries, keys): means over heads, and shares of heads of a kind."""
    n, heads, tokens, _ = p.shape
    side = math.isqrt(tokens)
    grid = p.view(n, heads, tokens, side, side)
    each = entropy(grid).mean((0, 2))  # (heads,)
    far = (p * distances(side).to(p)).sum(-1).mean((0, 2))
    positional = positional_share(p)
    received = p.mean(2)  # (n, heads, keys): the mean over queries
    return {
        "entropy": float(each.mean()),
        "distance": float(far.mean()),
        "single_heads": float((each.exp() <= SINGLE).float().mean()),
        "far_heads": float(((far >= FAR * side) & (each.exp() <= SPREAD * tokens)).float().mean()),
        "positional_share": float(positional.mean()),
        "positional_heads": float((positional > 0.5).float().mean()),
        "average_positional": float(positional_share(received[:, :, None]).mean()),
        "average_variation": float((received - received.mean(0)).abs().sum(-1).mean() / 2),
        "distinct_shifts": len(set(favourite_shifts(p.mean(0)))) / heads,
    }


def distances(side: int) -> Tensor:
    """(queries, keys): Euclidean, in tokens."""
    one = shifts(side, torch.device("cpu")).double().square()
    both = one[:, None, :, None] + one[None, :, None, :]
    return both.sqrt().view(side * side, side * side)


def positional_share(p: Tensor) -> Tensor:
    """Of each head's map, how much of its departure from an even look is the same for every image: (heads,).

    Variance of the mean map over that of all maps, both around an even look. 1: position only; 0: content only.
    """
    even = 1 / p.shape[-1]
    mean = p.mean(0)
    fixed = (mean - even).square().sum((1, 2))
    varies = (p - mean).square().sum((2, 3)).mean(0)
    return fixed / (fixed + varies).clamp_min(1e-30)


def favourite_shifts(p: Tensor) -> list[tuple[int, int]]:
    """For each head of p (heads, queries, keys), the shift whose mean probability over its queries is largest."""
    heads, tokens, _ = p.shape
    side = math.isqrt(tokens)
    by = shifts(side, p.device) + side - 1
    index = (by[:, None, :, None] * (2 * side - 1) + by[None, :, None, :]).reshape(-1)
    count = torch.zeros((2 * side - 1) ** 2).index_add_(0, index, torch.ones(len(index)))
    total = torch.zeros(heads, (2 * side - 1) ** 2).index_add_(1, index, p.reshape(heads, -1).float().cpu())
    # Few queries have the longest shifts inside the image; a mean over fewer than a quarter of them is left out.
    mean = torch.where(count >= tokens / 4, total / count.clamp_min(1), -1.0)
    best = mean.argmax(1)
    return [(int(b) // (2 * side - 1) - side + 1, int(b) % (2 * side - 1) - side + 1) for b in best]


def _varying_mass(p: Tensor) -> float:
    """How much of the attention goes elsewhere than in the mean over images: 0 for maps that no image changes."""
    return float((p - p.mean(0)).abs().sum(-1).mean() / 2)


def _moved_mass(before: Tensor, after: Tensor) -> float:
    """How much of the attention goes elsewhere than one layer earlier: 0 for the same map, 1 for disjoint ones."""
    return float((after - before).abs().sum(-1).mean() / 2)


def _shown_maps(maps: list[Tensor], x: Tensor) -> Iterator[Row]:
    tokens = maps[0].shape[-1]
    side = math.isqrt(tokens)
    query = (side // 2) * side + side // 2
    pixels = tuple((255 * x[0]).round().byte().flatten().tolist())
    yield _row("looked_at", 0.0, 1, image=pixels, query=query)
    for layer, p in enumerate(maps, 1):
        for head in range(p.shape[1]):
            views = {"one": p[0, head, query], "many": p[:, head, query].mean(0), "average": p[0, head].mean(0)}
            for view, grid in views.items():
                yield _row(
                    "head_map",
                    float(entropy(grid.view(side, side))),
                    len(p) if view == "many" else 1,
                    view=view,
                    layer=layer,
                    head=head + 1,
                    map=_rounded(grid),
                )


def drawn_centres(layers: list[tuple[Tensor, Tensor]], state: str, step: int = 0) -> Iterator[Row]:
    """A row per head with its Gaussian: centre (row, column) and the precision's a, b, c."""
    for layer, (centre, precision) in enumerate(layers, 1):
        for head in range(len(centre)):
            a = precision[head]
            yield _row(
                "head_centre",
                float(centre[head].norm()),
                1,
                state=state,
                step=step,
                layer=layer,
                head=head + 1,
                gaussian=_rounded(torch.stack([*centre[head], a[0, 0], a[0, 1], a[1, 1]])),
            )


def _rounded(values: Tensor) -> tuple[float, ...]:
    return tuple(round(v, DECIMALS) for v in values.flatten().tolist())


def _row(metric: str, value: float, n: int, **at: object) -> Row:
    return Row(metric, value, n, Settings(at))
