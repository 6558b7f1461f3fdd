"""A lab kept in memory for the explorer: its runs, what changed since, and its measurements by metric."""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from saccade import stats
from saccade.lab.store import Lab
from saccade.report.figures import jsonable
from saccade.spec import SCALES, Evidence, SaccadeError, Scale, suggest
from saccade.study import Study
from saccade.web import runs
from saccade.web.runs import Flat, Seen

LOOK_EVERY = 1.0  # seconds between looks at the folder, and
REST = 8.0  # at least this many times as long as a look took
AT_ONCE = 2000  # runs that a long first look reads before it shows them
KNOWN_SETTINGS = 4096  # distinct conditions that are offered for choosing


class Catalogue:
    """Rows of every run with the version at which each last changed. `look` brings it up to date."""

    def __init__(self, lab: Lab, studies: Callable[[], Sequence[Study]] = tuple) -> None:
        self.lab, self.studies = lab, studies
        self.version = 0
        self.complete = False  # whether every folder has been looked at once
        self._seen: dict[str, Seen] = {}
        self._read: dict[str, Seen] = {}
        self._rows: dict[str, Flat] = {}
        self._changed: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._named: dict[str, Place] = {}
        self._measures = Measures(lab, lambda key: self._named[key].probes if key in self._named else ())
        self._whole: tuple[int, Any] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def start(self) -> Catalogue:
        """Look now and then in a thread of its own, until `stop`."""
        threading.Thread(target=self._watch, daemon=True, name="catalogue").start()
        return self

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        self._named = named(self.studies())
        while not self._stop.is_set():
            began = time.monotonic()
            self.look()
            self._stop.wait(max(LOOK_EVERY, REST * (time.monotonic() - began)))

    def look(self) -> None:
        """Read what changed in the folder. A long look shows what it has after every so many runs."""
        self._named = self._named or named(self.studies())
        stamps = list(runs.changed(self.lab, self._seen).items())
        for start in range(0, len(stamps) or 1, AT_ONCE):
            runs.read(self.lab, dict(stamps[start : start + AT_ONCE]), self._seen)
            self._publish(complete=start + AT_ONCE >= len(stamps))

    def _publish(self, complete: bool) -> None:
        """Count one version up if anything is new."""
        with self._lock:
            version, new = self.version + 1, False
            for key in [k for k in self._rows if k not in self._seen]:
                del self._rows[key], self._changed[key], self._read[key]
                self._gone[key], new = version, True
            for key, kept in self._seen.items():
                if self._read.get(key) is kept:
                    continue
                row, at = dict(kept.row), self._named.get(key)
                if at is not None:
                    row |= {"study": at.study, "scale": at.scale, "arm": at.arm}
                self._read[key] = kept
                if self._rows.get(key) != row:
                    self._rows[key], self._changed[key], new = row, version, True
            if new or complete > self.complete:
                self.version, self.complete = version, self.complete or complete

    def rows(self) -> list[Flat]:
        with self._lock:
            return list(self._rows.values())

    def row(self, key: str) -> Flat | None:
        return self._rows.get(key)

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in self.rows():
            found[row["state"]] = found.get(row["state"], 0) + 1
        return found

    def document(self, since: int = -1) -> Flat:
        """All rows in columns, or those that changed after a version, with the keys of runs that are gone."""
        with self._lock:
            if since < 0 and self._whole and self._whole[0] == self.version:
                whole: Flat = self._whole[1]
                return whole
            rows = [r for k, r in self._rows.items() if since < 0 or self._changed[k] > since]
            gone = [k for k, v in self._gone.items() if v > since] if since >= 0 else []
            made = {"version": self.version, "complete": self.complete, "gone": gone, **columns(rows)}
            if since < 0:
                self._whole = (self.version, made)
            return made

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


def comparison(a: Mapping[int, float], b: Mapping[int, float], unit: str = "points") -> Flat:
    """Both means, the paired difference, p and what the lab would say of it."""
    seeds = sorted(set(a) & set(b))
    told: Flat = {
        "a": jsonable(stats.estimate(a)) if a else None,
        "b": jsonable(stats.estimate(b)) if b else None,
        "seeds": seeds,
        "each": [a[s] - b[s] for s in seeds],
    }
    try:
        evidence = stats.greater(a, b, unit=unit)
    except stats.TooFewSeeds as few:
        return {**told, "says": f"too few seeds ({few.have})", "why": str(few)}
    both = min(1.0, 2 * min(evidence.p, evidence.p_against))
    return {**told, "evidence": jsonable(evidence), "p": both, "says": _says(evidence, both), "text": _text(evidence)}


def _text(evidence: Evidence) -> str:
    return evidence.estimate.text(evidence.unit)


def _says(evidence: Evidence, p: float) -> str:
    from saccade.study import MIN_PAIRS

    if evidence.estimate.n < MIN_PAIRS:
        return f"too few seeds ({evidence.estimate.n} of {MIN_PAIRS})"
    if p >= stats.ALPHA:
        return "undecided"
    return "A is higher" if evidence.p < evidence.p_against else "B is higher"


def columns(rows: Sequence[Flat]) -> Flat:
    """Rows by column: a value that all share, or numbers of distinct values; -1 where a row has none."""
    names = list(dict.fromkeys(name for row in rows for name in row if name != "run"))
    made: Flat = {}
    for name in names:
        codes: dict[tuple[type, Any], int] = {}
        coded = [-1 if (v := row.get(name)) is None else codes.setdefault((type(v), v), len(codes)) for row in rows]
        values = [v for _, v in codes]
        made[name] = {"all": values[0]} if len(values) == 1 and -1 not in coded else {"values": values, "codes": coded}
    return {"keys": [row["run"] for row in rows], "columns": made}


