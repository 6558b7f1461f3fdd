"""What is trained and what is measured on it, by scale: model, backgrounds per class x, seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

XS = (1, 2, 4, 8, 16, 32, 64)
LOW, HIGH = 8, 64  # the two values of x whose curves the thesis shows
VARIED = "varied colours"  # of whole training images
OVERVIEW = {"translation": 4, "rotation": 20, "scale": 0.75}
NEUTRAL = {"translation": 0, "rotation": 0, "scale": 1}
GRIDS: Mapping[str, tuple[float, ...]] = {
    "translation": (0, 1, 2, 3, 4, 5),
    "rotation": (0, 10, 20, 30, 40, 50),
    "scale": (1, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5),
}

CHOICES = (
    Choice("reading", "A", ("A", "B", "C", "D", "E"), "which attention layer the thesis may have built"),
    Choice("heads", 2, (1, 2), "attention heads; must divide 6 and 16"),
    Choice("blend", "opacity", ("opacity", "maximum", "hard", "add"), "how ink and background mix"),
    Choice("placement", "pad", ("pad", "resize"), "how 28x28 digits are put into 32x32"),
    Choice("normalise", "half", ("half", "none"), "pixels in [0, 1] standardised by 0.5 and 0.5, or not at all"),
    Choice("assign", "once", ("once", "every_time"), "a training digit's background is drawn once or at every showing"),
    Choice("optimizer", "adam", ("adam", "sgd"), "adam, or sgd with momentum 0.9"),
    Choice("images", 0, (), "training images seen by every arm; 0 takes the scale's own"),
    Choice("digits", "mnist", ("mnist", "fashion_mnist", "procedural_digits"), "what is pasted"),
    Choice("scenes", "cifar10", ("cifar10", "procedural_textures"), "what it is pasted on"),
)


@dataclass(frozen=True)
class Arm:
    """One row of the design: a model, its values of x, what differs from the plain arm, and its seeds."""

    name: str
    model: str
    xs: tuple[int, ...]
    seeds: int
    model_args: Settings = field(default_factory=Settings)
    data_args: Settings = field(default_factory=Settings)
    images: int = 0  # training images seen; 0: the scale's number


def arms(scale: Scale, chosen: Settings) -> list[Arm]:
    """CNN and MHA first; then the arms that the author proposes or could not run."""
    few = (1, LOW, HIGH)
    mha = {"reading": chosen["reading"], "heads": chosen["heads"]}
    main, more = scale(smoke=2, demo=5, small=5, large=8, paper=10), scale(smoke=2, demo=5, small=5, large=5, paper=10)
    proposed: tuple[int, ...] = scale(smoke=(), small=(), large=(HIGH,), paper=(LOW, HIGH))
    curve: tuple[int, ...] = scale(smoke=(), small=(), large=(), paper=(1, 2, 4, 16, 32))
    cnn_xs: tuple[int, ...] = scale(smoke=(LOW, HIGH), demo=few, small=(1, 4, LOW, 16, HIGH), large=XS, paper=XS)
    pooled, mild, colours = Settings(head="mean"), Settings(augment="mild"), Settings(augment="colours")
    both: tuple[int, ...] = scale(smoke=(), small=(), large=(LOW, HIGH), paper=(LOW, HIGH))
    half = scale(smoke=0, small=0, large=120_000, paper=0)  # what two cores do in two hours
    any_x: tuple[int, ...] = scale(smoke=(), small=(HIGH,), large=(HIGH,), paper=(HIGH,))
    return [
        Arm("CNN", "lenet", cnn_xs, main),
        Arm(
            "MHA",
            "mha_lenet",
            scale(smoke=(LOW,), small=(LOW, HIGH), large=(LOW, HIGH), paper=(LOW, HIGH)),
            main,
            Settings(mha),
        ),
        Arm("MHA", "mha_lenet", curve, more, Settings(mha)),
        Arm("CNN, pooled", "lenet", proposed, more, pooled),
        Arm("MHA, pooled", "mha_lenet", proposed, more, Settings(mha, **pooled)),
        Arm("CNN, augmented", "lenet", proposed, more, data_args=mild),
        Arm("MHA, augmented", "mha_lenet", proposed, more, Settings(mha), mild),
        *(
            Arm(f"{name}, {VARIED}", model, (x,), seeds, args, colours, half)
            for x, seeds in zip(both, (main, more), strict=False)  # claims read the first; the second is shown
            for name, model, args in (("CNN", "lenet", Settings()), ("MHA", "mha_lenet", Settings(mha)))
        ),
        Arm("CNN, any background", "lenet", any_x, more, data_args=Settings(pairing="random")),
        Arm(
            "ViT",
            "basic_vit",
            scale(smoke=(LOW,), demo=(), small=(), large=(), paper=XS),
            more,
            Settings(dim=64, heads=4, depth=2),
        ),
    ]


def tasks(scale: Scale, chosen: Settings) -> Sequence[Task]:
    """Every arm at every x and seed, in one recipe; arms that are compared see the same number of images."""
    images = scale(smoke=320, demo=16_000, small=36_000, large=240_000, paper=600_000)
    recipe = Recipe(
        images=images,
        optimizer=chosen["optimizer"],
        momentum=0.9 if chosen["optimizer"] == "sgd" else 0.0,
        watch=scale(smoke=2, small=8, large=16, paper=20, demo=8),
    )
    fixed: dict[str, Any] = {
        name: chosen[name] for name in ("blend", "placement", "normalise", "assign", "digits", "scenes")
    }
    return [
        Task(
            Run(
                arm.model,
                "digits_on_backgrounds",
                replace(recipe, images=chosen["images"] or arm.images or images),
                seed,
                arm.model_args,
                Settings(fixed, backgrounds=x, **arm.data_args),
            ),
            probes(scale, x, few=bool(arm.images)),
            arm.name,
        )
        for arm in arms(scale, chosen)
        for seed in range(arm.seeds)  # before x: what is finished then has whole curves
        for x in arm.xs
    ]


def probes(scale: Scale, x: int, few: bool = False) -> tuple[Probe, ...]:
    """The whole severity curves at the two x of the thesis' figures 10 to 12; its overview values elsewhere.

    With `few` as many unmoved digits as moved ones: attention takes as long to be tested as to be trained.
    """
    n, n_moved = scale(
        smoke=(100, 50), demo=(1000, 200), small=(10_000, 400), large=(10_000, 2000), paper=(10_000, 10_000)
    )
    n = n_moved if few else n
    grids: Mapping[str, tuple[float, ...]] = GRIDS if x in (LOW, HIGH) else {k: (v,) for k, v in OVERVIEW.items()}
    if scale.name == "smoke":
        grids = {name: (NEUTRAL[name], OVERVIEW[name]) for name in GRIDS}
    return (Probe("accuracy", splits=("id", "ood"), n=n), Probe("digit_transforms", n=n_moved, **grids))
