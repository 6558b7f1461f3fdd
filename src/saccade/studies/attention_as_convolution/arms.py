"""Which nets are trained how: one function a table or figure; a run that several of them need is listed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

TINY = ("smoke", "demo")
RESNET, ISO, NONISO, LEARNED, CONTENT = "ResNet", "isotropic", "non-isotropic", "learned", "learned + content"
PAIR, PATCH, VIT, LENET = "SAN pairwise", "SAN patchwise", "ViT", "LeNet"
ATTENTION = (ISO, NONISO, LEARNED, CONTENT)
FAMILIES = (CONTENT, PAIR, PATCH, VIT)  # of Table 3
MANY = ", 16 heads"
FEW = ", few pictures"
LONGER = ", longer"
HA = ", HA"
ONE_SHELL = ", HA, original shell"  # at paper scale, where the published one is in the reproduction's
DEFECTS = {
    f"{ISO}, additive centre": ISO,
    f"{NONISO}, additive centre": NONISO,
    f"{CONTENT}, transposed": CONTENT,
    f"{VIT}, noise token": VIT,
}
# sharing and frozen keys as switches; both together are hierarchical attention
INGREDIENTS = {"": {}, ", shared": {"shared": True}, ", frozen keys": {"frozen_keys": True}, HA: {"hierarchical": True}}
LONGER_BY = 6  # at 2.5 times the learning rate: centres start up to some tokens from where they are wanted
EPOCH = 45_000  # pictures of an epoch at paper scale, where 5 000 are held out

CHOICES = (
    Choice(
        "sweep",
        "all",
        ("all", "table1", "table2", "table3", "centres", "factorial", "defects", "data_size", "conversion"),
        "only the runs behind one part",
    ),
    Choice(
        "shell",
        "original",
        ("original", "reproduction"),
        "the block around attention: the original's extra linear map and GELU, or the reproduction's ReLU; the "
        "reproduction's own hierarchical nets keep its shell at paper scale",
    ),
    Choice(
        "optimizer",
        "adamw",
        ("adamw", "sgd"),
        "below paper scale: adamw at 0.002 (longer runs: 0.005), or sgd at 0.1 with Nesterov momentum 0.9; at paper "
        "scale always sgd",
    ),
    Choice("lr", 0.0, (), "learning rate below paper scale; 0 takes the optimiser's own"),
    Choice("batch", 0, (), "pictures a step; 0 takes 16 below paper scale and Table 4's at it"),
    Choice("images", 0, (), "presentations of every run; 0 takes the scale's own"),
    Choice("p", -1, (), "pictures to train on; -1 takes the scale's own, 0 all but the held-out ones"),
    Choice("augment", "crop_flip", ("crop_flip", "crop", "flip", "none"), "of the training pictures"),
    Choice("photos", "cifar10", ("cifar10", "procedural_textures"), "the picture set"),
)


@dataclass(frozen=True)
class Wish:
    """A net, for every seed. `twist` is what its arm's name says beyond the net."""

    net: str
    twist: str = ""
    args: Mapping[str, Any] | None = None  # over the net's own
    probes: tuple[Probe, ...] = ()
    look: str = ""  # at its heads: "numbers", "maps" too, or "training", to see them on the way
    few: bool = False
    seeds: int = 0  # 0: all of the scale's

    @property
    def arm(self) -> str:
        return self.net + self.twist


# -- nets


