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
    folder = (lab.root / "profiles").resolve()
    if not folder.is_dir() or not folder.is_relative_to(lab.root.resolve()):
        return {}
    files = {}
    for path in folder.glob("*/profile.json"):
        name = path.parent.name
        if re.fullmatch(r"[\w.@:+=-]{1,200}", name) and path.resolve() == folder / name / "profile.json":
            files[name] = path
    return files


def all_of(lab: Lab) -> list[dict[str, Any]]:
    """Every profile; one that cannot be read is listed with the sentence that says so."""
    profiles = []
    for name in names(lab):
        try:
            profiles.append(read(lab, name))
        except SaccadeError as error:
            profiles.append({"id": name, "name": name, "error": str(error)})
    return profiles


def read(lab: Lab, name: str) -> dict[str, Any]:
    files = _files(lab)
    if name not in files:
        raise SaccadeError(suggest("profile", name[:80], files, "saccade profile MODEL makes one"))
    if files[name].stat().st_size > LARGEST:
        raise SaccadeError(f"the profile {name} is too large to be one; make it again with saccade profile.")
    try:
        content = profile.load(files[name]).plain()
    except SaccadeError:
        raise SaccadeError(f"the profile {name} is damaged; make it again with saccade profile.") from None
    return {"id": name, **{k: v for k, v in content.items() if k not in LEFT_OUT}}
