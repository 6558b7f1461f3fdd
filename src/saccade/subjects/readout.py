"""A model's classes against the data's: the same, by a stated map, by agreement with itself, or by a read-out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.data.images import Images, Source
from saccade.spec import SaccadeError, suggest
from saccade.subjects.fit import Facts
from saccade.subjects.subject import CHUNK, Subject, evaluating, standardise

WAYS = ("labels", "map", "agreement", "linear")
NEVER = -1e4  # the score of a class that the model does not know: finite, and a probability of 0
DECAY = 1e-3  # of the linear read-out, on standardised features
STEPS = 100  # of L-BFGS, which ends earlier where nothing is gained

# The ImageNet classes that show a thing of CIFAR-10. Deer has none; its nearest kin are the three antelopes.
IMAGENET_CIFAR10: Mapping[int, tuple[int, ...]] = {
    0: (404, 895),
    1: (407, 436, 468, 511, 609, 627, 656, 661, 751, 817),
    2: (*range(7, 25), *range(80, 101), *range(127, 147)),
    3: (281, 282, 283, 284, 285),
    4: (351, 352, 353),
    5: tuple(range(151, 269)),
    6: (30, 31, 32),
    7: (339,),
    8: (403, 472, 484, 510, 554, 576, 625, 628, 724, 780, 814, 833, 871, 914),
    9: (555, 569, 675, 717, 734, 864, 867),
}
MAPS = {"imagenet_cifar10": IMAGENET_CIFAR10}


@dataclass(frozen=True)
class Reading:
    """A subject as it is to be asked, the data to ask with, and which of WAYS was taken, in words."""

    subject: Subject
    data: Source
    way: str
    says: str


def read(
    subject: Subject,
    facts: Facts,
    data: Source,
    *,
    way: str = "",
    classes: str | Mapping[int, Sequence[int]] = "",
    split: str = "test",
    n: int = 1000,
    tuning: Images | None = None,
) -> Reading:
    """By labels when the classes are as many; else as asked, by the map that is given, or by agreement."""
    images = data(split)
    way = way or ("map" if classes else "linear" if facts.output == "features" else "")
    if way and way not in WAYS:
        raise SaccadeError(suggest("way to read the answers", way, WAYS))
    if not way:
        way = "labels" if facts.classes == images.classes else "agreement"
    if way == "labels":
        if facts.classes != images.classes:
            raise SaccadeError(
                f"{facts.name} answers with {facts.classes} classes and {data.words} has {images.classes}; give a "
                "class map (--classes FILE), or choose --read agreement or --read linear."
            )
        return Reading(subject, data, way, f"against the labels, {images.classes} classes")
    if way == "map":
        groups = class_map(classes or "imagenet_cifar10", facts.classes, images.classes)
        mapped = dataclasses.replace(subject, model=Mapped(subject.model, groups), classes=images.classes)
        return Reading(mapped, data, way, f"through the class map {_called(classes)}")
    if way == "linear":
        if tuning is None:
            raise SaccadeError("a linear read-out needs training images, and the data have no such split.")
        says = f"by a linear read-out of its last features, trained here on {len(tuning)} images with the model frozen"
        read = dataclasses.replace(subject, model=read_out(subject, tuning), classes=images.classes)
        return Reading(read, data, way, says)
    return Reading(
        subject,
        Own(data.name, data.args, data.seed, data.device, split, _answered(subject, images.head(n), facts.classes)),
        way,
        f"by agreement with its own answers to the unchanged images: its {facts.classes} classes are not the "
        f"{images.classes} of {data.words} (--classes FILE or --read linear for right and wrong)",
    )


# -- a stated map


class Mapped(nn.Module):
    """The score of a class is the log of the summed probability of its group; one without a group is never answered."""

    def __init__(self, model: nn.Module, groups: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.model, self.groups = model, [list(g) for g in groups]

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        none = logits.new_full((len(logits),), NEVER)
        return torch.stack([logits[:, g].logsumexp(1) if g else none for g in self.groups], 1)


def class_map(given: str | Mapping[int, Sequence[int]], model_classes: int, classes: int) -> list[list[int]]:
    """The model's classes for each of the data's: a built-in map, a JSON file {"0": [404, 895], ...}, or a mapping."""
    if isinstance(given, str):
        given = MAPS[given] if given in MAPS else _file(given)
    groups: list[list[int]] = [[] for _ in range(classes)]
    for label, several in given.items():
        if not 0 <= int(label) < classes:
            raise SaccadeError(f"the class map names class {label}, and the data's classes are 0 to {classes - 1}.")
        for one in [several] if isinstance(several, int) else several:
            if not isinstance(one, int) or not 0 <= one < model_classes:
                raise SaccadeError(f"the class map names {one}, and the model's classes are 0 to {model_classes - 1}.")
            groups[int(label)].append(one)
    if sum(map(bool, groups)) < 2:
        raise SaccadeError("a class map needs at least two classes of the data with a class of the model each.")
    return groups


def _file(given: str) -> Mapping[Any, Any]:
    try:
        inside = json.loads(Path(given).expanduser().read_text("utf-8"))
        if not isinstance(inside, dict):
            raise ValueError("not a JSON object")
        return {int(k): v for k, v in inside.items()}
    except OSError:
        raise SaccadeError(suggest("class map", given, MAPS, "or a JSON file")) from None
    except ValueError as error:
        raise SaccadeError(
            f'{given} is no class map ({error}); it looks like {{"0": [404, 895], "1": [436]}}.'
        ) from None


def _called(classes: str | Mapping[int, Sequence[int]]) -> str:
    return (classes or "imagenet_cifar10") if isinstance(classes, str) else "that was given"


# -- agreement with itself


@dataclass(frozen=True)
class Own(Source):
    """The data with the subject's own answers to the unchanged images in place of the labels of one split."""

    split: str = "test"
    answered: Images | None = field(default=None, compare=False)

    def __call__(self, split: str) -> Images:
        assert self.answered is not None
        return self.answered if split == self.split else super().__call__(split)


