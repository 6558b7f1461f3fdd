"""A table of measured rows. Filtering returns a Table; nothing is averaged until asked."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.errors import visible
from saccade.spec import SaccadeError, Task, plain

Record = Mapping[str, Any]
Series = dict[int, float]  # one number per seed


ON_THE_WAY = ("online", "watched")  # accuracy while training: for figures
FIXED = {"metric", "value", "n", "low", "high", "each", "model", "data", "seed", "run", "budget", "probe"}
INDEXED = ("metric", "arm")
SHOWN = 40  # lines of a printed table


@dataclass(frozen=True, repr=False)
class Table:
    """Rows are flat mappings: metric, value, n, run, arm, model, data, seed, every argument, every condition.

    `gaps` lists the runs that gave no rows (diverged, failed) and `faults` the probes that gave none of a finished run,
    so that no mean hides them.
    """

    rows: tuple[Record, ...] = ()
    gaps: tuple[Record, ...] = ()
    faults: tuple[Record, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.rows)

    def __repr__(self) -> str:
        """What a notebook or `print` shows: the estimates, not thousands of rows."""
        missing = len(self.gaps) + len(self.faults)
        head = f"{len(self.rows)} rows" + (f", {missing} missing" if missing else "")
        lines = self.estimates()
        more = [f"and {len(lines) - SHOWN} more (to_csv, to_pandas)"] if len(lines) > SHOWN else []
        return "\n".join([f"Table of {head}", *("  " + line for line in lines[:SHOWN] + more)])

    def at(self, **where: Any) -> Table:
        """Rows where every named field equals the value (or is in it, for a tuple, list, set or range)."""
        return Table(
            tuple(r for r in self._candidates(where) if _matches(r, where)),
            tuple(g for g in self.gaps if _matches(g, where, absent=True)),
            tuple(f for f in self.faults if _matches(f, where, absent=True)),
        )

    def _candidates(self, where: Mapping[str, Any]) -> Sequence[Record]:
        """The rows that share the metric or the arm asked for, whichever are fewer.

        A study's claims and figures ask some 700 times, and most rows are points of learning curves.
        """
        selections = [self._index[k].get(where[k], ()) for k in INDEXED if isinstance(where.get(k), str)]
        return min(selections, key=len, default=self.rows)

    @functools.cached_property
    def _index(self) -> Mapping[str, Mapping[str, Sequence[Record]]]:
        index: dict[str, dict[str, list[Record]]] = {name: {} for name in INDEXED}
        for row in self.rows:
            for name in INDEXED:
                if isinstance(row.get(name), str):
                    index[name].setdefault(row[name], []).append(row)
        return index

    def values(self, name: str) -> list[Any]:
        """The distinct values of a field, in sorted order."""
        distinct = {r[name] for r in self.rows if r.get(name) is not None}
        return sorted(distinct, key=lambda v: (isinstance(v, str), v))

    def series(self, metric: str, **where: Any) -> Series:
        """One number per seed. More than one row for a seed is a mistake in the question, and an error."""
        out: Series = {}
        for row in self.at(metric=metric, **where):
            if row["seed"] in out:
                raise SaccadeError(
                    f"{metric} at {where} has more than one row for seed {row['seed']}; "
                    "name the condition that tells them apart."
                )
            out[row["seed"]] = row["value"]
        return out

    def curve(self, metric: str, x: str, **where: Any) -> dict[Any, Series]:
        """One series for each value of x, in the order of x."""
        selected = self.at(metric=metric, **where)
        return {v: selected.series(metric, **{x: v}) for v in selected.values(x)}

    def conditions(self, metric: str) -> list[dict[str, Any]]:
        """What tells the rows of a metric apart, seeds aside: one mapping per group, of the fields that differ."""
        rows = [{k: v for k, v in r.items() if k not in FIXED} for r in self.rows if r["metric"] == metric]
        names = dict.fromkeys(k for r in rows for k in r)
        varying = [k for k in names if len({repr(r.get(k)) for r in rows}) > 1]
        groups = [{k: r[k] for k in varying if k in r} for r in rows]
        return list({repr(g): g for g in groups}.values())

    def estimates(self) -> list[str]:
        """One line per metric and condition: mean over seeds with its interval; of one model, over its images."""
        from saccade import stats

        out = []
        for metric in dict.fromkeys(r["metric"] for r in self.rows if r["metric"] not in ON_THE_WAY):
            selected = self.at(metric=metric)
            for condition in self.conditions(metric):
                rows = [r for r in selected if all(r.get(k) == v for k, v in condition.items())]
                at = ", ".join(f"{k} {v}" for k, v in condition.items())
                k, unit = (100.0, " %") if "accuracy" in metric else (1.0, "")
                values = [k * r["value"] for r in rows]
                if len(rows) == 1 and "low" in rows[0]:
                    ends = f" [{k * rows[0]['low']:.4g}, {k * rows[0]['high']:.4g}] n={rows[0]['n']} images"
                elif len(rows) > 2:  # two seeds have no useful interval: their values are listed
                    estimate = stats.estimate(values)
                    ends = f" ± {(estimate.high - estimate.low) / 2:.2g}, n={len(rows)}"
                else:
                    ends = f" (seeds {', '.join(str(r['seed']) for r in rows)})"
                numbers = [f"{sum(values) / len(values):.4g}"] if len(rows) > 2 else [f"{v:.4g}" for v in values]
                out.append(f"{metric}{' at ' + at if at else ''}: {', '.join(numbers)}{unit}{ends}")
        return out

    def missing(self, **where: Any) -> int:
        """How many runs of this selection gave no result."""
        selected = self.at(**where)
        measured = {r["run"] for r in selected}  # what a probe failed to give may be none of this selection
        return len(selected.gaps) + len({f["run"] for f in selected.faults} - measured)

    def fields(self) -> list[str]:
        first = ["arm", "model", "data", "seed", "run", "metric", "value", "n"]
        return first + sorted({k for r in self.rows for k in r} - set(first))

    def to_csv(self) -> str:
        out = io.StringIO()
        writer = csv.DictWriter(out, self.fields(), lineterminator="\n", restval="")
        writer.writerow({name: cell(name) for name in self.fields()})
        writer.writerows({k: cell(v) for k, v in r.items()} for r in self.rows)
        return out.getvalue()

    def to_pandas(self) -> Any:
        try:
            import pandas
        except ImportError:
            raise SaccadeError("to_pandas needs pandas: pip install pandas, or use to_csv.") from None
        return pandas.DataFrame(list(self.rows), columns=self.fields())

    def to_polars(self) -> Any:
        try:
            import polars
        except ImportError:
            raise SaccadeError("to_polars needs polars: pip install polars, or use to_csv.") from None
        rows = [{k: cell(v) for k, v in r.items()} for r in self.rows]
        frame = polars.DataFrame(rows, infer_schema_length=None, strict=False)
        return frame.select([f for f in self.fields() if f in frame.columns])


def per_seed(function: Callable[..., float], *columns: Series) -> Series:
    """Apply a function of several series seed by seed, over the seeds that all of them have."""
    shared = sorted(set.intersection(*(set(c) for c in columns)))
    return {s: function(*(c[s] for c in columns)) for s in shared}


def minus(a: Series, b: Series) -> Series:
    """a - b, over the seeds that both have."""
    return per_seed(lambda x, y: x - y, a, b)


def slope_per_seed(curve: Mapping[Any, Series], x: Callable[[Any], float] = float) -> Series:
    """Least-squares slope of each seed's own curve against x; a seed lacking a point is left out."""
    points = [x(v) for v in curve]
    if len(points) < 2:
        return {}
    centre = sum(points) / len(points)
    spread = sum((p - centre) ** 2 for p in points)
    return per_seed(
        lambda *ys: sum((p - centre) * y for p, y in zip(points, ys, strict=True)) / spread, *curve.values()
    )


