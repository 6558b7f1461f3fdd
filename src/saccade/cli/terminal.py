"""How long work is shown while it goes on: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from saccade.cli import output
from saccade.errors import visible
from saccade.lab.events import Busy, Died, Ended, Event, ProbeFailed, Probing, Progress, Refused
from saccade.spec import Outcome, Task

ENDED = (Outcome.FINISHED, Outcome.DIVERGED, Outcome.TIMEOUT)  # a run that will not be taken up again
SHOWN = 8  # runs under way that an arm's line names; a cluster has hundreds
LINE_EVERY = 20.0  # seconds between plain progress lines


def printer(quiet: bool) -> Callable[[str], None]:
    """Prints to standard error, or not."""
    return (lambda _: None) if quiet else output.tell


def ask(question: str) -> bool:
    """A question to the user at the terminal; no without a terminal, on another Ctrl-C, or after SIGTERM."""
    if output.told_to_end.is_set() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"\n{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        return False


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def labels(tasks: Sequence[Task]) -> dict[str, str]:
    """For each run's key what distinguishes it from the others of its arm, as in `CNN backgrounds=8 seed 3`."""

    def settings(task: Task) -> dict[str, Any]:
        return {**task.run.model_args, **task.run.data_args}

    values: dict[tuple[str, str], set[str]] = {}
    for task in tasks:
        for name, value in settings(task).items():
            values.setdefault((task.arm or task.run.model, name), set()).add(str(value))
    out = {}
    for task in tasks:
        arm = task.arm or task.run.model
        varying = [f"{k}={v}" for k, v in settings(task).items() if len(values[arm, k]) > 1]
        out[task.run.key] = " ".join([arm, *varying, f"seed {task.run.seed}"])
    return out


class Board:
    """Counts by arm and what is running, from the launcher's events."""

    def __init__(
        self, tasks: Sequence[Task], finished: Iterable[Task], seconds: Mapping[str, float], jobs: int
    ) -> None:
        self.arms: dict[str, list[int]] = {}
        self.labels, self.tasks = labels(tasks), {task.run.key: task for task in tasks}
        for task in tasks:
            self.arms.setdefault(task.arm or task.run.model, [0, 0])[1] += 1
        for task in finished:
            self.arms[task.arm or task.run.model][0] += 1
        self.seconds, self.jobs, self.left = dict(seconds), jobs, sum(seconds.values())
        self.expected, self.ended, self.began = self.left, 0, time.monotonic()
        self.running: dict[str, tuple[Task, str, float]] = {}
        self.interrupt = "saves and stops"  # what Ctrl-C does
        self.awaited: dict[str, str] = {}  # who has a run that this call waits for, as last reported

    def hear(self, event: Event) -> str:
        """Take one event in; returns a line worth printing, or nothing."""
        key = event.key
        if key not in self.tasks:
            return ""
        task, label = self.tasks[key], self.labels[key]
        match event:
            case Progress():
                now = f"step {event.step}/{event.steps}, loss {event.loss:.3f}"
                self.running[key] = (task, now, event.step / event.steps)
            case Probing():
                self.running[key] = (task, f"probe {event.probe}", 1.0)
            case Ended() | Refused():
                self.running.pop(key, None)
                self.arms[task.arm or task.run.model][0] += event.kind in ENDED
                self.left -= self.seconds.pop(key, 0.0)
                self.ended += 1
                return f"{label} done" if event.kind == Outcome.FINISHED else f"{label} {event.kind}: {event.reason}"
            case Busy() if self.awaited.get(key) != event.holder:
                self.awaited[key] = event.holder
                return f"{label}: waiting for {event.holder}, which works on it"
            case ProbeFailed():
                return f"{label}: probe {event.probe} failed: {event.reason} (--retry measures again)"
            case Died():
                return f"{label}: its worker died ({event.how}); tried again"
        return ""

    def eta(self) -> str:
        """Time left, from the costs of what is not finished.

        They are corrected by what was expected of the runs so far and what they took: some end early by their stopping
        rule, and the machine may have become slower or faster since costs were measured. Costs are of training: when
        it has ended everywhere, that is what is said.
        """
        if self.running and len(self.running) == len(self.seconds) and all(s == 1 for _, _, s in self.running.values()):
            return "only measuring is"
        under_way = sum(self.seconds.get(k, 0.0) * share for k, (_, _, share) in self.running.items())
        left = (self.left - under_way) / max(1, self.jobs)
        done = (self.expected - self.left + under_way) / max(1, self.jobs)
        if self.ended >= 2 * self.jobs and done > 0:
            left *= (time.monotonic() - self.began) / done
        return "about " + duration(max(1.0, left))

    def table(self) -> Any:
        from rich.markup import escape
        from rich.table import Table as Grid

        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for heading in ("arm", "runs", "now"):
            grid.add_column(heading, no_wrap=heading != "now")
        for arm, (done, total) in self.arms.items():
            now = [
                f"{self.labels[t.run.key]}: {what}"
                for t, what, _ in self.running.values()
                if (t.arm or t.run.model) == arm
            ]
            rest = [f"and {len(now) - SHOWN} more"] if len(now) > SHOWN else []
            doing = "; ".join(now[:SHOWN] + rest) or ("" if done == total else "waiting")
            grid.add_row(escape(visible(arm)), f"{done}/{total}", escape(visible(doing)))
        grid.add_row("", "", f"[dim]{self.eta()} left; Ctrl-C {self.interrupt}[/dim]")
        return grid


