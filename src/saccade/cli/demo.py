"""`make demo`: the first study on real data at demo scale; drawn data only when no source at all can be reached."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from saccade.cli import commands
from saccade.cli.parsing import say
from saccade.lab import pipeline
from saccade.spec import SaccadeError

STUDY = "digits_on_backgrounds"
DRAWN = ("digits=procedural_digits", "scenes=procedural_textures")


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--lab", default="lab")
    lab = flags.parse_args().lab
    words = ["run", STUDY, "--scale", "demo", "--lab", lab]
    try:
        pipeline.fetch(pipeline.open_session(STUDY, "demo", lab).tasks, say)
    except SaccadeError as error:
        say(f"saccade: {error}")
        say(
            "\n*** NO REAL DATA COULD BE REACHED: this demo goes on with images drawn by a program. ***\n"
            "*** Its numbers say nothing of MNIST or CIFAR-10; the report says so in its first line. ***\n"
        )
        words += ["--set", *DRAWN]
    sys.stderr.flush()
    commands.main(words)
    command = Path(sys.executable).with_name("saccade")
    print(f"\nSee it move, in a browser on this machine:   {_short(command)} serve --lab {lab} --open")
    print(f"The same as files for any web host:          {_short(command)} export site --lab {lab}")


def _short(command: Path) -> str:
    """As one would type it here."""
    return str(command.relative_to(Path.cwd())) if command.is_relative_to(Path.cwd()) else command.name


if __name__ == "__main__":
    main()
