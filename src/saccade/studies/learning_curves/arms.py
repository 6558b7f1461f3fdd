"""Which nets are trained on how many points: one function a figure; a run that several figures need is listed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

DIGITS, PHOTOS = 1, 3  # the two sets, told by their channels
HEADS = (1, 2, 4, 8, 16)
CLASSES = 10
TINY = ("smoke", "demo")
BATCH, STEPS = 32, 200  # pictures a step unless said otherwise; the fewest steps that a run may be limited to
LARGE_BATCH, FROM = 128, 4096  # at paper scale, this batch from so many points on
WINDOW, SHORT = 400, 40  # steps that the stopping rule looks back at least, at paper scale and below: training starts
#                          on a plateau

CHOICES = (
    Choice("sweep", "all", ("all", *(f"fig{i}" for i in range(8, 22)), "controls"), "only the runs behind one figure"),
    Choice(
        "parametrisation",
        "mean_field",
        ("mean_field", "default"),
        "mean_field: weights N(0, 1), sums divided by the root of the fan-in, learning rate eta_eff times width; "
        "default: torch's own start, learning rate 0.1",
    ),
    Choice("eta_eff", 0.0, (), "learning rate of a mean-field CNN over its width; 0 takes 1 at paper scale, else 4"),
    Choice("cnn_optimizer", "sgd", ("sgd", "adamw"), "sgd without momentum, or adamw at 0.001 on the default start"),
    Choice("vit_optimizer", "adamw", ("adamw", "sgd"), "adamw at 0.001, or sgd at 0.05 with momentum 0.9"),
    Choice("weight_decay", 0.01, (), "of adamw"),
    Choice("batch", BATCH, (), "pictures a step; at paper scale 128 from 4096 points on"),
    Choice("bias", False, (), "biases in the CNN"),
    Choice(
        "settle",
        0,
        (),
        "epochs without a change of the training error after which a run has settled; 0 takes 20 "
        "at paper scale, below it 10 for ViTs and a fixed number of epochs for CNNs",
    ),
    Choice("epochs", 0, (), "most epochs of every run; 0 takes the scale's own"),
    Choice("replacement", "other", ("other", "any"), "whether a noisy label is never, or may be, the right one"),
    Choice("resize", "bilinear", ("bilinear", "pad"), "how 28 x 28 digits become 32 x 32"),
    Choice("standardise", "channel", ("channel", "none"), "pixels standardised by channel, or left in [0, 1]"),
    Choice("digits", "mnist", ("mnist", "fashion_mnist", "procedural_digits"), "the grey set"),
    Choice("photos", "cifar10", ("cifar10", "procedural_textures"), "the colour set"),
)


@dataclass(frozen=True)
class Wish:
    """A net on p points of a set, for every seed. `twist` is what its arm's name says beyond the net."""

    net: str
    model: str
    args: Mapping[str, Any]
    channels: int
    p: int
    noise: float = 0.0
    only: tuple[int, ...] = ()
    twist: str = ""
    probes: tuple[Probe, ...] = ()
    seeds: int = 0  # 0: all of the scale's
    arm: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arm", ", ".join(part for part in (self.net, self.twist) if part))


def cnn(width: int, channels: int, p: int, **more: Any) -> Wish:
    return Wish(f"CNN({width})", "basic_cnn", {"width": width}, channels, p, **more)


def vit(dim: int, heads: int, depth: int, channels: int, p: int, **more: Any) -> Wish:
    return Wish(
        f"ViT({dim},{heads},{depth})", "basic_vit", {"dim": dim, "heads": heads, "depth": depth}, channels, p, **more
    )


# -- the size dial, set by a budget


def parameters_of_cnn(width: int, channels: int) -> int:
    """Without biases, for ten classes."""
    return 506 * width**2 + (25 * channels + 40) * width


def parameters_of_vit(dim: int, depth: int, channels: int) -> int:
    return 8 * depth * dim**2 + 11 * depth * dim + (16 * channels + 79) * dim + CLASSES


def operations_of_cnn(width: int, channels: int) -> int:
    """Multiply-adds a picture, forward."""
    return 25 * width * (1024 * channels + 512 * width + 512 * width) + 4 * width * (64 * width + CLASSES)


def operations_of_vit(dim: int, depth: int, channels: int) -> int:
    """Multiply-adds a picture, forward, of the net as drawn: every token through every block."""
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


