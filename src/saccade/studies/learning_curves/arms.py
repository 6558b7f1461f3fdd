"""What is trained on how many points: one function per figure; a run that several figures need is listed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

DIGITS, PHOTOS = 1, 3  # the two sets, by their channels
HEADS = (1, 2, 4, 8, 16)
LAYERS = (1, 2, 3)
CLASSES = 10
NOISES = (0.0, 0.1, 0.2)
WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)  # of CNNs in double descent, at paper scale
NEAR = (1, 2, 3, 4, 5, 6, 8, 16)  # of these, around the threshold at 1024 points, which CNN(4) passes at 20 % noise
DIMS = {
    (4, 3): (4, 8, 12, 16, 24, 32, 48, 64, 96),
    (8, 6): (8, 16, 24, 32, 40, 48, 64, 96),
}  # of ViTs, by heads, layers
SWEPT_P = 4096  # training points of the double-descent figures at paper scale, where the report gives none
FEW_P = 512  # the same at large scale, where ViTs are swept
ONE_LAYER_DIMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TINY = ("smoke", "demo")
BATCH, LARGE_BATCH, FROM = 32, 128, 4096  # the larger batch from so many points on; below paper scale for ViTs only
# Most epochs, but below paper scale no fewer steps than these where points are few: ViT(64,1,1) on 2048 photographs
# interpolates after 157 epochs. On digits as many as 512 points get: of ViT(128,1,1) on 256 digits, whose rate is lower
# (WARM), 1 of 5 runs was still gaining at 2400 steps, at 94 % of its training images.
EPOCHS, STEPS = 300, {DIGITS: 4800, PHOTOS: 2000}
# ViT(128,1,1) on 8192 photographs, near what it can hold at all: 2 of 5 runs interpolated after 283 and 286 epochs, and
# 3 were still gaining at 300, at 88 to 99.7 % of their training images. For all models there, as everywhere.
MOST_EPOCHS = {(PHOTOS, 8192): 600}
WINDOW = 300  # steps that the stopping rule looks back at least: training starts on a plateau; 400 at paper scale
# Steps over which the learning rate of ViTs on digits rises. Without, 2 of 10 runs of ViT(128,1,1) on 128 and 256
# digits stay at 81 and 86 % of their training images, also after 4800 steps: a first large step turns the one head to
# borders, where all digits look alike. On photographs no run did so. The rate of one head in one layer is a quarter
# here: at the whole one 1 of 5 runs of ViT(128,1,1) on 512 digits still stays at 81 % and 1 of 5 of ViT(64,1,1) on 2048
# at 67 %, at half of it 1 of 5 of ViT(128,1,1) on 2048. On 128 digits it is an eighth: of ten seeds one still does
# so at a quarter (seed 5, at 87 %), and four times the steps do not help it; at an eighth it fits all within 2400, as
# do seeds 100 to 102, which no claim is tested on (127 or 128 of 128). All by training error.
WARM, ONE_HEAD, FEW_DIGITS = 200, 0.25, 128
# Photographs from which on the CNN's rate falls as one over their number. At the whole rate the training error on 4096
# stays near 7 % for 240 epochs, at half of it CNN(10) interpolates after 52 (seed 100, which no claim is tested on); on
# 8192 it stays near 3 % at half the rate.
FULL_RATE = 2048
# Of the CNN's rate, where its width is swept on photographs or on noisy labels: the report's own. At four times that,
# 3 of 10 runs of CNN(3) on photographs with 20 % noise stayed near chance on their own training images, which looked
# like a peak; at the report's, seeds 101 and 103, which no claim is tested on, end at 2 % training error (101 at 14 %
# before), and CNN(16) fits all after 2560 of 9600 steps. On 512 digits with 20 % noise CNN(16) fits all after 3680 of
# 4800 (seed 101).
SWEPT_RATE = 0.25

CHOICES = (
    Choice("sweep", "all", ("all", *(f"fig{i}" for i in range(8, 22))), "only the runs behind one figure"),
    Choice(
        "parametrisation",
        "mean_field",
        ("mean_field", "default"),
        "mean_field: weights N(0, 1), sums divided by the root of the fan-in, learning rate eta_eff times width; "
        "default: torch's own start, learning rate 0.1",
    ),
    Choice(
        "eta_eff",
        0.0,
        (),
        "learning rate of a mean-field CNN over its width; 0 takes 1 at paper scale and where widths are swept on "
        "photographs or noisy labels, else 4, on 4096 photographs 2 and on 8192 1",
    ),
    Choice("cnn_optimizer", "sgd", ("sgd", "adamw"), "sgd without momentum, or adamw at 0.001 on the default start"),
    Choice("vit_optimizer", "adamw", ("adamw", "sgd"), "adamw at 0.001, or sgd at 0.05 with momentum 0.9"),
    Choice("weight_decay", 0.01, (), "of adamw"),
    Choice("batch", BATCH, (), "images per step; from 4096 points on 128, below paper scale for ViTs only"),
    Choice("bias", False, (), "biases in the CNN"),
    Choice(
        "settle",
        0,
        (),
        "epochs without a change of the training error after which a run ends; 0 takes 20 at paper scale (400 steps at "
        "least), else 5 (300 steps at least)",
    ),
    Choice(
        "epochs",
        0,
        (),
        "most epochs of every run; 0 takes 300, and below paper scale 600 of 8192 photographs and 2000 steps at least, "
        "4800 on digits",
    ),
    Choice("replacement", "other", ("other", "any"), "whether a noisy label is never, or may be, the right one"),
    Choice("resize", "bilinear", ("bilinear", "pad"), "how 28 x 28 digits become 32 x 32"),
    Choice("standardise", "channel", ("channel", "none"), "pixels standardised by channel, or left in [0, 1]"),
    Choice("digits", "mnist", ("mnist", "fashion_mnist", "procedural_digits"), "the grey set"),
    Choice("photos", "cifar10", ("cifar10", "procedural_textures"), "the colour set"),
)


@dataclass(frozen=True)
class Arm:
    """A model of one size. `twist` is what differs in its data or training; it stands in the name."""

    model: str
    args: Settings
    twist: str = ""

    @property
    def name(self) -> str:
        sizes = ",".join(str(self.args[k]) for k in ("width", "dim", "heads", "depth") if k in self.args)
        return f"{'CNN' if self.is_cnn else 'ViT'}({sizes})" + (f", {self.twist}" if self.twist else "")

    @property
    def is_cnn(self) -> bool:
        return self.model == "basic_cnn"

    @property
    def family(self) -> str:
        """Of the figures' colours."""
        return "cnn" if self.is_cnn else "vit"

    @property
    def dial(self) -> int:
        return int(self.args["width" if self.is_cnn else "dim"])


