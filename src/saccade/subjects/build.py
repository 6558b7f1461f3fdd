"""The model of a run, fresh from its seed. One from outside the package is tried on images before anything is made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from saccade import models, registry, rng
from saccade.data.images import Images
from saccade.errors import SaccadeError, in_words
from saccade.spec import Run
from saccade.subjects.outputs import follow, unpack
from saccade.subjects.subject import evaluating, precision, standardise

TRIED = 2  # images


class Unpacked(nn.Module):
    """A model that answers with a tuple, a mapping or a dataclass, made to answer with the logits in it."""

    def __init__(self, model: nn.Module, path: tuple[Any, ...]) -> None:
        super().__init__()
        self.model, self.path = model, path

    def forward(self, x: Tensor) -> Tensor:
        return follow(self.model(x), self.path)


def build(run: Run, images: Images) -> nn.Module:
    """With weights from the run's seed. A factory that asks for size or channels is given those of the images."""
    card = registry.card("model", run.model)
    if card.module.startswith("saccade."):
        return models.build(run.model, images.classes, seed=run.seed, **run.model_args)
    x = images.batch(torch.arange(min(TRIED, len(images)), device=images.y.device)).cpu()
    have = {**dict.fromkeys(registry.SIZES, x.shape[-1]), **dict.fromkeys(registry.CHANNELS, x.shape[1])}
    given = {name: have[name] for name, default in card.args.items() if default == registry.FROM_DATA}
    try:
        model = models.build(run.model, images.classes, seed=run.seed, **{**given, **run.model_args})
    except SaccadeError:
        raise
    except Exception as error:
        raise SaccadeError(f"{run.model} raised an error when it was built: {in_words(error)}.") from error
    if not isinstance(model, nn.Module):
        raise SaccadeError(f"{run.model} returned {type(model).__name__}, not a torch module; return the model.")
    with torch.random.fork_rng(devices=[]):  # lazy layers draw their weights in the first pass
        torch.manual_seed(rng.seed_of(run.seed, "init", run.model, "lazy"))
        return _tried(model, standardise(x, images.mean, images.std), images.classes, run.model)


def _tried(model: nn.Module, x: Tensor, classes: int, name: str) -> nn.Module:
    """The model, answering with logits; else the sentence on what does not fit."""
    shape = " x ".join(map(str, x.shape[1:]))
    try:
        with evaluating(model), torch.no_grad():
            out = model(x)
    except Exception as error:
        raise SaccadeError(
            f"{name} does not take images of {shape} ({in_words(error)}); let its function take channels and size, "
            "which it is then given."
        ) from error
    path, answers = unpack(out, len(x), name, classes)
    if answers.shape[1] != classes:
        raise SaccadeError(
            f"{name} answers with {answers.shape[1]} scores per image, and the data have {classes} classes; let its "
            "function take classes, which it is then given."
        )
    if precision(model) != torch.float32:
        raise SaccadeError(
            f"{name} is a {str(precision(model)).removeprefix('torch.')} model, and training is in float32; convert it "
            "with .float()."
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise SaccadeError(f"{name} has no parameters to train; return a model that has some.")
    return Unpacked(model, path) if path else model
