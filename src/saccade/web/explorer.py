"""What the explorer can be asked, each answer a JSON value, for the server to send and the export to write."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from saccade import __version__, registry
from saccade.lab.store import Lab
from saccade.report import figures
from saccade.requirements import MIN_PAIRS
from saccade.spec import SaccadeError
from saccade.stats import ALPHA, LEVEL
from saccade.web import profiles, runs
from saccade.web.catalogue import Catalogue
from saccade.web.measures import quantiles
from saccade.web.runs import Flat
from saccade.web.studies import Studies


class Explorer:
    """One lab with what was read of it."""

    def __init__(self, lab: Lab, files: Sequence[str] = ()) -> None:
        self.lab = lab
        self.studies = Studies(lab, files)
        self.catalogue = Catalogue(lab, self.studies.places)
        self.born = uuid.uuid4().hex[:8]  # shows a page that the server was restarted
        self._look: Any = None
        self._lock = threading.Lock()

    def about(self) -> Flat:
        """The lab itself, and what the page needs to draw and to compute as the lab does."""
        return {
            "name": self.lab.root.resolve().name,
            "root": str(self.lab.root),
            "exists": (self.lab.root / "runs").is_dir(),
            "saccade": __version__,
            "families": figures.jsonable(figures.FAMILIES),
            "models": {name: card.extra.get("family", "other") for name, card in registry.cards("model").items()},
            "level": LEVEL,
            "alpha": ALPHA,
            "min_pairs": MIN_PAIRS,
            "quantiles": quantiles(),
            "profiles": len(profiles.names(self.lab)),
            "shipped": self.shipped(),
        }

    def shipped(self) -> list[Flat]:
        """The models that come with the package, as rows beside those of the lab, for the Look page."""
        from saccade import shipped

        return [
            {"run": c.run.key, "state": "finished", "shipped": c.name, **runs.settings(c.run)}
            for c in shipped.cards().values()
        ]

    def pulse(self) -> Flat:
        """Little enough to be asked every second: has anything changed?"""
        return {
            "born": self.born,
            "version": self.catalogue.version,
            "complete": self.catalogue.complete,
            "states": self.catalogue.counts,
        }

    def cards(self) -> list[Flat]:
        return self.studies.cards(self.catalogue.rows())

    def study(self, name: str, folder: str) -> Flat:
        return self.studies.document(name, folder)

    def run(self, key: str) -> Flat:
        page = runs.describe(self.lab, key)
        row = self.catalogue.row(key) or {}
        page |= {k: row[k] for k in ("study", "scale", "arm") if k in row}
        page["seeds"] = sorted(
            (
                {"run": r["run"], "seed": r["seed"], "state": r["state"]}
                for r in self.catalogue.rows()
                if _same(r, page)
            ),
            key=lambda r: r["seed"],
        )
        return page

    def compare(self, request: Mapping[str, Any]) -> Flat:
        """{metric, at, a: [keys], b: [keys], unit}: types are checked, names are looked up."""
        metric, at, unit = request.get("metric"), request.get("at", {}), request.get("unit", "points")
        groups = [request.get("a"), request.get("b")]
        if not isinstance(metric, str) or unit not in ("points", ""):
            raise SaccadeError('compare takes a "metric" by name, and "points" or "" as its unit.')
        if not isinstance(at, dict) or not all(isinstance(v, str) for v in at.values()):
            raise SaccadeError('"at" must map names of conditions to their values as text.')
        for keys in groups:
            if not isinstance(keys, list) or not keys or not all(isinstance(k, str) and runs.is_key(k) for k in keys):
                raise SaccadeError('"a" and "b" must be lists of keys of runs, 12 digits from 0 to f each.')
        return self.catalogue.compare(metric, at, groups[0] or [], groups[1] or [], unit)

    def looker(self) -> Any:
        """What holds models and images. Torch is loaded here, when somebody looks for the first time."""
        with self._lock:
            if self._look is None:
                from saccade.web.look import Looker

                self._look = Looker(self.lab)
            return self._look


def _same(row: Flat, page: Flat) -> bool:
    return "seed" in row and row["group"] == page["group"]
