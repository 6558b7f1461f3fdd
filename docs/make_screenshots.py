"""docs/explorer/*.webp: every page of the explorer, wide and narrow, as docs/explorer.md shows them.

    saccade demo --lab shots
    saccade run attention_as_convolution --scale smoke --lab shots
    saccade profile shipped:cnn_x64 --data digits_on_backgrounds --n 200 --lab shots
    saccade profile shipped:cnn_x8 --data digits_on_backgrounds --n 200 --lab shots
    python docs/make_screenshots.py shots [NAME ...]

Needs playwright and a Chromium on PATH.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from saccade import shipped
from saccade.lab.store import Lab
from saccade.web import runs

FOLDER = Path(__file__).with_name("explorer")
SIZES = {"wide": (1280, 860, 1), "narrow": (390, 844, 2)}  # width, height, pixels of the screen per pixel of the page
STUDY = "#/study/digits_on_backgrounds/demo"
PATIENCE = 120_000  # milliseconds that a busy machine may take
QUALITY = 78

Act = Callable[[Page], None]


def wait_for(selector: str) -> Act:
    def act(page: Page) -> None:
        page.wait_for_selector(selector, state="attached")

    return act


def to_top_of(page: Page, selector: str) -> None:
    """Smooth scrolling would be caught halfway."""
    page.evaluate(f"document.querySelector('{selector}').scrollIntoView({{behavior: 'instant'}})")


def is_wide(page: Page) -> bool:
    return page.viewport_size is not None and page.viewport_size["width"] > 600


def claim(page: Page) -> None:
    wait_for(".claim-body dl")(page)
    page.wait_for_timeout(1000)  # the page itself goes there too
    to_top_of(page, ".claim[open]")


def figure(page: Page) -> None:
    """The pointer on a point, so that its values are shown."""
    wait_for("#figure-fig10_translation svg")(page)
    to_top_of(page, "#figure-fig10_translation")
    point = page.locator("#figure-fig10_translation svg circle").nth(2).bounding_box()
    assert point is not None
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)


def compare(page: Page) -> None:
    """The CNN and the attention model, both with eight backgrounds."""
    wait_for(".groups tbody tr")(page)
    rows = page.locator(".groups tbody tr")
    for letter, name in (("a", "CNN"), ("b", "MHA")):
        rows.filter(has_text=name).filter(has=page.locator("td.at", has_text="8")).first.locator(
            f"td.{letter} button"
        ).click()
    wait_for(".difference")(page)
    to_top_of(page, ".figure" if is_wide(page) else ".against")


def answered(page: Page) -> None:
    wait_for("[data-answers]")(page)


def moved(page: Page) -> None:
    """The pointer on the digit: handles, and the attention of the pixel below it."""
    answered(page)
    box = page.locator(".stage-frame").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.42 * box["height"])


def centres(page: Page) -> None:
    wait_for(".contours")(page)
    page.wait_for_timeout(500)
    page.evaluate("document.querySelector('.centres').scrollIntoView({behavior: 'instant', block: 'center'})")


def pages(lab: Lab) -> dict[str, tuple[str, Act]]:
    """Name: address and what is done there."""
    rows = runs.rows(lab)
    a, b = (shipped.card(name).run.key for name in ("cnn_x64", "mha_x64"))
    cnn = next(r["run"] for r in rows if r["model"] == "lenet" and r["backgrounds"] == 64 and r["seed"] == 0)
    gaussian = sorted(r["run"] for r in rows if r["model"] == "quadratic" and r["seed"] == 0)[:2]
    return {
        "studies": ("#/", wait_for(".card")),
        "study": (STUDY, wait_for(".claim")),
        "claim": (f"{STUDY}?claim=D-F8-gap", claim),
        "figure": (STUDY, figure),
        "runs": ("#/runs?q=study:digits_on_backgrounds", wait_for(".list tbody a")),
        "groups": ("#/groups?q=study:digits_on_backgrounds", compare),
        "run": (f"#/run/{cnn}", wait_for(".figure svg")),
        "look": (f"#/look?a={a}&b={b}&i=2&dx=4&turn=-15", moved),
        "centres": (f"#/look?a={gaussian[0]}&b={gaussian[1]}", centres),
        "profile": ("#/profile", wait_for(".profile tbody tr")),
    }


@contextlib.contextmanager
def server(lab: Path) -> Iterator[str]:
    words = [sys.executable, "-m", "saccade", "serve", "--lab", str(lab), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        try:
            yield next(w for w in served.stdout.readline().split() if w.startswith("http"))
        finally:
            served.terminate()


def take(page: Page, name: str, folder: Path) -> None:
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.save(folder / f"{name}.webp", quality=QUALITY, method=6)


def main(root: str, *only: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with server(Path(root)) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for size, (width, height, scale) in SIZES.items():
            for colours in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height}, device_scale_factor=scale, color_scheme=colours
                )
                context.set_default_timeout(PATIENCE)
                for name, (where, act) in pages(Lab(root)).items():
                    if (colours == "dark" and name != "look") or (only and name not in only):
                        continue
                    page = context.new_page()
                    page.goto(address + where)
                    act(page)
                    page.wait_for_timeout(2500)
                    take(page, f"{name}-{size}" + ("-dark" if colours == "dark" else ""), FOLDER)
                    page.close()
                context.close()
        browser.close()
    print(f"{sum(f.stat().st_size for f in FOLDER.glob('*.webp')) / 1e6:.1f} MB in {FOLDER}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["lab"]))
