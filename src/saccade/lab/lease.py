"""Who works on a run: leases that hold on a folder which several machines share.

Little is asked of the file system, what NFS promises: a hard link is made once or not at all, a rename replaces a name
at once, and a file that is opened again shows what was written before. Clocks may differ, O_EXCL and locks may be
missing, and a folder may be listed late.

- A lease is written under a name of its own and then linked to `lease`. Whether that worked is read from its number of
  links: a server's answer may get lost.
- Its sign of life is a counter, written through the handle that the holder has kept open. A holder that slept cannot
  write into its successor's lease that way.
- Whoever looks remembers when, by his own clock, he saw the counter move last. Still for DEAD_AFTER seconds: dead.
- A dead process of this machine is known at once.
- A dead lease is removed by the process that made the one link that is named after it.

A holder that was taken for dead and was not (its machine slept) sees another's lease at its next beat, and stops.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEARTBEAT = 5.0  # seconds between signs of life
DEAD_AFTER = 45.0  # a lease of another machine without a sign of life for this long may be taken over
WIDTH = 12  # digits of the counter
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)

_seen: dict[str, tuple[str, str, float]] = {}  # path -> token, sign of life, when it was first seen so
_dead: set[str] = set()  # tokens whose holders are known to be dead
purpose = ""  # what this process works for, written into its leases: a supervisor knows its own tasks by it


@dataclass(frozen=True)
class Sight:
    """A lease as it was just read."""

    body: dict[str, Any]
    beat: str  # changes with every sign of life

    @property
    def token(self) -> str:
        return str(self.body.get("token", ""))


@dataclass
class Lease:
    """The right to write one run folder. A thread renews it; `lost` says that someone else took over."""

    path: Path
    token: str
    handle: int
    offset: int
    there: Callable[[], bool] = lambda: True  # whether the lab can be seen at all
    lost: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> Lease:
        threading.Thread(target=self._live, daemon=True).start()
        return self

    def _live(self) -> None:
        beats = 0
        while not self._stop.wait(HEARTBEAT):
            if not self.there():
                continue  # the lab has gone away; when it is back, the lease says whose the run is
            if not self.held() and self.there() and not self.held():
                self.lost.set()
                return
            beats += 1
            with contextlib.suppress(OSError):
                os.pwrite(self.handle, b"%0*d" % (WIDTH, beats), self.offset)
                os.fsync(self.handle)  # to the server: others must see it

    def held(self) -> bool:
        """Whether the run is still ours; reads the file."""
        sight = look(self.path)
        return sight is not None and sight.token == self.token

    def release(self) -> None:
        self._stop.set()
        with contextlib.suppress(OSError):
            if self.held():
                self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.close(self.handle)


def take(path: Path, there: Callable[[], bool] = lambda: True) -> Lease | None:
    """The lease at this path if nobody alive has it. Its folder must exist."""
    for _ in range(3):
        sight = look(path)
        if sight is not None and (alive(path, sight) or not _remove_dead(path, sight)):
            return None
        lease = _link(path, there)
        if lease is not None:
            return lease.start()
    return None


def look(path: Path) -> Sight | None:
    """What the file says now; None where there is none. A garbled one (a power cut) has an empty body."""
    try:
        with open(path, "rb") as file:
            text = file.read()
            changed = os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
    head, _, beat = text.partition(b"\n")
    try:
        body = json.loads(head)
    except (ValueError, RecursionError):
        body = {}
    return Sight(body if isinstance(body, dict) else {}, f"{beat!r} {changed}")


def alive(path: Path, sight: Sight) -> bool:
    """Whether its holder lives, as far as can be known here and now."""
    if sight.token in _dead:
        return False
    if sight.body.get("machine", sight.body.get("host")) in (machine(), socket.gethostname()):
        # The process id alone is not enough: ids are used again.
        try:
            return sight.body["born"] is not None and born(int(sight.body["pid"])) == sight.body["born"]
        except (KeyError, TypeError, ValueError):
            return False
    now, (token, beat, since) = time.monotonic(), _seen.get(str(path), ("", "", 0.0))
    if (token, beat) != (sight.token, sight.beat):
        _seen[str(path)] = (sight.token, sight.beat, now)
        return True
    return now - since < DEAD_AFTER


def believe_dead(token: str) -> None:
    """Somebody who must know (a launcher whose worker died) says that the holder of this token is no more."""
    _dead.add(token)


def _link(path: Path, there: Callable[[], bool]) -> Lease | None:
    token = uuid.uuid4().hex
    body = {
        "token": token,
        "host": socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "born": born(os.getpid()),
        "since": time.time(),
        **({"purpose": purpose} if purpose else {}),
    }
    head = json.dumps(body).encode() + b"\n"
    content = head + b"0" * WIDTH
    draft = path.with_name(f".lease.{token}.tmp")
    try:
        with open(draft, "wb") as out:
            out.write(content)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # or the first of two requests made the link, and this is the answer to the second
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _exclusive(path, content)
        else:
            draft.unlink()
            return _open(path, token, len(head), there)
        if draft.stat().st_nlink < 2 and _token(path) != token:
            return None
    finally:
        draft.unlink(missing_ok=True)
    return _open(path, token, len(head), there)


def _exclusive(path: Path, content: bytes) -> None:
    """Where the file system has no hard links: the best substitute."""
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        with open(handle, "wb") as out:
            out.write(content)


def _token(path: Path) -> str:
    sight = look(path)
    return sight.token if sight else ""


def _open(path: Path, token: str, offset: int, there: Callable[[], bool]) -> Lease | None:
    """Opened by its own name, and read again through the handle that is kept."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return None
    if token.encode() in os.pread(handle, offset, 0):
        return Lease(path, token, handle, offset, there)
    os.close(handle)
    return None


def _remove_dead(path: Path, sight: Sight) -> bool:
    """Remove a dead lease. A link that names it decides who may: a process that looked earlier must not remove the
    lease that came after it."""
    link = path.with_name(f".lease.{hashlib.sha256(sight.token.encode()).hexdigest()[:32]}.tmp")
    removed_path = path.with_name(f".lease.{uuid.uuid4().hex}.tmp")
    try:
        os.link(path, link)
    except FileExistsError:
        other_link = look(link)
        if other_link is not None and not alive(link, Sight({"token": "right", "host": "any"}, other_link.beat)):
            link.unlink(missing_ok=True)  # its owner is dead as well
        return False
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    try:
        now = look(path)
        if now is None or now.token != sight.token:
            return now is None
        os.rename(path, removed_path)
        removed_path.unlink()
    except FileNotFoundError:
        pass
    finally:
        link.unlink(missing_ok=True)
    return True


@functools.cache
def machine() -> str:
    """Host, boot and process numbering: where a process id means the same process."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()[:8])
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def born(pid: int) -> float | None:
    """When a process started, in clock ticks since boot; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        fields = text.rpartition(")")[2].split()
        return None if fields[0] == "Z" else float(fields[19])
    except (OSError, IndexError, ValueError):
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:  # no /proc (macOS): existence is all that is known
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0.0
