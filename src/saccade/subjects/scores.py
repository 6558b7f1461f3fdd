"""Scores of any model, held against labels: top-1 accuracy and top-k matching, from a probe or from files.

Among equal scores the class with the lower number comes first; `ties` counts the pictures where that decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade import stats
from saccade.spec import SaccadeError, suggest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

PROBES = ("accuracy", "top_k_matching")
INDEX = {"", "index", "id", "idx", "unnamed: 0", "row"}  # what a header may call a column of row numbers
K = 4  # where labels do not say how many classes a picture shows
SHOWN = 40  # characters of a cell that a sentence quotes


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


@dataclass(frozen=True)
class Sheet:
    """The numbers of a file, and the line that each row stands on."""

    file: str
    values: Numbers
    lines: Sequence[int]

    def where(self, row: int) -> str:
        return f"{self.file}, line {self.lines[row]}"


def read(file: str | Path) -> Sheet:
    """Numbers separated by commas, semicolons, tabs or spaces; lines that begin with # are passed over.

    A first line that is not all numbers, or that counts the columns 0, 1, 2 ..., is a header. Where a header calls the
    first column by nothing, or by a word such as index, that column holds row numbers and is left out.
    """
    text = _text(Path(file)).replace('"', "")
    rows = [(i, line) for i, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#")]
    while rows and not rows[-1][1].strip():
        rows.pop()
    if not rows:
        raise SaccadeError(f"{file} has no numbers in it.")
    for i, line in rows:
        if not line.strip():
            raise SaccadeError(f"{file}, line {i} is empty; every picture needs its row.")
    mark = next((m for m in (",", ";", "\t") if m in rows[0][1]), None)
    first, names = _cells(rows[0][1], mark), False
    counted = len(first) > 2 and first == [str(i) for i in range(len(first))]
    if counted or any(_number(cell) is None for cell in first):
        rows, names = rows[1:], True
        if not rows:
            raise SaccadeError(f"{file} has a header and no numbers below it.")
    values = _numbers(str(file), rows, mark)
    # A header of spaces cannot show an empty name; then it has one name fewer than there are columns.
    if names and values.shape[1] > 1 and (first[0].lower() in INDEX or len(first) == values.shape[1] - 1):
        values = values[:, 1:]
    elif names and len(first) != values.shape[1]:
        raise SaccadeError(f"{file} has {len(first)} names in its header and {values.shape[1]} columns below it.")
    return Sheet(str(file), values, [i for i, _ in rows])


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise SaccadeError(f"{file} is not a text file; give numbers as text, comma or space separated.") from None
    except OSError as error:
        raise SaccadeError(f"{file} cannot be read ({error.strerror}); give the path of a text file.") from None


def _cells(line: str, mark: str | None) -> list[str]:
    return [cell.strip() for cell in line.split(mark)]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _numbers(file: str, rows: list[tuple[int, str]], mark: str | None) -> Numbers:
    import numpy as np

    try:  # numpy's own reader is quick, and silent about where it stopped
        values = np.loadtxt([line for _, line in rows], float, comments=None, delimiter=mark, ndmin=2)
    except ValueError:
        values = np.array(list(_slowly(file, rows, mark)))
    wrong = np.argwhere(np.isnan(values))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise SaccadeError(
            f"{file}, line {rows[row][0]}, column {column + 1} is not a number (NaN); "
            "leave out pictures without an answer in both files."
        )
    return values


def _slowly(file: str, rows: list[tuple[int, str]], mark: str | None) -> Iterator[list[float]]:
    wide = len(_cells(rows[0][1], mark))
    for i, line in rows:
        cells = _cells(line, mark)
        if len(cells) != wide:
            raise SaccadeError(f"{file}, line {i} has {len(cells)} columns and the first row has {wide}.")
        for column, cell in enumerate(cells, 1):
            if _number(cell) is None:
                what = f'"{cell[:SHOWN]}", not a number' if cell else "empty"
                raise SaccadeError(f"{file}, line {i}, column {column} is {what}.")
        yield [float(cell) for cell in cells]


def read_scores(file: str | Path) -> Sheet:
    """(n, classes), one row a picture."""
    import numpy as np

    sheet = read(file)
    n, classes = sheet.values.shape
    if classes < 2:
        raise SaccadeError(f"{file} has one column; scores need one for each class.")
    if n > 2 and np.array_equal(sheet.values[:, 0] - sheet.values[0, 0], np.arange(n)):
        raise SaccadeError(
            f"the first column of {file} counts its rows and is no score; leave it out, or name it index in a header."
        )
    return sheet


def read_labels(file: str | Path, scores: Sheet) -> NDArray[np.bool_]:
    """(n, classes): which classes a picture shows, from numbers of classes or from rows of 0 and 1."""
    import numpy as np

    sheet = read(file)
    (n, classes), values = scores.values.shape, sheet.values
    if len(values) == 1 < n == values.shape[1] != classes:  # all numbers in one line
        sheet = Sheet(sheet.file, values.T, list(sheet.lines) * n)
        values = sheet.values
    if values.shape[1] not in (1, classes):
        raise SaccadeError(
            f"{file} has {values.shape[1]} columns and {scores.file} has {classes}; labels are one "
            f"number of a class a row, or {classes} numbers 0 or 1."
        )
    if len(values) != n:
        raise SaccadeError(
            f"{file} has {len(values)} rows and {scores.file} has {n}; both need one row a picture, in the same order."
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


def compare(scores: str | Path, labels: str | Path, probes: Sequence[str] = (), k: int = 0) -> dict[str, Any]:
    """What score files say, as plain values. Images are the replicates: n counts them.

    By default accuracy for one class a picture, else top-k matching with k as many as there are classes in a picture.
    """
    sheet = read_scores(scores)
    present = read_labels(labels, sheet)
    n, classes = present.shape
    several = bool((present.sum(1) > 1).any())
    told: dict[str, Any] = {"n": n, "classes": classes, "labels": "several classes" if several else "one class"}
    for name in probes or (("top_k_matching" if several else "accuracy"),):
        word = name.replace("-", "_")
        if word not in PROBES:
            raise SaccadeError(suggest("probe of score files", name, PROBES))
        told[word] = accuracy(sheet.values, present) if word == "accuracy" else matching(sheet.values, present, k)
    return told


def accuracy(scores: Numbers, present: NDArray[np.bool_]) -> dict[str, Any]:
    """How often the class with the highest score is present, with its Wilson interval over pictures."""
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
    """How many of the k highest classes are present: mean with t interval over pictures, histogram, and by chance."""
    import numpy as np

    shown, classes = present.sum(1), scores.shape[1]
    if not k:
        if shown.min() != shown.max():
            raise SaccadeError(
                f"pictures show from {shown.min()} to {shown.max()} classes; say how many answers count, as in --k 4."
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


def sentences(told: dict[str, Any]) -> Iterator[str]:
    """What `compare` found, to be read."""
    yield f"{told['n']:,} pictures, {told['classes']} classes"
    if "accuracy" in told:
        a = told["accuracy"]
        yield (
            f"accuracy {100 * a['value']:.2f} % [{100 * a['low']:.2f}, {100 * a['high']:.2f}] (95 % Wilson interval "
            f"over pictures); by chance {100 * a['by_chance']:.2f} %"
        )
    if "top_k_matching" in told:
        m = told["top_k_matching"]
        interval = "" if m["low"] is None else f" [{m['low']:.3f}, {m['high']:.3f}] (95 % t interval over pictures)"
        yield f"top-{m['k']} matching {m['mean']:.4g}{interval}; by chance {m['by_chance']['mean']:.4g}"
        yield "matches    " + "".join(f"{i:>8}" for i in range(m["k"] + 1))
        yield "pictures   " + "".join(f"{count:>8}" for count in m["histogram"])
        yield "share      " + "".join(f"{count / m['n']:>8.4f}" for count in m["histogram"])
        yield "by chance  " + "".join(f"{share:>8.4f}" for share in m["by_chance"]["histogram"])
    for name in PROBES:
        if told.get(name, {}).get("ties"):
            yield (
                f"{told[name]['ties']:,} pictures have equal scores at the edge of what counts for {name}; there "
                "the class with the lower number goes first"
            )