class Place(NamedTuple):
    """Where a run belongs, and what is asked of it there."""

    study: str
    scale: str
    arm: str
    probes: tuple[str, ...]


def named(studies: Iterable[Study]) -> dict[str, Place]:
    """The place of every run of these studies with their default choices; of several scales the smallest."""
    found: dict[str, Place] = {}
    for study in studies:
        for scale in SCALES:
            for task in study.tasks(Scale(scale), study.choose({})):
                place = Place(study.name, scale, task.arm or task.run.model, tuple(p.key for p in task.probes))
                found.setdefault(task.run.key, place)
    return found


class Measures:
    """Every measured number of a lab, in arrays. Read when first asked for, then only where something changed."""

    def __init__(self, lab: Lab, wanted: Callable[[str], Sequence[str]]) -> None:
        self.lab, self.wanted = lab, wanted
        self._lock = threading.Lock()
        self._stamps: dict[str, int] = {}
        self._metrics: dict[str, int] = {}
        self._conditions: dict[tuple[tuple[str, Any], ...], int] = {}
        self._of: dict[str, tuple[array[int], array[int], array[float], array[int]]] = {}

    def _read(self, keys: Iterable[str]) -> None:
        for key in keys:
            stamp = runs.folder_stamp(self.lab.folder(key) / "rows")
            if self._stamps.get(key) == stamp:
                continue
            metrics, conditions, values, ns = array("l"), array("l"), array("d"), array("l")
            for document in runs.one_each(runs.measurements(self.lab, key), self.wanted(key)):
                for metric, at, value, n in runs.numbers(document):
                    metrics.append(self._metrics.setdefault(variant(metric, at), len(self._metrics)))
                    named = tuple(sorted(at.items()))
                    conditions.append(self._conditions.setdefault(named, len(self._conditions)))
                    values.append(value)
                    ns.append(n)
            self._of[key], self._stamps[key] = (metrics, conditions, values, ns), stamp

    def known(self, rows: Sequence[Flat]) -> Flat:
        """For each metric how many runs have it, and the conditions under which it was measured."""
        with self._lock:
            self._read(r["run"] for r in rows)
            pairs: dict[tuple[int, int], int] = {}
            for key in (r["run"] for r in rows):
                for pair in set(zip(self._of[key][0], self._of[key][1], strict=True)):
                    pairs[pair] = pairs.get(pair, 0) + 1
            conditions = list(self._conditions)
            told: dict[str, Flat] = {}
            names = list(self._metrics)
            for (metric, condition), count in pairs.items():
                one = told.setdefault(names[metric], {"runs": 0, "at": {}})
                one["runs"] = max(one["runs"], count)
                for name, value in conditions[condition]:
                    values = one["at"].setdefault(name, [])
                    if value not in values and len(values) < KNOWN_SETTINGS:
                        values.append(value)
        for one in told.values():
            one["at"] = {k: sorted(v, key=lambda x: (isinstance(x, str), x)) for k, v in one["at"].items()}
        return dict(sorted(told.items()))

    def of(self, rows: Sequence[Flat], metric: str, at: Mapping[str, str]) -> Flat:
        """One number per run and remaining condition. A condition in `at` is compared as text, as in an address."""
        keys: list[str] = []
        values: list[float] = []
        ns: list[int] = []
        rest: list[dict[str, Any]] = []
        with self._lock:
            self._read(r["run"] for r in rows)
            if metric not in self._metrics:
                raise SaccadeError(suggest("metric", metric[:80], self._metrics))
            wanted = self._metrics[metric]
            keep = [_fits(dict(c), at) for c in self._conditions]
            conditions = [{k: v for k, v in c if k not in at} for c in self._conditions]
            for key in (r["run"] for r in rows):
                for m, c, value, n in zip(*self._of[key], strict=True):
                    if m == wanted and keep[c]:
                        keys.append(key)
                        values.append(value)
                        ns.append(n)
                        rest.append(conditions[c])
        table = columns([{"run": k, **r} for k, r in zip(keys, rest, strict=True)])
        return {"metric": metric, "at": dict(at), **table, "values": values, "n": ns}

    def by_run(self, metric: str, at: Mapping[str, str], keys: Sequence[str]) -> dict[str, float]:
        """One number per run; more than one is a mistake in the question, and said."""
        found: dict[str, float] = {}
        known = self.of([{"run": k} for k in keys if runs.is_key(k) and self.lab.folder(k).is_dir()], metric, at)
        for key, value in zip(known["keys"], known["values"], strict=True):
            if key in found:
                left = ", ".join(sorted(known["columns"]))
                raise SaccadeError(
                    f"{metric} has several rows per run; name the condition that tells them apart: {left}."
                )
            found[key] = value
        return found


def variant(metric: str, at: Mapping[str, Any]) -> str:
    """A metric with the fields that tell its rows apart, as in `accuracy@split`: several probes may use one name."""
    fields = sorted(set(at) - {"budget_share"})
    return f"{metric}@{'+'.join(fields)}" if fields else metric


def _fits(condition: Mapping[str, Any], at: Mapping[str, str]) -> bool:
    return all(name in condition and _is(condition[name], text) for name, text in at.items())


def _is(value: Any, text: str) -> bool:
    """Whether a value is meant by the text that stands for it in an address, which JavaScript wrote."""
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, (int, float)):
        with contextlib.suppress(ValueError):
            return float(text) == value
    return text == str(value)


def quantiles(most: int = 200) -> list[float]:
    """Student t quantiles of the lab's level for 1, 2, ... degrees of freedom: intervals use them."""
    from scipy.special import stdtrit

    return [float(stdtrit(df, 0.5 + stats.LEVEL / 2)) for df in range(1, most + 1)]