def cnn(width: int, twist: str = "") -> Arm:
    return Arm("basic_cnn", Settings(width=width), twist)


def vit(dim: int, heads: int, depth: int, twist: str = "") -> Arm:
    return Arm("basic_vit", Settings(dim=dim, heads=heads, depth=depth), twist)


CNN, VIT = cnn(10), vit(128, 1, 1)  # the fixed pair
EARLY, DECAYED, UNDECAYED, TWO = "stopped early", "weight decay", "no decay", "5 or 8"


def cnns(twist: str = "") -> list[Arm]:
    """CNNs of every width whose double descent is looked at."""
    return [cnn(h, twist) for h in WIDTHS]


def vits(heads: int, depth: int, twist: str = "") -> list[Arm]:
    return [vit(d, heads, depth, twist) for d in DIMS.get((heads, depth), ONE_LAYER_DIMS)]


@dataclass(frozen=True)
class Wanted:
    """An arm on p points of a set, for every seed."""

    arm: Arm
    channels: int
    p: int
    noise: float = 0.0
    only: tuple[int, ...] = ()
    probes: tuple[Probe, ...] = ()
    seeds: int = 0  # 0: all of the scale's
    rate: float = 1.0  # of the learning rate below paper scale


# -- the size dial, set by a budget


def parameters_of_cnn(width: int, channels: int) -> int:
    """Without biases, for ten classes."""
    return 506 * width**2 + (25 * channels + 40) * width


