"""Draws the pictures of docs/probes from CIFAR-10 and MNIST: python docs/probes/make_pictures.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import saccade as sc
from saccade import rng
from saccade.data import changes, pixels
from saccade.data.images import Source
from saccade.probes.background_reliance import composed
from saccade.report import draw, figures
from saccade.spec import Settings

HERE = Path(__file__).parent
PHOTOS = Source("photos", Settings(of="cifar10"), 0)
COLUMNS = 8


def main() -> None:
    images = PHOTOS("test").head(COLUMNS)
    index = torch.arange(COLUMNS)
    x, colour = images.batch(index), torch.tensor(images.mean)
    full = torch.ones(COLUMNS)
    save(
        "image_transforms",
        {
            "as it is": x,
            "moved by 4": changes.shifted(x, torch.full((COLUMNS,), 4), torch.zeros(COLUMNS).long(), colour),
            "turned by 15°": changes.warped(x, pixels.rotation(15 * full), colour),
            "turned by 45°": changes.warped(x, pixels.rotation(45 * full), colour),
            "scale 0.6": changes.warped(x, pixels.scaling(0.6 * full), colour),
            "scale 1.5": changes.warped(x, pixels.scaling(1.5 * full), colour),
        },
    )
    place = torch.rand(2, COLUMNS, generator=rng.stream(0, "occlusion"))
    shown = {"as it is": x}
    for share in (0.1, 0.25, 0.5):
        side = round(32 * share**0.5)
        top, left = ((place[i] * (33 - side)).long() for i in (0, 1))
        shown[f"{share:.0%} covered"] = changes.covered(x, top, left, side, colour)
    save("occlusion", shown)
    one = x[:1].expand(5, -1, -1, -1)
    ladder = {
        kind: torch.cat([changes.corrupted(one[:1], kind, s, rng.stream(0, "docs", s)) for s in (1, 2, 3, 4, 5)])
        for kind in changes.CORRUPTIONS
    }
    save("corruptions", ladder, [str(s) for s in range(1, 6)])
    other = changes.partners(images.y, False, rng.stream(0, "cue_conflict"))
    save(
        "cue_conflict",
        {"shape from": x, "texture from": x[other], "in conflict": changes.recombined(x, x[other])},
    )
    digits = Source("digits_on_backgrounds", Settings(backgrounds=8), 0)("id").head(200)
    donors = {same: changes.partners(digits.y, same, rng.stream(0, "docs", int(same))) for same in (True, False)}
    save(
        "background_reliance",
        {
            "original": digits.batch(index),
            "own": composed(digits, index, donors[True]),
            "foreign": composed(digits, index, donors[False]),
            "none": composed(digits, index, None),
        },
    )
    reliability()
    sc.attention(sc.model("vit", dim=64, depth=3), (255 * x[0]).byte().permute(1, 2, 0).numpy()).save(
        HERE / "attention_span.png"
    )


def save(name: str, rows: dict[str, torch.Tensor], columns: list[str] | None = None) -> None:
    grid = figures.image_grid(
        [[image.numpy() for image in images] for images in rows.values()],
        rows=list(rows),
        columns=columns or (),
    )
    draw.save(grid, HERE / f"{name}.png")


def reliability() -> None:
    """Simulated: a calibrated model, and one whose logits are three times too large."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(draw.STYLE):
        figure = Figure(figsize=(3.4, 3.0), layout="constrained")
        ax = figure.subplots()
        random = np.random.default_rng(0)
        truth = random.uniform(0.5, 1, 20_000)
        right = random.random(20_000) < truth
        for label, confidence, style in (
            ("calibrated", truth, "o-"),
            ("over-confident", 1 / (1 + ((1 - truth) / truth) ** 3), "s--"),
        ):
            parts = np.array_split(np.argsort(confidence), 15)
            ax.plot([confidence[p].mean() for p in parts], [right[p].mean() for p in parts], style, label=label, ms=3)
        ax.plot([0.5, 1], [0.5, 1], color="grey", lw=0.8)
        ax.set_xlabel("confidence")
        ax.set_ylabel("share of right answers")
        ax.legend()
        figure.savefig(HERE / "calibration.png", dpi=160)


if __name__ == "__main__":
    main()
