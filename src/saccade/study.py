"""A study is a value: what to run, what to draw, what to claim and what that requires. `judge` gives the verdicts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saccade import arguments, stats
from saccade.lab.table import Asked, Table
from saccade.report.figures import FigureData
from saccade.requirements import MIN_PAIRS, Learned, Requirement, Results
from saccade.spec import (
    MILESTONES,
    SCALES,
    Difference,
    Evidence,
    Met,
    Paper,
    Reason,
    SaccadeError,
    Says,
    Scale,
    Settings,
    Task,
    Verdict,
    suggest,
)
from saccade.stats import ALPHA

NAMED = 3  # arms that a remark names before it counts them
FEASIBLE = 100  # seeds; an effect that would take more of them was not seen


@dataclass(frozen=True)
class Choice:
    """What the paper leaves open, as an explicit argument: `saccade run STUDY --set name=value`."""

    name: str
    default: Any
    known: tuple[Any, ...]  # empty: any value of the default's type
    about: str

    @property
    def accepts(self) -> arguments.Accepted:
        return arguments.one_of(self.known) if self.known else arguments.like(self.default)


SETTLED = (
    "the contrast, measured at a half, three quarters and the whole budget on the same seeds, does not move "
    f"significantly towards the other side between the last two (one-sided paired t, p < {ALPHA:g})"
)
SAME = "the same at three quarters: the runs had ended by then, or it is read from earlier training"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper and its test.

    `tested` is the relation in the direction that the paper found, with {names} of `numbers`: thresholds and margins
    are declared there and given to the test. `small` is the largest contrast that counts as none. A claim on trained
    models always requires that its contrast has settled; `trained=False` marks counts, identities and times. What the
    paper has `left_open` (a conjecture, an inconclusive result) cannot be reproduced: it holds or does not hold.
    """

    id: str
    statement: str
    test: Callable[..., Evidence]
    tested: str
    paper: str = ""
    concluded: str = ""
    requires: tuple[Requirement, ...] = ()
    numbers: Settings = field(default_factory=Settings)
    small: float | None = None
    needs: str = ""  # the smallest scale at which it can be tested
    family: str = ""
    trained: bool = True
    left_open: bool = False

    def evidence(self, table: Table) -> Evidence:
        return self.test(table, **self.numbers)

    @property
    def relation(self) -> str:
        """What is tested, with its numbers filled in."""
        return self.tested.format(**{k: _shown(v) for k, v in self.numbers.items()})

    @property
    def asked(self) -> tuple[str, ...]:
        """Every requirement as a sentence."""
        own = tuple(r.asks for r in self.requires)
        return (*own, SETTLED) if self.trained else own


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    paper: str
    make: Callable[[Table], FigureData]


@dataclass(frozen=True)
class Study:
    """`tasks(scale, chosen)` lists the runs with what is measured on each; `chosen` has every choice's value."""

    name: str
    question: str
    paper: Paper | None  # None: a study of one's own, whose claims hold or do not
    tasks: Callable[[Scale, Settings], Sequence[Task]]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    choices: tuple[Choice, ...] = ()
    differs: tuple[Difference, ...] = ()
    costs: Settings = field(default_factory=Settings)  # scale -> one line on size and time
    headline: tuple[str, ...] = ()  # the claims that the paragraph on top of a report is made of, three of them

    def choose(self, given: Mapping[str, Any]) -> Settings:
        """Every choice with its value; an unknown name or value is refused in one sentence."""
        chosen = {c.name: c.default for c in self.choices}
        for name, value in given.items():
            choice = next((c for c in self.choices if c.name == name), None)
            if choice is None:
                raise SaccadeError(suggest(f"choice of {self.name}", name, chosen))
            arguments.check_value(name, choice.accepts, value, self.name)
            chosen[name] = value
        return Settings(chosen)

    def differences(self, claim: str) -> tuple[str, ...]:
        return tuple(d.text for d in self.differs if not d.touches or claim in d.touches)


