"""A found model made askable: its input size, channels, normalisation, precision and kind of output, found out.

What the model's source says is taken; the rest comes from forward passes whose errors are caught. Every fact keeps the
word on where it is from, so that a page can tell. What cannot be found out is asked for in one sentence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.data.images import Images, Triple
from saccade.errors import in_words
from saccade.spec import SaccadeError, suggest
from saccade.subjects.find import IMAGENET, Found
from saccade.subjects.outputs import FEATURES, follow, unpack
from saccade.subjects.subject import Subject, evaluating, precision, standardise

TRIED = (224, 256, 32, 28, 64, 96, 128, 160, 192, 299, 384, 512)  # sizes, after what the source and the data say
ASKED = 4  # images of a trial
CLEAR = 0.05  # share of images by which a normalisation must do better than the data's own to be taken
SAME = 1e-3  # of the answers' own spread: below this two calls differ by rounding
NORMALISATIONS: Mapping[str, tuple[Triple, Triple] | None] = {
    "data": None,
    "none": ((0.0,), (1.0,)),
    "imagenet": IMAGENET,
    "half": ((0.5,), (0.5,)),
    "bytes": ((0.0,), (1 / 255,)),
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a subject. `how` says for a fact where it is from; `notes` is what a reader must know."""

    name: str
    origin: str
    size: tuple[int, int]
    channels: int
    classes: int
    mean: Triple
    std: Triple
    output: str  # logits, probabilities, log-probabilities or features
    precision: str
    parameters: int
    trained: bool | None
    how: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Fitted(nn.Module):
    """Standardised images of the data in, one row of logits per image out, whatever the model takes and gives."""

    def __init__(self, model: nn.Module, size: tuple[int, int] | None, channels: int, path: tuple[Any, ...]) -> None:
        super().__init__()
        self.model, self.size, self.channels, self.path = model, size, channels, path
        self.shares = ""  # probabilities or log-probabilities, when the model gives those
        self.training = False  # has no mode of its own; with one, every call would switch that of all parts

    def prepare(self, x: Tensor) -> Tensor:
        """Channels, size and precision as the model inside takes them; colour becomes grey by the mean of channels."""
        if x.shape[1] != self.channels:
            x = x.mean(1, keepdim=True) if self.channels == 1 else x.expand(-1, self.channels, -1, -1)
        if self.size is not None and x.shape[-2:] != self.size:
            x = F.interpolate(x, size=self.size, mode="bilinear", antialias=True, align_corners=False)
        return x.to(precision(self.model))

    def forward(self, x: Tensor) -> Tensor:
        out = follow(self.model(self.prepare(x)), self.path)
        out = out.float() if out.dtype in (torch.float16, torch.bfloat16) else out
        if self.shares == "probabilities":  # so that a softmax gives them back
            out = out.clamp_min(torch.finfo(out.dtype).tiny).log()
        return out.flatten(1)


def _word(model: nn.Module) -> str:
    return str(precision(model)).removeprefix("torch.")


def fit(
    found: Found,
    images: Images,
    *,
    tuning: Images | None = None,
    size: int = 0,
    channels: int = 0,
    normalise: str = "",
    device: str = "cpu",
) -> tuple[Subject, Facts]:
    """A subject that takes images like these, and what was found out.

    `tuning` are labelled images that no result rests on: of the usual normalisations the one that does best there is
    taken.
    """
    model = found.model.to(device)
    index = torch.arange(min(ASKED, len(images)), device=images.y.device)
    raw = images.batch(index)
    how: dict[str, str] = {}
    standard = _standard(found, images, normalise, how)
    x = standardise(raw, *standard)
    with evaluating(model), torch.no_grad():
        fitted, out = _trial(found, model, x, images.classes, size=size, channels=channels, how=how)
        fitted.shares, output = _kind(out, fitted.path)
    classes = int(out.shape[1])
    subject = Subject(fitted, *standard, device)
    if not how["normalisation"]:
        standard, how["normalisation"] = _search(subject, images, tuning, classes)
        subject = dataclasses.replace(subject, mean=standard[0], std=standard[1])
    notes = (*found.notes, *_manners(subject, raw, found.name))
    subject = dataclasses.replace(subject, classes=classes)
    facts = Facts(
        name=found.name,
        origin=found.origin,
        size=fitted.size or (raw.shape[-2], raw.shape[-1]),
        channels=fitted.channels,
        classes=classes,
        mean=standard[0],
        std=standard[1],
        output=output,
        precision=_word(model),
        parameters=sum(p.numel() for p in model.parameters()),
        trained=found.trained,
        how=how,
        notes=notes,
    )
    return subject, facts


