"""Every run of a lab as one flat row, and everything about a single one. Never changes a run, never loads torch."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import __version__
from saccade.lab.store import Lab, read_document, write_atomic
from saccade.spec import MILESTONES, DamagedFile, Run, SaccadeError, digest, plain

Flat = dict[str, Any]
TAIL = 16_384  # bytes of a log that show how far a run is
LONGEST = 8  # numbers in a condition; what is longer is an image or a map, and no condition
SHOWN_EVENTS = 40
FORMAT = f"2 {__version__}"  # of what is remembered
STATES = tuple(f"{share:g}" for share in MILESTONES)


@dataclass(frozen=True)
class Seen:
    """What was read of a run's folder, and the folder's time of change then."""

    stamp: int
    row: Flat
    settled: bool  # nothing about it can change without its folder changing


def rows(lab: Lab, seen: dict[str, Seen] | None = None) -> list[Flat]:
    """One flat row per run of the lab. `seen` keeps what was read; only folders that changed are read again.

    The one place where the explorer learns which runs there are.
    """
    seen = {} if seen is None else seen
    read(lab, changed(lab, seen), seen)
    return [one.row for one in seen.values()]


def changed(lab: Lab, seen: dict[str, Seen]) -> dict[str, int]:
    """Runs to be read (again), with their folders' times of change; those that were removed are deleted from `seen`."""
    stamps = dict(_stamps(lab))
    for key in [k for k in seen if k not in stamps]:
        del seen[key]
    return {k: t for k, t in stamps.items() if (one := seen.get(k)) is None or one.stamp != t or not one.settled}


def read(lab: Lab, stamps: Mapping[str, int], seen: dict[str, Seen]) -> None:
    for key, stamp in stamps.items():
        flat = row(lab, key)
        seen[key] = Seen(stamp, flat, settled=flat["state"] not in ("running", "waiting"))


def _stamps(lab: Lab) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(FileNotFoundError), os.scandir(lab.root / "runs") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # set aside a moment ago
                if is_key(entry.name) and entry.is_dir(follow_symlinks=False):  # as the lab counts them
                    yield entry.name, entry.stat().st_mtime_ns


def is_key(text: str) -> bool:
    return len(text) == 12 and set(text) <= set("0123456789abcdef")


def row(lab: Lab, key: str) -> Flat:
    """state, specification, place and cost of one run. A file that cannot be read makes the state `damaged`."""
    start: Flat = {"run": key, "state": "damaged", "group": key}
    try:
        described = lab.described(key)
        run = Run.parse(described["run"])
        done = lab.done(key)
    except DamagedFile:
        return start
    except FileNotFoundError:  # claimed a moment ago, or cut off before its first line
        return {**start, "state": "damaged" if (lab.folder(key) / "done.json").exists() else "waiting"}
    except (KeyError, TypeError, SaccadeError):  # written by another version of saccade
        return start
    facts = described.get("facts", {})
    flat: Flat = {**start, "state": _state(lab, key, done), **settings(run), "group": group(run)}
    if done is not None:
        flat |= {"reason": done["reason"], "seconds": round(done["seconds"], 3), "steps": done["step"]}
    else:
        flat |= progress(lab, key, run)
    flat |= {name: facts[name] for name in ("device", "torch") if name in facts}
    if done is not None and not (lab.folder(key) / "weights.safetensors").is_file():
        flat["weights"] = "none"  # nothing to look at: imported as rows, or no model at all
    if done is None or not done.get("exported"):  # the file of an imported run is as old as the import
        with contextlib.suppress(OSError):
            flat["started"] = round((lab.folder(key) / "run.json").stat().st_mtime)
    # The same few words in every row: kept once, a hundred thousand rows take a third of the memory.
    return {sys.intern(k): sys.intern(v) if type(v) is str else v for k, v in flat.items()}


def settings(run: Run) -> Flat:
    """Everything that was asked for, by plain names; a recipe's name that is also an argument's is spelt out."""
    args = {**plain(run.model_args), **plain(run.data_args)}
    recipe = {k if k not in args else f"recipe_{k}": v for k, v in plain(run.recipe).items()}
    names = {"model": run.model or "none", "data": run.data, "seed": run.seed}
    # Of the model and the data first: pages that have room for a few show those.
    return {k: _scalar(v) for k, v in {**args, **recipe, **names}.items()}


