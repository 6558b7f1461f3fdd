"""What a lab already has of a list of tasks, what is missing, and what that will cost."""

from __future__ import annotations

import contextlib
import math
import platform
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from saccade import registry
from saccade.lab import identity, launch
from saccade.lab.store import TRAINING, Lab, seal, unseal, write_atomic
from saccade.lab.table import Record, Table, gap, records
from saccade.spec import MILESTONES, DamagedFile, Outcome, Probe, Reason, Run, SaccadeError, Task, digest

MEASURED = "own time of the processor"  # another word makes labs measure costs again that they measured otherwise


@dataclass(frozen=True)
class Plan:
    """Tasks by what is left to do, and the sentences a user should read before it starts."""

    tasks: tuple[Task, ...]
    train: tuple[Task, ...]  # to be trained (and measured)
    measure: tuple[Task, ...]  # trained, measurements missing
    complete: tuple[Task, ...]
    failed: tuple[Task, ...]  # failed earlier; tried again on request only
    stale: Mapping[str, str]  # key -> why its results no longer count
    changed: tuple[str, ...]  # sentences on code or data from outside that are not what they were
    damaged: Mapping[str, list[str]]  # key -> files
    faults: Mapping[str, list[str]]  # key -> probes that gave no rows earlier, with the reason; asked again on request

    @property
    def todo(self) -> tuple[Task, ...]:
        return self.train + self.measure


def everything(tasks: Sequence[Task]) -> Plan:
    """As if no lab had anything of these tasks."""
    return Plan(tuple(tasks), tuple(tasks), (), (), (), {}, (), {}, {})


def examine(lab: Lab, tasks: Sequence[Task], retry: bool = False) -> Plan:
    """Look at every run folder; reads every byte, so that a damaged file is never used."""
    parts: dict[str, list[Task]] = {"train": [], "measure": [], "complete": [], "failed": []}
    stale: dict[str, str] = {}
    damaged: dict[str, list[str]] = {}
    faults: dict[str, list[str]] = {}
    for task in tasks:
        key = place_of(lab, task)
        if files := lab.damage(key):
            damaged[key] = files
            parts["train"].append(task)
            continue
        done = lab.done(key)
        if done is not None and (why := _stale(lab, task, done)):
            stale[key] = why
            done = None
        if done is None:
            parts["train"].append(task)
        elif done["outcome"] == Outcome.FAILED:
            parts["train" if retry else "failed"].append(task)
        elif done["outcome"] != Outcome.FINISHED or not _still_to_measure(lab, task, retry):
            parts["complete"].append(task)
        else:
            parts["measure"].append(task)
        if done is not None and (failed := _faults(lab, task)):
            faults[key] = failed
    return Plan(
        tuple(tasks),
        tuple(parts["train"]),
        tuple(parts["measure"]),
        tuple(parts["complete"]),
        tuple(parts["failed"]),
        stale,
        _changed(lab, parts["train"]),
        damaged,
        faults,
    )


def place_of(lab: Lab, task: Task) -> str:
    """The key of the folder that has this task. Older labs keep the rows of a fact with the run it was asked of."""
    if task.before and lab.done(task.run.key) is None:
        with contextlib.suppress(DamagedFile):  # named where its own run is looked at
            if all(_current(p, lab.rows(task.before, p)) for p in task.probes):
                return task.before
    return task.run.key


def _changed(lab: Lab, tasks: Sequence[Task]) -> tuple[str, ...]:
    """One sentence per model and data set whose code or folder is not what it was in earlier runs of this lab."""
    outside = [t.run for t in tasks if t.run.code or t.run.content]
    if not outside:
        return ()
    earlier = []
    for key in lab.keys():  # noqa: SIM118 - a Lab is no mapping
        with contextlib.suppress(SaccadeError, KeyError, TypeError, OSError):
            earlier.append(lab.run(key))
    return tuple(dict.fromkeys(why for run in outside if (why := identity.changed_since(run, earlier))))


def _stale(lab: Lab, task: Task, done: Mapping[str, Any]) -> str:
    """Why a finished run no longer counts as the result of its specification; empty when it does."""
    run = task.run
    weightless = done.get("exported") and not run.is_fact
    if weightless and done["outcome"] == Outcome.FINISHED and unmeasured(lab, task):
        return "it came from an export without weights, and it lacks measurements that are wanted now"
    trained_versions = lab.described(place_of(lab, task))["facts"].get("versions", {})
    for kind, name in run.parts:
        now = registry.card(kind, name).version
        if kind in trained_versions and trained_versions[kind] != now:
            return f"{kind} {name} is now version {now}, it was trained with version {trained_versions[kind]}"
    return ""


