"""How often is it right when it is never switched to evaluation mode?   a slip found in Varma and Prabhu's code"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch

from saccade import rng
from saccade.arguments import Count
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row
from saccade.subjects.subject import Subject


@probe(version=1)
def train_mode_accuracy(
    subject: Subject, data: Source, *, split: str = "", n: Count = 1000, batch: Count = 100
) -> Iterator[Row]:
    """Share of right answers in training mode: dropout on, batch norms using and learning from the test batches."""
    model = copy.deepcopy(subject.model).train()  # a copy: its batch norms move
    split = data.held_out(split)
    images = data(split).head(n)
    hits = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(rng.seed_of(data.seed, "train mode"))
        for start in range(0, len(images), batch):
            index = torch.arange(start, min(start + batch, len(images)), device=images.y.device)
            logits = subject.checked(model(subject.prepared(images.batch(index))), len(index))
            hits.append((logits.argmax(1) == images.y[index]).cpu().numpy())
    yield Row.mean("accuracy_in_train_mode", np.concatenate(hits), split=split)
