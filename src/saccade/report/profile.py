"""A profile as a plain value: what was asked, what came out, what could not be asked. Nothing here needs torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.lab.store import write_atomic
from saccade.lab.table import Table
from saccade.report.figures import jsonable
from saccade.spec import Estimate, SaccadeError

VERSION = 1  # of the file; a reader refuses another one


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A built-in model's value for the same question, measured with the same settings."""

    name: str
    value: float
    about: str = ""  # recipe and seeds


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One row of the page. `each` holds what every single image gave, in the order of the data, where it is a mean."""

    key: str
    question: str
    probe: str
    unit: str  # percent, points, of 4, share, sides, count, milliseconds
    estimate: Estimate
    accuracy: Estimate | None = None  # right answers under the same change
    says: str = ""
    references: tuple[Reference, ...] = ()
    each: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """`facts` and `data` say what was asked and with what; `details` are all rows of all probes, flat."""

    name: str
    facts: Mapping[str, Any]
    data: Mapping[str, Any]
    reading: str
    way: str
    rows: tuple[Measured, ...]
    skipped: Mapping[str, str]
    notes: tuple[str, ...]
    details: tuple[Mapping[str, Any], ...]
    seconds: float
    n: int

    def row(self, key: str) -> Measured:
        for one in self.rows:
            if one.key == key:
                return one
        why = self.skipped.get(key)
        raise SaccadeError(f"the profile of {self.name} has no row {key}" + (f": {why}" if why else "."))

    def table(self) -> Table:
        """Every row of every probe, to filter, or as pandas or polars."""
        return Table(self.details)

    def plain(self) -> dict[str, Any]:
        """In JSON's own types, without what single images gave."""
        rows = [{k: v for k, v in vars(one).items() if k != "each"} for one in self.rows]
        scalars = {k: v for k, v in vars(self).items() if k != "rows"}
        return jsonable({"version": VERSION, **scalars, "rows": rows})  # type: ignore[no-any-return]

    def _repr_html_(self) -> str:
        from saccade.report import profile_page as page

        return page.fragment(self)

    def __repr__(self) -> str:
        from saccade.report import profile_page as page

        return "\n".join(page.lines(self))

    def save(self, folder: str | Path) -> dict[str, Path]:
        """profile.json, profile.md and profile.html in a folder."""
        from saccade.report import profile_page as page

        root = Path(folder)
        contents = {
            "json": json.dumps(self.plain(), indent=1),
            "md": page.markdown(self),
            "html": page.html(self),
        }
        paths = {kind: root / f"profile.{kind}" for kind in contents}
        for kind, text in contents.items():
            write_atomic(paths[kind], text.encode())
        return paths


def load(path: str | Path) -> Profile:
    """What `save` wrote, without what single images gave."""
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        if content.pop("version") != VERSION:
            raise SaccadeError(f"{path} is of another version of saccade; make the profile again.")
        rows = tuple(_row(one) for one in content.pop("rows"))
        details = tuple(content.pop("details"))
        return Profile(**{**content, "rows": rows, "details": details, "notes": tuple(content["notes"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SaccadeError(f"{path} cannot be read as a profile ({error}); make it again.") from None


def _row(content: dict[str, Any]) -> Measured:
    def estimate(values: Mapping[str, Any]) -> Estimate:
        numbers: dict[str, Any] = {k: float("nan") if v is None else v for k, v in values.items()}
        return Estimate(**numbers)

    references = tuple(Reference(**r) for r in content.pop("references"))
    interval, accuracy = content.pop("estimate"), content.pop("accuracy")
    return Measured(
        **content,
        estimate=estimate(interval),
        accuracy=estimate(accuracy) if accuracy else None,
        references=references,
    )
