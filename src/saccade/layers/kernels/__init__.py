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
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from saccade.lab.store import cache_folder, locked, write_atomic
from saccade.spec import SaccadeError

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


MOST = 2**31 - 1  # entries of a tensor: the kernels count in 32 bits

ADDRESS, NUMBER, STRIDE, LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_int64


def takes(*tensors: Tensor) -> bool:
    """Whether a kernel may be asked at all: float32 on the CPU, neither empty nor too large to count."""
    return all(t.device.type == "cpu" and t.dtype == torch.float32 and 0 < t.numel() <= MOST for t in tensors)


def address(
    t: Tensor,
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    *,
    most: int = MOST,
    dense: bool = True,
) -> int:
    """Where a tensor begins, for a kernel that reads or writes it as this shape. C gets no pointer but from here.

    Type, rank, sizes, strides and device are compared, for a kernel cannot notice that it leaves an array. One that is
    given the strides may take any layout (`dense` false).
    """
    if t.device.type != "cpu" or t.dtype != dtype or t.shape != tuple(shape) or (dense and not t.is_contiguous()):
        raise ValueError(
            f"a kernel takes {dtype} {tuple(shape)} in one piece on the CPU, and was given {t.dtype} {tuple(t.shape)} "
            f"with strides {t.stride()} on {t.device}"
        )
    if t.numel() > most:
        raise ValueError(f"a kernel counts to {most}, and was given {t.numel()} numbers")
    return t.data_ptr()


@functools.cache
def short_heads(width: int) -> ctypes.CDLL | None:
    """The attention kernel for heads of `width` channels, or None where it cannot be built."""
    library = load("short_heads.c", (f"-DW={width}",))
    if library is not None:  # declared once, arguments need no wrapping at every call
        library.forward.argtypes = [ADDRESS] * 5 + [NUMBER] * 2
        library.backward.argtypes = [ADDRESS] * 9 + [NUMBER] * 2
    return library


@functools.cache
def few_tokens() -> ctypes.CDLL | None:
    """The attention kernel for few tokens, or None where it cannot be built."""
    library = load("few_tokens.c", ())
    if library is not None:
        library.forward.argtypes = [ADDRESS] * 5 + [NUMBER] * 4 + [STRIDE] * 2
        library.backward.argtypes = [ADDRESS] * 8 + [NUMBER] * 4 + [STRIDE] * 2
    return library


@functools.cache
def content() -> ctypes.CDLL | None:
    """Attention with content and relative positions among few tokens, or None where it cannot be built."""
    library = load("content.c", ())
    if library is not None:
        library.forward.argtypes = [ADDRESS] * 10 + [NUMBER] * 8
        library.backward.argtypes = [ADDRESS] * 15 + [NUMBER] * 8
    return library


@functools.cache
def token_maps() -> ctypes.CDLL | None:
    """Norm, linear maps and GELU of tokens, or None where it cannot be built."""
    library = load("token_maps.c", ())
    if library is not None:
        library.forward.argtypes = [ADDRESS] * 11 + [NUMBER] * 4 + [ctypes.c_float]
        library.backward.argtypes = [ADDRESS] * 15 + [NUMBER] * 5
    return library


@functools.cache
def separable() -> ctypes.CDLL | None:
    """Averages of tokens over rows and columns, or None where it cannot be built."""
    library = load("separable.c", ())
    if library is not None:
        library.forward.argtypes = [ADDRESS] * 4 + [NUMBER] * 7
        library.backward.argtypes = [ADDRESS] * 7 + [NUMBER] * 7
    return library


@functools.cache
def conv_pool(channels: int, out: int, size: int) -> ctypes.CDLL | None:
    """Convolution, ReLU and pooling for these channels and this side of a patch, or None where it cannot be built."""
    library = load("conv_pool.c", (f"-DC={channels}", f"-DO={out}", f"-DK={size}"))
    if library is not None:
        library.turn.argtypes = [ADDRESS] * 2 + [NUMBER] * 2 + [STRIDE] * 3
        library.forward.argtypes = [ADDRESS] * 5 + [NUMBER] * 3
        library.backward.argtypes = [ADDRESS] * 7 + [NUMBER] * 3
    return library


@functools.cache
def conv_average(size: int) -> ctypes.CDLL | None:
    """Convolution, ReLU and 2x2 average for this side of a patch, or None where it cannot be built."""
    library = load("conv_average.c", (f"-DK={size}",))
    if library is not None:
        library.forward.argtypes = [ADDRESS] * 5 + [NUMBER] * 4
        library.backward.argtypes = [ADDRESS] * 7 + [NUMBER] * 4
    return library


@functools.cache
def paste() -> ctypes.CDLL | None:
    """Ink over scenes, or None where it cannot be built."""
    library = load("paste.c", ())
    if library is not None:
        library.paste.argtypes = [ADDRESS] * 5 + [LONG] * 2 + [NUMBER] * 4
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
    texts = [file.read_text("utf-8") for file in (source, *sorted(source.parent.glob("*.h")))]
    tag = hashlib.sha256("\n".join([*texts, *FLAGS, *defines, compiler, _cpu()]).encode())
    try:
        library = cache_folder() / "kernels" / f"{source.stem}-{tag.hexdigest()[:16]}.so"
        library.parent.mkdir(parents=True, exist_ok=True)
        if not _whole(library):
            with locked(library.with_suffix(".lock")):
                if not _whole(library):  # another process may have built it meanwhile
                    _build([compiler, *FLAGS, *defines, str(source)], library)
        return ctypes.CDLL(str(library))
    except (OSError, subprocess.SubprocessError, SaccadeError):
        return None


def _whole(library: Path) -> bool:
    """Whether a built library is as it was built. A damaged one that is loaded kills the process, without a word."""
    try:
        return _checksum(library).read_text("utf-8") == hashlib.sha256(library.read_bytes()).hexdigest()
    except (OSError, UnicodeDecodeError):
        return False


def _build(command: list[str], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch) / library.name
        subprocess.run([*command, "-o", str(made), "-lm"], check=True, capture_output=True, timeout=300)
        checksum = hashlib.sha256(made.read_bytes()).hexdigest()
        os.replace(made, library)
    write_atomic(_checksum(library), checksum.encode())


def _checksum(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _cpu() -> str:
    """What -march=native depends on; a cache shared between machines must not mix them up."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.machine() + platform.processor()
