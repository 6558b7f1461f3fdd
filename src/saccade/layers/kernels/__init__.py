"""Small C kernels, built on first use with the system compiler. Without one, the pure torch paths serve."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from saccade.lab.store import cache_folder

# -ffast-math is avoided: some compilers then switch the whole process to flush denormals, and NaN must stay NaN.
FLAGS = (
    "-O3",
    "-march=native",
    "-shared",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fassociative-math",
    "-ffp-contract=fast",
)


@functools.cache
def short_heads(width: int) -> ctypes.CDLL | None:
    """The attention kernel for heads of `width` channels, or None where it cannot be built."""
    return load("short_heads.c", (f"-DW={width}",))


@functools.cache
def conv_pool(channels: int, out: int, size: int) -> ctypes.CDLL | None:
    """Convolution, ReLU and pooling for these channels and this side of a patch, or None where it cannot be built."""
    library = load("conv_pool.c", (f"-DC={channels}", f"-DO={out}", f"-DK={size}"))
    if library is not None:  # told once, arguments need no wrapping at every call
        address, number, stride = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
        library.turn.argtypes = [address] * 2 + [number] * 2 + [stride] * 3
        library.forward.argtypes = [address] * 5 + [number] * 3
        library.backward.argtypes = [address] * 7 + [number] * 3
    return library


@functools.cache
def paste() -> ctypes.CDLL | None:
    """Ink over scenes, or None where it cannot be built."""
    library = load("paste.c", ())
    if library is not None:
        library.paste.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64] * 2 + [ctypes.c_int] * 4
    return library


def why_not() -> str:
    """Empty when kernels can be built here, else the reason in a few words."""
    if os.environ.get("SACCADE_KERNELS") == "off":
        return "switched off by SACCADE_KERNELS=off"
    if _compiler() is None:
        return "no C compiler on PATH"
    return "" if short_heads(3) is not None else "the C compiler refused the kernel"


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")


def load(name: str, defines: tuple[str, ...]) -> ctypes.CDLL | None:
    compiler = _compiler()
    if compiler is None or os.environ.get("SACCADE_KERNELS") == "off":
        return None
    source = Path(__file__).with_name(name)
    texts = [file.read_text() for file in (source, *sorted(source.parent.glob("*.h")))]
    tag = hashlib.sha256("\n".join([*texts, *FLAGS, *defines, compiler, _cpu()]).encode())
    try:
        folder = cache_folder() / "kernels"
        library = folder / f"{source.stem}-{tag.hexdigest()[:16]}.so"
        if not library.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / library.name
                subprocess.run(
                    [compiler, *FLAGS, *defines, str(source), "-o", str(made), "-lm"],
                    check=True,
                    capture_output=True,
                    timeout=60,
                )
                os.replace(made, library)  # atomic: two processes building at once both end with a whole file
        return ctypes.CDLL(str(library))
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    """What -march=native depends on; a cache shared between machines must not mix them up."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.machine() + platform.processor()
