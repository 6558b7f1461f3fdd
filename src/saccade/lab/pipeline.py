"""From a study's name to its report: fetch, plan, work, judge, write. What the command line and Python both call."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saccade import registry
from saccade.cli import terminal
from saccade.data.fetch import sources
from saccade.lab import identity, index, joined, plan, registration, wall, where
from saccade.lab import seeds as seeding
from saccade.lab.joined import Joined
from saccade.lab.seeds import Seeds
from saccade.lab.store import Lab, write_atomic
from saccade.lab.table import Table, join
from saccade.report import document
from saccade.report.figures import FigureData
from saccade.report.joined import Beside
from saccade.requirements import Results
from saccade.spec import (
    MILESTONES,
    SCALES,
    DamagedFile,
    Outcome,
    Run,
    SaccadeError,
    Scale,
    Settings,
    Task,
    Verdict,
    digest,
    recipe_of,
    suggest,
)
from saccade.stats import sequential
from saccade.study import Claim, Study, arms_asked, groups_of, judge, to_do, waits, with_registration

Say = Callable[[str], None]
FAULTS_SHOWN = 20  # measurements that are missing, each with its reason; gaps.csv has all of them


@dataclass(frozen=True, kw_only=True)
class How:
    """Where the work is done and how much of it: what flags say, nothing scientific."""

    device: str = "auto"
    jobs: int | None = None
    plugins: tuple[str, ...] = ()
    retry: bool = False
    redo_damaged: bool = False
    quiet: bool = False
    seconds: float | None = None  # stop cleanly after so long
    on: where.Where = where.Local()  # noqa: RUF009 - frozen


@dataclass(frozen=True)
class Session:
    """One study at one scale in one lab, with the choices made; `tasks` ends with those of joined arms (`also`)."""

    study: Study
    scale: str
    chosen: Settings
    lab: Lab
    tasks: tuple[Task, ...]
    seeds: Seeds = field(default_factory=Seeds)
    only: str = ""
    also: tuple[Joined, ...] = ()
    recipe: Settings = field(default_factory=Settings)  # what every arm's recipe is changed to: no planned study
    design: tuple[Task, ...] = ()  # the planned tasks before any seeds were asked for

    @property
    def folder(self) -> Path:
        """Where its report goes: its home, or a folder of its own where arms have joined that were not planned."""
        if not self.also:
            return self.home
        return self.home.with_name(f"{self.home.name}-also-{digest([(j.source, j.like) for j in self.also], 6)}")

    @property
    def home(self) -> Path:
        """Of what was planned; other choices than the default ones, and parts of a study, have their own folders."""
        default = self.chosen == self.study.choose({})
        name = self.scale if default else f"{self.scale}-{digest(self.chosen, 6)}"
        name += f"-recipe-{digest(self.recipe, 6)}" if self.recipe else ""
        return self.lab.study_folder(self.study.name) / (f"{name}-only-{digest(self.only, 6)}" if self.only else name)

    def command(self) -> str:
        default = self.study.choose({})
        changed = [f"{k}={v}" for k, v in self.chosen.items() if default[k] != v]
        words = ["saccade run", self.study.name, "--scale", self.scale, *(["--set", *changed] if changed else [])]
        words += ["--only", shlex.quote(self.only)] if self.only else []
        words += ["--recipe", *(f"{k}={v}" for k, v in self.recipe.items())] if self.recipe else []
        words += ["--until", "decided"] if self.seeds.looks else []
        words += ["--seeds", str(self.seeds.fixed[-1])] if self.seeds.fixed else []
        words += (
            ["--also", *(j.source for j in self.also), "--like", shlex.quote(self.also[0].like)] if self.also else []
        )
        return " ".join(words)

    def with_seeds(self, seeds: Seeds) -> Session:
        planned = seeds.tasks(self.planned)
        beside = [task for one in self.also for _, task in joined.pairs(planned, one)]
        return replace(self, seeds=seeds, tasks=(*planned, *beside), design=self.design or self.planned)

    @property
    def planned(self) -> tuple[Task, ...]:
        """The tasks of the study itself."""
        arms = {j.arm for j in self.also}
        return tuple(t for t in self.tasks if t.arm not in arms)

    def table(self) -> Table:
        """Every row, also of arms that were not planned."""
        return plan.table_of(self.lab, self.tasks)

    def beside(self, planned: Table) -> tuple[Beside, ...]:
        """The joined arms with their rows, for figures and tables; `planned` has the rows of the study itself."""
        out = []
        for one in self.also:
            paired = joined.pairs(self.planned, one)
            own = plan.table_of(self.lab, [task for _, task in paired])
            out.append(Beside(one.arm, one.source, one.like, own, joined.in_place(planned, own, one, paired)))
        return tuple(out)

    def results(self) -> Results:
        """Rows at the whole budget and at milestones; those of other scales only when a requirement asks for them.

        Planned arms only: no claim rests on a joined one.
        """
        at = {share: plan.table_of(self.lab, self.planned, share) for share in MILESTONES}
        whole = plan.table_of(self.lab, self.planned)
        # Read once for all requirements: 22 of one study asked for it, four fifths of the time of its verdicts.
        return Results(whole, at, functools.cache(lambda: self._every_budget(whole)))

    def _every_budget(self, whole: Table) -> Table:
        own_keys = {t.run.key for t in self.planned}
        tables = [whole]
        for scale in () if self.recipe else SCALES:  # another recipe's largest budget is no goal for this one
            others = [
                t for t in identity.identify(self.study.tasks(Scale(scale), self.chosen)) if t.run.key not in own_keys
            ]
            tables.append(plan.table_of(self.lab, [t for t in others if self.lab.done(t.run.key) is not None]))
        return join(tables)

    def verdicts(self, results: Results | None = None) -> tuple[Verdict, ...]:
        """Every claim judged; over several looks, each claim by the first look that decides it.

        The first look has all seeds of the scale, also where these are more than five: nothing was decided by fewer.
        A look counts when all its runs are in: half of one would be a look that no part of the error rate was kept for.
        """
        results = results or self.results()
        entries = registration.sentences(registration.read(self.home), self.study.claims)
        if not self.seeds.looks:
            return with_registration(judge(self.study, results, self.scale), entries)
        final: dict[str, Verdict] = {}
        last = Table()
        for n, alpha in sequential.levels().items():
            if n > self.seeds.looks[-1][0]:
                break
            looks = tuple(look for look in self.seeds.looks if look[0] <= n)
            runs = {t.run.key for t in replace(self.seeds, looks=looks).tasks(self.design)}
            so_far = Results(
                results.whole.at(run=runs),
                {share: table.at(run=runs) for share, table in results.at.items()},
                results.every_budget,
            )
            waiting = {c.id for c in self.study.claims if c.id in final and self._waits(c, so_far.whole, last)}
            last = so_far.whole
            for verdict in judge(self.study, so_far, self.scale, alpha=alpha):
                before = final.get(verdict.claim)
                if before is None or not (before.decided or verdict.claim in waiting):
                    final[verdict.claim] = replace(verdict, look=_look(n, alpha, verdict, before))
        return with_registration(tuple(final[c.id] for c in self.study.claims), entries)

    def _waits(self, claim: Claim, look: Table, before: Table) -> bool:
        """Whether runs of this look are still to do on which the claim rests, by what the look before showed."""
        if not waits(claim, look):
            return False
        group = seeding.group_of(self.planned)
        try:
            rests = groups_of(claim, before, group)
        except SaccadeError:  # rows of the look before are missing too
            return True
        return any(group.get(g["run"]) in rests for g in look.gaps if to_do(g))

    def figure(self, name: str) -> FigureData:
        """The data of one figure of the report; `report.draw.save` draws it."""
        results = self.results()
        figures = document.figures_of(self.study, results.whole, self.verdicts(results), self.beside(results.whole))
        data_by_name = {figure.name: data for figure, data in figures}
        if name not in data_by_name:
            raise SaccadeError(suggest("figure", name, data_by_name))
        return data_by_name[name]


def open_session(
    name: str,
    scale: str = "small",
    lab: str | Path = "lab",
    choices: Mapping[str, Any] | None = None,
    only: str = "",
    seeds: int | None = None,
    also: Sequence[str] = (),
    like: str = "",
    recipe: Mapping[str, Any] | None = None,
) -> Session:
    """Find the study, check scale and choices, list its tasks. `only` keeps the arms that match a pattern.

    `also` names models (file.py:function, a registered name) that join as arms, trained like the arm `like`. `recipe`
    changes every arm's, for a study that is then not the planned one.
    """
    study: Study = registry.study(name)
    chosen = study.choose(choices or {})
    tasks = tuple(study.tasks(Scale(scale), chosen))
    if only:
        arms = sorted({t.arm for t in tasks})
        tasks = tuple(t for t in tasks if fnmatch.fnmatch(t.arm.lower(), only.lower()))
        if not tasks:
            raise SaccadeError(f'no arm of {study.name} matches "{only}"; its arms at this scale: {"; ".join(arms)}.')
    for task in tasks:
        _check_names(task)
    tasks = identity.identify(tasks)
    if recipe:
        tasks = tuple(t if t.run.is_fact else replace(t, run=_retrained(t.run, recipe)) for t in tasks)
    if like and not also:
        raise SaccadeError("--like names the arm that the models of --also are trained like; give --also too.")
    joined_arms = joined.read(also, tasks, like) if also else ()
    session = Session(study, scale, chosen, Lab(lab), tasks, only=only, also=joined_arms, recipe=Settings(recipe))
    for task in (task for one in joined_arms for _, task in joined.pairs(tasks, one)):
        registry.check_args("model", task.run.model, task.run.model_args)
    seed_choice = seeding.read(session.home)
    if seeds is not None:
        if not 1 <= seeds <= seeding.MOST:
            raise SaccadeError(f"--seeds must be 1 to {seeding.MOST}, not {seeds}.")
        seed_choice = replace(seed_choice, fixed=(*(n for n in seed_choice.fixed if n != seeds), seeds))
    return session.with_seeds(seed_choice)


def _check_names(task: Task) -> None:
    for kind, name in task.run.parts:
        registry.check_args(kind, name, task.run.model_args if kind == "model" else task.run.data_args)
    for probe in task.probes:
        registry.check_args("probe", probe.name, probe.settings)
        if task.run.is_fact and not registry.card("probe", probe.name).extra.get("fact_seconds"):
            raise SaccadeError(f"probe {probe.name} looks at a model; ask it of a run that trains one.")


def _retrained(run: Run, recipe: Mapping[str, Any]) -> Run:
    fields = {f.name: getattr(run.recipe, f.name) for f in dataclasses.fields(run.recipe)}
    return replace(run, recipe=recipe_of(fields, recipe))


def _look(n: int, alpha: float, verdict: Verdict, before: Verdict | None) -> str:
    """The look that decides; a claim whose runs did not grow has the same evidence as at the look before."""
    if verdict.p_adjusted is None or verdict.evidence is None or verdict.evidence.estimate.method == "exact":
        return ""
    same = before is not None and before.evidence == verdict.evidence
    return f"at {n} seeds, p below {alpha:g}" + (", on the same runs as at the look before" if same else "")


def for_claims(session: Session, ids: Sequence[str]) -> tuple[Task, ...]:
    """The tasks of the arms that these claims ask for; all of the session's when no claim is named."""
    if not ids:
        return session.tasks
    known = {claim.id: claim for claim in session.study.claims}
    arms: set[str] = set()
    table = plan.table_of(session.lab, session.planned)
    for id in ids:
        if id not in known:
            raise SaccadeError(suggest("claim", id, known))
        claim = known[id]
        if claim.needs and SCALES.index(session.scale) < SCALES.index(claim.needs):
            raise SaccadeError(f"claim {id} takes --scale {claim.needs}; no arm of {session.scale} scale decides it.")
        arms |= arms_asked(claim, table)
    return tuple(t for t in session.tasks if t.run.is_fact or t.arm in arms)