def sizes(scale: Scale, kind: str, channels: int = PHOTOS) -> tuple[int, ...]:
    """Training set sizes p of the fixed pair, of other one-layer ViTs, and of deep ones."""
    whole = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    found: dict[str, tuple[int, ...]] = {
        "pair": scale(
            smoke=(32, 64),
            small=(32, 64, 96, 128, 256) if channels == DIGITS else whole[1:5],
            large=whole,
            paper=whole[2:],
        ),
        "heads": scale(smoke=(32, 64), small=whole[:4], large=whole[:7], paper=whole[2:]),
        "deep": scale(smoke=(), small=(32, 64, 96, 128), large=whole[2:6], paper=whole[2:]),
    }
    return found[kind]


def deep_dim(scale: Scale) -> int:
    """The dimension of ViTs with several layers; at 128 they would take small scale over its 15 minutes."""
    return int(scale(smoke=64, small=64, large=128, paper=128))


def widths(scale: Scale, net: str) -> tuple[int, ...]:
    """The grids of the size dial."""
    found: dict[str, tuple[int, ...]] = {
        "cnn": scale(
            smoke=(1, 2),
            small=(1, 2, 4, 8),
            large=(1, 2, 3, 4, 6, 8, 16),
            paper=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        ),
        "(4,3)": scale(
            smoke=(), small=(8, 16, 32), large=(4, 8, 16, 24, 32, 48, 64), paper=(4, 8, 12, 16, 24, 32, 48, 64, 96)
        ),
        "(8,6)": scale(smoke=(), small=(8, 16, 32), large=(8, 16, 24, 32, 48), paper=(8, 16, 24, 32, 40, 48, 64, 96)),
        "(1,1)": scale(smoke=(), small=(), large=(1, 2, 4, 8, 16, 32, 64), paper=(1, 2, 4, 8, 16, 32, 64, 128, 256)),
    }
    return found[net]


# -- sweeps, one a figure

Sweep = Callable[[Scale], Iterable[Wish]]


def fig8(scale: Scale) -> Iterable[Wish]:
    """CNN on digits: where does it start to interpolate?"""
    p, widest = scale(smoke=64, small=128, large=512, paper=4096), 64 if scale.name == "paper" else 4
    noises = scale(smoke=(0.0,), small=(0.0,), large=(0.0,), paper=(0.0, 0.1, 0.2))
    return [cnn(h, DIGITS, p, noise=noise) for noise in noises for h in widths(scale, "cnn") if h <= widest]


def fig9(scale: Scale) -> Iterable[Wish]:
    """CNN on photographs: the same, and double descent."""
    p = scale(smoke=64, small=128, large=2048, paper=4096)
    noises = scale(smoke=(), small=(0.0, 0.1, 0.2), large=(0.0, 0.1, 0.2), paper=(0.0, 0.1, 0.2))
    return [cnn(h, PHOTOS, p, noise=noise) for noise in noises for h in widths(scale, "cnn")]


def fig10(scale: Scale) -> Iterable[Wish]:
    return _vit_widths(scale, 4, 3, DIGITS)


def fig11(scale: Scale) -> Iterable[Wish]:
    return _vit_widths(scale, 8, 6, PHOTOS)


def _vit_widths(scale: Scale, heads: int, depth: int, channels: int) -> list[Wish]:
    p = scale(smoke=0, small=128, large=512, paper=4096)
    noises = scale(smoke=(), small=(0.0, 0.2), large=(0.0, 0.2), paper=(0.0, 0.1, 0.2))
    return [
        vit(d, heads, depth, channels, p, noise=noise) for noise in noises for d in widths(scale, f"({heads},{depth})")
    ]


def fig12(scale: Scale) -> Iterable[Wish]:
    """The fixed pair, and ViTs with the CNN's parameters and with its operations."""
    for channels in (DIGITS, PHOTOS):
        for p in sizes(scale, "pair", channels):
            yield from (cnn(10, channels, p), vit(128, 1, 1, channels, p))
        if scale.name in ("large", "paper"):
            yield from (vit(dim, 1, 1, channels, p) for dim in matched_dims(channels) for p in sizes(scale, "deep"))


def fig13(scale: Scale) -> Iterable[Wish]:
    few = scale(smoke=(1, 8), small=HEADS, large=HEADS, paper=HEADS)
    return (vit(128, h, 1, c, p) for c in (DIGITS, PHOTOS) for h in few for p in sizes(scale, "heads"))


def fig14(scale: Scale) -> Iterable[Wish]:
    dim = deep_dim(scale)
    return (vit(dim, 1, depth, c, p) for c in (DIGITS, PHOTOS) for depth in (1, 2, 3) for p in sizes(scale, "deep"))


