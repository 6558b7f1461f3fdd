"""`python -m benchmarks.reliability [--only WORDS]`: misfortunes and mistakes, tried many times; docs/reliability.md.

Every trial that has ended is a line of benchmarks/reliability.jsonl and is not done again, so that hours of trials can
be broken off; the page is made from these lines. `--afresh` tries all again.

A trial is a function from an empty folder to how often it tried and what was lost. What must not be lost: a finished
run, a bit of its weights, more of a run under way than its last save, the user's interpreter; and the truth: damage
that nobody names, a failure that counts as success, a traceback in place of a sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import kills
from tests.fuzz.targets import PARSERS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reliability.md"
TALLY = ROOT / "benchmarks" / "reliability.jsonl"
FUZZED = 60_000  # inputs for each parser


@dataclass(frozen=True)
class Outcome:
    """How often it was tried, and what was lost, in words; nothing, if all is well. Of kills also when each was."""

    times: int
    lost: tuple[str, ...] = ()
    kills: tuple[kills.Kill, ...] = ()
    calm_seconds: float = 0.0


@dataclass(frozen=True)
class Trial:
    """Long ones come in pieces with the same words, whose attempts are added up."""

    area: str
    what: str
    run: Callable[[Path], Outcome]
    piece: int = 0


TRIALS: list[Trial] = []


def trial(area: str, what: str, piece: int = 0) -> Callable[[Callable[[Path], Outcome]], Callable[[Path], Outcome]]:
    """Adds a function to the list of trials."""

    def add(run: Callable[[Path], Outcome]) -> Callable[[Path], Outcome]:
        TRIALS.append(Trial(area, what, run, piece))
        return run

    return add


# -- what the trials work on

DRAWN = ("digits=procedural_digits", "scenes=procedural_textures")
STUDY = ("run", "digits_on_backgrounds", "--scale", "smoke", "--only", "CNN", "--jobs", "2", "--json", "--set", *DRAWN)
RUNS = 4  # of that study
FAST = {"SACCADE_SAVE_EVERY": "0.3"}  # saves so often that kills hit moments of saving too
PLUGIN = '''
import os
from saccade.registry import probe


@probe(version=1)
def faulty(subject, data, *, how="raise"):
    """Fails in a way of its own."""
    if how == "die":
        os._exit(7)
    if how == "print":
        print("noise" * 1000)
    raise MemoryError() if how == "memory" else RuntimeError("broken")
    yield
'''


def command(lab: Path, images: int = 9600) -> list[str]:
    return [sys.executable, "-m", "saccade", *STUDY, f"images={images}", "--lab", str(lab)]


def saccade(*words: Any, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "saccade", *map(str, words)],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **env},
        timeout=600,
    )


def weights_of(lab: Path) -> dict[str, bytes]:
    return {p.parent.name: p.read_bytes() for p in lab.glob("runs/*/weights.safetensors")}


def events_of(lab: Path) -> list[str]:
    lines = [line for p in lab.glob("runs/*/log.jsonl") for line in p.read_text("utf-8").splitlines()]
    return [json.loads(line)["event"] for line in lines if line.endswith("}")]


@functools.cache
def calm() -> dict[str, bytes]:
    """The weights of the same study when nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command(Path(folder) / "lab"), check=True, capture_output=True)
        return weights_of(Path(folder) / "lab")


def finished_run(folder: Path) -> Any:
    """A lab with one small run in it, trained and measured, and the run's task."""
    from saccade.lab.perform import perform
    from saccade.lab.store import Lab

    lab, task = Lab(folder / "lab").open(), a_task()
    if list(perform(lab, task))[-1].kind != "finished":
        raise SystemExit("the small run that the trials work on did not finish")
    return lab, task


def a_task(*probes: Any, images: int = 160) -> Any:
    from saccade.spec import Probe, Recipe, Run, Settings, Task

    settings = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
    run = Run("lenet", "digits_on_backgrounds", Recipe(images=images, watch=1), 0, data_args=settings)
    return Task(run, probes or (Probe("accuracy", splits=("id",), n=20),), "arm")


def start(lab: Path, **env: str) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command(lab), env={**os.environ, **FAST, **env}, start_new_session=True, **quiet)


