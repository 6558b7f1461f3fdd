"""Seeds beyond the scale's own, by number and by looks at arms that are still open; the arms that a claim asks for."""

from types import SimpleNamespace

import pytest

from saccade import stats
from saccade.lab import pipeline, plan
from saccade.lab.pipeline import (
    How,
    Session,
    for_claims,
    looks_up_to,
    open_session,
    plan_until_decided,
    run_until_decided,
)
from saccade.lab.seeds import Seeds, in_words, names_of, with_seeds
from saccade.lab.store import Lab
from saccade.lab.table import Table, gap
from saccade.spec import Paper, Probe, Reason, Recipe, Run, SaccadeError, Settings, Task
from saccade.study import Claim, Study


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


def sizes(of_b=(64, 128)):
    """Arm A with one group of two seeds, arm B with a group per data size."""
    data = [("A", 64), *(("B", images) for images in of_b)]
    runs = [(arm, Run("lenet", "digits_on_backgrounds", Recipe(n), seed)) for arm, n in data for seed in (0, 1)]
    return tuple(Task(run, (Probe("accuracy"),), arm) for arm, run in runs)


def test_a_look_adds_seeds_to_single_groups_of_an_arm():
    key = next(t.run.key for t in sizes() if t.arm == "B" and t.run.recipe.images == 128)
    more = Seeds(looks=((2, ()), (4, (key,)))).tasks(sizes())
    count = {(t.arm, t.run.recipe.images): 0 for t in more}
    for t in more:
        count[t.arm, t.run.recipe.images] += 1
    assert count == {("A", 64): 2, ("B", 64): 2, ("B", 128): 4}
    said = in_words(((5, ()), (10, ("A", key))), sizes())
    assert "10 seeds for A; B in 1 of 2 settings (p below 0.015)" in said


def test_a_setting_that_is_no_longer_planned_is_not_told_by_its_key():
    old = next(t.run.key for t in sizes() if t.run.recipe.images == 128)
    said = in_words(((5, ()), (10, ("A", old)), (20, (old,))), sizes(of_b=(64, 256)))
    assert said.startswith("Seeds were added in looks: 5 seeds for every arm")
    assert "then 10 seeds for A (p below 0.015). At each look all claims are judged" in said


def test_groups_are_named_shortest():
    firsts = {(t.arm, t.run.recipe.images): t.run.key for t in sizes() if not t.run.seed}
    assert names_of(set(firsts.values()), sizes()) == ("A", "B")
    assert names_of({firsts["B", 128]}, sizes()) == (firsts["B", 128],)
    assert set(names_of({firsts["A", 64], firsts["B", 64]}, sizes())) == {"A", firsts["B", 64]}
    assert names_of(set(), sizes()) == ()


def test_a_first_look_leaves_alone_what_has_one_seed_to_be_shown():
    shown = tuple(t for t in tasks() if t.arm == "A" or t.run.seed == 0)
    assert seeds(Seeds(looks=((5, ()),)).tasks(shown)) == {"A": [0, 1, 2, 3, 4], "B": [0]}
    single = tuple(t for t in tasks() if t.run.seed == 0)  # a scale of one seed gets its five
    assert seeds(Seeds(looks=((5, ()),)).tasks(single)) == {"A": [0, 1, 2, 3, 4], "B": [0, 1, 2, 3, 4]}


def test_a_look_takes_no_seed_away():
    looked = Seeds(looks=((1, ()), (3, ("B",))))
    assert seeds(looked.tasks(tasks())) == {"A": [0, 1], "B": [0, 1, 2]}


def test_a_look_that_there_was_gets_more_arms_and_loses_none():
    some = Seeds().looking(5, ()).looking(10, ("B",))
    assert some.looks == ((5, ()), (10, ("B",)))
    assert some.looking(10, ("A",)).looks == ((5, ()), (10, ("A", "B")))
    assert some.looking(5, ("A",)).looks == some.looks  # all arms stay all arms
    assert some.looking(10, ()).looks == ((5, ()), (10, ()))


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


