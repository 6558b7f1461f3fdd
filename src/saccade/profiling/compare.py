"""Two models on the same questions: over seeds when both were trained here, else over images, and said so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from saccade import registry, stats
from saccade.data.images import Source
from saccade.lab.store import Lab
from saccade.profiling import measure
from saccade.report.profile import Measured, Profile
from saccade.report.profile_page import number
from saccade.spec import Estimate, Evidence, SaccadeError
from saccade.subjects.find import KEY, Wanted, runs_of

FEWEST_SEEDS = 5
Model = str | nn.Module | Callable[..., nn.Module]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One question of two models: a minus b. `needed` counts seeds or images, whichever replicate."""

    key: str
    question: str
    unit: str
    a: Estimate
    b: Estimate
    difference: Estimate
    p: float  # two-sided, corrected for the number of questions after Holm
    says: str
    needed: int | None


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Errors on the same images. `consistency` is Cohen's kappa of right and wrong (Geirhos et al. 2020)."""

    both_wrong: int
    only_a_wrong: int
    only_b_wrong: int
    n: int
    consistency: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    a: str
    b: str
    over: str  # seeds or images
    n: int  # of them
    rows: tuple[Contrast, ...]
    errors: Overlap | None
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """To be read on a terminal."""
        kind = (
            f"over {self.n} seeds that both were trained with"
            if self.over == "seeds"
            else f"over {self.n} images: two single models, nothing is said about training them again"
        )
        head = ("", self.a, self.b, "difference", "p (Holm)", "verdict")
        table = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(r[i]) for r in table) for i in range(len(head))]
        out = [f"{self.a} against {self.b}, {kind}", ""]
        out += ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in table]
        if self.errors:
            e = self.errors
            out.append(
                f"errors on {e.n} images: both wrong {e.both_wrong}, only {self.a} {e.only_a_wrong}, only {self.b} "
                f"{e.only_b_wrong}; consistency {e.consistency:.2f} (0: as two that err by chance, 1: the same images)"
            )
        return [*out, *(f"note: {note}" for note in self.notes)]

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def compare(
    a: Model,
    b: Model,
    data: str | Source = "cifar10",
    *,
    on: Sequence[str] = (),
    lab: str = "lab",
    n: int = 0,
    report: Callable[[str], None] = lambda line: None,
    **how: Any,
) -> Comparison:
    """a minus b. Names and run keys of models that this lab trained over two or more shared seeds: over seeds."""
    source = measure.source(data) if isinstance(data, str) else data
    keys = [_keys_by_seed(one, source, lab) for one in (a, b)]
    shared = sorted(set(keys[0]) & set(keys[1]))
    if len(shared) >= 2:
        return _over_seeds(a, b, [[k[s] for s in shared] for k in keys], shared, source, on, lab, n, report, how)
    profiles: list[Profile] = []
    for one in (a, b):
        profile = measure.profile(
            one, source, only=on, lab=lab, n=n or (profiles[0].n if profiles else 0), report=report, **how
        )
        profiles.append(profile)
    if profiles[0].n != profiles[1].n:  # the second takes longer than the first
        profiles[0] = measure.profile(a, source, only=on, lab=lab, n=profiles[1].n, report=report, **how)
    return of_profiles(*profiles)


def of_profiles(a: Profile, b: Profile) -> Comparison:
    """Two profiles of the same images, paired image by image."""
    if (a.data, a.n) != (b.data, b.n):
        raise SaccadeError(
            f"the profiles of {a.name} and {b.name} are of different images; make both with the same data and n."
        )
    notes = []
    if a.way != b.way:
        notes.append(
            f"{a.name} is read {a.reading}, {b.name} {b.reading}: what they keep can be compared, rights cannot"
        )
    rows_of_b = {row.key: row for row in b.rows}
    pairs: list[tuple[Measured, Measured, Evidence]] = []
    for row in a.rows:
        if row.key in rows_of_b and row.each is not None and rows_of_b[row.key].each is not None:
            pairs.append((row, rows_of_b[row.key], paired(row.each, rows_of_b[row.key].each)))
    adjusted = stats.holm([min(1.0, 2 * min(e.p, e.p_against)) for _, _, e in pairs])
    rows = tuple(
        _contrast(one, two, e, p, a.name, b.name, "images") for (one, two, e), p in zip(pairs, adjusted, strict=True)
    )
    both = {row.key: row for row in a.rows if row.key == "accuracy"}
    errors = None
    if both and "accuracy" in rows_of_b:
        errors = overlap(~both["accuracy"].each, ~rows_of_b["accuracy"].each)
    for key in sorted({r.key for r in a.rows} ^ set(rows_of_b)):
        notes.append(f"{key} was asked of one of the two only")
    return Comparison(a=a.name, b=b.name, over="images", n=a.n, rows=rows, errors=errors, notes=tuple(notes))


def overlap(a_wrong: np.ndarray, b_wrong: np.ndarray) -> Overlap:
    agreement = float((a_wrong == b_wrong).mean())
    pa, pb = float(a_wrong.mean()), float(b_wrong.mean())
    chance = pa * pb + (1 - pa) * (1 - pb)
    return Overlap(
        both_wrong=int((a_wrong & b_wrong).sum()),
        only_a_wrong=int((a_wrong & ~b_wrong).sum()),
        only_b_wrong=int((b_wrong & ~a_wrong).sum()),
        n=len(a_wrong),
        consistency=(agreement - chance) / (1 - chance) if chance < 1 else math.nan,
    )


# -- over images


