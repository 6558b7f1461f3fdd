"""Verdict against budget: how every trained contrast came to its final value."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.report.figures import Budget, Path
from saccade.spec import Verdict

TITLE = "Verdict against budget: each contrast at a half, three quarters and the whole of training"


def against_budget(verdicts: Sequence[Verdict]) -> Budget | None:
    """One small panel per trained claim; None when no run was measured on the way."""
    paths = tuple(
        Path(
            label=v.claim,
            says=str(v.says),
            verdict=v.label,
            shares=tuple(share for share, _ in v.by_budget),
            estimates=tuple(e.estimate for _, e in v.by_budget),
            null=(v.evidence.null if v.evidence else 0.0),
            unit=(v.evidence.unit if v.evidence else ""),
        )
        for v in verdicts
        if len(v.by_budget) > 1
    )
    return Budget(TITLE, paths) if paths else None
