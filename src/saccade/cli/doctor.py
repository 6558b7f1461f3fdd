"""What this machine offers, line by line, each problem with its remedy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    what: str
    ok: bool
    says: str
    remedy: str = ""


def examine(lab: str) -> list[Line]:
    from saccade.data.fetch import sources
    from saccade.lab import launch
    from saccade.layers import kernels

    lines = [Line("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")]
    versions = {n: importlib.metadata.version(n) for n in ("torch", "numpy", "scipy", "matplotlib", "safetensors")}
    lines.append(Line("versions", True, ", ".join(f"{n} {v}" for n, v in versions.items())))
    places = launch.devices("auto")
    lines.append(Line("device", True, f"{places[0]}, {len(places)} worker processes, one torch thread each"))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    busy = load > 0.75 * launch.cores()
    lines.append(
        Line(
            "load",
            not busy,
            f"{load:.1f} on {launch.cores()} cores",
            "other programs use the cores; times will be longer than planned" if busy else "",
        )
    )
    why = kernels.why_not()
    lines.append(
        Line(
            "kernels",
            not why,
            why or "C kernels built and loaded",
            "install a C compiler (gcc or clang): small models are about twice as fast" if why else "",
        )
    )
    for name in sources.known():
        if name.startswith("procedural"):
            continue
        findings = sources.verify(name) if sources.status(name).state == "ready" else []
        faults = [f for f in findings if f.state != "ok"]
        state = sources.status(name).state if not findings else "damaged" if faults else "present, every byte checked"
        remedy = "" if findings and not faults else f"saccade data fetch {name}" + (" --again" if faults else "")
        lines.append(Line(f"data {name}", bool(findings) and not faults, state, remedy))
    lines.append(
        Line(
            "npm",
            shutil.which("npm") is not None,
            "found" if shutil.which("npm") else "not found",
            "" if shutil.which("npm") else "only needed where the data hosts cannot be reached",
        )
    )
    lines.append(_lab_line(Path(lab)))
    lines.append(_determinism())
    return lines


def _lab_line(lab: Path) -> Line:
    folder = lab if lab.exists() else lab.absolute().parent
    if not os.access(folder, os.W_OK):
        return Line("lab", False, f"{lab} cannot be written", "choose another folder with --lab")
    free = shutil.disk_usage(folder).free / 1e9
    return Line("lab", free > 2, f"{lab}, {free:.0f} GB free", "" if free > 2 else "free some space")


def _determinism() -> Line:
    import torch as t

    from saccade import models
    from saccade.layers import short_heads

    began = time.perf_counter()
    q, k, v = (t.randn(2, 2, 3, 784, generator=t.Generator().manual_seed(i)) for i in range(3))
    same = all(t.equal(short_heads.attend(q, k, v), short_heads.attend(q, k, v)) for _ in range(3))
    a, b = (models.build("lenet", seed=1).state_dict() for _ in range(2))
    same = same and all(t.equal(a[n], b[n]) for n in a)
    return Line(
        "determinism",
        same,
        f"same seed, same bits ({time.perf_counter() - began:.1f} s)",
        "" if same else "results of repeated runs will differ; please report this machine",
    )
