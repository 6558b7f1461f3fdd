"""`saccade demo`: the first study on real data at demo scale, or a look at the models that come with the package."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from saccade.cli.flags import LabDir, Quiet
from saccade.cli.parsing import command, say
from saccade.spec import SaccadeError

STUDY = "digits_on_backgrounds"
DRAWN = ("digits=procedural_digits", "scenes=procedural_textures")


@command()
def demo(
    lab: LabDir = "lab",
    look: Annotated[
        bool, arg(help="train nothing: open the explorer on trained models that come with saccade")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """A first study on real data, end to end, in minutes; --look shows trained models in seconds."""
    from saccade.cli import commands
    from saccade.lab import pipeline

    if look:  # torch takes seconds to load: meanwhile the data are looked for, the server starts and a browser opens
        threading.Thread(target=importlib.import_module, args=("saccade.web.look",), daemon=True).start()
    words = ["run", STUDY, "--scale", "demo", "--lab", lab, *(["--quiet"] if quiet else [])]
    try:
        pipeline.fetch(pipeline.open_session(STUDY, "demo", lab).tasks, say)
    except SaccadeError as error:
        if look:  # these models were trained on real digits and real scenes, and are shown nothing else
            raise
        say(f"saccade: {error}")
        say(
            "\n*** NO REAL DATA COULD BE REACHED: this demo continues with images drawn by a program. ***\n"
            "*** Its numbers say nothing of MNIST or CIFAR-10; the report says so in its first line. ***\n"
        )
        words += ["--set", *DRAWN]
    if look:
        show(lab)
        return
    sys.stderr.flush()
    commands.main(words)
    print(f"\nSee it move, in a browser on this machine:   {_typed()} serve --lab {lab} --open")
    print(f"The same as files for any web host:          {_typed()} export site --lab {lab}")


def _typed() -> str:
    """The command as one would type it here."""
    own = Path(sys.executable).with_name("saccade")
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else own.name


def show(lab: str) -> None:
    """The shipped models with what they reach, then the explorer at its Look page."""
    from saccade import shipped
    from saccade.cli.web import start

    print(f"{'model':<10} {'parameters':>10}   right on seen / unseen backgrounds")
    for card in shipped.cards().values():
        (seen_accuracy, n), (unseen_accuracy, _) = card.accuracy("id"), card.accuracy("ood")
        print(f"{card.name:<10} {card.parameters:>10,}   {seen_accuracy:.1%} / {unseen_accuracy:.1%} of {n:,} images")
    start(lab, None, browser=True, page="#/look")
