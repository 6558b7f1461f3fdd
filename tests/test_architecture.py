"""The order of imports, kept as one list; torch-free files stay torch-free; files stay short."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "saccade"

# Bottom to top. A module may import from its own row's left neighbours and from every row below.
ORDER = [
    ["errors", "spec"],
    ["registry", "lab.table", "stats", "lab.store"],
    ["report.figures", "subjects.scores"],
    ["report.axes", "report.draw", "study", "cli.terminal"],
    ["studies", "report.writers", "lab.launch"],
    ["report", "lab.plan", "data.procedural", "data.fetch"],
    # from here on, with torch
    ["rng", "data.pixels", "layers.kernels"],
    ["layers", "data"],
    ["models", "subjects", "training.distributed", "analysis.convolution"],
    ["analysis", "training.lockstep", "training", "probes"],
    ["lab.worker"],
    ["lab", "cli.doctor"],
    ["api", "cli", "__main__"],
]
WITH_TORCH = {
    "rng",
    "data.pixels",
    "layers.kernels",
    "layers",
    "data",
    "models",
    "subjects",
    "training.distributed",
    "analysis.convolution",
    "analysis",
    "training.lockstep",
    "training",
    "probes",
    "lab.worker",
    "cli.doctor",
    "api",
}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(p for p in parts if p != "__init__")
        if name:
            yield name, path


def group(name):
    """The entry of ORDER that a module belongs to."""
    known = [entry for row in ORDER for entry in row]
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        if ".".join(parts[:n]) in known:
            return ".".join(parts[:n])
    raise AssertionError(f"{name} has no place in tests/test_architecture.py: add it where it belongs")


def rank(entry):
    return next((i, row.index(entry)) for i, row in enumerate(ORDER) if entry in row)


def imports(path, top_only=False):
    """Absolute module names that a file imports."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def own(imported):
    """The saccade module behind an imported name, or nothing."""
    if not imported.startswith("saccade."):
        return None
    name = imported.removeprefix("saccade.")
    while name:
        if (ROOT / (name.replace(".", "/") + ".py")).exists() or (ROOT / name.replace(".", "/")).is_dir():
            return name
        name = name.rpartition(".")[0]
    return None


@pytest.mark.parametrize(("name", "path"), [pytest.param(n, p, id=n) for n, p in modules()])
def test_imports_go_down(name, path):
    here = group(name)
    for imported in imports(path):
        target = own(imported)
        if target is None or target.startswith("__"):
            continue
        there = group(target)
        assert here == there or rank(there) < rank(here), f"{name} imports {target}, which stands above or beside it"


@pytest.mark.parametrize(("name", "path"), [pytest.param(n, p, id=n) for n, p in modules()])
def test_torch_free_files_are_torch_free(name, path):
    if group(name) in WITH_TORCH:
        return
    for imported in imports(path, top_only=True):
        assert imported.partition(".")[0] != "torch"
        target = own(imported)
        assert target is None or group(target) not in WITH_TORCH, f"{name} loads torch through {target}"


@pytest.mark.parametrize(("name", "path"), [pytest.param(n, p, id=n) for n, p in modules()])
def test_files_are_short(name, path):
    assert len(path.read_text().splitlines()) <= 650


def test_no_drawer_for_everything():
    names = {n.rpartition(".")[2] for n, _ in modules()}
    assert not names & {"utils", "util", "helpers", "common", "misc"}
