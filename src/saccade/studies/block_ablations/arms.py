"""Which nets are trained on how many pictures, and what a net costs in parameters and multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

CONV, VIT = "ConvNet v1", "ViT v1"
CLASSES, REPORT = 10, 947  # the report's validation pictures, by inference
TRAIN = 8522  # the report's training pictures, by inference

CHOICES = (
    Choice(
        "data",
        "cifar10",
        ("cifar10", "imagenette", "procedural_textures"),
        "cifar10, or imagenette from class folders of your own",
    ),
    Choice(
        "patch",
        0,
        (),
        "side of a patch on 32 pixels, for the report's 32; 0 takes 8 up to small (16 patches, as "
        "with 32 on 128 pixels) and 4 from large on (64 patches; 224 pixels have 49)",
    ),
    Choice("size", 0, (), "side of Imagenette's pictures; 0 takes 32, 64, 128 or 224 by scale"),
    Choice("folder", "", (), "where Imagenette is, if not in the cache folder"),
    Choice("images", 0, (), "training presentations for every arm; 0 takes the scale's own"),
    Choice("lr", 0.0, (), "peak rate of AdamW, the same for every arm; 0 takes 0.003 up to small, then 0.001"),
    Choice("weight_decay", 0.05, (), "of AdamW"),
    Choice("label_smoothing", 0.1, (), "in the loss; the report's losses suggest about this"),
    Choice("augment", "crop_flip", ("crop_flip", "crop", "flip", "none"), "the training transform"),
)


@dataclass(frozen=True)
class Base:
    """The two baselines at a scale; every other arm changes one thing of them."""

    patch: int
    dim: int
    depth: int
    heads: int
    width: int
    stages: tuple[int, ...]
    side: int = 32

    @property
    def vit(self) -> dict[str, Any]:
        return {"patch": self.patch, "dim": self.dim, "depth": self.depth, "heads": self.heads, "image": self.side}

    @property
    def conv(self) -> dict[str, Any]:
        stem = {"stem": "imagenet"} if self.side >= 128 else {}
        return {"width": self.width, "stages": self.stages, **stem}

    def wider(self) -> int:
        """180 for 128: the nearest width that the heads divide."""
        return self.heads * round(self.dim * 180 / 128 / self.heads)


def base(scale: Scale, chosen: Settings) -> Base:
    side = 32
    if chosen["data"] == "imagenette":
        side = chosen["size"] or scale(smoke=32, small=64, large=128, paper=224)
    patch = (chosen["patch"] or scale(smoke=8, small=8, large=4, paper=4)) * side // 32
    if side == 224 and not chosen["patch"]:
        patch = 32
    dim = scale(smoke=16, small=48, large=64, paper=128)
    return Base(
        patch,
        dim,
        depth=scale(smoke=2, small=4, large=4, paper=16),
        heads=4,
        width=scale(smoke=4, small=8, large=16, paper=64),
        side=side,
        stages=scale(smoke=(1, 1), small=(1, 1, 1, 1), large=(2, 2, 2, 2), paper=(2, 2, 2, 2)),
    )


def depths(scale: Scale) -> tuple[int, ...]:
    """Depths at which pre- and post-norm are compared."""
    found: tuple[int, ...] = scale(smoke=(2, 3), small=(2, 4, 8), large=(2, 4, 8, 16), paper=(4, 8, 16, 24))
    return found


def sizes(scale: Scale) -> tuple[int, ...]:
    """Training set sizes at which ConvNet and ViT are compared; the last one is every other arm's."""
    found: tuple[int, ...] = scale(
        smoke=(256, 512), small=(500, 2000, TRAIN), large=(500, 2000, TRAIN), paper=(1000, 3000, TRAIN)
    )
    return found


def more(scale: Scale, chosen: Settings) -> tuple[int, ...]:
    """Larger sets than the report's, where CIFAR-10 has them."""
    return scale(smoke=(), small=(), large=(40_000,), paper=(40_000,)) if chosen["data"] == "cifar10" else ()


def depth_arm(block: str, depth: int, plain: int) -> str:
    return f"ViT {block}" if depth == plain else f"ViT {block}, depth {depth}"


def arms(scale: Scale, chosen: Settings) -> list[tuple[str, str, dict[str, Any], int]]:
    """Name, model, its arguments and the number of training pictures; one thing changes at a time."""
    b, (*fewer, whole) = base(scale, chosen), sizes(scale)
    found = [(f"ConvNet {v}", "convnet", {**b.conv, "block": v}, whole) for v in ("v1", "v2", "v3")]
    found += [(f"ViT {v}", "vit", {**b.vit, "block": v}, whole) for v in ("v1", "v2", "v3")]
    for name, change in one_factor(b).items():
        found.append((name, "vit", {**b.vit, "block": "v1", **change}, whole))
    found += [
        (depth_arm(v, d, b.depth), "vit", {**b.vit, "block": v, "depth": d}, whole)
        for d in depths(scale)
        for v in ("v1", "v2")
        if d != b.depth
    ]
    found += [
        (arm, model, {**args, "block": "v1"}, p)
        for p in (*fewer, *more(scale, chosen))
        for arm, model, args in ((CONV, "convnet", b.conv), (VIT, "vit", b.vit))
    ]
    # The deeper arm of one_factor may be one of the depths as well; it is listed once.
    return list({(arm, p): (arm, model, args, p) for arm, model, args, p in found}.values())


