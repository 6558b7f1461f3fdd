"""A lab kept in memory for the explorer: its runs, and what changed since somebody last asked."""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from saccade.lab.store import Lab
from saccade.report.figures import jsonable
from saccade.spec import SaccadeError
from saccade.web import runs
from saccade.web.measures import Measures, comparison
from saccade.web.runs import Flat, Seen, columns
from saccade.web.studies import Place

LOOK_EVERY = 1.0  # seconds between looks at the folder, and
REST = 8.0  # at least this many times as long as a look took, but
LONGEST_REST = 15.0  # never longer than this: somebody waits for the run that was just started
AT_ONCE = 2000  # runs that a long first look reads before it shows them
STALE = 500  # changed runs after which the whole list is written again; a reader of an older one asks for the rest


class Catalogue:
    """Rows of every run with the version at which each last changed. `look` brings it up to date."""

    def __init__(self, lab: Lab, places: Callable[[], Mapping[str, Place]] = dict) -> None:
        self.lab, self.places = lab, places
        self.version = 0
        self.complete = False  # whether every folder has been looked at once
        self.counts: dict[str, int] = {}  # runs by state
        self._seen: dict[str, Seen] = {}
        self._read: dict[str, Seen] = {}
        self._rows: dict[str, Flat] = {}
        self._changed: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._named: Mapping[str, Place] = {}
        self._measures = Measures(lab, lambda key: self._named[key].probes if key in self._named else ())
        self._whole: tuple[int, bool, bytes] = (-1, False, b"")
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def start(self) -> Catalogue:
        """Look now and then in a thread of its own, until `stop`."""
        threading.Thread(target=self._watch, daemon=True, name="catalogue").start()
        return self

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        self._seen = runs.recall(self.lab)
        self._publish(complete=False)
        self.encoded()
        while not self._stop.is_set():
            before = self.version
            took = self.look()
            if self.version != before:
                runs.remember(self.lab, self._seen)
                self.encoded()
            self._stop.wait(min(LONGEST_REST, max(LOOK_EVERY, REST * took)))

    def look(self) -> float:
        """Read what changed in the folder. A long look shows what it has after every so many runs.

        Gives back the seconds that this took. Finding the places of runs is not counted: that is done once.
        """
        began = time.monotonic()
        stamps = list(runs.changed(self.lab, self._seen).items())
        if not stamps:
            self._publish(complete=True)
        for start in range(0, len(stamps), AT_ONCE):
            runs.read(self.lab, dict(stamps[start : start + AT_ONCE]), self._seen)
            self._publish(complete=start + AT_ONCE >= len(stamps))
        took = time.monotonic() - began
        places = self.places()
        if places is not self._named:  # a study that was not known before: its runs get their names
            self._named = places
            self._read.clear()
            self._publish(complete=True)
        return took

    def _publish(self, complete: bool) -> None:
        """Count one version up if anything is new."""
        with self._lock:
            version, new = self.version + 1, False
            for key in [k for k in self._rows if k not in self._seen]:
                del self._rows[key], self._changed[key]
                self._read.pop(key, None)
                self._gone[key], new = version, True
            for key, seen in self._seen.items():
                if self._read.get(key) is seen:
                    continue
                row, at = seen.row, self._named.get(key)
                if at is not None and row.get("arm") != at.arm:
                    row = {**row, "study": at.study, "scale": at.scale, "arm": at.arm}
                self._read[key] = seen
                if self._rows.get(key) != row:
                    self._rows[key], self._changed[key], new = row, version, True
            if new or complete > self.complete:
                self.version, self.complete = version, self.complete or complete
                self.counts = {}
                for row in self._rows.values():
                    self.counts[row["state"]] = self.counts.get(row["state"], 0) + 1

    def rows(self) -> list[Flat]:
        with self._lock:
            return list(self._rows.values())

    def row(self, key: str) -> Flat | None:
        return self._rows.get(key)

    def document(self, since: int = -1) -> Flat:
        """All rows in columns, or those that changed after a version, with the keys of runs that are gone."""
        with self._lock:
            rows = [r for k, r in self._rows.items() if since < 0 or self._changed[k] > since]
            removed = [k for k, v in self._gone.items() if v > since] if since >= 0 else []
            return {"version": self.version, "complete": self.complete, "gone": removed, **columns(rows)}

    def newest(self, n: int) -> bytes:
        """The first screen of a long list: the runs that started last, and how many there are in all."""
        with self._lock:
            rows = heapq.nlargest(n, self._rows.values(), key=lambda row: row.get("started") or 0)
            document = {"version": self.version, "complete": self.complete, "gone": [], "total": len(self._rows)}
        return _encode({**document, **columns(rows)})

    def encoded(self, since: int = -1) -> bytes:
        """The document as JSON. The whole one is kept until many runs changed: it says of which version it is."""
        if since >= 0:
            return _encode(self.document(since))
        version, complete, text = self._whole
        behind = sum(v > version for v in self._changed.values()) if version != self.version else 0
        if (
            not text
            or complete != self.complete
            or behind > STALE
            or version < 0
            or any(v > version for v in self._gone.values())
        ):
            document = self.document()
            text = _encode(document)
            self._whole = (document["version"], document["complete"], text)
        return text

    def measures(self) -> Flat:
        return self._measures.known(self.rows())

    def measure(self, metric: str, at: Mapping[str, str]) -> Flat:
        return self._measures.of(self.rows(), metric, at)

    def compare(self, metric: str, at: Mapping[str, str], a: Sequence[str], b: Sequence[str], unit: str) -> Flat:
        """The lab's own paired test of two lists of runs, on the seeds that they share."""
        values = self._measures.by_run(metric, at, [*a, *b])
        series = []
        for keys in (a, b):
            one: dict[int, float] = {}
            for key in keys:
                row = self.row(key)
                if row is None or "seed" not in row:
                    raise SaccadeError(f'no run "{key[:40]}" in this lab.')
                if key not in values:
                    continue
                if row["seed"] in one:
                    raise SaccadeError(f"a group has two runs of seed {row['seed']}; only seeds may differ in a group.")
                one[row["seed"]] = values[key]
            series.append(one)
        return comparison(series[0], series[1], unit=unit)


def _encode(document: Flat) -> bytes:
    # Keys and numbers of values are most of it and need no look at each; values may be anything a setting can be.
    encoded_columns = {
        k: {**c, "values": jsonable(c["values"])} if "values" in c else jsonable(c)
        for k, c in document["columns"].items()
    }
    return json.dumps({**document, "columns": encoded_columns}, separators=(",", ":"), allow_nan=False).encode()