def workers_of(lab: Path) -> list[int]:
    """Worker processes of this lab, by their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"saccade.lab.worker" in words and str(lab).encode() in words:
                found.append(int(entry.name))
    return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def compared(lab: Path, wanted: dict[str, bytes]) -> tuple[str, ...]:
    have = weights_of(lab)
    lost = [f"run {key} is not there" for key in wanted if key not in have]
    return (*lost, *(f"run {key} has other weights" for key in wanted if key in have and have[key] != wanted[key]))


# -- processes that die


def storm(folder: Path, times: int, strike: Callable[[Path, subprocess.Popen[bytes]], None]) -> Outcome:
    """The same study again and again, struck while it works; at the end it must be as if nothing had happened."""
    wanted, lab, lost = calm(), folder / "stormy", []
    draw, kept = random.Random(5), dict[str, bytes]()
    for _ in range(times):
        begun = len(events_of(lab))
        process = start(lab)
        while len(events_of(lab)) < begun + 3 and process.poll() is None:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 1.0))
        strike(lab, process)
        process.wait()
        now = weights_of(lab)
        lost += [f"finished run {key} is gone or changed" for key, bits in kept.items() if now.get(key) != bits]
        kept = {k: v for k, v in now.items() if (lab / "runs" / k / "done.json").exists()}
    subprocess.run(command(lab), check=False, capture_output=True)
    again = json.loads(subprocess.run(command(lab), check=False, capture_output=True).stdout)
    lost += ["a finished run was trained again"] if again["trained"] else []
    return Outcome(times, (*lost, *compared(lab, wanted)))


@trial("processes", "kill -9 of a command and all its workers, at random moments, then the same command again")
def killed(folder: Path) -> Outcome:
    def strike(lab: Path, process: subprocess.Popen[bytes]) -> None:
        kill([process.pid, *workers_of(lab)])

    return storm(folder, 6, strike)


@trial("processes", "Ctrl-C and SIGTERM, at random moments, then the same command again")
def stopped(folder: Path) -> Outcome:
    signals = itertools.cycle((signal.SIGINT, signal.SIGTERM))
    return storm(folder, 4, lambda lab, process: process.send_signal(next(signals)))


@trial("processes", "kill -9 of one worker, at its start or at work, while the command goes on")
def killed_worker(folder: Path) -> Outcome:
    wanted, lab, times = calm(), folder / "stormy", 0
    process = start(lab)
    for begun in (0, 0, 1, 3):  # twice before a worker is ready, twice while they train
        while process.poll() is None and (len(events_of(lab)) < begun or not workers_of(lab)):
            time.sleep(0.05)
        if process.poll() is None:
            kill(workers_of(lab)[:1])
            times += 1
            time.sleep(0.5)
    code = process.wait()
    return Outcome(times, (*compared(lab, wanted), *([f"the command ended with {code}"] if code else [])))


@trial("processes", "two commands at once on one lab")
def two(folder: Path) -> Outcome:
    wanted, lab = calm(), folder / "shared"
    for process in [start(lab), start(lab)]:
        process.wait()
    twice = [f"run {p.parent.name} was trained twice" for p in lab.glob("runs/*/log.jsonl") if _twice(p)]
    return Outcome(2, (*compared(lab, wanted), *twice))


def _twice(log: Path) -> bool:
    return [json.loads(line)["event"] for line in log.read_text("utf-8").splitlines()].count("started") > 1


@trial("processes", "a probe that raises, runs out of memory, prints or kills its worker, beside one that works")
def faulty_probes(folder: Path) -> Outcome:
    from saccade import registry
    from saccade.lab import launch, plan
    from saccade.lab.store import Lab
    from saccade.spec import Probe

    plugin, lost = folder / "odd.py", []
    plugin.write_text(PLUGIN, "utf-8")
    registry.load_plugin(str(plugin))
    kinds = ("raise", "memory", "print", "die")
    for how in kinds:
        lab = Lab(folder / how).open()
        task = a_task(Probe("faulty", how=how), Probe("accuracy", splits=("id",), n=20))
        list(launch.local([task], lab, places=["cpu"], plugins=[str(plugin)]))
        table, done = plan.table_of(lab, [task]), lab.done(task.run.key)
        if not done or done["outcome"] != "finished" or not table.series("accuracy", split="id"):
            lost.append(f"a run or its other rows, to a probe that would {how}")
        if [f["probe"] for f in table.faults] != ["faulty"]:
            lost.append(f"the failure of a probe that would {how}")
    return Outcome(len(kinds), tuple(lost))


# -- files that change


def files_of(folder: Path) -> list[Path]:
    """What a finished run keeps; log.jsonl is for people."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in ("log.jsonl", "lease"))


