"""What the explorer makes people wait for: a lab of 100 000 runs in a browser, and an image that is dragged.

`python -m benchmarks.explorer [--quick]` makes these rows by themselves. Needs playwright and a Chromium on PATH.
Making the large lab takes minutes in which nothing is measured: `python -m benchmarks.explorer --make DIR` makes it
beforehand, and `--made DIR`, here and for `python -m benchmarks --part explorer`, takes it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.lab import synthetic
from saccade import shipped
from saccade.spec import Probe, Recipe, Run, Settings, Task

Row = dict[str, Any]
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
PATIENCE = 600.0  # seconds for one thing, on the slowest machine
MODELS = ("basic_cnn", "lenet", "mha_lenet", "resnet18", "vit")
RATES = (0.0003, 0.001, 0.003, 0.01)
FILTERS = ("model:lenet", "lr>0.001", "model:vit seed:3..9", "batch:64 -model:resnet18", "resn", "p:100..500", "")
RUNS = 100_000
MOVES = 40
# One filter as one types it: from the event to the frame in which the page shows what is left.
TYPED = """(async () => {{
  const field = document.getElementById("filter"), began = performance.now();
  field.value = {text};
  field.dispatchEvent(new Event("input"));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - began;
}})()"""


def missing() -> str:
    """Why these rows cannot be measured here; empty where they can."""
    if importlib.util.find_spec("playwright") is None:
        return "the explorer: playwright is not installed"
    return "" if chromium() else "the explorer: no Chromium on PATH"


def chromium() -> str | None:
    return next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


def varied(number: int, probes: list[Probe]) -> Task:
    """As people leave labs: five models, a few settings of each, many seeds."""
    seed, rest = divmod(number, len(MODELS) * len(RATES) * 4)
    model, rest = MODELS[rest % len(MODELS)], rest // len(MODELS)
    recipe = Recipe(images=32_000, batch=(32, 64)[rest % 2], lr=RATES[rest // 4], watch=8)
    data = Settings(of="procedural_textures", p=(100, 1000)[rest // 2 % 2])
    return Task(Run(model, "points", recipe, seed, Settings(), data), tuple(probes))


class Server:
    """`saccade serve` in a process of its own."""

    def __init__(self, lab: Path) -> None:
        words = [sys.executable, "-m", "saccade", "serve", "--lab", str(lab), "--port", "0"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8")
        assert self.process.stdout is not None
        self.address = next(w for w in self.process.stdout.readline().split() if w.startswith("http"))

    def complete(self) -> None:
        """Wait until every folder of the lab has been looked at."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with urllib.request.urlopen(f"{self.address}api/pulse", timeout=PATIENCE) as answer:
                if json.load(answer)["complete"]:
                    return
            time.sleep(0.05)
        raise SystemExit("the explorer did not get through the lab")

    def peak(self) -> float | None:
        """Megabytes of memory, at most so far; None where that cannot be read."""
        try:
            lines = Path(f"/proc/{self.process.pid}/status").read_text("utf-8").splitlines()
        except OSError:
            return None
        return next(int(x.split()[1]) / 1000 for x in lines if x.startswith("VmHWM:"))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@contextlib.contextmanager
def serving(lab: Path) -> Iterator[Server]:
    server = Server(lab)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        context = opened.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(1000 * PATIENCE)
        yield context
        opened.close()


def row(name: str, setting: str, aim: float | None, value: float, unit: str, beside: str = "") -> Row:
    return {"name": name, "setting": setting, "aim": aim, "value": value, "unit": unit, "beside": beside}


@contextlib.contextmanager
def lab_of(runs: int, made: Path | None) -> Iterator[Path]:
    """A lab of so many runs that no explorer has read yet: the one that was made beforehand, or one of its own."""
    if made is None:
        with tempfile.TemporaryDirectory() as folder:
            synthetic(Path(folder), runs, varied)
            yield Path(folder)
        return
    have = sum(1 for _ in (made / "runs").iterdir()) if (made / "runs").is_dir() else 0
    if have != runs:
        raise SystemExit(f"{made} holds {have:,} runs, not {runs:,}")
    shutil.rmtree(made / "index", ignore_errors=True)
    yield made


