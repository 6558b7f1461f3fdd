"""What the documents of a lab must hold. A right checksum says that nothing changed by accident, not who wrote it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saccade.spec import Outcome


def is_number(value: Any) -> bool:
    """A number that a float can hold."""
    return isinstance(value, (int, float)) and -sys.float_info.max <= value <= sys.float_info.max


def are_rows(rows: Any) -> bool:
    """Whether this is a list of measurements: metric, value, n, and a condition."""
    return isinstance(rows, list) and all(
        isinstance(r, Mapping)
        and isinstance(r.get("metric"), str)
        and is_number(r.get("value"))
        and isinstance(r.get("n"), int)
        and isinstance(r.get("at", {}), Mapping)
        and all(map(_is_condition, r.get("at", {}).values()))
        for r in rows
    )


def _is_condition(value: Any) -> bool:
    """One value, or a list of such; what is nested deeper cannot distinguish rows."""
    return not any(isinstance(v, (list, Mapping)) for v in (value if isinstance(value, list) else [value]))


def is_measurement(document: Mapping[str, Any]) -> bool:
    return (
        isinstance(document.get("probe"), str)
        and isinstance(document.get("settings"), Mapping)
        and isinstance(document.get("version"), int)
        and are_rows(document.get("rows"))
    )


def is_failure(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("version"), int) and isinstance(document.get("reason"), str)


def is_end(document: Mapping[str, Any]) -> bool:
    """How a run ended."""
    return (
        document.get("outcome") in list(Outcome)
        and isinstance(document.get("reason"), str)
        and is_number(document.get("seconds"))
        and isinstance(document.get("step"), int)
        and isinstance(document.get("files", {}), Mapping)
    )


def is_description(document: Mapping[str, Any]) -> bool:
    """What was asked (which `Run.parse` checks), and where it ran."""
    later = document.get("later", [])
    return (
        "run" in document
        and isinstance(later, list)
        and all(isinstance(f, Mapping) for f in (document.get("facts"), *later))
        and isinstance(document["facts"].get("versions", {}), Mapping)
    )


def shape_of(path: Path) -> tuple[Callable[[Mapping[str, Any]], bool], str]:
    """What a file of a run's folder must be, and the words for one that is not."""
    if path.parent.name == "rows":
        return is_measurement, "it holds no measurements"
    if path.parent.name == "failures":
        return is_failure, "it holds no reason"
    if path.name == "done.json":
        return is_end, "it does not say how its run ended"
    return is_description, "it does not say what was run and where"
