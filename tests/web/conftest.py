"""One lab, its report and its server for all tests of the explorer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from saccade.lab import pipeline
from saccade.lab.store import Lab
from tests.web.browsing import SLOW
from tests.web.labs import Served, make_lab, session_of

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


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


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
    found = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if not found:
        pytest.skip("no Chromium on PATH: browser tests are skipped")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    """A page that fails its test on any error in the console and on any request that leaves this machine."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(SLOW)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda told: wrong.append(told.text) if told.type == "error" else None)
    opened.on("request", lambda r: None if is_here(r.url) else wrong.append(f"asked {r.url}"))
    yield opened
    context.close()
    assert not [w for w in wrong if "Failed to load resource" not in w]  # a refusal that the test asked for


def is_here(url):
    return url.startswith(("http://127.0.0.1:", "data:", "blob:", "file://"))
