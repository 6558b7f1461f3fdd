"""From words to bound commands; every mistake is one sentence."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import tyro
from tyro.conf import FlagCreatePairsOff

from saccade.cli import mistakes
from saccade.cli.output import tell
from saccade.errors import SaccadeError, quoted

MOST_SEEDS = 10_000

app = tyro.extras.SubcommandApp()
_commands: dict[str, Callable[..., None]] = {}


def say(line: str = "") -> None:
    tell(line)


def out(document: Any) -> None:
    from saccade.report.figures import jsonable

    print(json.dumps(jsonable(document), indent=1))


def command(name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command. Parsing only binds its arguments; main calls it, so that a parse error is never its own."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def bind(*args: Any, **named: Any) -> Callable[[], None]:
            return functools.partial(function, *args, **named)

        app.command(name=name)(bind)
        _commands[name or function.__name__] = function
        return function

    return register


def parse(words: Sequence[str]) -> Callable[[], None]:
    """The bound command. Words that the parser refuses give our own message: one sentence, without a box."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            bound: Callable[[], None] = app.cli(prog="saccade", args=list(words), config=(FlagCreatePairsOff,))
        return bound
    except SystemExit as error:
        if not error.code:
            raise
        raise SaccadeError(mistakes.sentence(_commands, words)) from None


def settings(words: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE words; a value is a Python literal where it reads as one, else text."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise SaccadeError(f"--set takes name=value, as in --set heads=1, not {quoted(word)}.")
        if name in values:
            raise SaccadeError(f"{name} is set twice, to {quoted(values[name])} and to {quoted(value)}; give it once.")
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # the last two: nested deeply
            values[name] = value
    return values


def seed_range(text: str) -> range:
    first, colon, last = text.partition(":")
    try:
        seeds = range(int(first), int(last)) if colon else range(int(first), int(first) + 1)
    except ValueError:
        raise SaccadeError(f"--seeds takes one seed or a range such as 0:5, not {quoted(text)}.") from None
    if seeds.stop <= seeds.start:
        raise SaccadeError(f"--seeds {quoted(text)} names no seed; the end comes after the first, as in 0:5.")
    if seeds.stop - seeds.start > MOST_SEEDS:  # len() fails on the largest ranges
        raise SaccadeError(f"--seeds names at most {MOST_SEEDS:,} seeds, not {quoted(text)}.")
    return seeds


def seed_count(text: str) -> int | None:
    """How many seeds of a study: N, or 0:N; nothing where nothing was asked for."""
    if not text:
        return None
    if ":" in text:
        seeds = seed_range(text)
        if seeds.start:
            raise SaccadeError(f"the seeds of a study begin with 0, so --seeds takes 10 or 0:10, not {quoted(text)}.")
        return seeds.stop
    try:
        return int(text)
    except ValueError:
        raise SaccadeError(f"--seeds takes a number of seeds, as in 10 or 0:10, not {quoted(text)}.") from None


def seconds_of(text: str) -> float:
    """A time such as 90s, 45m or 2h."""
    units = {"s": 1, "m": 60, "h": 3600}
    try:
        seconds = float(text[:-1]) * units[text[-1:]]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise SaccadeError(f'--budget takes a time such as 90s, 45m or 2h, not "{text}".')
    return seconds
