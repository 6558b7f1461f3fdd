"""Looks at 5, 10 and 20 seeds that together err no more often than one look would.

The error rate is spent over the looks: a fixed part of it at each, and the parts add up to the whole. By Bonferroni's
inequality that holds for every test that keeps its level at one look, however the looks hang together; boundaries
after Pocock or O'Brien and Fleming spend a little more but assume normal increments, which jackknifed bands, ratios of
spreads and equivalence tests do not have.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.stats.tests import ALPHA

LOOKS = (5, 10, 20)
SPENDING = (0.2, 0.3, 0.5)  # shares of the error rate: little while few seeds are in, most at the last look


def levels(looks: Sequence[int] = LOOKS, alpha: float = ALPHA) -> dict[int, float]:
    """The level of each look, by its number of seeds. Fewer looks than planned leave the rest unspent."""
    return {n: share * alpha for n, share in zip(looks, SPENDING, strict=False)}
