"""Seeds beyond the scale's own, by number and by looks at arms that are still open; the arms that a claim asks for."""

import pytest

from saccade.lab.pipeline import Seeds, for_claims, open_session, with_seeds
from saccade.spec import Probe, Recipe, Run, SaccadeError, Task


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


def test_a_claim_names_the_arms_that_it_asks_for(tmp_path):
    session = open_session("attention_as_convolution", "large", tmp_path / "lab")
    assert for_claims(session, ()) == session.tasks
    assert {t.arm for t in for_claims(session, ["R-F2-noniso"])} == {"isotropic", "non-isotropic", "facts"}
    both = for_claims(session, ["R-F2-noniso", "R-O2"])
    assert {t.arm for t in both} == {"isotropic", "non-isotropic", "learned + content", "facts"}
    assert len({t.run.key for t in both}) == len(both)  # a run that two claims ask for is done once


@pytest.mark.parametrize(
    ("id", "says"),
    [("R-O3", 'no claim "R-O3"; did you mean R-O'), ("R-T1-resnet18", "claim R-T1-resnet18 takes --scale paper")],
)
def test_a_claim_that_is_unknown_or_out_of_reach_is_refused(tmp_path, id, says):
    session = open_session("attention_as_convolution", "large", tmp_path / "lab")
    with pytest.raises(SaccadeError, match=says):
        for_claims(session, [id])
