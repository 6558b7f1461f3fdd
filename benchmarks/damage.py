"""Trials of benchmarks/reliability.py: files that change, vanish or were made to harm, and a disk that is full."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.trials import Outcome, a_task, finished_run, trial, weights_of


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
