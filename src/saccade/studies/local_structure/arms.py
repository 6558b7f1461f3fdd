"""The runs of the local-structure study: arms, recipes and what is asked of each, by scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.spec import Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice

RESNET, VIT, DYNAMIC, STATIC, WINDOWS = "ResNet", "ViT", "dynamic depth-wise", "depth-wise", "window attention"
MAIN = (RESNET, VIT, DYNAMIC, STATIC, WINDOWS)
LOCAL = DYNAMIC  # what the report trained under the name "Local ViT"
SWITCHES = ("locality", "sharing", "dynamic")
SCALES = (0.25, 0.375, 0.5, 0.75, 1.0)  # side of the object over that of the picture; 0.25 in the report
QUARTER, HALF = 0.25, 0.5
GRIDS = (1, 2, 4, 8)  # squares on a side that are shuffled

CHOICES = (
    Choice("arms", "all", ("all", "main", "ablation"), "every arm, the five of the comparison, or the ablation's"),
    Choice("images", 0, (), "training presentations for every arm; 0 takes the scale's own"),
    Choice("lr", 0.0, (), "peak learning rate of every arm below paper scale; 0 takes 0.002"),
    Choice("window", 2, (2, 4), "side of the attention windows, on a map of 8 and then 4 positions"),
    Choice("photos", "cifar10", ("cifar10", "procedural_textures"), "what is trained on and pasted"),
    Choice(
        "backdrop",
        "procedural_textures",
        (),
        "what small objects are pasted on: procedural_textures, plain or a folder with pictures",
    ),
    Choice("route", "clean", ("clean", "report"), "probe pictures lossless, or AutoAugmented and stored as JPEG"),
)


@dataclass(frozen=True)
class Cell:
    """One corner of the ablation: the same net but for three switches."""

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

    def arm(self, kind: str = "attention") -> str:
        """Its name. The corner with everything on is an arm of the main comparison."""
        known = {
            ("attention", True, True, True): WINDOWS,
            ("depth-wise", True, True, True): DYNAMIC,
            ("depth-wise", True, True, False): STATIC,
        }
        return known.get((kind, self.local, self.shared, self.dynamic), f"{kind}: {self.words}")

    def on(self, switch: str) -> bool:
        return {"locality": self.local, "sharing": self.shared, "dynamic": self.dynamic}[switch]


CELLS = tuple(Cell(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False))
KINDS = ("attention", "depth-wise")

Net = tuple[str, dict[str, Any]]


def nets(scale: Scale, chosen: Settings) -> dict[str, Net]:
    """Arms with their models. All of small and large have about 118 000 to 145 000 parameters."""
    if scale.name == "paper":
        return {
            RESNET: ("resnet50", {"stem": "imagenet"}),
            VIT: ("vit", {"patch": 16, "dim": 768, "depth": 12, "heads": 12, "image": 224}),
            DYNAMIC: ("local_dw", {"size": "base", "image": 224, "drop_path": 0.5}),
            STATIC: ("local_dw", {"size": "base", "dynamic": False, "image": 224, "drop_path": 0.5}),
            WINDOWS: ("local_attn", {"size": "base", "window": 7, "image": 224, "drop_path": 0.5}),
        }
    found: dict[str, Net] = {
        RESNET: ("resnet50", {"stem": "half", "width": 16, "stages": (1, 1, 1)}),
        VIT: ("vit", {"patch": 4, "dim": 60, "depth": 3, "heads": 2}),
        DYNAMIC: ("local_dw", {"size": "mini", "window": 3}),
        STATIC: ("local_dw", {"size": "mini", "window": 3, "dynamic": False}),
        WINDOWS: ("local_attn", {"size": "mini", "window": chosen["window"]}),
    }
    asked = scale(smoke=(), small=("attention",), large=KINDS, paper=())
    corners = {cell.arm(kind): corner(cell, kind, chosen) for kind in asked for cell in CELLS}
    if scale.name in ("smoke", "demo"):  # one pair, to see that it works
        pair = Cell(False, True, True)
        corners = {pair.arm(): corner(pair, "attention", chosen)}
    if chosen["arms"] == "main":
        return found
    if chosen["arms"] == "ablation":
        return corners
    return found | corners


def corner(cell: Cell, kind: str, chosen: Settings) -> Net:
    args: dict[str, Any] = {"size": "mini"}
    near = chosen["window"] if kind == "attention" else 3
    args["window"] = near if cell.local else 0
    args |= {} if cell.shared else {"shared": False}
    args |= {} if cell.dynamic else {"dynamic": False}
    return ("local_attn" if kind == "attention" else "local_dw", args)


def recipe(scale: Scale, chosen: Settings, arm: str) -> Recipe:
    """One for all arms; at paper scale the report's own, which differ."""
    if scale.name == "paper":
        images = chosen["images"] or 80 * 50_000
        if arm in (RESNET, VIT):
            return Recipe(
                images=images,
                batch=64,
                optimizer="adam",
                lr=1e-4,
                weight_decay=5e-4,
                schedule="one_cycle",
                precision="mixed",
                watch=80,
            )
        return Recipe(
            images=images,
            batch=16,
            optimizer="adamw",
            lr=1e-4,
            weight_decay=5e-4,
            schedule="one_cycle",
            clip=5.0,
            label_smoothing=0.1,
            watch=80,
        )
    images = chosen["images"] or scale(smoke=640, small=16_000, large=200_000, paper=0)
    return Recipe(
        images=images,
        batch=32,
        optimizer="adamw",
        lr=chosen["lr"] or 2e-3,
        weight_decay=0.05,
        schedule="one_cycle",
        watch=8,
    )


