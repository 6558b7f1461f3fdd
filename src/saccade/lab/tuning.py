"""Choose hyper-parameters on images and seeds that no claim is tested on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade import registry, stats
from saccade.lab import identity, pipeline
from saccade.lab.store import seal, write_atomic
from saccade.lab.table import Table
from saccade.spec import Estimate, Probe, Recipe, SaccadeError, Settings, Task, digest, plain, suggest

FIRST_SEED = 100_000  # studies count their seeds from 0
SPLIT = "held_out"


@dataclass(frozen=True)
class Tried:
    """One point of the grid with its accuracy on validation images."""

    settings: Settings
    accuracy: Estimate | None  # None: every seed diverged or failed
    diverged: int


def tasks(
    session: pipeline.Session, arm: str, grid: Mapping[str, Sequence[Any]], seeds: int, images: int = 0
) -> dict[Settings, tuple[Task, ...]]:
    """The arm's run at every point of the grid, over seeds of its own, asked for validation accuracy only."""
    arms = sorted({t.arm for t in session.tasks})
    if arm not in arms:
        raise SaccadeError(suggest(f"arm of {session.study.name}", arm, arms))
    fields = {f.name for f in dataclasses.fields(Recipe)}
    for name in grid:
        if name not in fields:
            raise SaccadeError(suggest("setting of a recipe", name, fields))
    base = next(t for t in session.tasks if t.arm == arm)
    points = [Settings(dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())]
    probe = Probe("accuracy", splits=(SPLIT,), n=1_000_000)
    out = {}
    for point in points:
        recipe = replace(base.run.recipe, **{**point, **({"images": images} if images else {})})
        runs = (replace(base.run, recipe=recipe, seed=FIRST_SEED + s) for s in range(seeds))
        out[point] = tuple(Task(run, (probe,), arm) for run in runs)
    return out


def tune(
    session: pipeline.Session,
    arm: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    seeds: int,
    images: int = 0,
    how: pipeline.How,
) -> list[Tried]:
    """Train every point, best first; the grid and its result are kept in the lab beside the study."""
    planned = tasks(session, arm, grid, seeds, images)
    all_tasks = [t for some in planned.values() for t in some]
    data = registry.card("data", all_tasks[0].run.data)
    if data.extra.get("watch") != SPLIT:
        raise SaccadeError(
            f"{data.name} has no validation images ({SPLIT}), so nothing may be chosen on it; tune an arm that is "
            "trained on photos or imagenette, or keep the paper's values."
        )
    table = pipeline.train(session.lab.open(), all_tasks, how)
    results = [_result(table, point, some) for point, some in planned.items()]
    results.sort(key=lambda t: -(t.accuracy.value if t.accuracy else -1.0))
    document = {
        "study": session.study.name,
        "arm": arm,
        "scale": session.scale,
        "grid": plain(dict(grid)),
        "images": all_tasks[0].run.recipe.images,
        "seeds": sorted({t.run.seed for t in all_tasks}),
        "split": SPLIT,
        "tried": [{"settings": plain(t.settings), **_numbers(t)} for t in results],
        "runs": [t.run.key for t in all_tasks],
    }
    name = f"{digest([arm, document['grid'], document['images']], 8)}.json"
    write_atomic(session.lab.study_folder(session.study.name) / "tuning" / name, seal(document))
    return results


def _result(table: Table, point: Settings, some: Sequence[Task]) -> Tried:
    keys = {t.run.key for t in some} | {identity.identified(t.run).key for t in some}
    accuracy = table.at(run=keys).series("accuracy", split=SPLIT)
    return Tried(point, stats.estimate(accuracy) if accuracy else None, len(some) - len(accuracy))


def _numbers(tried: Tried) -> dict[str, Any]:
    e = tried.accuracy
    ends = {} if e is None or e.n < 2 else {"low": e.low, "high": e.high}
    return {"accuracy": e.value if e else None, "n": e.n if e else 0, **ends, "diverged": tried.diverged}
