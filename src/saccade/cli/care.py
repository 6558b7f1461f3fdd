"""Commands that look after what is here: data sets, the lab folder, the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from saccade.cli.flags import Json, LabDir, ScaleName
from saccade.cli.parsing import command, out, say
from saccade.spec import SaccadeError, plain

if TYPE_CHECKING:
    from saccade.lab.store import Lab


@command()
def data(
    action: Positional[Literal["list", "fetch", "verify"]] = "list",
    names: Positional[tuple[str, ...]] = (),
    from_: Annotated[
        str | None,
        arg(
            name="from",
            metavar="DIR",
            help="a folder with the original files, or a torchvision root, to read instead of the network",
        ),
    ] = None,
    again: Annotated[bool, arg(help="fetch even when the cache has it")] = False,
    json: Json = False,
) -> None:
    """Data sets: list what is known and here, fetch with checksums, verify every byte of the cache."""
    from saccade.cli import terminal
    from saccade.data.fetch import sources

    if action == "list":
        states = [sources.status(name) for name in names or sources.listed()]
        if json:
            out([plain(s) for s in states])
            return
        for s in states:
            print(f"{s.name:<20} {s.state:<16} {s.about}" + (f"  [{s.source}]" if s.source else ""))
        return
    if action == "fetch":
        fetched = {}
        for name in names or tuple(n for n in sources.known() if not n.startswith("procedural")):
            with terminal.progress_bar(name) as progress:
                fetched[name] = sources.fetch(name, folder_from=from_, again=again, report=say, progress=progress)
        if json:
            out(fetched)
        return
    findings = [f for name in names or sources.listed() for f in sources.verify(name)]
    present = {f.name for f in findings if f.state != "missing"}  # a set of which nothing is here was not fetched
    if not names:
        findings = [f for f in findings if f.name in present]
    if json:
        out([plain(f) for f in findings])
    else:
        for f in findings:
            print(f"{f.state:<8} {f.file}" + (f": {f.remedy}" if f.remedy else ""))
        for name in () if names else sorted({*sources.listed()} - present - {*sources.DRAWN}):
            print(f"{name} was not fetched: saccade data fetch {name}")
    if any(f.state != "ok" for f in findings):  # also what is missing of a set that was asked for, or that is here
        raise SystemExit(1)


@command()
def lab(
    action: Positional[Literal["merge", "verify", "prune", "export", "import"]],
    path: Positional[
        Annotated[
            tuple[str, ...], arg(metavar="PATH ...", help="another lab, or the file of an export; import: several")
        ]
    ] = (),
    study: Annotated[tuple[str, ...], arg(metavar="NAME ...", help="export: only the runs of these studies")] = (),
    scale: ScaleName = "large",
    lab: LabDir = "lab",
    dry_run: Annotated[bool, arg(help="say what would be done")] = False,
    json: Json = False,
) -> None:
    """Look after a lab: merge another one, verify every byte, prune what is never read again, export, import.

    An export is one file with the finished runs' rows, curves and registration, without weights: who imports it
    draws every figure and judges every claim again without training."""
    from saccade.lab import export, pipeline
    from saccade.lab.store import Lab

    this_lab, other = Lab(lab), path[0] if path else ""
    if len(path) > 1 and action != "import":
        raise SaccadeError(f"saccade lab {action} takes one path, not {len(path)}; saccade lab import takes several.")
    if not (this_lab.root / "runs").is_dir() and action not in ("merge", "import"):
        raise SaccadeError(f"no lab at {this_lab.root}; --lab DIR names another.")
    if action == "merge":
        if not other or not (Path(other) / "runs").is_dir():
            raise SaccadeError(f'saccade lab merge takes the folder of another lab, not "{other}".')
        result: dict[str, Any] = dict(this_lab.open().merge(Lab(other), dry_run))
    elif action == "export":
        if not other:
            raise SaccadeError("saccade lab export takes the file to write, as in saccade lab export runs.jsonl.xz.")
        sessions = [pipeline.open_session(name, scale, lab) for name in study]
        for session in sessions:  # a claim changed since the last report is dated now, not whenever someone imports it
            pipeline.register(session)
        keys = [t.run.key for session in sessions for t in session.tasks] if study else None
        result = {"file": other, "runs": export.write(this_lab, Path(other), keys, study)}
    elif action == "import":
        if not other:
            raise SaccadeError("saccade lab import takes the file of an export, or several.")
        result = _imported(this_lab, path, json)
    elif action == "verify":
        result = {key: bad for key in this_lab.keys() if (bad := this_lab.damage(key))}  # noqa: SIM118
    else:
        result = dict(this_lab.prune(dry_run))
    if json:
        out(result)
    elif not result:
        nothing = {
            "verify": f"{len(this_lab.keys())} runs, every file matches its checksum",
            "prune": "nothing to remove",
        }
        print(nothing[action])
    elif action == "import" and len(path) > 1:
        _say_each(result)
    else:
        for name, value in result.items():
            print(
                f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
                + (" bytes" if action == "prune" else "")
                + (" damaged" if action == "verify" else "")
            )
    if action == "verify" and result:
        say("saccade run STUDY --redo-damaged (and saccade train) sets these runs aside and does them again")
        raise SystemExit(1)


def _imported(target: Lab, files: Sequence[str], json: bool) -> dict[str, Any]:
    """Every file by itself: one that cannot be read is said, and the others are imported all the same."""
    from saccade.lab import export

    results: dict[str, Any] = {}
    failed = False
    for file in files:
        try:
            imported = export.read(target, Path(file))
        except SaccadeError as error:
            if len(files) == 1:
                raise
            results[file], failed = {"not imported": str(error)}, True
            continue
        results[file] = {
            "added": len(imported.added),
            "already here": len(imported.already_here),
            "rows added": imported.rows_added,
        }
    if len(files) == 1:
        return dict(results[files[0]])
    if failed:  # said before leaving, since a failed command prints nothing else
        if json:
            out(results)
        else:
            _say_each(results)
        raise SystemExit(1)
    return results


def _say_each(results: Mapping[str, Mapping[str, Any]]) -> None:
    for file, result in results.items():
        print(f"{file}: " + ", ".join(f"{name}: {value}" for name, value in result.items()))


@command()
def doctor(lab: LabDir = "lab", json: Json = False) -> None:
    """What this machine offers: device, threads, compiler, data, versions; each problem with its remedy."""
    from saccade.cli.doctor import examine

    lines = examine(lab)
    if json:
        out([plain(line) for line in lines])
    else:
        for line in lines:
            remedy = f"  -> {line.remedy}" if line.remedy else ""
            print(f"{'ok  ' if line.ok else 'NOTE'} {line.what:<18} {line.says}{remedy}")
