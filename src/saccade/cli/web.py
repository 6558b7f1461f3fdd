"""The explorer's commands: serve a lab to a browser on this machine, export it as a folder of files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from saccade import registry
from saccade.cli.flags import Json, LabDir, Plugin, Quiet
from saccade.cli.parsing import command, out, say
from saccade.lab.store import Lab
from saccade.spec import SaccadeError

Studies = Annotated[tuple[str, ...], arg(metavar="FILE ...", help="Python files that end in STUDY, to be shown too")]


@command()
def serve(
    lab: LabDir = "lab",
    port: Annotated[int | None, arg(metavar="N", help="default: the first free one from 8377 on")] = None,
    open: Annotated[bool, arg(help="show it in a browser")] = False,
    study: Studies = (),
    plugin: Plugin = (),
    json: Json = False,
) -> None:
    """The explorer: studies, runs while they train, models at work, in a browser on this machine."""
    for file in plugin:
        registry.load_plugin(file)
    start(lab, port, open, study, json)


def start(
    lab: str, port: int | None, browser: bool, study: tuple[str, ...] = (), json: bool = False, page: str = ""
) -> None:
    """Serves until Ctrl-C; `page` is the one that is shown first, as in #/look."""
    try:
        from saccade.web import app
    except ModuleNotFoundError as missing:
        raise SaccadeError(
            f"saccade serve needs {missing.name}: pip install 'saccade[web]' (saccade export needs nothing more)."
        ) from None
    from saccade.web.explorer import Explorer

    if port is not None and not 0 <= port < 65536:
        raise SaccadeError(f"a port lies between 0 and 65535, where 0 takes any free one, not {port}.")
    explorer = Explorer(Lab(lab), study)
    listening = app.listen(port)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/{page}"
    if json:
        out({"address": address, "lab": str(explorer.lab.root)})
    else:
        print(f"the explorer of {explorer.lab.root}: {address}   (Ctrl-C stops it)", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(address)
    app.serve(explorer, listening)
    say("stopped.")


@command()
def export(
    to: Positional[Annotated[str, arg(metavar="DIR", help="a new or empty folder, or an earlier export")]],
    lab: LabDir = "lab",
    study: Studies = (),
    plugin: Plugin = (),
    look: Annotated[int, arg(metavar="N", help="images of the Look page with their grid; 0 leaves it out")] = 3,
    models: Annotated[
        tuple[str, ...], arg(metavar="KEY ...", help="runs for the Look page; default: two of them")
    ] = (),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """The explorer as a folder of files for any web host; opens by double click too, without a server."""
    for file in plugin:
        registry.load_plugin(file)
    from saccade.cli import terminal
    from saccade.web import export as writer
    from saccade.web.explorer import Explorer

    written = writer.write(
        Explorer(Lab(lab), study), Path(to), images=look, models=models, say=terminal.printer(quiet or json)
    )
    if json:
        out(written)
    else:
        print(f"{written['files']} files, {written['bytes'] / 1e6:.1f} MB: {written['index']}")
