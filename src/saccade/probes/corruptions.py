"""How does it do on bad images: noise, blur, low contrast, coarse pixels?   After Hendrycks and Dietterich 2019"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from saccade import rng
from saccade.data import changes
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, SaccadeError, suggest
from saccade.subjects import answers
from saccade.subjects.subject import Subject

STRENGTHS = (1, 2, 3, 4, 5)


@probe(version=1)
def corruptions(
    subject: Subject,
    data: Source,
    *,
    split: str = "test",
    n: int = 1000,
    kinds: Sequence[str] = ("noise", "blur", "contrast", "pixelate"),
    strengths: Sequence[int] = (1, 2, 3, 4, 5),
) -> Iterator[Row]:
    """Accuracy and kept answers on a ladder of corruptions, five strengths each, and the mean over all rungs.

    The mean over rungs is taken image by image, so that its interval is one over images.
    """
    images = data(split).head(n)
    y, before = images.y.cpu(), answers.said(subject, data, split, n)
    right, kept = [], []
    for kind in kinds:
        if kind not in changes.CORRUPTIONS:
            raise SaccadeError(suggest("corruption", kind, changes.CORRUPTIONS))
        for strength in strengths:
            if strength not in STRENGTHS:
                raise SaccadeError(f"a corruption has the strengths 1 to 5, not {strength}.")

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
