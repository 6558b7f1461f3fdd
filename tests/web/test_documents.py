"""What the explorer says about a lab, without a server or a browser."""

import json
import os
import shutil
import time

import pytest

from saccade import stats
from saccade.lab import export
from saccade.lab.store import Lab
from saccade.report import document
from saccade.spec import Recipe, Run, SaccadeError, Settings, Task
from saccade.web import profiles, runs
from saccade.web.catalogue import Catalogue
from saccade.web.explorer import Explorer
from saccade.web.export import bundle, file_name
from saccade.web.measures import comparison, quantiles
from saccade.web.page import page_files
from saccade.web.runs import columns
from tests.web.labs import DRAWN, SCALE, STUDY, finish, key_of, put_profile, session_of


@pytest.fixture
def small(tmp_path):
    """A lab with two runs that differ in the seed, to be changed by a test."""
    made = Lab(tmp_path / "lab").open()
    for seed in (0, 1):
        finish(made, task(seed))
    return made


def task(seed, **recipe):
    return Task(Run("lenet", STUDY, Recipe(images=320, **recipe), seed, data_args=Settings(DRAWN, backgrounds=2)))


@pytest.fixture(scope="module")
def explorer(lab, report):
    made = Explorer(lab)
    made.catalogue.look()
    return made


def test_a_row_holds_every_setting_by_its_name(small):
    row = next(r for r in runs.rows(small) if r["seed"] == 1)
    assert (row["model"], row["backgrounds"], row["lr"], row["state"]) == ("lenet", 2, 0.001, "finished")


def test_seeds_of_one_specification_are_one_group(small):
    finish(small, task(0, lr=0.01))
    groups = {(r["lr"], r["group"]) for r in runs.rows(small)}
    assert len(groups) == 2


def test_only_folders_that_changed_are_read_again(small):
    seen = {}
    first = {r["run"]: r for r in runs.rows(small, seen)}
    finish(small, task(2))
    again = {r["run"]: r for r in runs.rows(small, seen)}
    assert len(again) == 3
    assert all(again[k] is first[k] for k in first)


def test_a_folder_that_is_gone_is_no_row(small):
    seen = {}
    runs.rows(small, seen)
    shutil.rmtree(small.folder(task(0).run.key))
    assert [r["seed"] for r in runs.rows(small, seen)] == [1]


@pytest.mark.parametrize("name", ["run.json", "done.json"])
def test_a_damaged_file_makes_a_damaged_run(small, name):
    path = small.folder(task(0).run.key) / name
    path.write_bytes(path.read_bytes().replace(b'"', b"'", 1))
    assert {r["state"] for r in runs.rows(small)} == {"damaged", "finished"}


def test_a_page_of_a_damaged_run_names_the_file(small):
    path = next(small.folder(task(0).run.key).glob("rows/*.json"))
    path.write_text(path.read_text().replace("62006", "62007"))
    told = runs.describe(small, task(0).run.key)
    assert told["damaged"] == [f"rows/{path.name}"]
    assert not told["measured"]


def test_a_run_under_way_says_how_far_it_is_and_how_long_it_takes(small):
    run = task(5).run
    lease = small.claim(run, {})
    for images, at in ((80, 100.0), (160, 110.0)):
        small.log(run.key, {"time": at, "event": "watch", "images": images, "split": "online", "accuracy": 0, "n": 1})
    row = next(r for r in runs.rows(small) if r["seed"] == 5)
    lease.release()
    assert (row["state"], row["share"], row["left"]) == ("running", 0.5, 20.0)


def test_a_torn_line_of_a_log_is_left_out(small):
    run = task(5).run
    lease = small.claim(run, {})
    small.log(run.key, {"event": "watch", "images": 80, "split": "online", "accuracy": 0.5, "n": 1})
    with open(small.folder(run.key) / "log.jsonl", "a") as log:
        log.write('{"event": "wat')
    assert len(runs.describe(small, run.key)["curve"]) == 1
    lease.release()


@pytest.mark.parametrize("key", ["", "..", "../aside", "zzzzzzzzzzzz", "0" * 12, "/etc/passwd", "0123456789ab/.."])
def test_what_is_no_run_has_no_page(small, key):
    with pytest.raises(SaccadeError, match="no run"):
        runs.describe(small, key)


def test_an_imported_run_has_its_curve_and_no_time_of_its_own(small, tmp_path):
    other = Lab(tmp_path / "other").open()
    export.write(small, tmp_path / "kept.jsonl.xz")
    export.read(other, tmp_path / "kept.jsonl.xz")
    own, brought = (runs.describe(lab, task(0).run.key) for lab in (small, other))
    assert "started" in own and "started" not in brought
    assert brought["imported"] and not own["imported"]
    assert [p for p in own["curve"] if p["split"] == "ood"]
    assert {p["images"] for p in brought["curve"]} == {p["images"] for p in own["curve"] if p["split"] == "ood"}
    assert all(row["weights"] == "none" for row in runs.rows(other))  # so that Look does not offer them