def fetch(tasks: Sequence[Task], say: Say, progress: sources.Progress = lambda done, total: None) -> None:
    """Fetch what these runs read and the cache lacks, saying which source is tried. Damage is named before any work."""
    for name in plan.sets_of(tasks):
        if name in sources.DRAWN:
            continue
        files = sources.verify(name)
        for finding in files:
            if finding.state == "damaged":
                raise DamagedFile(f"{finding.file} is damaged and was not used; repair it with `{finding.remedy}`.")
        if any(finding.state == "missing" for finding in files):
            say(f"{name} is not here yet; fetching it")
            sources.fetch(name, report=lambda line: say(f"  {line}"), progress=progress)


def prepare(lab: Lab, tasks: Sequence[Task], how: How, say: Say = lambda _: None) -> plan.Plan:
    """The plan. Damaged runs stop it with their names unless they may be redone; stale ones are set aside."""
    lab.open()
    todo = plan.examine(lab, tasks, how.retry)
    if todo.damaged and not how.redo_damaged:
        key, files = next(iter(todo.damaged.items()))
        more = f" (and {len(todo.damaged) - 1} more runs)" if len(todo.damaged) > 1 else ""
        raise DamagedFile(
            f"{lab.folder(key) / files[0]} is damaged{more}; nothing was used or changed. Add "
            "--redo-damaged to set such runs aside and do them again."
        )
    for key, files in todo.damaged.items():
        say(f"run {key}: {', '.join(files)} damaged; set aside to {lab.set_aside(key, 'damaged')}")
    for why in todo.changed:
        say(f"{why}: trained again")
    for key, why in todo.stale.items():
        say(f"run {key} is stale ({why}); set aside to {lab.set_aside(key, 'stale')} and done again")
    if todo.damaged or todo.stale:
        todo = plan.examine(lab, tasks, how.retry)
    return todo