def parameters_of_vit(dim: int, depth: int, channels: int) -> int:
    return 8 * depth * dim**2 + 11 * depth * dim + (16 * channels + 79) * dim + CLASSES


def operations_of_cnn(width: int, channels: int) -> int:
    """Multiply-adds per image, forward."""
    return 25 * width * (1024 * channels + 512 * width + 512 * width) + 4 * width * (64 * width + CLASSES)


def operations_of_vit(dim: int, depth: int, channels: int) -> int:
    """Multiply-adds per image, forward, of the model as drawn: every token through every block."""
    block = 65 * (4 * dim**2 + 4 * dim**2) + 2 * 65 * 65 * dim
    return 64 * 16 * channels * dim + depth * block + CLASSES * dim


def nearest(size: Callable[[int], int], budget: int, most: int = 256) -> int:
    """The dial whose size is nearest to the budget."""
    return min(range(1, most + 1), key=lambda dial: abs(size(dial) - budget))


def matched_dims(channels: int) -> tuple[int, int]:
    """Widths of the one-head, one-layer ViT with CNN(10)'s parameters and with its operations."""
    return (
        nearest(lambda d: parameters_of_vit(d, 1, channels), parameters_of_cnn(10, channels)),
        nearest(lambda d: operations_of_vit(d, 1, channels), operations_of_cnn(10, channels)),
    )


# -- sizes by scale

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)


def sizes(scale: Scale, kind: str) -> tuple[int, ...]:
    """Training set sizes p of the fixed pair, of other one-layer ViTs, and of deep ones."""
    sizes_by_kind: dict[str, tuple[int, ...]] = {
        "pair": scale(smoke=(32, 64), small=SIZES[:4], large=SIZES, paper=SIZES),
        "heads": scale(smoke=(32, 64), small=SIZES[:4], large=SIZES[:5], paper=SIZES),
        "deep": scale(smoke=(), small=(), large=SIZES[1:5], paper=SIZES),
    }
    return sizes_by_kind[kind]


def deep_dim(scale: Scale) -> int:
    """The dimension of ViTs with several layers; at 128 they would take large scale over its two hours."""
    return int(scale(smoke=128, small=64, large=64, paper=128))


def maps_p(scale: Scale) -> int:
    """The training points of the models whose attention is looked at: the most that all of them have."""
    return int(scale(smoke=64, small=1024, large=2048, paper=8192))


# -- sweeps, one per figure

Sweep = Callable[[Scale], Iterable[Wanted]]


def fig8(scale: Scale) -> Iterable[Wanted]:
    """CNN on digits: where does it start to interpolate? At large scale also noisy ones, as many as ViTs have there."""
    p, widths = scale(smoke=(64, (1, 2)), small=(0, ()), large=(1024, (1, 2, 3, 4, 8)), paper=(SWEPT_P, WIDTHS))
    noises = scale(smoke=(0.0,), small=(), large=(0.0,), paper=NOISES)
    near = scale(smoke=(), small=(), large=NEAR, paper=())
    return [
        *(Wanted(arm, DIGITS, p, noise) for noise in noises for arm in cnns() if arm.dial in widths),
        *(Wanted(arm, DIGITS, FEW_P, 0.2, rate=SWEPT_RATE) for arm in cnns() if arm.dial in near),
    ]


def fig9(scale: Scale) -> Iterable[Wanted]:
    """CNN on photographs: the same, and double descent."""
    return [w for noise in NOISES for w in _cnn_descent(scale, noise)]


def _cnn_descent(scale: Scale, noise: float, twist: str = "") -> list[Wanted]:
    p, widths = scale(smoke=(0, ()), small=(0, ()), large=(1024, NEAR), paper=(SWEPT_P, WIDTHS))
    return [Wanted(arm, PHOTOS, p, noise, rate=SWEPT_RATE) for arm in cnns(twist) if arm.dial in widths]


