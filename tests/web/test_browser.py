"""The explorer in a real browser: every page, by pointer and by keyboard, with a server and from an export."""

import csv
import io
import json
import re
import subprocess
import sys

import pytest

from benchmarks.lab import synthetic
from saccade import stats
from tests.web.browsing import after, here, logits, maps, open_look, settle, until
from tests.web.labs import STUDY, Served, finish, key_of, put_profile, session_of, weights_of

pytestmark = pytest.mark.web
PAGES = ["#/", "#/runs", "#/groups", "#/look", "#/profile"]


@pytest.fixture(scope="session")
def exported(lab, report, tmp_path_factory):
    """The whole explorer as files, written by the command."""
    to = tmp_path_factory.mktemp("export") / "site"
    keys = [key_of(lab, "lenet", seed=0, backgrounds=8), key_of(lab, "mha_lenet", seed=0)]
    words = [sys.executable, "-m", "saccade", "export", str(to), "--lab", str(lab.root), "--look", "1", "--json"]
    done = subprocess.run([*words, "--models", *keys], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["index"].endswith("index.html")
    return to


@pytest.mark.parametrize("where", PAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_opens_and_fits(page, served, where, width):
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(served.address + where)
    settle(page)
    page.wait_for_timeout(300)
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(browser, served, colours):
    context = browser.new_context(color_scheme=colours)
    page = context.new_page()
    page.goto(served.address)
    settle(page)
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    context.close()
    light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 7
    assert (luminance(paper) > 0.5) == (colours == "light")


def luminance(colour):
    parts = [int(v) / 255 for v in re.findall(r"\d+", colour)[:3]]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_a_study_shows_every_claim_with_its_verdict(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}")
    settle(page)
    kept = json.loads((report / "verdicts.json").read_text())["verdicts"]
    shown = page.locator(".claim").evaluate_all(
        "all => all.map(c => [c.querySelector('.what b').textContent, c.querySelector('.badge').lastChild.textContent])"
    )
    assert sorted(map(tuple, shown)) == sorted((v["claim"], v["says"]) for v in kept)


def test_a_claim_opens_by_its_address(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}?claim=D-H1")
    settle(page)
    assert page.locator("#claim-d-h1").get_attribute("open") is not None
    assert page.locator("#claim-d-h1 dl").is_visible()


def test_verdicts_filter_the_claims_and_the_address_follows(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}")
    settle(page)
    page.locator(".tile.undecided").click()
    assert "says=undecided" in page.url
    assert set(page.locator(".claim .badge").all_inner_texts()) == {"?undecided"}


def test_a_downloaded_csv_is_the_reports(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}")
    settle(page)
    box = page.locator("#figure-fig8_backgrounds")
    box.get_by_role("button", name="Take").click()
    with page.expect_download() as download:
        box.get_by_role("link", name="CSV").click()
    assert download.value.path().read_bytes() == (report / "figures" / "fig8_backgrounds.csv").read_bytes()


def test_a_figure_is_taken_as_it_is_shown(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}")
    settle(page)
    box = page.locator("#figure-fig8_backgrounds")
    box.scroll_into_view_if_needed()
    rows = csv.DictReader(io.StringIO((report / "figures" / "fig8_backgrounds.csv").read_text()))
    lines = {(r["panel"], r["line"]) for r in rows if r["kind"] == "estimate"}
    assert box.locator("svg g.line").count() == len(lines)
    rest = [each for each in lines if each[1] != "CNN"]
    box.locator("button.key", has_text="CNN").click()
    assert 0 < box.locator("svg g.line").count() == len(rest) < len(lines)  # it goes from every panel
    box.get_by_role("button", name="Take").click()
    with page.expect_download() as download:
        box.get_by_role("button", name="SVG").click()
    text = download.value.path().read_text()
    assert text.startswith("<svg") and text.count("<polyline") == len(rest)
    assert "var(" not in text


def test_a_hidden_line_and_a_log_axis_are_in_the_address(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}")
    settle(page)
    box = page.locator("#figure-fig8_backgrounds")
    box.locator("button.key").first.click()
    box.get_by_role("button", name="log y").click()
    there = page.url
    lines = box.locator("svg g.line").count()
    page.goto("about:blank")
    page.goto(there)
    settle(page)
    assert page.locator("#figure-fig8_backgrounds svg g.line").count() == lines
    assert (
        page.locator("#figure-fig8_backgrounds").get_by_role("button", name="log y").get_attribute("aria-pressed")
        == "true"
    )


def test_a_figure_tells_values_under_the_pointer_and_the_arrow_keys(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}")
    settle(page)
    box = page.locator("#figure-fig8_backgrounds")
    box.scroll_into_view_if_needed()
    point = box.locator("svg.live .shape").first
    point.hover(force=True)
    assert "n=5" in box.locator(".tip").inner_text()
    page.mouse.move(0, 0)
    box.locator("svg.live").focus()
    page.keyboard.press("ArrowRight")
    first = box.locator(".tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert first and box.locator(".tip").inner_text() != first
    until(page, "document.getElementById('say').textContent.includes('n=5')")


def test_groups_of_all_but_the_seed_have_the_reports_numbers(page, served, report):
    query = "?q=arm%3ACNN&metric=accuracy%40split&at=budget_share%3A1%3Bsplit%3Aood&x=backgrounds"
    page.goto(f"{served.address}#/groups{query}")
    settle(page)
    page.wait_for_selector(".groups tbody tr")
    page.get_by_role("button", name="Take").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    have = {float(r["backgrounds"]): r for r in csv.DictReader(io.StringIO(download.value.path().read_text()))}
    rows = csv.DictReader(io.StringIO((report / "figures" / "fig8_backgrounds.csv").read_text()))
    wanted = {float(r["x"]): r for r in rows if r["line"] == "CNN" and "OOD" in r["panel"] and r["kind"] == "estimate"}
    assert set(have) == set(wanted)
    for x, row in wanted.items():
        for name in ("value", "low", "high"):
            assert float(have[x][name]) == pytest.approx(float(row[name]), rel=1e-12)
        assert int(have[x]["n"]) == int(row["n"])


def test_two_groups_are_compared_by_choosing_them(page, served, lab):
    query = "?q=backgrounds%3A8&metric=accuracy%40split&at=budget_share%3A1%3Bsplit%3Aood&x="
    page.goto(f"{served.address}#/groups{query}")
    page.wait_for_selector(".groups tbody tr")
    page.get_by_role("button", name="A: CNN").click()
    page.get_by_role("button", name="B: MHA").click()
    page.wait_for_selector(".difference b")
    table = session_of(lab.root).table()
    own = stats.greater(*(table.series("accuracy", arm=a, split="ood", backgrounds=8) for a in ("CNN", "MHA")))
    assert page.locator(".difference b").inner_text() == f"{100 * own.estimate.value:.1f} points"
    assert f"n={own.estimate.n}" in page.locator(".difference").inner_text()


def test_runs_filter_while_one_types(page, served):
    page.goto(f"{served.address}#/runs")
    settle(page)
    page.fill("#filter", "model:mha_lenet seed:0..2")
    until(page, "document.querySelectorAll('.list tbody tr').length === 3")
    assert "3 of 21 runs" in page.locator(".count-line").inner_text()
    assert "q=model" in page.url


def test_a_long_list_shows_its_first_screen_before_the_rest_has_come(page, tmp_path):
    synthetic(tmp_path / "lab", 400)
    long = Served(tmp_path / "lab", "--port", "0")
    try:
        page.goto(f"{long.address}#/groups")
        page.wait_for_selector(".groups tbody tr")  # the server has read its lab
        held = []
        page.route(re.compile("/api/runs$"), lambda route: held.append(route))
        page.goto("about:blank")
        page.goto(f"{long.address}#/runs")
        page.wait_for_selector(".list tbody a")
        assert page.locator(".count-line").inner_text() == "400 runs" and page.locator(".list tbody a").count() > 20
        page.fill("#filter", "seed:7")
        until(page, "document.querySelector('.count-line').textContent.startsWith('Reading')")
        page.get_by_role("link", name="Groups of seeds").click()
        page.wait_for_selector("text=Reading the lab")
        for _ in range(100):  # the long list is asked for after the first screen was seen
            if held:
                break
            page.wait_for_timeout(50)
        held[0].continue_()
        page.wait_for_selector(".groups tbody tr")
        page.get_by_role("link", name="List").click()
        until(page, "document.querySelector('.count-line').textContent === '1 of 400 runs'")
    finally:
        long.stop()


def test_the_list_fills_its_box_before_anyone_scrolls(page, served, lab):
    page.goto(f"{served.address}#/runs")
    page.wait_for_selector(".list tbody a")
    until(page, f"document.querySelectorAll('.list tbody a').length === {len(list(lab.root.glob('runs/*/run.json')))}")


@pytest.mark.parametrize(("where", "table"), [("#/groups", ".groups"), ("#/profile", ".profile")])
def test_no_table_has_to_be_pushed_aside_on_a_telephone(page, served, lab, where, table):
    if where == "#/profile" and not (lab.root / "profiles").is_dir():
        put_profile(lab.root / "profiles" / "mine-1")
        put_profile(lab.root / "profiles" / "mine-2")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{served.address}{where}")
    page.wait_for_selector(f"{table} tbody tr")
    assert page.evaluate(f"(s => s.scrollWidth - s.clientWidth)(document.querySelector('{table}').parentElement)") <= 1


def test_a_run_shows_its_curve_and_where_it_ran(page, served, lab):
    page.goto(f"{served.address}#/run/{key_of(lab, 'lenet', seed=1, backgrounds=8)}")
    settle(page)
    assert page.locator("figure svg.live g.line").count() == 2
    text = page.locator("main").inner_text()
    assert "0123456789abcdef" in text and "all 1000 steps" in text and "62,006" in text


def test_a_run_is_followed_while_it_trains(page, tmp_path):
    session = session_of(tmp_path / "lab")
    lab, task = session.lab.open(), session.tasks[0]
    lease = lab.claim(task.run, {})
    point = {"event": "watch", "split": "online", "accuracy": 0.2, "n": 16}
    lab.log(task.run.key, {"time": 100.0, **point, "images": 1600})
    lab.log(task.run.key, {"time": 110.0, **point, "images": 4000})
    one = Served(lab.root, "--port", "0")
    try:
        page.goto(f"{one.address}#/run/{task.run.key}")
        page.get_by_text("25 %").first.wait_for()
        lab.log(task.run.key, {"time": 120.0, **point, "images": 8000})
        page.get_by_text("50 %").first.wait_for()
        lease.release()
        finish(lab, task)
        page.get_by_text("Stopped by its rule").wait_for()
    finally:
        one.stop()


def test_dragging_the_digit_changes_the_logits_of_both(page, served, lab):
    keys = [key_of(lab, "lenet", seed=0, backgrounds=8), key_of(lab, "mha_lenet", seed=0)]
    open_look(page, served.address, f"?a={keys[0]}&b={keys[1]}")
    before = [logits(page, i) for i in (0, 1)]
    box = page.locator(".stage-frame").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag():
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 70, y + 25, steps=4)
        page.mouse.up()

    after(page, drag)
    until(page, "location.hash.includes('dx=')")
    now = [logits(page, i) for i in (0, 1)]
    assert before[0] != now[0] and before[1] != now[1]
    assert "px right" in page.locator(".readout").inner_text()


def test_the_keyboard_moves_turns_and_scales_too(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}")
    before = logits(page, 0)
    page.locator(".stage-frame").focus()
    for key in ("ArrowRight", "]", "+"):
        after(page, lambda key=key: page.keyboard.press(key))
    assert logits(page, 0) != before
    assert {"dx=1", "turn=-5", "scale=1.1"} <= set(here(page).rpartition("?")[2].split("&"))
    after(page, lambda: page.keyboard.press("0"))
    assert logits(page, 0) == before


def test_pointing_at_a_pixel_changes_the_attention_of_every_layer(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'mha_lenet', seed=0)}")
    box = page.locator(".stage-frame").bounding_box()
    after(page, lambda: page.mouse.move(box["x"] + 60, box["y"] + 60))
    first = maps(page, 0)
    after(page, lambda: page.mouse.move(box["x"] + box["width"] - 60, box["y"] + box["height"] - 90))
    second = maps(page, 0)
    assert len(first) == len(second) == 4
    assert all(a != b for a, b in zip(first, second, strict=True))
    after(page, lambda: page.mouse.click(box["x"] + 60, box["y"] + 60))
    assert re.search(r"[?&]q=\d+%2C\d+", here(page))


def test_gaussian_heads_show_centres_with_contours(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'quadratic')}")
    shown = page.locator(".model-panel").first.locator(".contours")
    assert shown.count() == 2
    assert shown.first.locator("ellipse").count() == 8


