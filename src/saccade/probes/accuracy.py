"""How often is it right?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from saccade.arguments import Count
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row
from saccade.subjects import answers
from saccade.subjects.subject import Subject


@probe(version=1)
def accuracy(subject: Subject, data: Source, *, splits: Sequence[str] = (), n: Count = 1000) -> Iterator[Row]:
    """Share of right answers on the first n images of each split; without any, of the one that is held out."""
    for split in splits or (data.held_out(),):
        predictions = answers.said(subject, data, split, n)
        yield Row.mean("accuracy", (predictions == data(split).head(n).y.cpu()).numpy(), split=split)