def net(name: str, scale: Scale, shell: str = "original") -> tuple[str, dict[str, Any]]:
    """Registered model and arguments of a net at a scale."""
    whole = scale.name == "paper"
    body: dict[str, Any] = {
        "heads": 9,
        "dim": scale(smoke=12, small=48, large=64, paper=400),
        "depth": scale(smoke=2, small=3, large=4, paper=6),
        "hidden": scale(smoke=16, small=64, large=96, paper=512),
        "patch": scale(smoke=8, small=4, large=4, paper=2),
        "shell": shell,
        # .1 on hidden values and on maps as published; below, where no picture is seen often, neither
        **({"attention_dropout": 0.1} if whole and shell == "original" else {} if whole else {"dropout": 0.0}),
    }
    plan = "truncated" if whole else "tiny" if scale.name in TINY else "small"
    # Below paper scale independent layers have the resolution and width of the hierarchical net.
    slim = {"plan": plan, **({} if whole else {"flat": True, "depth": 2})}
    stem = {k: v for k, v in body.items() if k not in ("shell", "dropout", "attention_dropout")}
    return {
        RESNET: ("resnet18", {"width": scale(smoke=2, small=8, large=16, paper=64)}),
        ISO: ("quadratic", body),
        NONISO: ("quadratic", {**body, "isotropic": False}),
        LEARNED: ("learned_relative", {**body, "content": False}),
        CONTENT: ("learned_relative", body),
        PAIR: ("san", slim),
        PATCH: ("san", {**slim, "pairwise": False}),
        VIT: (
            "conv_stem_vit",
            {
                **stem,
                "dim": scale(smoke=8, small=32, large=48, paper=400),
                "width": scale(smoke=2, small=8, large=16, paper=64),
            },
        ),
        LENET: ("lenet", {}),
    }[name]


def many_heads(name: str, scale: Scale) -> dict[str, Any]:
    """16 heads and as wide as gives about the size of nine: 256 of 400 in the paper."""
    wide = {"heads": 16, "dim": scale(smoke=8, small=32, large=42, paper=256)}
    if scale.name == "paper":
        wide |= {"hidden": 400, "shell": "reproduction", **({} if name == ISO else {"value_maps": True})}
    return wide


PUBLISHED: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    (RESNET, "resnet18", {}),
    (ISO, "quadratic", {}),
    (NONISO, "quadratic", {"isotropic": False}),
    (LEARNED, "learned_relative", {"content": False}),
    (CONTENT, "learned_relative", {}),
    *(
        (name + ", reproduction", model, {**args, "shell": "reproduction"})
        for name, model, args in (
            (ISO, "quadratic", {}),
            (NONISO, "quadratic", {"isotropic": False}),
            (LEARNED, "learned_relative", {"content": False}),
            (CONTENT, "learned_relative", {}),
        )
    ),
    *(
        (name + MANY, model, {**args, "heads": 16, "dim": 256, "hidden": 400, "shell": "reproduction"})
        for name, model, args in (
            (ISO, "quadratic", {}),
            (LEARNED, "learned_relative", {"content": False, "value_maps": True}),
            (CONTENT, "learned_relative", {"value_maps": True}),
        )
    ),
    (CONTENT + HA, "learned_relative", {"hierarchical": True, "shell": "reproduction"}),
    (PAIR, "san", {"plan": "truncated"}),
    (PAIR + HA, "san", {"plan": "truncated", "hierarchical": True}),
    (PATCH, "san", {"plan": "truncated", "pairwise": False}),
    (PATCH + HA, "san", {"plan": "truncated", "pairwise": False, "hierarchical": True}),
    (VIT, "conv_stem_vit", {}),
    (VIT + HA, "conv_stem_vit", {"hierarchical": True}),
    *(
        (f"{CONTENT}{HA}, {t} passes", "learned_relative", {"hierarchical": True, "shell": "reproduction", "depth": t})
        for t in (1, 3, 12)
    ),
    *((f"{VIT}{HA}, {t} passes", "conv_stem_vit", {"hierarchical": True, "depth": t}) for t in (1, 3, 12)),
)


# -- sweeps

Sweep = Callable[[Scale], Iterable[Wish]]


def table1(scale: Scale) -> Iterable[Wish]:
    """The five models, with what their heads look at."""
    yield Wish(RESNET, probes=(Probe("train_mode_accuracy", n=_tested(scale)),))
    yield from (Wish(name, look="maps") for name in (ISO, LEARNED, CONTENT))
    yield Wish(NONISO)


def table2(scale: Scale) -> Iterable[Wish]:
    for name in (ISO, LEARNED, CONTENT):
        yield Wish(name)
        yield Wish(name, MANY, many_heads(name, scale))


