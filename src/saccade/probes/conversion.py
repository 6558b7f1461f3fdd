"""Does attention that starts as a trained convolution stay one?"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from saccade.analysis import convolution
from saccade.analysis.convolution import ShiftAttention
from saccade.arguments import AnyCount, Count, Range
from saccade.data.images import Images, Source
from saccade.registry import probe
from saccade.spec import Recipe, Row, Settings
from saccade.subjects.subject import Subject
from saccade.training import loop


@probe(version=1, milestones=False)
def conversion(
    subject: Subject,
    data: Source,
    *,
    split: str = "",
    n: Count = 1000,
    steps: AnyCount = 40,
    batch: Count = 32,
    lr: Annotated[float, Range(above=0)] = 1e-3,
    alphas: Sequence[Annotated[float, Range(at_least=0)]] = (0.0, 3.0),
) -> Iterator[Row]:
    """A trained convolution model with attention in place of its convolutions: before and after training on.

    Largest difference of logits, share of equal answers and accuracy right after; then, `steps` of AdamW later,
    how far centres are from the whole-pixel grid and from their start, how wide heads are, how far the layers are
    from the nearest convolution. alpha 0 is the exact construction, through which almost no gradient reaches the
    centres; a small alpha leaves them room to move. Beside them the convolution model itself is trained on.
    """
    images = data(data.held_out(split)).head(n)
    original = _answers(subject, images)
    recipe = Recipe(images=steps * batch, batch=batch, optimizer="adamw", lr=lr, watch=0)
    candidates: dict[str, nn.Module] = {"convolution": copy.deepcopy(subject.model)}
    candidates |= {_form_name(alpha): convolution.convert(subject.model, alpha=alpha or None) for alpha in alphas}
    for form, candidate in candidates.items():
        candidate_subject = Subject(candidate, subject.mean, subject.std, subject.device)
        now = _answers(candidate_subject, images)
        yield _row("logit_difference", float((now - original).abs().max()), n, form, "before")
        yield _row("agreement", float((now.argmax(1) == original.argmax(1)).double().mean()), n, form, "before")
        yield from _state(candidate, now, images, form, "before")
        start = [layer.centre.detach().clone() for layer in _layers(candidate)]
        for _ in loop.fit(candidate, data, recipe):
            pass
        after = _answers(candidate_subject, images)
        yield _row("agreement", float((after.argmax(1) == now.argmax(1)).double().mean()), n, form, "after")
        yield from _state(candidate, after, images, form, "after")
        for layer, (initial, layer_module) in enumerate(zip(start, _layers(candidate), strict=True), 1):
            drift = (layer_module.centre.detach() - initial).norm(dim=1)
            yield _row("centre_drift", float(drift.mean()), len(drift), form, "after", layer=layer)


def _form_name(alpha: float) -> str:
    return f"attention, alpha {alpha:g}" if alpha else "attention, exact"


def _layers(candidate: nn.Module) -> list[ShiftAttention]:
    return [m for m in candidate.modules() if isinstance(m, ShiftAttention)]


def _answers(subject: Subject, images: Images) -> Tensor:
    return torch.cat([logits for logits, _ in subject.all_logits(images)])


def _state(candidate: nn.Module, logits: Tensor, images: Images, form: str, when: str) -> Iterator[Row]:
    hits = (logits.argmax(1) == images.y).double()
    yield _row("converted_accuracy", float(hits.mean()), len(hits), form, when)
    for layer, layer_module in enumerate(_layers(candidate), 1):
        centre = layer_module.centre.detach()
        values = {
            "lattice_distance": float((centre - centre.round()).norm(dim=1).mean()),
            "head_width": float(layer_module.spread.detach().abs().reciprocal().mean()),
            "nearest_distance": convolution.nearest_convolution(layer_module)[1],
        }
        for name, value in values.items():
            yield _row(name, value, len(centre), form, when, layer=layer)


def _row(metric: str, value: float, n: int, form: str, when: str, **at: object) -> Row:
    return Row(metric, value, n, Settings(at, form=form, when=when))
