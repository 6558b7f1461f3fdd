"""The flags that commands share."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

Json = Annotated[bool, arg(help="print one JSON document and nothing else on standard output")]
LabDir = Annotated[str, arg(metavar="DIR", help="the lab folder; made if it is not there")]
Set = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help="set arguments or open choices by name")]
Device = Annotated[str, arg(metavar="NAME", help="auto, cpu, cuda, cuda:0 or mps")]
Jobs = Annotated[int | None, arg(metavar="N", help="worker processes; default one per core, or one per GPU")]
Plugin = Annotated[tuple[str, ...], arg(metavar="FILE ...", help="Python files that register models, data or probes")]
Retry = Annotated[bool, arg(help="try again what failed earlier: runs, and probes of finished runs")]
RedoDamaged = Annotated[bool, arg(help="set runs with damaged files aside and do them again")]
Quiet = Annotated[bool, arg(help="no progress")]
ScaleName = Annotated[str, arg(metavar="SCALE", help="smoke, demo, small, large or paper")]
Study = Annotated[str, arg(metavar="STUDY", help="a name (saccade list studies) or a Python file that ends in STUDY")]
Also = Annotated[
    tuple[str, ...],
    arg(metavar="MODEL ...", help="models of your own as arms that were not planned: file.py:function, or a name"),
]
Like = Annotated[str, arg(metavar="ARM", help="the arm whose recipe, data and seeds --also takes; default: the main")]
RecipeSet = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help="for every arm: lr, optimizer, batch ...")]