@pytest.mark.slow
def test_a_study_without_a_report_is_judged_beside_the_list(lab, report, monkeypatch):
    """As after an import. The report is hidden from the card only: it also tells this lab's choices."""
    fresh = Explorer(lab)
    fresh.catalogue.look()
    fresh.studies.session(STUDY, report.name)
    monkeypatch.setattr(fresh.studies, "folders", lambda name: [report.name] if name == STUDY else [])
    monkeypatch.setattr(fresh.studies, "_report", lambda name, folder: {})
    until, seen = time.monotonic() + 120, []
    while not seen or (seen[-1]["judging"] and time.monotonic() < until):
        card = next(c for c in fresh.cards() if c["name"] == STUDY)
        seen += card["sittings"]
        time.sleep(0.05)
    assert (seen[0]["judging"], seen[0]["counts"]) == (True, [])
    assert sum(c["n"] for c in seen[-1]["counts"]) == card["claims"]


def test_a_version_tells_what_changed_since(small):
    catalogue = Catalogue(small)
    catalogue.look()
    before = catalogue.version
    finish(small, task(2))
    catalogue.look()
    changed = catalogue.document(before)
    assert changed["keys"] == [task(2).run.key]
    assert len(catalogue.document()["keys"]) == 3


def test_the_first_screen_of_a_long_list_holds_the_runs_that_started_last(small):
    finish(small, task(2))
    catalogue = Catalogue(small)
    catalogue.look()
    rows = sorted(catalogue.rows(), key=lambda row: -row["started"])
    first = json.loads(catalogue.newest(2))
    assert first["keys"] == [row["run"] for row in rows[:2]] and first["total"] == 3
    assert runs.rows_of(first) == rows[:2]


def test_a_version_tells_what_is_gone(small):
    catalogue = Catalogue(small)
    catalogue.look()
    before = catalogue.version
    shutil.rmtree(small.folder(task(0).run.key))
    catalogue.look()
    assert catalogue.document(before)["gone"] == [task(0).run.key]


def test_the_rest_between_looks_does_not_grow_with_what_is_done_once(small):
    """On a busy machine the places of runs took so long that a run started meanwhile was not shown for minutes."""

    def slow():
        time.sleep(0.3)
        return {}

    began = time.monotonic()
    took = Catalogue(small, slow).look()
    assert time.monotonic() - began - took >= 0.3


def test_nothing_changed_is_no_new_version(small):
    catalogue = Catalogue(small)
    catalogue.look()
    before = catalogue.version
    catalogue.look()
    assert catalogue.version == before


def test_what_was_read_is_remembered_for_the_next_time(small, monkeypatch):
    seen = {}
    own = runs.rows(small, seen)
    runs.remember(small, seen)
    kept = runs.recall(small)
    monkeypatch.setattr(runs, "row", lambda lab, key: pytest.fail("a folder was read again"))
    assert runs.rows(small, kept) == own


