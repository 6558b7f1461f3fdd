"""What a run has seen of itself: its curve, its errors per epoch, its clock, and the rules that end it early."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.data.images import Images
from saccade.spec import MILESTONES, Outcome, Recipe
from saccade.subjects.subject import Subject
from saccade.training.distributed import Group
from saccade.training.events import Curve, Watch

WATCHED = 256  # held-out images looked at on the way
WINDOWS = 40  # points of the online accuracy curve
SYNC = 20  # steps between looks at the loss on devices where looking waits for the device


@dataclass(frozen=True)
class Learned:
    """What a step gave: logits and loss before the update, and seconds within it that were spent on other runs."""

    logits: Tensor
    loss: Tensor
    waited: float = 0.0


class Progress:
    """Kept beside the loop, so that the loop shows nothing but the learning."""

    def __init__(self, recipe: Recipe, batch: int, per_epoch: int, device: str, team: Group) -> None:
        self.recipe, self.batch, self.per_epoch, self.device, self.team = recipe, batch, per_epoch, device, team
        self.began, self.step = time.perf_counter(), 0
        self.curve: Curve = []
        self.errors: list[float] = []  # per epoch, on its batches before each was learned: they cost nothing
        self.right, self.epoch_right = torch.zeros(2, dtype=torch.long, device=device)
        self.window = max(1, recipe.steps // WINDOWS)
        self.watch_at = {round(recipe.steps * i / recipe.watch) for i in range(1, recipe.watch + 1)}
        self.milestones = {round(recipe.steps * share): share for share in MILESTONES if round(recipe.steps * share)}
        self.outcome, self.reason = Outcome.FINISHED, f"all {recipe.steps} steps"

    def restore(self, meta: dict[str, Any]) -> None:
        self.step, self.curve, self.errors = meta["step"], meta["curve"], meta["errors"]
        self.right += meta["right"]
        self.epoch_right += meta.get("epoch_right", 0)  # not in states of before there was `settle`
        self.began -= meta["seconds"]

    def meta(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "curve": self.curve,
            "errors": self.errors,
            "right": self.right,
            "epoch_right": self.epoch_right,
            "seconds": self.seconds,
        }

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def milestone(self) -> float | None:
        """The share of the budget that was reached with the last step."""
        return self.milestones.get(self.step)

    def count(self, learned: Learned, y: Tensor) -> None:
        """A step is done."""
        self.began += learned.waited
        self.step += 1
        hits = self.team.sum((learned.logits.argmax(1) == y).sum())
        self.right += hits
        self.epoch_right += hits

    def watch(self, subject: Subject, held_out: Images, split: str) -> Iterator[Watch]:
        """The points of the curve that are due after this step."""
        if self.step % self.window == 0:
            n = self.window * self.batch
            yield self._point("online", self.right.item() / n, n)
            self.right.zero_()
        if self.step in self.watch_at:
            seen = subject.correct(held_out)
            yield self._point(split, float(seen.mean()), len(seen))

    def _point(self, split: str, accuracy: float, n: int) -> Watch:
        point = Watch(self.step * self.batch, split, accuracy, n)
        self.curve.append({"images": point.images, "split": split, "accuracy": accuracy, "n": n})
        return point

    def diverged(self, loss: Tensor) -> bool:
        if self.device != "cpu" and self.step % SYNC and self.step != self.recipe.steps:
            return False
        if not math.isfinite(loss.item()):
            self.outcome, self.reason = Outcome.DIVERGED, f"the loss was {loss.item()} at step {self.step}"
        return self.outcome is Outcome.DIVERGED

    def over(self, images: int) -> bool:
        """Whether a rule ends the run here: training error unchanged, or no time left."""
        if self.step % self.per_epoch == 0:
            if self.recipe.settle:
                self.errors.append(1 - self.epoch_right.item() / (self.per_epoch * self.batch))
                if settled(self.errors, self.recipe.settle, images):
                    self.reason = f"training error unchanged over {self.recipe.settle} epochs"
                    return True
            self.epoch_right.zero_()
        limit = self.recipe.max_seconds
        if limit and self.team.agree(self.seconds) > limit:
            self.outcome, self.reason = Outcome.TIMEOUT, f"{limit:.0f} seconds were up at step {self.step}"
        return self.outcome is Outcome.TIMEOUT


def settled(errors: list[float], epochs: int, n: int) -> bool:
    """Whether the training error moved by at most one image over the last epochs."""
    last = errors[-epochs:]
    return len(errors) > epochs and max(last) - min(last) <= 1 / n + 1e-12