def test_another_background_changes_the_answer(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}")
    before = logits(page, 0)
    after(page, lambda: page.get_by_role("button", name="red").click())
    assert logits(page, 0) != before
    assert "bg=rgb" in here(page)


def test_the_list_of_models_lies_above_everything_else(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}")
    page.locator(".picker-button").first.click()
    box = page.locator(".picker-panel").first.bounding_box()
    middle, places = (
        box["x"] + box["width"] / 2,
        [box["y"] + share * box["height"] for share in (0.1, 0.3, 0.5, 0.7, 0.9)],
    )
    on_top = "Boolean(document.elementFromPoint({}, {})?.closest('.picker-panel'))"
    assert all(page.evaluate(on_top.format(middle, y)) for y in places)


def test_a_drawing_is_an_image_and_its_address_holds_it(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}")
    after(page, lambda: page.get_by_role("button", name="Draw").click())
    blank = logits(page, 0)
    box = page.locator(".stage-frame").bounding_box()

    def stroke():
        page.mouse.move(box["x"] + 100, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 180, box["y"] + 300, steps=5)
        page.mouse.up()

    after(page, stroke)
    drawn = logits(page, 0)
    assert drawn != blank
    there = here(page)
    page.goto("about:blank")
    page.goto(there)
    until(page, "document.querySelector('.page')?.dataset.answers > 0")
    page.wait_for_timeout(300)
    assert logits(page, 0) == drawn


