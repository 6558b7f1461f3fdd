"""saccade: a laboratory for the inductive biases of vision models.

Names are loaded on first use, so that `import saccade` costs nothing and loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:  # what a type checker and an editor see; at run time the table below
    from saccade.api import compare, model, probe, run, train
    from saccade.lab.store import Lab
    from saccade.lab.table import Table
    from saccade.requirements import above_chance, in_use, learned
    from saccade.spec import (
        Difference,
        Estimate,
        Paper,
        Probe,
        Recipe,
        Row,
        Run,
        SaccadeError,
        Scale,
        Settings,
        Task,
        Verdict,
    )
    from saccade.study import Choice, Study, claim, figure, judge

_HOMES = {
    "model": "api",
    "train": "api",
    "run": "api",
    "probe": "api",
    "compare": "api",
    "attention": "analysis.looking",
    "profile": "api",
    "Paper": "spec",
    "Probe": "spec",
    "Recipe": "spec",
    "Run": "spec",
    "Row": "spec",
    "SaccadeError": "spec",
    "Scale": "spec",
    "Settings": "spec",
    "Task": "spec",
    "Estimate": "spec",
    "Difference": "spec",
    "Verdict": "spec",
    "Choice": "study",
    "Study": "study",
    "claim": "study",
    "figure": "study",
    "judge": "study",
    "learned": "requirements",
    "above_chance": "requirements",
    "in_use": "requirements",
    "Table": "lab.table",
    "Lab": "lab.store",
}
__all__ = [  # noqa: RUF022 - in the order in which a reader meets them
    "model",
    "train",
    "run",
    "probe",
    "compare",
    "Paper",
    "Probe",
    "Recipe",
    "Run",
    "Row",
    "SaccadeError",
    "Scale",
    "Settings",
    "Task",
    "Estimate",
    "Difference",
    "Verdict",
    "Choice",
    "Study",
    "claim",
    "figure",
    "judge",
    "learned",
    "above_chance",
    "in_use",
    "Table",
    "Lab",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"saccade.{_HOMES[name]}"), name)
    try:
        return importlib.import_module(f"saccade.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"saccade.{name}":
            raise
        raise AttributeError(f"module 'saccade' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
