"""A user's architecture as one more arm of a study: `saccade run STUDY --also mynet.py:net`.

It takes recipe, data, seeds and probes of a planned arm. It was not planned, so no claim rests on it, and the keys of
the planned runs know nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saccade import registry
from saccade.lab import identity
from saccade.lab.table import Table
from saccade.spec import SaccadeError, Settings, Task, plain, suggest


@dataclass(frozen=True)
class Joined:
    arm: str  # its name in tables and figures
    source: str  # as it was given
    model: str  # its registered name
    like: str  # the planned arm whose tasks it repeats


def read(sources: Sequence[str], tasks: Sequence[Task], like: str = "") -> tuple[Joined, ...]:
    """What `--also` and `--like` name. Without --like, the planned arm that was asked the most, the first of these."""
    tasks = [t for t in tasks if not t.run.is_fact]
    arms = list(dict.fromkeys(t.arm for t in tasks))
    if like and like not in arms:
        near = next((arm for arm in arms if arm.lower() == like.lower()), None)
        if near is None:
            raise SaccadeError(suggest("arm of this study to train like", like, arms))
        like = near
    like = like or max(arms, key=lambda arm: sum(t.arm == arm for t in tasks))
    arms_joined: list[Joined] = []
    for source in sources:
        path, colon, function = source.rpartition(":")
        if colon and path.endswith(".py"):
            one = Joined(f"{Path(path).name}:{function}", source, registry.adopt(source), like)
        elif source.endswith(".py"):
            raise SaccadeError(f"{source} needs the name of a function or class in it, as in {source}:net.")
        else:
            name = registry.card("model", source).name
            one = Joined(name, source, name, like)
        if one.arm in {*arms, *(other.arm for other in arms_joined)}:
            raise SaccadeError(f"--also {source}: the study has an arm {one.arm} already; give each model once.")
        arms_joined.append(one)
    return tuple(arms_joined)


def pairs(planned: Sequence[Task], one: Joined) -> list[tuple[Task, Task]]:
    """Each task of the planned arm with the one of the joined arm that stands beside it."""
    out: dict[str, tuple[Task, Task]] = {}
    for task in planned:
        if task.arm == one.like and not task.run.is_fact:
            run = identity.identified(replace(task.run, model=one.model, model_args=Settings()))
            out.setdefault(run.key, (task, Task(run, task.probes, one.arm)))
    return list(out.values())


def in_place(planned: Table, own: Table, one: Joined, paired: Sequence[tuple[Task, Task]]) -> Table:
    """The planned rows with those of the joined arm in place of the arm that it stands beside."""
    fields_by_run: dict[str, Mapping[str, Any]] = {
        beside.run.key: {**plain(task.run.model_args), "arm": task.arm, "model": task.run.model}
        for task, beside in paired
    }

    def swapped(rows: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        other_rows = [r for r in rows if r["arm"] != one.like]
        # A condition that a probe measured at wins over an argument of the same name, as in `table.record`.
        return (*other_rows, *({**fields_by_run[r["run"]], **r, **_named(fields_by_run[r["run"]])} for r in new))

    return Table(swapped(planned.rows, own.rows), swapped(planned.gaps, own.gaps), swapped(planned.faults, own.faults))


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("arm", "model")}
