"""Runs as runs of Weights & Biases: pip install 'saccade[wandb]'; `wandb offline` keeps them on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.spec import SaccadeError
from saccade.trackers.stream import Tracked


def write(runs: Iterator[Tracked], to: str) -> int:
    """`to` is the project. A run's id is its key, so that one written again continues its own."""
    try:
        import wandb
    except ImportError:
        raise SaccadeError("wandb is not installed: pip install 'saccade[wandb]'.") from None
    count = 0
    for run in runs:
        kept = wandb.init(project=to, id=run.key, name=run.name, config=dict(run.settings), resume="allow")
        for point in run.points:
            kept.log({point.name: point.value, "images": point.images}, step=point.images)
        kept.summary.update({**run.final, "outcome": run.outcome})
        kept.finish()
        count += 1
    return count
