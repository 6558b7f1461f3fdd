"""What do the images look like on which local structure is tested? A few of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from saccade import rng
from saccade.arguments import Count, Width
from saccade.data.images import AnySet, Images, Source
from saccade.data.mosaic import Route, mosaic
from saccade.data.small_object import ObjectShare, small_object
from saccade.probes.patch_shuffle import shuffled
from saccade.probes.top_k_matching import drawn_from
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import Subject

SIDE = 32  # of the stored images, whatever the size that the model takes


@probe(version=2, milestones=False, fact_seconds=5)
def local_pictures(
    subject: Subject | None,
    data: Source,
    *,
    n: Count = 6,
    scales: Sequence[ObjectShare] = (1.0, 0.5, 0.25),
    canvases: Sequence[Width] = (64,),
    backdrop: str = "procedural_textures",
    grids: Sequence[Width] = (2, 4),
    route: Route = "clean",
    of: AnySet | Literal[""] = "",
) -> Iterator[Row]:
    """The first n mosaics, objects at each scale and canvas, and images with shuffled squares, as pixels in rows."""
    name = drawn_from(data, of)
    images = mosaic("test", seed=data.seed, of=name, n=n, size=SIDE, route=route)
    for i, x in enumerate(_all(images)):
        yield _row("mosaic", i, x, labels=tuple(images.shown[i].tolist()))
    for scale in scales:
        pasted = small_object(
            "test", seed=data.seed, of=name, n=n, scale=scale, backdrop=backdrop, size=SIDE, route=route
        )
        for i, x in enumerate(_all(pasted)):
            yield _row(f"object, scale {scale:g}", i, x, labels=(int(pasted.y[i]),))
    for canvas in canvases:
        pasted = small_object(
            "test", seed=data.seed, of=name, n=n, scale=SIDE / canvas, backdrop=backdrop, size=canvas, route=route
        )
        for i, x in enumerate(_all(pasted)):
            yield _row(f"object, native on {canvas} x {canvas}", i, x, labels=(int(pasted.y[i]),))
    plain = data(data.held_out()).head(n)
    x = _all(plain)
    for grid in grids:
        draw = rng.stream(data.seed, "patch_shuffle", grid)
        order = torch.rand(len(plain), grid * grid, generator=draw).argsort(1).to(x.device)
        mixed = torch.nn.functional.interpolate(shuffled(x, order, grid), size=(SIDE, SIDE), mode="area")
        for i, one in enumerate(mixed):
            yield _row(f"shuffled {grid} x {grid}", i, one, labels=(int(plain.y[i]),))


def _all(images: Images) -> Tensor:
    return images.batch(torch.arange(len(images), device=images.y.device))


def _row(shown: str, i: int, x: Tensor, labels: tuple[int, ...]) -> Row:
    pixels = (255 * x).round().byte().flatten().tolist()
    return Row("picture", float(i), 1, Settings(shown=shown, index=i, labels=labels, picture=tuple(pixels)))
