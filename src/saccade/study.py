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
        sentences = tuple(r.asks for r in self.requires)
        return (*sentences, SETTLED) if self.trained else sentences


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

    def choose(self, values: Mapping[str, Any]) -> Settings:
        """Every choice with its value; an unknown name or value is refused in one sentence."""
        chosen = {c.name: c.default for c in self.choices}
        for name, value in values.items():
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
class _ExaminedClaim:
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
    examined = [_examine(study, c, results, scale) for c in study.claims]
    # Two-sided: a claim may come out either way, and both are decisions. A contrast shown to be small is a third.
    sides = {i: _two_sided(f.evidence) for i, f in enumerate(examined) if f.testable and f.evidence}
    smalls = {
        i: p
        for i, f in enumerate(examined)
        if f.testable and f.evidence and f.claim.small and (p := stats.small(f.evidence, f.claim.small)) is not None
    }
    others = sum(
        waits(f.claim, results.whole) for f in examined if not f.testable and f.reason is not Reason.OUT_OF_REACH
    )
    adjusted = stats.holm([*sides.values(), *smalls.values()], of=[*sides, *smalls], others=others)
    side_p = dict(zip(sides, adjusted, strict=False))
    small_p = dict(zip(smalls, adjusted[len(sides) :], strict=True))
    return tuple(_verdict(study, f, side_p.get(i), small_p.get(i), alpha) for i, f in enumerate(examined))


def _examine(study: Study, claim: Claim, results: Results, scale: str) -> _ExaminedClaim:
    if scale == "smoke":
        return _ExaminedClaim(claim, None, reason=Reason.OUT_OF_REACH, remark="smoke gives no verdicts")
    if claim.needs and SCALES.index(scale) < SCALES.index(claim.needs):
        remark = f"needs --scale {claim.needs}: saccade run {study.name} --scale {claim.needs}"
        return _ExaminedClaim(claim, None, reason=Reason.OUT_OF_REACH, remark=remark)
    command = f"saccade run {study.name} --scale {scale} --claims {claim.id}"
    try:
        evidence = claim.evidence(results.whole)
    except stats.TooFewSeeds as few:
        reason, remark = _too_few(claim, results.whole, few.have, command)
        return _ExaminedClaim(claim, None, reason=reason, remark=remark)
    except SaccadeError as error:  # rows that do not fit the question, such as those of an older design
        return _ExaminedClaim(claim, None, reason=Reason.NOT_MEASURED, remark=f"{str(error).rstrip('.')}; {command}")
    if evidence.estimate.method == "exact":
        return _ExaminedClaim(claim, evidence)
    if claim.trained and not any(isinstance(r, Learned) for r in claim.requires):
        raise SaccadeError(
            f"claim {claim.id} rests on trained models and does not say which must have learned; add "
            'requires=(learned("ARM"),), or trained=False for counts and times.'
        )
    checks = tuple(_check(r, results) for r in claim.requires)
    by_budget = _by_budget(claim, results, evidence) if claim.trained else ()
    if claim.trained:
        checks = (*checks, _settled(results, by_budget))
    if evidence.fewest < MIN_PAIRS:
        return _ExaminedClaim(
            claim, evidence, checks, by_budget, *_too_few(claim, results.whole, evidence.fewest, command)
        )
    first_failed = next((i for i, m in enumerate(checks) if not m.met), None)
    if first_failed is not None:
        finding, reason = checks[first_failed].found, checks[first_failed].reason
        # empty for the last check: that the contrast has settled is required of every claim
        requirements = claim.requires[first_failed : first_failed + 1]
        remedy = "".join(r.takes(results) for r in requirements if reason is r.reason)
        remark = f"{finding}; {remedy or takes(study.name, reason, scale)}"
        return _ExaminedClaim(claim, evidence, checks, by_budget, reason, remark)
    return _ExaminedClaim(claim, evidence, checks, by_budget)


def arms_asked(claim: Claim, table: Table) -> set[str]:
    """The arms that a claim asks for, whether they have rows or not."""
    recorder = Asked(table.rows, table.gaps, table.faults)
    with contextlib.suppress(SaccadeError):
        claim.evidence(recorder)
    return recorder.asked | {str(r.where["arm"]) for r in claim.requires if isinstance(r, Learned) and "arm" in r.where}


def _too_few(claim: Claim, table: Table, have: int, command: str) -> tuple[Reason, str]:
    """Why there are fewer seeds than a verdict needs: planned runs are still to do, or none are planned."""
    reason = Reason.NOT_RUN if waits(claim, table) else Reason.TOO_FEW_SEEDS
    return reason, "; ".join(filter(None, (f"{have} of {MIN_PAIRS}", _lacking(claim, table), command)))


def waits(claim: Claim, table: Table) -> bool:
    """Whether planned runs of the arms that it asks for are still to do."""
    return bool({g.get("arm") for g in table.gaps if to_do(g)} & arms_asked(claim, table))


def to_do(gap: Mapping[str, Any]) -> bool:
    """A run that diverged or failed is missing too, but doing what is left would not bring it."""
    return bool(gap.get("why") == Reason.NOT_RUN)


