"""Does it need the whole, or are pieces in any order enough?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import torch
from einops import rearrange
from torch import Tensor

from saccade import rng
from saccade.arguments import Count, Width
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError
from saccade.subjects import answers
from saccade.subjects.subject import Subject


@probe(version=1)
def patch_shuffle(
    subject: Subject, data: Source, *, split: str = "", n: Count = 1000, grids: Sequence[Width] = (1, 2, 4, 8)
) -> Iterator[Row]:
    """Accuracy after the squares of a g x g grid have been shuffled, and how often the answer stays as it was.

    A bag of local features does not notice; grid 1 is the image as it is.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    before, y = answers.said(subject, data, split, n), images.y.cpu()
    for grid in grids:
        draw = rng.stream(data.seed, "patch_shuffle", grid)
        order = torch.rand(len(images), grid * grid, generator=draw).argsort(1).to(data.device)
        after = answers.said(
            subject,
            data,
            split,
            n,
            functools.partial(_shuffle, order, grid),
            patch_shuffle=grid,
        )
        yield Row.mean("shuffled_accuracy", (after == y).numpy(), grid=grid)
        yield Row.mean("answer_kept", (after == before).numpy(), grid=grid)


def shuffled(x: Tensor, order: Tensor, grid: int) -> Tensor:
    """x: (n, c, h, w); square i of the result is square order[:, i] of x, row by row. Pixels at the right and the lower
    edge that are left over by a grid which does not divide the image stay where they are."""
    high, wide = (side - side % grid if 1 <= grid <= side else 0 for side in x.shape[-2:])
    if not high or not wide:
        raise SaccadeError(f"images of {x.shape[-2]}x{x.shape[-1]} pixels cannot be cut into {grid} x {grid} squares.")
    if grid == 1:
        return x
    n, c = x.shape[:2]
    squares = rearrange(x[..., :high, :wide], "n c (a h) (b w) -> (n a b) (c h w)", a=grid, b=grid)
    first = torch.arange(n, device=x.device)[:, None] * grid**2  # of each image; whole squares are lines of memory
    squares = squares.index_select(0, (first + order).flatten())
    shuffled_part = rearrange(squares, "(n a b) (c h w) -> n c (a h) (b w)", a=grid, b=grid, n=n, c=c, h=high // grid)
    if (high, wide) == x.shape[-2:]:
        return shuffled_part
    whole = x.clone()
    whole[..., :high, :wide] = shuffled_part
    return whole


def _shuffle(order: Tensor, grid: int, x: Tensor, index: Tensor) -> Tensor:
    return shuffled(x, order[index], grid)
