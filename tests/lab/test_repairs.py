"""What an adversary found in the lab and its workers: one test for each defect that no other file tests."""

import json
import os
import sys

import pytest
import torch

from saccade import registry
from saccade.lab import launch, pipeline, plan
from saccade.lab.events import Busy
from saccade.lab.perform import load, perform
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run, Settings, Task

DRAWN = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
PROBE = Probe("accuracy", splits=("id",), n=20)
PLUGIN = """
import os
import torch
from torch import nn
from saccade.registry import model, probe
from saccade.spec import Row

looked = []


@model(family="other")
def tied(classes=10, *, width=10):
    '''Two layers with one weight.'''
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3072, width), nn.Linear(width, width), nn.Linear(width, classes))
    layers[3].weight = layers[2].weight
    return layers


@probe(version=1)
def raises(subject, data):
    '''Fails.'''
    raise ValueError("no such thing")
    yield


@probe(version=1)
def long(subject, data):
    '''Looks at a hundred batches, and would not let an error end it.'''
    for i in range(100):
        try:
            subject.logits(data("id").batch(torch.arange(4)))
        except Exception:
            pass
        looked.append(i)
    yield Row("looks", 100, 1)


@probe(version=1)
def dies(subject, data):
    '''Ends its process.'''
    os._exit(7)
    yield
"""


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / "lab").open()


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(PLUGIN, "utf-8")
    registry.load_plugin(str(path))
    return str(path)


def task(*probes, model="lenet", seed=0):
    run = Run(model, "digits_on_backgrounds", Recipe(images=160, watch=1), seed, data_args=DRAWN)
    return Task(run, probes or (PROBE,))


def do(lab, *tasks, **how):
    return list(launch.local(tasks, lab, places=["cpu"], **how))


def test_a_probe_that_raises_fails_alone(lab, plugin):
    asked = task(Probe("raises"), PROBE)
    assert list(perform(lab, asked))[-1].kind == "finished"
    table = plan.table_of(lab, [asked])
    assert lab.done(asked.run.key)["outcome"] == "finished" and len(table.series("accuracy", split="id")) == 1
    assert [(f["probe"], "no such thing" in f["why"]) for f in table.faults] == [("raises", True)]
    assert plan.examine(lab, [task()]).complete == (task(),), "another study has nothing to do with it"


def test_a_request_to_stop_ends_a_probe_at_its_next_images_and_loses_nothing_else(lab, plugin):
    asked = task(PROBE, Probe("long"))
    list(perform(lab, task(PROBE)))
    looked = sys.modules[registry.find("probe", "long").__module__].looked
    looked.clear()
    events = list(perform(lab, asked, stopping=lambda: len(looked) >= 3))
    assert [e.kind for e in events] == ["probe", "stopped"] and len(looked) == 3
    assert plan.examine(lab, [asked]).measure == (asked,) and not plan.table_of(lab, [asked]).at(metric="looks").rows
    assert list(perform(lab, asked))[-1].kind == "finished" and len(looked) == 3 + 3 * 100  # and at two milestones
    assert plan.examine(lab, [asked]).complete == (asked,)


@pytest.mark.slow
def test_a_probe_that_kills_its_worker_fails_alone(lab, plugin):
    asked = task(Probe("dies"), PROBE)
    events = do(lab, asked, plugins=[plugin])
    assert events[-1].kind == "finished"
    table = plan.table_of(lab, [asked])
    assert [f["probe"] for f in table.faults] == ["dies"] and len(table.series("accuracy", split="id")) == 1


def test_a_model_with_tied_weights_is_kept_and_read_again(lab, plugin, monkeypatch):
    monkeypatch.setattr("saccade.lab.perform.SAVE_EVERY", 0.0)  # its states too
    asked = task(model="tied")
    assert list(perform(lab, asked))[-1].kind == "finished"
    model = load(lab, asked.run).model
    assert torch.equal(model[3].weight, model[2].weight) and model[3].weight.abs().sum() > 0


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_starts_is_replaced(lab, tmp_path):
    fatal = tmp_path / "fatal.py"
    mark = tmp_path / "mark"
    fatal.write_text(
        f"import os, pathlib, signal\nmark = pathlib.Path({str(mark)!r})\n"
        "if not mark.exists():\n    mark.touch()\n    os.kill(os.getpid(), signal.SIGKILL)\n",
        "utf-8",
    )
    events = do(lab, task(), plugins=[str(fatal)])
    assert mark.exists() and events[-1].kind == "finished"


def test_whoever_waits_says_for_whom(lab):
    asked = task()
    lab.folder(asked.run.key).mkdir(parents=True)
    far = {"token": "t", "host": "far", "machine": "another", "pid": 12, "born": 4e9}  # a clock that is ahead
    (lab.folder(asked.run.key) / "lease").write_text(json.dumps(far) + "\n000000000001", "utf-8")
    assert list(perform(lab, asked)) == [Busy(asked.run.key, "process 12 on far")]


def test_a_part_of_a_study_has_its_own_report_and_command(tmp_path):
    whole, part = (pipeline.open_session("digits_on_backgrounds", "smoke", tmp_path, {}, only) for only in ("", "CNN"))
    assert whole.folder != part.folder
    assert "--only" not in whole.command() and "--only CNN" in part.command()


def test_a_training_curve_that_is_gone_is_damage(lab):
    list(perform(lab, task()))
    (curve,) = (lab.folder(task().run.key) / "rows").glob("training-*")
    os.unlink(curve)
    assert task().run.key in plan.examine(lab, [task()]).damaged