def test_a_run_that_changed_is_read_although_it_was_remembered(small):
    seen = {}
    runs.rows(small, seen)
    runs.remember(small, seen)
    (small.folder(task(0).run.key) / "done.json").unlink()
    assert {r["state"] for r in runs.rows(small, runs.recall(small))} == {"waiting", "finished"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": "0"}', b'{"keys": ["x"], "stamps": []}'])
def test_a_memory_that_cannot_be_read_is_none(small, content):
    runs.remember(small, {})
    (path,) = (small.root / "index").glob("*.explorer.json")
    path.write_bytes(content)
    assert runs.recall(small) == {}


def test_the_whole_list_is_not_written_anew_for_every_change(small):
    catalogue = Catalogue(small)
    catalogue.look()
    whole = catalogue.encoded()
    finish(small, task(2))
    catalogue.look()
    assert catalogue.encoded() is whole
    rest = json.loads(catalogue.encoded(json.loads(whole)["version"]))
    assert rest["keys"] == [task(2).run.key]


def test_columns_keep_every_value_and_its_type():
    rows = [{"run": "a", "x": 1, "y": True}, {"run": "b", "x": 1.5, "y": 1}, {"run": "c", "y": "1"}]
    made = columns(rows)["columns"]
    assert made["x"] == {"values": [1, 1.5], "codes": [0, 1, -1]}
    assert made["y"]["values"] == [True, 1, "1"]


def test_a_value_that_all_share_is_written_once():
    assert columns([{"run": "a", "x": 3}, {"run": "b", "x": 3}])["columns"] == {"x": {"all": 3}}


@pytest.mark.slow
def test_metrics_are_separated_by_their_conditions(explorer):
    known = explorer.catalogue.measures()
    assert {"accuracy@split", "accuracy@severity+transform", "parameters"} <= set(known)
    assert known["accuracy@split"]["at"]["split"] == ["id", "ood"]


@pytest.mark.slow
def test_values_of_a_metric_are_those_of_the_report(explorer, lab):
    found = explorer.catalogue.measure("accuracy@split", {"split": "ood", "budget_share": "1"})
    table = session_of(lab.root).table()
    have = dict(zip(found["keys"], found["values"], strict=True))
    assert have == {r["run"]: r["value"] for r in table.at(metric="accuracy", split="ood")}


def test_of_two_measurements_the_one_that_the_study_asks_for_counts(tmp_path):
    session = session_of(tmp_path / "lab")
    made, one = session.lab.open(), session.tasks[0]
    finish(made, one)
    other = type(one.probes[0])(one.probes[0].name, {**one.probes[0].settings, "n": 7})
    made.put_rows(one.run.key, other, 1, [{"metric": "accuracy", "value": 0.5, "n": 7, "at": {"split": "ood"}}])
    documents = list(runs.measurements(made, one.run.key))
    kept = runs.one_each(documents, [p.key for p in one.probes])
    assert {d["asked"] for d in kept if d["probe"] == "accuracy"} == {one.probes[0].key}
    assert {d["asked"] for d in runs.one_each(documents, ()) if d["probe"] == "accuracy"} == {other.key}


@pytest.mark.slow
def test_two_groups_are_compared_with_the_labs_own_test(explorer, lab):
    table = session_of(lab.root).table()
    series = [table.series("accuracy", arm=arm, split="ood", backgrounds=8) for arm in ("CNN", "MHA")]
    keys = [
        [r["run"] for r in table.at(metric="accuracy", arm=arm, split="ood", backgrounds=8)] for arm in ("CNN", "MHA")
    ]
    asked = {"metric": "accuracy@split", "at": {"split": "ood", "budget_share": "1"}, "a": keys[0], "b": keys[1]}
    told, own = explorer.compare(asked), stats.greater(*series)
    assert told["evidence"]["estimate"]["value"] == own.estimate.value
    assert told["evidence"]["p"] == own.p


def test_too_few_seeds_are_said_and_not_tested():
    assert comparison({0: 0.5}, {0: 0.4})["says"].startswith("too few seeds")
    assert comparison({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.5})["says"] == "too few seeds (2 of 5)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"metric": 3, "a": [], "b": []},
        {"metric": "accuracy@split", "a": "0123456789ab", "b": ["0123456789ab"]},
        {"metric": "accuracy@split", "a": ["../../../etc"], "b": ["0123456789ab"]},
        {"metric": "accuracy@split", "at": {"split": 3}, "a": ["0123456789ab"], "b": ["0123456789ab"]},
        {"metric": "accuracy@split", "a": ["0123456789ab"], "b": ["0123456789ab"], "unit": "x"},
    ],
)
def test_a_comparison_of_the_wrong_types_is_refused(explorer, asked):
    with pytest.raises(SaccadeError):
        explorer.compare(asked)


def test_quantiles_are_those_of_the_labs_intervals():
    values = [0.1, 0.4, 0.35]
    estimate, sd = stats.estimate(values), (sum((v - sum(values) / 3) ** 2 for v in values) / 2) ** 0.5
    assert quantiles()[1] * sd / 3**0.5 == pytest.approx((estimate.high - estimate.low) / 2, rel=1e-12)


@pytest.mark.slow
def test_a_lab_lists_the_studies_that_it_has(explorer, report):
    card = next(c for c in explorer.cards() if c["name"] == STUDY)
    (sitting,) = card["sittings"]
    assert (sitting["folder"], sitting["scale"], sitting["done"]) == (report.name, SCALE, 20)
    assert sum(c["n"] for c in sitting["counts"]) == card["claims"]


@pytest.mark.slow
def test_a_studys_page_has_the_verdicts_of_the_report(explorer, report):
    told = explorer.study(STUDY, report.name)
    kept = json.loads((report / "verdicts.json").read_text())
    assert [(c["id"], c["says"]) for c in told["claims"]] == [(v["claim"], v["says"]) for v in kept["verdicts"]]
    assert told["summary"] == kept["summary"]


@pytest.mark.slow
def test_a_claim_comes_with_its_single_seeds(explorer, report):
    claims = explorer.study(STUDY, report.name)["claims"]
    found = next(c["evidence"] for c in claims if c["id"] == "D-H1")
    mean = sum(e["value"] for e in found["each"]) / len(found["each"])
    assert mean == pytest.approx(found["estimate"]["value"])


