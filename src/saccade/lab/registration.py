"""What was claimed before the runs: every claim's declared values, written down when the first run of a study starts.

A change afterwards is kept as a new entry with the number of runs that were finished by then. What counts of a test is
its answer: on the same rows another estimate is a change, whether the test was rewritten or a function that it calls,
and a rewritten test with the same estimate is none.
"""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.lab import origin
from saccade.lab.shapes import is_number
from saccade.lab.store import seal, unseal, write_atomic
from saccade.lab.table import Table
from saccade.spec import DamagedFile, SaccadeError, canonical, digest, plain
from saccade.study import Claim, Study

FILE = "registration.json"
Entry = dict[str, Any]


def declared(claim: Claim) -> dict[str, Any]:
    """The claim as values: text, relation, thresholds, margins, requirements."""
    return {
        "statement": claim.statement,
        "tested": claim.relation,
        "paper": claim.paper,
        "concluded": claim.concluded,
        "requires": list(claim.asked),
        "numbers": plain(claim.numbers),
        "small": claim.small,
        "needs": claim.needs,
        "family": claim.family,
        "trained": claim.trained,
        "left_open": claim.left_open,
    }


def read(folder: Path) -> list[Entry]:
    """The entries, oldest first; none when nothing is registered yet."""
    path = folder / FILE
    if not path.exists():
        return []
    entries = unseal(path).get("entries")
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise DamagedFile(f"{path} is no registration; delete it to register the claims again.")
    return entries


def goes_on(document: Mapping[str, Any], path: Path) -> bool:
    """Whether an exported registration begins with all entries of the lab's own and has more: it is the later state."""
    own, other = read(path.parent), document.get("entries")
    if not isinstance(other, list) or len(other) <= len(own) or not all(map(_is_entry, other)):
        return False
    return all(_what(a) == _what(b) for a, b in zip(own, other, strict=False))


def _what(entry: Entry) -> tuple[str, int, dict[str, Any]]:
    return entry["date"], entry["runs"], {id: claim["declared"] for id, claim in entry["claims"].items()}


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and isinstance(entry.get("date"), str)
        and isinstance(entry.get("runs"), int)
        and "version" in entry
        and isinstance(entry.get("claims"), Mapping)
        and all(isinstance(c, Mapping) and _is_claim(c) for c in entry["claims"].values())
    )


def _is_claim(claim: Mapping[str, Any]) -> bool:
    estimate = claim.get("estimate", {"rows": "", "value": [0.0] * 3})
    return (
        isinstance(claim.get("declared"), Mapping)
        and isinstance(claim.get("test"), str)
        and isinstance(estimate, Mapping)
        and isinstance(estimate.get("rows"), str)
        and isinstance(estimate.get("value"), list)
        and len(estimate["value"]) == 3
        and all(map(is_number, estimate["value"]))
    )


def review(study: Study, folder: Path, table: Table, finished: int) -> dict[str, str]:
    """Register what is new or changed, and say for each claim when it was fixed.

    Called before runs start and before verdicts are given. `finished` counts the runs that could have been seen.
    """
    entries = read(folder)
    registered: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        registered.update(entry["claims"])
    rows = digest(sorted(canonical(r) for r in table))
    fresh: dict[str, dict[str, Any]] = {}
    for claim in study.claims:
        now = {"declared": declared(claim), "test": _fingerprint(claim)}
        before = registered.get(claim.id)
        if before is not None and before["declared"] == now["declared"]:
            estimate = before.get("estimate")
            if estimate is not None and estimate["rows"] == rows:
                changed = _differs(claim, estimate["value"], table)
            else:  # on other rows the estimate differs anyway: only the source can be compared
                changed = before["test"] != now["test"]
            if not changed:
                continue
        fresh[claim.id] = now
    if finished == 0 and entries and fresh:
        entries = []  # nothing has been seen: what counts is what is claimed when the runs start
        fresh = {c.id: {"declared": declared(c), "test": _fingerprint(c)} for c in study.claims}
    if fresh:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        entries.append({"date": today, "version": origin.describe(), "runs": finished, "claims": fresh})
    _note_estimates(entries, study.claims, rows, table)
    write_atomic(folder / FILE, seal({"study": study.name, "entries": entries}))
    return {c.id: _sentence(entries, c.id) for c in study.claims}


def sentences(entries: Sequence[Entry], claims: Sequence[Claim]) -> dict[str, str]:
    """As `review`, without writing anything."""
    return {c.id: _sentence(entries, c.id) for c in claims}


def _sentence(entries: Sequence[Entry], claim: str) -> str:
    versions = [e for e in entries if claim in e["claims"]]
    if not versions:
        return "not registered"
    last = versions[-1]
    if last["runs"] == 0:
        return f"registered before the runs ({last['date']}, saccade {last['version']})"
    if len(versions) == 1:
        return f"registered after {last['runs']} runs ({last['date']}, saccade {last['version']})"
    old, new = (e["claims"][claim]["declared"] for e in versions[-2:])
    fields = [name for name in new if new[name] != old.get(name)] or ["test"]
    return f"changed after {last['runs']} runs ({last['date']}): {', '.join(fields)}"


def _fingerprint(claim: Claim) -> str:
    """Of the test's source; tests made by one factory differ by their declared values."""
    try:
        return digest(inspect.getsource(claim.test))
    except (OSError, TypeError):
        return ""


def _estimate(claim: Claim, table: Table) -> list[float] | None:
    try:
        evidence = claim.evidence(table)
    except SaccadeError:
        return None
    return [evidence.estimate.value, evidence.p, evidence.p_against]


def _differs(claim: Claim, before: Sequence[float], table: Table) -> bool:
    """Whether the test gives another estimate than before on the same rows."""
    now = _estimate(claim, table)
    return now is None or any(abs(a - b) > 1e-9 * max(1.0, abs(b)) for a, b in zip(now, before, strict=True))


def _note_estimates(entries: Sequence[Entry], claims: Sequence[Claim], rows: str, table: Table) -> None:
    """Keep what each test gave on which rows, so that a rewritten one can be compared later."""
    if not len(table):
        return
    for claim in claims:
        value = _estimate(claim, table)
        last = next((e["claims"][claim.id] for e in reversed(entries) if claim.id in e["claims"]), None)
        if last is not None:
            last["test"] = _fingerprint(claim)
            if value is not None and all(abs(v) < float("inf") for v in value):
                last["estimate"] = {"rows": rows, "value": value}
