"""What is trained and what is measured on it, by scale: five models, and eight that differ by three switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

RESNET, VIT, DYNAMIC, STATIC, WINDOWS = "ResNet", "ViT", "dynamic depth-wise", "depth-wise", "window attention"
IMAGES = "images"  # no model: a few of the images that the models are tested on, for the report
MAIN = (RESNET, VIT, DYNAMIC, WINDOWS, STATIC)
LOCAL = DYNAMIC  # what the report trained under the name "Local ViT"
SWITCHES = ("locality", "sharing", "dynamic")
SCALES = (0.25, 0.375, 0.5, 0.75)  # side of the object over that of the image; 0.25 in the report
QUARTER, HALF = 0.25, 0.5
NATIVE = (48, 64)  # side of the image in pixels when the object keeps its 32
LARGE = 64  # the one that claims read: three quarters of the image are background
GRIDS = (1, 2, 4, 8)  # squares per side that are shuffled

CHOICES = (
    Choice(
        "arms",
        "all",
        ("all", "main", "ablation", "depth-wise ablation"),
        "the comparison with the ablation of attention, one of them, or the same ablation of depth-wise mixing",
    ),
    Choice("images", 0, (), "training images seen by every arm; 0 takes the scale's own"),
    Choice("lr", 0.0, (), "peak learning rate of every arm below paper scale; 0 takes 0.002"),
    Choice("window", 2, (2, 4), "side of the attention windows, on a map of 8 and then 4 positions"),
    Choice("photos", "cifar10", ("cifar10", "procedural_textures"), "what is trained on and pasted"),
    Choice(
        "backdrop",
        "procedural_textures",
        (),
        "what small objects are pasted on: procedural_textures, plain or a folder with images",
    ),
    Choice(
        "route",
        "auto",
        ("auto", "clean", "report"),
        "images of the probes lossless (clean) or AutoAugmented and stored as JPEG (report, as auto does at paper)",
    ),
)


@dataclass(frozen=True)
class Cell:
    """One corner of the ablation: the same model but for three switches."""

    local: bool
    shared: bool
    dynamic: bool

    @property
    def words(self) -> str:
        return ", ".join(
            (
                "windows" if self.local else "whole map",
                "shared" if self.shared else "own",
                "dynamic" if self.dynamic else "static",
            )
        )

    def on(self, switch: str) -> bool:
        return {"locality": self.local, "sharing": self.shared, "dynamic": self.dynamic}[switch]


@dataclass(frozen=True)
class Kind:
    """What mixes positions in an ablation: the model that has the three switches, and the windows that are local."""

    name: str
    model: str
    near: tuple[int, ...]

    def arm(self, cell: Cell) -> str:
        return f"{self.name}: {cell.words}"

    def where(self, cell: Cell) -> dict[str, Any]:
        """The fields by which rows of a corner are found. Arms of the comparison do not name all three switches."""
        window: tuple[int, ...] = self.near if cell.local else (0,)
        return {"model": self.model, "window": window, "shared": cell.shared, "dynamic": cell.dynamic}


CELLS = tuple(Cell(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False))
ATTENTION, DEPTHWISE = Kind("attention", "local_attn", (2, 4)), Kind("depth-wise", "local_dw", (3,))
KINDS = (ATTENTION, DEPTHWISE)


@dataclass(frozen=True)
class Arm:
    name: str
    model: str
    args: Settings
    images: int
    seeds: int
    cell: Cell | None = field(default=None)  # of the ablation


def arms(scale: Scale, chosen: Settings) -> list[Arm]:
    """What decides most claims first. Below paper scale all have about 115 000 to 145 000 parameters."""
    images = chosen["images"] or scale(smoke=640, small=56_320, large=153_600, paper=80 * 50_000)
    seeds = scale(smoke=2, small=5, large=8, paper=5)
    compared = scale(smoke=MAIN, small=(RESNET, VIT, DYNAMIC), large=MAIN, paper=MAIN)
    compared_arms = [Arm(name, *model(scale, chosen, name), images, seeds) for name in compared]
    # Multiples of 256 images: with batches of 32, every eighth of the budget is a whole number of steps.
    fewer = chosen["images"] or scale(smoke=640, small=0, large=61_440, paper=0)
    kind = DEPTHWISE if chosen["arms"] == "depth-wise ablation" else ATTENTION
    cells: Sequence[Cell] = scale(smoke=CELLS[::4], small=(), large=CELLS, paper=())
    corners = [
        Arm(
            kind.arm(cell),
            kind.model,
            corner(kind, cell, chosen),
            fewer,
            scale(smoke=2, small=0, large=6, paper=0),
            cell,
        )
        for cell in cells
    ]
    return {"all": compared_arms + corners, "main": compared_arms}.get(chosen["arms"], corners)


def model(scale: Scale, chosen: Settings, name: str) -> tuple[str, Settings]:
    """The registered model of an arm of the comparison and its arguments."""
    if scale.name == "paper":
        local = {"size": "base", "image": 224, "drop_path": 0.5}
        return {
            RESNET: ("resnet50", Settings(stem="imagenet")),
            VIT: ("vit", Settings(patch=16, dim=768, depth=12, heads=12, image=224)),
            DYNAMIC: ("local_dw", Settings(local)),
            STATIC: ("local_dw", Settings(local, dynamic=False)),
            WINDOWS: ("local_attn", Settings(local, window=7)),
        }[name]
    return {
        RESNET: ("resnet50", Settings(stem="half", width=16, stages=(1, 1, 1))),
        VIT: ("vit", Settings(patch=4, dim=60, depth=3, heads=2)),
        DYNAMIC: ("local_dw", Settings(size="mini", window=3)),
        STATIC: ("local_dw", Settings(size="mini", window=3, dynamic=False)),
        WINDOWS: ("local_attn", Settings(size="mini", window=chosen["window"])),
    }[name]


def corner(kind: Kind, cell: Cell, chosen: Settings) -> Settings:
    near = chosen["window"] if kind == ATTENTION else 3
    return Settings(size="mini", window=near if cell.local else 0, shared=cell.shared, dynamic=cell.dynamic)


def recipe(scale: Scale, chosen: Settings, arm: Arm) -> Recipe:
    """One for all arms; at paper scale the report's own, which differ."""
    if scale.name != "paper":
        return Recipe(
            images=arm.images,
            batch=32,
            optimizer="adamw",
            lr=chosen["lr"] or 2e-3,
            weight_decay=0.05,
            schedule="one_cycle",
            watch=8,
        )
    shared: dict[str, Any] = {"lr": 1e-4, "weight_decay": 5e-4, "schedule": "one_cycle", "watch": 80}
    if arm.name in (RESNET, VIT):
        return Recipe(images=arm.images, batch=64, optimizer="adam", precision="mixed", **shared)
    return Recipe(images=arm.images, batch=16, optimizer="adamw", clip=5.0, label_smoothing=0.1, **shared)


