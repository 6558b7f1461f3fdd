"""The pure torch paths, as on a machine that has no compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from saccade.layers import kernels
from saccade.layers.kernels import neighbourhoods


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    kept = (kernels.short_heads, kernels.conv_pool, kernels.paste, neighbourhoods.aggregation, neighbourhoods.pairwise)
    kernels.short_heads = lambda width: None  # type: ignore[assignment]
    kernels.conv_pool = lambda channels, out, size: None  # type: ignore[assignment]
    kernels.paste = lambda: None  # type: ignore[assignment]
    neighbourhoods.aggregation = lambda: None  # type: ignore[assignment]
    neighbourhoods.pairwise = lambda inner, shared: None  # type: ignore[assignment]
    try:
        yield
    finally:
        (kernels.short_heads, kernels.conv_pool, kernels.paste, neighbourhoods.aggregation, neighbourhoods.pairwise) = (
            kept
        )
