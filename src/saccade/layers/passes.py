"""Hierarchical attention, after Varma and Prabhu (ML Reproducibility Challenge 2020), as one mechanism with three
separate switches: weights shared by all passes, keys kept as they were in the first pass, and the number of passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from saccade.spec import SaccadeError

Keys = Any  # what a block compares with; only the block itself knows its form


class Block(Protocol):
    """One pass. Called with keys of an earlier pass or None; gives its output and the keys it used."""

    def __call__(self, x: Tensor, keys: Keys = None) -> tuple[Tensor, Keys]: ...

    def maps(self, x: Tensor, keys: Keys = None) -> list[Tensor]:
        """Probabilities (n, heads, queries, keys) of each attention in it."""
        ...


class Passes(nn.Module):
    """x -> after(block(before(x))), `depth` times.

    `make(own_keys)` gives a block; with frozen keys and own weights, blocks behind the first need no map for keys.
    `around`, if given, makes the two modules that every pass has of its own even when blocks are shared.
    """

    def __init__(
        self,
        make: Callable[[bool], nn.Module],
        depth: int,
        *,
        shared: bool = False,
        frozen_keys: bool = False,
        around: Callable[[], tuple[nn.Module, nn.Module]] | None = None,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise SaccadeError(f"depth must be at least 1, not {depth}.")
        self.depth, self.shared, self.frozen_keys = depth, shared, frozen_keys
        self.blocks = nn.ModuleList(make(i == 0 or not frozen_keys) for i in range(1 if shared else depth))
        pairs = [around() for _ in range(depth)] if around else []
        self.before, self.after = (nn.ModuleList(pair[i] for pair in pairs) for i in range(2))

    def steps(self) -> Iterator[tuple[Block, nn.Module, nn.Module]]:
        nothing = nn.Identity()
        for t in range(self.depth):
            block: Any = self.blocks[0 if self.shared else t]
            yield block, self.before[t] if self.before else nothing, self.after[t] if self.after else nothing

    def forward(self, x: Tensor) -> Tensor:
        keys = None
        for block, before, after in self.steps():
            x, used = block(before(x), keys)
            x = after(x)
            if self.frozen_keys:
                keys = used
        return x

    def maps(self, x: Tensor) -> list[Tensor]:
        """Probabilities (n, heads, queries, keys) of every attention of every pass."""
        found, keys = [], None
        for block, before, after in self.steps():
            x = before(x)
            found += block.maps(x, keys)
            x, used = block(x, keys)
            x = after(x)
            if self.frozen_keys:
                keys = used
        return found


def switches(hierarchical: bool, shared: bool, frozen_keys: bool, *, content: bool = True) -> tuple[bool, bool]:
    """(shared, frozen_keys): hierarchical means both, and without content there are no keys to freeze."""
    if frozen_keys and not content:
        raise SaccadeError("frozen_keys needs attention with content; positions alone have no keys to freeze.")
    return shared or hierarchical, content and (frozen_keys or hierarchical)