def fig10(scale: Scale) -> Iterable[Wanted]:
    """ViT on digits, and at paper scale the same without weight decay, which the report suspects.

    Where interpolation starts depends on the points: at large scale it is also asked, without noise, at paper scale's.
    """
    dims = scale(smoke=(), small=(), large=(4, 8, 16, 24, 32, 64), paper=DIMS[4, 3])
    more = scale(smoke=(), small=(), large=(4, 8, 12, 16, 32, 64), paper=())
    return [
        *_vit_descent(scale, vits(4, 3), DIGITS, dims),
        *(Wanted(arm, DIGITS, SWEPT_P) for arm in vits(4, 3) if arm.dial in more),
        *(w for w in _vit_descent(scale, vits(4, 3, UNDECAYED), DIGITS, dims) if scale.name == "paper" and w.noise),
    ]


def fig11(scale: Scale) -> Iterable[Wanted]:
    """Six layers on photographs: too long for large scale."""
    return _vit_descent(scale, vits(8, 6), PHOTOS, scale(smoke=(), small=(), large=(), paper=DIMS[8, 6]))


def _vit_descent(scale: Scale, arms: Sequence[Arm], channels: int, dims: tuple[int, ...]) -> list[Wanted]:
    p, noises = scale(smoke=(0, ()), small=(0, ()), large=(FEW_P, (0.0, 0.2)), paper=(SWEPT_P, NOISES))
    return [Wanted(arm, channels, p, noise) for noise in noises for arm in arms if arm.dial in dims]


def fig12(scale: Scale) -> Iterable[Wanted]:
    """The fixed pair; at paper scale also ViTs with the CNN's parameters and with its operations."""
    for channels in (DIGITS, PHOTOS):
        for p in sizes(scale, "pair"):
            yield from (Wanted(CNN, channels, p), Wanted(VIT, channels, p))
        if scale.name == "paper":
            for dim in matched_dims(channels):
                yield from (Wanted(vit(dim, 1, 1), channels, p) for p in sizes(scale, "deep"))


def fig13(scale: Scale) -> Iterable[Wanted]:
    heads = scale(smoke=(1, 8), small=(1, 2, 8), large=HEADS, paper=HEADS)
    sets = scale(smoke=(DIGITS, PHOTOS), small=(PHOTOS,), large=(PHOTOS, DIGITS), paper=(PHOTOS, DIGITS))
    return (Wanted(vit(128, h, 1), c, p) for c in sets for h in heads for p in sizes(scale, "heads"))


def fig14(scale: Scale) -> Iterable[Wanted]:
    """Layers; where depth is said to pay only from 3000 points on, also a size beyond."""
    dim = deep_dim(scale)
    late = scale(smoke=(), small=(), large=(4096,), paper=())
    return [
        *(Wanted(vit(dim, 1, depth), c, p) for c in (DIGITS, PHOTOS) for depth in LAYERS for p in sizes(scale, "deep")),
        *(Wanted(vit(dim, 1, depth), DIGITS, p) for depth in (1, 3) for p in late),
    ]


def fig15(scale: Scale) -> Iterable[Wanted]:
    """The best ViTs; of the best on photographs also the size at which the CNN should have overtaken it."""
    best = [(DIGITS, 4, 3), (PHOTOS, 1, 3), (PHOTOS, 8, 1), (PHOTOS, 8, 3)]
    late = scale(smoke=(), small=(), large=(4096,), paper=())
    dim = deep_dim(scale)
    return [
        *(Wanted(vit(dim, h, depth), c, p) for c, h, depth in best for p in sizes(scale, "deep")),
        *(Wanted(CNN, c, p) for c in (DIGITS, PHOTOS) for p in sizes(scale, "deep")),
        *(Wanted(arm, PHOTOS, p) for p in late for arm in (vit(dim, 8, 3), CNN)),
    ]


def fig16(scale: Scale) -> Iterable[Wanted]:
    """Maps on digits: one instance per class and class means."""
    probe = Probe("attention_maps", n=_map_images(scale), show=tuple(range(CLASSES)), means=True)
    shapes = scale(smoke=((1, 1),), small=(), large=((1, 1), (4, 3)), paper=((1, 1), (4, 3)))
    return (Wanted(vit(deep_dim(scale), *shape), DIGITS, maps_p(scale), probes=(probe,)) for shape in shapes)