def table3(scale: Scale) -> Iterable[Wish]:
    """Independent layers against hierarchical attention, in four families."""
    train = Probe("train_mode_accuracy", n=_tested(scale))
    timed = Probe("inference_time", pairs=pairs(scale), repeats=scale(smoke=2, small=15, large=50, paper=300))
    ours = {"hierarchical": True}
    published = {**ours, "shell": "reproduction"} if scale.name == "paper" else ours
    yield Wish(CONTENT)
    yield Wish(CONTENT, HA, published, (timed,), look="maps")
    for name in (PAIR, PATCH, VIT):
        yield from (Wish(name, probes=(train,)), Wish(name, HA, ours))


def pairs(scale: Scale) -> tuple[Settings, ...]:
    """What is timed side by side: the nets of Table 3 at the paper's own size, and at the study's."""

    def pair(name: str, size: str, of: Scale) -> Settings:
        model, args = net(name, of)
        if name == CONTENT and of.name == "paper":
            args = {**args, "shell": "original"}
            more = {"hierarchical": True, "shell": "reproduction", "attention_dropout": 0.0}
        else:
            more = {"hierarchical": True}
        return Settings(family=name, size=size, model=model, sa=args, ha={**args, **more})

    sizes = {"ours": scale} if scale.name in TINY else {"paper": Scale("paper"), "ours": scale}
    return tuple(pair(name, size, of) for size, of in sizes.items() for name in FAMILIES)


def centres(scale: Scale) -> Iterable[Wish]:
    """Gaussian heads: where their centres go, which takes longer than to tell accuracies apart."""
    twist = "" if scale.name == "paper" else LONGER
    for name in (ISO, NONISO):
        yield Wish(name, twist, look="training")


def factorial(scale: Scale) -> Iterable[Wish]:
    """Sharing x frozen keys x depth at one recipe."""
    depths = {"": {}, ", half as deep": {"depth": scale(smoke=1, small=2, large=2, paper=3)}}
    for told, depth in depths.items():
        for twist, switches in INGREDIENTS.items():
            look = "numbers" if told or twist not in ("", HA) else "maps"
            name = ONE_SHELL if scale.name == "paper" and twist + told == HA else twist + told
            yield Wish(CONTENT, name, {**switches, **depth}, look=look)


def defects(scale: Scale) -> Iterable[Wish]:
    """What the reproduction's slips change."""
    yield Wish(ISO, ", additive centre", {"additive_centre": True}, look="numbers")
    if scale.name in ("large", "paper"):
        yield Wish(NONISO, ", additive centre", {"additive_centre": True})
    yield Wish(CONTENT, ", transposed", {"transposed_content": True}, look="numbers")
    yield Wish(VIT, ", noise token", {"noise_class_token": True})
    for name in (ISO, CONTENT, VIT):
        yield Wish(name)


def data_size(scale: Scale) -> Iterable[Wish]:
    """Does content catch up with position as pictures are added?"""
    for name in (ISO, LEARNED, CONTENT):
        yield from (Wish(name), Wish(name, FEW, few=True))


