"""A table of numbers from a file, as people have them: text with any separator and quotes, a header or none, .npy."""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.errors import SaccadeError, quoted, suggest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

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
# What a header calls a column of classes.
LABEL = {"label", "labels", "target", "targets", "truth", "ground_truth", "gt", "y_true", "class", "class_id"}
ANSWER = {"prediction", "predictions", "predicted", "pred", "y_pred"}
SHOWN = 40  # characters of a cell that a sentence quotes
APART = "\x1f"  # between cells of lines that had quotes: no cell has it
QUOTES = str.maketrans(dict.fromkeys("“”„‟«»", '"'))  # of word processors and of other languages
PLAIN = "give plain numbers; only the first column may say which image a row is of"


@dataclass(frozen=True)
class Sheet:
    """The numbers of a file, the line that each row stands on, and which images the rows are of, where it says so."""

    file: str
    values: Numbers
    lines: Sequence[int]
    ids: Sequence[str] = ()
    names: Sequence[str] = ()  # of its columns of numbers, where a header gives them
    word: str = "line"  # what `lines` counts

    def where(self, row: int) -> str:
        return f"{self.file}, {self.word} {self.lines[row]}"


@dataclass(frozen=True)
class Line:
    """A line of the file by its number, with `mark` between its cells (None: any space)."""

    number: int
    text: str
    mark: str | None

    def cells(self) -> list[str]:
        return [cell.strip() for cell in self.text.split(self.mark)]

    def first(self) -> str:
        return self.text.lstrip().split(self.mark, 1)[0].strip()


def read(file: str | Path, classes: Sequence[str] = (), *, labels: bool = False) -> Sheet:
    """Numbers separated by commas, semicolons, tabs or spaces, or an array that numpy saved (.npy).

    Lines that begin with # are passed over. A first line of words, or one that counts the columns 0, 1, 2 ..., is a
    header. A first column of words says which image a row is of, and so does one that a header calls by nothing or by
    a word such as index or image_id. Beside semicolons and tabs a comma is a decimal point. With `labels`, a column
    that the header calls label is the one that counts, and one of the names of `classes` stands for its number.
    """
    if Path(file).suffix == ".npy":
        return _array(Path(file))
    rows = _lines(file)
    first = rows[0].cells()
    bare = labels and len(first) <= 2 and first[-1] in classes  # labels in words, without a header
    header = not bare and _is_header(first, rows[1].cells() if rows[1:] else [])
    names: Sequence[str] = first if header else ()
    if header:
        rows = rows[1:]
    if not rows:
        raise SaccadeError(f"{file} has a header and no numbers below it; give one row per image.")
    wide = len(rows[0].cells())
    ids: Sequence[str] = ()
    if header and len(names) == wide - 1:  # a header of spaces cannot show an empty name
        named = True
    elif header and len(names) != wide:
        raise SaccadeError(
            f"{file} has {len(names)} names in its header and {wide} columns below it; give each column one name."
        )
    else:
        named = wide > 1 and (_says_which(names[0], rows) if header else bare or _is_name(first[0]))
        names = names[1:] if named else names
    if named:
        ids, rows, wide = [r.first() for r in rows], _without_first(rows), wide - 1
    if labels and wide > 1:
        rows, names = _labels_alone(rows, names)
        wide = len(rows[0].cells())
    if labels and wide == 1:
        rows = _numbered(str(file), rows, classes)
    values = _numbers(str(file), rows, before=bool(ids))
    if header and not ids and wide > 2 and _looks_like_ids(values):
        raise SaccadeError(
            f"the first column of {file} ({first[0]}) has a whole number of its own in every row, and looks like one "
            "that says which image a row is of; call it id in the header, or leave it out."
        )
    return Sheet(str(file), values, [r.number for r in rows], ids, names)


# -- lines and cells


