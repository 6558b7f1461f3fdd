"""The `saccade` command. The overview is read from the source of the command files, so that it appears at once."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

from saccade.cli import output

OVERVIEW = """usage: saccade COMMAND [...]

A laboratory for the inductive biases of vision models.

First:  saccade demo                                       minutes: a first study on real data, end to end
Then:   saccade run digits_on_backgrounds --scale small    verdicts with intervals

commands (saccade COMMAND --help says more):
"""

COMMANDS = ("cards", "commands", "care", "models", "demo", "cluster", "web")  # files of cli/


def main() -> None:
    if sys.argv[1:] in ([], ["-h"], ["--help"]):
        with output.guarded():
            print(OVERVIEW + "\n".join(f"  {name:<9} {about}" for name, about in overview()))
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:  # one of the processes of torchrun
        under_torchrun()
        return
    from saccade.cli import commands

    commands.main()


def under_torchrun() -> None:
    """The first process is the command as usual; the others train with it."""
    if os.environ["RANK"] != "0":
        from saccade.lab import worker

        worker.follow()
        return
    from saccade.cli import commands
    from saccade.training import distributed

    try:
        commands.main()
    finally:
        if distributed.started():
            distributed.give_notice(distributed.NONE)


def overview() -> list[tuple[str, str]]:
    """Name and first docstring line of every function under @command() in the files of commands."""
    marked = [
        node
        for file in COMMANDS
        for node in ast.parse(Path(__file__).with_name("cli").joinpath(f"{file}.py").read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(mark).startswith("command(") for mark in node.decorator_list)
    ]
    return [(node.name.strip("_"), (ast.get_docstring(node) or "").partition("\n")[0]) for node in marked]


if __name__ == "__main__":
    main()
