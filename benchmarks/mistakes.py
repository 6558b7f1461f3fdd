"""Trials of benchmarks/reliability.py: what is asked wrongly. Each mistake gets one sentence, and no number."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.trials import Outcome, trial

MISTAKES = ("", "nonsense", -1, 0, 2.5, -0.5, 1e30, 10**20, True, None, (), (1, "a"), ((1,),), {"a": 1}, "1")


def mistaken(kind: str) -> Outcome:
    """Every argument of every registered function, set to each of the mistakes that it does not accept."""
    from saccade import arguments, registry
    from saccade.spec import SaccadeError

    times, lost = 0, []
    for card in registry.cards(kind).values():
        for name, value in itertools.product(card.args, MISTAKES):
            if not card.module.startswith("saccade.") or arguments.fits(card.accepts[name], value):
                continue
            times += 1
            try:
                registry.check_args(kind, card.name, {name: value})
                lost.append(f"{card.name} takes {name}={value!r}")
            except SaccadeError as error:
                lost += [f"{card.name}, {name}={value!r}: more than a line"] if "\n" in str(error) else []
            except Exception as error:
                lost.append(f"{card.name}, {name}={value!r}: {type(error).__name__}")
    return Outcome(times, tuple(lost))


@trial("mistakes", "a wrong value for an argument of a data set")
def wrong_data(folder: Path) -> Outcome:
    return mistaken("data")


@trial("mistakes", "a wrong value for an argument of a model")
def wrong_models(folder: Path) -> Outcome:
    return mistaken("model")


@trial("mistakes", "a wrong value for a setting of a probe")
def wrong_probes(folder: Path) -> Outcome:
    return mistaken("probe")


@trial(
    "mistakes", "models from elsewhere whose answer is no answer: NaN, infinite, of a wrong shape, for other classes"
)
def wrong_answers(folder: Path) -> Outcome:
    import torch
    from torch import nn

    import saccade as sc
    from saccade.spec import Probe, SaccadeError

    class Odd(nn.Module):
        def __init__(self, change: Callable[[Any], Any]) -> None:
            super().__init__()
            self.map, self.change = nn.Linear(3072, 10), change

        def forward(self, x: torch.Tensor) -> Any:
            return self.change(self.map(x.flatten(1)))

    changes: dict[str, Callable[[Any], Any]] = {
        "NaN": lambda z: z * torch.nan,
        "infinite": lambda z: z + torch.inf,
        "three axes": lambda z: z[:, :, None],
        "one row": lambda z: z[:1],
        "three classes": lambda z: z[:, :3],
        "a tuple": lambda z: (z, z),
        "nothing": lambda z: None,
        "an exception": lambda z: z @ z,
    }
    lost = []
    for name, change in changes.items():
        drawn = {"digits": "procedural_digits", "scenes": "procedural_textures", "backgrounds": 2}
        try:
            sc.probe(Odd(change), [Probe("accuracy", splits=("id",), n=20)], "digits_on_backgrounds", data_args=drawn)
            lost.append(f"a number was made of {name}")
        except SaccadeError:
            continue
        except Exception as error:
            lost.append(f"{name}: {type(error).__name__}")
    return Outcome(len(changes), tuple(lost))


@trial("mistakes", "score files with wrong, missing or infinite cells, ids and labels")
def wrong_scores(folder: Path) -> Outcome:
    from saccade.spec import SaccadeError
    from saccade.subjects import scores

    good = "id,a,b\n1,.2,.8\n2,.7,.3\n3,.6,.4\n"
    cases = [
        (good.replace(".7", cell), "id,y\n1,1\n2,0\n3,0\n")
        for cell in ("nan", "inf", "-inf", "1e999", "", "x", "1;2", "0x1p3", "\x00")
    ]
    cases += [
        (good, y)
        for y in ("id,y\n1,1\n4,0\n2,0\n", "1\n0\n", "1\n0\n2\n", "1\n0\n-1\n", "1\n.5\n0\n", "0,1\n0,2\n1,0\n", "")
    ]
    cases += [("what,a,b\n17,.2,.8\n3,.7,.3\n9,.6,.4\n", "1\n0\n0\n"), ("1\n2\n3\n", "1\n0\n0\n")]
    lost = []
    for number, (z, y) in enumerate(cases):
        names = folder / f"z{number}.csv", folder / f"y{number}.csv"
        for name, text in zip(names, (z, y), strict=True):
            name.write_text(text, "utf-8")
        try:
            scores.compare(*names)
            lost.append(f"score file {number} was taken for good")
        except SaccadeError:
            continue
        except Exception as error:
            lost.append(f"score file {number}: {type(error).__name__}")
    return Outcome(len(cases), tuple(lost))


@trial("mistakes", "slips on the command line: names, numbers, ranges, files, folders")
def slips(folder: Path) -> Outcome:
    from saccade.cli import commands

    deep = "[" * 100_000
    bad = folder / "bad.py"
    bad.write_text("1 / 0\n", "utf-8")
    five = folder / "five.py"
    five.write_text("STUDY = 5\n", "utf-8")
    lines = [
        ["train", "lennet"],
        ["train", "lenet", "--seeds", "5:0"],
        ["train", "lenet", "--seeds", f"0:{10**30}"],
        ["train", "lenet", "--jobs", "100000000"],
        ["train", "lenet", "--jobs", "0"],
        ["train", "lenet", "--set", "head=mean", "head=max"],
        ["train", "lenet", "--data-set", "backgrounds=many"],
        ["train", "lenet", "--data-set", f"backgrounds={deep}"],
        ["train", "lenet", "--data-set", "scenes=mnist"],
        ["train", "lenet", "--recipe", "lr=fast"],
        ["train", "lenet", "--plugin", str(bad)],
        ["train", "lenet", "--lab", "/dev/null/lab"],
        ["run", str(five)],
        ["run", str(bad)],
        ["run", "digits_on_backgrounds", "--set", "heads=True"],
        ["run", "digits_on_backgrounds", "--only", "RNN"],
        ["figures", "digits_on_backgrounds", "--lab", str(folder / "nowhere")],
        ["status", "--lab", str(folder / "nowhere")],
        ["probe", "--scores", "/", "--labels", "/"],
        ["show", "x" * 5000],
    ]
    lost = []
    for words in lines:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                commands.main(words)
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
        except Exception as error:
            code = type(error).__name__
        if code != 2 or len(said.getvalue().strip().splitlines()) != 1:
            lost.append(f"saccade {' '.join(words)[:60]} ended with {code}")
    return Outcome(len(lines), tuple(lost))


@trial("mistakes", "standard output closed, full, read by nobody, or in ASCII")
def streams(folder: Path) -> Outcome:
    me = f"{sys.executable} -m saccade"
    lines = [
        (f"{me} {words} {how}", env)
        for words in ("--help", "list")
        for how, env in (("| head -1", {}), (">&-", {}), ("> /dev/full", {}), ("", {"PYTHONIOENCODING": "ascii"}))
    ]
    lost = []
    for line, env in lines:
        done = subprocess.run(["sh", "-c", line], capture_output=True, encoding="utf-8", env={**os.environ, **env})
        if "Traceback" in done.stderr or "Exception ignored" in done.stderr:
            lost.append(line.partition("-m ")[2])
    return Outcome(len(lines), tuple(lost))
