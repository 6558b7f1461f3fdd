"""The sentence for words that a command does not accept, from its signature alone: no parser's output is read."""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

from tyro.conf import Positional

from saccade.errors import quoted, suggest

# What a word without a flag was probably meant for.
INSTEAD = {"probe": ", as it reads score files (--scores FILE --labels FILE); saccade profile SUBJECT asks a model"}
_POSITIONAL = typing.get_args(Positional[str])[1]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a command as a user sees it."""

    name: str
    type: Any  # without annotations and None
    positional: bool
    required: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def several(self) -> bool:
        return typing.get_origin(self.type) is tuple

    def refuses(self, word: str) -> str:
        """What it takes, when it does not take this word; else nothing."""
        if typing.get_origin(self.type) is Literal:
            choices = typing.get_args(self.type)
            return "" if word in choices else f"one of {', '.join(choices)}"
        for kind, takes in ((int, "a whole number"), (float, "a number")):
            if self.type is kind:
                try:
                    kind(word)
                except ValueError:
                    return takes
        return ""


def parameters(command: Callable[..., None]) -> list[Parameter]:
    hints = typing.get_type_hints(command, include_extras=True)
    return [_parameter(p, hints[p.name]) for p in inspect.signature(command).parameters.values()]


def _parameter(p: inspect.Parameter, hint: Any) -> Parameter:
    positional = False
    while typing.get_origin(hint) is Annotated:
        hint, *marks = typing.get_args(hint)
        positional = positional or _POSITIONAL in marks
    if typing.get_origin(hint) in (Union, types.UnionType):
        hint = next(t for t in typing.get_args(hint) if t is not type(None))
    return Parameter(p.name, hint, positional, p.default is inspect.Parameter.empty)


def sentence(commands: Mapping[str, Callable[..., None]], words: Sequence[str]) -> str:
    """What is wrong with these words, what is accepted, and the nearest valid name."""
    name = words[0] if words else ""
    if name not in commands:
        return suggest("command", name, commands, "saccade --help")
    more = f"(saccade {name} --help)"
    known = parameters(commands[name])
    for mistake in _mistakes(name, known, words[1:]):
        return f"{mistake} {more}"
    return f"the words after saccade {name} are not accepted together. {more}"


def _mistakes(command: str, known: Sequence[Parameter], words: Sequence[str]) -> Iterator[str]:
    flags = {p.flag: p for p in known if not p.positional}
    positionals = [p for p in known if p.positional]
    given_names: set[str] = set()
    remaining = list(words)
    while remaining:
        word, equals, value = (
            remaining.pop(0).partition("=") if remaining[0].startswith("--") else (remaining.pop(0), "", "")
        )
        word = word.replace("_", "-") if word.startswith("--") else word
        if word.startswith("-") and not _is_number(word):
            if word not in flags:
                near = difflib.get_close_matches(word, flags, n=1)
                yield f"saccade {command} has no option {word}" + (f"; did you mean {near[0]}?" if near else ".")
                return
            option = flags[word]
            given_names.add(option.name)
            values = [value] if equals else _values(option, remaining)
            if option.type is not bool and not option.several and not values:
                yield f"{word} needs a value."
            yield from (f"{word} takes {t}, not {quoted(v)}." for v in values if (t := option.refuses(v)))
        elif not positionals:
            yield f"saccade {command} has no place for {quoted(word)}{INSTEAD.get(command, '')}."
        else:
            place = positionals[0] if positionals[0].several else positionals.pop(0)
            given_names.add(place.name)
            if takes := place.refuses(word):
                yield f"{place.name.upper()} is {takes}, not {quoted(word)}."
    for p in known:
        if p.required and p.name not in given_names:
            yield f"saccade {command} needs {p.name.upper() if p.positional else p.flag}."


def _values(option: Parameter, remaining: list[str]) -> list[str]:
    """Takes the words that belong to an option."""
    values: list[str] = []
    while (
        remaining and option.type is not bool and (option.several or not values) and not remaining[0].startswith("--")
    ):
        values.append(remaining.pop(0))
    return values


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
