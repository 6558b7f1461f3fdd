"""Does it know how sure it may be?   After Guo et al. 2017"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saccade.arguments import Count
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects import answers
from saccade.subjects.subject import Subject

TINY = 1e-12  # a probability below this counts as this in the log


@probe(version=2)
def calibration(subject: Subject, data: Source, *, split: str = "", n: Count = 1000, bins: Count = 15) -> Iterator[Row]:
    """Expected calibration error in bins of equally many images, over-confidence, Brier score, and log loss.

    Over-confidence is mean confidence minus accuracy. Each bin has two rows: its accuracy and its mean confidence.
    """
    split = data.held_out(split)
    y = data(split).head(n).y.cpu().numpy()
    p = answers.logits(subject, data, split, n).double().softmax(1).numpy()
    confidence, right = p.max(1), p.argmax(1) == y
    yield Row("calibration_error", calibration_error(confidence, right, bins), len(y), Settings(bins=bins))
    yield Row.mean("over_confidence", confidence - right)
    yield Row.mean("brier", (p**2).sum(1) - 2 * p[np.arange(len(y)), y] + 1)
    yield Row.mean("log_loss", -np.log(np.maximum(p[np.arange(len(y)), y], TINY)))
    for number, part in enumerate(np.array_split(np.argsort(confidence, kind="stable"), min(bins, len(y))), 1):
        yield Row.mean("bin_accuracy", right[part], bin=number)
        yield Row.mean("bin_confidence", confidence[part], bin=number)


def calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int) -> float:
    """Mean over bins of |accuracy - mean confidence|, each weighted by its images."""
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    return float(sum(len(p) * abs(right[p].mean() - confidence[p].mean()) for p in parts) / len(order))