@trial("files", "one byte changed in every file of a run, at 40 places of each")
def flipped(folder: Path) -> Outcome:
    lab, task = finished_run(folder)
    here, lost, times = lab.folder(task.run.key), [], 0
    for path in files_of(here):
        whole = path.read_bytes()
        for at in {len(whole) * i // 40 for i in range(40)}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            times += 1
            if path.relative_to(here).as_posix() not in lab.damage(task.run.key):
                lost.append(f"a change at byte {at} of {path.name} is named by nobody")
        path.write_bytes(whole)
    return Outcome(times, (*lost, *(f"{bad} does not match any more" for bad in lab.damage(task.run.key))))


@trial("files", "every file of a run removed, cut short, emptied, replaced by a folder or by deeply nested JSON")
def spoiled(folder: Path) -> Outcome:
    from saccade.lab import plan

    lab, task = finished_run(folder)
    here, lost, times = lab.folder(task.run.key), [], 0
    for path in files_of(here):
        whole = path.read_bytes()
        for how in ("removed", "cut short", "emptied", "a folder", "nested"):
            path.unlink()
            if how == "a folder":
                path.mkdir()
            elif how != "removed":
                path.write_bytes({"cut short": whole[:-7], "emptied": b"", "nested": b"[" * 100_000}[how])
            times += 1
            found = plan.examine(lab, [task])
            if not found.damaged and not found.todo:  # a measurement that is gone is measured again
                lost.append(f"{path.relative_to(here)}, {how}, is noticed by nobody")
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            path.write_bytes(whole)
    return Outcome(times, tuple(lost))


@trial("files", "a disk that is full from the n-th write on, then has room again")
def full_disk(folder: Path) -> Outcome:
    from saccade.lab.perform import perform
    from saccade.lab.store import Lab

    wanted, lost, real = finished_run(folder)[0], [], os.fsync
    bits = weights_of(wanted.root)
    times = 13
    for room in range(times):
        lab, left = Lab(folder / f"full{room}").open(), itertools.count()

        def fsync(handle: int, room: int = room, left: Iterator[int] = left) -> None:
            if next(left) >= room:
                raise OSError(28, "No space left on device")
            real(handle)

        os.fsync = fsync  # type: ignore[assignment]
        try:
            ended = list(perform(lab, a_task()))[-1].kind
        finally:
            os.fsync = real
        if ended not in ("refused", "finished"):
            lost.append(f"with room for {room} writes it ended as {ended}")
        if list(perform(lab, a_task()))[-1].kind != "finished" or weights_of(lab.root) != bits:
            lost.append(f"after {room} writes and a full disk the run is another one")
    return Outcome(times, tuple(lost))


@trial("files", "labs to merge with symbolic links, pipes, damaged and unfinished runs in them")
def merged(folder: Path) -> Outcome:
    from saccade.lab.store import Lab

    lab, task = finished_run(folder)
    key, secret, lost = task.run.key, folder / "secret", []
    secret.write_text("private", "utf-8")
    tricks: list[Callable[[Path], Any]] = [
        lambda run: (run / "weights.safetensors").unlink() or (run / "weights.safetensors").symlink_to(secret),
        lambda run: (run / "rows" / "more.json").symlink_to(secret),
        lambda run: (run / "each" / "deep").symlink_to(folder),
        lambda run: os.mkfifo(run / "rows" / "pipe.json"),
        lambda run: (run / "weights.safetensors").write_bytes(b"damaged"),
        lambda run: (run / "done.json").unlink(),
    ]
    for number, trick in enumerate(tricks):
        other, here = Lab(folder / f"other{number}").open(), Lab(folder / f"here{number}").open()
        shutil.copytree(lab.folder(key), other.folder(key))
        trick(other.folder(key))
        here.merge(other)
        if here.keys() or any(p.is_symlink() for p in here.root.rglob("*")):
            lost.append(f"trick {number} got something into a lab")
    return Outcome(len(tricks), tuple(lost))


@trial("files", "a damaged, short, empty or unsealed C kernel in the cache")
def kernels_cached(folder: Path) -> Outcome:
    code = "from saccade.layers import kernels; assert kernels.paste() is not None"
    env, lost = {**os.environ, "SACCADE_DATA": str(folder)}, []
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    (library,) = (folder / "kernels").glob("paste-*.so")
    whole = library.read_bytes()
    spoils: list[tuple[str, bytes | None]] = [
        ("damaged", bytes(b ^ 0x55 for b in whole)),
        ("short", whole[: len(whole) // 2]),
        ("empty", b""),
        ("unsealed", None),
    ]
    for how, content in spoils:
        library.write_bytes(whole if content is None else content)
        if content is None:
            library.with_suffix(".sha256").unlink()
        code_now = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True).returncode
        if code_now or library.read_bytes() != whole:
            lost.append(f"a kernel that is {how}: exit code {code_now}")
    return Outcome(len(spoils), tuple(lost))


@trial("files", "hostile or broken PNG batches and label files of a data set")
def hostile(folder: Path) -> Outcome:
    from saccade.data.fetch import formats

    lost = []
    pages = {
        "gigabytes": _png(1024, 170_000),
        "too high": _png(1024, 10_001),
        "swelling text": _png(1024, 8, _chunk(b"zTXt", b"a\x00\x00" + zlib.compress(b" " * 2**21))),
        "bad text": _png(1024, 8, _chunk(b"iTXt", b"a\x00\x01\x00\x00\x00no")),
        "no body": _png(1024, 8),
        "not a PNG": b"GIF89a" + bytes(100),
        "cut short": _png(1024, 8)[:40],
    }
    for name, page in pages.items():
        files = {f"{b}.png": page for bs in formats.BATCHES.values() for b in bs} | _labels(b"[1]")
        lost += [] if _refused(formats.read_png, files) else [f"a PNG with {name}"]
    labels = (b"[" * 100_000, b"[[1], [1, 2]]", b'{"a": 1}', b"[1e400]", b"\xff", b"")
    good = _png(1024, 1, body=b"\0" * 3073)
    for text in labels:
        files = {f"{b}.png": good for bs in formats.BATCHES.values() for b in bs} | _labels(text)
        lost += [] if _refused(formats.read_png, files) else [f"labels {text[:20]!r}"]
    return Outcome(len(pages) + len(labels), tuple(lost))


def _labels(text: bytes) -> dict[str, bytes]:
    from saccade.data.fetch import formats

    return dict.fromkeys(formats.LABELS.values(), text)


def _refused(read: Callable[..., Any], files: dict[str, bytes]) -> bool:
    from saccade.data.fetch.formats import Unusable

    try:
        read(files.get)
    except Unusable:
        return True
    except Exception:
        return False
    return False


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def _png(width: int, height: int, *chunks: bytes, body: bytes = b"") -> bytes:
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    data = _chunk(b"IDAT", zlib.compress(body))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + b"".join(chunks) + data + _chunk(b"IEND", b"")


# -- what is asked wrongly

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


@trial("mistakes", "score files with wrong, missing, infinite or swapped cells, ids and labels")
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
        for y in ("id,y\n1,1\n3,0\n2,0\n", "1\n0\n", "1\n0\n2\n", "1\n0\n-1\n", "1\n.5\n0\n", "0,1\n0,2\n1,0\n", "")
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


def _killed(kind: str, times: int, piece: int) -> None:
    @trial("kills", f"kill -9 of {kind}, at random moments", piece)
    def killed_at_random(folder: Path) -> Outcome:
        storm = kills.storm(kind, times, folder, piece)
        return Outcome(len(storm.kills), storm.lost, storm.kills, storm.calm_seconds)


for _kind, _times in kills.KINDS.items():
    for _piece, _first in enumerate(range(0, _times, kills.PIECE)):
        _killed(_kind, min(kills.PIECE, _times - _first), _piece)


def _fuzzed(parser: str) -> None:
    @trial("bytes", f"changed bytes into the parser of: {parser}")
    def fuzzed(folder: Path) -> Outcome:
        words = ["-m", "tests.fuzz", "--parser", parser, "--inputs", str(FUZZED)]
        done = subprocess.run([sys.executable, *words], capture_output=True, encoding="utf-8", cwd=ROOT)
        if not done.stdout:
            return Outcome(0, (f"the fuzzer ended with {done.returncode}",))
        told = json.loads(done.stdout.splitlines()[-1])
        return Outcome(told["inputs"], ("what it may not do",) * told["defects"])


for _parser in PARSERS:
    _fuzzed(_parser)


def _tested(what: str, test: str) -> None:
    """A trial that is one or more tests of test_faults.py; those that try several times say how often."""

    @trial("tests", what)
    def tested(folder: Path) -> Outcome:
        told = folder / "told.xml"
        words = [
            "-m",
            "pytest",
            "-m",
            "",
            "-q",
            "-p",
            "no:xdist",
            f"--basetemp={folder / 'base'}",
            f"--junitxml={told}",
            "-o",
            "junit_family=xunit1",  # the one that keeps properties
        ]
        file = ROOT / "tests" / "lab" / "test_faults.py"
        done = subprocess.run([sys.executable, *words, "-k", test, str(file)], capture_output=True, cwd=ROOT)
        cases = list(ElementTree.parse(told).iter("testcase")) if told.exists() else []
        times = sum(int(p.get("value", "1")) for case in cases for p in case.iter("property")) or len(cases)
        return Outcome(times, () if cases and done.returncode == 0 else ("the test fails",))


_tested("a disk that is full at any one of all writes of a run, then has room again", "full_at_any_write")
_tested("every file of a finished and of a stopped run cut short, changed, emptied or removed", "harm_to_any_file")
_tested("a run that never returns, beside one that does", "never_returns")
_tested("a run that wants more memory than there is, beside one that does not", "more_memory")
_tested("SIGTERM and SIGINT to a command at work: saved and ended within 10 s, more under load", "polite_end")
_tested("a lab that cannot be written", "cannot_be_written")
_tested("a lab that goes away and comes back, or does not", "vanishes or does_not_come_back")


# -- the page


def tally() -> dict[tuple[str, int], Outcome]:
    """What has been tried so far, by words and piece."""
    lines = TALLY.read_text("utf-8").splitlines() if TALLY.exists() else []
    return {(line["what"], line["piece"]): _outcome(line) for line in map(json.loads, lines)}


def _outcome(line: dict[str, Any]) -> Outcome:
    when = tuple(kills.Kill(*values) for values in line.get("kills", ()))
    return Outcome(line["times"], tuple(line["lost"]), when, line.get("calm_seconds", 0.0))


def note(one: Trial, outcome: Outcome, seconds: float) -> None:
    """Appended as one line, so that several processes can each do a part."""
    line = {"area": one.area, "what": one.what, "piece": one.piece, "times": outcome.times, "lost": outcome.lost}
    if outcome.kills:  # share of an undisturbed command, runs finished, runs under way
        line |= {"kills": [[k.share, k.finished, k.under_way] for k in outcome.kills]}
        line |= {"calm_seconds": round(outcome.calm_seconds, 1)}
    line |= {"seconds": round(seconds), "ended": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
    with TALLY.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


def document(known: dict[tuple[str, int], Outcome]) -> str:
    """The page; a trial of which a piece has not been tried yet says so."""
    rows, times, lost_all = [], 0, 0
    kinds = {one.what: one.area for one in TRIALS}
    for what, area in kinds.items():
        pieces = [known.get((one.what, one.piece)) for one in TRIALS if one.what == what]
        tried = [p for p in pieces if p]
        often, lost = sum(p.times for p in tried), [x for p in tried for x in p.lost]
        said = "nothing" if not lost else f"**{len(lost)}**: {'; '.join(lost[:3])}"
        if len(tried) < len(pieces):
            said = f"not all tried yet; so far {said}" if tried else "not tried yet"
        rows.append(f"| {area} | {what} | {often:,} | {said} |")
        times, lost_all = times + often, lost_all + len(lost)
    open_still = sum("tried yet" in row for row in rows)
    tried_words = f"{len(kinds) - open_still} of {len(kinds)}" if open_still else str(len(kinds))
    return TEXT.format(rows="\n".join(rows), times=times, lost=lost_all or "nothing", trials=tried_words)


TEXT = """# What was tried, and what was lost

Written by `python -m benchmarks.reliability`; do not edit. Kinds of misfortune and mistake that have been
tried in full: {trials}; {times:,} attempts; lost: {lost}.

Lost would be: a finished run, or a bit of its weights; more of a run under way than its last save; the user's
interpreter; a change in a file that nobody names; a failure that counts as success; and a traceback where a sentence
would help. How the lab folder withstands all this: [lab.md](lab.md).

Limits of the kills: the first 120 (workers, commands with their workers, workers of Ray) do not check that no run
ended twice, the others do. Ten of the supervisor's ran while the source was being changed, and are to be repeated.
Those of the supervisor and of a command with work on Ray fell before a run had finished, most of the latter while
the command was starting.

| | what was tried | how often | what was lost |
|---|---|---|---|
{rows}

The C kernels are built once more with the address and the undefined-behaviour sanitizer and run over random shapes in
the slow tests (`tests/test_kernels.py`); data and models are built with arguments that are each right and make nothing
together in `tests/test_arguments.py`.
"""


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    flags.add_argument("--only", default="", metavar="WORDS", help="trials whose text contains this")
    flags.add_argument("--afresh", action="store_true", help="also what has been tried before")
    asked = flags.parse_args()
    failed = False
    for one in TRIALS:
        if asked.only not in f"{one.area} {one.what} {one.run.__name__}":
            continue
        if not asked.afresh and (one.what, one.piece) in tally():
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            outcome = one.run(Path(folder))
        spent = time.perf_counter() - began
        note(one, outcome, spent)
        failed |= bool(outcome.lost)
        print(f"{one.what}: {outcome.times} times, {spent:.0f} s, lost: {outcome.lost or 'nothing'}", flush=True)
    PAGE.write_text(document(tally()), "utf-8")
    print(f"written: {PAGE}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
