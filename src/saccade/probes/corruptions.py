"""How does it do on bad images: noise, blur, low contrast, coarse pixels?   After Hendrycks and Dietterich 2019"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from saccade import rng
from saccade.arguments import Count
from saccade.data import changes
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row
from saccade.subjects import answers
from saccade.subjects.subject import Subject


@probe(version=1)
def corruptions(
    subject: Subject,
    data: Source,
    *,
    split: str = "",
    n: Count = 1000,
    kinds: Sequence[Literal["noise", "blur", "contrast", "pixelate"]] = ("noise", "blur", "contrast", "pixelate"),
    strengths: Sequence[Literal[1, 2, 3, 4, 5]] = (1, 2, 3, 4, 5),
) -> Iterator[Row]:
    """Accuracy and kept answers on a ladder of corruptions, five strengths each, and the mean over all rungs.

    The mean over rungs is taken image by image, so that its interval is one over images.
    """
    split = data.held_out(split)
    images = data(split).head(n)
    y, before = images.y.cpu(), answers.said(subject, data, split, n)
    right, kept = [], []
    for kind in kinds:
        for strength in strengths:

            def change(x, index, kind=kind, strength=strength):  # type: ignore[no-untyped-def]
                draw = rng.stream(data.seed, "corruptions", kind, strength, int(index[0]))
                return changes.corrupted(x, kind, strength, draw)

            after = answers.said(subject, data, split, n, change, corruption=kind, strength=int(strength))
            right.append((after == y).numpy())
            kept.append((after == before).numpy())
            yield Row.mean("corrupted_accuracy", right[-1], corruption=kind, strength=int(strength))
            yield Row.mean("answer_kept", kept[-1], corruption=kind, strength=int(strength))
    if right:
        yield Row.mean("mean_corrupted_accuracy", sum(r.astype(float) for r in right) / len(right))
        yield Row.mean("mean_answer_kept", sum(k.astype(float) for k in kept) / len(kept))
