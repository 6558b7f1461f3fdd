"""The lab folder: the only file that knows its paths. Files are the truth; every write is atomic.

    lab/runs/<key>/  run.json                what was asked, where it ran
                     lease                   who works on it now; its age is the heartbeat
                     log.jsonl               events, for people
                     state.sealed            what a resumed run goes on from; removed at the end
                     weights.safetensors, done.json
                     milestones/<share>.sealed   weights at a share of the budget
                     rows/<probe>.json       one file per measurement, with its own checksum
                     rows/<probe>@<share>.json   the same at a milestone
                     each/<probe>.npz        per-image outcomes behind the rows
    lab/aside/       damaged or stale run folders, set aside and never read
    lab/studies/     reports and figures: derived, safe to delete

Measurements are one file each and not lines of one file: a kill during an append would tear the line.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.spec import DamagedFile, Probe, Run, SaccadeError, canonical, plain

HEARTBEAT = 5.0  # seconds between signs of life
DEAD_AFTER = 45.0  # a lease of another machine without a sign of life for this long may be taken over


def cache_folder() -> Path:
    """Where fetched sets and built kernels live: $SACCADE_DATA, or `saccade` in the platform's cache folder."""
    if chosen := os.environ.get("SACCADE_DATA"):
        return Path(chosen).expanduser()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():  # the XDG standard says to ignore relative ones
        return xdg / "saccade"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "saccade"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "saccade"


def write_atomic(path: Path, content: bytes) -> None:
    """The whole new content or the old one, also after a kill: temporary file, fsync, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise disk_error(error, path) from error


def disk_error(error: OSError, path: Path) -> SaccadeError:
    """The sentence for a disk that refuses: full, read-only or not ours."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SaccadeError(
            f"no space left to write {path}; free some or choose another folder with --lab "
            "(everything finished is kept)."
        )
    return SaccadeError(
        f"cannot write {path} ({error.strerror or error}); check its permissions or choose another folder with --lab."
    )


def seal(document: Mapping[str, Any]) -> bytes:
    """JSON that carries the checksum of its own content."""
    body = plain(document)
    return json.dumps({**body, "sha256": _sha(canonical(body).encode())}, indent=1).encode()