def records(task: Task, rows: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    """Stored rows joined with what is known of their run. A condition wins over an argument of one name."""
    run = task.run
    args = {**plain(run.model_args), **plain(run.data_args)}
    of_run = {
        "arm": task.arm or run.model,
        "model": run.model,
        "data": run.data,
        "seed": run.seed,
        "run": run.key,
        "budget": run.recipe.images,
    }
    for row in rows:
        measured = {"metric": row["metric"], "value": row["value"], "n": row["n"]}
        yield {**args, **row.get("at", {}), **measured, **of_run}


def gap(task: Task, why: str) -> Record:
    run = task.run
    return {
        **plain(run.model_args),
        **plain(run.data_args),
        "arm": task.arm or run.model,
        "model": run.model,
        "data": run.data,
        "seed": run.seed,
        "run": run.key,
        "why": why,
    }


def join(tables: Iterable[Table]) -> Table:
    tables = list(tables)
    return Table(
        tuple(r for t in tables for r in t.rows),
        tuple(g for t in tables for g in t.gaps),
        tuple(f for t in tables for f in t.faults),
    )


@dataclass(frozen=True, repr=False)
class Asked(Table):
    """A table that remembers which arms it was asked for, whether it has them or not."""

    asked: set[str] = field(default_factory=set)

    def at(self, **where: Any) -> Asked:
        arm = where.get("arm", ())
        self.asked.update([arm] if isinstance(arm, str) else arm)
        selected = super().at(**where)
        return Asked(selected.rows, selected.gaps, selected.faults, self.asked)


def _matches(row: Record, where: Mapping[str, Any], absent: bool = False) -> bool:
    """`absent`: a field that a gap cannot have (metric, a condition) does not rule it out."""
    for name, expected in where.items():
        if name not in row:
            if absent:
                continue
            return False
        actual = row[name]
        if isinstance(expected, (tuple, list, set, frozenset, range)):
            if actual not in expected:
                return False
        elif actual != expected:
            return False
    return True


def cell(value: Any) -> Any:
    """A value as a CSV file has it. Text that a spreadsheet would run as a formula gets a quote in front."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = " ".join(map(str, value))
    if isinstance(value, str):
        value = visible(value)
        if value[:1] in FORMULA and not _is_number(value):
            return "'" + value
    return value


FORMULA = set("=+-@\t\r\n＝＋－＠")  # the wide ones are the same to a spreadsheet in some languages


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
