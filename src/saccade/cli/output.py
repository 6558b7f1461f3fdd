"""Standard output and standard error that cannot stop the work: missing, closed, full, or in a narrow encoding."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO, Any, TextIO, cast

from saccade.errors import HIDDEN, visible

told_to_end = threading.Event()  # by SIGTERM: whoever sends that, a batch system perhaps, answers no questions


def prepare() -> None:
    """A closed stream is replaced by the null device; a character that it cannot encode becomes a question mark."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


class Visible:
    """A stream for people: whatever a file, a plug-in or a model's error may hold, only text appears.

    Colours of our own may pass on a terminal; what draws (a live table) writes to `stream` itself.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if not HIDDEN.search(text):
            return self.stream.write(text)
        pieces = COLOURS.split(text) if self.stream.isatty() else [text]
        self.stream.write("".join(piece if i % 2 else visible(piece) for i, piece in enumerate(pieces)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


COLOURS = re.compile("(\x1b\\[[0-9;]*m)")


def drawing(stream: IO[str]) -> IO[str]:
    """The stream behind a visible one."""
    return stream.stream if isinstance(stream, Visible) else stream


def tell(line: str, to: IO[str] | None = None) -> None:
    """A line for people, beside the work: where nobody can read it the work goes on."""
    with contextlib.suppress(OSError, ValueError):
        print(visible(line), file=to or sys.stderr, flush=True)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Around a whole command: what goes wrong outside of it, on a stream or a disk, is one sentence and exit code 1."""
    prepare()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", Visible(stream)) for stream in before)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stdout, sys.stderr = before
    except BrokenPipeError:  # `saccade list | head`
        _drop()
        raise SystemExit(1) from None
    except OSError as error:
        _drop()
        what = f"{error.filename} cannot be used" if error.filename else "standard output or a file cannot be written"
        tell(f"saccade: {what} ({error.strerror or error}); what was finished before is kept.")
        raise SystemExit(1) from None
    except MemoryError:
        _drop()
        tell("saccade: there was not enough memory; use fewer --jobs, a smaller batch or a smaller model.")
        raise SystemExit(1) from None


def _drop() -> None:
    """Send the rest of standard output nowhere, or Python's own last flush would report the error once more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