def follow(
    events: Iterator[Event],
    board: Board,
    quiet: bool = False,
    out: TextIO | None = None,
    seconds: float | None = None,
) -> bool:
    """Read the launcher's events to their end and show them. False when the time was up first."""
    out = out or sys.stderr
    with _shown(board, quiet, out) as show:
        end = math.inf if seconds is None else time.monotonic() + seconds
        for event in events:
            show(event, board.hear(event))
            if time.monotonic() > end:
                if isinstance(events, Generator):
                    events.close()  # the workers save what they are working on
                return False
    return True


@contextlib.contextmanager
def _shown(board: Board, quiet: bool, out: TextIO) -> Iterator[Callable[[Event, str], None]]:
    """A live table on a terminal, plain lines elsewhere, nothing when quiet."""
    if quiet:
        yield lambda event, line: None
        return
    if out.isatty():
        from rich.console import Console
        from rich.live import Live

        console = Console(file=output.drawing(out))
        with Live(board.table(), console=console, refresh_per_second=4, transient=True) as live:

            def refresh(event: Event, line: str) -> None:
                if line and event.kind != Outcome.FINISHED:
                    live.console.print(visible(line), markup=False)
                live.update(board.table())

            yield refresh
        return
    done, last = sum(d for d, _ in board.arms.values()), time.monotonic()
    total = sum(t for _, t in board.arms.values())

    def print_line(event: Event, line: str) -> None:
        nonlocal done, last
        done += event.kind in ENDED
        if not line and time.monotonic() - last > LINE_EVERY and board.running:
            task, what, _ = next(iter(board.running.values()))
            line = f"{board.labels[task.run.key]}: {what}"
        if line:
            output.tell(f"[{done}/{total}] {line}; {board.eta()} left", out)
            last = time.monotonic()

    yield print_line


def print_plan(arms: Mapping[str, Mapping[str, float]]) -> None:
    for arm, each in arms.items():
        print(
            f"  {arm:<24} {each['runs']:>4} runs   {duration(each['core seconds'] / each['runs']):>7} each   "
            f"{duration(each['core seconds']):>7} of one core"
        )
    if not arms:
        print("  nothing to do")


def print_grid(rows: Sequence[Sequence[str]]) -> None:
    """A table with headings in its first row: rich on a terminal, aligned text elsewhere."""
    if not sys.stdout.isatty():
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for heading in rows[0]:
        grid.add_column(heading)
    for row in rows[1:]:
        grid.add_row(*(Text(visible(cell)) for cell in row))  # as Text: brackets in it are no markup
    Console(file=output.drawing(sys.stdout)).print(grid)


@contextlib.contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal, nothing elsewhere (the sources report themselves as lines)."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(file=output.drawing(sys.stderr)), transient=True) as bar:
        task = bar.add_task(name, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
