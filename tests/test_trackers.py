"""Runs of a lab as entries of experiment trackers, and rows as tables of other libraries."""

import sys
import types

import pytest

from saccade.cli.commands import main
from saccade.lab.store import Lab
from saccade.lab.table import Table
from saccade.spec import Probe, Recipe, Run, SaccadeError
from saccade.trackers import stream


@pytest.fixture
def lab(tmp_path):
    """A lab with one finished run, as the worker writes it."""
    made = Lab(tmp_path / "lab").open()
    run = Run("lenet", "photos", Recipe(images=64), 3)
    lease = made.claim(run, {})
    made.log(run.key, {"event": "started"})
    for images, accuracy in ((32, 0.25), (64, 0.5)):
        made.log(run.key, {"event": "watch", "split": "held_out", "accuracy": accuracy, "images": images, "n": 10})
    rows = [{"metric": "accuracy", "value": 0.5, "n": 10, "at": {"split": "test"}}]
    made.put_rows(run.key, Probe("accuracy"), 1, rows)
    made.finish(run.key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 4}, b"weights")
    lease.release()
    return made


def test_the_stream_has_settings_curve_and_final_numbers(lab):
    (one,) = stream.runs(lab)
    assert one.settings["model"] == "lenet" and one.settings["recipe.images"] == 64 and one.outcome == "finished"
    assert [(p.name, p.images, p.value) for p in one.points] == [
        ("accuracy/held_out", 32, 0.25),
        ("accuracy/held_out", 64, 0.5),
    ]
    assert one.final == {"accuracy/accuracy/split=test": 0.5}


def test_a_line_that_is_being_written_is_passed_over(lab):
    (one,) = stream.runs(lab)
    with open(lab.folder(one.key) / "log.jsonl", "a") as log:
        log.write('{"event": "wat')
    assert next(stream.runs(lab)).points == one.points


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_gets_the_curve(lab, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # the second time replaces the first
        main(["track", "tensorboard", "--to", str(tmp_path / "tb"), "--lab", str(lab.root)])
    assert "1 runs written to tensorboard" in capsys.readouterr().out
    (folder,) = (tmp_path / "tb").iterdir()
    seen = EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in seen.Scalars("accuracy/held_out")] == [(32, 0.25), (64, 0.5)]


class Calls(types.ModuleType):
    """A tracker that remembers what it was called with."""

    def __init__(self, name):
        super().__init__(name)
        self.heard = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **named):
            self.heard.append((name, args, named))
            return self

        return call

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.heard.append(("end", (), {}))

    def update(self, values):
        self.heard.append(("summary", (values,), {}))

    @property
    def summary(self):
        return self


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wandb", ["init", "log", "log", "summary", "finish"]),
        ("trackio", ["init", "log", "log", "log", "finish"]),
        ("mlflow", ["set_experiment", "start_run", "log_params", "log_metric", "log_metric", "log_metric", "end"]),
    ],
)
def test_other_trackers_are_called_as_they_want_to_be(lab, monkeypatch, name, words):
    fake = Calls(name)
    monkeypatch.setitem(sys.modules, name, fake)
    main(["track", name, "--to", "mine", "--lab", str(lab.root)])
    assert [call for call, _, _ in fake.heard] == words


def test_a_tracker_that_is_not_there_is_named_with_its_extra(lab, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    from saccade.trackers import wandb

    with pytest.raises(SaccadeError, match=r"pip install 'saccade\[wandb\]'"):
        wandb.write(stream.runs(lab), "mine")


def test_unknown_trackers_and_labs(lab, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["track", "tensorbord", "--lab", str(lab.root)])
    assert "did you mean tensorboard" in capsys.readouterr().err
    with pytest.raises(SaccadeError, match="no lab at"):
        next(stream.runs(Lab(tmp_path / "nothing")))


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_rows_as_tables_of_other_libraries(name):
    pytest.importorskip(name)
    table = Table(
        ({"metric": "a", "value": 1.0, "n": 2, "layers": (1, 2)}, {"metric": "b", "value": 2, "n": 3, "x": "y"})
    )
    made = table.to_pandas() if name == "pandas" else table.to_polars()
    assert len(made) == 2
    assert list(made["value"]) == [1.0, 2.0]
