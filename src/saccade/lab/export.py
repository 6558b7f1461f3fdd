"""Finished runs as one compact file: specification, rows and curves, registration; no weights, no per-image outcomes.

A line of JSON per run, compressed with xz, with a checksum of all lines at its end. An imported lab draws every figure
and judges every claim again without training. The file names no paths, so that nothing outside the lab can be written.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.lab.store import Lab, are_rows, seal, unseal, write_atomic
from saccade.spec import DamagedFile, Run, SaccadeError

FORMAT = "saccade-export-1"
LONGEST = 2**26  # characters of a line: far above any run, far below what would fill a memory
# Rows of a probe, perhaps at a milestone. Bounded: a file system refuses long names with an error of its own.
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}(-[0-9a-f]{8})?(@0\.[0-9]{1,9})?\.json")
PLACE = re.compile(r"[a-z0-9_]{1,100}/[a-z0-9_-]{1,100}/(registration|looks|wall)\.json")


@dataclass(frozen=True)
class Imported:
    added: tuple[str, ...]
    already_here: tuple[str, ...]
    rows_added: int


def write(lab: Lab, target: Path, keys: Iterable[str] | None = None, studies: Iterable[str] = ()) -> int:
    """Export the finished runs among `keys` (all of the lab's by default); returns their number."""
    lines = [json.dumps({"format": FORMAT})]
    chosen = sorted(lab.keys() if keys is None else set(keys))
    for key in chosen:
        done = lab.done(key)
        if done is not None:
            if bad := lab.damage(key):
                raise DamagedFile(f"run {key} is damaged ({', '.join(bad)}); repair it with saccade lab verify first.")
            lines.append(json.dumps(_packed(lab, key, done), separators=(",", ":")))
    for place, document in sorted(_study_files(lab, set(studies))):
        lines.append(json.dumps({"study": place, "document": document}, separators=(",", ":")))
    text = "".join(line + "\n" for line in lines)
    text += json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
    write_atomic(target, lzma.compress(text.encode(), preset=6))
    return sum('"key":' in line[:12] for line in lines)


def _packed(lab: Lab, key: str, done: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": key,
        "described": lab.described(key),
        "done": {k: v for k, v in done.items() if k != "files"},
        "rows": {name: _without_attachment(document) for name, document in lab.all_rows(key)},
    }


def _without_attachment(document: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k != "each"}


def _study_files(lab: Lab, studies: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in lab.study_folder("").glob("*/*/*.json"):
        place = path.relative_to(lab.study_folder("")).as_posix()
        if PLACE.fullmatch(place) and (not studies or place.partition("/")[0] in studies):
            yield place, unseal(path)


def read(lab: Lab, source: Path) -> Imported:
    """Import into a lab. Runs that it has keep their files; rows that they lack are added. All is checked first."""
    documents = list(_lines(source))
    runs = [d for d in documents if "key" in d]
    for document in runs:
        _check(source, document)
    lab.open()
    added, here, rows = [], [], 0
    for document in runs:
        key = document["key"]
        if lab.done(key) is None:
            lab.adopt(key, document["described"], {**document["done"], "files": {}, "exported": True}, document["rows"])
            added.append(key)
            continue
        here.append(key)
        rows += lab.add_rows(key, document["rows"])
    for document in documents:
        if "study" in document and PLACE.fullmatch(str(document["study"])):
            path = lab.study_folder(document["study"])
            if not path.exists():
                write_atomic(path, seal(document["document"]))
    return Imported(tuple(added), tuple(here), rows)


def _lines(source: Path) -> Iterator[dict[str, Any]]:
    """The documents of an export whose checksum is right; anything else is refused in one sentence."""
    whole, last, found = hashlib.sha256(), "", []
    try:
        with lzma.open(source, "rt", encoding="utf-8") as lines:
            while line := lines.readline(LONGEST):
                if last:
                    whole.update(last.encode())
                    found.append(last)
                last = line
        checksum = json.loads(last)["sha256"]
        first = json.loads(found[0])
    except FileNotFoundError:
        raise SaccadeError(f"no file {source}; saccade lab export FILE makes one.") from None
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise DamagedFile(f"{source} is no whole export of saccade; export it again.") from None
    if checksum != whole.hexdigest() or first != {"format": FORMAT}:
        raise DamagedFile(f"{source} does not match its checksum or is of another format; export it again.")
    for line in found[1:]:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise DamagedFile(f"{source} holds a line that is no run; export it again.")
        yield document


def _check(source: Path, document: Mapping[str, Any]) -> None:
    """A run must be what its key says; names of rows must be names."""
    try:
        run = Run.parse(document["described"]["run"])
        right = run.key == document["key"] and isinstance(document["done"]["outcome"], str)
        right = right and all(NAME.fullmatch(name) and are_rows(d["rows"]) for name, d in document["rows"].items())
    except (KeyError, TypeError, AttributeError, SaccadeError):
        right = False
    if not right:
        raise DamagedFile(f"{source} holds a run that does not match its key ({document.get('key')}); export it again.")
