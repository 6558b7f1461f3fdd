"""docs/explorer.png: the Look page of an empty lab, with models that come with the package.

python docs/make_screenshot.py: needs playwright and a Chromium on PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from saccade import shipped

PICTURE = Path(__file__).with_name("explorer.png")
PAIR = ("cnn_x64", "cnn_x8")  # the same model, many and few backgrounds


def main() -> None:
    a, b = (shipped.card(name).run.key for name in PAIR)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        words = [sys.executable, "-m", "saccade", "serve", "--lab", f"{folder}/lab", "--port", "0"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = next(w for w in server.stdout.readline().split() if w.startswith("http"))
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
            page.goto(f"{address}#/look?a={a}&b={b}")
            page.wait_for_selector("[data-answers]", state="attached", timeout=120_000)
            page.wait_for_timeout(1500)
            page.screenshot(path=str(PICTURE))
            browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
