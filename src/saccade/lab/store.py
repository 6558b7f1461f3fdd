"""The lab folder: the only file that knows its paths. Files are the truth; every write is atomic. In it lie:

    runs/<key>/      run.json                what was asked, where it ran (and `later`, where it was resumed)
                     lease                   who works on it now; its age is the heartbeat
                     log.jsonl               events, for people
                     state.sealed            what a resumed run goes on from; removed at the end
                     weights.safetensors, done.json
                     milestones/<share>.sealed   weights at a share of the budget
                     rows/<probe>.json       one file per measurement, with its own checksum
                     rows/<probe>@<share>.json   the same at a milestone
                     each/<probe>.npz        per-image outcomes behind the rows
                     failures/<probe>.json   why a probe gave no rows; the run itself is as finished as before
    aside/           damaged or stale run folders, set aside and never read
    studies/         reports and figures: derived, safe to delete
    work/            what a cluster was asked to do and has not ended: safe to delete when no cluster works on this lab

Measurements are one file each and not lines of one file: a kill during an append would tear the line.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.lab import lease
from saccade.lab.lease import Lease
from saccade.lab.shapes import shape_of
from saccade.spec import DamagedFile, Probe, Run, SaccadeError, canonical, digest, plain

TRAINING = Probe("training")  # the name under which a run's own curve and size are kept as rows
AWAY = float(os.environ.get("SACCADE_AWAY", "600"))  # seconds that a lab may be gone before a writer gives up
MARK = ".saccade"
GONE = (errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENODEV, errno.ENOENT)


def cache_folder() -> Path:
    """Where fetched sets and built kernels live: $SACCADE_DATA, or `saccade` in the platform's cache folder."""
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if setting := os.environ.get("SACCADE_DATA"):
            return Path(setting).expanduser()
        if xdg.is_absolute():  # the XDG standard says to ignore relative ones
            return xdg / "saccade"
        home = Path.home()
    except RuntimeError as error:
        raise SaccadeError(f"no home folder is known here ({error}); name a folder in SACCADE_DATA.") from error
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "saccade"
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "saccade"


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
    except OSError as error:  # gone, not ours to read, or a folder
        raise _damaged(path, f"it cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SaccadeError):
        intact = False
    if not intact:
        raise _damaged(path)
    return dict(document)


def _damaged(path: Path, why: str = "its content does not match its checksum") -> DamagedFile:
    return DamagedFile(
        f"{path} is damaged ({why}); --redo-damaged of saccade run and train sets its run aside and does it again."
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"it cannot be read: {error.strerror or error}") from error


def sealed(content: bytes) -> bytes:
    """Bytes behind a line with their checksum."""
    return _sha(content).encode() + b"\n" + content


def read_sealed(path: Path) -> bytes | None:
    if not path.exists():
        return None
    checksum, _, content = _bytes(path).partition(b"\n")
    if checksum.decode(errors="replace") != _sha(content):
        raise _damaged(path)
    return content


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


INSIDE = re.compile(r"(milestones/)?[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")  # what done.json may list


def read_document(path: Path) -> dict[str, Any]:
    """A document of a run's folder: intact, and of the shape that its place asks for."""
    document = unseal(path)
    right, otherwise = shape_of(path)
    if not right(document):
        raise _damaged(path, otherwise)
    return document


class Lab:
    """A folder of runs. Opening it creates it; a folder that cannot be written is refused at once.

    `opened`: somebody has opened it, so that whoever writes waits for it when it is not there, as a worker does.
    """

    def __init__(self, root: str | os.PathLike[str], *, opened: bool = False) -> None:
        self.root = Path(root)
        self._opened = opened

    def open(self) -> Lab:
        write_atomic(self.root / MARK, b"a saccade lab; see saccade status\n")
        (self.root / "runs").mkdir(exist_ok=True)
        self._opened = True
        return self

    def folder(self, key: str) -> Path:
        return self.root / "runs" / key

    def study_folder(self, name: str) -> Path:
        return self.root / "studies" / name

    # -- work that was handed to a cluster: its supervisor may be started again after whoever asked for it has left

    def put_work(self, name: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        self._write(self._work(name), seal({"tasks": list(tasks)}))

    def work(self, name: str) -> list[dict[str, Any]]:
        return list(unseal(self._work(name))["tasks"])

    def end_work(self, name: str) -> None:
        self._work(name).unlink(missing_ok=True)

    def _work(self, name: str) -> Path:
        return self.root / "work" / f"{digest(name, 16)}.json"

    def keys(self) -> list[str]:
        try:
            return sorted(p.name for p in (self.root / "runs").iterdir() if p.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_there(self) -> bool:
        """Whether this is a lab now: the mark that `open` made can be read."""
        try:
            return bool((self.root / MARK).read_bytes())
        except OSError:
            return False

    def _await(self) -> None:
        """Wait for a shared folder that has gone away. An empty mount point must not be taken for a new lab."""
        deadline = time.monotonic() + AWAY
        while not self.is_there():
            if not self._opened:
                raise SaccadeError(f"there is no lab at {self.root}; Lab({str(self.root)!r}).open() makes one.")
            if time.monotonic() > deadline:
                raise SaccadeError(
                    f"the lab {self.root} has gone away; what is finished is in it, and the same command goes on when "
                    "it is back."
                )
            time.sleep(min(0.5, AWAY))
        self._opened = True

    def _write(self, path: Path, content: bytes) -> None:
        """As write_atomic, but when the lab goes away meanwhile, again when it is back."""
        while True:
            self._await()
            try:
                write_atomic(path, content)
                if path.parent.parent.name != "runs":  # an index sees by its time that something in a run has changed
                    with contextlib.suppress(OSError):
                        os.utime(path.parent.parent)
                return
            except SaccadeError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or cause.errno not in GONE or self.is_there():
                    raise

    # -- who works on what

    def claim(self, run: Run, facts: Mapping[str, Any]) -> Lease | None:
        """Take the run if nobody alive has it. What was written to its folder before can be seen by now.

        (A client of a shared folder that makes a file there learns what else has changed in it.)
        """
        folder = self.folder(run.key)
        run_lease: Lease | None = None
        for _ in range(3):  # the folder may be set aside just now
            self._await()
            try:
                folder.mkdir(exist_ok=True)
                run_lease = lease.take(folder / "lease", self.is_there)
                break
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_error(error, folder / "lease") from error
        if run_lease is not None:
            try:
                if not (folder / "run.json").exists():
                    self._write(folder / "run.json", seal({"run": plain(run), "facts": facts}))
                elif not (folder / "done.json").exists():
                    self._add_facts(run.key, facts)
            except SaccadeError:
                run_lease.release()
                raise
        return run_lease

    def holds(self, lease: Lease) -> bool:
        """Whether this lease still counts; waits for a lab that has gone away."""
        self._await()
        return lease.held()

    def _add_facts(self, key: str, facts: Mapping[str, Any]) -> None:
        """A run that is resumed elsewhere, or with other kernels, says so: `later` has what changed on the way."""
        document, now = self.described(key), plain(facts)
        if now not in (document["facts"], *document.get("later", ())):
            document["later"] = [*document.get("later", ()), now]
            self._write(self.folder(key) / "run.json", seal(document))

    def holder(self, key: str) -> dict[str, Any] | None:
        """Who is alive and working on this run."""
        path = self.folder(key) / "lease"
        sight = lease.look(path)
        if sight is None or not lease.alive(path, sight):
            return None
        return sight.body or {"host": "unknown"}

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with locked(self.root / ".lock"):
            yield

    # -- one run

    def done(self, key: str) -> dict[str, Any] | None:
        """What is known of a finished (or diverged, or failed) run; None while there is work to do."""
        path = self.folder(key) / "done.json"
        return read_document(path) if path.exists() else None

    def described(self, key: str) -> dict[str, Any]:
        return read_document(self.folder(key) / "run.json")

    def run(self, key: str) -> Run:
        return Run.parse(self.described(key)["run"])

    def log(self, key: str, event: Mapping[str, Any]) -> None:
        path = self.folder(key) / "log.jsonl"
        self._await()
        try:
            with open(path, "a", encoding="utf-8") as out:
                out.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")
        except OSError as error:
            raise disk_error(error, path) from error

    def save_state(self, key: str, state: bytes) -> None:
        self._write(self.folder(key) / "state.sealed", sealed(state))

    def load_state(self, key: str) -> bytes | None:
        return read_sealed(self.folder(key) / "state.sealed")

    def save_milestone(self, key: str, share: float, weights: bytes) -> None:
        self._write(self._milestone(key, share), sealed(weights))

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
            self._write(self.folder(key) / "weights.safetensors", weights)
            files["weights.safetensors"] = _sha(weights)
        self._write(self.folder(key) / "done.json", seal({**outcome, "files": files}))
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
        content = _bytes(path)
        if _sha(content) != done["files"]["weights.safetensors"]:
            raise _damaged(path)
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
            self._write(self.folder(key) / "each" / f"{probe.key}.npz", each)
            document["each"] = _sha(each)
        self._write(self._rows(key, probe, share), seal(document))
        self._failure(key, probe, share).unlink(missing_ok=True)

    def put_failure(
        self, key: str, probe: Probe, version: int, reason: str, share: float = 1.0, outside: str = ""
    ) -> None:
        """A probe that gave no rows. It belongs to the probe: what was trained and measured stays as it is."""
        document = {"probe": probe.name, "settings": plain(probe.settings), "version": version, "reason": reason}
        self._write(self._failure(key, probe, share), seal(document | ({"outside": outside} if outside else {})))

    def failure(self, key: str, probe: Probe, share: float = 1.0) -> dict[str, Any] | None:
        path = self._failure(key, probe, share)
        return read_document(path) if path.exists() else None

    def _failure(self, key: str, probe: Probe, share: float) -> Path:
        return self.folder(key) / "failures" / self._rows(key, probe, share).name

    def rows(self, key: str, probe: Probe, share: float = 1.0) -> dict[str, Any] | None:
        path = self._rows(key, probe, share)
        return read_document(path) if path.exists() else None

    def _rows(self, key: str, probe: Probe, share: float) -> Path:
        """Rows at the whole budget have the probe's name; those at a milestone carry its share."""
        return self.folder(key) / "rows" / (f"{probe.key}.json" if share == 1 else f"{probe.key}@{share:g}.json")

    def all_rows(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        """Every measurement of a run, by file name."""
        return [(path.name, read_document(path)) for path in sorted((self.folder(key) / "rows").glob("*.json"))]

    def add_rows(self, key: str, documents: Mapping[str, Mapping[str, Any]]) -> int:
        """Measurements from elsewhere that this run lacks; returns how many."""
        missing = {name: d for name, d in documents.items() if not (self.folder(key) / "rows" / name).exists()}
        for name, document in missing.items():
            self._write(self.folder(key) / "rows" / name, seal(document))
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
            self._write(self.folder(key) / "run.json", seal(described))
        self.add_rows(key, rows)
        self._write(self.folder(key) / "done.json", seal(done))

    # -- the whole lab

    def damage(self, key: str) -> list[str]:
        """Names of the files of a run that are missing or do not match their checksums; reads every byte."""
        folder = self.folder(key)
        damaged = [name for name in self._required(key) if not (folder / name).exists()]
        sealed = sorted([*folder.glob("rows/*.json"), *folder.glob("failures/*.json")])
        for path in [folder / "run.json", folder / "done.json", *sealed]:
            if path.exists():
                try:
                    document = read_document(path)
                except DamagedFile:
                    damaged.append(str(path.relative_to(folder)))
                    continue
                damaged += self._attachments(folder, path, document)
        with contextlib.suppress(DamagedFile):
            self.load_state(key)
            return damaged
        return [*damaged, "state.sealed"]

    def _required(self, key: str) -> list[str]:
        """What a run that is done must hold besides the files that done.json lists with their checksums.

        Measurements are not among them: one that is missing is measured again.
        """
        if not (self.folder(key) / "done.json").exists():
            return []
        try:
            trained = read_document(self.folder(key) / "done.json")["outcome"] != "failed"
        except DamagedFile:
            trained = False  # named already, and nothing else is known of it
        return ["run.json", *([f"rows/{TRAINING.key}.json"] if trained else [])]

    def _attachments(self, folder: Path, path: Path, document: Mapping[str, Any]) -> list[str]:
        name = str(path.relative_to(folder))
        checksums = document.get("files", {}) if path.name == "done.json" else {}
        if not all(INSIDE.fullmatch(file) for file in checksums):
            return [name]  # a file from elsewhere says which files it has; it may not name others than its own
        if "each" in document:
            checksums = {**checksums, f"each/{path.stem}.npz": document["each"]}
        if path.name == "run.json":
            try:
                intact = Run.parse(document["run"]).key == folder.name
            except (KeyError, TypeError, SaccadeError):  # written by another version of saccade
                intact = False
            return [] if intact else ["run.json"]
        return [
            name
            for name, checksum in checksums.items()
            if not (folder / name).is_file() or _sha(_bytes(folder / name)) != checksum
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
        """Copy the finished runs of another lab that this one lacks; damaged ones are named, not copied.

        Neither is one with anything in it but files and folders: a link would bring in whatever it points to.
        """
        kinds = ("copied", "already here", "damaged", "damaged here", "unfinished", "links")
        result: dict[str, list[str]] = {kind: [] for kind in kinds}
        for key in other.keys():  # noqa: SIM118 - a Lab is no mapping
            if not _plain_files(other.folder(key)):
                result["links"].append(key)
            elif other.damage(key):
                result["damaged"].append(key)
            elif other.done(key) is None:
                result["unfinished"].append(key)
            elif (self.folder(key) / "done.json").exists():
                intact = not self.damage(key)
                result["already here" if intact else "damaged here"].append(key)
                if intact and not dry_run:
                    self._merge_rows(other, key)
            else:
                result["copied"].append(key)
                if not dry_run:
                    self._copy(other.folder(key), key)
        return result

    def _copy(self, source: Path, key: str) -> None:
        staging = self.root / f".incoming-{key}-{os.getpid()}"
        try:
            for path in (p for p in sorted(source.rglob("*")) if p.is_file()):
                if path.name != "lease" and not path.name.startswith("."):
                    target = staging / path.relative_to(source)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target, follow_symlinks=False)
        except OSError as error:
            shutil.rmtree(staging, ignore_errors=True)
            raise disk_error(error, staging) from error
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
                    self._write(target, path.read_bytes())

    def prune(self, dry_run: bool = False) -> dict[str, int]:
        """Remove what is never read again: folders set aside, leftovers of killed writers. Bytes by path.

        Leases of the dead, states of runs that are done, and temporary files older than any write takes.
        """
        removed = {}
        idle = [self.folder(key) for key in self.keys() if not self.holder(key)]
        removable = [
            *self.root.glob("aside/*"),
            *self.root.glob(".incoming-*"),
            *(folder / "lease" for folder in idle),
            *(folder / "state.sealed" for folder in idle if (folder / "done.json").exists()),
            *(t for folder in idle for t in folder.rglob(".*.tmp")),
            *(t for at in ("", "studies") for t in _temporary(self.root / at, deep=bool(at))),
        ]
        for path in (p for p in removable if p.exists()):
            removed[str(path.relative_to(self.root))] = size_of(path)
            if not dry_run:
                try:
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                except OSError as error:
                    raise disk_error(error, path) from error
        return removed


def _temporary(folder: Path, deep: bool) -> list[Path]:
    paths = folder.rglob(".*.tmp") if deep else folder.glob(".*.tmp")
    return [p for p in paths if time.time() - p.stat().st_mtime > lease.DEAD_AFTER]


def _plain_files(folder: Path) -> bool:
    """Whether there is nothing below a folder but files and folders: no links, pipes or devices."""
    return not folder.is_symlink() and all(
        not p.is_symlink() and (p.is_file() or p.is_dir()) for p in folder.rglob("*")
    )


def size_of(path: Path) -> int:
    """Bytes of a file or of all files below a folder; what is removed meanwhile counts as 0."""
    size = 0
    for p in (path, *path.rglob("*")) if path.is_dir() else (path,):
        with contextlib.suppress(OSError):
            size += p.lstat().st_size if p.is_file() else 0
    return size


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """An exclusive lock that dies with its process."""
    try:
        import fcntl
    except ImportError:  # Windows: leases and atomic renames remain; two launchers on one lab are not safe there
        yield
        return
    try:
        handle = open(path, "ab")  # noqa: SIM115 - held over the yield
    except OSError as error:
        raise disk_error(error, path) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
