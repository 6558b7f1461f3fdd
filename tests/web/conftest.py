"""One lab, its report and its server for all tests of the explorer."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.lab import pipeline
from saccade.lab.store import Lab
from tests.web.labs import Served, make_lab, session_of


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Lab:
    """The finished runs of one study at demo scale, and one model with Gaussian heads."""
    return make_lab(tmp_path_factory.mktemp("explorer") / "lab")


@pytest.fixture(scope="session")
def report(lab) -> Path:
    """The folder of that study's report, written; most of the time goes into its figures."""
    session = session_of(lab.root)
    pipeline.write(session, formats=("csv", "html"))
    return session.folder


@pytest.fixture(scope="session")
def served(lab, report):
    pytest.importorskip("starlette", reason="the explorer's server needs the extra `web`")
    pytest.importorskip("uvicorn", reason="the explorer's server needs the extra `web`")
    one = Served(lab.root, "--port", "0")
    yield one
    one.stop()
