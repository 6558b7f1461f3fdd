"""Runs as runs of trackio, a tracker on this machine: pip install 'saccade[trackio]', then trackio show."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.spec import SaccadeError
from saccade.trackers.stream import Tracked


def write(runs: Iterator[Tracked], to: str) -> int:
    """`to` is the project; a run is named by its key."""
    try:
        import trackio
    except ImportError:
        raise SaccadeError("trackio is not installed: pip install 'saccade[trackio]'.") from None
    count = 0
    for run in runs:
        trackio.init(project=to, name=run.key, config={**run.settings, "name": run.name}, resume="allow")
        for point in run.points:
            trackio.log({point.name: point.value}, step=point.images)
        trackio.log(dict(run.final))
        trackio.finish()
        count += 1
    return count
