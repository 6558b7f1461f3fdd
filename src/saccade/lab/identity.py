"""What a run is made of beyond its names: code from outside the package and data in a user's folder, by content.

Built-in code is named by its version and fetched data by their checksums, so their runs need nothing of this.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from saccade import registry
from saccade.lab.store import cache_folder, seal, unseal, write_atomic
from saccade.spec import Probe, Run, SaccadeError, Task, digest


def identify(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The same tasks, their runs named by the content of what comes from outside."""
    return tuple(replace(t, run=identified(t.run)) for t in tasks)


def identified(run: Run) -> Run:
    code = {kind: c for kind, name in run.parts if (c := code_of(kind, name))}
    content = content_of(run.data, run.data_args)
    return replace(run, code=digest(code) if code else "", content=digest(content) if content else "")


def described(run: Run) -> dict[str, Any]:
    """For run.json: the files behind the two fingerprints."""
    files = {kind: _files_of(registry.find(kind, n)) for kind, n in run.parts if code_of(kind, n)}
    return {"code": {k: [f.name for f in v] for k, v in files.items()}, "content": content_of(run.data, run.data_args)}


def of_probe(probe: Probe) -> str:
    """What a measurement rests on beyond the probe's version; empty for built-in probes on built-in data."""
    parts = {"code": code_of("probe", probe.name), "content": _folders(probe.settings.values())}
    return digest(parts) if any(parts.values()) else ""


def code_of(kind: str, name: str) -> str:
    """Fingerprint of a registered function from outside the package and of the local modules it imports."""
    if registry.card(kind, name).module.startswith("saccade."):
        return ""
    function = registry.find(kind, name)
    files = _files_of(function)
    if files:
        return digest([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    return digest(sorted(_sources(function, set())))


def _files_of(function: Callable[..., Any]) -> list[Path]:
    """The file that defines it, then the files beside it that it imports, directly or not."""
    file = getattr(sys.modules.get(function.__module__), "__file__", None) or inspect.getsourcefile(function)
    if file is None or not Path(file).is_file():
        return []  # typed into an interpreter or a notebook
    files: list[Path] = []
    waiting = [Path(file).resolve()]
    while waiting:
        path = waiting.pop(0)
        if path not in files:
            files.append(path)
            waiting += _local_imports(path)
    return files[:1] + sorted(files[1:])


def _local_imports(file: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = f"{node.module}." if node.module else ""
            names = [node.module or "", *(f"{base}{alias.name}" for alias in node.names)]
        for name in names:
            if name and (path := _local(file, name)) is not None:
                yield path


def _local(file: Path, name: str) -> Path | None:
    """The file of a module that lies beside this one, or that was loaded from outside the installed packages."""
    relative = Path(*name.split("."))
    for path in (file.parent / relative.with_suffix(".py"), file.parent / relative / "__init__.py"):
        if path.is_file():
            return path.resolve()
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if not loaded or name.partition(".")[0] in (*sys.stdlib_module_names, "saccade"):
        return None
    path = Path(loaded).resolve()
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return None if installed or path.suffix != ".py" else path


def _sources(thing: Any, visited: set[str]) -> Iterator[str]:
    """Source of a function or class from an interpreter, and of what it names in the same place."""
    name = getattr(thing, "__qualname__", "")
    if name in visited:
        return
    visited.add(name)
    try:
        text = inspect.getsource(thing)
    except (OSError, TypeError):
        raise SaccadeError(
            f"the source of {name} cannot be read and its runs not be named; put it into a file."
        ) from None
    yield text
    namespace = vars(sys.modules[thing.__module__])
    for node in ast.walk(ast.parse(inspect.cleandoc("if True:\n" + text) if text.startswith(" ") else text)):
        other = namespace.get(node.id) if isinstance(node, ast.Name) else None
        if getattr(other, "__module__", None) == thing.__module__ and callable(other):
            yield from _sources(other, visited)


def content_of(data: str, args: Mapping[str, Any]) -> dict[str, str]:
    """Checksum of every folder that the data are read from."""
    default = registry.card("data", data).extra.get("folder", "")
    values = list(args.values())
    if default and not args.get("folder"):
        values.append(str(cache_folder() / default))
    return _folders(values)


def _folders(values: Any) -> dict[str, str]:
    checksums: dict[str, str] = {}
    for value in values:
        if isinstance(value, (tuple, list)):
            checksums |= _folders(value)
        elif isinstance(value, str) and value and Path(value).expanduser().is_dir():
            checksums[value] = checksum(Path(value).expanduser().resolve())
    return checksums


def checksum(folder: Path) -> str:
    """Of names and contents of all files below. Contents are read again only when size or time of a file changed."""
    checksums = _Checksums()
    listed = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        listed.append([path.relative_to(folder).as_posix(), checksums.of(path)])
    checksums.keep()
    return digest(listed, 32)


class _Checksums:
    """Checksums of files by size and time of change, kept in the cache folder; `SACCADE_REREAD=1` reads all again."""

    def __init__(self) -> None:
        self.path = cache_folder() / "checksums.json"
        self.known: dict[str, list[Any]] = {}
        if self.path.exists() and not os.environ.get("SACCADE_REREAD"):
            try:
                self.known = dict(unseal(self.path)["files"])
            except SaccadeError:
                self.known = {}  # derived: made again
        self.before = json.dumps(self.known, sort_keys=True)

    def of(self, path: Path) -> str:
        stat = path.stat()
        entry = self.known.get(str(path))
        if entry is None or entry[:2] != [stat.st_size, stat.st_mtime_ns]:
            entry = [stat.st_size, stat.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()]
            self.known[str(path)] = entry
        return str(entry[2])

    def keep(self) -> None:
        if json.dumps(self.known, sort_keys=True) != self.before:
            write_atomic(self.path, seal({"files": self.known}))


def changed_since(run: Run, others: Sequence[Run]) -> str:
    """Why a run is to be done although one of the same names is in the lab: its code or its data changed."""
    for other in others:
        if other != run and replace(other, code=run.code, content=run.content) == run:
            same = {"code": other.code == run.code, "data": other.content == run.content}
            what = [word for word in same if not same[word]]
            return f"the {' and '.join(what)} of {run.model} on {run.data} changed since run {other.key}"
    return ""