# -- input


def _trial(
    found: Found, model: nn.Module, x: Tensor, classes: int, *, size: int, channels: int, how: dict[str, str]
) -> tuple[Fitted, Tensor]:
    """The first combination of channels and size that the model takes. Its answers are checked by `unpack`."""
    own = (x.shape[-2], x.shape[-1])
    refused: list[str] = []
    errors: set[str] = set()
    for count, count_from in _channels(found, model, x.shape[1], channels):
        if count not in (1, x.shape[1]) and x.shape[1] != 1:
            raise SaccadeError(
                f"{found.name} takes {count} channels ({count_from}), and the data have {x.shape[1]}: only one channel "
                "can be made of several, or several alike of one."
            )
        for sides, sides_from in _sizes(found, model, own, size, count):
            fitted = Fitted(model, None if sides == own else sides, count, ())
            try:
                given = model(fitted.prepare(x))
            except (Exception, SystemExit) as error:  # foreign code may raise anything at a wrong size
                refused.append(f"at {count} x {sides[0]} x {sides[1]}: {in_words(error)}")
                errors.add(in_words(error))
                continue
            fitted.path, out = unpack(given, len(x), found.name, classes)
            how |= {"size": sides_from, "channels": count_from}
            return fitted, out
    if "not implemented for" in refused[0]:
        raise SaccadeError(
            f"{found.name} is a {_word(model)} model and cannot run here ({refused[0]}); convert it with .float()."
        )
    if len(errors) == 1 < len(refused):  # not the input's doing
        raise SaccadeError(
            f"{found.name} fails on each of the {len(refused)} inputs tried with the same error ({errors.pop()}); its "
            "forward is called with one tensor of images (n, channels, height, width)."
        )
    raise SaccadeError(
        f"{found.name} takes none of the {len(refused)} inputs tried ({refused[0]}); say what it takes with "
        "--size PIXELS and --channels N."
    )


def _channels(found: Found, model: nn.Module, own: int, said: int) -> list[tuple[int, str]]:
    if said:
        return [(said, "as given")]
    if found.channels:
        return [(found.channels, found.origin)]
    first = next((m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))), None)
    if isinstance(first, nn.Conv2d) and first.in_channels:  # 0: a lazy one, which takes what it is given
        return [(first.in_channels, "its first convolution")]
    return [(own, "the data"), *((c, "a forward pass") for c in (3, 1) if c != own)]