def claim(
    id: str,
    statement: str,
    *,
    tested: str,
    paper: str = "",
    concluded: str = "",
    requires: Sequence[Requirement] = (),
    small: float | None = None,
    needs: str = "",
    family: str = "",
    trained: bool = True,
    left_open: bool = False,
    **numbers: float,
) -> Callable[[Callable[..., Evidence]], Claim]:
    """Decorate a function from a Table (and the claim's numbers, by name) to Evidence; it becomes a Claim."""
    return lambda test: Claim(
        id=id,
        statement=statement,
        test=test,
        tested=tested,
        paper=paper,
        concluded=concluded,
        requires=tuple(requires),
        numbers=Settings(numbers),
        small=small,
        needs=needs,
        family=family,
        trained=trained,
        left_open=left_open,
    )


def figure(title: str, *, paper: str = "") -> Callable[[Callable[[Table], FigureData]], Figure]:
    """Decorate a function from a Table to FigureData; it becomes a Figure of the function's name."""
    return lambda make: Figure(make.__name__, title, paper, make)


@dataclass(frozen=True)
class _Found:
    """A claim with what its test and its requirements gave."""

    claim: Claim
    evidence: Evidence | None
    requirements: tuple[Met, ...] = ()
    by_budget: tuple[tuple[float, Evidence], ...] = ()
    reason: Reason | None = None
    remark: str = ""

    @property
    def testable(self) -> bool:
        return self.evidence is not None and self.reason is None


def judge(study: Study, results: Results | Table, scale: str, *, alpha: float = ALPHA) -> tuple[Verdict, ...]:
    """A verdict for every claim, Holm-corrected over those that are tested and those that wait for planned runs.

    So a verdict is not lost when runs of other claims come in. Requirements come first: a claim that fails one is
    undecided whatever its p, and no part of the correction once all of its runs are in.
    """
    if isinstance(results, Table):
        results = Results(results)
    found = [_examine(study, c, results, scale) for c in study.claims]
    # Two-sided: a claim may come out either way, and both are decisions. A contrast shown to be small is a third.
    sides = {i: _two_sided(f.evidence) for i, f in enumerate(found) if f.testable and f.evidence}
    smalls = {
        i: p
        for i, f in enumerate(found)
        if f.testable and f.evidence and f.claim.small and (p := stats.small(f.evidence, f.claim.small)) is not None
    }
    others = sum(waits(f.claim, results.whole) for f in found if not f.testable and f.reason is not Reason.OUT_OF_REACH)
    adjusted = stats.holm([*sides.values(), *smalls.values()], of=[*sides, *smalls], others=others)
    side_p = dict(zip(sides, adjusted, strict=False))
    small_p = dict(zip(smalls, adjusted[len(sides) :], strict=True))
    return tuple(_verdict(study, f, side_p.get(i), small_p.get(i), alpha) for i, f in enumerate(found))