def group(run: Run) -> str:
    """One name for all seeds of one specification."""
    return digest([run.version, run.model, run.model_args, run.data, run.data_args, run.recipe.essence()], 8)


def _scalar(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float)) else json.dumps(value)


def _state(lab: Lab, key: str, done: Mapping[str, Any] | None) -> str:
    if done is not None:
        return str(done["outcome"])
    return "running" if lab.holder(key) else "waiting"


def progress(lab: Lab, key: str, run: Run) -> Flat:
    """How far a run is by its log, and about how many seconds are left at the pace of its last points."""
    points = [e for e in events(lab, key, TAIL) if e.get("event") == "watch" and e.get("split") == "online"]
    if not points:
        return {"share": 0.0}
    last = points[-1]
    state: Flat = {"share": min(1.0, last["images"] / run.recipe.images)}
    first = points[max(0, len(points) - 6)]
    if last["images"] > first["images"] and last["time"] > first["time"]:
        pace = (last["images"] - first["images"]) / (last["time"] - first["time"])
        state["left"] = round((run.recipe.images - last["images"]) / pace, 1)
    return state


def events(lab: Lab, key: str, tail: int = 0) -> list[Flat]:
    """The log, or its last bytes. A line that was torn or is being written is left out.

    A log carries no checksum, so a link in its place would show, and an export publish, a file from elsewhere; a pipe
    would be waited for.
    """
    path = lab.folder(key) / "log.jsonl"
    if path.is_symlink() or not path.is_file():
        return []
    try:
        with open(path, "rb") as log:
            if tail:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - tail))
            lines = log.read().splitlines()
    except OSError:
        return []
    parsed_events = []
    for line in lines:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                parsed_events.append(event)
    return parsed_events


def describe(lab: Lab, key: str) -> Flat:
    """The page of one run: what was asked, where it ran, its curve, its measurements, what is wrong with it."""
    if not is_key(key) or not lab.folder(key).is_dir() or lab.folder(key).is_symlink():
        raise SaccadeError(f'no run "{key[:40]}" in this lab; a key has 12 digits from 0 to f.')
    damaged = lab.damage(key)
    page: Flat = {"key": key, "damaged": damaged, **row(lab, key)}
    log = events(lab, key)
    documents = list(measurements(lab, key))
    page["curve"] = _curve(log) or _curve_of_rows(documents)
    page["log"] = [e for e in log if e.get("event") != "watch"][-SHOWN_EVENTS:]
    with contextlib.suppress(DamagedFile, FileNotFoundError, KeyError):
        described = lab.described(key)
        page |= {"spec": described["run"], "facts": described.get("facts", {})}
    page["measured"] = [_shown(document) for document in documents]
    page["weights"] = (lab.folder(key) / "weights.safetensors").is_file() and "weights.safetensors" not in damaged
    page["milestones"] = [share for share in MILESTONES if lab.has_milestone(key, share)]
    page["imported"] = "started" not in page and page["state"] not in ("damaged", "running", "waiting")
    page["saved"] = (lab.folder(key) / "state.sealed").is_file() and "state.sealed" not in damaged
    return page


def _curve(log: Iterable[Flat]) -> list[Flat]:
    names = ("images", "split", "accuracy", "n")
    return [{k: e[k] for k in names} for e in log if e.get("event") == "watch" and set(names) <= set(e)]


def _curve_of_rows(documents: Iterable[Flat]) -> list[Flat]:
    """The curve of an imported run, which has rows and no log."""
    rows = [r for document in documents if document["probe"] == "training" for r in document["rows"]]
    return [
        {"images": r["at"]["images"], "split": r["at"]["split"], "accuracy": r["value"], "n": r["n"]}
        for r in rows
        if r["metric"] in ("online", "watched") and {"images", "split"} <= set(r.get("at", {}))
    ]