def tasks(scale: Scale, chosen: Settings) -> list[Task]:
    """Every arm on the same images, one task per seed."""
    data: dict[str, Any] = {"of": chosen["photos"], "p": scale(smoke=640, small=0, large=0, paper=0)}
    if chosen["photos"] != "cifar10":
        data |= {"p": 0, "hold_out": 1000}
    if scale.name == "paper":
        data |= {"size": 224, "augment": "autoaugment"}
    model_tasks = [
        Task(
            Run(arm.model, "photos", recipe(scale, chosen, arm), seed, arm.args, Settings(data)),
            probes(scale, chosen, arm),
            arm.name,
        )
        for arm in arms(scale, chosen)
        for seed in range(arm.seeds)
    ]
    images = Probe("local_pictures", backdrop=chosen["backdrop"], **_route(scale, chosen))
    before = [t.run.key for t in model_tasks if t.arm == RESNET][:1]
    return [*model_tasks, *(Task(Run.fact("photos", Settings(data)), (images,), IMAGES, key) for key in before)]


def _route(scale: Scale, chosen: Settings) -> dict[str, Any]:
    reported = chosen["route"] == "report" or (chosen["route"] == "auto" and scale.name == "paper")
    return {"route": "report"} if reported else {}


def probes(scale: Scale, chosen: Settings, arm: Arm) -> tuple[Probe, ...]:
    """All tests for the arms of the comparison; for corners of the ablation what its effects are measured by."""
    whole, some, native, few = scale(
        smoke=(200, 60, 30, 30),
        small=(10_000, 2000, 1000, 500),
        large=(10_000, 2000, 2000, 2000),
        paper=(10_000, 4000, 4000, 4000),
    )
    backdrop = chosen["backdrop"]
    how = _route(scale, chosen)

    def objects(n: int, scales: tuple[float, ...], *backdrops: str) -> Probe:
        return Probe("small_object_accuracy", n=n, scales=scales, backdrops=backdrops, **crop, **how)

    # The report cuts a rim off the images that its local model is asked about.
    crop = {"crop": "centre"} if scale.name == "paper" and arm.name not in (RESNET, VIT) else {}
    common = [
        Probe("accuracy", splits=("test",), n=whole),
        Probe("top_k_matching", n=some, **crop, **how),
    ]
    if arm.cell is not None:
        return (*common, objects(some, (HALF,), backdrop), Probe("patch_shuffle", n=few, grids=(1, 4)))
    plain = () if backdrop == "plain" else ("plain",)  # size without clutter
    common += [
        Probe(
            "native_object_accuracy",
            n=native,
            canvases=scale(smoke=NATIVE, small=(LARGE,), large=NATIVE, paper=NATIVE),
            backdrops=(backdrop, *plain),
            **how,
        ),
        objects(few, SCALES, backdrop),
        Probe("patch_shuffle", n=few, grids=GRIDS),
    ]
    if plain:
        common.append(objects(few, (QUARTER, HALF), "plain"))
    if arm.name == WINDOWS:
        common.append(Probe("ingredients", ingredients=("content",)))
    return tuple(common)
