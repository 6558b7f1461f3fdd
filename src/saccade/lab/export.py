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

from saccade.errors import quoted
from saccade.lab import registration, seeds, wall
from saccade.lab.shapes import is_description, is_end, is_measurement
from saccade.lab.store import Lab, seal, unseal, write_atomic
from saccade.spec import DamagedFile, Run, SaccadeError

FORMAT = "saccade-export-1"
LONGEST = 2**24  # characters of a line: far above any run, far below what would fill a memory
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
    """Import into a lab. Runs that it has keep their files; rows that they lack are added. All is checked first.

    It is read twice, a line at a time: what a small file unpacks to need not fit into memory.
    """
    for document in _documents(source):
        _check(source, document)
    lab.open()
    added, here, rows = [], [], 0
    for document in _documents(source):
        if "study" in document:
            _take(lab.study_folder(document["study"]), document["document"])
            continue
        key = document["key"]
        if lab.done(key) is None:
            lab.adopt(key, document["described"], {**document["done"], "files": {}, "exported": True}, document["rows"])
            added.append(key)
            continue
        here.append(key)
        rows += lab.add_rows(key, document["rows"])
    return Imported(tuple(added), tuple(here), rows)


def _take(path: Path, document: Mapping[str, Any]) -> None:
    """A study's own file: as it comes where there is none, else the later state, or what both labs asked for."""
    if path.exists() and path.name == seeds.FILE:
        seeds.write(path.parent, seeds.joined(seeds.read(path.parent), seeds.parse(document)))
    elif (
        not path.exists()
        or (path.name == wall.FILE and wall.is_longer(document, path))
        or (path.name == registration.FILE and registration.goes_on(document, path))
    ):
        write_atomic(path, seal(document))


def _documents(source: Path) -> Iterator[dict[str, Any]]:
    """The lines between the first and the last, which must be right too; anything else is refused in one sentence."""
    whole, before = hashlib.sha256(), ""
    try:
        with lzma.open(source, "rt", encoding="utf-8") as lines:
            if json.loads(lines.readline(LONGEST)) != {"format": FORMAT}:
                raise DamagedFile(f"{source} is of another format; export it again.")
            whole.update(json.dumps({"format": FORMAT}).encode() + b"\n")
            while line := lines.readline(LONGEST):
                if before:
                    whole.update(before.encode())
                    yield dict(json.loads(before))
                before = line
        if json.loads(before)["sha256"] == whole.hexdigest():
            return
    except FileNotFoundError:
        raise SaccadeError(f"no file {source}; saccade lab export FILE makes one.") from None
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError, RecursionError):
        raise DamagedFile(f"{source} is no whole export of saccade; export it again.") from None
    raise DamagedFile(f"{source} does not match its checksum; export it again.")


def _check(source: Path, document: Mapping[str, Any]) -> None:
    """A run must be what its key says, names must be names, and everything must be what the lab may write."""
    what = "a file of a study" if "study" in document else "a run"
    try:
        if "study" in document:
            parts = [document["document"]]
            right = "key" not in document and bool(PLACE.fullmatch(document["study"]))
            if right and document["study"].endswith(f"/{seeds.FILE}"):
                seeds.parse(document["document"])
        else:
            parts = [document["described"], document["done"], *document["rows"].values()]
            right = Run.parse(document["described"]["run"]).key == document["key"]
            right = right and is_description(document["described"]) and is_end(document["done"])
            right = right and all(NAME.fullmatch(n) and is_measurement(d) for n, d in document["rows"].items())
        right = right and all("sha256" not in part and bool(seal(part)) for part in parts)
    except (KeyError, TypeError, AttributeError, ValueError, SaccadeError):
        right = False
    if not right:
        named = quoted(document.get("key", document.get("study", "")))
        raise DamagedFile(f"{source} holds {what} that is not what its key says ({named}); export it again.")