@dataclass(frozen=True)
class Planned:
    """What there is to do, what it costs, and the workers that will do it."""

    todo: plan.Plan
    cost: plan.Cost
    places: tuple[str, ...]
    cluster: str = ""  # which one, in words; nothing for this machine

    @property
    def seconds(self) -> float:
        return self.cost.wall(len(self.places))

    def headline(self) -> str:
        todo = self.todo
        text = f"{len(todo.tasks)} runs, {len(todo.complete)} already in the lab, {len(todo.todo)} to do"
        if todo.todo:
            workers = f"{self.places[0]}, {len(self.places)} jobs{self.cluster}"
            text += f", {'at most' if self.cost.bound else 'about'} {terminal.duration(self.seconds)} on {workers}"
        return text


def plan_work(
    lab: Lab,
    tasks: Sequence[Task],
    how: How,
    say: Say = lambda _: None,
    progress: sources.Progress = lambda done, total: None,
) -> Planned:
    """Fetch the data, look at the lab, price what is missing. Every way to train comes through here."""
    places = how.on.seats(how.device, how.jobs)
    fetch(tasks, say, progress)
    todo = prepare(lab, tasks, how, say)
    cost = how.on.price(todo, lab, places[0], how.plugins)
    return Planned(todo, cost, tuple(how.on.share(places, cost, how.jobs)), how.on.words())


