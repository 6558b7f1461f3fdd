"""How many cores other programs keep busy while a row is measured: a ratio taken beside them says little."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MOST = 0.25  # cores, on average over a row; above it the row is marked


@contextlib.contextmanager
def watched() -> Iterator[dict[str, Any]]:
    """Fills in `others`: cores that were busy and not with this benchmark, or None where that cannot be read."""
    found: dict[str, Any] = {"others": None}
    began, machine, own = time.monotonic(), machine_seconds(), own_seconds()
    yield found
    spent = time.monotonic() - began
    if machine is not None and own is not None and spent > 0:
        now, mine = machine_seconds(), own_seconds()
        assert now is not None and mine is not None
        found["others"] = max(0.0, (now - machine) - (mine - own)) / spent


def machine_seconds() -> float | None:
    """Seconds that all cores together have been busy since the machine started; waiting and idling are not work."""
    try:
        first = Path("/proc/stat").read_text("utf-8").splitlines()[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _, _, irq, soft, steal = (int(x) for x in first[:8])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float | None:
    """Seconds that the processes of this process's group have worked, those that have ended included."""
    if not Path("/proc/self/stat").exists():
        return None
    group, ticks = str(os.getpgrp()), 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if fields[2] == group:
                    ticks += sum(map(int, fields[11:15]))  # its own time and that of children it has waited for
    return ticks / os.sysconf("SC_CLK_TCK")


def is_busy(row: Mapping[str, Any]) -> bool:
    return (row.get("others") or 0.0) > MOST
