"""Seeds beyond the scale's own: by number, and by looks at arms that are still open."""

from saccade.lab.pipeline import Seeds, with_seeds
from saccade.spec import Probe, Recipe, Run, Task


def tasks():
    asked = {0: (Probe("accuracy"), Probe("sizes")), 1: (Probe("accuracy"),)}  # the first seed is asked more
    return [
        Task(Run(model, "digits_on_backgrounds", Recipe(64), seed), asked[seed], arm)
        for arm, model in (("A", "lenet"), ("B", "mha_lenet"))
        for seed in (0, 1)
    ]


def seeds(some):
    return {arm: [t.run.seed for t in some if t.arm == arm] for arm in ("A", "B")}


def test_every_arm_gets_the_number_of_seeds_asked_for_and_new_ones_the_last_ones_probes():
    more = with_seeds(tasks(), 4)
    assert seeds(more) == {"A": [0, 1, 2, 3], "B": [0, 1, 2, 3]}
    assert [len(t.probes) for t in more if t.arm == "A"] == [2, 1, 1, 1]
    assert seeds(with_seeds(tasks(), 1)) == {"A": [0], "B": [0]}


def test_a_look_adds_seeds_only_to_the_arms_that_are_open():
    looked = Seeds(looks=((3, ()), (5, ("B",))))
    assert seeds(looked.tasks(tasks())) == {"A": [0, 1, 2], "B": [0, 1, 2, 3, 4]}


def test_a_number_of_seeds_asked_for_after_looks_counts():
    looked = Seeds(fixed=(6,), looks=((3, ()),))
    assert seeds(looked.tasks(tasks())) == {"A": list(range(6)), "B": list(range(6))}
