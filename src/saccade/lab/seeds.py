"""Seeds beyond the scale's own: a fixed number for every arm, or looks that add them where claims are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saccade.lab.store import seal, unseal, write_atomic
from saccade.spec import DamagedFile, Task
from saccade.stats import ALPHA, sequential

FILE = "looks.json"
MOST = 10_000


@dataclass(frozen=True)
class Seeds:
    """How many seeds beyond the scale's own were asked for: a fixed number, or looks with the arms that went on."""

    fixed: tuple[int, ...] = ()
    looks: tuple[tuple[int, tuple[str, ...]], ...] = ()  # number of seeds, and the arms that got them (none: all)

    def tasks(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        out = tuple(tasks)
        for n, arms in self.looks:
            out = with_seeds(out, n, arms, fewer=False)  # a look adds seeds; those of the scale are shown in any case
        return with_seeds(out, self.fixed[-1]) if self.fixed else out  # what was asked for by number counts last

    def looking(self, n: int, arms: Sequence[str]) -> Seeds:
        """With one more look, or with more arms at a look that there was; no arms are all of them."""
        looks = dict(self.looks)
        known = looks.get(n, arms)
        looks[n] = tuple(sorted({*known, *arms})) if known and arms else ()
        return replace(self, looks=tuple(sorted(looks.items())))


def with_seeds(tasks: Sequence[Task], n: int, arms: Sequence[str] = (), fewer: bool = True) -> tuple[Task, ...]:
    """The same design with seeds 0 to n - 1, for the arms named or for all. A new seed gets the last one's probes."""
    groups: dict[Any, list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.arm, replace(task.run, seed=0)), []).append(task)
    out = []
    for (arm, run), members in groups.items():
        if arms and arm not in arms:
            out += members
            continue
        if run.is_fact:  # no seed changes it
            out += members
            continue
        by_seed = {t.run.seed: t for t in members}
        last = by_seed[max(by_seed)]
        count = n if fewer else max(n, 1 + max(by_seed))
        out += [by_seed.get(s) or replace(last, run=replace(run, seed=s)) for s in range(count)]
    return tuple(out)


def read(folder: Path) -> Seeds:
    """What was asked for earlier in this study's folder."""
    path = folder / FILE
    if not path.exists():
        return Seeds()
    kept = unseal(path)
    try:
        found = Seeds(tuple(kept["fixed"]), tuple((n, tuple(arms)) for n, arms in kept["looks"]))
        right = all(isinstance(n, int) and 1 <= n <= MOST for n in (*found.fixed, *(n for n, _ in found.looks)))
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise DamagedFile(f"{path} does not say how many seeds were asked for; delete it and ask again with --seeds.")
    return found


def write(folder: Path, seeds: Seeds) -> None:
    if seeds != Seeds():
        write_atomic(folder / FILE, seal({"fixed": seeds.fixed, "looks": seeds.looks}))


def in_words(looks: Sequence[tuple[int, Sequence[str]]]) -> str:
    """At which levels verdicts were given, and which arms have more seeds than the others."""
    levels = sequential.levels()
    every = "every arm, or the scale's own where these are more"
    steps = [f"{n} for {', '.join(arms) or every} (p below {levels[n]:g})" for n, arms in looks if n in levels]
    return (
        f"Seeds were added in looks: {'; '.join(steps)}. A claim has the verdict of the first look that decides it; "
        f"together the looks err no more often than one at {ALPHA:g}."
    )
