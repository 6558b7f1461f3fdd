"""Runs as TensorBoard event files: pip install 'saccade[tensorboard]', then tensorboard --logdir DIR."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from saccade.spec import SaccadeError
from saccade.trackers.stream import Tracked


def write(runs: Iterator[Tracked], to: str) -> int:
    """One folder per run; a run that is written again replaces its own."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SaccadeError("TensorBoard is not installed: pip install 'saccade[tensorboard]'.") from None
    count = 0
    for run in runs:
        folder = Path(to) / run.key
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        with SummaryWriter(str(folder)) as writer:
            writer.add_text("settings", "\n\n".join(f"{k} = {v}" for k, v in run.settings.items()))
            for point in run.points:
                writer.add_scalar(point.name, point.value, point.images, walltime=point.time)
            for name, value in run.final.items():
                writer.add_scalar(name, value, 0)
        count += 1
    return count