def fig17(scale: Scale) -> Iterable[Wanted]:
    """Maps on photographs, one layer, by heads."""
    heads = scale(smoke=(1, 8), small=(1, 2, 8), large=HEADS, paper=HEADS)
    return _photo_maps(scale, [vit(128, h, 1) for h in heads])


def fig18(scale: Scale) -> Iterable[Wanted]:
    """Two classes only: where do 5 and 8 differ, and is that where the model looks? One seed is enough to be shown."""
    probe = Probe("attention_maps", n=_map_images(scale), show=(0, 1), means=True, eight=True)
    p = scale(smoke=64, small=512, large=1024, paper=8192)
    shapes = scale(smoke=((1, 1), (2, 1)), small=((1, 1), (2, 1)), large=(), paper=())
    for heads, depth in shapes or ((1, 1), (2, 1), (1, 2), (2, 2)):
        one_seed = heads * depth > 1 and scale.name in ("small", "large")
        yield Wanted(vit(128, heads, depth, TWO), DIGITS, p, only=(5, 8), probes=(probe,), seeds=1 if one_seed else 0)


def fig19(scale: Scale) -> Iterable[Wanted]:
    """Figure 9 with early stopping and with weight decay."""
    twists = scale(smoke=(), small=(), large=(EARLY,), paper=(EARLY, DECAYED))
    return [w for twist in twists for w in _cnn_descent(scale, 0.2, twist)]


def fig20(scale: Scale) -> Iterable[Wanted]:
    """Figure 10 for one head and one layer."""
    return _vit_descent(scale, vits(1, 1), DIGITS, scale(smoke=(), small=(), large=(), paper=ONE_LAYER_DIMS))


def fig21(scale: Scale) -> Iterable[Wanted]:
    """Maps on photographs, eight heads, by layers."""
    layers = scale(smoke=(1,), small=(), large=(1, 3), paper=LAYERS)
    return _photo_maps(scale, [vit(deep_dim(scale), 8, depth) for depth in layers])


# In the order of the work: what decides most claims first.
SWEEPS: Mapping[str, Sweep] = {
    f.__name__: f
    for f in (fig12, fig9, fig13, fig18, fig19, fig8, fig14, fig15, fig10, fig16, fig17, fig21, fig11, fig20)
}


def _photo_maps(scale: Scale, arms: Iterable[Arm]) -> Iterable[Wanted]:
    probe = Probe("attention_maps", n=_map_images(scale), show=(0, 4, 7, 8))
    return (Wanted(arm, PHOTOS, maps_p(scale), probes=(probe,)) for arm in arms)


def _map_images(scale: Scale) -> int:
    return int(scale(smoke=50, small=2000, large=2000, paper=10_000))


# -- from what is wanted to tasks


def tasks(scale: Scale, chosen: Settings) -> list[Task]:
    """One task per distinct run, with everything that any figure asks of it."""
    names = list(SWEEPS) if chosen["sweep"] == "all" else [chosen["sweep"]]
    shared = Probe("accuracy", splits=("train", "test"), n=scale(smoke=200, small=10_000, large=10_000, paper=10_000))
    every = scale(smoke=2, small=5, large=5, paper=5)
    task_by_key: dict[str, Task] = {}
    for wanted in (w for name in names for w in SWEEPS[name](scale)):
        for seed in range(wanted.seeds or every):
            run = _run(wanted, scale, chosen, seed)
            task = task_by_key.get(run.key, Task(run, (shared,), wanted.arm.name))
            task_by_key[run.key] = replace(task, probes=tuple(dict.fromkeys((*task.probes, *wanted.probes))))
    return list(task_by_key.values())