@pytest.mark.slow
def test_a_figures_numbers_are_the_bytes_of_the_reports_file(explorer, report):
    figures = explorer.study(STUDY, report.name)["figures"]
    assert figures
    for figure in figures:
        made = explorer.studies.figure_csv(STUDY, report.name, figure["name"])
        assert made == (report / "figures" / f"{figure['name']}.csv").read_text()


@pytest.mark.slow
def test_the_lines_of_python_draw_the_figure(explorer, report, tmp_path, monkeypatch):
    line = explorer.study(STUDY, report.name)["figures"][0]["python"]
    root = explorer.lab.root
    monkeypatch.chdir(tmp_path)
    exec(compile(line.replace(str(root), str(root.resolve())), "line", "exec"), {})
    (drawn,) = tmp_path.glob("*.svg")
    assert drawn.read_text().lstrip().startswith("<?xml")


def test_a_document_is_made_again_when_a_run_changed(tmp_path):
    session = session_of(tmp_path / "lab")
    made = session.lab.open()
    for one in session.tasks[:5]:
        finish(made, one)
    (session.folder).mkdir(parents=True)
    (session.folder / "verdicts.json").write_text(json.dumps({"chosen": DRAWN}))
    explorer = Explorer(made)
    before = explorer.study(STUDY, session.folder.name)
    assert explorer.study(STUDY, session.folder.name) is before
    finish(made, session.tasks[5])
    assert explorer.study(STUDY, session.folder.name)["facts"]["done"] == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "folder"), [("nothing", "demo"), (STUDY, "huge"), (STUDY, "demo-../.."), ("../x", "demo"), (STUDY, "")]
)
def test_what_is_no_study_has_no_page(explorer, study, folder):
    with pytest.raises(SaccadeError):
        explorer.study(study, folder)


@pytest.mark.slow
def test_an_address_that_is_none_is_not_linked(explorer, report):
    from saccade.web.studies import safe_url

    assert safe_url("javascript:alert(1)") == ""
    assert safe_url("https://example.org") == "https://example.org"


def test_a_profile_is_read_as_it_was_written(small):
    put_profile(small.root / "profiles" / "mine-1")
    (told,) = profiles.all_of(small)
    assert told["rows"][0]["estimate"]["value"] == 0.5
    assert "details" not in told


def test_a_profile_behind_a_link_out_of_the_lab_is_none(small, tmp_path):
    put_profile(tmp_path / "secret")
    put_profile(small.root / "profiles" / "mine-1")
    os.symlink(tmp_path / "secret", small.root / "profiles" / "secret")
    assert profiles.names(small) == ["mine-1"]


def test_a_damaged_profile_is_named(small):
    home = small.root / "profiles" / "mine-1"
    home.mkdir(parents=True)
    (home / "profile.json").write_text("{")
    assert "damaged" in profiles.all_of(small)[0]["error"]


def test_an_empty_lab_has_pages_too(tmp_path):
    explorer = Explorer(Lab(tmp_path / "nothing"))
    explorer.catalogue.look()
    assert explorer.about()["exists"] is False
    assert explorer.pulse()["states"] == {}
    assert all(not c["sittings"] for c in explorer.cards())


def test_the_modules_of_the_page_are_one_script():
    files = {k: v.decode() for k, v in page_files().items() if k.endswith(".js")}
    made = bundle(files, "main.js")
    assert all(f"module_{name.replace('.', '_')} = " in made for name in files)
    assert "\nimport " not in made and "\nexport " not in made


def test_a_module_that_imports_itself_is_refused():
    with pytest.raises(ValueError, match="imports itself"):
        bundle({"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";'}, "a.js")


def test_an_export_that_cannot_be_bundled_is_refused():
    with pytest.raises(ValueError, match="cannot be bundled"):
        bundle({"a.js": "export default 3;"}, "a.js")


@pytest.mark.slow
def test_a_figures_own_numbers_match_the_documents(explorer, report):
    """The page draws the values that the CSV is made of, so both come from one figure."""
    told = explorer.study(STUDY, report.name)["figures"]
    for figure, data in document.figures_of(
        session_of(explorer.lab.root).study,
        session_of(explorer.lab.root).table(),
        session_of(explorer.lab.root).verdicts(),
    ):
        shown = next(f for f in told if f["name"] == figure.name)["data"]
        if shown["kind"] == "Curves":
            values = [e["value"] for p in shown["panels"] for line in p["lines"] for e in line["estimates"]]
            assert values == [e.value for p in data.panels for line in p.lines for e in line.estimates]


def test_file_names_hold_no_path():
    assert file_name("study/../../etc") == "study_.._.._etc"


@pytest.mark.slow
def test_a_run_has_the_other_seeds_of_its_group(explorer, lab):
    told = explorer.run(key_of(lab, "lenet", backgrounds=8, seed=3))
    assert [s["seed"] for s in told["seeds"]] == [0, 1, 2, 3, 4]
