"""Shared small things: a tiny run on drawn data, so that no test needs a download."""

from __future__ import annotations

import os

import pytest

# Tests time nothing and run one process a core; more threads would only fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")

DRAWN = {"digits": "procedural_digits", "scenes": "procedural_textures"}


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def tiny_run():
    """Makes a small LeNet run on drawn data: tiny_run(images=320, seed=1)."""
    from saccade.spec import Recipe, Run, Settings

    def make(images: int = 320, seed: int = 0, model: str = "lenet", **recipe) -> Run:
        return Run(
            model,
            "digits_on_backgrounds",
            Recipe(images=images, watch=2, **recipe),
            seed,
            data_args=Settings(DRAWN, backgrounds=2),
        )

    return make
