"""The order of imports as one list; torch-free files; no private name crosses a file; files stay short."""

import ast
import functools
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("architecture")  # every file is parsed once
ROOT = Path(__file__).parent.parent / "src" / "saccade"

# Bottom to top. A module imports from entries to its left and from rows above; a package's entry covers all its files.
ORDER = [
    ["errors", "arguments", "spec"],
    ["registry", "stats", "lab.table", "lab.lease", "lab.shapes", "lab.store", "lab.wall"],
    ["report.figures", "subjects.sheets", "subjects.scores"],
    [
        "report.axes",
        "report.looks",
        "report.listing",
        "report.draw",
        "requirements",
        "study",
        "cli.output",
        "lab.events",
        "cli.terminal",
        "report.budget",
    ],
    [
        "studies",
        "report.writers",
        "lab.origin",
        "lab.identity",
        "lab.joined",
        "lab.bundles",
        "lab.launch",
        "lab.registration",
        "lab.seeds",
        "lab.export",
        "trackers",
    ],
    [
        "report",
        "profiling.questions",
        "profiling.references",
        "lab.plan",
        "data.procedural",
        "data.fetch",
        "data.named",
    ],
    # from here on, with torch
    ["rng", "data.pixels", "layers.kernels"],
    ["layers", "data"],
    ["models", "shipped", "subjects", "training.distributed", "analysis.convolution"],
    ["analysis", "training", "probes"],
    ["profiling"],
    ["lab.perform", "lab.together", "lab.worker"],
    # without torch again: they start workers
    ["lab", "cli.doctor"],
    ["web.runs", "web.pictures", "web.look", "web"],
    ["api", "cli", "__main__"],
]
TORCH_ROWS = range(6, 12)
WITH_TORCH = {entry for i in TORCH_ROWS for entry in ORDER[i]} | {"cli.doctor", "api", "web.look", "web.pictures"}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(p for p in parts if p != "__init__")
        if name:
            yield name, path


def entry_of(name):
    known = [entry for row in ORDER for entry in row]
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        if ".".join(parts[:n]) in known:
            return ".".join(parts[:n])
    raise AssertionError(f"{name} has no place in tests/test_architecture.py: add it where it belongs")


def rank(entry):
    return next((i, row.index(entry)) for i, row in enumerate(ORDER) if entry in row)


@functools.cache
def imports(path, top_only=False):
    """Absolute names that a file imports."""
    tree, found = parsed(path), []
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@functools.cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def own(imported):
    """The saccade module behind an imported name, or nothing."""
    name = imported.removeprefix("saccade.") if imported.startswith("saccade.") else ""
    while name:
        if (ROOT / (name.replace(".", "/") + ".py")).exists() or (ROOT / name.replace(".", "/")).is_dir():
            return name
        name = name.rpartition(".")[0]
    return None


def test_imports_go_down():
    wrong = []
    for name, path in modules():
        here = entry_of(name)
        for imported in imports(path):
            target = own(imported)
            if target is None or target.startswith("__"):
                continue
            there = entry_of(target)
            if here != there and rank(there) >= rank(here):
                wrong.append(f"{name} imports {target}, which stands above or beside it")
    assert not wrong, wrong


def test_torch_free_files_load_no_torch():
    wrong = []
    for name, path in modules():
        if entry_of(name) in WITH_TORCH:
            continue
        for imported in imports(path, top_only=True):
            target = own(imported)
            if imported.partition(".")[0] == "torch" or (target and entry_of(target) in WITH_TORCH):
                wrong.append(f"{name} loads torch through {imported}")
    assert not wrong, wrong


def test_files_are_readable_alone():
    wrong = []
    for name, path in modules():
        most = 1000 if name.endswith(".claims") else 600  # claims are declared values, one after another
        if len(path.read_text(encoding="utf-8").splitlines()) > most:
            wrong.append(f"{name} has more than {most} lines")
        if name.rpartition(".")[2] in {"utils", "util", "helpers", "common", "misc"}:
            wrong.append(f"{name} is a drawer for everything")
        for imported in imports(path):
            last = imported.rpartition(".")[2]
            if own(imported) and last.startswith("_") and not last.startswith("__"):
                wrong.append(f"{name} takes the private name {imported}")
    assert not wrong, wrong
