"""Named random streams from a seed. Nothing in saccade draws from global random state."""

from __future__ import annotations

import hashlib
import json

import torch

_text = json.JSONEncoder(separators=(",", ":")).encode  # as spec.canonical writes such a list, without its checks


def seed_of(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream of this name."""
    return int.from_bytes(hashlib.sha256(_text([seed, *names]).encode()).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator, so that a run sees the same images on every device."""
    return torch.Generator().manual_seed(seed_of(seed, *names))
