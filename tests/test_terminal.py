"""What a terminal says of work under way."""

from dataclasses import replace

from saccade.cli import terminal
from saccade.lab.events import Ended, Probing, Progress
from saccade.spec import Recipe, Run, Task

TASK = Task(Run("lenet", "digits_on_backgrounds", Recipe(64), 0), ())
TASKS = [replace(TASK, run=replace(TASK.run, seed=seed)) for seed in range(10)]


def test_time_left_follows_what_the_finished_runs_took(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    board = terminal.Board(TASKS, [], {t.run.key: 600.0 for t in TASKS}, jobs=1)
    assert board.eta() == "about " + terminal.duration(6000)
    for task in TASKS[:2]:  # a stopping rule ended them after a tenth of the time
        now[0] += 60
        board.hear(Ended(task.run.key))
    assert board.eta() == "about " + terminal.duration(8 * 60)


def test_time_left_says_when_only_measuring_is_left():
    board = terminal.Board(TASKS[:2], [], {t.run.key: 600.0 for t in TASKS[:2]}, jobs=1)
    board.hear(Ended(TASKS[0].run.key))
    board.hear(Progress(TASKS[1].run.key, step=2, steps=4, loss=1.0))
    assert board.eta() == "about " + terminal.duration(300)
    board.hear(Probing(TASKS[1].run.key, probe="accuracy"))
    assert board.eta() == "only measuring is"
