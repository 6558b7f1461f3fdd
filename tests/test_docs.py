"""What the README and the docs say is so: Python blocks run, commands exist, links resolve, every study has a page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import registry
from saccade.__main__ import overview

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_readmes_python_runs(tmp_path):
    (code,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\{0: 0\.\d+\}", done.stdout)


def test_every_command_in_the_docs_is_one():
    known = {name for name, _ in overview()}
    used = {m for p in PAGES for b in blocks(p, "sh") for m in re.findall(r"saccade ([a-z]+)", b)}
    assert {"list", "show", "run", "status", "doctor"} <= used
    assert used <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", sorted(registry.cards("study")))
def test_every_study_has_a_page_and_the_readme_names_it(name):
    assert (ROOT / "docs" / f"{name}.md").exists()
    assert name in (ROOT / "README.md").read_text()


def test_every_name_has_a_card_worth_reading():
    for kind in registry.KINDS:
        for card in registry.cards(kind).values():
            assert len(card.about) > 20, card.name