def one_factor(b: Base) -> dict[str, dict[str, Any]]:
    deeper = b.depth * 3 // 2
    return {
        "ViT v3, single skip": {"block": "single_skip"},
        "ViT without positions": {"positions": False},
        "ViT with dropout": {"dropout": 0.2, "attention_dropout": 0.2},
        "ViT, half the patch": {"patch": b.patch // 2},
        "ViT, wider": {"dim": b.wider()},
        depth_arm("v1", deeper, b.depth): {"depth": deeper},
        "ViT, 8 heads": {"heads": 8},
    }


def tasks(scale: Scale, chosen: Settings) -> Sequence[Task]:
    images = chosen["images"] or scale(smoke=512, small=18_000, large=64_000, paper=25 * TRAIN)
    lr = chosen["lr"] or scale(smoke=3e-3, small=3e-3, large=1e-3, paper=1e-3)
    recipe = Recipe(
        images=images,
        batch=64,
        optimizer="adamw",
        lr=lr,
        weight_decay=chosen["weight_decay"],
        schedule="cosine",
        warmup=0.05,
        label_smoothing=chosen["label_smoothing"],
        watch=scale(smoke=1, small=4, large=10, paper=25),
    )
    seeds = range(scale(smoke=2, small=5, large=5, paper=5))
    data = "imagenette" if chosen["data"] == "imagenette" else "photos"
    return [
        Task(
            Run(model, data, recipe, seed, Settings(args), _data_args(chosen, scale, p)),
            _probes(scale, chosen, arm, p),
            arm,
        )
        for arm, model, args, p in arms(scale, chosen)
        for seed in seeds
    ]


def _data_args(chosen: Settings, scale: Scale, p: int) -> Settings:
    shared = {"p": p, "hold_out": REPORT, "augment": chosen["augment"]}
    if chosen["data"] != "imagenette":
        return Settings(shared, of=chosen["data"])
    where = {"folder": chosen["folder"]} if chosen["folder"] else {}
    return Settings(shared, size=base(scale, chosen).side, **where)


def _probes(scale: Scale, chosen: Settings, arm: str, p: int) -> tuple[Probe, ...]:
    main = arm in (CONV, VIT) and p == sizes(scale)[-1]
    n = scale(smoke=100, small=3000, large=10_000, paper=10_000)
    train = scale(smoke=64, small=2000 if main else 500, large=5000, paper=5000)
    found = [
        Probe(
            "through_transforms",
            splits=("test", "held_out") if main else ("test",),
            n=n,
            train=train,
            label_smoothing=chosen["label_smoothing"],
        )
    ]
    if (main or arm == "ViT without positions") and p == sizes(scale)[-1]:
        side = base(scale, chosen).side
        far = 32 if side >= 128 else side // 4  # whole patches, and whole strides of the last block
        looked = scale(smoke=4, small=24, large=64, paper=64)
        blocks = ("stem.0", "blocks.?", "blocks.1?") if arm == CONV else ("embed", "blocks.?", "blocks.1?")
        found += [
            Probe(
                "equivariance",
                n=looked,
                layers=blocks,
                scopes=("network",),
                regions=("whole",),
                permute=False,
                fresh=True,
                shift=(1, far, 0.5),
                padded_shift=(1,),
                rotate=(90, 15),
                scale=(0.9,),
            ),
            Probe(
                "equivariance",
                n=looked,
                layers=blocks,
                scopes=("alone",),
                shift=(1, 2),
                padded_shift=(),
                rotate=(),
                scale=(),
                flip=False,
                lie=False,
                fresh=True,
            ),
        ]
    return tuple(found)


# -- costs, for ten classes


def parameters_of_vit(*, patch: int, dim: int, depth: int, image: int, positions: bool = True, **rest: Any) -> int:
    tokens = (image // patch) ** 2 + 1
    block = 12 * dim**2 + 13 * dim
    return (
        (3 * patch**2 + 1) * dim
        + dim
        + (tokens * dim if positions else 0)
        + depth * block
        + 2 * dim
        + (dim + 1) * CLASSES
    )


def operations_of_vit(*, patch: int, dim: int, depth: int, image: int, **rest: Any) -> int:
    """Multiply-adds a picture, forward, of the net as drawn: every token through every block."""
    patches = (image // patch) ** 2
    tokens = patches + 1
    return patches * 3 * patch**2 * dim + depth * (12 * tokens * dim**2 + 2 * tokens**2 * dim) + CLASSES * dim


def parameters_of_convnet(*, width: int, stages: Sequence[int], stem: str = "cifar", **rest: Any) -> int:
    found, inside = 3 * width * (9 if stem == "cifar" else 49) + 2 * width, width
    for stage, count in enumerate(stages):
        out = width << stage
        for _ in range(count):
            found += 9 * (inside + out) * out + 4 * out + (inside * out + 2 * out if inside != out else 0)
            inside = out
    return found + (inside + 1) * CLASSES


def operations_of_convnet(
    *, width: int, stages: Sequence[int], stem: str = "cifar", image: int = 32, **rest: Any
) -> int:
    side = image if stem == "cifar" else image // 2
    found, inside = side**2 * 3 * width * (9 if stem == "cifar" else 49), width
    side = side if stem == "cifar" else side // 2
    for stage, count in enumerate(stages):
        out, side = width << stage, side if stage == 0 else side // 2
        for _ in range(count):
            found += side**2 * (9 * (inside + out) * out + (inside * out if inside != out else 0))
            inside = out
    return found + inside * CLASSES


def cost(model: str, args: Mapping[str, Any], side: int = 32) -> tuple[int, int]:
    """Parameters and multiply-adds a picture."""
    if model == "vit":
        return parameters_of_vit(**args), operations_of_vit(**args)
    return parameters_of_convnet(**args), operations_of_convnet(**args, image=side)
