"""Runs as runs of MLflow: pip install 'saccade[mlflow]'; where to is said by MLFLOW_TRACKING_URI, else a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from saccade.spec import SaccadeError
from saccade.trackers.stream import Tracked


def write(runs: Iterator[Tracked], to: str) -> int:
    """`to` is the experiment. MLflow gives its own ids; the key of a run is a tag."""
    try:
        import mlflow
    except ImportError:
        raise SaccadeError("MLflow is not installed: pip install 'saccade[mlflow]'.") from None
    mlflow.set_experiment(to)
    count = 0
    for run in runs:
        with mlflow.start_run(run_name=run.name, tags={"saccade.key": run.key, "outcome": run.outcome}):
            mlflow.log_params(dict(run.settings))
            for point in run.points:
                mlflow.log_metric(point.name, point.value, step=point.images)
            for name, value in run.final.items():
                mlflow.log_metric(re.sub(r"[^\w./ -]", "_", name), value)  # the characters that MLflow accepts
        count += 1
    return count