def _answered(subject: Subject, images: Images, classes: int) -> Images:
    said = torch.cat([z.argmax(1) for z, _ in subject.all_logits(images)])
    return dataclasses.replace(images, y=said, classes=classes)


# -- a linear read-out


class ReadOut(nn.Module):
    """A linear layer on the features that the model inside gives its own last layer."""

    weight: Tensor
    bias: Tensor

    def __init__(self, model: nn.Module, last: nn.Module | None, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.model, self.last = model, [last]  # in a list: not a second home of the same module
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        features = last_features(self.model, self.last[0], x)
        return F.linear(features.to(self.weight.dtype), self.weight, self.bias)


def last_features(model: nn.Module, last: nn.Module | None, x: Tensor) -> Tensor:
    """What the model's last linear layer is given for x, as (n, features); its output where it has no such layer."""
    seen: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, given: seen.append(given[0])) if last is not None else None
    try:
        out = model(x)
    finally:
        if handle is not None:
            handle.remove()
    features = seen[-1] if seen else out
    return features.flatten(1) if features.ndim == 2 else features.mean(tuple(range(1, features.ndim - 1)))


def read_out(subject: Subject, images: Images) -> ReadOut:
    """Softmax regression on standardised features, to its minimum: no random draw, the same on every call."""
    linears = [m for m in subject.model.modules() if isinstance(m, nn.Linear)]
    last = linears[-1] if linears else None
    parts = []
    with evaluating(subject.model), torch.no_grad():
        for start in range(0, len(images), CHUNK):
            index = torch.arange(start, min(start + CHUNK, len(images)), device=images.y.device)
            x = standardise(images.batch(index), subject.mean, subject.std)
            parts.append(last_features(subject.model, last, x).double())
    features = torch.cat(parts)
    mean, std = features.mean(0), features.std(0).clamp_min(1e-6)
    z = (features - mean) / std
    weight = torch.zeros(images.classes, z.shape[1], dtype=z.dtype, device=z.device, requires_grad=True)
    bias = torch.zeros(images.classes, dtype=z.dtype, device=z.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(F.linear(z, weight, bias), images.y) + DECAY * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    scaled = (weight / std).detach()
    return ReadOut(subject.model, last, scaled.float(), (bias - (weight / std) @ mean).detach().float())