def _sizes(
    found: Found, model: nn.Module, own: tuple[int, int], said: int, channels: int
) -> list[tuple[tuple[int, int], str]]:
    if said:
        return [((said, said), "as given")]
    sizes = [((found.size, found.size), found.origin)] if found.size else []
    sizes.append((own, "the data"))
    for module in model.modules():  # a first linear layer on all pixels says how many there are
        if isinstance(module, nn.Conv2d):
            break
        if isinstance(module, nn.Linear):
            side = math.isqrt(module.in_features // channels)
            if side > 3 and side * side * channels == module.in_features:
                sizes.append(((side, side), "its first linear layer"))
            break
    sizes += [((s, s), "a forward pass") for s in TRIED]
    first: dict[tuple[int, int], str] = {}
    for sides, why in sizes:
        first.setdefault(sides, why)
    return list(first.items())


# -- output


def _kind(out: Tensor, path: tuple[Any, ...]) -> tuple[str, str]:
    """What the numbers are: (to be undone, word)."""
    if path and path[0][1] in FEATURES:
        return "", "features"
    rows = out.double()
    if bool((rows >= 0).all()) and torch.allclose(rows.sum(1), torch.ones(len(rows), dtype=rows.dtype), atol=2e-3):
        return "probabilities", "probabilities"
    if bool((rows <= 0).all()) and torch.allclose(
        rows.exp().sum(1), torch.ones(len(rows), dtype=rows.dtype), atol=2e-3
    ):
        return "", "log-probabilities"
    return "", "logits"


# -- normalisation


def _standard(found: Found, images: Images, said: str, how: dict[str, str]) -> tuple[Triple, Triple]:
    """Mean and std to begin with; how["normalisation"] stays empty when nobody says which."""
    if said:
        how["normalisation"] = "as given"
        return _read_standard(said, images)
    if found.mean is not None and found.std is not None:
        how["normalisation"] = found.origin
        return tuple(found.mean), tuple(found.std)
    how["normalisation"] = ""
    return images.mean, images.std


def _read_standard(said: str, images: Images) -> tuple[Triple, Triple]:
    """A word, or numbers as in 0.5,0.5,0.5/0.2,0.2,0.2."""
    if said in NORMALISATIONS:
        return NORMALISATIONS[said] or (images.mean, images.std)
    try:
        mean, std = (tuple(float(v) for v in part.split(",")) for part in said.split("/"))
    except ValueError:
        known = suggest("normalisation", said, NORMALISATIONS).rstrip(".")
        raise SaccadeError(f"{known} Or give mean/std as in 0.5,0.5,0.5/0.2,0.2,0.2.") from None
    if len(mean) != len(std) or not all(v > 0 for v in std):
        raise SaccadeError(f'mean and std need one number per channel, std above 0, not "{said}".')
    return mean, std


def _search(subject: Subject, images: Images, tuning: Images | None, classes: int) -> tuple[tuple[Triple, Triple], str]:
    """The data's own, unless another usual one is right clearly more often on images that are for tuning."""
    own = (images.mean, images.std)
    if tuning is None or classes != images.classes:
        return own, "the data's mean and std, as its source does not say"
    right = {
        word: float(dataclasses.replace(subject, mean=(one or own)[0], std=(one or own)[1]).correct(tuning).mean())
        for word, one in NORMALISATIONS.items()
    }
    best = max(right, key=lambda word: right[word])
    if right[best] < right["data"] + CLEAR:
        return own, f"the data's mean and std; no usual one does better on {len(tuning)} training images"
    return NORMALISATIONS[best] or own, (
        f'"{best}", right on {right[best]:.0%} of {len(tuning)} training images, and with the data\'s mean and std on '
        f"{right['data']:.0%}"
    )


# -- manners


def _manners(subject: Subject, x: Tensor, name: str) -> Iterator[str]:
    """Whether a second call gives the same, and whether an image's answer depends on the others in its batch."""
    first, second = subject.logits(x), subject.logits(x)
    try:
        alone = torch.cat([subject.logits(x[i : i + 1]) for i in range(len(x))])
    except Exception as error:  # such as statistics of a batch, which one image has not
        yield f"it does not answer an image alone, only several together ({in_words(error)})"
        alone = first
    for answers in (first, second, alone):
        if bool(answers.isnan().any()):
            raise SaccadeError(f"{name} answers NaN for ordinary images; check its weights and its normalisation.")
    spread = float(first.double().std()) or 1.0
    by = float((first - second).abs().max()) / spread
    if by > SAME:
        yield (
            f"non-deterministic: a second call gives other answers, by up to {by:.2g} of their spread; every "
            "variant is asked once, so differences below that mean nothing"
        )
    elif (by := float((first - alone).abs().max()) / spread) > SAME:
        yield f"an image's answer depends on the others in its batch, by up to {by:.2g} of the answers' spread"