def _lines(file: str | Path) -> list[Line]:
    """The lines that are no comments, with the mark that separates their cells."""
    text = _text(Path(file)).translate(QUOTES)
    raw = [(i, line) for i, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#")]
    while raw and not raw[-1][1].strip():
        raw.pop()
    if not raw:
        raise SaccadeError(f"{file} has no numbers in it; give one row per image.")
    for i, line in raw:
        if not line.strip():
            raise SaccadeError(f"{file}, line {i} is empty; every image needs its row.")
    mark = _mark([line for _, line in raw[:3]])
    if '"' not in text:
        return [Line(i, line.strip() if mark is None else line, mark) for i, line in raw]
    split = csv.reader((line for _, line in raw), delimiter=mark or " ", skipinitialspace=True)
    try:
        return [Line(i, APART.join(cells), APART) for (i, _), cells in zip(raw, split, strict=True)]
    except (csv.Error, ValueError):
        raise SaccadeError(f"{file} has a quote that is not closed; save it again, best without quotes.") from None


def _mark(lines: Sequence[str]) -> str | None:
    """What separates cells: a semicolon or a tab wherever every line has one, as a comma is then a decimal point."""
    return next((m for m in (";", "\t", ",") if all(m in line for line in lines)), None) or (
        next((m for m in (",", ";", "\t") if m in lines[0]), None)
    )


def _text(file: Path) -> str:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise SaccadeError(f"{file} cannot be read ({error.strerror}); give the path of a text file.") from None
    try:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):  # as spreadsheets save "Unicode text"
            return raw.decode("utf-16")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        if re.search(rb"[\x00-\x08\x0e-\x1f]", raw):
            raise SaccadeError(
                f"{file} is not a text file; give numbers as text, comma or space separated, or as an array in .npy."
            ) from None
        return raw.decode("latin-1")  # names of older programs; numbers are the same in all of them


