"""The same answers sooner: a copy of the model whose batch norms are folded into the convolutions before them.

Tried and not taken: convolutions that rectify as they write (what torch.compile calls), 3 % slower in a whole net.
Such a copy is only used when it gave the same answers as the model itself to real images, up to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from saccade.data.images import Images
from saccade.subjects.subject import Subject

TRIED = 64  # images that both are asked
CLOSE = 1e-4  # of the answers' spread
Pair = tuple[str, nn.Conv2d, str, nn.BatchNorm2d]


class ChannelsLast(nn.Module):
    """Images with their channels innermost, which convolutions on a CPU take faster. The model given is changed."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        with torch.no_grad():
            self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.contiguous(memory_format=torch.channels_last))


def faster(subject: Subject, images: Images) -> Subject:
    """A subject with the same answers to `images` that takes less time, or the subject itself."""
    if subject.device != "cpu" or not any(isinstance(m, nn.Conv2d) for m in subject.model.modules()):
        return subject
    some = images.head(TRIED)
    x = some.batch(torch.arange(len(some), device=some.y.device))
    wanted = subject.logits(x)
    try:
        model = _copy(subject.model).eval()
        for _, conv, name, norm in _pairs(model, subject.prepared(x[:2])):
            _fold(conv, norm)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, nn.Identity())
    except Exception:  # a foreign module may refuse to be copied
        return subject
    for make in (lambda: ChannelsLast(_in_place(_copy(model))), lambda: ChannelsLast(_copy(model)), lambda: model):
        try:
            # A part that was made here is in training mode, and one such part makes every call switch the modes of all.
            quick = replace(subject, model=make().eval())
            if _same(quick.logits(x), wanted):
                return quick
        except Exception:  # a view that wants another order in memory
            continue
    return subject


def _copy(model: nn.Module) -> nn.Module:
    with torch.no_grad():  # what a scripted module copies would otherwise have a history
        return copy.deepcopy(model)


def _in_place(model: nn.Module) -> nn.Module:
    """The model with rectifiers that write over what they are given: 13 % of a small model's time. Where something
    else needs that too, the answers differ, and it is not taken."""
    for module in model.modules():
        if isinstance(module, (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.SiLU, nn.Hardswish)):
            module.inplace = True
    return model


def _pairs(model: nn.Module, x: Tensor) -> list[Pair]:
    """Convolutions, each called once, whose output is what a batch norm in evaluation mode gets."""
    made: dict[int, tuple[str, nn.Conv2d, Tensor]] = {}
    calls: dict[str, int] = {}
    found: list[Pair] = []

    def hooks() -> Iterator[torch.utils.hooks.RemovableHandle]:
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d):

                def keep(conv: nn.Module, _: object, out: Tensor, name: str = name) -> None:
                    assert isinstance(conv, nn.Conv2d)
                    calls[name] = calls.get(name, 0) + 1
                    made[id(out)] = (name, conv, out)  # held, so that its number is not given away

                yield module.register_forward_hook(keep)
            elif isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:

                def match(norm: nn.Module, given: tuple[Tensor, ...], _: object, name: str = name) -> None:
                    assert isinstance(norm, nn.BatchNorm2d)
                    calls[name] = calls.get(name, 0) + 1
                    if given and id(given[0]) in made:
                        conv_name, conv, _out = made[id(given[0])]
                        found.append((conv_name, conv, name, norm))

                yield module.register_forward_hook(match)

    handles = list(hooks())
    try:
        with torch.no_grad():
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return [p for p in found if calls[p[0]] == 1 and calls[p[2]] == 1]


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    assert norm.running_mean is not None and norm.running_var is not None
    with torch.no_grad():
        scale = (norm.running_var + norm.eps).rsqrt()
        scale = scale if norm.weight is None else scale * norm.weight
        bias = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
        bias = bias * scale if norm.bias is None else bias * scale + norm.bias
        conv.weight = nn.Parameter(conv.weight * scale[:, None, None, None])
        conv.bias = nn.Parameter(bias)


def _same(answers: Tensor, wanted: Tensor) -> bool:
    far = float((answers - wanted).abs().max())
    return far <= CLOSE * (float(wanted.std()) or 1.0) and torch.equal(answers.argmax(1), wanted.argmax(1))