def fig15(scale: Scale) -> Iterable[Wish]:
    """The best ViTs; of the best on photographs also the size at which the CNN should have overtaken it."""
    nets = [(DIGITS, 4, 3), (PHOTOS, 1, 3), (PHOTOS, 8, 1), (PHOTOS, 8, 3)] + [(DIGITS, 4, 1)] * (scale.name != "small")
    late = scale(smoke=(), small=(), large=(4096,), paper=())
    dim = deep_dim(scale)
    return [
        *(vit(dim, h, depth, c, p) for c, h, depth in nets for p in sizes(scale, "deep")),
        *(cnn(10, c, p) for c in (DIGITS, PHOTOS) for p in sizes(scale, "deep") if p in sizes(scale, "pair", c)),
        *(w for p in late for w in (vit(dim, 8, 3, PHOTOS, p), cnn(10, PHOTOS, p))),
    ]


def fig16(scale: Scale) -> Iterable[Wish]:
    """Maps on digits: one instance a class and class means."""
    probe = Probe("attention_maps", n=_looked(scale), show=tuple(range(CLASSES)), means=True)
    p = scale(smoke=64, small=128, large=1024, paper=8192)
    nets = ((1, 1),) if scale.name in TINY else ((1, 1), (4, 3))
    return (vit(deep_dim(scale), h, depth, DIGITS, p, probes=(probe,)) for h, depth in nets)


def fig17(scale: Scale) -> Iterable[Wish]:
    """Maps on photographs, one layer, by heads."""
    return _photo_maps(
        scale,
        [(128, h, 1) for h in scale(smoke=(1, 8), small=HEADS, large=HEADS, paper=HEADS)],
        scale(smoke=64, small=256, large=1024, paper=8192),
    )


def fig21(scale: Scale) -> Iterable[Wish]:
    """Maps on photographs, eight heads, by layers."""
    layers = scale(smoke=(1,), small=(1, 3), large=(1, 2, 3), paper=(1, 2, 3))
    return _photo_maps(
        scale, [(deep_dim(scale), 8, depth) for depth in layers], scale(smoke=64, small=128, large=1024, paper=8192)
    )


def fig18(scale: Scale) -> Iterable[Wish]:
    """Two classes only: where do 5 and 8 differ, and is that where the net looks?"""
    probe = Probe("attention_maps", n=_looked(scale), show=(0, 1), means=True, eight=True)
    p = scale(smoke=64, small=256, large=2048, paper=8192)
    for heads, depth in ((1, 1), (2, 1), (1, 2), (2, 2)):
        once = scale.name not in ("large", "paper") and depth > 1  # for the picture only
        if depth == 1 or scale.name not in TINY:
            yield vit(
                128,
                heads,
                depth,
                DIGITS,
                min(p, 128) if once else p,
                only=(5, 8),
                twist="5 or 8",
                probes=(probe,),
                seeds=1 if once else 0,
            )


def fig19(scale: Scale) -> Iterable[Wish]:
    """Figure 9 with early stopping and with weight decay."""
    early = ("stopped early",)
    twists = scale(smoke=(), small=early, large=early, paper=(*early, "weight decay"))
    return [replace(w, twist=t) for t in twists for w in fig9(scale) if w.noise == 0.2]


def fig20(scale: Scale) -> Iterable[Wish]:
    """Figure 10 for one head and one layer."""
    return _vit_widths(scale, 1, 1, DIGITS)


def controls(scale: Scale) -> Iterable[Wish]:
    """Optimisers swapped, and the ViT's double descent without weight decay."""
    if scale.name == "small":  # no verdict rests on them alone
        return
    for channels in (DIGITS, PHOTOS):
        for p in sizes(scale, "deep"):
            yield cnn(10, channels, p, twist="AdamW")
            yield vit(128, 1, 1, channels, p, twist="SGD")
    yield from (replace(w, twist="no decay") for w in fig10(scale) if w.noise == 0.2)


SWEEPS: Mapping[str, Sweep] = {
    f.__name__: f
    for f in (fig8, fig9, fig10, fig11, fig12, fig13, fig14, fig15, fig16, fig17, fig18, fig19, fig20, fig21, controls)
}


def _photo_maps(scale: Scale, nets: Iterable[tuple[int, int, int]], p: int) -> Iterable[Wish]:
    probe = Probe("attention_maps", n=_looked(scale), show=(0, 4, 7, 8))
    return (vit(*net, PHOTOS, p, probes=(probe,)) for net in nets)


def _looked(scale: Scale) -> int:
    return int(scale(smoke=50, small=500, large=1000, paper=10_000))