def _array(file: Path) -> Sheet:
    import numpy as np

    try:
        values = np.load(file, allow_pickle=False)
    except OSError as error:
        raise SaccadeError(f"{file} cannot be read ({error.strerror or error}); give the path of a file.") from None
    except (ValueError, EOFError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise SaccadeError(f"{file} cannot be read as an array of numbers ({why}); save it with numpy.save.") from None
    if values.ndim not in (1, 2) or not values.size or values.dtype.kind not in "biuf":
        raise SaccadeError(
            f"{file} holds an array of shape {values.shape} and type {values.dtype}; one row of numbers per image is "
            "needed."
        )
    values = values.reshape(len(values), -1).astype(float)
    lines = range(1, len(values) + 1)
    _check_finite(str(file), values, lines, "row")
    return Sheet(str(file), values, lines, word="row")


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None if "," not in cell else _number(cell.replace(",", ".", 1).replace(",", "x"))


# -- what columns are


def _is_header(first: Sequence[str], below: Sequence[str]) -> bool:
    """Whether the first line names columns. An image's own name before its scores is no header."""
    words = [i for i, cell in enumerate(first) if _number(cell) is None]
    counts = [cell for i, cell in enumerate(first) if i not in words]
    if not words:
        return len(first) > 2 and _counted(counts, 0)
    if not counts:
        return True
    if words == [0]:  # a name and numbers: numbers of classes, or already the scores of an image
        if len(counts) < 2 or not all(c.isdigit() for c in counts) or len(set(counts)) < len(counts):
            return False
        like_below = bool(below) and Path(first[0]).suffix not in ("", ".") and Path(first[0]).suffix in below[0]
        return not like_below and not any(c.isdigit() for c in first[0].removeprefix("Unnamed: 0"))
    numbers_below = all(i < len(below) and _number(below[i]) is not None for i in words if i)
    return numbers_below and (_counted(counts, 0) or _counted(counts, 1))


def _counted(cells: Sequence[str], start: int) -> bool:
    return list(cells) == [str(i) for i in range(start, start + len(cells))]


def _says_which(name: str, rows: Sequence[Line]) -> bool:
    """Whether the first column, of this name, says which image a row is of."""
    lower = name.lower()
    cells = [row.first() for row in rows]
    if lower in LABEL | ANSWER:
        return False
    if lower in INDEX or all(map(_is_name, cells)):
        return True
    if not any(part in PERHAPS for part in re.split(r"[^a-z0-9]+", lower) if part):
        return False
    numbers = [_number(cell) for cell in cells]
    return all(n is None or n == round(n) for n in numbers if n is None or math.isfinite(n))


def _is_name(cell: str) -> bool:
    return bool(cell) and _number(cell) is None


def _without_first(rows: Sequence[Line]) -> list[Line]:
    return [Line(r.number, "".join(r.text.lstrip().split(r.mark, 1)[1:]), r.mark) for r in rows]


def _labels_alone(rows: list[Line], names: Sequence[str]) -> tuple[list[Line], Sequence[str]]:
    """Of a table about the images, the one column that its header calls label."""
    called = [i for i, name in enumerate(names) if name.lower() in LABEL]
    if len(called) != 1 or any(len(row.cells()) != len(names) for row in rows):
        return rows, names
    (place,) = called
    return [Line(r.number, r.cells()[place], APART) for r in rows], [names[place]]


def _numbered(file: str, rows: list[Line], classes: Sequence[str]) -> list[Line]:
    """Labels in words as numbers of the classes that they name; numbers stay what they are."""
    if all(_number(row.text) is not None for row in rows):
        return rows
    if not classes:
        line = next(row for row in rows if _number(row.text) is None)
        raise SaccadeError(
            f"{file}, line {line.number}, column 1 is {quoted(line.text.strip()[:SHOWN])}, not a number; labels in "
            "words need a header in the file of the scores, with the names of the classes."
        )
    known = {name: str(i) for i, name in enumerate(classes)}
    for row in rows:
        if row.text.strip() not in known:
            unknown = suggest("class", row.text.strip()[:SHOWN], classes, "as the header of the scores has them")
            raise SaccadeError(f"{file}, line {row.number}: {unknown}")
    return [Line(row.number, known[row.text.strip()], None) for row in rows]


def _looks_like_ids(values: Numbers) -> bool:
    import numpy as np

    first, rest = values[:, 0], values[:, 1:]
    whole = bool((first == np.round(first)).all()) and len(np.unique(first)) == len(first)
    return whole and len(first) > 2 and not bool((rest == np.round(rest)).all())


# -- numbers


def _numbers(file: str, rows: Sequence[Line], before: int) -> Numbers:
    """Of all columns but those `before`, which were taken away; sentences count them."""
    import numpy as np

    mark = rows[0].mark
    try:  # numpy's own reader is quick, and silent about where it stopped
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as for a file without any number
            values = np.loadtxt([row.text for row in rows], float, comments=None, delimiter=mark, ndmin=2)
    except (ValueError, UserWarning):
        values = np.array(list(_slowly(file, rows, before)))
    _check_finite(file, values, [row.number for row in rows], "line", before)
    return values


def _check_finite(file: str, values: Any, lines: Sequence[int], word: str, before: int = 0) -> None:
    import numpy as np

    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        row, column = wrong[0].tolist()
        what = "not a number (NaN)" if np.isnan(values[row, column]) else "infinite"
        raise SaccadeError(
            f"{file}, {word} {lines[row]}, column {before + column + 1} is {what}; "
            "leave out images without an answer in both files."
        )


def _slowly(file: str, rows: Sequence[Line], before: int) -> Iterator[list[float]]:
    wide = len(rows[0].cells())
    for row in rows:
        cells = row.cells()
        if len(cells) != wide:
            raise SaccadeError(
                f"{file}, line {row.number} has {before + len(cells)} columns and the first row has {before + wide}; "
                "every row needs as many."
            )
        numbers = [_number(cell) for cell in cells]
        if None in numbers:
            column = numbers.index(None)
            what = f"{quoted(cells[column][:SHOWN])}, not a number" if cells[column] else "empty"
            raise SaccadeError(f"{file}, line {row.number}, column {before + column + 1} is {what}; {PLAIN}.")
        yield [n for n in numbers if n is not None]