def _examine(study: Study, claim: Claim, results: Results, scale: str) -> _Found:
    if scale == "smoke":
        return _Found(claim, None, reason=Reason.OUT_OF_REACH, remark="smoke gives no verdicts")
    if claim.needs and SCALES.index(scale) < SCALES.index(claim.needs):
        remark = f"needs --scale {claim.needs}: saccade run {study.name} --scale {claim.needs}"
        return _Found(claim, None, reason=Reason.OUT_OF_REACH, remark=remark)
    again = f"saccade run {study.name} --scale {scale} --claims {claim.id}"
    try:
        evidence = claim.evidence(results.whole)
    except stats.TooFewSeeds as few:
        reason, remark = _too_few(claim, results.whole, few.have, again)
        return _Found(claim, None, reason=reason, remark=remark)
    except SaccadeError as error:  # rows that do not fit the question, such as those of an older design
        return _Found(claim, None, reason=Reason.NOT_MEASURED, remark=f"{str(error).rstrip('.')}; {again}")
    if evidence.estimate.method == "exact":
        return _Found(claim, evidence)
    if claim.trained and not any(isinstance(r, Learned) for r in claim.requires):
        raise SaccadeError(
            f"claim {claim.id} rests on trained models and does not say which must have learned; add "
            'requires=(learned("ARM"),), or trained=False for counts and times.'
        )
    met = tuple(_check(r, results) for r in claim.requires)
    by_budget = _by_budget(claim, results, evidence) if claim.trained else ()
    if claim.trained:
        met = (*met, _settled(results, by_budget))
    if evidence.fewest < MIN_PAIRS:
        return _Found(claim, evidence, met, by_budget, *_too_few(claim, results.whole, evidence.fewest, again))
    failed = next((i for i, m in enumerate(met) if not m.met), None)
    if failed is not None:
        found, reason = met[failed].found, met[failed].reason
        asked = claim.requires[failed : failed + 1]  # none: that the contrast has settled is asked of every claim
        said = "".join(r.takes(results) for r in asked if reason is r.reason)
        remark = f"{found}; {said or takes(study.name, reason, scale)}"
        return _Found(claim, evidence, met, by_budget, reason, remark)
    return _Found(claim, evidence, met, by_budget)


def arms_asked(claim: Claim, table: Table) -> set[str]:
    """The arms that a claim asks for, whether they have rows or not."""
    asked = Asked(table.rows, table.gaps, table.faults)
    with contextlib.suppress(SaccadeError):
        claim.evidence(asked)
    return asked.asked | {str(r.where["arm"]) for r in claim.requires if isinstance(r, Learned) and "arm" in r.where}


def _too_few(claim: Claim, table: Table, have: int, again: str) -> tuple[Reason, str]:
    """Why there are fewer seeds than a verdict needs: planned runs are still to do, or none are planned."""
    reason = Reason.NOT_RUN if waits(claim, table) else Reason.TOO_FEW_SEEDS
    return reason, "; ".join(filter(None, (f"{have} of {MIN_PAIRS}", _lacking(claim, table), again)))


def waits(claim: Claim, table: Table) -> bool:
    """Whether planned runs of the arms that it asks for are still to do."""
    return bool({g.get("arm") for g in table.gaps if to_do(g)} & arms_asked(claim, table))


def to_do(gap: Mapping[str, Any]) -> bool:
    """A run that diverged or failed is missing too, but doing what is left would not bring it."""
    return bool(gap.get("why") == Reason.NOT_RUN)


def _lacking(claim: Claim, table: Table) -> str:
    """The arms that the claim asks for and that have runs to do, as in `ViT with dropout: 8 runs to do`."""
    arms = arms_asked(claim, table)
    todo = Counter(str(g.get("arm")) for g in table.gaps if to_do(g))
    seeds = Counter(arm for arm, _ in {(r.get("arm"), r.get("seed")) for r in table})
    short = sorted(arm for arm in arms if seeds[arm] < MIN_PAIRS)
    # an arm may have its seeds, but not under every condition that is asked for
    waiting = [arm for arm in short if todo[arm]] or sorted(arm for arm in arms if todo[arm])
    words = [f"{arm}: {todo[arm]} run{'s' * (todo[arm] != 1)} to do" for arm in waiting]
    if len(words) > NAMED:
        rest = sum(todo[arm] for arm in waiting[NAMED:])
        more = f"{len(words) - NAMED} more arm{'s' * (len(words) - NAMED != 1)}"
        words = [*words[:NAMED], f"{more}: {rest} run{'s' * (rest != 1)} to do"]
    absent = [arm for arm in short if not todo[arm] and not seeds[arm]]
    if words or not absent:  # an arm that a scale leaves out, such as one of more widths, is then not what is missing
        return ", ".join(words)
    more = f" and {len(absent) - NAMED} more arms" if len(absent) > NAMED else ""
    return f"not part of this scale: {', '.join(absent[:NAMED])}{more}"