# -- from wishes to tasks


def tasks(scale: Scale, chosen: Settings) -> list[Task]:
    """One task a distinct run, with everything that any figure asks of it."""
    wanted = list(SWEEPS) if chosen["sweep"] == "all" else [chosen["sweep"]]
    shared = Probe("accuracy", splits=("train", "test"), n=scale(smoke=200, small=1000, large=10_000, paper=10_000))
    every = scale(smoke=2, small=5, large=5, paper=5)
    found: dict[str, Task] = {}
    for wish in (w for name in wanted for w in SWEEPS[name](scale)):
        for seed in range(wish.seeds or every):
            run = _run(wish, scale, chosen, seed)
            known = found.get(run.key, Task(run, (shared,), wish.arm))
            found[run.key] = replace(known, probes=tuple(dict.fromkeys((*known.probes, *wish.probes))))
    return list(found.values())


def _run(wish: Wish, scale: Scale, chosen: Settings, seed: int) -> Run:
    of = chosen["digits"] if wish.channels == DIGITS else chosen["photos"]
    args = {**wish.args, "channels": wish.channels}
    if wish.model == "basic_cnn":
        plain = chosen["cnn_optimizer"] == "adamw" or wish.twist == "AdamW"  # the mean-field start is made for sgd
        args |= {"bias": chosen["bias"], "parametrisation": "default" if plain else chosen["parametrisation"]}
    data = {
        "of": of,
        "p": wish.p,
        "noise": wish.noise,
        "only": wish.only,
        **{name: chosen[name] for name in ("replacement", "resize", "standardise")},
    }
    return Run(wish.model, "points", _recipe(wish, args, scale, chosen), seed, Settings(args), Settings(data))


def _recipe(wish: Wish, args: Mapping[str, Any], scale: Scale, chosen: Settings) -> Recipe:
    conv = wish.model == "basic_cnn"
    swapped = wish.twist in ("AdamW", "SGD")
    optimizer = chosen["cnn_optimizer"] if conv else chosen["vit_optimizer"]
    if swapped:
        optimizer = wish.twist.lower()
    how: dict[str, Any] = {"optimizer": optimizer, "lr": 1e-3, "weight_decay": chosen["weight_decay"]}
    if not conv and scale.name != "paper":  # narrow nets take larger steps, and fewer
        how["lr"] = round(1e-3 * math.sqrt(128 / wish.args["dim"]), 5)
    if optimizer == "sgd":
        eta = chosen["eta_eff"] or scale(smoke=4.0, small=4.0, large=4.0, paper=1.0)
        rate = {"mean_field": eta * wish.args.get("width", 0), "default": 0.1}
        how = (
            {"optimizer": "sgd", "lr": rate[args["parametrisation"]]}
            if conv
            else {"optimizer": "sgd", "lr": 0.05, "momentum": 0.9}
        )
    if wish.twist in ("weight decay", "no decay"):
        how["weight_decay"] = 1e-3 if conv else 0.0
    whole = scale.name == "paper"
    batch = min(max(chosen["batch"], LARGE_BATCH) if whole and wish.p >= FROM else chosen["batch"], wish.p)
    steps = wish.p // batch
    epochs = chosen["epochs"] or _epochs(wish, scale)
    if wish.twist == "stopped early":
        epochs = max(1, epochs // 4)
    settle = max(chosen["settle"] or 20, -(-WINDOW // steps))
    if not whole and not chosen["settle"]:
        settle = 0 if conv or scale.name in TINY else max(5 if wish.args["depth"] > 1 else 10, -(-SHORT // steps))
    return Recipe(
        images=epochs * steps * batch, batch=batch, watch=1, settle=settle, max_seconds=14400.0 if whole else 0.0, **how
    )


def _epochs(wish: Wish, scale: Scale) -> int:
    """Most epochs. For CNNs below paper scale this is all there is, with room for CNN(10) to interpolate."""
    if scale.name == "paper":
        return 300
    if scale.name in TINY:
        return 2
    least = -(-STEPS // max(1, wish.p // BATCH))  # so many steps, however few the points
    if wish.model == "basic_vit":  # it settles earlier with more heads, later when it is narrow
        if wish.args["depth"] > 1:
            return max(50, least)
        if wish.args["dim"] < 64 or wish.twist == "SGD":
            return max(150, least)
        return max({1: 140, 2: 90, 4: 60}.get(wish.args["heads"], 45), least)
    return max(round((23 if wish.channels == DIGITS else 43) * math.pow(1024 / wish.p, 0.4)), least)
