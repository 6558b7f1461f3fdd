"""Answers to the images of a split and to variants of them, asked once and shared by all probes that need them.

A variant is named by a word and its settings; the same name must always mean the same images. With `Subject.kept` the
answers are remembered there, otherwise every call asks the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from saccade.data.images import Source
from saccade.spec import Settings
from saccade.subjects.subject import Subject

PART = 64  # images per forward pass: the maps of small models then stay in a CPU's cache
Change = Callable[[Tensor, Tensor], Tensor]  # images in [0, 1] and their places in the split -> images in [0, 1]


def logits(subject: Subject, data: Source, split: str, n: int, change: Change | None = None, **variant: Any) -> Tensor:
    """(n, classes) on the CPU: the answers to the first n images of a split, changed if a variant is named."""
    assert (change is None) == (not variant), "a changed image needs a name, and only that"
    key = ("logits", data, split, n, Settings(variant))
    if subject.kept is not None and key in subject.kept:
        return subject.kept[key]
    images = data(split).head(n)
    parts = []
    for start in range(0, len(images), PART):
        index = torch.arange(start, min(start + PART, len(images)), device=images.y.device)
        x = images.batch(index)
        parts.append(subject.logits(x if change is None else change(x, index)).cpu())
    whole = torch.cat(parts)
    if subject.kept is not None:
        subject.kept[key] = whole
    return whole


def said(subject: Subject, data: Source, split: str, n: int, change: Change | None = None, **variant: Any) -> Tensor:
    """(n,) the class with the highest score. Of variants only this is kept: a thousand classes take a thousandfold."""
    if change is None:
        return logits(subject, data, split, n).argmax(1)
    key = ("said", data, split, n, Settings(variant))
    if subject.kept is not None and key in subject.kept:
        return subject.kept[key]
    one = logits(dataclasses.replace(subject, kept=None), data, split, n, change, **variant).argmax(1)
    if subject.kept is not None:
        subject.kept[key] = one
    return one
