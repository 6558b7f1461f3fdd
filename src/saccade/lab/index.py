"""An index of a lab, so that status, reports and tables need not read every run's folder each time.

Derived from the folders, per machine (two machines never share a database over a network), safe to delete at any time:
it is then rebuilt. A run's folder is read again when its time has changed; everything that Lab writes changes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from saccade.lab import lease
from saccade.lab.store import Lab, size_of
from saccade.spec import DamagedFile, Probe

VERSION = 1
RACY = 3_000_000_000  # nanoseconds: a folder changed just now may change again without a new time
MANY = 1000  # folders to read from which on the user is told
PATIENCE = 10  # seconds to wait for another command that writes to the same index
BATCH = 2000  # rows of one statement

SCHEMA = """
CREATE TABLE runs (key TEXT PRIMARY KEY, changed INTEGER, outcome TEXT, bytes INTEGER, leased INTEGER) WITHOUT ROWID;
CREATE TABLE documents (key TEXT, name TEXT, body BLOB, PRIMARY KEY (key, name)) WITHOUT ROWID;
CREATE TABLE sights (key TEXT PRIMARY KEY, token TEXT, beat TEXT, since REAL) WITHOUT ROWID;
CREATE INDEX outcomes ON runs (outcome, bytes);
"""

Document = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Refreshed:
    """What bringing the index up to date took."""

    runs: int
    read: int  # folders that had to be read
    seconds: float

    def sentence(self) -> str:
        return f"index of {self.runs:,} runs brought up to date in {self.seconds:.1f} s ({self.read:,} folders read)"


class Index:
    """Opened by `of`. What it says is as of its last `refresh`."""

    def __init__(self, lab: Lab, path: Path | None) -> None:
        self.lab, self.path = lab, path
        self.fresh: list[tuple[str, str, bytes]] = []  # documents to be remembered
        self.database = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            self._give_up(error)
        try:
            return self._connect()
        except sqlite3.DatabaseError:
            self.path = None
            return self._connect()

    def _give_up(self, error: sqlite3.DatabaseError) -> None:
        """A damaged database, or one of another version, is made again; where that is impossible, in memory."""
        try:
            if self.path is None or "locked" in str(error):
                raise error  # somebody else works on it
            self.path.unlink()
        except (OSError, sqlite3.DatabaseError):
            self.path = None

    def _connect(self) -> sqlite3.Connection:
        if self.path is not None:
            try:
                self.path.parent.mkdir(exist_ok=True)
            except OSError:
                self.path = None
        database = sqlite3.connect(self.path or ":memory:", timeout=PATIENCE, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = NORMAL")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                with _transaction(database):
                    (table_count,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
                    for statement in SCHEMA.strip().split(";\n") if not table_count else ():
                        database.execute(statement)
                    database.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise sqlite3.DatabaseError("of another version")
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        if self.fresh:
            with contextlib.suppress(sqlite3.DatabaseError), _transaction(self.database):
                self.database.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", self.fresh)
        self.database.close()

    def refresh(self) -> Refreshed:
        """Look at the time of every run's folder; read those that changed."""
        began = time.perf_counter()
        try:
            return self._refresh(began)
        except sqlite3.DatabaseError as error:
            self.database.close()
            self._give_up(error)
            self.database = self._open()
            return self._refresh(began)

    def _refresh(self, began: float) -> Refreshed:
        now = time.time_ns()
        folders = _folders(self.lab.root / "runs")
        indexed = dict(self.database.execute("SELECT key, changed FROM runs"))
        to_read = [key for key, changed in folders.items() if indexed.get(key) != changed]
        removed = [(key,) for key in indexed if key not in folders]
        if to_read or removed:
            with _transaction(self.database):
                for key in to_read:
                    changed = folders[key]
                    if abs(now - changed) < RACY:
                        changed = -1  # looked at again next time
                    outcome, size, leased = _read(self.lab, key)
                    self.database.execute(
                        "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", (key, changed, outcome, size, leased)
                    )
                self.database.executemany("DELETE FROM runs WHERE key = ?", removed)
                dropped = [*removed, *((key,) for key in to_read if key in indexed)]
                self.database.executemany("DELETE FROM documents WHERE key = ?", dropped)
        return Refreshed(len(folders), len(to_read), time.perf_counter() - began)

    def counts(self, keys: Sequence[str] | None = None) -> dict[str, int]:
        """Runs by outcome; those without one are `running` or `waiting`. Keys that the lab lacks are waiting."""
        counts: dict[str, int] = {}
        if keys is None:
            rows = self.database.execute("SELECT outcome, count(*) FROM runs WHERE outcome <> '' GROUP BY outcome")
            counts.update(rows)
            open_ones = self.database.execute("SELECT key, leased FROM runs WHERE outcome = ''").fetchall()
        else:
            states = {key: (outcome, leased) for key, outcome, leased in self._rows_of(keys)}
            open_ones = []
            for key in keys:
                outcome, leased = states.get(key, ("", 0))
                if outcome:
                    counts[outcome] = counts.get(outcome, 0) + 1
                else:
                    open_ones.append((key, leased))
        running = sum(1 for key, leased in open_ones if leased and self._alive(key))
        counts["running"], counts["waiting"] = running, len(open_ones) - running
        return counts

    def bytes(self) -> int:
        """Of everything in the lab; what lies outside of runs is read again."""
        (runs,) = self.database.execute("SELECT coalesce(sum(bytes), 0) FROM runs").fetchone()
        others = [p for p in self.lab.root.iterdir() if p.name != "runs"]
        return int(runs) + sum(size_of(p) for p in others)

    def document(self, key: str, name: str, read: Callable[[], T]) -> T:
        """A document of a run, from here or else by `read`, which is then remembered. Only finished runs are kept."""
        row = self.database.execute("SELECT body FROM documents WHERE key = ? AND name = ?", (key, name)).fetchone()
        if row is not None:
            document: T = json.loads(zlib.decompress(row[0]))
            return document
        content = read()
        settled = self.database.execute(
            "SELECT 1 FROM runs WHERE key = ? AND outcome <> '' AND changed > 0", (key,)
        ).fetchone()
        if settled:
            self.fresh.append((key, name, zlib.compress(json.dumps(content).encode())))
        return content

    def _rows_of(self, keys: Sequence[str]) -> Iterator[tuple[str, str, int]]:
        for i in range(0, len(keys), BATCH):
            batch = keys[i : i + BATCH]
            marks = ",".join("?" * len(batch))
            yield from self.database.execute(f"SELECT key, outcome, leased FROM runs WHERE key IN ({marks})", batch)

    def _alive(self, key: str) -> bool:
        """Whether somebody works on it. Another machine's sign of life is compared with the one seen last time."""
        path = self.lab.folder(key) / "lease"
        sight = lease.look(path)
        if sight is None or not lease.alive(path, sight):
            return False
        if sight.body.get("machine") == lease.machine():
            return True
        last_sight = self.database.execute("SELECT token, beat, since FROM sights WHERE key = ?", (key,)).fetchone()
        if last_sight is not None and last_sight[:2] == (sight.token, sight.beat):
            return time.time() - float(last_sight[2]) < lease.DEAD_AFTER
        with contextlib.suppress(sqlite3.DatabaseError):
            self.database.execute(
                "INSERT OR REPLACE INTO sights VALUES (?, ?, ?, ?)", (key, sight.token, sight.beat, time.time())
            )
        return True


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def of(lab: Lab) -> Index:
    """The index of a lab for this machine, made if there is none."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname()) or "here"
    return Index(lab, lab.root / "index" / f"{name}.sqlite")


def _folders(root: Path) -> dict[str, int]:
    """Every run's folder with the time of its last change."""
    try:
        with os.scandir(root) as entries:
            return {e.name: e.stat(follow_symlinks=False).st_mtime_ns for e in entries if e.is_dir()}
    except FileNotFoundError:
        return {}


