"""What a trial of benchmarks/reliability.py is, and the small run that several of them work on.

A trial is a function from an empty folder to how often it tried and what was lost. What must not be lost: a finished
run, a bit of its weights, more of a run under way than its last save, the user's interpreter; and the truth: damage
that nobody names, a failure that counts as success, a traceback in place of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kills import Kill


@dataclass(frozen=True)
class Outcome:
    """How often it was tried, and what was lost, in words; nothing, if all is well. Of kills also when each was."""

    times: int
    lost: tuple[str, ...] = ()
    kills: tuple[Kill, ...] = ()
    calm_seconds: float = 0.0


@dataclass(frozen=True)
class Trial:
    """Long ones come in pieces with the same words, whose attempts are added up."""

    area: str
    what: str
    run: Callable[[Path], Outcome]
    piece: int = 0


TRIALS: list[Trial] = []


def trial(area: str, what: str, piece: int = 0) -> Callable[[Callable[[Path], Outcome]], Callable[[Path], Outcome]]:
    """Adds a function to the list of trials."""

    def add(run: Callable[[Path], Outcome]) -> Callable[[Path], Outcome]:
        TRIALS.append(Trial(area, what, run, piece))
        return run

    return add


def finished_run(folder: Path) -> Any:
    """A lab with one small run in it, trained and measured, and the run's task."""
    from saccade.lab.perform import perform
    from saccade.lab.store import Lab

    lab, task = Lab(folder / "lab").open(), a_task()
    if list(perform(lab, task))[-1].kind != "finished":
        raise SystemExit("the small run that the trials work on did not finish")
    return lab, task


def a_task(*probes: Any, images: int = 160) -> Any:
    from saccade.spec import Probe, Recipe, Run, Settings, Task

    settings = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
    run = Run("lenet", "digits_on_backgrounds", Recipe(images=images, watch=1), 0, data_args=settings)
    return Task(run, probes or (Probe("accuracy", splits=("id",), n=20),), "arm")


def weights_of(lab: Path) -> dict[str, bytes]:
    return {p.parent.name: p.read_bytes() for p in lab.glob("runs/*/weights.safetensors")}