def perform(lab: Lab, planned: Planned, how: How) -> bool:
    """Do what is missing. False when the time was up first; what was under way is saved."""
    board = terminal.Board(planned.todo.tasks, planned.todo.complete, planned.cost.seconds, len(planned.places))
    more: dict[str, Any] = {"jobs": how.jobs, "plugins": how.plugins, "retry": how.retry, "seconds": how.seconds}
    work = how.on.begin(planned.todo, planned.cost, lab, places=planned.places, **more)
    board.interrupt = work.interrupt
    try:
        return terminal.follow(work.events, board, how.quiet, seconds=how.seconds)
    except KeyboardInterrupt:
        work.interrupted()
        raise


def train(lab: Lab, tasks: Sequence[Task], how: How) -> Table:
    """Do these tasks and return their rows; what the lab already has is not repeated."""
    tasks = identity.identify(tasks)
    planned = plan_work(lab, tasks, how, terminal.printer(how.quiet))
    if planned.todo.todo:
        perform(lab, planned, how)
    return plan.table_of(lab, tasks)


def run(session: Session, planned: Planned, how: How) -> bool:
    """Register the claims, then do a study's missing runs; its wall time is kept, also when interrupted."""
    register(session)
    seeding.write(session.home, session.seeds)
    if not planned.todo.todo:
        return True
    with wall.measured(session.folder, len(planned.places)):
        return perform(session.lab, planned, how)


def looks_up_to(seeds: int | None) -> tuple[int, ...]:
    """The looks of at most so many seeds; all of them without a number."""
    looks = tuple(n for n in sequential.LOOKS if seeds is None or n <= seeds)
    if not looks:
        first = sequential.LOOKS[0]
        raise SaccadeError(f"with --until, --seeds is the most that a claim gets: at least {first}, not {seeds}.")
    return looks