def tasks(scale: Scale, chosen: Settings) -> list[Task]:
    """Every arm on the same pictures, one task a seed."""
    data: dict[str, Any] = {"of": chosen["photos"], "p": scale(smoke=640, small=16_000, large=0, paper=0)}
    if chosen["photos"] != "cifar10":
        data |= {"p": 0, "hold_out": 1000}
    if scale.name == "paper":
        data |= {"size": 224, "augment": "autoaugment"}
    seeds = range(scale(smoke=2, small=5, large=5, paper=5))
    return [
        Task(
            Run(model, "photos", recipe(scale, chosen, arm), seed, Settings(args), Settings(data)),
            probes(scale, chosen, arm, seed),
            arm,
        )
        for arm, (model, args) in nets(scale, chosen).items()
        for seed in seeds
    ]


def probes(scale: Scale, chosen: Settings, arm: str, seed: int) -> tuple[Probe, ...]:
    """All tests for the arms of the comparison; for the other corners of the ablation only what it reads."""
    many, some, few = scale(
        smoke=(200, 100, 50), small=(2000, 1000, 400), large=(10_000, 4000, 2000), paper=(10_000, 4000, 2000)
    )
    how = {} if chosen["route"] == "clean" else {"route": "report"}
    if scale.name == "paper" and arm not in (RESNET, VIT):
        how["crop"] = "centre"

    def objects(n: int, scales: tuple[float, ...], backdrop: str) -> Probe:
        return Probe("small_object_accuracy", n=n, scales=scales, backdrops=(backdrop,), **how)

    found = [Probe("accuracy", splits=("test",), n=many), objects(some, (QUARTER,), chosen["backdrop"])]
    if arm not in MAIN:
        return (*found, Probe("top_k_matching", n=some, **how), Probe("patch_shuffle", n=few, grids=(1, 4)))
    found += [
        Probe("top_k_matching", n=min(many, 4000), **how),
        objects(few, SCALES[1:], chosen["backdrop"]),
        Probe("patch_shuffle", n=few, grids=GRIDS),
    ]
    if chosen["backdrop"] != "plain":  # size without clutter
        found.append(objects(few, (QUARTER, HALF), "plain"))
    if arm == RESNET and seed == 0:  # some pictures for the report
        found.append(Probe("local_pictures", backdrop=chosen["backdrop"], **how))
    return tuple(found)
