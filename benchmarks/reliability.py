"""`python -m benchmarks.reliability [--only WORDS]`: misfortunes and mistakes, tried many times; docs/reliability.md.

Every trial that has ended is a line of benchmarks/reliability.jsonl and is not done again, so that hours of trials can
be broken off; the page is made from these lines. `--afresh` tries all again. The trials are in deaths.py, damage.py and
mistakes.py; here are those that kills.py, the fuzzer and the tests do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import damage, deaths, kills, mistakes  # noqa: F401 - they add their trials
from benchmarks.trials import TRIALS, Outcome, Trial, trial
from tests.fuzz.targets import PARSERS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reliability.md"
TALLY = ROOT / "benchmarks" / "reliability.jsonl"
FUZZED = 60_000  # inputs for each parser
AREAS = ("processes", "files", "mistakes", "kills", "bytes", "tests")  # in this order on the page


def killed_words(kind: str) -> str:
    return f"kill -9 of {kind}, at random moments"


def _killed(kind: str, times: int, piece: int) -> None:
    @trial("kills", killed_words(kind), piece)
    def killed_at_random(folder: Path) -> Outcome:
        storm = kills.storm(kind, times, folder, piece)
        return Outcome(len(storm.kills), storm.lost, storm.kills, storm.calm_seconds)


for _kind, _times in kills.KINDS.items():
    for _piece, _first in enumerate(range(0, _times, kills.PIECE)):
        _killed(_kind, min(kills.PIECE, _times - _first), _piece)


def _fuzzed(parser: str) -> None:
    @trial("bytes", f"changed bytes into the parser of: {parser}")
    def fuzzed(folder: Path) -> Outcome:
        words = ["-m", "tests.fuzz", "--parser", parser, "--inputs", str(FUZZED)]
        done = subprocess.run([sys.executable, *words], capture_output=True, encoding="utf-8", cwd=ROOT)
        if not done.stdout:
            return Outcome(0, (f"the fuzzer ended with {done.returncode}",))
        told = json.loads(done.stdout.splitlines()[-1])
        return Outcome(told["inputs"], ("what it may not do",) * told["defects"])


for _parser in PARSERS:
    _fuzzed(_parser)


def _tested(what: str, test: str) -> None:
    """A trial that is one or more tests of test_faults.py; those that try several times say how often."""

    @trial("tests", what)
    def tested(folder: Path) -> Outcome:
        told = folder / "told.xml"
        words = [
            "-m",
            "pytest",
            "-m",
            "",
            "-q",
            "-p",
            "no:xdist",
            f"--basetemp={folder / 'base'}",
            f"--junitxml={told}",
            "-o",
            "junit_family=xunit1",  # the one that keeps properties
        ]
        file = ROOT / "tests" / "lab" / "test_faults.py"
        done = subprocess.run([sys.executable, *words, "-k", test, str(file)], capture_output=True, cwd=ROOT)
        cases = list(ElementTree.parse(told).iter("testcase")) if told.exists() else []
        times = sum(int(p.get("value", "1")) for case in cases for p in case.iter("property")) or len(cases)
        return Outcome(times, () if cases and done.returncode == 0 else ("the test fails",))


_tested("a disk that is full at any one of all writes of a run, then has room again", "full_at_any_write")
_tested("every file of a finished and of a stopped run cut short, changed, emptied or removed", "harm_to_any_file")
_tested("a run that never returns, beside one that does", "never_returns")
_tested("a run that wants more memory than there is, beside one that does not", "more_memory")
_tested("SIGTERM and SIGINT to a command at work: saved and ended within 10 s, more under load", "polite_end")
_tested("a lab that cannot be written", "cannot_be_written")
_tested("a lab that goes away and comes back, or does not", "vanishes or does_not_come_back")


# -- the page


def tally() -> dict[tuple[str, int], Outcome]:
    """What has been tried so far, by words and piece."""
    lines = TALLY.read_text("utf-8").splitlines() if TALLY.exists() else []
    return {(line["what"], line["piece"]): _outcome(line) for line in map(json.loads, lines)}


def _outcome(line: dict[str, Any]) -> Outcome:
    when = tuple(kills.Kill(*values) for values in line.get("kills", ()))
    return Outcome(line["times"], tuple(line["lost"]), when, line.get("calm_seconds", 0.0))


def note(one: Trial, outcome: Outcome, seconds: float) -> None:
    """Appended as one line, so that several processes can each do a part."""
    line = {"area": one.area, "what": one.what, "piece": one.piece, "times": outcome.times, "lost": outcome.lost}
    if outcome.kills:  # share of an undisturbed command, runs finished, runs under way
        line |= {"kills": [[k.share, k.finished, k.under_way] for k in outcome.kills]}
        line |= {"calm_seconds": round(outcome.calm_seconds, 1)}
    line |= {"seconds": round(seconds), "ended": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
    with TALLY.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


def document(known: dict[tuple[str, int], Outcome]) -> str:
    """The page; a trial of which a piece has not been tried yet says so."""
    rows, times, lost_all = [], 0, 0
    kinds = {one.what: one.area for one in sorted(TRIALS, key=lambda one: AREAS.index(one.area))}
    for what, area in kinds.items():
        pieces = [known.get((one.what, one.piece)) for one in TRIALS if one.what == what]
        tried = [p for p in pieces if p]
        often, lost = sum(p.times for p in tried), [x for p in tried for x in p.lost]
        said = "nothing" if not lost else f"**{len(lost)}**: {'; '.join(lost[:3])}"
        if len(tried) < len(pieces):
            said = f"not all tried yet; so far {said}" if tried else "not tried yet"
        rows.append(f"| {area} | {what} | {often:,} | {said} |")
        times, lost_all = times + often, lost_all + len(lost)
    open_still = sum("tried yet" in row for row in rows)
    tried_words = f"{len(kinds) - open_still} of {len(kinds)}" if open_still else str(len(kinds))
    return TEXT.format(
        rows="\n".join(rows), times=times, lost=lost_all or "nothing", trials=tried_words, moments=moments(known)
    )


def moments(known: dict[tuple[str, int], Outcome]) -> str:
    """Rows that say for each kind of kill how far its command had come."""
    rows, runs = [], len(kills.tasks())
    for kind in kills.KINDS:
        pieces = [p for (what, _), p in known.items() if what == killed_words(kind) and p.kills]
        ended = [k.finished for p in pieces for k in p.kills]
        seconds = sorted(p.calm_seconds for p in pieces)
        early, late = sum(n == 0 for n in ended), sum(n == runs for n in ended)
        busy = sum(k.under_way > 0 for p in pieces for k in p.kills)
        lasts = f"{seconds[0]:.0f} to {seconds[-1]:.0f} s" if seconds else "not measured"
        if seconds and round(seconds[0]) == round(seconds[-1]):
            lasts = f"{seconds[0]:.0f} s"
        rows.append(f"| {kind} | {lasts} | {early} | {len(ended) - early - late} | {late} | {busy} |")
    return "\n".join(rows)


TEXT = """# What was tried, and what was lost