def large_lab(runs: int, made: Path | None) -> Iterator[Row]:
    """The list of runs of a large lab: first page, filter, memory."""
    setting = f"{runs:,} runs"
    with lab_of(runs, made) as root, browser() as context:
        began = time.perf_counter()
        with serving(root) as first:
            first.complete()
            read = time.perf_counter() - began
            time.sleep(3)  # what was read is written down for the next start
        yield row("a lab read for the first time", setting, None, read, "s", "pages show what there is meanwhile")
        with serving(root) as server:
            spent, whole = [], []
            for _ in range(4):
                page = context.new_page()
                began = time.perf_counter()
                page.goto(f"{server.address}#/runs")
                page.wait_for_selector(".list tbody a")
                spent.append(time.perf_counter() - began)
                page.wait_for_selector(".page[data-whole]")
                whole.append(time.perf_counter() - began)
                server.complete()
            note = (
                f"all runs, to filter and group, after {statistics.median(whole[1:]):.2f} s; "
                f"right after the start of the server {spent[0]:.2f} s"
            )
            yield row("first page: the list of runs", setting, 1.0, statistics.median(spent[1:]), "s", note)
            page.wait_for_timeout(1000)
            typed = [page.evaluate(TYPED.format(text=json.dumps(text))) for text in FILTERS]
            note = f"largest of {len(typed)}: {max(typed):.0f} ms"
            yield row("a filter, from the key to the new list", setting, 200.0, statistics.median(typed), "ms", note)
            heap = page.evaluate("performance.memory ? performance.memory.usedJSHeapSize / 1e6 : 0")
            if (peak := server.peak()) is not None:
                yield row("memory of the server, at most", setting, 1000.0, peak, "MB", f"the page: {heap:.0f} MB")


def look(pair: tuple[str, str], moves: int) -> Row:
    """The digit dragged from place to place: from the pointer's move to logits and maps of both models on the page."""
    a, b = (shipped.card(name).run.key for name in pair)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server, browser() as context:
        page = context.new_page()
        page.goto(f"{server.address}#/look?a={a}&b={b}")
        page.wait_for_selector("[data-answers]", state="attached")
        box = page.locator(".stage-frame").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        spent = []
        for i in range(moves + 5):
            before = _answers(page)
            began = time.perf_counter()
            page.mouse.move(x + 10 * (i % 9 - 4), y + 10 * (i % 7 - 3))
            while _answers(page) == before and time.perf_counter() - began < PATIENCE:
                pass
            spent.append(1000 * (time.perf_counter() - began))
        page.mouse.up()
    spent = sorted(spent[5:])  # the first ones warm up
    beside = f"nine of ten within {spent[len(spent) * 9 // 10]:.0f} ms"
    return row(f"Look: {' and '.join(pair)}, dragged", f"{moves} moves", 100.0, statistics.median(spent), "ms", beside)


def _answers(page: Any) -> str:
    return str(page.evaluate("document.querySelector('[data-answers]').dataset.answers"))


def rows(quick: bool, made: Path | None) -> Iterator[Row]:
    yield from large_lab(2_000 if quick else RUNS, made)
    for pair in (("cnn_x64", "cnn_x8"), ("cnn_x64", "vit_x64"), ("cnn_x64", "mha_x64")):
        yield look(pair, 10 if quick else MOVES)


def measured(quick: bool, made: Path | None = None) -> Iterator[Row]:
    """Each row with the cores that other programs kept busy beside it."""
    todo = rows(quick, made)
    while True:
        with load.watched() as beside:
            one = next(todo, None)
        if one is None:
            return
        yield one | beside


def line(one: Row) -> str:
    aim = f"aim {one['aim']:g} {one['unit']}, " if one["aim"] else ""
    missed = " *" if one["aim"] and one["value"] > one["aim"] else ""
    return f"{one['name']} ({one['setting']}): {aim}measured {one['value']:.3g} {one['unit']}{missed}; {one['beside']}"


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.explorer", description=__doc__)
    flags.add_argument("--quick", action="store_true", help="a small lab and few moves")
    flags.add_argument("--make", metavar="DIR", type=Path, help=f"only make a lab of {RUNS:,} runs there")
    flags.add_argument("--made", metavar="DIR", type=Path, help="the lab that --make made")
    asked = flags.parse_args()
    if asked.make:
        synthetic(asked.make, RUNS, varied)
        return
    if why := missing():
        raise SystemExit(why)
    for one in measured(asked.quick, asked.made):
        busy = f" BUSY: {one['others']:.1f} cores used by others" if load.is_busy(one) else ""
        print(line(one) + busy, flush=True)


if __name__ == "__main__":
    main()
