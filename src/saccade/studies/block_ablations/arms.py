"""Which models are trained on how many images, and what is asked of each; one thing changes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

TRAIN, HELD_OUT = 8522, 947  # the report's training and validation images, by inference
FEWER, MORE = TRAIN // 4, 3 * TRAIN
DRAWN = 4000  # training images where drawn textures stand for photographs; there are 6 000 of them

CONV, CONV_V2, CONV_V3 = "ConvNet v1", "ConvNet v2", "ConvNet v3"
VIT, POST, PARALLEL, SKIP = "ViT v1", "ViT v2", "ViT v3", "ViT v3, single skip"
BARE, DROPOUT, HALF_PATCH = "ViT without positions", "ViT with dropout", "ViT, half the patch"
WIDER, DEEPER, HEADS = "ViT, wider", "ViT, deeper", "ViT, 8 heads"
# Series: an arm for all sizes or depths but the baseline's own, distinguished by the fields p and depth.
CONV_SIZES, VIT_SIZES = "ConvNet v1, other sizes, equal images", "ViT v1, other sizes, equal images"
CONV_EPOCHS, VIT_EPOCHS = "ConvNet v1, other sizes, equal epochs", "ViT v1, other sizes, equal epochs"
PRE_DEPTHS, POST_DEPTHS = "ViT v1, other depths", "ViT v2, other depths"

# What the report prints: accuracy on its 947 images.
PRINTED = {
    CONV: 0.8015,
    CONV_V2: 0.7825,
    CONV_V3: 0.8089,
    VIT: 0.5153,
    POST: 0.4889,
    PARALLEL: 0.5026,
    DROPOUT: 0.5026,
    HALF_PATCH: 0.5681,
    WIDER: 0.5090,
    DEEPER: 0.5121,
    HEADS: 0.5143,
}
PRINTED_AGAIN = 0.4963  # the ViT baseline as printed beside POST and PARALLEL

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
        "side of a patch on 32 pixels, for the report's 32; 0 takes 8 up to large (16 patches, as with 32 on 128 "
        "pixels) and 4 at paper scale (64 patches; 224 pixels have 49)",
    ),
    Choice("size", 0, (), "side of Imagenette's images; 0 takes 32, 64, 128 or 224 by scale"),
    Choice("folder", "", (), "where Imagenette is, if not in the cache folder"),
    Choice("images", 0, (), "training images seen by every arm; 0 takes the scale's own"),
    Choice(
        "lr",
        0.0,
        (),
        "peak rate of AdamW, the same for every arm; 0 takes 0.003 up to small, 0.002 at large (of 0.001, 0.002 and "
        "0.004 by validation images of both baselines; 0.004 is as good) and 0.001 at paper scale",
    ),
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
        sizes = {"patch": self.patch, "dim": self.dim, "depth": self.depth, "heads": self.heads}
        return {**sizes, "image": self.side, "block": "v1"}

    @property
    def conv(self) -> dict[str, Any]:
        stem = {"stem": "imagenet"} if self.side >= 128 else {}
        return {"width": self.width, "stages": self.stages, "block": "v1", **stem}

    def wider(self) -> int:
        """180 for 128: the nearest width that the heads divide."""
        return self.heads * round(self.dim * 180 / 128 / self.heads)

    def deeper(self) -> int:
        """24 for 16."""
        return self.depth * 3 // 2


@dataclass(frozen=True)
class Arm:
    """One row of the design. `p` is the number of training images, `images` how many are seen, with repeats."""

    name: str
    model: str
    args: dict[str, Any]
    p: int
    images: int
    seeds: int
    probes: tuple[Probe, ...] = field(default=())


def base(scale: Scale, chosen: Settings) -> Base:
    side = 32
    if chosen["data"] == "imagenette":
        side = chosen["size"] or scale(smoke=32, small=64, large=128, paper=224)
    patch = (chosen["patch"] or scale(smoke=8, small=8, large=8, paper=4)) * side // 32
    if side == 224 and not chosen["patch"]:
        patch = 32
    return Base(
        patch,
        dim=scale(smoke=16, small=48, large=48, paper=128),
        depth=scale(smoke=2, small=4, large=4, paper=16),
        heads=4,
        width=scale(smoke=4, small=8, large=8, paper=64),
        stages=scale(smoke=(1, 1), small=(1, 1, 1, 1), large=(1, 1, 1, 1), paper=(2, 2, 2, 2)),
        side=side,
    )


def arms(scale: Scale, chosen: Settings) -> Iterator[Arm]:
    """Baselines first, then what decides one claim each, then the series over depth and number of images."""
    b, p = base(scale, chosen), DRAWN if chosen["data"] == "procedural_textures" else TRAIN
    images = chosen["images"] or scale(smoke=512, small=36_000, large=128_000, paper=25 * TRAIN)
    many, few = scale(smoke=2, small=5, large=8, paper=8), scale(smoke=2, small=5, large=5, paper=5)
    accuracy = _accuracy(scale, chosen)
    conv_probes = (_accuracy(scale, chosen, main=True), *_moves(scale, b, first="stem.0"))
    vit_probes = (conv_probes[0], *_moves(scale, b, first="embed"))

    def conv(name: str, probes: tuple[Probe, ...] = (accuracy,), **change: Any) -> Arm:
        return Arm(name, "convnet", {**b.conv, **change}, p, images, many, probes)

    def vit(name: str, probes: tuple[Probe, ...] = (accuracy,), seeds: int = many, **change: Any) -> Arm:
        return Arm(name, "vit", {**b.vit, **change}, p, images, seeds, probes)

    yield conv(CONV, conv_probes)
    yield vit(VIT, (*vit_probes, _ingredients(scale)))
    yield conv(CONV_V2, block="v2")
    yield conv(CONV_V3, block="v3")
    yield vit(POST, block="v2")
    yield vit(PARALLEL, block="v3")
    yield vit(DROPOUT, dropout=0.2, attention_dropout=0.2)
    yield vit(HALF_PATCH, patch=b.patch // 2)
    yield vit(WIDER, dim=b.wider())
    yield vit(DEEPER, depth=b.deeper())
    yield vit(HEADS, heads=8)
    yield vit(BARE, (accuracy, *vit_probes[1:]), positions=False)
    if scale.name == "small":  # the rest needs longer training than its quarter of an hour allows
        return
    yield vit(SKIP, seeds=few, block="single_skip")
    depths: tuple[int, ...] = scale(smoke=(3,), small=(), large=(2, 8), paper=(4, 8, 24))
    for depth in depths:
        if depth != b.deeper():  # that one has an arm already
            yield vit(PRE_DEPTHS, seeds=few, depth=depth)
        yield vit(POST_DEPTHS, seeds=few, block="v2", depth=depth)
    larger = (3 * p,) if chosen["data"] == "cifar10" and scale.name != "smoke" else ()
    for size in (p // 4, *larger):
        epochs = round(images * size / p)
        for name, images_seen in ((CONV_SIZES, images), (CONV_EPOCHS, epochs)):
            yield Arm(name, "convnet", b.conv, size, images_seen, few, (accuracy,))
        for name, images_seen in ((VIT_SIZES, images), (VIT_EPOCHS, epochs)):
            yield Arm(name, "vit", b.vit, size, images_seen, few, (accuracy,))


def tasks(scale: Scale, chosen: Settings) -> Sequence[Task]:
    """Every arm and seed; one recipe for all, but for the images seen at equal epochs."""
    recipe: dict[str, Any] = {
        "batch": 64,
        "optimizer": "adamw",
        "lr": chosen["lr"] or scale(smoke=3e-3, small=3e-3, large=2e-3, paper=1e-3),
        "weight_decay": chosen["weight_decay"],
        "schedule": "cosine",
        "warmup": 0.05,
        "label_smoothing": chosen["label_smoothing"],
        "watch": scale(smoke=1, small=4, large=10, paper=25),
    }
    data = "imagenette" if chosen["data"] == "imagenette" else "photos"
    return [
        Task(
            Run(
                arm.model,
                data,
                Recipe(images=arm.images, **recipe),
                seed,
                Settings(arm.args),
                _data_args(scale, chosen, arm.p),
            ),
            arm.probes,
            arm.name,
        )
        for arm in arms(scale, chosen)
        for seed in range(arm.seeds)
    ]


def _data_args(scale: Scale, chosen: Settings, p: int) -> Settings:
    shared = {"p": p, "hold_out": HELD_OUT, "augment": chosen["augment"]}
    if chosen["data"] != "imagenette":
        return Settings(shared, of=chosen["data"])
    where = {"folder": chosen["folder"]} if chosen["folder"] else {}
    return Settings(shared, size=base(scale, chosen).side, **where)


def _accuracy(scale: Scale, chosen: Settings, main: bool = False) -> Probe:
    """On all test images; of the baselines also on the held-out ones and on training images in both transforms."""
    return Probe(
        "through_transforms",
        splits=("test", "held_out") if main else ("test",),
        n=scale(smoke=100, small=10_000, large=10_000, paper=10_000),
        train=scale(smoke=64, small=2000, large=5000, paper=5000) if main else 0,
        label_smoothing=chosen["label_smoothing"],
    )


def _moves(scale: Scale, b: Base, first: str) -> tuple[Probe, Probe]:
    """Every block's map when the image moves, and every block on its own."""
    whole = 32 if b.side >= 128 else b.side // 4  # whole patches, and whole strides of the last block
    shared: dict[str, Any] = {
        "n": scale(smoke=4, small=24, large=32, paper=64),
        "layers": (first, "blocks.?", "blocks.1?"),
        "fresh": True,
    }
    return (
        Probe(
            "equivariance",
            shared,
            scopes=("network",),
            regions=("whole",),
            permute=False,
            shift=(1, whole, 0.5),
            padded_shift=(1,),
            rotate=(90, 15),
            scale=(0.9,),
        ),
        Probe(
            "equivariance",
            shared,
            scopes=("alone",),
            shift=(1, 2),
            padded_shift=(),
            rotate=(),
            scale=(),
            flip=False,
            lie=False,
        ),
    )


def _ingredients(scale: Scale) -> Probe:
    n = scale(smoke=8, small=100, large=200, paper=200)
    return Probe("ingredients", ingredients=("positions", "content"), n=n)
