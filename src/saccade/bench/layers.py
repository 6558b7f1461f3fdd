"""Rows: exact layers against their dense references, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

from saccade.bench.measure import Pair


def cases(quick: bool) -> list[Callable[[], Pair | str]]:
    return []