def measurements(lab: Lab, key: str) -> Iterator[Flat]:
    """What probes found out about a run, checked; a damaged file is passed over (`describe` names it).

    `asked` is the probe with its settings, `share` the part of the training budget after which it was measured.
    """
    for path in sorted(lab.folder(key).glob("rows/*.json")):
        with contextlib.suppress(DamagedFile, OSError):
            probe_key, _, milestone = path.stem.partition("@")
            share = float(milestone) if milestone in STATES else 1.0
            yield {**read_document(path), "asked": probe_key, "share": share, "written": path.stat().st_mtime_ns}


def one_each(documents: Iterable[Flat], asked_keys: Collection[str]) -> list[Flat]:
    """Of each probe at each share one measurement: the one that the run's study asks for, else the latest."""
    best: dict[tuple[str, float], Flat] = {}
    for document in documents:
        place = (document["probe"], document["share"])
        rank = (document["asked"] in asked_keys, document["written"])
        if place not in best or rank > (best[place]["asked"] in asked_keys, best[place]["written"]):
            best[place] = document
    return list(best.values())


def numbers(document: Mapping[str, Any]) -> Iterator[tuple[str, Flat, float, int]]:
    """Metric, condition, value and n of every row that is a number and no image."""
    share_condition = {} if document["probe"] == "training" else {"budget_share": document["share"]}
    for one in document["rows"]:
        at = one.get("at", {})
        if not any(isinstance(v, list) and len(v) > LONGEST for v in at.values()):
            yield one["metric"], {**share_condition, **{k: _scalar(v) for k, v in at.items()}}, one["value"], one["n"]


def _shown(document: Flat) -> Flat:
    rows = [{"metric": m, "at": at, "value": v, "n": n} for m, at, v, n in numbers(document)]
    return {
        "probe": document["probe"],
        "settings": document["settings"],
        "version": document["version"],
        "share": document["share"],
        "rows": [r for r in rows if r["metric"] != "online"],
        "images": sum("map" in r.get("at", {}) or "picture" in r.get("at", {}) for r in document["rows"]),
    }


def columns(rows: Sequence[Flat]) -> Flat:
    """Rows by column: a value that all share, or numbers of distinct values; -1 where a row has none."""
    names = list(dict.fromkeys(name for row in rows for name in row if name != "run"))
    columns_by_name: Flat = {}
    for name in names:
        codes: dict[tuple[type, Any], int] = {}
        coded = [-1 if (v := row.get(name)) is None else codes.setdefault((type(v), v), len(codes)) for row in rows]
        values = [v for _, v in codes]
        columns_by_name[name] = (
            {"all": values[0]} if len(values) == 1 and -1 not in coded else {"values": values, "codes": coded}
        )
    return {"keys": [row["run"] for row in rows], "columns": columns_by_name}


def rows_of(table: Mapping[str, Any]) -> list[Flat]:
    """The rows that `columns` was made of."""
    rows: list[Flat] = [{"run": key} for key in table["keys"]]
    for name, column in table["columns"].items():
        if "all" in column:
            for one in rows:
                one[name] = column["all"]
            continue
        values = column["values"]
        for one, code in zip(rows, column["codes"], strict=True):
            if code >= 0:
                one[name] = values[code]
    return rows


def _shelf(lab: Lab) -> Path:
    host = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname()) or "here"
    return lab.root / "index" / f"{host}.explorer.json"


def remember(lab: Lab, seen: Mapping[str, Seen]) -> None:
    """Keep what was read of runs that are over, so that a large lab opens at once the next time.

    Derived, per machine, safe to delete; a lab that cannot be written does without.
    """
    settled = [s for s in seen.values() if s.settled]
    table = {"format": FORMAT, "stamps": [s.stamp for s in settled], **columns([s.row for s in settled])}
    with contextlib.suppress(SaccadeError, ValueError):
        if (lab.root / "runs").is_dir():
            write_atomic(_shelf(lab), json.dumps(table, separators=(",", ":"), allow_nan=False).encode())


def recall(lab: Lab) -> dict[str, Seen]:
    """What `remember` kept; nothing where there is none or it cannot be read. Folders that changed are read again."""
    try:
        table = json.loads(_shelf(lab).read_bytes())
        if table["format"] != FORMAT:
            return {}
        entries = zip(table["keys"], table["stamps"], rows_of(table), strict=True)
        return {key: Seen(int(stamp), row, settled=True) for key, stamp, row in entries if is_key(key)}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return {}


def folder_stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
