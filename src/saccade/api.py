"""What `import saccade` offers: build a model, train it over seeds, probe it, compare two, run a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from saccade import launch, live, models, plan, registry, session, stats
from saccade.data.images import Source
from saccade.spec import Evidence, Probe, Recipe, Run, SaccadeError, Settings, Task
from saccade.store import Lab
from saccade.subject import Subject
from saccade.table import Table


def model(name: str, classes: int = 10, **args: Any) -> nn.Module:
    """A registered model: saccade.model("mha_lenet", heads=1)."""
    return models.build(name, classes, **args)


def train(name: str, data: str, *, recipe: Recipe, seeds: int | Sequence[int] = 5, lab: str | Path = "lab",
          model_args: Mapping[str, Any] | None = None, data_args: Mapping[str, Any] | None = None,
          probes: Sequence[Probe] = (), device: str = "auto", jobs: int | None = None, quiet: bool = False) -> Table:
    """Train one model over seeds in worker processes; what the lab already has is not repeated."""
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    registry.check_args("model", name, model_args or {})
    registry.check_args("data", data, data_args or {})
    tasks = [Task(Run(registry.card("model", name).name, registry.card("data", data).name, recipe, s,
                      Settings(model_args), Settings(data_args)), tuple(probes)) for s in chosen]
    return train_all(tasks, Lab(lab).open(), device=device, jobs=jobs, quiet=quiet)


def train_all(tasks: Sequence[Task], lab: Lab, *, device: str = "auto", jobs: int | None = None,
              plugins: Sequence[str] = (), quiet: bool = False) -> Table:
    session.fetch(tasks, live.printer(quiet))
    found = plan.examine(lab, tasks)
    if found.damaged:
        raise SaccadeError(f"damaged runs in {lab.root}: {', '.join(found.damaged)}; see saccade lab verify.")
    places = launch.devices(device, jobs)
    cost = plan.price(found, lab, places[0], plugins)
    places = launch.share(places, cost.memory, jobs)
    board = live.Board(tasks, found.complete, cost.seconds, len(places))
    live.follow(launch.local(plan.longest_first(found, cost), lab, places=places, plugins=plugins), board, quiet)
    return plan.table_of(lab, tasks)


def probe(subject: nn.Module, probes: Sequence[str | Probe], data: str, *, seed: int = 0,
          data_args: Mapping[str, Any] | None = None, device: str = "cpu") -> Table:
    """Put any torch model through probes. One model: the images are the replicates, and n counts them."""
    where = Source(registry.card("data", data).name, Settings(data_args), seed, device)
    images = where("train")
    asked = Subject(subject.to(device), images.mean, images.std, device)
    rows = []
    for p in probes:
        named = Probe(p) if isinstance(p, str) else p
        for row in registry.find("probe", named.name)(asked, where, **named.settings):
            rows.append({**row.at, "metric": row.metric, "value": row.value, "n": row.n, "seed": seed,
                         "probe": named.name, "model": type(subject).__name__, "data": data, "arm": "outside",
                         "run": ""})
    return Table(tuple(rows))


def compare(table: Table, a: str, b: str, metric: str = "accuracy", **where: Any) -> Evidence:
    """Paired difference of two arms over their shared seeds: a minus b."""
    return stats.greater(table.series(metric, arm=a, **where), table.series(metric, arm=b, **where))


def run(study: str, scale: str = "small", *, lab: str | Path = "lab", device: str = "auto", jobs: int | None = None,
        quiet: bool = False, **choices: Any) -> session.Session:
    """The same as `saccade run`; the session it returns has .table() and .verdicts()."""
    opened = session.open_session(study, scale, lab, choices)
    say = live.printer(quiet)
    session.fetch(opened.tasks, say)
    todo = session.prepare(opened, say=say)
    places = launch.devices(device, jobs)
    if todo.todo:
        cost = plan.price(todo, opened.lab, places[0])
        session.perform(opened, todo, cost, places=launch.share(places, cost.memory, jobs), quiet=quiet)
    session.write(opened)
    return opened
