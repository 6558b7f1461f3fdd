"""Profiles of models that `saccade profile` left in the lab: lab/profiles/NAME.json, and NAME.html beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from saccade.lab.store import Lab
from saccade.spec import DamagedFile, SaccadeError, suggest

LARGEST = 20_000_000  # bytes; a profile has a few hundred rows


def names(lab: Lab) -> list[str]:
    """Profiles inside the lab; a link that leads out of it is not one."""
    return sorted(_files(lab))


def _files(lab: Lab) -> dict[str, Path]:
    home = (lab.root / "profiles").resolve()
    if not home.is_dir() or not home.is_relative_to(lab.root.resolve()):
        return {}
    return {
        path.stem: path
        for path in home.glob("*.json")
        if re.fullmatch(r"[\w.@:+=-]{1,200}", path.stem) and path.resolve().parent == home and path.is_file()
    }


def all_of(lab: Lab) -> list[dict[str, Any]]:
    """Every profile; one that cannot be read is listed with the sentence that says so."""
    found = []
    for name in names(lab):
        try:
            found.append(read(lab, name))
        except DamagedFile as error:
            found.append({"name": name, "error": str(error)})
    return found


def read(lab: Lab, name: str) -> dict[str, Any]:
    known = _files(lab)
    if name not in known:
        raise SaccadeError(suggest("profile", name[:80], known, "saccade profile MODEL makes one"))
    path = known[name]
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError
    except (ValueError, OSError, RecursionError):
        raise DamagedFile(f"{path.name} is damaged and cannot be read; make it again with saccade profile.") from None
    return {"name": name, **found}
