"""The kernels for sums over neighbourhoods and for SAN's pairwise attention."""

from __future__ import annotations

import ctypes
import functools

from saccade.layers.kernels import load

WIDEST = 16  # channels inside, all loops over them unrolled; faster than pure torch with 4, 8 and 16


@functools.cache
def aggregation() -> ctypes.CDLL | None:
    """The sums, or None where the kernel cannot be built."""
    return load("local_aggregation.c", ())


@functools.cache
def pairwise(inner: int, shared: int) -> ctypes.CDLL | None:
    """SAN's pairwise attention, `inner` channels and `shared` weight channels, or None where it cannot be built."""
    return load("pairwise.c", (f"-DR={inner}", f"-DS={shared}")) if inner <= WIDEST else None
