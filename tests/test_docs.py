"""What the README and the docs say is so: Python blocks run, commands exist, links resolve, every study has a page."""

import ast
import contextlib
import importlib.util
import io
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import registry
from saccade.__main__ import overview
from saccade.spec import Scale

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "saccade"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
HEAVY = {"docs/models/attention.md", "docs/tutorials/profile.md"}  # a larger model, many variants of the images


def named(page):
    return page.relative_to(ROOT).as_posix()


def with_python():
    for page in PAGES:
        if page.name != "README.md" and blocks(page, "python"):
            marks = [pytest.mark.slow] if named(page) in HEAVY else []
            yield pytest.param(page, id=named(page), marks=marks)


def script(name):
    """One of the programs beside the docs, which are no package but may import each other."""
    if str(ROOT / "docs") not in sys.path:
        sys.path.append(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_readmes_python_runs(tmp_path, monkeypatch, capsys):
    """With drawn images in the place of CIFAR-10, and few of them: this test needs no download."""
    (code,) = blocks(ROOT / "README.md", "python")
    assert len(code.splitlines()) == 3
    net = "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))\n"
    (tmp_path / "mynet.py").write_text(net)
    drawn = 'sc.api.measure.source("photos", args={"of": "procedural_textures", "hold_out": 1000}), n=20'
    code = code.replace('"cifar10"', drawn)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    said = capsys.readouterr().out
    assert "accuracy" in said and "background" in said


@pytest.mark.parametrize("page", list(with_python()))
def test_every_python_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in blocks(page, "python"):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, named(page), "exec"), {"__name__": "docs"})


def test_every_command_in_the_docs_is_one():
    known = {name for name, _ in overview()}
    used = {m for p in PAGES for b in blocks(p, "sh") for m in re.findall(r"saccade ([a-z]+)", b)}
    assert {"list", "show", "run", "status", "doctor"} <= used
    assert used <= known


def table_rows(page, heading):
    text = page.read_text().partition(heading)[2]
    lines = itertools.takewhile(lambda line: line.startswith("|"), text[text.index("|") :].splitlines())
    return [line.strip("|").split("|") for line in lines][2:]


def test_the_answers_of_contributing_point_at_code_that_is_there():
    """A file in backticks is one of the package; every other name is defined in one of that answer's files."""
    answers = [row[1] for row in table_rows(ROOT / "CONTRIBUTING.md", "Five questions")]
    assert len(answers) == 5
    for answer in answers:
        names = re.findall(r"`([\w./]+)`", answer)
        files = [SOURCE / name for name in names if name.endswith(".py")]
        assert files and all(file.is_file() for file in files), answer
        defined = set().union(*(definitions(file) for file in files))
        assert defined >= {name for name in names if not name.endswith(".py")}, answer


def definitions(file):
    """Functions of a file, and methods as Class.method."""
    body = ast.parse(file.read_text()).body
    methods = {
        f"{node.name}.{part.name}"
        for node in body
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef)
    }
    return methods | {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_repeats_that_stay_are_in_files_that_are_there():
    rows = table_rows(ROOT / "CONTRIBUTING.md", "## Repeats that stay")
    for pattern in [name for row in rows for name in re.findall(r"`([\w./*]+\.py)`", row[0] + row[2])]:
        assert list(SOURCE.glob(pattern)), pattern


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_resolve(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'<img src="([^"]+)"', text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", sorted(registry.cards("study")))
def test_every_study_has_a_page_and_the_readme_names_it(name):
    assert (ROOT / "docs" / f"{name}.md").exists()
    assert name in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", registry.built_in("study"))
def test_the_paragraph_on_top_of_a_report_is_made_of_three_claims(name):
    study = registry.study(name)
    assert len(study.headline) == 3 and set(study.headline) <= {c.id for c in study.claims}


def test_every_name_has_a_card_worth_reading():
    for kind in registry.KINDS:
        for card in registry.built_in(kind).values():
            assert len(card.about) > 20, card.name


def test_the_readme_and_the_docs_say_what_the_results_say():
    made = script("make_readme")
    stale = [named(page) for page in made.PAGES if made.text(page) != page.read_text(encoding="utf-8")]
    assert not stale, f"{stale}: run python docs/make_readme.py"


def test_every_public_recipe_has_a_source_and_stands_beside_an_arm_that_exists():
    made = script("public_recipes")
    scales = ("small", "large")
    arms = {
        name: {t.arm for scale in scales for t in study.tasks(Scale(scale), study.choose({}))}
        for name in registry.built_in("study")
        for study in (registry.study(name),)
    }
    assert {b.study for b in made.TABLE} == set(arms)
    for beside in made.TABLE:
        assert beside.arm in arms[beside.study], f"{beside.study} has no arm {beside.arm}"
        assert beside.note
        if beside.recipe is not None:
            assert beside.recipe.source and beside.recipe.url.startswith("https://")
            assert 0 < beside.recipe.accuracy < 1


def test_the_scoreboard_says_what_the_results_say():
    made = script("make_results")
    text = made.page()
    assert made.PAGE.read_text(encoding="utf-8") == text, "run python docs/make_results.py"
    assert text.count("\n| ") >= 131 and "What the papers did not know" in text


def test_made_pages_are_fresh():
    made = script("make_pages").pages()
    stale = [named(p) for p, text in made.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    assert not stale, f"{stale}: run python docs/make_pages.py"


def test_the_api_page_is_fresh():
    made = script("make_api")
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "run python docs/make_api.py"


def test_a_result_that_changes_makes_the_readme_stale(monkeypatch):
    """The check above can fail: one verdict more, and the page no longer says what the results say."""
    made = script("make_readme")
    told = {"scale": "small", "verdicts": [{"claim": "X", "says": "undecided", "reason": "still moving"}]}
    monkeypatch.setattr(made, "results", lambda: {"digits_on_backgrounds": told})
    assert "1 claims of 1 published studies (small scale): 1 open** (1 still moving)" in made.scoreboard("")
    assert made.text(ROOT / "README.md") != (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_probe_and_model_is_on_a_page():
    for card in registry.built_in("probe").values():
        assert (ROOT / "docs" / "probes" / f"{card.name}.md").exists()
    for card in registry.built_in("model").values():
        assert f"## `{card.name}`" in (ROOT / "docs" / "models" / f"{card.extra['family']}.md").read_text()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("material")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    assert (tmp_path / "site" / "gallery.html").exists()
    assert (tmp_path / "site" / "results" / "digits_on_backgrounds" / "report.html").exists()
