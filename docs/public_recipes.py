"""What good public recipes of about the same size reach, beside our arms: a table of RESULTS.md.

Figures of others are those of the source beside them, as its page, its abstract or the report of the study gives them;
what was not found there is left out. Ours come from results/*/rows.csv.xz.
"""

from __future__ import annotations

import csv
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from saccade import stats
from saccade.lab.table import Series

RESULTS = Path(__file__).resolve().parent.parent / "results"
HEADING = "How near to good public recipes"
CIFAR_EPOCH = 50_000  # images


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model that somebody trained well, and where that is written."""

    name: str
    accuracy: float
    parameters: int | None  # None, here and below, where the source does not say
    images: int | None  # seen in training
    source: str
    url: str


RESNET20 = Recipe(
    name="ResNet-20, 200 epochs",
    accuracy=0.9173,
    parameters=270_000,
    images=200 * CIFAR_EPOCH,
    source="akamaster/pytorch_resnet_cifar10",
    url="https://github.com/akamaster/pytorch_resnet_cifar10",
)
CCT2 = Recipe(
    name="CCT-2/3x2, 200 epochs",
    accuracy=0.8917,
    parameters=284_000,
    images=200 * CIFAR_EPOCH,
    source="SHI-Labs/Compact-Transformers",
    url="https://github.com/SHI-Labs/Compact-Transformers",
)
VIT_LITE = Recipe(
    name="ViT-Lite-6/4, 200 epochs",
    accuracy=0.9094,
    parameters=3_191_000,
    images=200 * CIFAR_EPOCH,
    source="SHI-Labs/Compact-Transformers",
    url="https://github.com/SHI-Labs/Compact-Transformers",
)
QUADRATIC = Recipe(
    name="quadratic self-attention, 300 epochs",
    accuracy=0.938,
    parameters=12_100_000,
    images=300 * CIFAR_EPOCH,
    source="Cordonnier, Loukas, Jaggi 2020",
    url="https://arxiv.org/abs/1911.03584",
)
LEARNED = replace(
    QUADRATIC, name="self-attention with learned positions, 300 epochs", accuracy=0.918, parameters=12_300_000
)
SMALL_DATA = Recipe(
    name="tuned regularisation, from 500 images",
    accuracy=0.665,
    parameters=None,
    images=None,
    source="Brigato, Mougiakakou 2023",
    url="https://arxiv.org/abs/2309.01694",
)
FIVE_THOUSAND = Recipe(
    name="ResNet-9 from 5,000 images, under 10 minutes",
    accuracy=0.88,
    parameters=None,
    images=None,
    source="Awad et al. 2023",
    url="https://arxiv.org/abs/2309.03965",
)
LENET5 = Recipe(
    name="LeNet-5",
    accuracy=0.9905,
    parameters=None,
    images=None,
    source="LeCun, Bottou, Bengio, Haffner 1998",
    url="https://doi.org/10.1109/5.726791",
)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One of our arms beside a recipe; `recipe` is None where no public figure was found, which `note` says."""

    study: str
    arm: str
    recipe: Recipe | None
    note: str
    where: Mapping[str, str] = field(default_factory=lambda: {"split": "test"})


_OWN_SET = "no public figure for digits on backgrounds was found"
_LARGER = "the same kind of model"
TABLE = (
    Beside(study="local_structure", arm="ResNet", recipe=RESNET20, note=_LARGER),
    Beside(study="local_structure", arm="ViT", recipe=CCT2, note="with a convolutional stem, which ours lacks"),
    Beside(study="local_structure", arm="ViT", recipe=VIT_LITE, note="the same kind of model, larger"),
    Beside(study="local_structure", arm="depth-wise", recipe=RESNET20, note="no public figure for this model"),
    Beside(study="local_structure", arm="dynamic depth-wise", recipe=RESNET20, note="no public figure for this model"),
    Beside(
        study="block_ablations",
        arm="ConvNet v1",
        recipe=FIVE_THOUSAND,
        note="ours from 8,522 images",
        where={"split": "test", "transform": "test"},
    ),
    Beside(
        study="block_ablations",
        arm="ViT v1",
        recipe=CCT2,
        note="from 50,000 images; ours from 8,522",
        where={"split": "test", "transform": "test"},
    ),
    Beside(study="attention_as_convolution", arm="ResNet", recipe=RESNET20, note=_LARGER),
    Beside(study="attention_as_convolution", arm="isotropic", recipe=QUADRATIC, note="the same kind of model, larger"),
    Beside(study="attention_as_convolution", arm="ViT", recipe=CCT2, note="with a convolutional stem"),
    Beside(study="attention_as_convolution", arm="learned", recipe=LEARNED, note="the same kind of model, larger"),
    Beside(
        study="digits_on_backgrounds",
        arm="CNN",
        recipe=LENET5,
        note=f"theirs on plain MNIST; {_OWN_SET}",
        where={"split": "id", "backgrounds": "64"},
    ),
    Beside(
        study="digits_on_backgrounds", arm="MHA", recipe=None, note=_OWN_SET, where={"split": "id", "backgrounds": "64"}
    ),
    Beside(
        study="learning_curves",
        arm="CNN(10)",
        recipe=SMALL_DATA,
        note="50 per class, tested on ciFAIR-10; ours from 512 images",
        where={"split": "test", "channels": "3", "noise": "0.0", "p": "512"},
    ),
    Beside(
        study="learning_curves",
        arm="ViT(128,1,1)",
        recipe=SMALL_DATA,
        note="no public figure for a ViT of one layer and one head",
        where={"split": "test", "channels": "3", "noise": "0.0", "p": "512"},
    ),
)