def _lacking(claim: Claim, table: Table) -> str:
    """The arms that the claim asks for and that have runs to do, as in `ViT with dropout: 8 runs to do`."""
    arms = arms_asked(claim, table)
    runs_by_arm = Counter(str(g.get("arm")) for g in table.gaps if to_do(g))
    seeds = Counter(arm for arm, _ in {(r.get("arm"), r.get("seed")) for r in table})
    arms_below_minimum = sorted(arm for arm in arms if seeds[arm] < MIN_PAIRS)
    # an arm may have its seeds, but not under every condition that is asked for
    waiting = [arm for arm in arms_below_minimum if runs_by_arm[arm]] or sorted(arm for arm in arms if runs_by_arm[arm])
    runs_to_do = [f"{arm}: {runs_by_arm[arm]} run{'s' * (runs_by_arm[arm] != 1)} to do" for arm in waiting]
    if len(runs_to_do) > NAMED:
        rest = sum(runs_by_arm[arm] for arm in waiting[NAMED:])
        more = f"{len(runs_to_do) - NAMED} more arm{'s' * (len(runs_to_do) - NAMED != 1)}"
        runs_to_do = [*runs_to_do[:NAMED], f"{more}: {rest} run{'s' * (rest != 1)} to do"]
    absent = [arm for arm in arms_below_minimum if not runs_by_arm[arm] and not seeds[arm]]
    # With runs to do, an arm that a scale leaves out, such as one of more widths, is not what is missing.
    if runs_to_do or not absent:
        return ", ".join(runs_to_do)
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
    evidence_by_share = []
    for share in MILESTONES:
        if share in results.at and len(results.at[share]):
            try:
                evidence_by_share.append((share, claim.evidence(results.at[share])))
            except SaccadeError:  # a probe or a seed that this milestone lacks
                continue
    return (*evidence_by_share, (1.0, whole))


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
    steps, prefix = [e for _, e in by_budget], ""
    while parts := stats.resting_on(steps[-2], steps[-1]):  # of a claim made of parts, the one that moves most
        most = min(parts, key=lambda i: stats.moving(steps[-2].parts[i], steps[-1].parts[i]))
        steps = [e.parts[most] for e in steps if len(e.parts) == len(steps[-1].parts)]
        prefix = steps[-1].note and f"{steps[-1].note}: "
    path = " → ".join(e.estimate.text(e.unit).split(" [")[0] for e in steps)
    p_text = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    return Met(Reason.STILL_MOVING, SETTLED, p >= ALPHA, f"{prefix}{path} over the budget, {p_text} for moving back")


def _two_sided(evidence: Evidence) -> float:
    return min(1.0, 2 * min(evidence.p, evidence.p_against))


def _verdict(study: Study, examined: _ExaminedClaim, side: float | None, small: float | None, alpha: float) -> Verdict:
    claim, evidence = examined.claim, examined.evidence
    says, reason, remark = Says.UNDECIDED, examined.reason, examined.remark
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
        requirements=examined.requirements,
        by_budget=examined.by_budget,
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
    needed = stats.seeds_needed(effect, alpha=alpha * raw / side) if effect > 0 else None
    direction = "" if evidence.p < evidence.p_against else " (the effect points the other way)"
    raw_small = stats.small(evidence, claim.small) if claim.small else None
    if raw_small and small and (small_effect := stats.effect_of(raw_small, n)) > 0:
        # a one-sided test, where `seeds_needed` asks for the level of a two-sided one
        seeds_for_small = stats.seeds_needed(small_effect, alpha=min(1.0, 2 * alpha * raw_small / small))
        if seeds_for_small is not None and (needed is None or seeds_for_small < needed):
            remark = f"about {max(seeds_for_small, n + 1)} needed to show that the difference is small, {n} run"
            return Reason.TOO_FEW_SEEDS, remark
    if needed is None:
        return Reason.NO_EFFECT, f"{n} seeds point to neither side"
    if needed > FEASIBLE:
        return Reason.NO_EFFECT, f"{n} seeds show none; an effect of the size seen needs about {needed}{direction}"
    return Reason.TOO_FEW_SEEDS, f"about {max(needed, n + 1)} needed, {n} run{direction}"


def groups_of(claim: Claim, table: Table, group: Mapping[str, str]) -> set[str]:
    """What a claim would get more seeds of; `group` names, for a run, those that differ from it in their seed alone.

    Asked of a table with twice the seeds, the new ones with the values of the old: a group counts when the evidence
    comes out otherwise without its new seeds. A claim made of parts that one of them speaks against is decided by that
    part, so that only what the part rests on counts. Without evidence, everything does that the claim asks for.
    """
    arms = arms_asked(claim, table)
    try:
        path = _path_to_part(claim.evidence(table))
    except SaccadeError:
        return {group[r["run"]] for r in table if r.get("arm") in arms and r["run"] in group}
    shift = 1 + max((int(r["seed"]) for r in table), default=0)
    new: dict[str, list[Mapping[str, Any]]] = {}
    for row in table:
        if row.get("arm") in arms and row["run"] in group:
            new.setdefault(group[row["run"]], []).append({**row, "seed": row["seed"] + shift})

    def outcome(without: str = "") -> list[Any]:
        rows = (row for name, more in new.items() if name != without for row in more)
        return [(e.estimate, e.p, e.p_against) for e in _deciding(claim.evidence(Table((*table, *rows))), path)]

    whole = outcome()
    return {name for name in new if outcome(name) != whole}


def _path_to_part(evidence: Evidence) -> list[int]:
    """The numbers that lead to the one part that speaks most against a claim; none where all its parts count."""
    path = []
    while evidence.parts and len(parts := stats.resting_on(evidence, evidence)) == 1:
        path += parts
        evidence = evidence.parts[parts[0]]
    return path


def _deciding(evidence: Evidence, path: Sequence[int]) -> tuple[Evidence, ...]:
    """The parts at the end of the way, all the way down."""
    for number in path:
        evidence = evidence.parts[number]
    return tuple(e for part in evidence.parts for e in _deciding(part, ())) or (evidence,)


def with_registration(verdicts: Sequence[Verdict], registered: Mapping[str, str]) -> tuple[Verdict, ...]:
    return tuple(replace(v, registered=registered.get(v.claim, "")) for v in verdicts)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