def test_an_image_file_can_be_chosen(page, served, lab, tmp_path):
    from PIL import Image

    Image.new("RGB", (90, 60), (200, 30, 30)).save(tmp_path / "red.png")
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}")
    before = logits(page, 0)
    after(page, lambda: page.set_input_files("input[type=file]", tmp_path / "red.png"))
    assert logits(page, 0) != before


def test_a_slider_goes_back_to_before_training(page, served, lab):
    open_look(page, served.address, f"?a={key_of(lab, 'lenet', seed=0, backgrounds=8)}")
    slider = page.locator(".model-panel").first.locator(".training input")
    assert slider.get_attribute("aria-valuetext") == "trained"
    after(page, lambda: slider.press("ArrowLeft"))
    assert slider.get_attribute("aria-valuetext") == "untrained"
    assert "sa=0" in here(page)


def test_tab_walks_through_the_page_and_skips_to_its_content(page, served, report):
    page.goto(f"{served.address}#/study/{STUDY}/{report.name}")
    settle(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent.trim().slice(0, 30)"))
    assert {"Studies", "Runs", "Look", "Profile"} <= set(seen)
    page.locator(".claim summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".claim").first.get_attribute("open") is not None


def test_everything_that_can_be_pressed_has_a_name(page, served, report):
    for where in (*PAGES, f"#/study/{STUDY}/{report.name}"):
        page.goto(served.address + where)
        settle(page)
        page.wait_for_timeout(500)
        nameless = page.evaluate(
            "[...document.querySelectorAll('a, button, input, select, summary')].filter(e => e.offsetParent && "
            "!(e.textContent.trim() || e.getAttribute('aria-label') || e.title || e.labels?.length))"
            ".map(e => e.outerHTML.slice(0, 120))"
        )
        assert nameless == [], where


def test_the_server_going_away_is_said_and_its_return_noticed(page, lab):
    one = Served(lab.root, "--port", "0")
    page.goto(one.address)
    settle(page)
    one.stop()
    page.locator("#lost").wait_for(state="visible")
    assert "does not answer" in page.locator("#lost").inner_text()
    again = Served(lab.root, "--port", str(one.port))
    try:
        page.locator("#lost").wait_for(state="hidden")
    finally:
        again.stop()


def test_an_empty_lab_says_how_to_fill_it(page, tmp_path):
    one = Served(tmp_path / "nothing", "--port", "0")
    try:
        page.goto(one.address)
        settle(page)
        assert "saccade run digits_on_backgrounds --scale smoke" in page.locator("main").inner_text()
        for where in PAGES[1:]:
            page.goto(one.address + where)
            settle(page)
    finally:
        one.stop()


def test_a_damaged_run_says_which_file(page, tmp_path):
    session = session_of(tmp_path / "lab")
    lab, task = session.lab.open(), session.tasks[0]
    finish(lab, task, weights_of(task.run))
    path = next(lab.folder(task.run.key).glob("rows/*.json"))
    path.write_text(path.read_text()[:-30])
    one = Served(lab.root, "--port", "0")
    try:
        page.goto(f"{one.address}#/run/{task.run.key}")
        settle(page)
        assert path.name in page.locator(".bad").inner_text()
    finally:
        one.stop()


def test_a_page_that_is_none_says_so(page, served):
    page.goto(f"{served.address}#/run/000000000000")
    page.get_by_text("Not found").wait_for()
    page.goto(f"{served.address}#/nothing")
    page.get_by_text("There is no such page").wait_for()
    assert page.title().startswith("No such page")
    page.goto(f"{served.address}#/run/%E0%A4%A")  # cut off in the middle of a letter
    page.get_by_text("Not found").wait_for()


# -- the export, opened as a file: there is no server at all


def test_the_export_shows_every_page(page, exported, report):
    for where in (*PAGES, f"#/study/{STUDY}/{report.name}"):
        page.goto(f"file://{exported}/index.html{where}")
        settle(page)
        page.wait_for_timeout(200)
        assert page.locator("h1").count() == 1, where


def test_the_export_has_the_reports_csv(exported, report):
    name = f"study_{STUDY}_{report.name}_fig8_backgrounds.csv"
    assert (exported / "data" / name).read_bytes() == (report / "figures" / "fig8_backgrounds.csv").read_bytes()


def test_the_exports_digit_can_be_dragged(page, exported):
    open_look(page, f"file://{exported}/index.html")
    before = logits(page, 0)
    page.locator(".stage-frame").focus()
    after(page, lambda: page.keyboard.press("Shift+ArrowRight"))
    assert logits(page, 0) != before
    after(page, lambda: page.keyboard.press("0"))
    assert logits(page, 0) == before


def test_the_exports_attention_follows_the_pointer(page, exported):
    open_look(page, f"file://{exported}/index.html")
    box = page.locator(".stage-frame").bounding_box()
    after(page, lambda: page.mouse.move(box["x"] + 60, box["y"] + 60))
    first = maps(page, 1)
    after(page, lambda: page.mouse.move(box["x"] + box["width"] - 60, box["y"] + box["height"] - 90))
    assert first and maps(page, 1) != first


def test_the_export_compares_groups_as_the_lab_does(page, exported, lab):
    query = "?q=backgrounds%3A8&metric=accuracy%40split&at=budget_share%3A1%3Bsplit%3Aood&x="
    page.goto(f"file://{exported}/index.html#/groups{query}")
    page.wait_for_selector(".groups tbody tr")
    page.get_by_role("button", name="A: CNN").click()
    page.get_by_role("button", name="B: MHA").click()
    page.wait_for_selector(".difference b")
    table = session_of(lab.root).table()
    own = stats.greater(*(table.series("accuracy", arm=a, split="ood", backgrounds=8) for a in ("CNN", "MHA")))
    p = min(1.0, 2 * min(own.p, own.p_against))
    assert page.locator(".difference b").inner_text() == f"{100 * own.estimate.value:.1f} points"
    assert ("p < 0.001" if p < 0.001 else f"p {p:.3f}") in page.locator(".result").inner_text()


@pytest.mark.parametrize("t", [-3.2, -0.4, 0.0, 0.7, 2.5, 30.0])
@pytest.mark.parametrize("df", [1, 4, 37])
def test_the_exports_tail_of_students_t_is_scipys(page, served, t, df):
    from scipy.special import stdtr

    page.goto(served.address)
    told = page.evaluate(f"import('./static/stats.js').then(m => m.tail({t}, {df}))")
    assert told == pytest.approx(float(stdtr(df, -t)), rel=1e-9, abs=1e-12)
