"""Seeds beyond the scale's own: a fixed number for every arm, or looks that add them where claims are open.

Runs that differ in their seed alone are a group. An arm may have many, such as one per training set size, and a claim
rests on some of them: a look names whole arms, or single groups by the key of their run of seed 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saccade.lab.store import seal, unseal, write_atomic
from saccade.spec import DamagedFile, Run, Task
from saccade.stats import ALPHA, sequential

FILE = "looks.json"
MOST = 10_000


@dataclass(frozen=True)
class Seeds:
    """How many seeds beyond the scale's own were asked for: a fixed number, or looks with what got more of them."""

    fixed: tuple[int, ...] = ()
    looks: tuple[tuple[int, tuple[str, ...]], ...] = ()  # number of seeds, and the arms or groups (none: all arms)

    def tasks(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        out = tuple(tasks)
        for n, names in self.looks:
            out = with_seeds(out, n, names, fewer=False)  # a look adds seeds; those of the scale are shown in any case
        return with_seeds(out, self.fixed[-1]) if self.fixed else out  # what was asked for by number counts last

    def looking(self, n: int, names: Sequence[str]) -> Seeds:
        """With one more look, or with more names at a look that there was; no names are all arms."""
        looks = dict(self.looks)
        earlier_names = looks.get(n, names)
        looks[n] = tuple(sorted({*earlier_names, *names})) if earlier_names and names else ()
        return replace(self, looks=tuple(sorted(looks.items())))


def groups_of(tasks: Sequence[Task]) -> dict[tuple[str, Run], list[Task]]:
    """Tasks that differ in their seed alone, by their arm and their run with seed 0."""
    groups: dict[tuple[str, Run], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.arm, replace(task.run, seed=0)), []).append(task)
    return groups


def group_of(tasks: Sequence[Task]) -> dict[str, str]:
    """For each run's key that of its group; what no seed changes has none."""
    groups = groups_of(tasks).items()
    return {t.run.key: run.key for (_, run), members in groups if not run.is_fact for t in members}


def with_seeds(tasks: Sequence[Task], n: int, names: Sequence[str] = (), fewer: bool = True) -> tuple[Task, ...]:
    """The same design with seeds 0 to n - 1, for what is named or for all. A new seed gets the last one's probes.

    Without `fewer` no seed is taken away, and a group of one seed among others that have more is left as it is: it is
    there to be shown, and no claim rests on it.
    """
    groups = groups_of(tasks)
    most = max((len(members) for members in groups.values()), default=0)
    out = []
    for (arm, run), members in groups.items():
        if names and arm not in names and run.key not in names:
            out += members
            continue
        if run.is_fact or (not names and not fewer and len(members) == 1 < most):  # no seed changes a fact
            out += members
            continue
        by_seed = {t.run.seed: t for t in members}
        last = by_seed[max(by_seed)]
        count = n if fewer else max(n, 1 + max(by_seed))
        out += [by_seed.get(s) or replace(last, run=replace(run, seed=s)) for s in range(count)]
    return tuple(out)


def names_of(group_keys: Set[str], tasks: Sequence[Task]) -> tuple[str, ...]:
    """These groups in as few names as there are: an arm whose groups are all among them is named as a whole."""
    arms: dict[str, set[str]] = {}
    for arm, run in groups_of(tasks):
        if not run.is_fact:
            arms.setdefault(arm, set()).add(run.key)
    complete_arms = {arm for arm, keys in arms.items() if keys <= group_keys}
    return tuple(sorted(complete_arms | {key for arm in arms.keys() - complete_arms for key in arms[arm] & group_keys}))


def read(folder: Path) -> Seeds:
    """What was asked for earlier in this study's folder."""
    path = folder / FILE
    if not path.exists():
        return Seeds()
    try:
        return parse(unseal(path))
    except ValueError as error:
        raise DamagedFile(
            f"{path} does not say how many seeds were asked for; delete it and ask again with --seeds."
        ) from error


def parse(document: Mapping[str, Any]) -> Seeds:
    """What `write` wrote; anything else is a ValueError."""
    try:
        seeds = Seeds(tuple(document["fixed"]), tuple((n, tuple(names)) for n, names in document["looks"]))
    except (KeyError, TypeError) as error:
        raise ValueError("no looks") from error
    if not all(isinstance(n, int) and 1 <= n <= MOST for n in (*seeds.fixed, *(n for n, _ in seeds.looks))):
        raise ValueError("no number of seeds")
    if not all(isinstance(name, str) for _, names in seeds.looks for name in names):
        raise ValueError("no name of an arm or a group")
    return seeds


def joined(own: Seeds, other: Seeds) -> Seeds:
    """The looks of two labs of one study: what either asked for. A fixed number is a lab's own wish and stays."""
    for n, names in other.looks:
        own = own.looking(n, names)
    return own


def write(folder: Path, seeds: Seeds) -> None:
    if seeds != Seeds():
        write_atomic(folder / FILE, seal({"fixed": seeds.fixed, "looks": seeds.looks}))


def in_words(looks: Sequence[tuple[int, Sequence[str]]], tasks: Sequence[Task]) -> str:
    """At which levels verdicts were given, and what has more seeds than the rest; `tasks` is the design without it.

    What got seeds in an earlier design and is no longer planned is left out: its key would tell a reader nothing.
    """
    levels = sequential.levels()
    groups = groups_of(tasks)
    arm_of, arms = {run.key: arm for arm, run in groups}, {arm for arm, _ in groups}
    settings = Counter(arm_of.values())
    steps = []
    for n, names in looks:
        if n in levels:
            counts = Counter(arm_of[name] for name in names if name in arm_of)
            descriptions = [name for name in names if name in arms]
            descriptions += [f"{arm} in {k} of {settings[arm]} settings" for arm, k in counts.items()]
            if names and not descriptions:
                continue
            every = "every arm, or the scale's own where these are more"
            steps.append(f"{n} seeds for {'; '.join(sorted(descriptions)) or every} (p below {levels[n]:g})")
    return (
        f"Seeds were added in looks: {', then '.join(steps)}. At each look all claims are judged, also those "
        "whose runs did not grow: their p is compared with the next level then. A claim has the verdict of the first "
        f"look that decides it; by Bonferroni's inequality the looks err together no more often than one at {ALPHA:g}."
    )
