"""The pure torch paths, as on a machine that has no compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from saccade.layers import kernels
from saccade.layers.kernels import neighbourhoods

NAMES = ("short_heads", "few_tokens", "content", "token_maps", "separable", "conv_pool", "conv_average", "paste")
KERNELS = (  # an older checkout that is measured beside this one may lack some
    *((kernels, name) for name in NAMES if hasattr(kernels, name)),
    *((neighbourhoods, name) for name in ("aggregation", "pairwise")),
)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    kept = [getattr(module, name) for module, name in KERNELS]
    for module, name in KERNELS:
        setattr(module, name, _none)
    try:
        yield
    finally:
        for (module, name), kernel in zip(KERNELS, kept, strict=True):
            setattr(module, name, kernel)


def _none(*_: Any) -> None:
    return None
