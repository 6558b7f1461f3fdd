"""What goes wrong beside a training: probes that fail or kill, tied weights, missing rows. No run is lost to it."""

import pytest
import torch

from saccade import registry
from saccade.cli import terminal
from saccade.lab import launch, pipeline, plan
from saccade.lab.store import TRAINING, Lab
from saccade.lab.worker import load, perform
from saccade.spec import Probe, Recipe, Run, SaccadeError, Settings, Task

DRAWN = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
GOOD = Probe("accuracy", splits=("id",), n=20)
PLUGIN = """
import os
from torch import nn
from saccade.registry import model, probe
from saccade.spec import Row, SaccadeError


@probe(version=1)
def faulty(subject, data, *, how="raise"):
    '''Fails in a way of its own.'''
    if os.path.exists(os.environ.get("REPAIRED", "nowhere")):
        yield Row("repaired", 1.0, 1)
        return
    if how == "die":
        os._exit(7)
    if how == "refuse":
        raise SaccadeError("this net has no heads to look at.")
    if how == "nan":
        yield Row("half", float("nan"), 1)
    raise RuntimeError("\\n\\n  the third line says why\\nand more")


@model(family="other")
def tied(classes=10, *, width=8):
    '''Two layers with one weight.'''
    first, second = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, width), first, nn.ReLU(), second, nn.Linear(width, classes))
"""
WHY = "RuntimeError: the third line says why"


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / "lab").open()


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "odd.py"
    file.write_text(PLUGIN, "utf-8")
    registry.load_plugin(str(file))
    return str(file)


def task(*probes, model="lenet", seed=0):
    run = Run(model, "digits_on_backgrounds", Recipe(images=160, watch=1), seed, data_args=DRAWN)
    return Task(run, probes, "arm")


@pytest.mark.parametrize("how", ["raise", "refuse", "nan"])
def test_a_probes_failure_is_its_own_and_the_run_stays_finished(lab, plugin, how):
    faulty = task(Probe("faulty", how=how), GOOD)
    events = list(perform(lab, faulty))
    seen = [(e["event"], e.get("probe")) for e in events if e["event"] != "step"]
    assert seen[:2] == [("probe", "faulty"), ("probe failed", "faulty")] and seen[-1] == ("finished", None)
    assert [name for kind, name in seen[2:] if kind == "probe"] == ["accuracy"] * 3  # at the end and at two milestones
    assert lab.done(faulty.run.key)["outcome"] == "finished" and lab.damage(faulty.run.key) == []
    table = plan.table_of(lab, [faulty])
    assert len(table.series("accuracy", split="id")) == 1
    assert [f["probe"] for f in table.faults] == ["faulty"] and table.faults[0]["why"].startswith("probe faulty failed")
    assert table.missing(metric="repaired") == 1 and table.missing(metric="accuracy", split="id") == 0
    assert not plan.examine(lab, [task(GOOD)]).todo  # another study that asks less of the run


def test_the_reason_is_the_first_line_that_says_something(lab, plugin):
    list(perform(lab, task(Probe("faulty"))))
    assert lab.failure(task().run.key, Probe("faulty"))["reason"] == WHY


def test_a_failed_probe_is_asked_again_on_request_only(lab, plugin, tmp_path, monkeypatch):
    faulty = task(Probe("faulty"))
    list(perform(lab, faulty))
    found = plan.examine(lab, [faulty])
    assert found.complete == (faulty,) and found.faults == {faulty.run.key: [f"faulty: {WHY}"]}
    (tmp_path / "good").write_text("", "utf-8")
    monkeypatch.setenv("REPAIRED", str(tmp_path / "good"))
    assert [e["event"] for e in perform(lab, faulty)] == ["finished"]
    assert plan.examine(lab, [faulty], retry=True).measure == (faulty,)
    assert [e["event"] for e in perform(lab, faulty, retry=True)] == ["probe"] * 3 + ["finished"]
    assert lab.failure(faulty.run.key, Probe("faulty")) is None
    assert plan.table_of(lab, [faulty]).series("repaired") == {0: 1.0}


def test_a_probe_that_kills_its_worker_fails_and_the_others_are_measured(lab, plugin, monkeypatch):
    monkeypatch.setattr(launch, "RETRIES", 0)
    deadly = task(Probe("faulty", how="die"), GOOD)
    events = [e["event"] for e in launch.local([deadly], lab, places=["cpu"], plugins=[plugin], retry=True)]
    assert events.count("probe failed") == 1
    assert events[-1] == "finished" and lab.done(deadly.run.key)["files"]
    assert len(plan.table_of(lab, [deadly]).series("accuracy", split="id")) == 1


def test_tied_weights_are_kept_and_loaded(lab, plugin):
    tied = task(GOOD, model="tied")
    assert [e["event"] for e in perform(lab, tied)][-1] == "finished"
    first, second = (load(lab, tied.run).model[i].weight for i in (2, 4))
    assert torch.equal(first, second)


def test_missing_training_rows_are_damage_that_stops_a_run(lab):
    list(perform(lab, task(GOOD)))
    (lab.folder(task().run.key) / "rows" / f"{TRAINING.key}.json").unlink()
    assert plan.examine(lab, [task(GOOD)]).damaged == {task().run.key: [f"rows/{TRAINING.key}.json"]}


def test_a_missing_measurement_is_listed_and_measured_again(lab):
    list(perform(lab, task(GOOD)))
    (lab.folder(task().run.key) / "rows" / f"{GOOD.key}.json").unlink()
    assert plan.table_of(lab, [task(GOOD)]).faults[0]["why"] == "probe accuracy not measured yet"
    assert plan.examine(lab, [task(GOOD)]).measure == (task(GOOD),)


def test_the_report_names_what_a_probe_did_not_give(lab, plugin):
    session = pipeline.open_session("digits_on_backgrounds", "smoke", lab.root)
    faulty = task(Probe("faulty"))
    list(perform(lab, faulty))
    facts = pipeline.facts(pipeline.Session(session.study, "smoke", session.chosen, lab, (faulty,)))
    assert facts["remarks"][0].startswith(f"arm, seed 0: probe faulty failed: {WHY}")


def _killed_at_start(monkeypatch, times):
    """The first workers are killed before they are ready."""
    begin, started = launch.start, []

    def start(*args):
        started.append(begin(*args))
        if len(started) <= times:
            started[-1].process.kill()
        return started[-1]

    monkeypatch.setattr(launch, "start", start)
    return started


def test_a_worker_killed_at_its_start_is_replaced(lab, monkeypatch):
    started = _killed_at_start(monkeypatch, 1)
    events = list(launch.local([task(GOOD)], lab, places=["cpu"]))
    assert events[-1]["event"] == "finished" and len(started) == 2


def test_workers_that_are_always_killed_at_their_start_end_the_launch_in_words(lab, monkeypatch):
    started = _killed_at_start(monkeypatch, 99)
    with pytest.raises(SaccadeError, match=r"could not start \(3 were killed at their start, the last by signal 9\)"):
        list(launch.local([task(GOOD)], lab, places=["cpu"]))
    assert len(started) == launch.RETRIES + 1


def test_waiting_is_said_once_with_whom_for(lab):
    held = lab.claim(task().run, {})
    (event,) = perform(lab, task())
    assert event["event"] == "busy" and event["holder"].startswith("process ")
    board = terminal.Board([task()], (), {}, 1)
    assert f"waiting for {event['holder']}" in board.hear({**event, "task": task()})
    assert board.hear({**event, "task": task()}) == ""
    held.release()
