"""Facts: what needs no trained model has a folder, a cost and rows of its own."""

from dataclasses import replace

import pytest

from saccade import registry
from saccade.lab import perform, pipeline, plan
from saccade.lab.seeds import with_seeds
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run, SaccadeError, Settings, Task

MODELS = (Settings(net="small", model="lenet", args=Settings()),)
SIZES = Probe("sizes", nets=MODELS)
TRAINED = Run("lenet", "digits_on_backgrounds", Recipe(images=32), 0)
FACT = Task(Run.fact("digits_on_backgrounds", Settings()), (SIZES,), "facts", before=TRAINED.key)


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / "lab").open()


def test_a_fact_is_measured_without_training_or_data(lab, monkeypatch):
    monkeypatch.setattr(perform, "train", lambda *_: pytest.fail("a fact was trained"))
    events = [event.kind for event in perform.perform(lab, FACT)]
    assert events == ["probe", "finished"]
    rows = plan.table_of(lab, [FACT]).rows
    assert [(r["arm"], r["metric"], r["net"]) for r in rows] == [("facts", "size", "small")]
    assert plan.examine(lab, [FACT]).complete == (FACT,)
    assert not lab.damage(FACT.run.key)


def test_what_a_fact_costs_is_what_its_probes_say(lab):
    def measure(*_):
        pytest.fail("a model was timed")

    cost = plan.price(plan.examine(lab, [FACT]), lab, "cpu", measure=measure)
    assert cost.seconds == {FACT.run.key: registry.card("probe", "sizes").extra["fact_seconds"]}


def test_rows_that_an_older_lab_keeps_with_a_run_answer_a_fact(lab):
    lease = lab.claim(TRAINED, perform.environment(TRAINED, "cpu"))
    lab.put_rows(TRAINED.key, Probe("training"), 1, [{"metric": "parameters", "value": 5, "n": 1, "at": {}}])
    lab.put_rows(TRAINED.key, SIZES, 1, [{"metric": "size", "value": 7, "n": 1, "at": {"net": "small"}}])
    lab.finish(TRAINED.key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 2}, b"weights")
    lease.release()
    assert plan.examine(lab, [FACT]).complete == (FACT,)
    assert [(r["metric"], r["value"]) for r in plan.table_of(lab, [FACT])] == [("size", 7)]


def test_more_seeds_leave_a_fact_alone():
    tasks = with_seeds([Task(TRAINED, (), "LeNet"), FACT], 3)
    assert [t.run.seed for t in tasks] == [0, 1, 2, 0] and tasks[-1] == FACT


def test_a_probe_of_models_is_refused_for_a_fact(monkeypatch, tmp_path):
    asks = Task(FACT.run, (Probe("accuracy"),), "facts")
    study = replace(registry.study("digits_on_backgrounds"), tasks=lambda *_: [asks])
    monkeypatch.setattr(registry, "study", lambda name: study)
    with pytest.raises(SaccadeError, match="probe accuracy looks at a model"):
        pipeline.open_session("digits_on_backgrounds", "smoke", tmp_path)