Written by `python -m benchmarks.reliability`; do not edit. Kinds of misfortune and mistake that have been
tried in full: {trials}; {times:,} attempts; lost: {lost}.

Lost would be: a finished run, or a bit of its weights; more of a run under way than its last save; the user's
interpreter; a change in a file that nobody names; a failure that counts as success; and a traceback where a sentence
would help. How the lab folder withstands all this: [lab.md](lab.md).

| | what was tried | how often | what was lost |
|---|---|---|---|
{rows}

## When the kills fell

Each of the kills is of a command with eight short runs (six of them in lock-step), saved every 0.3 s, at a moment drawn
uniformly over the time that the same command takes when nothing happens, counted from its start or from the kill
before. That time was measured first, on two cores that other programs used at the same time. After each round the
weights, rows and per-image outcomes of all runs were those of an undisturbed lab to the bit, no weights of a finished
run had been written again, and no run had been trained after its end; anything else would stand above as lost. The Ray
cluster has two nodes on one machine, so that nothing here shows a network that fails.

| kill -9 of | undisturbed | no run had finished | some had, others not | all had | a run was under way |
|---|---|---|---|---|---|
{moments}

The C kernels are built once more with the address and the undefined-behaviour sanitizer and run over random shapes in
the slow tests (`tests/test_kernels.py`); data and models are built with arguments that are each right and make nothing
together in `tests/test_arguments.py`.
"""


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    flags.add_argument("--only", default="", metavar="WORDS", help="trials whose text contains this")
    flags.add_argument("--afresh", action="store_true", help="also what has been tried before")
    asked = flags.parse_args()
    failed = False
    for one in TRIALS:
        if asked.only not in f"{one.area} {one.what} {one.run.__name__}":
            continue
        if not asked.afresh and (one.what, one.piece) in tally():
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            outcome = one.run(Path(folder))
        spent = time.perf_counter() - began
        note(one, outcome, spent)
        failed |= bool(outcome.lost)
        print(f"{one.what}: {outcome.times} times, {spent:.0f} s, lost: {outcome.lost or 'nothing'}", flush=True)
    PAGE.write_text(document(tally()), "utf-8")
    print(f"written: {PAGE}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
