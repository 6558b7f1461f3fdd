"""`python -m benchmarks [--quick]`: the table, results/bench.json and docs/performance.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import explorer, lab, load, machine, page, processes, scaling, trees
from benchmarks.measure import FRESH_PAGES

Row = dict[str, Any]
PARTS = (
    "lab",
    "explorer",
    "arms",
    "machine",
    "profiles",
)  # what can be measured by itself, on a machine that is idle for a few minutes only


def inside(what: str, env: Mapping[str, str], quick: bool, only: str) -> Iterator[Row]:
    """Lines of a child process that was started with this environment."""
    command = [sys.executable, "-m", "benchmarks.inside", what, "--only", only] + ["--quick"] * quick
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    with subprocess.Popen(command, env={**clean, **env}, stdout=subprocess.PIPE, encoding="utf-8") as child:
        assert child.stdout is not None
        for line in child.stdout:
            yield json.loads(line)
    if child.returncode:
        raise SystemExit(f"the benchmark's {what} process ended with code {child.returncode}; its message is above")


def run(quick: bool, only: str, tell: Callable[[str], None]) -> Row:
    began = time.perf_counter()
    found: Row = {
        "machine": page.machine(),
        "quick": quick,
        "rows": [],
        "lab": [],
        "absent": [],
        "kept": [],
        "explorer": [],
        "arms": [],
        "whole": [],
        "scaling": [],
        "cost_model": [],
    }
    one_thread = dict.fromkeys(processes.THREADS, "1")
    rows: list[Row] = found["rows"]

    def add(row: Row) -> None:
        rows.append(row)
        tell(page.line(row))

    for line in inside("time", one_thread, quick, only):
        if "gemm" in line:
            found["gemm"] = line["gemm"]
        elif "absent" in line:
            found["absent"].append(line["absent"])
        else:
            add(line["row"])
    turns: dict[str, Any] = {"rounds": 5, "seconds": 0.3} if quick else {"rounds": 7, "seconds": 1.0}
    many: tuple[tuple[str, Callable[[], Row]], ...] = (
        ("digits study, CNN replicas", lambda: processes.replicas(False, **turns)),
        ("digits study, CNN replicas, one thread", lambda: processes.replicas(True, **turns)),
        ("worker processes", lambda: processes.workers(True, **turns)),
        ("worker processes, pure torch", lambda: processes.workers(False, **turns)),
        ("replicas in lock-step", lambda: processes.lockstep(**turns)),
    )
    for name, measure in many:
        if only in name and not (quick and name.endswith(("one thread", "pure torch", "lock-step"))):
            with load.watched() as beside:
                row = measure()
            add(row | beside)
    for name, make in lab.parts(quick).items():
        if only in name:
            for row in lab.beside_others(make):
                found["lab"].append(row)
                tell(page.lab_line(row))
    by_name = {(r["name"], r["setting"], r["against"]): r for r in rows}
    for line in inside("memory", {**FRESH_PAGES, **one_thread}, quick, only):
        row = by_name[line["row"]["name"], line["row"]["setting"], line["row"]["against"]]
        ours, peer = (line["row"]["memory"][side] for side in ("ours", "peer"))
        if ours and peer:
            row["memory"] = {"ours": ours, "peer": peer, "ratio": peer / ours}
    if not quick:
        for row in inside("arms", one_thread, quick, only):
            found["arms"].append(row)
            tell(page.arm(row))
        for row in machine.measured(only):
            found["whole"].append(row)
            tell(page.on_machine(row))
    if not quick and not only:  # where large buffers come and go, the allocator's policy decides much of the ratio
        for again in ("thesis", "SAN"):
            lines = inside("time", processes.ONE_THREAD, True, again)
            found["kept"] += [line["row"] for line in lines if "row" in line]
        found["scaling"] = list(inside("grow", one_thread, quick, only))
        for line in inside("swell", {**FRESH_PAGES, **one_thread}, quick, only):
            grown = next(g for g in found["scaling"] if g["name"] == line["name"])
            grown |= {"bytes": line["bytes"], "memory_exponent": line["exponent"]}
        found["scaling"] += [scaling.replicas(), scaling.lockstep(), scaling.runs()]
        found["cost_model"] = list(inside("cost", one_thread, quick, only))
    if only in "explorer" and not (quick and not only):  # a browser that opens and closes is no quick look
        if why := explorer.missing():
            found["absent"].append(why)
        else:
            for waited in explorer.measured(quick):
                found["explorer"].append(waited)
                tell(explorer.line(waited))
    found["seconds"] = time.perf_counter() - began
    return found


def renew(part: str, to: Path, made: Path | None, before: str = "", only: str = "") -> None:
    """One part of the page measured again, with its day; the rest stays as it was."""
    file = to / "results/bench.json"
    if not file.exists():
        raise SystemExit(f"{file} is not there; a whole `make bench` comes first.")
    found = json.loads(file.read_text("utf-8"))
    rows = []
    if part == "explorer":
        if why := explorer.missing():
            raise SystemExit(why)
        for row in explorer.measured(False, made):
            rows.append(row)
            print(explorer.line(row), flush=True)
    elif part == "arms" and before:
        part = "trees"
        for row in trees.measured(Path(before).resolve(), only):
            rows.append(row)
            print(page.tree(row), flush=True)
        found["before"] = _commit(before)
    elif part == "arms":
        for row in inside("arms", dict.fromkeys(processes.THREADS, "1"), False, only):
            rows.append(row)
            print(page.arm(row), flush=True)
    elif part == "machine":
        part = "whole"
        for row in machine.measured(only):
            rows.append(row)
            print(page.on_machine(row), flush=True)
    elif part == "profiles":
        lines = inside("time", dict.fromkeys(processes.THREADS, "1"), False, "profile: ")
        for row in (line["row"] for line in lines if "row" in line):
            rows.append(row)
            print(page.line(row), flush=True)
    else:
        for make in lab.parts(False).values():
            for row in lab.beside_others(make):
                rows.append(row)
                print(page.lab_line(row), flush=True)
    told = {"day": time.strftime("%Y-%m-%d", time.gmtime()), "cpu": page.machine()["cpu"]}
    if only and part in ("arms", "whole"):  # a part of a table: these rows carry their day, the others keep theirs
        found[part] = by_study(found[part], [{**row, "measured": told} for row in rows])
    else:
        found["rows" if part == "profiles" else part] = among(found["rows"], rows) if part == "profiles" else rows
        found["renewed"] = {**found.get("renewed", {}), part: told}
    write(found, to)
    if unequal := [r.get("name", r.get("arm")) for r in rows if not r.get("is_equal", True)]:
        raise SystemExit(f"not the same function: {', '.join(unequal)}")


def among(rows: list[Row], again: list[Row]) -> list[Row]:
    """Rows measured again in the places that they had; new ones at the end."""
    new = {(row["name"], row["setting"]): row for row in again}
    kept = [new.pop((row["name"], row["setting"]), row) for row in rows]
    return [*kept, *new.values()]


def by_study(rows: list[Row], again: list[Row]) -> list[Row]:
    """Arms measured again in the places that they had; new ones after the others of their study."""
    new = {(row["study"], row["arm"]): row for row in again}
    kept = [new.pop((row["study"], row["arm"]), row) for row in rows]
    studies = list(dict.fromkeys(row["study"] for row in (*kept, *new.values())))
    return sorted([*kept, *new.values()], key=lambda row: studies.index(row["study"]))


def _commit(tree: str) -> str:
    told = subprocess.run(["git", "-C", tree, "rev-parse", "--short", "HEAD"], capture_output=True, encoding="utf-8")
    return told.stdout.strip()


def write(found: Row, to: Path) -> None:
    for name, text in (
        ("results/bench.json", json.dumps(found, indent=1) + "\n"),
        ("docs/performance.md", page.document(found)),
    ):
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"written: {path}")


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    flags.add_argument("--quick", action="store_true", help="a look in under two minutes; writes nothing")
    flags.add_argument("--only", default="", metavar="WORDS", help="rows whose text contains this; writes nothing")
    flags.add_argument("--part", choices=PARTS, help="measure this part alone and write it beside the others' results")
    flags.add_argument("--before", default="", metavar="DIR", help="with --part arms: against this older checkout")
    flags.add_argument("--to", default=".", metavar="DIR", help="where results/ and docs/ are")
    flags.add_argument("--made", metavar="DIR", type=Path, help="for --part explorer: see benchmarks/explorer.py")
    asked = flags.parse_args()
    if asked.part:
        renew(asked.part, Path(asked.to), asked.made, asked.before, asked.only)
        return
    found = run(asked.quick, asked.only, lambda text: print(text, flush=True))
    before = Path(asked.to) / "results/bench.json"
    found["slower"] = page.slower(found, json.loads(before.read_text("utf-8"))) if before.exists() else []
    print("\n" + page.table(found))
    if not asked.quick and not asked.only:
        write(found, Path(asked.to))
    if busy := [r["name"] for r in (*found["rows"], *found["lab"]) if load.is_busy(r)]:
        print(f"measured beside other programs, to be measured again on an idle machine: {', '.join(busy)}")
    if unequal := [r["name"] for r in found["rows"] if not r["is_equal"]]:
        raise SystemExit(f"not the same function: {', '.join(unequal)}")


if __name__ == "__main__":
    main()
