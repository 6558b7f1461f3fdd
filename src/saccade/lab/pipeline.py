"""From a study's name to its report: fetch, plan, work, judge, write. What the command line and Python both call."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import registry
from saccade.cli import terminal
from saccade.data.fetch import sources
from saccade.lab import launch, plan
from saccade.lab.store import Lab, seal, unseal, write_atomic
from saccade.lab.table import Table
from saccade.report import document
from saccade.report.figures import FigureData
from saccade.spec import DamagedFile, SaccadeError, Scale, Settings, Task, Verdict, digest, suggest
from saccade.study import Study, judge

Say = Callable[[str], None]


@dataclass(frozen=True)
class Session:
    """One study at one scale in one lab, with the choices made."""

    study: Study
    scale: str
    chosen: Settings
    lab: Lab
    tasks: tuple[Task, ...]

    @property
    def folder(self) -> Path:
        """Where its report goes; other choices than the default ones get a folder of their own."""
        default = self.chosen == self.study.choose({})
        name = self.scale if default else f"{self.scale}-{digest(self.chosen, 6)}"
        return self.lab.study_folder(self.study.name) / name

    def command(self) -> str:
        default = self.study.choose({})
        changed = [f"{k}={v}" for k, v in self.chosen.items() if default[k] != v]
        words = ["saccade run", self.study.name, "--scale", self.scale, *(["--set", *changed] if changed else [])]
        return " ".join(words)

    def table(self) -> Table:
        return plan.table_of(self.lab, self.tasks)

    def verdicts(self) -> tuple[Verdict, ...]:
        return judge(self.study, self.table(), self.scale)

    def figure(self, name: str) -> FigureData:
        """The data of one figure; `report.draw.save` draws it."""
        known = {f.name: f for f in self.study.figures}
        if name not in known:
            raise SaccadeError(suggest("figure", name, known))
        return known[name].make(self.table())


def open_session(
    name: str, scale: str = "small", lab: str | Path = "lab", choices: Mapping[str, Any] | None = None, only: str = ""
) -> Session:
    """Find the study, check scale and choices, list its tasks. `only` keeps the arms that match a pattern."""
    study: Study = registry.study(name)
    chosen = study.choose(choices or {})
    tasks = tuple(study.tasks(Scale(scale), chosen))
    if only:
        import fnmatch

        arms = sorted({t.arm for t in tasks})
        tasks = tuple(t for t in tasks if fnmatch.fnmatch(t.arm.lower(), only.lower()))
        if not tasks:
            raise SaccadeError(f'no arm of {study.name} matches "{only}"; its arms at this scale: {"; ".join(arms)}.')
    for task in tasks:
        registry.check_args("model", task.run.model, task.run.model_args)
        registry.check_args("data", task.run.data, task.run.data_args)
    return Session(study, scale, chosen, Lab(lab), tasks)


def fetch(tasks: Sequence[Task], say: Say, progress: sources.Progress = lambda done, total: None) -> None:
    """Fetch what these runs read and the cache lacks, saying which source is tried. Damage is named before any work."""
    for name in plan.sets_of(tasks):
        if name in sources.DRAWN:
            continue
        files = sources.verify(name)
        for found in files:
            if found.state == "damaged":
                raise DamagedFile(f"{found.file} is damaged and was not used; mend it with `{found.remedy}`.")
        if any(found.state == "missing" for found in files):
            say(f"{name} is not here yet; fetching it")
            sources.fetch(name, report=lambda line: say(f"  {line}"), progress=progress)


def prepare(session: Session, retry: bool = False, redo: bool = False, say: Say = lambda _: None) -> plan.Plan:
    """The plan. Damaged runs stop it with their names unless they may be redone; stale ones are set aside."""
    lab = session.lab.open()
    found = plan.examine(lab, session.tasks, retry)
    if found.damaged and not redo:
        key, files = next(iter(found.damaged.items()))
        more = f" (and {len(found.damaged) - 1} more runs)" if len(found.damaged) > 1 else ""
        raise DamagedFile(
            f"{lab.folder(key) / files[0]} is damaged{more}; nothing was used or changed. Add "
            "--redo-damaged to set such runs aside and do them again."
        )
    for key, files in found.damaged.items():
        say(f"run {key}: {', '.join(files)} damaged; set aside to {lab.set_aside(key, 'damaged')}")
    for key, why in found.stale.items():
        say(f"run {key} is stale ({why}); set aside to {lab.set_aside(key, 'stale')} and done again")
    if found.damaged or found.stale:
        found = plan.examine(lab, session.tasks, retry)
    return found


def perform(
    session: Session,
    todo: plan.Plan,
    cost: plan.Cost,
    *,
    places: Sequence[str],
    plugins: Sequence[str] = (),
    retry: bool = False,
    quiet: bool = False,
) -> terminal.Board:
    """Do what is missing; remember the wall time, also when interrupted."""
    board = terminal.Board(session.tasks, todo.complete, cost.seconds, len(places))
    began = time.monotonic()
    try:
        events = launch.local(plan.longest_first(todo, cost), session.lab, places=places, plugins=plugins, retry=retry)
        terminal.follow(events, board, quiet)
    finally:
        _add_wall(session, time.monotonic() - began, len(places))
    return board


def _add_wall(session: Session, seconds: float, jobs: int) -> None:
    path = session.folder / "wall.json"
    past = _wall(session)
    write_atomic(
        path,
        seal({"seconds": past.get("seconds", 0.0) + seconds, "jobs": jobs, "sittings": past.get("sittings", 0) + 1}),
    )


def _wall(session: Session) -> dict[str, Any]:
    path = session.folder / "wall.json"
    try:
        return unseal(path) if path.exists() else {}
    except DamagedFile:
        return {}


def facts(session: Session) -> dict[str, Any]:
    """Environment, time and counts for the report."""
    lab, wall = session.lab, _wall(session)
    done = [d for d in (lab.done(t.run.key) for t in session.tasks) if d is not None]
    seen = {
        json.dumps(lab.described(t.run.key)["facts"], sort_keys=True)
        for t in session.tasks
        if lab.done(t.run.key) is not None
    }
    environments = [json.loads(s) for s in sorted(seen)]
    sets = plan.sets_of(session.tasks)
    return {
        "command": session.command(),
        "scale": session.scale,
        "runs": len(session.tasks),
        "done": sum(d["outcome"] == "finished" for d in done),
        "diverged": sum(d["outcome"] == "diverged" for d in done),
        "timeout": sum(d["outcome"] == "timeout" for d in done),
        "failed": sum(d["outcome"] == "failed" for d in done),
        "seeds": len({t.run.seed for t in session.tasks}),
        "presentations": sorted({t.run.recipe.images for t in session.tasks}),
        "training core seconds": round(sum(d["seconds"] for d in done), 1),
        "wall seconds": round(wall.get("seconds", 0.0), 1),
        "jobs": wall.get("jobs", 0),
        "sittings": wall.get("sittings", 0),
        "data": {name: _data_fact(name) for name in sets},
        "procedural": any(name.startswith("procedural") for name in sets),
        "environments": environments,
        "written on": {"python": platform.python_version(), "system": sys.platform},
    }


def _data_fact(name: str) -> str:
    status = sources.status(name)
    return f"{status.about} ({status.source})" if status.source else status.about


def write(session: Session, folder: Path | None = None, formats: Sequence[str] = document.AT_ONCE) -> dict[str, Path]:
    """The report in all formats, from whatever rows the lab has."""
    table = session.table()
    if not len(table):
        raise SaccadeError(
            f"the lab {session.lab.root} has no results of {session.study.name} at scale "
            f"{session.scale} yet; make them with `{session.command()}`."
        )
    verdicts, told, where = judge(session.study, table, session.scale), facts(session), folder or session.folder
    paths = document.write(
        session.study, session.scale, session.chosen, table, verdicts, where, facts=told, formats=formats
    )
    write_atomic(where / "environment.json", json.dumps(told, indent=1).encode())
    return {**paths, "environment": where / "environment.json"}
