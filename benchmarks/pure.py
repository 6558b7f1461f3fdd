"""The pure torch paths, as on a machine that has no compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from saccade.layers import kernels
from saccade.layers.kernels import neighbourhoods

KERNELS = (
    *((kernels, name) for name in ("short_heads", "few_tokens", "token_maps", "conv_pool", "paste")),
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
