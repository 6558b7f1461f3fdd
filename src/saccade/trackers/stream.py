"""What a lab has written of its runs, as a tracker wants it: settings, curves over images seen, final numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saccade.lab.store import Lab, read_document
from saccade.spec import SaccadeError, plain

MOST_CONDITIONS = 3  # of a row that is worth a name of its own


@dataclass(frozen=True)
class Point:
    name: str
    value: float
    images: int  # seen in training
    time: float


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """One run. `final` holds what probes measured, by probe, metric and condition."""

    key: str
    name: str
    settings: Mapping[str, Any]
    points: tuple[Point, ...]
    final: Mapping[str, float]
    outcome: str


Write = Callable[[Iterator[Tracked], str], int]


def runs(lab: Lab, keys: Sequence[str] = ()) -> Iterator[Tracked]:
    """Every run, or these; also those that are not finished yet."""
    if not (lab.root / "runs").is_dir():
        raise SaccadeError(f"no lab at {lab.root}; saccade run or train makes one, --lab DIR names another.")
    for key in keys or lab.keys():
        run, done = lab.run(key), lab.done(key)
        settings = {
            "model": run.model,
            "data": run.data,
            "seed": run.seed,
            **{f"model.{k}": v for k, v in plain(run.model_args).items()},
            **{f"data.{k}": v for k, v in plain(run.data_args).items()},
            **{f"recipe.{k}": v for k, v in plain(run.recipe).items()},
        }
        yield Tracked(
            key=key,
            name=f"{run.model or 'facts'} on {run.data}, seed {run.seed}",
            settings=settings,
            points=tuple(_points(lab, key)),
            final=dict(_final(lab, key)),
            outcome=done["outcome"] if done else "running",
        )


def _points(lab: Lab, key: str) -> Iterator[Point]:
    log = lab.folder(key) / "log.jsonl"
    if not log.exists():
        return
    for line in log.read_text("utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # the last line of a run that is being written
            continue
        if event.get("event") == "watch":
            yield Point(f"accuracy/{event['split']}", event["accuracy"], event["images"], event["time"])


def _final(lab: Lab, key: str) -> Iterator[tuple[str, float]]:
    for file in sorted((lab.folder(key) / "rows").glob("*.json")):
        kept = read_document(file)
        for row in kept["rows"]:
            conditions = {k: v for k, v in row["at"].items() if isinstance(v, (str, int, float, bool))}
            if len(conditions) == len(row["at"]) <= MOST_CONDITIONS:
                at = "".join(f"/{k}={v}" for k, v in sorted(conditions.items()))
                yield f"{file.stem.partition('-')[0]}/{row['metric']}{at}", float(row["value"])