def unseal(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
        checksum = document.pop("sha256")
        intact = checksum == _sha(canonical(document).encode())
    except (ValueError, KeyError, TypeError, AttributeError, SaccadeError):
        intact = False
    if not intact:
        raise DamagedFile(f"{path} is damaged (its content does not match its checksum).")
    return dict(document)


def write_sealed(path: Path, content: bytes) -> None:
    """Bytes behind a line with their checksum."""
    write_atomic(path, _sha(content).encode() + b"\n" + content)


def read_sealed(path: Path) -> bytes | None:
    if not path.exists():
        return None
    checksum, _, content = path.read_bytes().partition(b"\n")
    if checksum.decode(errors="replace") != _sha(content):
        raise DamagedFile(f"{path} is damaged (its content does not match its checksum).")
    return content


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Lease:
    """The right to write one run folder. A thread renews it; `lost` says that someone else took over."""

    path: Path
    token: str
    lost: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> Lease:
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            if self._holder() != self.token:
                self.lost.set()
                return
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def _holder(self) -> str:
        try:
            return str(json.loads(self.path.read_text())["token"])
        except (OSError, ValueError, KeyError):
            return ""

    def release(self) -> None:
        self._stop.set()
        if self._holder() == self.token:
            self.path.unlink(missing_ok=True)


class Lab:
    """A folder of runs. Opening it creates it; a folder that cannot be written is refused at once."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def open(self) -> Lab:
        write_atomic(self.root / ".saccade", b"a saccade lab; see saccade status\n")
        (self.root / "runs").mkdir(exist_ok=True)
        return self

    def folder(self, key: str) -> Path:
        return self.root / "runs" / key

    def study_folder(self, name: str) -> Path:
        return self.root / "studies" / name

    def keys(self) -> list[str]:
        try:
            return sorted(p.name for p in (self.root / "runs").iterdir() if p.is_dir())
        except FileNotFoundError:
            return []

    # -- who works on what

    def claim(self, run: Run, facts: Mapping[str, Any]) -> Lease | None:
        """Take the run if nobody alive has it. The short critical section is under one lock of the lab."""
        folder = self.folder(run.key)
        with self._lock():
            folder.mkdir(parents=True, exist_ok=True)
            if self.holder(run.key):
                return None
            if not (folder / "run.json").exists():
                write_atomic(folder / "run.json", seal({"run": plain(run), "facts": facts}))
            token = uuid.uuid4().hex
            body = {
                "token": token,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "since": time.time(),
                "born": _born(os.getpid()),
            }
            write_atomic(folder / "lease", json.dumps(body).encode())
        return Lease(folder / "lease", token).start()

    def holder(self, key: str) -> dict[str, Any] | None:
        """Who is alive and working on this run."""
        path = self.folder(key) / "lease"
        try:
            lease = json.loads(path.read_text())
            age = time.time() - path.stat().st_mtime
            if lease["host"] == socket.gethostname():
                # The process id alone is not enough: ids are used again.
                alive = lease["born"] is not None and _born(int(lease["pid"])) == lease["born"]
            else:
                alive = age < DEAD_AFTER
        except (OSError, ValueError, KeyError, TypeError):
            return None  # no lease, or one that says nothing
        return dict(lease) if alive else None

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with locked(self.root / ".lock"):
            yield

    # -- one run

    def done(self, key: str) -> dict[str, Any] | None:
        """What is known of a finished (or diverged, or failed) run; None while there is work to do."""
        path = self.folder(key) / "done.json"
        return unseal(path) if path.exists() else None

    def described(self, key: str) -> dict[str, Any]:
        return unseal(self.folder(key) / "run.json")

    def run(self, key: str) -> Run:
        return Run.parse(self.described(key)["run"])

    def log(self, key: str, event: Mapping[str, Any]) -> None:
        path = self.folder(key) / "log.jsonl"
        try:
            with open(path, "a") as out:
                out.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")
        except OSError as error:
            raise disk_error(error, path) from error

    def save_state(self, key: str, state: bytes) -> None:
        write_sealed(self.folder(key) / "state.sealed", state)

    def load_state(self, key: str) -> bytes | None:
        return read_sealed(self.folder(key) / "state.sealed")

    def save_milestone(self, key: str, share: float, weights: bytes) -> None:
        write_sealed(self._milestone(key, share), weights)

    def load_milestone(self, key: str, share: float) -> bytes | None:
        """Weights at a share of the budget; None when the run kept none or had stopped before."""
        return read_sealed(self._milestone(key, share))

    def has_milestone(self, key: str, share: float) -> bool:
        return self._milestone(key, share).exists()

    def _milestone(self, key: str, share: float) -> Path:
        return self.folder(key) / "milestones" / f"{share:g}.sealed"

    def finish(self, key: str, outcome: Mapping[str, Any], weights: bytes | None) -> None:
        """Weights first, then the mark: a run is done when and only when done.json is there."""
        files = {
            f"milestones/{path.name}": _sha(path.read_bytes())
            for path in sorted((self.folder(key) / "milestones").glob("*.sealed"))
        }
        if weights is not None:
            write_atomic(self.folder(key) / "weights.safetensors", weights)
            files["weights.safetensors"] = _sha(weights)
        write_atomic(self.folder(key) / "done.json", seal({**outcome, "files": files}))
        (self.folder(key) / "state.sealed").unlink(missing_ok=True)

    def weights(self, key: str) -> bytes:
        """The weights, checked."""
        done = self.done(key)
        path = self.folder(key) / "weights.safetensors"
        if done is not None and done.get("exported"):
            raise SaccadeError(
                f"run {key} came from an export, which holds no weights; train it again to measure more."
            )
        if done is None or "weights.safetensors" not in done["files"]:
            raise SaccadeError(f"run {key} has no weights in {self.root}; train it first.")
        content = path.read_bytes() if path.exists() else b""
        if _sha(content) != done["files"]["weights.safetensors"]:
            raise DamagedFile(f"{path} is damaged (its content does not match its checksum).")
        return content

    # -- measurements

    def put_rows(
        self,
        key: str,
        probe: Probe,
        version: int,
        rows: Iterable[Mapping[str, Any]],
        each: bytes | None = None,
        share: float = 1.0,
        outside: str = "",
    ) -> None:
        document: dict[str, Any] = {
            "probe": probe.name,
            "settings": plain(probe.settings),
            "version": version,
            "rows": list(rows),
            **({"outside": outside} if outside else {}),
        }
        if each is not None:
            write_atomic(self.folder(key) / "each" / f"{probe.key}.npz", each)
            document["each"] = _sha(each)
        write_atomic(self._rows(key, probe, share), seal(document))

    def rows(self, key: str, probe: Probe, share: float = 1.0) -> dict[str, Any] | None:
        path = self._rows(key, probe, share)
        return unseal(path) if path.exists() else None

    def _rows(self, key: str, probe: Probe, share: float) -> Path:
        """Rows at the whole budget have the probe's name; those at a milestone carry its share."""
        return self.folder(key) / "rows" / (f"{probe.key}.json" if share == 1 else f"{probe.key}@{share:g}.json")

    def all_rows(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        """Every measurement of a run, by file name."""
        return [(path.name, unseal(path)) for path in sorted((self.folder(key) / "rows").glob("*.json"))]

    def add_rows(self, key: str, documents: Mapping[str, Mapping[str, Any]]) -> int:
        """Measurements from elsewhere that this run lacks; returns how many."""
        missing = {name: d for name, d in documents.items() if not (self.folder(key) / "rows" / name).exists()}
        for name, document in missing.items():
            write_atomic(self.folder(key) / "rows" / name, seal(document))
        return len(missing)

    def adopt(
        self,
        key: str,
        described: Mapping[str, Any],
        done: Mapping[str, Any],
        rows: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """A finished run from elsewhere, without its weights; done.json last, as always."""
        with self._lock():
            write_atomic(self.folder(key) / "run.json", seal(described))
        self.add_rows(key, rows)
        write_atomic(self.folder(key) / "done.json", seal(done))

    # -- the whole lab

    def damage(self, key: str) -> list[str]:
        """Names of the files of a run that do not match their checksums; reads every byte."""
        folder = self.folder(key)
        bad = ["run.json"] if (folder / "done.json").exists() and not (folder / "run.json").exists() else []
        for path in [folder / "run.json", folder / "done.json", *sorted(folder.glob("rows/*.json"))]:
            if path.exists():
                try:
                    document = unseal(path)
                except DamagedFile:
                    bad.append(str(path.relative_to(folder)))
                    continue
                bad += self._attachments(folder, path, document)
        with contextlib.suppress(DamagedFile):
            self.load_state(key)
            return bad
        return [*bad, "state.sealed"]

    def _attachments(self, folder: Path, path: Path, document: Mapping[str, Any]) -> list[str]:
        wanted = dict(document.get("files", {})) if path.name == "done.json" else {}
        if "each" in document:
            wanted[f"each/{path.stem}.npz"] = document["each"]
        if path.name == "run.json":
            try:
                intact = Run.parse(document["run"]).key == folder.name
            except (KeyError, TypeError, SaccadeError):  # written by another version of saccade
                intact = False
            return [] if intact else ["run.json"]
        return [
            name
            for name, checksum in wanted.items()
            if not (folder / name).exists() or _sha((folder / name).read_bytes()) != checksum
        ]

    def set_aside(self, key: str, why: str) -> Path:
        """Move a run folder out of the way; what it held is kept but never read again."""
        with self._lock():
            for i in range(1, 1000):
                target = self.root / "aside" / f"{key}-{why}-{i}"
                if not target.exists():
                    target.parent.mkdir(exist_ok=True)
                    os.replace(self.folder(key), target)
                    return target
        raise SaccadeError(f"{self.root / 'aside'} is crowded; empty it with saccade lab prune.")

    def merge(self, other: Lab, dry_run: bool = False) -> dict[str, list[str]]:
        """Copy the finished runs of another lab that this one lacks; damaged ones are named, not copied."""
        told: dict[str, list[str]] = {"copied": [], "already here": [], "damaged": [], "unfinished": []}
        for key in other.keys():  # noqa: SIM118 - a Lab is no mapping
            if other.damage(key):
                told["damaged"].append(key)
            elif other.done(key) is None:
                told["unfinished"].append(key)
            elif (self.folder(key) / "done.json").exists():
                told["already here"].append(key)
                if not dry_run:
                    self._merge_rows(other, key)
            else:
                told["copied"].append(key)
                if not dry_run:
                    self._copy(other.folder(key), key)
        return told

    def _copy(self, source: Path, key: str) -> None:
        staging = self.root / f".incoming-{key}-{os.getpid()}"
        shutil.copytree(source, staging, ignore=shutil.ignore_patterns("lease", ".*"))
        with self._lock():
            if self.folder(key).exists():
                self.folder(key).rename(staging.with_suffix(".old"))
                shutil.rmtree(staging.with_suffix(".old"))
            os.replace(staging, self.folder(key))

    def _merge_rows(self, other: Lab, key: str) -> None:
        for kind in ("each", "rows"):  # attachments first, as in put_rows
            for path in sorted((other.folder(key) / kind).glob("*")):
                target = self.folder(key) / kind / path.name
                if not target.exists():
                    write_atomic(target, path.read_bytes())

    def prune(self, dry_run: bool = False) -> dict[str, int]:
        """Remove what is never read again: folders set aside, leftovers of killed writers. Bytes by path."""
        told = {}
        doomed = [
            *self.root.glob("aside/*"),
            *self.root.glob(".incoming-*"),
            *(p for p in self.root.glob("runs/*/.*.tmp") if not self.holder(p.parent.name)),
        ]
        for path in doomed:
            told[str(path.relative_to(self.root))] = size_of(path)
            if not dry_run:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return told


def size_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """An exclusive lock that dies with its process."""
    try:
        import fcntl
    except ImportError:  # Windows: leases and atomic renames remain; two launchers on one lab are not safe there
        yield
        return
    try:
        handle = open(path, "a")  # noqa: SIM115 - held over the yield
    except OSError as error:
        raise disk_error(error, path) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _born(pid: int) -> float | None:
    """When a process started, in clock ticks since boot; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return None if fields[0] == "Z" else float(fields[19])
    except (OSError, IndexError, ValueError):
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:  # no /proc (macOS): existence is all that can be had
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0.0