def run_until_decided(
    session: Session, how: How, say: Say, claims: Sequence[str] = (), looks: Sequence[int] = sequential.LOOKS
) -> Session:
    """Look at 5, 10 and 20 seeds; add seeds only to runs on which claims rest that are open for lack of seeds.

    Of `claims` alone when some are named. Which ones are pursued may be chosen after a look: it adds no false verdict,
    as the levels of the looks are fixed and hold for every claim.
    """
    began = time.monotonic()
    names: tuple[str, ...] = ()
    for n in looks:
        session = session.with_seeds(session.seeds.looking(n, names))
        seconds_left = None if how.seconds is None else max(0.0, how.seconds - (time.monotonic() - began))
        planned = plan_work(session.lab, for_claims(session, claims), how, say)
        say(f"{session.study.name} ({session.scale}), look at {n} seeds   {planned.headline()}")
        if not run(session, planned, replace(how, seconds=seconds_left)):
            return session
        open_claims, names = _lacking(session, claims)
        say(f"  open for lack of seeds: {', '.join(open_claims) or 'no claim'}")
        if not names:
            return session
    return session


def plan_until_decided(
    session: Session, how: How, say: Say, claims: Sequence[str] = (), looks: Sequence[int] = sequential.LOOKS
) -> tuple[Session, Planned]:
    """The first look that has work to do, which decides what later ones ask for; the last one when none has."""
    names: tuple[str, ...] = ()
    for n in looks:
        session = session.with_seeds(session.seeds.looking(n, names))
        planned = plan_work(session.lab, for_claims(session, claims), how, say)
        say(f"look at {n} seeds")
        if planned.todo.todo or n == looks[-1]:
            break
        open_claims, names = _lacking(session, claims)
        say(f"  open for lack of seeds: {', '.join(open_claims) or 'no claim'}")
        if not names:
            break
    return session, planned