def takes(study: str, reason: Reason, scale: str) -> str:
    """What would settle a claim whose requirement failed."""
    run = f"saccade run {study} --scale"
    if reason is Reason.NOT_MEASURED:
        return f"takes runs of the present design: {run} {scale}"
    longer = SCALES[SCALES.index(scale) + 1 :]
    return f"takes longer training: {run} {longer[0]}" if longer else "takes longer training than the paper's"


def _check(requirement: Requirement, results: Results) -> Met:
    try:
        return requirement.check(results)
    except SaccadeError as error:
        return Met(Reason.NOT_MEASURED, requirement.asks, False, str(error))


def _by_budget(claim: Claim, results: Results, whole: Evidence) -> tuple[tuple[float, Evidence], ...]:
    found = []
    for share in MILESTONES:
        if share in results.at and len(results.at[share]):
            try:
                found.append((share, claim.evidence(results.at[share])))
            except SaccadeError:  # a probe or a seed that this milestone lacks
                continue
    return (*found, (1.0, whole))


def _settled(results: Results, by_budget: tuple[tuple[float, Evidence], ...]) -> Met:
    shares = dict(by_budget)
    if MILESTONES[-1] not in shares:
        return Met(
            Reason.NOT_MEASURED, SETTLED, False, "these runs were not measured at three quarters of their budget"
        )
    before, after = shares[MILESTONES[-1]], shares[1.0]
    if before == after:
        return Met(Reason.STILL_MOVING, SETTLED, True, SAME)
    p = stats.moving(before, after)
    shown, named = [e for _, e in by_budget], ""
    while parts := stats.resting_on(shown[-2], shown[-1]):  # of a claim made of parts, the one that moves most
        most = min(parts, key=lambda i: stats.moving(shown[-2].parts[i], shown[-1].parts[i]))
        shown = [e.parts[most] for e in shown if len(e.parts) == len(shown[-1].parts)]
        named = shown[-1].note and f"{shown[-1].note}: "
    path = " → ".join(e.estimate.text(e.unit).split(" [")[0] for e in shown)
    said = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    return Met(Reason.STILL_MOVING, SETTLED, p >= ALPHA, f"{named}{path} over the budget, {said} for moving back")


def _two_sided(evidence: Evidence) -> float:
    return min(1.0, 2 * min(evidence.p, evidence.p_against))


def _verdict(study: Study, found: _Found, side: float | None, small: float | None, alpha: float) -> Verdict:
    claim, evidence = found.claim, found.evidence
    says, reason, remark = Says.UNDECIDED, found.reason, found.remark
    if side is not None and evidence is not None:
        if side < alpha:
            says = Says.REPRODUCED if evidence.p < evidence.p_against else Says.CONTRADICTED
            if why := evidence.limit if says is Says.REPRODUCED else evidence.excuse:
                says, reason, remark = Says.UNDECIDED, Reason.OUT_OF_REACH, why
        elif small is not None and small < alpha:
            says, reason, remark = Says.EQUIVALENT, Reason.EFFECT_SMALL, f"within ± {_shown(claim.small)} of none"
        else:
            reason, remark = _more_seeds(claim, evidence, side, small, alpha)
    note = evidence.note if evidence else ""
    return Verdict(
        claim=claim.id,
        says=_own_words(says) if study.paper is None or claim.left_open else says,
        reason=reason,
        statement=claim.statement,
        tested=claim.relation,
        paper=claim.paper,
        concluded=claim.concluded,
        evidence=evidence,
        p_adjusted=small if says is Says.EQUIVALENT else side,
        remark="; ".join(part for part in (remark, note) if part),
        differs=study.differences(claim.id),
        family=claim.family or claim.id,
        requirements=found.requirements,
        by_budget=found.by_budget,
    )