VALUES = {"A": (1.0, 1.1, 0.9, 1.0, 1.05), "B": (1.0, 3.0, 0.2, 2.0, 0.5), "C": (1.0, 3.0, 0.2, 2.0, 0.4)}


def above_zero(arm):
    def test(table):
        return stats.above(table.at(arm=arm).series("x"), 0.0)

    return Claim(id=arm, statement=arm, tested="above 0", test=test, trained=False)


@pytest.fixture
def looked_at(tmp_path, monkeypatch):
    """A study of three arms and a lab that answers at once: A is clear with five seeds, B and C with ten."""
    undone = set()

    def measured(lab, tasks, share=1.0):
        done = [t for t in tasks if (t.arm, t.run.seed) not in undone]
        rows = (
            {"arm": t.arm, "seed": t.run.seed, "metric": "x", "value": VALUES[t.arm][t.run.seed % 5], "run": t.run.key}
            for t in done
        )
        return Table(tuple(rows), tuple(gap(t, str(Reason.NOT_RUN)) for t in tasks if t not in done))

    monkeypatch.setattr(plan, "table_of", measured)
    monkeypatch.setattr(pipeline, "run", lambda session, planned, how: True)
    study = Study("test", "?", Paper("someone"), lambda *_: [], (), tuple(above_zero(arm) for arm in VALUES))
    models = ("lenet", "mha_lenet", "resnet")
    tasks = tuple(
        Task(Run(model, "digits_on_backgrounds", Recipe(64), seed), (Probe("accuracy"),), arm)
        for arm, model in zip(VALUES, models, strict=True)
        for seed in range(6)
    )
    monkeypatch.setattr(pipeline, "plan_work", lambda lab, tasks, *_: Planless(tasks))
    return Session(study, "large", Settings(), Lab(tmp_path / "lab"), tasks), undone


class Planless:
    def __init__(self, tasks):
        self.tasks = tasks
        self.todo = SimpleNamespace(todo=[t for t in tasks if t.run.seed > 5])

    def headline(self):
        return ", ".join(sorted({t.arm for t in self.tasks}))


def says(session):
    return {v.claim: v.says.value for v in session.verdicts()}


def test_seeds_are_added_where_they_are_missing_until_all_is_decided(looked_at):
    session, _ = looked_at
    told = []
    after = run_until_decided(session, How(), told.append)
    assert after.seeds.looks == ((5, ()), (10, ("B", "C")))
    assert says(after) == dict.fromkeys("ABC", "reproduced")
    assert {a: sum(t.arm == a for t in after.tasks) for a in VALUES} == {"A": 6, "B": 10, "C": 10}  # none taken away
    assert "open for lack of seeds: B, C" in "".join(told)
    (said,) = pipeline.facts(after)["remarks"]
    assert "where these are more (p below 0.01), then 10 seeds for B; C (p below 0.015)." in said


def test_a_dry_run_plans_the_first_look_that_has_work_to_do(looked_at):
    session, _ = looked_at
    told = []
    after, planned = plan_until_decided(session, How(), told.append)
    assert after.seeds.looks == ((5, ()), (10, ("B", "C")))  # all are there that the first look asks for
    assert {(t.arm, t.run.seed) for t in planned.todo.todo} == {(arm, n) for arm in "BC" for n in range(6, 10)}
    assert told == ["look at 5 seeds", "  open for lack of seeds: B, C", "look at 10 seeds"]
    assert plan_until_decided(session, How(), told.append, ("A",))[0].seeds.looks == ((5, ()),)  # decided: no more


def test_only_the_claims_that_are_named_get_more_seeds_and_others_may_follow(looked_at):
    session, _ = looked_at
    told = []
    after = run_until_decided(session, How(), told.append, ("B",))
    assert after.seeds.looks == ((5, ()), (10, ("B",)))
    assert says(after) == {"A": "reproduced", "B": "reproduced", "C": "undecided"}
    assert all(line.endswith("   B") for line in told if "look at" in line)  # no other arm was planned
    later = run_until_decided(after, How(), told.append, ("C",))
    assert later.seeds.looks == ((5, ()), (10, ("B", "C")))
    assert says(later) == dict.fromkeys("ABC", "reproduced")