def unmeasured(lab: Lab, task: Task, share: float = 1.0, retry: bool = False) -> list[Probe]:
    """Probes whose rows the lab lacks, at the whole budget or at a milestone that the run has kept.

    One that failed there, or at the whole budget, is asked again on `retry` only.
    """
    key = place_of(lab, task)
    if share != 1 and (task.run.is_fact or not lab.has_milestone(key, share)):
        return []
    missing = []
    for probe in task.probes:
        applies = share == 1 or registry.card("probe", probe.name).extra.get("milestones", True)
        failed = not retry and any(_current(probe, lab.failure(key, probe, at)) for at in (1.0, share))
        if applies and not failed and not _current(probe, lab.rows(key, probe, share)):
            missing.append(probe)
    return missing


def _current(probe: Probe, document: Mapping[str, Any] | None) -> bool:
    """Whether rows, or a failure, are of the probe as it is now."""
    now = (registry.card("probe", probe.name).version, identity.of_probe(probe))
    return document is not None and (document["version"], document.get("outside", "")) == now


def _faults(lab: Lab, task: Task) -> list[str]:
    """The probes of a task that failed as they are now, with the reason."""
    reasons: dict[str, None] = {}
    for share in (1.0, *MILESTONES):
        for probe in task.probes:
            failed = lab.failure(task.run.key, probe, share)
            if failed is not None and _current(probe, failed):
                reasons[f"{probe.name}: {failed['reason']}"] = None
    return list(reasons)


def _still_to_measure(lab: Lab, task: Task, retry: bool = False) -> list[Probe]:
    """A probe per measurement that is missing, milestones included."""
    return [probe for share in (1.0, *MILESTONES) for probe in unmeasured(lab, task, share, retry)]


def sets_of(tasks: Sequence[Task]) -> list[str]:
    """The fetched data sets that these runs read."""
    names: set[str] = set()
    for run in (t.run for t in tasks):
        card = registry.card("data", run.data)
        names |= {run.data_args.get(a, card.args[a]) for a in card.extra.get("sets", ())}
    return sorted(names)


def table_of(lab: Lab, tasks: Sequence[Task], share: float = 1.0) -> Table:
    """Every row that the lab has of these tasks; runs without a result are listed as gaps.

    At a share of the budget: what was measured at that milestone. A run that its stopping rule ended earlier had
    nothing left to change, so it appears with its final rows; one that kept no weights there does not appear.
    """
    rows: list[Record] = []
    gaps: list[Record] = []
    faults: list[Record] = []
    for task in tasks:
        key = place_of(lab, task)
        done = lab.done(key)
        if done is None:
            gaps.append(gap(task, str(Reason.NOT_RUN)))
            continue
        if done["outcome"] != Outcome.FINISHED:
            gaps.append(gap(task, f"{done['outcome']}: {done['reason']}"))
        reached = 1.0 if task.run.is_fact or done["step"] <= share * task.run.recipe.steps else share
        for probe in task.probes:
            document = lab.rows(key, probe, reached)
            if document is not None:
                rows.extend(records(task, document["rows"]))
            elif done["outcome"] == Outcome.FINISHED and reached == 1:
                failed = lab.failure(key, probe)
                why = f"failed: {failed['reason']}" if failed else "not measured yet"
                faults.append({**gap(task, f"probe {probe.name} {why}"), "probe": probe.name})
        training_rows = None if task.run.is_fact else lab.rows(key, TRAINING)
        if training_rows is not None:  # of the curve only what had happened by then
            until = reached * task.run.recipe.images
            rows.extend(records(task, (r for r in training_rows["rows"] if r["at"].get("images", 0) <= until)))
    return Table(tuple(rows), tuple(gaps), tuple(faults))


