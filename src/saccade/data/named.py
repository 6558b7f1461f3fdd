"""What users call data: a set (cifar10), folder:PATH, or a construction. Names only; nothing is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade import registry
from saccade.data.fetch import sources
from saccade.errors import quoted
from saccade.spec import SaccadeError, suggest


def named(text: str, args: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """The registered construction and its arguments: a set is taken as photographs are, shifted and mirrored."""
    given = dict(args or {})
    kind, colon, path = text.partition(":")
    if colon and kind == "folder":
        name, given = "folder", {"folder": str(Path(path).expanduser()), **given}
        if not Path(given["folder"]).is_dir():
            raise SaccadeError(f"there is no folder {quoted(path)}; give one with a folder of images per class.")
    elif text.replace("-", "_") in registry.cards("data"):
        name = registry.card("data", text).name
    elif text in sources.known():
        name, given = "photos", {"of": text, **given}
    else:
        known = [*sources.known(), *registry.cards("data")]
        raise SaccadeError(suggest("data", text, known, "or folder:PATH"))
    registry.check_args("data", name, given)
    return name, given
