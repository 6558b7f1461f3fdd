"""Commands on any model: profile one, compare two, hand runs to a tracker."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

from tyro.conf import Positional, arg

from saccade import registry
from saccade.cli.flags import Json, LabDir, Plugin, Quiet
from saccade.cli.parsing import command, out, settings
from saccade.lab.store import Lab
from saccade.spec import SaccadeError, digest, suggest

TRACKERS = ("tensorboard", "trackio", "wandb", "mlflow")
Subject = Annotated[
    str,
    arg(
        metavar="SUBJECT",
        help="file.py:function, a registered name, a run's key, a .safetensors file with --factory, timm:NAME, hf:NAME "
        "or torchvision:NAME",
    ),
]
DataName = Annotated[str, arg(metavar="NAME", help="a set (cifar10, mnist), a construction, or folder:PATH")]
Size = Annotated[int, arg(metavar="PIXELS", help="what the model takes; default: found out")]
Channels = Annotated[int, arg(metavar="N", help="what the model takes; default: found out")]
Normalise = Annotated[
    str, arg(metavar="NAME", help="data, none, imagenet, half, bytes or mean/std; default: found out")
]
Weights = Annotated[str, arg(metavar="FILE", help="a checkpoint (.safetensors, .pt) to load into the model")]
Factory = Annotated[str, arg(metavar="SUBJECT", help="what builds the model of a checkpoint")]
Args = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help="arguments of the model")]
Read = Annotated[str, arg(metavar="WAY", help="labels, map, agreement or linear; default: what fits the classes")]
Classes = Annotated[str, arg(metavar="FILE", help="a class map: JSON, or imagenet_cifar10")]
Download = Annotated[bool, arg(help="fetch trained weights of timm:, hf: or torchvision: models")]
Count = Annotated[int, arg(metavar="N", help="images per question; default: as many as take about two minutes")]


@command()
def profile(
    subject: Positional[Subject],
    data: DataName = "cifar10",
    n: Count = 0,
    only: Annotated[tuple[str, ...], arg(metavar="KEY ...", help="only these questions, as in translation")] = (),
    set: Args = (),
    weights: Weights = "",
    factory: Factory = "",
    size: Size = 0,
    channels: Channels = 0,
    normalise: Normalise = "",
    read: Read = "",
    classes: Classes = "",
    download: Download = False,
    to: Annotated[str, arg(metavar="DIR", help="where to write the page; default inside the lab")] = "",
    seed: Annotated[int, arg(metavar="N", help="of the draws of images and changes")] = 0,
    device: Annotated[str, arg(metavar="NAME", help="cpu, cuda or mps")] = "cpu",
    lab: LabDir = "lab",
    plugin: Plugin = (),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """One page on any model: what it looks at, and what it is blind to."""
    from saccade.cli import terminal
    from saccade.profiling import measure
    from saccade.report import profile_page as page

    for file in plugin:
        registry.load_plugin(file)
    with contextlib.redirect_stdout(sys.stderr):  # what a user's own code prints is no part of the page
        result = measure.profile(
            subject,
            data,
            n=n,
            only=only,
            seed=seed,
            way=read,
            classes=classes,
            size=size,
            channels=channels,
            normalise=normalise,
            device=device,
            report=terminal.printer(quiet or json),
            args=settings(set),
            weights=weights,
            factory=factory,
            download=download,
            lab=lab,
        )
    folder = to or str(Lab(lab).open().root / "profiles" / _called(result))
    paths = result.save(folder)
    if json:
        out(result.plain())
        return
    print("\n".join(page.lines(result)))
    print(f"\n{paths['html'].resolve()}")


def _called(profile: Any) -> str:
    from saccade.report.writers import slug

    return (
        f"{slug(profile.name)[:40]}-{digest([profile.name, profile.facts['origin'], profile.data, profile.reading], 8)}"
    )


@command()
def compare(
    a: Positional[Subject],
    b: Positional[Subject],
    data: DataName = "cifar10",
    on: Annotated[tuple[str, ...], arg(metavar="KEY ...", help="only these questions; default: all, or accuracy")] = (),
    n: Count = 0,
    size: Size = 0,
    channels: Channels = 0,
    normalise: Normalise = "",
    read: Read = "",
    classes: Classes = "",
    download: Download = False,
    device: Annotated[str, arg(metavar="NAME", help="cpu, cuda or mps")] = "cpu",
    lab: LabDir = "lab",
    plugin: Plugin = (),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Two models on the same questions: difference, interval, verdict, overlap of errors.

    Over seeds where the lab has trained both (names or run keys), else over images."""
    from saccade.cli import terminal
    from saccade.profiling import compare as comparing

    for file in plugin:
        registry.load_plugin(file)
    with contextlib.redirect_stdout(sys.stderr):
        comparison = comparing.compare(
            a,
            b,
            data,
            on=on,
            n=n,
            lab=lab,
            report=terminal.printer(quiet or json),
            way=read,
            classes=classes,
            size=size,
            channels=channels,
            normalise=normalise,
            device=device,
            download=download,
        )
    if json:
        out(comparison)
    else:
        print("\n".join(comparison.lines()))


@command()
def track(
    tracker: Positional[Annotated[str, arg(metavar="NAME", help="tensorboard, trackio, wandb or mlflow")]],
    to: Annotated[str, arg(metavar="WHERE", help="a folder (tensorboard), else the project")] = "saccade",
    run: Annotated[tuple[str, ...], arg(metavar="KEY ...", help="only these runs")] = (),
    lab: LabDir = "lab",
    json: Json = False,
) -> None:
    """Copy what the lab has written of its runs into an experiment tracker; call it again for more."""
    import importlib

    from saccade.trackers import stream

    if tracker not in TRACKERS:
        raise SaccadeError(suggest("tracker", tracker, TRACKERS))
    write: stream.Write = importlib.import_module(f"saccade.trackers.{tracker}").write
    count = write(stream.runs(Lab(lab), run), to)
    if json:
        out({"tracker": tracker, "to": to, "runs": count})
    else:
        print(f"{count} runs written to {tracker}, {to}")
