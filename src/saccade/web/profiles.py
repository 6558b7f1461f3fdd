"""Profiles of models that `saccade profile` left in the lab: lab/profiles/NAME/profile.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from saccade.lab.store import Lab
from saccade.report import profile
from saccade.spec import SaccadeError, suggest

LARGEST = 20_000_000  # bytes; a profile has a few hundred rows
LEFT_OUT = ("details",)  # every row of every probe: much, and not on the page


def names(lab: Lab) -> list[str]:
    """Profiles inside the lab; a link that leads out of it is not one."""
    return sorted(_files(lab))


def _files(lab: Lab) -> dict[str, Path]:
    home = (lab.root / "profiles").resolve()
    if not home.is_dir() or not home.is_relative_to(lab.root.resolve()):
        return {}
    found = {}
    for path in home.glob("*/profile.json"):
        name = path.parent.name
        if re.fullmatch(r"[\w.@:+=-]{1,200}", name) and path.resolve() == home / name / "profile.json":
            found[name] = path
    return found


def all_of(lab: Lab) -> list[dict[str, Any]]:
    """Every profile; one that cannot be read is listed with the sentence that says so."""
    found = []
    for name in names(lab):
        try:
            found.append(read(lab, name))
        except SaccadeError as error:
            found.append({"id": name, "name": name, "error": str(error)})
    return found


def read(lab: Lab, name: str) -> dict[str, Any]:
    known = _files(lab)
    if name not in known:
        raise SaccadeError(suggest("profile", name[:80], known, "saccade profile MODEL makes one"))
    if known[name].stat().st_size > LARGEST:
        raise SaccadeError(f"the profile {name} is too large to be one; make it again with saccade profile.")
    try:
        made = profile.load(known[name]).plain()
    except SaccadeError:
        raise SaccadeError(f"the profile {name} is damaged; make it again with saccade profile.") from None
    return {"id": name, **{k: v for k, v in made.items() if k not in LEFT_OUT}}
