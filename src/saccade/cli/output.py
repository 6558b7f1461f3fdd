"""Standard output and standard error that cannot undo work: missing, closed, full, or in an encoding of few letters."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO


def prepare() -> None:
    """A stream that is closed becomes one that goes nowhere; a letter that it has not becomes a question mark."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def tell(line: str, to: IO[str] | None = None) -> None:
    """A line for people, beside the work: where nobody can read it the work goes on."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=to or sys.stderr, flush=True)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Around a whole command: what goes wrong outside of it, on a stream or a disk, is one sentence and exit code 1."""
    prepare()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
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
    """Send the rest of standard output nowhere, or Python's own last flush would complain once more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
