"""Draws docs/digits_on_backgrounds.png from real data: python docs/make_pictures.py"""

from __future__ import annotations

from pathlib import Path

import torch

from saccade.data.images import Source
from saccade.probes.digit_transforms import transformed
from saccade.report import draw, figures
from saccade.spec import Settings

COLUMNS = 10


def main() -> None:
    rows, names = [], []

    def add(name: str, images: object) -> None:
        rows.append([x.numpy() for x in images.batch(torch.arange(COLUMNS))])
        names.append(name)

    for x in (1, 8):
        data = Source("digits_on_backgrounds", Settings(backgrounds=x), 0)
        for split, name in (("train", "train"), ("id", "ID")):
            images = data(split)
            # One picture a class, so that a class's own backgrounds can be compared down the rows.
            first = torch.stack([(images.y == d).nonzero()[0, 0] for d in range(10)])
            add(f"{name}, x={x}", images.pick(first))
    ood = data("ood")
    ood = ood.pick(torch.stack([(ood.y == d).nonzero()[0, 0] for d in range(10)]))
    add("OOD", ood)
    for name, severity, unit in (
        ("translation", 4, " px"),
        ("rotation", 20, "°"),
        ("rotation", 50, "°"),
        ("scale", 0.75, ""),
        ("scale", 0.5, ""),
    ):
        add(f"{name} {severity}{unit}", transformed(ood, name, severity, 0)[0])
    grid = figures.image_grid(rows, rows=names, columns=[str(d) for d in range(10)])
    draw.save(grid, Path(__file__).with_name("digits_on_backgrounds.png"))


if __name__ == "__main__":
    main()
