"""Where does the class token look, and how closely?   Catteau, TP IV, Sec. 4.3, with numbers instead of eyeballing"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from saccade.analysis import attention
from saccade.analysis.attention import Maps
from saccade.arguments import Count, Label
from saccade.data.images import Images, Source
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import Subject

SHOWN_SEED = 0  # images are kept of one replication only
DECIMALS = 5


@probe(version=2)
def attention_maps(
    subject: Subject,
    data: Source,
    *,
    split: str = "",
    n: Count = 500,
    show: Sequence[Label] = (),
    means: bool = False,
    eight: bool = False,
) -> Iterator[Row]:
    """Entropy by layer and head; effective patches, share on the middle and on ink, of the last layer and of rollout.

    `map_difference` is the attention that an image moves from the mean map over images (total variation, mean over
    heads of the last layer): 0 when every image is looked at alike. Of seed 0 also the images with their maps: the
    first one of each class in `show`, their class means if `means`, and a made-up 8 if `eight`.
    """
    images = data(data.held_out(split)).head(n)
    x = images.batch(torch.arange(len(images), device=images.y.device))
    maps = _maps(subject, x)
    for layer, (grid, kept) in enumerate(zip(maps.layers, maps.kept, strict=True), 1):
        for head, value in enumerate(attention.entropy(grid).mean(0).tolist(), 1):
            yield _row("entropy", value, len(x), layer=layer, head=head)
        yield _row("kept", float(kept.mean()), len(x), layer=layer)
    last = maps.layers[-1]
    moved = float((last - last.mean(0)).abs().sum((-2, -1)).mean()) / 2
    yield _row("map_difference", moved, len(x), ingredient="content")
    side = maps.last.shape[-1]
    grey, two = x.shape[1] == 1, images.classes == 2
    ink = attention.ink_mask(x, side) if grey else None
    difference_mask = _difference(data("train"), side) if two and grey else None
    for view, grid in (("last", maps.last), ("rollout", maps.rollout)):
        values_by_image = {
            "effective_patches": attention.effective_patches(grid),
            "centre_share": attention.share(grid, attention.centre(side)),
        }
        if ink is not None:
            values_by_image |= {"ink_share": attention.share(grid, ink), "ink_area": ink.mean((1, 2))}
        if difference_mask is not None:
            values_by_image["difference_share"] = attention.share(grid, difference_mask)
        values = {name: float(each.mean()) for name, each in values_by_image.items()}
        if ink is not None:
            values["ink_contrast"] = values["ink_share"] / max(values["ink_area"], 1e-12)
        for name, value in values.items():
            yield _row(name, value, len(x), view=view)
    if data.seed == SHOWN_SEED:
        yield from _images(subject, images, x, maps, show, means, eight)


def _maps(subject: Subject, x: Tensor) -> Maps:
    return attention.maps(subject.model, subject.prepared(x))


def _difference(images: Images, side: int) -> Tensor:
    """+1 on the quarter of patches where two classes differ most, -1 on the quarter where they differ least.

    Both quarters lie in the half of the patches with the most ink, so that looking at ink alone gives about 0.
    """
    x = images.batch(torch.arange(len(images), device=images.y.device)).mean(1, keepdim=True)
    x = torch.nn.functional.adaptive_avg_pool2d(x, side)[:, 0]
    first, second = (x[images.y == label].mean(0).flatten() for label in (0, 1))
    most_ink = (first + second).argsort(descending=True)[: side * side // 2]
    order = most_ink[(first - second).abs()[most_ink].argsort(descending=True)]
    mask = torch.zeros(side * side)
    mask[order[: len(order) // 2]], mask[order[len(order) // 2 :]] = 1.0, -1.0
    return mask.view(side, side)


def _images(
    subject: Subject, images: Images, x: Tensor, maps: Maps, show: Sequence[int], means: bool, eight: bool
) -> Iterator[Row]:
    predictions = subject.logits(x).argmax(1)
    for label in show:
        members = (images.y == label).nonzero()[:, 0]
        if not len(members):
            continue
        one = int(members[0])
        yield _image("instance", label, x[one], maps.last[one], maps.rollout[one], prediction=int(predictions[one]))
        if label == show[0]:
            for layer, grid in enumerate(maps.layers, 1):
                for head in range(grid.shape[1]):
                    yield _row(
                        "head_map",
                        float(attention.entropy(grid[one, head])),
                        1,
                        layer=layer,
                        head=head + 1,
                        map=_rounded(grid[one, head]),
                    )
        if means:
            yield _image(
                "class mean",
                label,
                x[members].mean(0),
                maps.last[members].mean(0),
                maps.rollout[members].mean(0),
                n=len(members),
            )
    if eight:
        sketch = torch.from_numpy(draw_eight())[None, None].to(x)
        sketch = sketch.expand(-1, x.shape[1], -1, -1)
        sketch_maps = _maps(subject, sketch)
        yield _image(
            "made-up 8",
            -1,
            sketch[0],
            sketch_maps.last[0],
            sketch_maps.rollout[0],
            prediction=int(subject.logits(sketch).argmax(1)),
        )


def draw_eight(size: int = 32) -> np.ndarray:
    """Two rings, one above the other, as a hand would put them: (size, size), float in [0, 1]."""
    y, x = np.mgrid[:size, :size].astype(np.float32)
    edge = np.full((size, size), np.inf, np.float32)
    for cy, radius in ((10.5, 5.0), (20.5, 6.0)):
        edge = np.minimum(edge, np.abs(np.hypot(y - cy, x - 15.5) - radius))
    sketch: np.ndarray = np.clip(2.2 - edge, 0, 1)
    return sketch


def _image(
    shown: str, label: int, image: Tensor, last: Tensor, rollout: Tensor, n: int = 1, prediction: int = -1
) -> Row:
    pixels = (255 * image).round().byte().flatten().tolist()
    return _row(
        "image",
        float(prediction),
        n,
        shown=shown,
        label=int(label),
        image=tuple(pixels),
        map=_rounded(last),
        rollout=_rounded(rollout),
    )


def _rounded(grid: Tensor) -> tuple[float, ...]:
    return tuple(round(v, DECIMALS) for v in grid.flatten().tolist())


def _row(metric: str, value: float, n: int, **at: object) -> Row:
    return Row(metric, value, n, Settings(at))
