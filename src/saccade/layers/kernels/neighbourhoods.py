"""The kernels for sums over neighbourhoods and for SAN's pairwise attention."""

from __future__ import annotations

import ctypes
import functools

from saccade.layers.kernels import ADDRESS, NUMBER, load

WIDEST = 16  # channels inside, all loops over them unrolled; faster than pure torch with 4, 8 and 16
LARGEST = 31  # side of a neighbourhood: the kernel keeps a value for each shift on its stack


@functools.cache
def aggregation() -> ctypes.CDLL | None:
    """The sums, or None where the kernel cannot be built."""
    library = load("local_aggregation.c", ())
    if library is not None:
        library.forward.argtypes = [ADDRESS] * 3 + [NUMBER] * 6
        library.backward.argtypes = [ADDRESS] * 5 + [NUMBER] * 6
    return library


@functools.cache
def pairwise(inner: int, shared: int) -> ctypes.CDLL | None:
    """SAN's pairwise attention, `inner` channels and `shared` weight channels, or None where it cannot be built."""
    library = load("pairwise.c", (f"-DR={inner}", f"-DS={shared}")) if max(inner, shared) <= WIDEST else None
    if library is not None:
        library.padded_row.argtypes = [NUMBER] * 2
        library.pad.argtypes = library.fold.argtypes = [ADDRESS] * 2 + [NUMBER] * 4
        library.moments.argtypes = [ADDRESS] * 4 + [NUMBER] * 4
        library.forward.argtypes = [ADDRESS] * 8 + [NUMBER] * 5
        library.gather.argtypes = [ADDRESS] * 14 + [NUMBER] * 5
        library.spread.argtypes = [ADDRESS] * 5 + [NUMBER] * 4
    return library
