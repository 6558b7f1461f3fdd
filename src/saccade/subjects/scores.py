"""Scores of any model, held against labels: top-1 accuracy and top-k matching, from a probe or from files.

Among equal scores the class with the lower number comes first; `ties` counts the images where that decides.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade import stats
from saccade.errors import SaccadeError, quoted, suggest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

PROBES = ("accuracy", "top_k_matching")
INDEX = {
    "",
    "index",
    "id",
    "idx",
    "unnamed: 0",
    "row",
}  # what a header calls a column that says which image a row is of
# So may these, also as a part of a name as in image_id; but a class may be called so too, and the cells decide.
PERHAPS = {
    *INDEX,
    "ids",
    "image",
    "img",
    "picture",
    "sample",
    "file",
    "filename",
    "name",
    "path",
    "uid",
    "key",
    "number",
}
K = 4  # where labels do not say how many classes an image shows
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
    """The numbers of a file, the line that each row stands on, and which images the rows are of, where it says so."""

    file: str
    values: Numbers
    lines: Sequence[int]
    ids: Sequence[str] = ()
    names: Sequence[str] = ()  # of its columns of numbers, where a header gives them

    def where(self, row: int) -> str:
        return f"{self.file}, line {self.lines[row]}"


def read(file: str | Path, classes: Sequence[str] = ()) -> Sheet:
    """Numbers separated by commas, semicolons, tabs or spaces; lines that begin with # are passed over.

    A first line that is not all numbers, or that counts the columns 0, 1, 2 ..., is a header. Where a header calls the
    first column by nothing, or by a word such as index or image_id, that column says which image a row is of. Where
    `classes` are named, one of these names stands for its number in a column of labels.
    """
    text = _text(Path(file)).replace('"', "")
    rows = [(i, line) for i, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#")]
    while rows and not rows[-1][1].strip():
        rows.pop()
    if not rows:
        raise SaccadeError(f"{file} has no numbers in it.")
    for i, line in rows:
        if not line.strip():
            raise SaccadeError(f"{file}, line {i} is empty; every image needs its row.")
    mark = next((m for m in (",", ";", "\t") if m in rows[0][1]), None)
    first, names = _cells(rows[0][1], mark), False
    counted = len(first) > 2 and first == [str(i) for i in range(len(first))]
    bare = len(first) <= 2 and first[-1] in classes  # labels in words, without a header
    if counted or (any(_number(cell) is None for cell in first) and not bare):
        rows, names = rows[1:], True
        if not rows:
            raise SaccadeError(f"{file} has a header and no numbers below it.")
    lines, wide = [i for i, _ in rows], len(_cells(rows[0][1], mark))
    ids: Sequence[str] = ()
    # A header of spaces cannot show an empty name; then it has one name fewer than there are columns.
    if (names and wide > 1 and (_says_which(first[0], rows, mark) or len(first) == wide - 1)) or (bare and wide == 2):
        ids, rows = _apart(rows, mark)
    elif names and len(first) != wide:
        raise SaccadeError(f"{file} has {len(first)} names in its header and {wide} columns below it.")
    if classes and wide - bool(ids) == 1:
        rows = _numbered(str(file), rows, classes)
    values = _numbers(str(file), rows, mark)
    if names and not ids and wide > 2 and _looks_like_ids(values):
        raise SaccadeError(
            f"the first column of {file} ({first[0]}) has a whole number of its own in every row, and looks like one "
            "that says which image a row is of; call it id in the header, or leave it out."
        )
    return Sheet(str(file), values, lines, ids, first[-values.shape[1] :] if names else ())


def _says_which(name: str, rows: list[tuple[int, str]], mark: str | None) -> bool:
    """Whether the first column, of this name, says which image a row is of."""
    lower = name.lower()
    if lower in INDEX or not any(part in PERHAPS for part in re.split(r"[^a-z0-9]+", lower) if part):
        return lower in INDEX
    numbers = [_number(_cells(line, mark)[0]) for _, line in rows]
    return all(n is None or n == round(n) for n in numbers if n is None or math.isfinite(n))


def _apart(rows: list[tuple[int, str]], mark: str | None) -> tuple[list[str], list[tuple[int, str]]]:
    """The first column, and the rows without it."""
    split = [(i, line.strip().split(mark, 1)) for i, line in rows]
    return [cells[0].strip() for _, cells in split], [(i, "".join(cells[1:])) for i, cells in split]


def _numbered(file: str, rows: list[tuple[int, str]], classes: Sequence[str]) -> list[tuple[int, str]]:
    """Labels in words as numbers of the classes that they name; numbers stay what they are."""
    if all(_number(cell) is not None for _, cell in rows):
        return rows
    known = {name: str(i) for i, name in enumerate(classes)}
    for line, cell in rows:
        if cell.strip() not in known:
            one = suggest("class", cell.strip()[:SHOWN], classes)
            raise SaccadeError(f"{file}, line {line}: {one}")
    return [(line, known[cell.strip()]) for line, cell in rows]


def _looks_like_ids(values: Numbers) -> bool:
    import numpy as np

    first, rest = values[:, 0], values[:, 1:]
    whole = bool((first == np.round(first)).all()) and len(np.unique(first)) == len(first)
    return whole and len(first) > 2 and not bool((rest == np.round(rest)).all())


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
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as for a file without any number
            values = np.loadtxt([line for _, line in rows], float, comments=None, delimiter=mark, ndmin=2)
    except (ValueError, UserWarning):
        values = np.array(list(_slowly(file, rows, mark)))
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row, column = wrong[0].tolist()
        what = "not a number (NaN)" if np.isnan(values[row, column]) else "infinite"
        raise SaccadeError(
            f"{file}, line {rows[row][0]}, column {column + 1} is {what}; "
            "leave out images without an answer in both files."
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
    """(n, classes), one row per image."""
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
    """(n, classes): which classes an image shows, from numbers of classes or from rows of 0 and 1."""
    import numpy as np

    sheet = read(file, scores.names)
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
            f"{file} has {len(values)} rows and {scores.file} has {n}; both need one row per image, in the same order."
        )
    _same_images(sheet, scores)
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


def _same_images(labels: Sheet, scores: Sheet) -> None:
    """Where both files say which image a row is of, they must say the same."""
    for row, (one, other) in enumerate(zip(labels.ids, scores.ids, strict=False)):
        if one != other and (_number(one) is None or _number(one) != _number(other)):
            raise SaccadeError(
                f"{labels.where(row)} is of image {quoted(one)} and {scores.where(row)} of image {quoted(other)}; both "
                "files need the same images in the same order."
            )


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
