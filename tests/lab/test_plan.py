"""What of a study a lab has already: nothing that was measured with other code, and nothing that lacks a part."""

from dataclasses import replace

import pytest

from saccade import registry
from saccade.lab import identity, pipeline, plan
from saccade.lab.store import Lab, seal, write_atomic
from saccade.spec import MILESTONES, Probe, Recipe, Run, Settings, Task

PROBE = Probe("accuracy", n=10)
TASK = Task(Run("lenet", "digits_on_backgrounds", Recipe(64), 0), (PROBE,))


@pytest.fixture
def lab(tmp_path):
    """A run with the rows of its probe at the end and at every milestone; nothing was trained."""
    lab, key = Lab(tmp_path / "lab").open(), TASK.run.key
    lease = lab.claim(TASK.run, {"versions": {"model": 1, "data": registry.card("data", TASK.run.data).version}})
    for share in (1.0, *MILESTONES):
        lab.put_rows(key, PROBE, registry.card("probe", "accuracy").version, [], share=share)
        if share < 1:
            lab.save_milestone(key, share, b"weights on the way")
    lab.put_rows(key, plan.TRAINING, 1, [])
    lab.finish(key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 4}, b"weights")
    lease.release()
    return lab


@pytest.fixture
def newer(monkeypatch):
    """Makes one registered name a version newer."""
    card = registry.card

    def make(kind, name):
        def changed(k, n):
            found = card(k, n)
            return replace(found, version=found.version + 1) if (k, n) == (kind, name) else found

        monkeypatch.setattr(registry, "card", changed)

    return make


def test_a_run_with_all_its_rows_is_complete(lab):
    found = plan.examine(lab, [TASK])
    assert found.complete == (TASK,) and not found.todo and not found.stale


def test_rows_of_an_older_probe_are_measured_again(lab, newer):
    newer("probe", "accuracy")
    found = plan.examine(lab, [TASK])
    assert found.measure == (TASK,) and not found.train


def test_rows_of_a_probe_that_was_edited_are_measured_again(lab, monkeypatch):
    monkeypatch.setattr(identity, "of_probe", lambda probe: "0123456789ab")
    assert plan.examine(lab, [TASK]).measure == (TASK,)


@pytest.mark.parametrize(("kind", "name"), TASK.run.parts)
def test_a_run_of_an_older_model_or_of_older_data_is_stale(lab, newer, kind, name):
    newer(kind, name)
    found = plan.examine(lab, [TASK])
    assert found.train == (TASK,) and "is now version" in found.stale[TASK.run.key]


def test_a_milestone_without_rows_is_measured(lab):
    more = replace(TASK, probes=(PROBE, Probe("accuracy", n=20)))
    lab.put_rows(more.run.key, more.probes[1], registry.card("probe", "accuracy").version, [])
    assert plan.examine(lab, [more]).measure == (more,)


def test_the_time_of_a_part_counts_for_the_whole_study(tmp_path):
    whole, part = (
        pipeline.open_session("digits_on_backgrounds", "smoke", tmp_path / "lab", {}, o) for o in ("", "CNN")
    )
    for session, seconds in ((whole, 10.0), (part, 100.0)):
        session.folder.mkdir(parents=True)
        write_atomic(session.folder / "wall.json", seal({"seconds": seconds, "jobs": 2, "sittings": 1}))
    assert [pipeline.facts(s)["wall seconds"] for s in (whole, part)] == [110.0, 100.0]
    assert pipeline.facts(whole)["sittings"] == 2


@pytest.mark.parametrize(
    ("seconds", "first"),
    [(None, 2), (60.0, 2), (30.0, 0)],
    ids=["no budget", "enough for all", "too little"],
)
def test_the_longest_go_first_unless_the_time_will_not_do_for_all(tmp_path, seconds, first):
    tasks = [replace(TASK, run=replace(TASK.run, seed=seed)) for seed in range(3)]
    cost = plan.Cost({t.run.key: 10.0 * (1 + t.run.seed) for t in tasks})
    found = plan.queue(plan.examine(Lab(tmp_path / "lab").open(), tasks), cost, seats=1, seconds=seconds)
    assert [t.run.seed for t in found] == sorted(range(3), reverse=first == 2)


LINE = {"step_seconds": 0.0, "image_seconds": 1.0, "answer_seconds": 0.0}
SETTLING = Task(Run("lenet", "digits_on_backgrounds", Recipe(64, batch=16, settle=1), 0))


def finish(lab, task, step):
    lease = lab.claim(task.run, {"versions": {}})
    lab.put_rows(task.run.key, plan.TRAINING, 1, [])
    lab.finish(task.run.key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": step}, b"weights")
    lease.release()


def priced(lab, tasks):
    return plan.price(plan.examine(lab, tasks), lab, "cpu", measure=lambda kinds, *_: [LINE] * len(kinds))


def test_a_run_that_ends_itself_is_priced_by_the_nearest_finished_one(tmp_path):
    lab = Lab(tmp_path / "lab").open()
    other = replace(SETTLING, run=replace(SETTLING.run, seed=1))
    longer = replace(SETTLING, run=replace(SETTLING.run, recipe=replace(SETTLING.run.recipe, images=640)))
    wide = replace(SETTLING, run=replace(SETTLING.run, model_args=Settings(head="mean")))
    cost = priced(lab, [SETTLING, other])
    assert cost.seconds[other.run.key] == 64 and cost.bound  # none like it has finished
    finish(lab, SETTLING, step=1)
    finish(lab, longer, step=30)
    cost = priced(lab, [SETTLING, other, longer, wide])
    assert not cost.bound
    assert cost.seconds[other.run.key] == cost.seconds[wide.run.key] == 16  # a quarter, as the one with as many steps
    far = replace(longer, run=replace(longer.run, seed=1))
    assert priced(lab, [SETTLING, longer, far]).seconds == {far.run.key: 480}


def test_the_headline_says_at_most_while_no_run_of_the_kind_has_ended_itself(tmp_path):
    lab = Lab(tmp_path / "lab").open()
    todo = plan.examine(lab, [SETTLING])
    says = pipeline.Planned(todo, priced(lab, [SETTLING]), ("cpu",)).headline()
    assert "at most 64 s" in says
    plain = replace(SETTLING, run=replace(SETTLING.run, recipe=Recipe(64, batch=16)))
    assert "about 64 s" in pipeline.Planned(todo, priced(lab, [plain]), ("cpu",)).headline()