def test_a_verdict_says_at_which_look_it_was_given(looked_at):
    session, _ = looked_at
    assert {v.look for v in session.verdicts()} == {""}
    after = run_until_decided(session, How(), lambda _: None, ("B",))
    looks = {v.claim: v.look for v in after.verdicts()}
    assert looks["A"] == "at 5 seeds, p below 0.01" and looks["B"] == "at 10 seeds, p below 0.015"
    assert looks["C"] == "at 10 seeds, p below 0.015, on the same runs as at the look before"


def test_a_claim_gets_no_more_seeds_than_the_most_that_was_said(looked_at):
    session, _ = looked_at
    assert looks_up_to(None) == (5, 10, 20) and looks_up_to(19) == (5, 10)
    after = run_until_decided(session, How(), lambda _: None, looks=looks_up_to(9))
    assert after.seeds.looks == ((5, ()),) and says(after)["B"] == "undecided"


def test_the_first_look_has_all_seeds_of_the_scale(looked_at):
    session, _ = looked_at
    after = run_until_decided(session, How(), lambda _: None)
    assert {v.claim: v.evidence.estimate.n for v in after.verdicts()} == {"A": 6, "B": 10, "C": 10}


def test_a_look_of_which_runs_are_missing_is_none_yet(looked_at):
    session, undone = looked_at
    after = run_until_decided(session, How(), lambda _: None)
    undone.add(("B", 9))
    assert says(after) == {"A": "reproduced", "B": "undecided", "C": "reproduced"}
    undone.clear()
    assert says(after)["B"] == "reproduced"


def test_a_look_counts_for_a_claim_though_runs_of_another_size_of_its_arm_are_missing(tmp_path, monkeypatch):
    values, undone = {64: VALUES["B"], 128: VALUES["C"]}, set()

    def measured(lab, tasks, share=1.0):
        done = [t for t in tasks if (t.run.recipe.images, t.run.seed) not in undone]
        rows = (
            {
                "arm": "B",
                "p": p,
                "seed": t.run.seed,
                "metric": "x",
                "value": values[p][t.run.seed % 5],
                "run": t.run.key,
            }
            for t in done
            for p in [t.run.recipe.images]
        )
        return Table(tuple(rows), tuple(gap(t, str(Reason.NOT_RUN)) for t in tasks if t not in done))

    def at(p):
        def test(table):
            return stats.above(table.series("x", arm="B", p=p), 0.0)

        return Claim(id=str(p), statement="", tested="above 0", test=test, trained=False)

    monkeypatch.setattr(plan, "table_of", measured)
    study = Study("test", "?", Paper("someone"), lambda *_: [], (), (at(64), at(128)))
    runs = [Run("lenet", "digits_on_backgrounds", Recipe(p), seed) for p in values for seed in range(5)]
    session = Session(
        study, "large", Settings(), Lab(tmp_path), tuple(Task(r, (Probe("accuracy"),), "B") for r in runs)
    )
    after = session.with_seeds(Seeds(looks=((5, ()), (10, ("B",)))))
    assert says(after) == {"64": "reproduced", "128": "reproduced"}
    undone.add((128, 9))
    assert says(after) == {"64": "reproduced", "128": "undecided"}


def test_a_probe_of_an_arm_that_no_claim_asked_for_is_no_shortfall(looked_at, monkeypatch):
    session, _ = looked_at
    faults = tuple(gap(t, "not measured") for t in session.tasks if t.run.seed == 0)
    monkeypatch.setattr(plan, "table_of", lambda *_: Table((), (), faults))
    of_a = [t for t in session.tasks if t.arm == "A"]
    assert len(pipeline.shortfall(session, of_a, spent=True)) == 1
    assert len(pipeline.shortfall(session, session.tasks, spent=True)) == 3