def _lacking(session: Session, claims: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Claims that are open for lack of seeds, and the arms or groups that would get more: of `claims`, or of all."""
    table = plan.table_of(session.lab, session.planned)
    open_claims = [v.claim for v in session.verdicts() if v.wants_runs and (v.claim in claims or not claims)]
    group = seeding.group_of(session.planned)
    wanted = {key for c in session.study.claims if c.id in open_claims for key in groups_of(c, table, group)}
    return open_claims, seeding.names_of(wanted, session.design)


def still_open(session: Session, how: How) -> list[str]:
    """What a budget left undone: claims that more work at this scale could decide, and what it would cost."""
    planned = plan_work(session.lab, session.tasks, replace(how, quiet=True))
    lines = []
    if planned.todo.todo:
        lines.append(f"{len(planned.todo.todo)} runs are left, about {terminal.duration(planned.seconds)}")
    lines += [f"{v.claim}: {v.reason}, {v.remark}" for v in session.verdicts() if v.wants_runs]
    return lines


def register(session: Session) -> dict[str, str]:
    """Write down what is claimed before the first run; later, what has changed since."""
    if session.only:
        return {}
    table = plan.table_of(session.lab, session.planned)
    finished = len({r["run"] for r in table})
    return registration.review(session.study, session.home, table, finished)


def facts(session: Session, table: Table | None = None) -> dict[str, Any]:
    """Environment, time and counts for the report; `table` are the session's rows where they have been read."""
    lab, times = session.lab, wall.of_study(session.folder, parts=not session.only)
    trained = [t for t in session.tasks if not t.run.is_fact]
    done = [d for d in (lab.done(t.run.key) for t in trained) if d is not None]
    described = [lab.described(t.run.key) for t in trained if lab.done(t.run.key) is not None]
    distinct_facts = {json.dumps(f, sort_keys=True) for d in described for f in (d["facts"], *d.get("later", ()))}
    environments = [json.loads(s) for s in sorted(distinct_facts)]
    sets = plan.sets_of(session.tasks)
    return {
        "command": session.command(),
        "scale": session.scale,
        "runs": len(trained),
        "done": sum(d["outcome"] == Outcome.FINISHED for d in done),
        **{str(o): sum(d["outcome"] == o for d in done) for o in Outcome if o is not Outcome.FINISHED},
        "seeds": len({t.run.seed for t in trained}),
        "images seen": sorted({t.run.recipe.images for t in trained}),
        "training core seconds": round(sum(d["seconds"] for d in done), 1),
        "wall seconds": round(times["seconds"], 1),
        "jobs": times["jobs"],
        "sittings": times["sittings"],
        # Not where this machine's copy is from: the report is then the same on one that has none. The checksums of what
        # the runs read stand among the environments.
        "data": {name: sources.status(name).about for name in sets},
        "procedural": any(name.startswith("procedural") for name in sets),
        "environments": environments,
        "remarks": _remarks(session, environments, session.table() if table is None else table),
    }


MIXABLE = {"saccade", "commit", "clean", "torch", "cpu", "threads", "kernels", "device"}


def _remarks(session: Session, environments: Sequence[Mapping[str, Any]], table: Table) -> list[str]:
    """What a reader must know before trusting one table: mixed versions or machines, seeds added after a look."""
    out = []
    for name in sorted(MIXABLE):
        values = sorted({str(e.get(name, "not recorded")) for e in environments})
        if len(values) > 1:
            out.append(f"These runs mix several values of {name}: {', '.join(values)}.")
    if len(session.seeds.fixed) > 1:
        steps = ", then ".join(map(str, session.seeds.fixed))
        out.append(
            f"The number of seeds was changed ({steps}); the p-values take no account of that. "
            "--until decided adds seeds with the error rate spent over the looks."
        )
    if session.seeds.looks:
        out.append(seeding.in_words(session.seeds.looks, session.design))
    if session.recipe:
        out.append(f"Not the planned study: the recipe of every arm was changed ({session.recipe!r}).")
    out += [
        f"{one.arm} was not planned (--also {one.source}): it was trained with recipe, data and seeds of {one.like}, "
        "and no claim rests on it."
        for one in session.also
    ]
    faults = [f"{f['arm']}, seed {f['seed']}: {f['why']}" for f in table.faults]
    if faults:
        out += [*faults[:FAULTS_SHOWN], f"{len(faults)} measurements are missing in all (gaps.csv)."]
    return out


@dataclass(frozen=True)
class Written:
    paths: dict[str, Path]
    verdicts: tuple[Verdict, ...]


def check_rows(session: Session, table: Table) -> Table:
    """The rows of a study; where there are none, the sentence that says how to make them."""
    if not len(table):
        raise SaccadeError(
            f"the lab {session.lab.root} has no results of {session.study.name} at scale "
            f"{session.scale} yet; make them with `{session.command()}`."
        )
    return table


def shortfall(session: Session, tasks: Sequence[Task], spent: bool = False) -> list[str]:
    """What was asked for and is not there: runs that failed or were refused, probes that failed. Not what diverged.

    `tasks` are those that were to be done. `spent`: a budget ended the work, so that runs without a result are no
    failure.
    """
    lines, labels = [], terminal.labels(session.tasks)
    for task in tasks:
        done = session.lab.done(plan.place_of(session.lab, task))
        if done is None and not spent:
            lines.append(f"{labels[task.run.key]}: it was not done")
        elif done is not None and done["outcome"] == Outcome.FAILED:
            lines.append(f"{labels[task.run.key]} failed: {done['reason']}")
    planned = plan.table_of(session.lab, session.planned)  # what a joined model has not to be measured is no failure
    asked_keys = {task.run.key for task in tasks}  # a probe of an arm that no claim asked for is none either
    lines += [f"{labels[f['run']]}: {f['why']}" for f in planned.faults if f["run"] in asked_keys]
    return lines


def write(session: Session, folder: Path | None = None, formats: Sequence[str] = document.AT_ONCE) -> Written:
    """The report in all formats, from whatever rows the lab has."""
    with index.reading(session.lab) as lab:
        return _write(replace(session, lab=lab), folder, formats)


def _write(session: Session, folder: Path | None, formats: Sequence[str]) -> Written:
    results = session.results()
    check_rows(session, results.whole)
    register(session)
    verdicts, about, where = session.verdicts(results), facts(session), folder or session.folder
    paths = document.write(
        session.study,
        session.scale,
        session.chosen,
        results.whole,
        verdicts,
        where,
        facts=about,
        formats=formats,
        beside=session.beside(results.whole),
    )
    write_atomic(where / "environment.json", json.dumps(about, indent=1).encode())
    return Written({**paths, "environment": where / "environment.json"}, verdicts)