@dataclass(frozen=True)
class Ours:
    accuracy: Series
    parameters: int | None
    images: int | None


def section() -> Iterator[str]:
    """Lines of Markdown: what the table is, then the table."""
    yield f"## {HEADING}"
    yield ""
    yield (
        "A comparison of architectures is worth reading when both are trained well. Beside each main arm stands a "
        "public recipe of the nearest size that was found, with its source. Ours see far fewer images, which is what a "
        "processor without a GPU allows; the last column but one says how many times fewer."
    )
    yield ""
    heads = ("study", "arm", "ours", "parameters", "images seen", "public recipe", "reaches", "parameters")
    yield "| " + " | ".join((*heads, "images, theirs over ours", "remark")) + " |"
    yield "|" + "---|" * (len(heads) + 2)
    rows = {study: _rows(study) for study in dict.fromkeys(b.study for b in TABLE)}
    for beside in TABLE:
        ours = measured(beside, rows[beside.study])
        yield "| " + " | ".join(_cells(beside, ours)) + " |"


def _cells(beside: Beside, ours: Ours) -> tuple[str, ...]:
    recipe = beside.recipe
    at = "".join(f", {name} = {beside.where[k]}" for k, name in (("backgrounds", "x"), ("p", "p")) if k in beside.where)
    reached = stats.estimate(ours.accuracy).short() + f" % (n={len(ours.accuracy)})" if ours.accuracy else "not run yet"
    ratio = f"{recipe.images / ours.images:,.0f}" if recipe and recipe.images and ours.images else "–"
    return (
        beside.study,
        beside.arm + at,
        reached,
        f"{ours.parameters:,}" if ours.parameters else "–",
        f"{ours.images:,}" if ours.images else "–",
        f"{recipe.name} ([{recipe.source}]({recipe.url}))" if recipe else "none found",
        f"{100 * recipe.accuracy:.4g} %" if recipe else "–",
        f"{recipe.parameters:,}" if recipe and recipe.parameters else "–",
        ratio,
        beside.note,
    )


def measured(beside: Beside, rows: list[dict[str, str]]) -> Ours:
    """Accuracy per seed, the number of parameters and of images seen of one arm."""
    own = [r for r in rows if r["arm"] == beside.arm and all(r.get(k) in (v, "") for k, v in beside.where.items())]
    final = [r for r in own if r["metric"] == "accuracy" and all(r.get(k) == v for k, v in beside.where.items())]
    counts = {int(r["value"]) for r in own if r["metric"] == "parameters"}
    runs = {r["run"] for r in final}
    return Ours(
        {int(r["seed"]): float(r["value"]) for r in final},
        counts.pop() if len(counts) == 1 else None,
        _images(beside.study, runs),
    )


def _rows(study: str) -> list[dict[str, str]]:
    with lzma.open(RESULTS / study / "rows.csv.xz", "rt", encoding="utf-8", newline="") as handle:
        csv.field_size_limit(2**24)
        return [r for r in csv.DictReader(handle) if r["metric"] in ("accuracy", "parameters")]


def _images(study: str, runs: set[str]) -> int | None:
    """The most that one of the runs saw: looks on the way end with the last batch but some."""
    with (RESULTS / study / "training.csv").open(encoding="utf-8", newline="") as handle:
        return max((int(r["images"]) for r in csv.DictReader(handle) if r["run"] in runs), default=None)
