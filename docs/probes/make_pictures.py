"""Draws the pictures of docs/probes from CIFAR-10 and MNIST: python docs/probes/make_pictures.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

import saccade as sc
from saccade import registry, rng, shipped
from saccade.analysis.convolution import to_attention
from saccade.data import changes, pixels
from saccade.data.images import Images, Source
from saccade.data.mosaic import mosaic
from saccade.data.small_object import small_object
from saccade.layers.position_attention import QuadraticAttention
from saccade.probes.background_reliance import composed
from saccade.probes.digit_transforms import transformed
from saccade.probes.patch_shuffle import shuffled
from saccade.report import draw, figures, looks
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
    constructed(images, x)
    heads()
    leakage()
    reliability()
    sc.attention(sc.model("vit", dim=64, depth=3), (255 * x[0]).byte().permute(1, 2, 0).numpy()).save(
        HERE / "attention_span.png"
    )


def constructed(images: Images, x: torch.Tensor) -> None:
    """Images of the probes on order, place, size and several things at once."""
    shown = {"as it is": x}
    for grid in (2, 4, 8):
        order = torch.rand(COLUMNS, grid * grid, generator=rng.stream(0, "patch_shuffle", grid)).argsort(1)
        shown[f"{grid} x {grid} shuffled"] = shuffled(x, order, grid)
    save("patch_shuffle", shown)
    index = torch.arange(COLUMNS)
    digits = Source("digits_on_backgrounds", Settings(backgrounds=8), 0)("ood").head(COLUMNS)
    asked = (("translation", 4), ("rotation", 20), ("scale", 0.75), ("scale", 0.5))
    moved = {f"{name} {by:g}": transformed(digits, name, by, 0)[0].batch(index) for name, by in asked}
    save("digit_transforms", {"as it is": digits.batch(index), **moved})
    pasted = {f"scale {s:g}": small_object("test", seed=0, n=COLUMNS, scale=s, size=32) for s in (1.0, 0.5, 0.25)}
    save("small_object_accuracy", {name: some.batch(index) for name, some in pasted.items()})
    native = {
        backdrop: small_object("test", seed=0, n=COLUMNS, scale=0.5, size=64, backdrop=backdrop)
        for backdrop in ("procedural_textures", "plain")
    }
    save("native_object_accuracy", {name: some.batch(index) for name, some in native.items()})
    save("top_k_matching", {"mosaics": mosaic("test", seed=0, n=COLUMNS, size=32).batch(index)})
    full = torch.ones(COLUMNS)
    save(
        "equivariance",
        {
            "as it is": x,
            "shifted round by 4": x.roll(4, -1),
            "turned by 90°": x.rot90(1, (-2, -1)),
            "turned by 15°": changes.warped(x, pixels.rotation(15 * full), torch.tensor(images.mean)),
            "scale 0.9": changes.warped(x, pixels.scaling(0.9 * full), torch.tensor(images.mean)),
            "mirrored": x.flip(-1),
        },
    )
    train = PHOTOS("train")
    save(
        "through_transforms",
        {"as it is": train.batch(index), "in training": train.batch(index, rng.stream(0, "probe", "augment"))},
    )
    vit = shipped.load("vit_x64")
    digit = (255 * digits.batch(index[:1])[0]).byte().permute(1, 2, 0).numpy()
    sc.attention(vit, digit).save(HERE / "attention_maps.png")


def heads() -> None:
    """What the middle query of a layer of nine Gaussian heads attends to, at the start and at alpha 2 per shift."""
    side = 9
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.seed_of(0, "docs", "heads"))
        start = QuadraticAttention(16, 9, 16)
    kernel = to_attention(nn.Conv2d(4, 4, 3, padding=1), alpha=2.0)
    with torch.no_grad():
        middle = start.probabilities(side, side)[:, side * side // 2].view(9, side, side)
        rows, columns = kernel.factors(side, side)
        shifts = rows[:, side // 2, 1:-1, None] * columns[:, side // 2, None, 1:-1]
    named = {"at the start": middle, "a 3 x 3 kernel, alpha 2": shifts}
    save("heads", {k: (v / v.amax((1, 2), keepdim=True))[:, None].expand(-1, 3, -1, -1) for k, v in named.items()})


def leakage() -> None:
    """Measured by the probe itself, against the lemma's first term."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    asked = sc.Probe("convolution_theorem", kernels=(1,), trials=1, alphas=(1, 2, 3, 5, 7, 10, 15, 20))
    rows = registry.find("probe", "convolution_theorem")(None, PHOTOS, **asked.settings)
    found = {r.at["alpha"]: r.value for r in rows if r.metric == "leakage"}
    with matplotlib.rc_context(looks.STYLE):
        figure = Figure(figsize=(3.4, 2.6), layout="constrained")
        ax = figure.subplots()
        ax.semilogy(list(found), list(found.values()), "o", ms=4, label="measured")
        ax.semilogy(list(found), [4 * np.exp(-a) for a in found], "--", label="4 exp(-alpha)")
        ax.set_xlabel("alpha")
        ax.set_ylabel("attention on other pixels")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
        ax.yaxis.set_major_locator(LogLocator(100))
        ax.legend()
        figure.savefig(HERE / "convolution_theorem.png", dpi=160)


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

    with matplotlib.rc_context(looks.STYLE):
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
