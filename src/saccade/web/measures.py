"""Every measured number of a lab, by metric and condition; two groups of runs compared with the lab's own test."""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from saccade import stats
from saccade.lab.store import Lab
from saccade.report.figures import jsonable
from saccade.requirements import MIN_PAIRS
from saccade.spec import Evidence, SaccadeError, suggest
from saccade.web import runs
from saccade.web.runs import Flat, columns

KNOWN_SETTINGS = 4096  # distinct conditions that are offered for choosing


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
                    condition = tuple(sorted(at.items()))
                    conditions.append(self._conditions.setdefault(condition, len(self._conditions)))
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
            entries: dict[str, Flat] = {}
            names = list(self._metrics)
            for (metric, condition), count in pairs.items():
                one = entries.setdefault(names[metric], {"runs": 0, "at": {}})
                one["runs"] = max(one["runs"], count)
                for name, value in conditions[condition]:
                    values = one["at"].setdefault(name, [])
                    if value not in values and len(values) < KNOWN_SETTINGS:
                        values.append(value)
        for one in entries.values():
            one["at"] = {k: sorted(v, key=lambda x: (isinstance(x, str), x)) for k, v in one["at"].items()}
        return dict(sorted(entries.items()))

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
            metric_number = self._metrics[metric]
            keep = [_fits(dict(c), at) for c in self._conditions]
            conditions = [{k: v for k, v in c if k not in at} for c in self._conditions]
            for key in (r["run"] for r in rows):
                for m, c, value, n in zip(*self._of[key], strict=True):
                    if m == metric_number and keep[c]:
                        keys.append(key)
                        values.append(value)
                        ns.append(n)
                        rest.append(conditions[c])
        table = columns([{"run": k, **r} for k, r in zip(keys, rest, strict=True)])
        return {"metric": metric, "at": dict(at), **table, "values": values, "n": ns}

    def by_run(self, metric: str, at: Mapping[str, str], keys: Sequence[str]) -> dict[str, float]:
        """One number per run; more than one is a mistake in the question, and an error."""
        value_by_run: dict[str, float] = {}
        table = self.of([{"run": k} for k in keys if runs.is_key(k) and self.lab.folder(k).is_dir()], metric, at)
        for key, value in zip(table["keys"], table["values"], strict=True):
            if key in value_by_run:
                conditions = ", ".join(sorted(table["columns"]))
                raise SaccadeError(
                    f"{metric} has several rows per run; name the condition that tells them apart: {conditions}."
                )
            value_by_run[key] = value
        return value_by_run


def variant(metric: str, at: Mapping[str, Any]) -> str:
    """A metric with the fields that distinguish its rows, as in `accuracy@split`: several probes may use one name."""
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


def comparison(a: Mapping[int, float], b: Mapping[int, float], unit: str = "points") -> Flat:
    """Both means, the paired difference, p and what the lab would say of it."""
    seeds = sorted(set(a) & set(b))
    comparison: Flat = {
        "a": jsonable(stats.estimate(a)) if a else None,
        "b": jsonable(stats.estimate(b)) if b else None,
        "seeds": seeds,
        "each": [a[s] - b[s] for s in seeds],
    }
    try:
        evidence = stats.greater(a, b, unit=unit)
    except stats.TooFewSeeds as few:
        return {**comparison, "says": f"too few seeds ({few.have})", "why": str(few)}
    both = min(1.0, 2 * min(evidence.p, evidence.p_against))
    return {
        **comparison,
        "evidence": jsonable(evidence),
        "p": both,
        "says": _says(evidence, both),
        "text": _text(evidence),
    }


def _text(evidence: Evidence) -> str:
    return evidence.estimate.text(evidence.unit)


def _says(evidence: Evidence, p: float) -> str:
    if evidence.estimate.n < MIN_PAIRS:
        return f"too few seeds ({evidence.estimate.n} of {MIN_PAIRS})"
    if p >= stats.ALPHA:
        return "undecided"
    return "A is higher" if evidence.p < evidence.p_against else "B is higher"
