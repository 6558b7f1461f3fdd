"""saccade: a laboratory for the inductive biases of vision models.

Names are loaded on first use, so that `import saccade` costs nothing and loads no torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

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
    "Choice": "study",
    "Study": "study",
    "claim": "study",
    "figure": "study",
    "judge": "study",
    "Table": "lab.table",
    "Lab": "lab.store",
}
__all__ = sorted(_HOMES)


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
