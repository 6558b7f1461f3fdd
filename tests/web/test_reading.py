"""How the pages read: headings in order, what is open stays open, nothing is cut off on a telephone."""

import itertools
import shutil

import pytest

from saccade.web import studies
from saccade.web.explorer import Explorer
from tests.web.browsing import open_look, settle, until
from tests.web.labs import STUDY, Served, finish, key_of, put_profile, session_of

pytestmark = pytest.mark.web
LEVELS = "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(e => Number(e.tagName[1]))"


def skipped(levels):
    return [(a, b) for a, b in itertools.pairwise(levels) if b > a + 1]


@pytest.mark.parametrize("where", ["#/", "study", "#/runs", "#/groups", "run", "#/profile"])
def test_headings_skip_no_level(page, served, lab, report, where):
    """A screen reader's list of headings is an outline of the page."""
    if where == "#/profile" and not (lab.root / "profiles").is_dir():
        put_profile(lab.root / "profiles" / "mine-1")
        put_profile(lab.root / "profiles" / "mine-2")
    places = {
        "study": f"#/study/{STUDY}/{report.name}?claim=D-H1",
        "run": f"#/run/{key_of(lab, 'lenet', seed=0, backgrounds=8)}",
    }
    page.goto(served.address + places.get(where, where))
    settle(page)
    if where == "#/groups":
        page.wait_for_selector(".groups tbody tr")
    levels = page.evaluate(LEVELS)
    assert levels[0] == 1 and levels.count(1) == 1
    assert not skipped(levels), levels


def test_the_headings_of_the_look_page_name_both_models(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}&b={key_of(lab, 'mha_lenet')}")
    assert not skipped(page.evaluate(LEVELS))
    assert page.locator(".model-panel h2").all_inner_texts() == ["Model A", "Model B"]


def test_what_was_opened_stays_open_while_a_run_trains(page, tmp_path):
    session = session_of(tmp_path / "lab")
    lab, task = session.lab.open(), session.tasks[0]
    lab.claim(task.run, {})
    point = {"event": "watch", "split": "online", "accuracy": 0.2, "n": 16}
    for images in (1600, 4000):
        lab.log(task.run.key, {"time": images / 100, **point, "images": images})
    lab.log(task.run.key, {"time": 50.0, "event": "saved", "step": 1})
    one = Served(lab.root, "--port", "0")
    try:
        page.goto(f"{one.address}#/run/{task.run.key}")
        page.locator("summary", has_text="Log").click()
        lab.log(task.run.key, {"time": 80.0, **point, "images": 8000})
        page.get_by_text("50 %").first.wait_for()
        assert page.locator("details:has(ul.log)").get_attribute("open") is not None
        until(page, "document.activeElement?.textContent.startsWith('Log')")
    finally:
        one.stop()


def test_a_lines_count_is_not_said_of_a_single_run(page, served, lab):
    page.goto(f"{served.address}#/run/{key_of(lab, 'lenet', seed=1, backgrounds=8)}")
    settle(page)
    assert "n=1" not in page.locator(".legend").first.inner_text()


def test_the_answers_of_both_models_fit_on_a_telephone(page, served, lab):
    page.set_viewport_size({"width": 390, "height": 844})
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}&b={key_of(lab, 'mha_lenet')}")
    over = "[...document.querySelectorAll('.model-panel')].map(p => p.scrollWidth - p.clientWidth)"
    assert max(page.evaluate(over)) <= 1


def test_a_command_breaks_between_its_words(page, served):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(served.address)
    settle(page)
    heights = "[...document.querySelectorAll('.command .word')].map(w => w.getClientRects().length)"
    shown = page.evaluate(heights)
    assert shown and set(shown) == {1}
    assert "--scale smoke" in page.locator(".command code").first.inner_text().replace("\n", " ")


def test_verdicts_are_counted_of_a_study_that_is_there_in_part(tmp_path, monkeypatch):
    """As after an import of some arms: no command will write a report, and nothing is training."""
    session = session_of(tmp_path / "lab")
    session.lab.open()
    for task in session.tasks[:10]:
        finish(session.lab, task)
    fresh = Explorer(session.lab)
    fresh.catalogue.look()
    monkeypatch.setattr(fresh.studies, "folders", lambda name: ["demo"] if name == STUDY else [])
    monkeypatch.setattr(fresh.studies, "session", lambda name, folder: session)
    asked = []
    monkeypatch.setattr(studies.threading, "Thread", lambda target, args, **more: asked.append((target, args)) or Now())
    card = next(c for c in fresh.cards() if c["name"] == STUDY)["sittings"][0]
    assert (card["judging"], card["done"], card["runs"]) == (True, 10, len(session.tasks))
    target, args = asked[0]
    target(*args)
    card = next(c for c in fresh.cards() if c["name"] == STUDY)["sittings"][0]
    assert not card["judging"] and sum(c["n"] for c in card["counts"]) == len(session.study.claims)
    shutil.rmtree(session.lab.folder(session.tasks[0].run.key))
    fresh.catalogue.look()
    assert next(c for c in fresh.cards() if c["name"] == STUDY)["sittings"][0]["judging"]  # of other runs: judged again


class Now:
    """A thread that does nothing by itself."""

    def start(self) -> None:
        pass
