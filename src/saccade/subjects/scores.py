"""Scores of any model, held against labels: top-1 accuracy and top-k matching, from a probe or from files.

Among equal scores the class with the lower number comes first; `ties` counts the images where that decides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade import stats
from saccade.errors import SaccadeError, quoted, suggest
from saccade.subjects.sheets import ANSWER, LABEL, Sheet, read

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

PROBES = ("accuracy", "top_k_matching")
K = 4  # where labels do not say how many classes an image shows


def top(scores: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """(n, classes): whether a class is among the k highest of its row."""
    import numpy as np

    if not 1 <= k <= scores.shape[1]:
        raise SaccadeError(f"k must be between 1 and the number of classes, {scores.shape[1]}, not {k}.")
    chosen = np.zeros(scores.shape, bool)
    np.put_along_axis(chosen, np.argsort(-scores, 1, "stable")[:, :k], True, 1)
    return chosen


def by_chance(classes: int, present: int, k: int) -> tuple[float, ...]:
    """The probabilities of 0 to k matches when k classes are drawn blindly: hypergeometric, exact."""
    ways = math.comb(classes, k)
    return tuple(math.comb(present, m) * math.comb(classes - present, k - m) / ways for m in range(k + 1))


def ties(scores: NDArray[Any], k: int) -> int:
    """Rows whose k-th and next score are equal, so that the number of the class decides."""
    import numpy as np

    if k >= scores.shape[1]:
        return 0
    ordered = -np.sort(-scores, 1)
    return int((ordered[:, k - 1] == ordered[:, k]).sum())


def read_scores(file: str | Path) -> Sheet:
    """(n, classes), one row per image."""
    import numpy as np

    sheet = read(file)
    values, (n, classes) = sheet.values, sheet.values.shape
    if classes < 2:
        raise SaccadeError(f"{file} has one column; scores need one for each class.")
    if n > 2 and np.array_equal(values[:, 0] - values[0, 0], np.arange(n)):
        raise SaccadeError(
            f"the first column of {file} counts its rows and is no score; leave it out, or name it index in a header."
        )
    whole = (values == np.round(values)).all(0)
    for column in np.flatnonzero(whole).tolist():
        rest = np.delete(values, column, 1)
        named = sheet.names and sheet.names[column].lower() in LABEL | ANSWER
        shares = values[:, column].max() > 1 and rest.min() >= 0 and rest.max() <= 1 and not whole.all()
        if named or shares:
            called = f" ({sheet.names[column]})" if sheet.names else ""
            raise SaccadeError(
                f"column {bool(sheet.ids) + column + 1} of {file}{called} holds whole numbers and looks like labels, "
                "not scores; leave it out, and give labels as a file of their own."
            )
    return sheet


def read_labels(file: str | Path, scores: Sheet) -> NDArray[np.bool_]:
    """(n, classes): which classes an image shows, from numbers of classes or from rows of 0 and 1.

    Where both files say which image a row is of, rows are taken in the order of the scores.
    """
    import numpy as np

    sheet = read(file, scores.names, labels=True)
    (n, classes), values = scores.values.shape, sheet.values
    if len(values) == 1 < n == values.shape[1] != classes:  # all numbers in one line
        sheet = dataclasses.replace(sheet, values=values.T, lines=list(sheet.lines) * n)
        values = sheet.values
    if values.shape[1] not in (1, classes):
        raise SaccadeError(
            f"{file} has {values.shape[1]} columns and {scores.file} has {classes}; labels are one "
            f"number of a class a row, or {classes} numbers 0 or 1."
        )
    if sheet.ids and scores.ids:
        sheet = _in_order(sheet, scores)
        values = sheet.values
    if len(values) != n:
        raise SaccadeError(
            f"{file} has {len(values)} rows and {scores.file} has {n}; both need one row per image, in the same order."
        )
    if values.shape[1] == classes:
        wrong = np.flatnonzero(~np.isin(values, (0, 1)).all(1) | ~values.any(1))
        if len(wrong):
            raise SaccadeError(f"{sheet.where(wrong[0])} should have only 0 and 1, with at least one 1.")
        return values.astype(bool)
    index = values[:, 0]
    wrong = np.flatnonzero((index != np.round(index)) | (index < 0) | (index >= classes))
    if len(wrong):
        once = index.min() >= 1 and index.max() == classes and (index == np.round(index)).all()
        raise SaccadeError(
            f"{sheet.where(wrong[0])} has the label {index[wrong[0]]:g}, and the {classes} classes of "
            f"{scores.file} are 0 to {classes - 1}" + ("; count from 0." if once else ".")
        )
    shown: NDArray[np.bool_] = np.arange(classes) == index[:, None]
    return shown


def _in_order(labels: Sheet, scores: Sheet) -> Sheet:
    """The labels in the order of the scores. Each image of the one file must be in the other, once."""
    wanted, given = _names(scores.ids), _names(labels.ids)
    if not set(wanted) & set(given):  # one with folders, the other without
        wanted, given = ([name.replace("\\", "/").rpartition("/")[2] for name in names] for names in (wanted, given))
    if wanted == given:
        return labels
    for sheet, names in ((scores, wanted), (labels, given)):
        if len(set(names)) < len(names):
            row = next(i for i, name in enumerate(names) if name in names[:i])
            raise SaccadeError(
                f"{sheet.where(row)} is of image {quoted(sheet.ids[row])}, which an earlier row is of too; give each "
                "image one row."
            )
    for sheet, names, other, others in ((scores, wanted, labels, given), (labels, given, scores, wanted)):
        if missing := set(names) - set(others):
            row = next(i for i, name in enumerate(names) if name in missing)
            raise SaccadeError(
                f"{sheet.where(row)} is of image {quoted(sheet.ids[row])}, and {other.file} has no such image "
                f"({len(missing)} of {len(names)} are not in it); both files need the same images."
            )
    place = {name: row for row, name in enumerate(given)}
    order = [place[name] for name in wanted]
    return dataclasses.replace(
        labels,
        values=labels.values[order],
        lines=[labels.lines[row] for row in order],
        ids=[labels.ids[row] for row in order],
    )


def _names(ids: Sequence[str]) -> list[str]:
    """7 and 7.0 are one image."""
    return [f"{float(one):g}" if one.replace(".", "", 1).isdigit() else one for one in ids]


def compare(scores: str | Path, labels: str | Path, probes: Sequence[str] = (), k: int = 0) -> dict[str, Any]:
    """What score files say, as plain values. Images are the replicates: n counts them.

    By default accuracy for one class per image, else top-k matching with k as many as there are classes in an image.
    """
    sheet = read_scores(scores)
    present = read_labels(labels, sheet)
    n, classes = present.shape
    several = bool((present.sum(1) > 1).any())
    result: dict[str, Any] = {"n": n, "classes": classes, "labels": "several classes" if several else "one class"}
    for name in probes or (("top_k_matching" if several else "accuracy"),):
        word = name.replace("-", "_")
        if word not in PROBES:
            raise SaccadeError(suggest("probe of score files", name, PROBES))
        result[word] = accuracy(sheet.values, present) if word == "accuracy" else matching(sheet.values, present, k)
    return result


def accuracy(scores: Numbers, present: NDArray[np.bool_]) -> dict[str, Any]:
    """How often the class with the highest score is present, with its Wilson interval over images."""
    right = int((top(scores, 1) & present).sum())
    share = stats.proportion(right, len(scores))
    return {
        "value": share.value,
        "low": share.low,
        "high": share.high,
        "level": share.level,
        "n": share.n,
        "right": right,
        "by_chance": float(present.mean()),
        "ties": ties(scores, 1),
    }


def matching(scores: Numbers, present: NDArray[np.bool_], k: int = 0) -> dict[str, Any]:
    """How many of the k highest classes are present: mean with t interval over images, histogram, and by chance."""
    import numpy as np

    shown, classes = present.sum(1), scores.shape[1]
    if not k:
        if shown.min() != shown.max():
            raise SaccadeError(
                f"images show from {shown.min()} to {shown.max()} classes; say how many answers count, as in --k 4."
            )
        k = int(shown[0]) if shown[0] > 1 else min(K, classes)
    counts = (top(scores, k) & present).sum(1)
    mean = stats.estimate(counts.tolist())
    blind = (
        np.mean([by_chance(classes, int(m), k) for m in shown], 0)
        if shown.min() != shown.max()
        else np.array(by_chance(classes, int(shown[0]), k))
    )
    finite = math.isfinite(mean.low)
    return {
        "k": k,
        "mean": mean.value,
        "low": mean.low if finite else None,
        "high": mean.high if finite else None,
        "level": mean.level,
        "n": mean.n,
        "histogram": np.bincount(counts, minlength=k + 1).tolist(),
        "by_chance": {"mean": k * float(shown.mean()) / classes, "histogram": blind.tolist()},
        "ties": ties(scores, k),
    }


def sentences(result: dict[str, Any]) -> Iterator[str]:
    """What `compare` found, to be read."""
    yield f"{result['n']:,} images, {result['classes']} classes"
    if "accuracy" in result:
        a = result["accuracy"]
        yield (
            f"accuracy {100 * a['value']:.2f} % [{100 * a['low']:.2f}, {100 * a['high']:.2f}] (95 % Wilson interval "
            f"over images); by chance {100 * a['by_chance']:.2f} %"
        )
    if "top_k_matching" in result:
        m = result["top_k_matching"]
        interval = "" if m["low"] is None else f" [{m['low']:.3f}, {m['high']:.3f}] (95 % t interval over images)"
        yield f"top-{m['k']} matching {m['mean']:.4g}{interval}; by chance {m['by_chance']['mean']:.4g}"
        yield "matches    " + "".join(f"{i:>8}" for i in range(m["k"] + 1))
        yield "images     " + "".join(f"{count:>8}" for count in m["histogram"])
        yield "share      " + "".join(f"{count / m['n']:>8.4f}" for count in m["histogram"])
        yield "by chance  " + "".join(f"{share:>8.4f}" for share in m["by_chance"]["histogram"])
    for name in PROBES:
        if result.get(name, {}).get("ties"):
            yield (
                f"{result[name]['ties']:,} images have equal scores at the edge of what counts for {name}; there "
                "the class with the lower number goes first"
            )
