"""What a terminal says of work under way."""

from dataclasses import replace

from saccade.cli import terminal
from saccade.lab.events import Ended
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