def _run(wanted: Wanted, scale: Scale, chosen: Settings, seed: int) -> Run:
    args = {**wanted.arm.args, "channels": wanted.channels}
    if wanted.arm.is_cnn:
        plain = chosen["cnn_optimizer"] == "adamw"  # the mean-field start is made for sgd
        args |= {"bias": chosen["bias"], "parametrisation": "default" if plain else chosen["parametrisation"]}
    data = {
        "of": chosen["digits"] if wanted.channels == DIGITS else chosen["photos"],
        "p": wanted.p,
        "noise": wanted.noise,
        "only": wanted.only,
        **{name: chosen[name] for name in ("replacement", "resize", "standardise")},
    }
    return Run(wanted.arm.model, "points", _recipe(wanted, scale, chosen), seed, Settings(args), Settings(data))


def _recipe(wanted: Wanted, scale: Scale, chosen: Settings) -> Recipe:
    """Most epochs and the stopping rule depend on the set and its points: the same for all arms of a comparison."""
    paper, tiny = scale.name == "paper", scale.name in TINY
    large, most = max(chosen["batch"], LARGE_BATCH), wanted.p >= FROM
    batch = min(large if paper and most else chosen["batch"], wanted.p)
    steps = wanted.p // batch  # per epoch
    most_epochs = MOST_EPOCHS.get((wanted.channels, wanted.p), EPOCHS)
    long = EPOCHS if paper else max(most_epochs, -(-STEPS[wanted.channels] // steps))
    epochs = chosen["epochs"] or (2 if tiny else long)
    settle = max(chosen["settle"] or (20 if paper else 5), -(-(400 if paper else WINDOW) // steps))
    if most and not wanted.arm.is_cnn:
        # ViT(128,1,1) on 8192 photographs: training error after 100 epochs 24 % with 128 images per step, 31 % with 32
        batch = large
    if wanted.arm.twist == EARLY:
        epochs = early_epochs(scale)
    total = epochs * (wanted.p // batch)
    warm = not (paper or tiny or wanted.arm.is_cnn) and wanted.channels == DIGITS
    return Recipe(
        images=total * batch,
        batch=batch,
        warmup=round(WARM / total, 6) if warm else 0.0,
        watch=1,
        settle=0 if tiny or wanted.arm.twist == EARLY else settle,
        max_seconds=14400.0 if paper else 0.0,
        **_optimizer(wanted.arm, scale, chosen, 1.0 if paper or tiny else _slower(wanted)),
    )


def _slower(wanted: Wanted) -> float:
    """What the learning rate is multiplied by, so that every seed interpolates."""
    if wanted.arm == vit(wanted.arm.dial, 1, 1) and wanted.channels == DIGITS:
        return ONE_HEAD / 2 if wanted.p <= FEW_DIGITS else ONE_HEAD
    many = wanted.arm.is_cnn and wanted.channels == PHOTOS
    return wanted.rate * (min(1.0, FULL_RATE / wanted.p) if many else 1.0)


def early_epochs(scale: Scale) -> int:
    """Where a CNN is stopped early: before it fits noisy labels."""
    return int(scale(smoke=1, small=48, large=48, paper=75))


def _optimizer(arm: Arm, scale: Scale, chosen: Settings, slower: float) -> dict[str, Any]:
    name = chosen["cnn_optimizer" if arm.is_cnn else "vit_optimizer"]
    if name == "adamw":
        # narrow ViTs take larger steps, and fewer
        rate = 1e-3 if arm.is_cnn or scale.name == "paper" else round(slower * 1e-3 * math.sqrt(128 / arm.dial), 5)
        how = {"lr": rate, "weight_decay": chosen["weight_decay"]}
    elif arm.is_cnn:
        eta = chosen["eta_eff"] or slower * scale(smoke=4.0, small=4.0, large=4.0, paper=1.0)
        how = {"lr": {"mean_field": eta * arm.dial, "default": 0.1}[chosen["parametrisation"]]}
    else:
        how = {"lr": 0.05, "momentum": 0.9}
    if arm.twist in (DECAYED, UNDECAYED):
        how["weight_decay"] = 1e-3 if arm.twist == DECAYED else 0.0
    return {"optimizer": name, **how}