def paired(a: np.ndarray, b: np.ndarray) -> Evidence:
    if len(a) == len(b):
        x, y = (dict(enumerate(np.asarray(v, float).tolist())) for v in (a, b))
        e = stats.greater(x, y)
        return replace(e, estimate=replace(e.estimate, method="paired t, images"))
    # Shares of different images, as of those that follow a cue: two samples, normal approximation.
    means, spreads = [float(np.mean(v)) for v in (a, b)], [float(np.var(v, ddof=1)) / len(v) for v in (a, b)]
    value, error = means[0] - means[1], math.sqrt(sum(spreads))
    half = 1.959963984540054 * error
    p = 0.5 * math.erfc(value / error / math.sqrt(2)) if error else (0.0 if value > 0 else 1.0)
    difference = Estimate(value, value - half, value + half, min(len(a), len(b)), "unpaired z, images")
    return Evidence(difference, p, 1 - p, "unpaired z")


# -- over seeds


def _keys_by_seed(model: Model, data: Source, lab: str) -> dict[int, str]:
    """Keys by seed of the runs that a name or a run's key stands for; none where it is no model of this lab."""
    if not isinstance(model, str) or not (Lab(lab).root / "runs").is_dir():
        return {}
    store = Lab(lab)
    if KEY.fullmatch(model):
        keys = [k for k in store.keys() if k.startswith(model)]  # noqa: SIM118
        return _ways(store, _same_but_seed(store, keys[0])).popitem()[1] if len(keys) == 1 else {}
    if model.replace("-", "_") not in registry.cards("model"):
        return {}
    ways = _ways(store, runs_of(registry.card("model", model).name, Wanted(data=data, lab=lab)))
    if len(ways) > 1:
        first = ", ".join(next(iter(w.values())) for w in ways.values())
        raise SaccadeError(
            f"{model} was trained in {len(ways)} ways in {store.root}; name one by the key of a run of it: {first}."
        )
    return next(iter(ways.values()), {})


def _same_but_seed(store: Lab, key: str) -> list[str]:
    """All finished runs that differ from this one by their seed only."""
    one = replace(store.run(key), seed=0)
    keys = []
    for other in store.keys():  # noqa: SIM118
        result = store.done(other)
        if result and result["outcome"] == "finished" and replace(store.run(other), seed=0) == one:
            keys.append(other)
    return keys


def _ways(store: Lab, keys: Sequence[str]) -> dict[Any, dict[int, str]]:
    ways: dict[Any, dict[int, str]] = {}
    for key in keys:
        run = store.run(key)
        ways.setdefault(replace(run, seed=0), {})[run.seed] = key
    return ways


def _over_seeds(
    a: Model,
    b: Model,
    keys: Sequence[Sequence[str]],
    seeds: Sequence[int],
    data: Source,
    on: Sequence[str],
    lab: str,
    n: int,
    report: Callable[[str], None],
    how: Mapping[str, Any],
) -> Comparison:
    profiles = [
        [
            measure.profile(key, data, only=on or ("accuracy",), lab=lab, n=n or 1000, report=report, **how)
            for key in several
        ]
        for several in keys
    ]
    names = [str(a), str(b)]
    first = {row.key: row for row in profiles[0][0].rows}
    tested = []
    for key in first:
        if not all(any(row.key == key for row in p.rows) for several in profiles for p in several):
            continue
        series = [{s: p.row(key).estimate.value for s, p in zip(seeds, several, strict=True)} for several in profiles]
        tested.append((first[key], series, stats.greater(*series)))
    adjusted = stats.holm([min(1.0, 2 * min(e.p, e.p_against)) for _, _, e in tested])
    rows = tuple(
        _contrast(
            replace(row, estimate=stats.estimate(series[0])),
            replace(row, estimate=stats.estimate(series[1])),
            e,
            p,
            names[0],
            names[1],
            "seeds",
        )
        for (row, series, e), p in zip(tested, adjusted, strict=True)
    )
    errors = [
        overlap(~x.row("accuracy").each, ~y.row("accuracy").each)
        for x, y in zip(*profiles, strict=True)
        if any(r.key == "accuracy" for r in x.rows)
    ]
    notes = (f"errors are those of seed {seeds[0]}",) if errors else ()
    return Comparison(
        a=names[0],
        b=names[1],
        over="seeds",
        n=len(seeds),
        rows=rows,
        errors=errors[0] if errors else None,
        notes=notes,
    )


# -- saying


def _contrast(a: Measured, b: Measured, e: Evidence, p: float, name_a: str, name_b: str, over: str) -> Contrast:
    return Contrast(
        key=a.key,
        question=a.question,
        unit=a.unit,
        a=a.estimate,
        b=b.estimate,
        difference=e.estimate,
        p=p,
        says=_verdict(e, p, name_a, name_b, over),
        needed=e.seeds_needed,
    )


def _verdict(e: Evidence, p: float, a: str, b: str, over: str) -> str:
    if over == "seeds" and e.estimate.n < FEWEST_SEEDS:
        return f"too few seeds ({e.estimate.n} of {FEWEST_SEEDS})"
    if p < stats.ALPHA:
        return f"{a if e.estimate.value > 0 else b} is higher"
    effect = abs(stats.effect_of(min(e.p, e.p_against), e.estimate.n)) if e.estimate.n > 0 else 0.0
    needed = stats.seeds_needed(effect) if effect > 0 else None
    return "undecided" + (f", about {needed:,} {over} needed" if needed and needed > e.estimate.n else "")


def _cells(row: Contrast) -> tuple[str, ...]:
    unit = "points" if row.unit == "percent" else row.unit
    return (
        row.question,
        number(row.a, row.unit),
        number(row.b, row.unit),
        number(row.difference, unit),
        "< 0.001" if row.p < 0.001 else f"{row.p:.3f}",
        row.says,
    )
