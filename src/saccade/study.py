"""A study is a value: what to run, what to draw, what to claim. `judge` turns rows into verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade import stats
from saccade.lab.table import Table
from saccade.report.figures import FigureData
from saccade.spec import SCALES, Difference, Evidence, Paper, SaccadeError, Scale, Settings, Task, Verdict, suggest
from saccade.stats import ALPHA

MIN_PAIRS = 5  # no verdict below this many seeds


@dataclass(frozen=True)
class Choice:
    """What the paper leaves open, as an explicit argument: `saccade run STUDY --set name=value`."""

    name: str
    default: Any
    known: tuple[Any, ...]  # empty: any value of the default's type
    about: str


@dataclass(frozen=True)
class Claim:
    """`tested` is the relation in the direction that the paper found; `needs` the smallest scale for it."""

    id: str
    statement: str
    paper: str
    concluded: str
    tested: str
    test: Callable[[Table], Evidence]
    needs: str = ""


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    paper: str
    make: Callable[[Table], FigureData]


@dataclass(frozen=True)
class Study:
    """`tasks(scale, chosen)` lists the runs with what is asked of each; `chosen` has every choice's value."""

    name: str
    question: str
    paper: Paper
    tasks: Callable[[Scale, Settings], Sequence[Task]]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    choices: tuple[Choice, ...] = ()
    differs: tuple[Difference, ...] = ()
    costs: Settings = field(default_factory=Settings)  # scale -> one line on size and time

    def choose(self, given: Mapping[str, Any]) -> Settings:
        """Every choice with its value; an unknown name or value is refused in one sentence."""
        chosen = {c.name: c.default for c in self.choices}
        for name, value in given.items():
            choice = next((c for c in self.choices if c.name == name), None)
            if choice is None:
                raise SaccadeError(suggest(f"choice of {self.name}", name, chosen))
            if choice.known and value not in choice.known:
                raise SaccadeError(f"{name} must be one of {', '.join(map(str, choice.known))}, not {value}.")
            if not choice.known and not isinstance(value, type(choice.default)):
                kind = type(choice.default).__name__
                raise SaccadeError(f"{name} must be {kind}, as in {name}={choice.default}, not {value}.")
            chosen[name] = value
        return Settings(chosen)

    def differences(self, claim: str) -> tuple[str, ...]:
        return tuple(d.text for d in self.differs if not d.touches or claim in d.touches)


def claim(
    id: str, statement: str, *, paper: str, concluded: str, tested: str, needs: str = ""
) -> Callable[[Callable[[Table], Evidence]], Claim]:
    """Decorate a function from a Table to Evidence; it becomes a Claim."""
    return lambda test: Claim(id, statement, paper, concluded, tested, test, needs)


def figure(title: str, *, paper: str = "") -> Callable[[Callable[[Table], FigureData]], Figure]:
    """Decorate a function from a Table to FigureData; it becomes a Figure of the function's name."""
    return lambda make: Figure(make.__name__, title, paper, make)


def judge(study: Study, table: Table, scale: str) -> tuple[Verdict, ...]:
    """A verdict for every planned claim, Holm-corrected over those that could be tested."""
    found = [_evidence(c, table, scale) for c in study.claims]
    # Two-sided: a claim may come out either way, and both are decisions.
    tested = {i: _two_sided(e) for i, e in enumerate(found) if isinstance(e, Evidence) and _enough(e)}
    adjusted = dict(zip(tested, stats.holm(list(tested.values())), strict=True))
    return tuple(
        _verdict(study, c, e, adjusted.get(i), len(tested))
        for i, (c, e) in enumerate(zip(study.claims, found, strict=True))
    )


def _evidence(claim: Claim, table: Table, scale: str) -> Evidence | str:
    if claim.needs and SCALES.index(scale) < SCALES.index(claim.needs):
        return f"needs {claim.needs} scale"
    try:
        return claim.test(table)
    except stats.TooFewSeeds as few:
        return f"too few seeds ({few.have} of {MIN_PAIRS})"


def _enough(evidence: Evidence) -> bool:
    return not evidence.blocked and (evidence.estimate.method == "exact" or evidence.estimate.n >= MIN_PAIRS)


def _two_sided(evidence: Evidence) -> float:
    return min(1.0, 2 * min(evidence.p, evidence.p_against))


def _verdict(study: Study, claim: Claim, found: Evidence | str, p: float | None, tested: int) -> Verdict:
    evidence = found if isinstance(found, Evidence) else None
    if evidence is None:
        says = str(found)
    elif evidence.blocked:
        says = "undecided"
    elif p is None:
        says = f"too few seeds ({evidence.estimate.n} of {MIN_PAIRS})"
    elif p < ALPHA:
        says = "reproduced" if evidence.p < evidence.p_against else "contradicted"
    else:
        says = "undecided"
    half = evidence is not None and bool(evidence.limit) and says == "reproduced"
    if half:
        says = "undecided"
    remark = evidence.note if evidence else ""
    if says.startswith("needs "):
        remark = f"saccade run {study.name} --scale {claim.needs}"
    if says == "undecided" and evidence:
        why = evidence.blocked or ("" if half else _more_seeds(evidence, max(1, tested)))
        remark = "; ".join(r for r in (why, evidence.limit, remark) if r)
    return Verdict(
        claim.id,
        says,
        claim.statement,
        claim.tested,
        claim.paper,
        claim.concluded,
        evidence,
        p,
        remark,
        study.differences(claim.id),
    )


def _more_seeds(evidence: Evidence, claims: int) -> str:
    """How many seeds would settle it if the effect seen is real, at the level that Holm may ask of one claim."""
    n = evidence.estimate.n
    effect = stats.effect_of(evidence.p, n)
    need = stats.seeds_needed(effect, alpha=ALPHA / claims) if n and effect > 0 else None
    return "the effect points the other way" if need is None else f"about {max(need, n + 1)} seeds needed"