def _read(lab: Lab, key: str) -> tuple[str, int, int]:
    """Outcome (`damaged` where that cannot be read, nothing where there is none), bytes, whether there is a lease."""
    try:
        done = lab.done(key)
        outcome = str(done.get("outcome", "damaged")) if done else ""
    except DamagedFile:
        outcome = "damaged"
    size, leased, waiting = 0, 0, [lab.folder(key)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:  # a file may go while we look
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                    continue
                leased |= entry.name == "lease"
                size += entry.stat(follow_symlinks=False).st_size
    return outcome, size, int(leased)


class Indexed(Lab):
    """A lab that is only read, through an index: what a finished run's small documents say comes from there."""

    def __init__(self, lab: Lab, index: Index) -> None:
        super().__init__(lab.root)
        self.index = index

    def done(self, key: str) -> Document | None:
        return self.index.document(key, "done", lambda: super(Indexed, self).done(key))

    def described(self, key: str) -> Document:
        return self.index.document(key, "run", lambda: super(Indexed, self).described(key))

    def rows(self, key: str, probe: Probe, share: float = 1.0) -> Document | None:
        name = f"{probe.key}@{share:g}"
        return self.index.document(key, name, lambda: super(Indexed, self).rows(key, probe, share))


@contextlib.contextmanager
def reading(lab: Lab, say: Callable[[str], None] = lambda line: None) -> Iterator[Indexed]:
    """The lab for a report or a table. `say` is called when many folders had to be read."""
    index = of(lab)
    try:
        refreshed = index.refresh()
        if refreshed.read >= MANY:
            say(refreshed.sentence())
        yield Indexed(lab, index)
    finally:
        index.close()


def status(lab: Lab, keys: Sequence[str] | None = None) -> tuple[Mapping[str, int], int, Refreshed]:
    """Counts, bytes on disk, and what it took to know."""
    index = of(lab)
    try:
        refreshed = index.refresh()
        return index.counts(keys), index.bytes(), refreshed
    finally:
        index.close()