def _own_words(says: Says) -> Says:
    return {Says.REPRODUCED: Says.HOLDS, Says.CONTRADICTED: Says.DOES_NOT_HOLD}.get(says, says)


def _more_seeds(claim: Claim, evidence: Evidence, side: float, small: float | None, alpha: float) -> tuple[Reason, str]:
    """How many seeds would settle it if what is seen is real: the effect, or that it is small.

    At the level that Holm asked of this claim, which is `alpha` divided by how much its p was raised (`side`, `small`).
    """
    n = evidence.estimate.n
    raw = _two_sided(evidence)
    effect = abs(stats.effect_of(raw / 2, n)) if n else 0.0
    need = stats.seeds_needed(effect, alpha=alpha * raw / side) if effect > 0 else None
    way = "" if evidence.p < evidence.p_against else " (the effect points the other way)"
    close = stats.small(evidence, claim.small) if claim.small else None
    if close and small and (apart := stats.effect_of(close, n)) > 0:
        # a one-sided test, where `seeds_needed` asks for the level of a two-sided one
        few = stats.seeds_needed(apart, alpha=min(1.0, 2 * alpha * close / small))
        if few is not None and (need is None or few < need):
            words = f"about {max(few, n + 1)} needed to show that the difference is small, {n} run"
            return Reason.TOO_FEW_SEEDS, words
    if need is None:
        return Reason.NO_EFFECT, f"{n} seeds point to neither side"
    if need > FEASIBLE:
        return Reason.NO_EFFECT, f"{n} seeds show none; an effect of the size seen needs about {need}{way}"
    return Reason.TOO_FEW_SEEDS, f"about {max(need, n + 1)} needed, {n} run{way}"


def groups_of(claim: Claim, table: Table, group: Mapping[str, str]) -> set[str]:
    """What a claim would get more seeds of; `group` names, for a run, those that differ from it in their seed alone.

    Asked of a table with twice the seeds, the new ones with the values of the old: a group counts when the evidence
    comes out otherwise without its new seeds. A claim made of parts that one of them speaks against is decided by that
    part, so that only what the part rests on counts. Without evidence, everything does that the claim asks for.
    """
    arms = arms_asked(claim, table)
    try:
        way = _way(claim.evidence(table))
    except SaccadeError:
        return {group[r["run"]] for r in table if r.get("arm") in arms and r["run"] in group}
    shift = 1 + max((int(r["seed"]) for r in table), default=0)
    new: dict[str, list[Mapping[str, Any]]] = {}
    for row in table:
        if row.get("arm") in arms and row["run"] in group:
            new.setdefault(group[row["run"]], []).append({**row, "seed": row["seed"] + shift})

    def outcome(without: str = "") -> list[Any]:
        rows = (row for name, more in new.items() if name != without for row in more)
        return [(e.estimate, e.p, e.p_against) for e in _deciding(claim.evidence(Table((*table, *rows))), way)]

    whole = outcome()
    return {name for name in new if outcome(name) != whole}


def _way(evidence: Evidence) -> list[int]:
    """The numbers that lead to the one part that speaks most against a claim; none where all its parts count."""
    found = []
    while evidence.parts and len(on := stats.resting_on(evidence, evidence)) == 1:
        found += on
        evidence = evidence.parts[on[0]]
    return found


def _deciding(evidence: Evidence, way: Sequence[int]) -> tuple[Evidence, ...]:
    """The parts at the end of the way, all the way down."""
    for number in way:
        evidence = evidence.parts[number]
    return tuple(e for part in evidence.parts for e in _deciding(part, ())) or (evidence,)


def with_registration(verdicts: Sequence[Verdict], registered: Mapping[str, str]) -> tuple[Verdict, ...]:
    return tuple(replace(v, registered=registered.get(v.claim, "")) for v in verdicts)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
