"""Wall time of a study's sittings (calls that trained or measured), kept beside its report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saccade.lab.shapes import is_number
from saccade.lab.store import seal, unseal, write_atomic
from saccade.spec import DamagedFile

FILE = "wall.json"


@contextmanager
def measured(folder: Path, jobs: int) -> Iterator[None]:
    """Adds what happens inside to the folder's time, also when it is interrupted."""
    began = time.monotonic()
    try:
        yield
    finally:
        earlier = _kept(folder)
        seconds = earlier.get("seconds", 0.0) + time.monotonic() - began
        document = {"seconds": seconds, "jobs": jobs, "sittings": earlier.get("sittings", 0) + 1}
        write_atomic(folder / FILE, seal(document))


def is_longer(document: Mapping[str, Any], path: Path) -> bool:
    """Whether an exported time is of a later state than the lab's own: a campaign's clock only goes forward."""
    times = [*document.values()]
    return all(map(is_number, times)) and document.get("seconds", 0.0) > _kept(path.parent).get("seconds", 0.0)


def _kept(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    try:
        document = unseal(path) if path.exists() else {}
    except DamagedFile:
        return {}
    return document if all(map(is_number, document.values())) else {}


def of_study(folder: Path, parts: bool) -> dict[str, Any]:
    """Of the study's own sittings and, with `parts`, of those that did a part of it (`--only`)."""
    others = sorted(folder.parent.glob(f"{folder.name}-only-*")) if parts else []
    times = [one for one in map(_kept, (folder, *others)) if one]
    return {
        "seconds": sum(w["seconds"] for w in times),
        "jobs": max((w["jobs"] for w in times), default=0),
        "sittings": sum(w["sittings"] for w in times),
    }