@dataclass(frozen=True)
class Cost:
    """Seconds of one core that each task still needs, by key; bytes that the largest one needs."""

    seconds: Mapping[str, float]
    memory: float = 0.0  # of a GPU
    device_memory: float = 0.0  # that this GPU has
    resident: float = 0.0  # of main memory
    bound: bool = False  # some runs end themselves, and none like them has finished: the seconds are the most

    def by_arm(self, tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
        arms: dict[str, dict[str, float]] = {}
        for task in tasks:
            arm = arms.setdefault(task.arm or task.run.model, {"runs": 0, "core seconds": 0.0})
            arm["runs"] += 1
            arm["core seconds"] += self.seconds[task.run.key]
        return arms

    def wall(self, jobs: int) -> float:
        return max(sum(self.seconds.values()) / max(1, jobs), max(self.seconds.values(), default=0.0))


Measure = Callable[[Sequence[Task], Lab, str, Sequence[str]], list[Mapping[str, Any]]]


def price(
    plan: Plan, lab: Lab, device: str, plugins: Sequence[str] = (), measure: Measure = launch.costs, where: str = ""
) -> Cost:
    """Cost of what is left: for each model a line over the batch, fitted to steps timed once and kept in the lab.

    `measure` times them on this machine, unless it times them elsewhere, which `where` then names. A fact has no steps:
    its probes say what they take. A run with a stopping rule is expected to end where finished ones like it did.
    """
    kinds = {_kind(t.run, device, where): t for t in plan.todo if not t.run.is_fact}
    path = lab.root / "costs.json"
    try:
        lines: dict[str, Any] = dict(unseal(path).get("lines", {})) if path.exists() else {}
    except DamagedFile:
        lines = {}  # derived and cheap: measured again
    unknown = [k for k in kinds if "image_seconds" not in lines.get(k, {})]
    if unknown:
        measured = measure([kinds[k] for k in unknown], lab, device, plugins)
        lines |= dict(zip(unknown, measured, strict=True))
        write_atomic(path, seal({"lines": lines}))
    training = {t.run.key for t in plan.train}
    settled = [t.run for t in plan.complete if t.run.recipe.settle]
    steps_of_finished = [(run, int(done["step"])) for run in settled if (done := lab.done(run.key))]
    seconds, bound = {}, False
    for task in plan.todo:
        if task.run.is_fact:
            probe_seconds = (
                registry.card("probe", p.name).extra["fact_seconds"] for p in unmeasured(lab, task, retry=True)
            )
            seconds[task.run.key] = float(sum(probe_seconds))
            continue
        line = lines[_kind(task.run, device, where)]
        recipe = task.run.recipe
        step = line["step_seconds"] + line["image_seconds"] * recipe.batch
        share = _expected_share(task.run, steps_of_finished)
        train = recipe.steps * (share or 1.0) * step if task.run.key in training else 0.0
        bound |= train > 0 and share is None
        seconds[task.run.key] = train + sum(map(answers, _to_measure(lab, task, training))) * line["answer_seconds"]
    most = {n: max((lines[k].get(n, 0.0) for k in kinds), default=0.0) for n in ("memory", "device_memory", "resident")}
    return Cost(seconds, **most, bound=bound)


def _expected_share(run: Run, steps_of_finished: Sequence[tuple[Run, int]]) -> float | None:
    """Of its steps, what a run will take; None when its stopping rule decides and no run like it has finished.

    The mean over finished runs of the same model and data that are nearest: of the same size first, then by the number
    of planned steps, then by how many settings of the data differ.
    """
    if not run.recipe.settle:
        return 1.0

    def distance(other: Run) -> tuple[bool, float, int]:
        settings = {*run.data_args.items()} ^ {*other.data_args.items()}
        return other.model_args != run.model_args, abs(math.log(other.recipe.steps / run.recipe.steps)), len(settings)

    candidates = [
        (distance(r), step / r.recipe.steps)
        for r, step in steps_of_finished
        if (r.model, r.data) == (run.model, run.data)
    ]
    nearest = min((d for d, _ in candidates), default=None)
    shares = [share for d, share in candidates if d == nearest]
    return sum(shares) / len(shares) if shares else None


def _to_measure(lab: Lab, task: Task, training: Set[str]) -> list[Probe]:
    """As many as will be asked for; a run that is still to be trained has its milestones ahead of it."""
    if task.run.key in training:
        return [p for p in task.probes for _ in range(1 + len(MILESTONES))]
    return _still_to_measure(lab, task, retry=True)


def _kind(run: Run, device: str, where: str = "") -> str:
    machine = [where or platform.node(), platform.machine(), device, MEASURED]
    return digest([run.model, run.model_args, run.data, run.data_args.get("augment", ""), machine])


def answers(probe: Probe) -> int:
    """About how many images a probe puts to the model: its n times its listed conditions."""
    settings = {**registry.card("probe", probe.name).args, **probe.settings}
    conditions = sum(len(v) for v in settings.values() if isinstance(v, (tuple, list)))
    return int(settings.get("n", 1000)) * max(1, conditions)


def queue(plan: Plan, cost: Cost, seats: int, seconds: float | None = None) -> list[Task]:
    """The longest first: one that is started last would leave the other cores idle.

    When the time will not do for all of them, the shortest first: more of them are then finished, and claims that rest
    on short runs are decided instead of none.
    """
    short = seconds is not None and cost.wall(seats) > seconds
    return sorted(plan.todo, key=lambda t: cost.seconds[t.run.key] * (1 if short else -1))