def conversion(scale: Scale) -> Iterable[Wish]:
    """A trained convolution net made into attention; beside it what needs no training at all."""
    steps = scale(smoke=2, small=40, large=400, paper=2000)
    exact = (
        Probe("convolution_theorem", trials=scale(smoke=1, small=3, large=5, paper=5)),
        Probe("sizes", nets=tuple(Settings(net=n, model=m, args=a) for n, m, a in PUBLISHED)),
    )
    yield Wish(LENET, probes=(Probe("conversion", steps=steps, n=_tested(scale) // 2),))
    yield Wish(LENET, probes=exact, seeds=1)


SWEEPS: Mapping[str, Sweep] = {
    f.__name__: f for f in (table1, table2, table3, centres, factorial, defects, data_size, conversion)
}


def _tested(scale: Scale) -> int:
    return int(scale(smoke=100, small=1000, large=5000, paper=10_000))


# -- from wishes to tasks


def tasks(scale: Scale, chosen: Settings) -> list[Task]:
    """One task a distinct run, with everything that any sweep asks of it."""
    wanted = list(SWEEPS) if chosen["sweep"] == "all" else [chosen["sweep"]]
    shared = Probe("accuracy", splits=("test",), n=_tested(scale))
    every = scale(smoke=2, small=5, large=5, paper=5)
    found: dict[str, Task] = {}
    looks: dict[str, set[str]] = {}
    for wish in (w for name in wanted for w in SWEEPS[name](scale)):
        for seed in range(wish.seeds or every):
            run = _run(wish, scale, chosen, seed)
            known = found.get(run.key, Task(run, (shared,), wish.arm))
            found[run.key] = replace(known, probes=tuple(dict.fromkeys((*known.probes, *wish.probes))))
            looks.setdefault(run.key, set()).add(wish.look)
    return [replace(t, probes=(*t.probes, *_looks(t.run, looks[key], scale))) for key, t in found.items()]


def _looks(run: Run, asked: set[str], scale: Scale) -> Iterable[Probe]:
    """They build the untrained net, or train it once more, so they must know how the run's own was made."""
    if asked - {""}:
        yield Probe(
            "attention_geometry",
            n=scale(smoke=8, small=50, large=50, paper=50),
            model=run.model,
            args=run.model_args,
            show=bool(asked & {"maps", "training"}),
        )
    if "training" in asked and run.seed == 0:
        yield Probe(
            "centres_in_training",
            model=run.model,
            args=run.model_args,
            recipe=Settings(run.recipe.essence(), images=run.recipe.images),
            looks=3,
        )


def _run(wish: Wish, scale: Scale, chosen: Settings, seed: int) -> Run:
    model, args = net(wish.net, scale, chosen["shell"])
    p = pictures(scale, chosen, wish.few)
    data = {
        "of": chosen["photos"],
        "p": p,
        "augment": chosen["augment"],
        "hold_out": scale(smoke=100, small=1000, large=5000, paper=5000),
    }
    return Run(
        model, "photos", recipe(wish, scale, chosen), seed, Settings({**args, **(wish.args or {})}), Settings(data)
    )


def pictures(scale: Scale, chosen: Settings, few: bool = False) -> int:
    whole = chosen["p"] if chosen["p"] >= 0 else scale(smoke=100, small=10_000, large=10_000, paper=0)
    return int(scale(smoke=50, small=500, large=1000, paper=5000)) if few else int(whole)


def recipe(wish: Wish, scale: Scale, chosen: Settings) -> Recipe:
    if scale.name == "paper":
        return table4(wish, chosen)
    long = wish.twist == LONGER or wish.net == LENET
    images = chosen["images"] or scale(smoke=64, small=1792, large=40_000, paper=0) * (LONGER_BY if long else 1)
    how: dict[str, Any] = {
        "optimizer": "adamw",
        "lr": chosen["lr"] or (5e-3 if wish.twist == LONGER else 2e-3),
        "weight_decay": 0.01,
    }
    if chosen["optimizer"] == "sgd":
        how = {"optimizer": "sgd", "lr": chosen["lr"] or 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}
    return Recipe(
        images=images,
        batch=chosen["batch"] or 16,
        schedule="cosine",
        warmup=0.05,
        watch=scale(smoke=0, small=0, large=20, paper=0),
        **how,
    )


def table4(wish: Wish, chosen: Settings) -> Recipe:
    """Epochs, batch, learning rate, schedule and warm-up of the report's Table 4."""
    epochs, batch, lr, schedule, warm = 300, 100, 0.1, "cosine", 15
    if wish.net == VIT:
        epochs, batch, lr, warm = 100, 32, 0.01, 5
    elif wish.net in (PAIR, PATCH):
        if wish.twist == HA:
            batch, warm = 40 if wish.net == PAIR else 100, 10
        else:
            batch, schedule, warm = 256, "steps", 0
    elif wish.net in (RESNET, LENET):
        warm = 10
    smooth = 0.1 if wish.net in (PAIR, PATCH) else 0.0
    return Recipe(
        images=chosen["images"] or epochs * EPOCH,
        batch=chosen["batch"] or batch,
        optimizer="sgd",
        lr=lr,
        momentum=0.9,
        nesterov=True,
        weight_decay=1e-4,
        schedule=schedule,
        warmup=warm / epochs,
        label_smoothing=smooth,
        watch=epochs // 10,
    )
