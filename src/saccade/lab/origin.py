"""Who made a result: saccade's version, commit and state of its tree, and the processor."""

from __future__ import annotations

import functools
import platform
import subprocess
from pathlib import Path
from typing import Any

import saccade


@functools.cache
def software() -> dict[str, Any]:
    """Version, and for a checkout its commit and whether files differ from it."""
    package = Path(saccade.__file__).parent
    commit = _git(package, "rev-parse", "--short=12", "HEAD")
    tracked = bool(commit) and bool(_git(package, "ls-files", "__init__.py"))  # not a wheel inside someone's repository
    facts: dict[str, Any] = {"saccade": saccade.__version__}
    if tracked:
        facts |= {
            "commit": commit,
            "clean": not _git(package, "status", "--porcelain", "--untracked-files=no", "--", "."),
        }
    return facts


def describe() -> str:
    """As in `0.1.0 at 3f9a1c02b7de, changed`."""
    facts = software()
    text = str(facts["saccade"])
    if "commit" in facts:
        text += f" at {facts['commit']}" + ("" if facts["clean"] else ", changed")
    return text


@functools.cache
def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(folder: Path, *words: str) -> str:
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""
