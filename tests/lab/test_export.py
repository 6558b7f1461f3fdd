"""Exports: what comes out of one lab goes into another unchanged, and nothing damaged or hostile does."""

import hashlib
import json
import lzma
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

import saccade
from saccade.lab import export, pipeline, registration, seeds
from saccade.lab.plan import TRAINING, table_of
from saccade.lab.store import Lab, seal, unseal, write_atomic
from saccade.spec import DamagedFile, Probe, Recipe, Run, SaccadeError, Task

PROBE = Probe("accuracy", n=10)


def a_lab(folder, seeds=3):
    lab = Lab(folder).open()
    tasks = []
    for seed in range(seeds):
        run = Run("lenet", "digits_on_backgrounds", Recipe(64), seed)
        lease = lab.claim(run, {"versions": {}})
        rows = [{"metric": "accuracy", "value": 0.5 + seed / 10, "n": 10, "at": {"split": "id"}}]
        lab.put_rows(run.key, PROBE, 1, rows, b"outcomes of images")
        lab.put_rows(run.key, PROBE, 1, rows, share=0.75)
        lab.put_rows(run.key, TRAINING, 1, [{"metric": "parameters", "value": 62006, "n": 1, "at": {}}])
        lab.save_milestone(run.key, 0.75, b"weights on the way")
        lab.finish(run.key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 4}, b"weights")
        lease.release()
        tasks.append(Task(run, (PROBE,)))
    return lab, tasks


def test_an_import_into_an_empty_lab_gives_the_same_tables(tmp_path):
    lab, tasks = a_lab(tmp_path / "a")
    assert export.write(lab, tmp_path / "runs.jsonl.xz") == 3
    other = Lab(tmp_path / "b")
    assert len(export.read(other, tmp_path / "runs.jsonl.xz").added) == 3
    for share in (0.75, 1.0):
        assert table_of(other, tasks, share) == table_of(lab, tasks, share)
    assert all(other.damage(t.run.key) == [] for t in tasks)


def test_a_second_import_adds_only_what_is_missing(tmp_path):
    lab, tasks = a_lab(tmp_path / "a")
    export.write(lab, tmp_path / "x")
    lab.put_rows(tasks[0].run.key, Probe("accuracy", n=20), 1, [])
    other, _ = a_lab(tmp_path / "b")
    export.write(lab, tmp_path / "y")
    came = export.read(other, tmp_path / "y")
    assert (came.added, len(came.already_here), came.rows_added) == ((), 3, 1)
    assert other.weights(tasks[0].run.key) == b"weights"  # its own files stay


def test_an_imported_run_says_that_it_has_no_weights(tmp_path):
    lab, tasks = a_lab(tmp_path / "a", 1)
    export.write(lab, tmp_path / "x")
    other = Lab(tmp_path / "b")
    export.read(other, tmp_path / "x")
    with pytest.raises(SaccadeError, match="came from an export"):
        other.weights(tasks[0].run.key)


def test_studies_registration_goes_along(tmp_path):
    lab, _ = a_lab(tmp_path / "a", 1)
    write_atomic(lab.study_folder("digits") / "large" / "registration.json", seal({"entries": []}))
    export.write(lab, tmp_path / "x")
    export.read(Lab(tmp_path / "b"), tmp_path / "x")
    assert (tmp_path / "b/studies/digits/large/registration.json").exists()


@pytest.mark.parametrize(("here", "comes", "kept"), [(100.0, 300.0, 300.0), (300.0, 100.0, 300.0), (100.0, "x", 100.0)])
def test_the_clock_of_a_campaign_only_goes_forward(tmp_path, here, comes, kept):
    """An export of a later state says how long the study has taken by then; one of an earlier state does not."""
    for name, seconds in (("a", comes), ("b", here)):
        lab = Lab(tmp_path / name).open()
        write_atomic(lab.study_folder("digits") / "large" / "wall.json", seal({"seconds": seconds, "sittings": 1}))
    export.write(Lab(tmp_path / "a"), tmp_path / "x.jsonl.xz")
    export.read(Lab(tmp_path / "b"), tmp_path / "x.jsonl.xz")
    assert unseal(tmp_path / "b/studies/digits/large/wall.json")["seconds"] == kept


def test_looks_of_a_later_export_are_joined_with_those_that_a_lab_has(tmp_path):
    """Without them the seeds that it brings would not be in any table."""
    places = []
    for name, looks in (("a", [(5, ()), (10, ("CNN", "MHA")), (20, ("CNN",))]), ("b", [(5, ()), (10, ("ViT",))])):
        places.append(Lab(tmp_path / name).open().study_folder("digits") / "large")
        seeds.write(places[-1], seeds.Seeds(fixed=(7,) if name == "b" else (9,), looks=tuple(looks)))
    export.write(Lab(tmp_path / "a"), tmp_path / "x")
    export.read(Lab(tmp_path / "b"), tmp_path / "x")
    both = ((5, ()), (10, ("CNN", "MHA", "ViT")), (20, ("CNN",)))
    assert seeds.read(places[1]) == seeds.Seeds(fixed=(7,), looks=both)
    for wrong in ("many", [[10, [1]]], [["10", []]], [10]):
        write_atomic(places[0] / "looks.json", seal({"fixed": [], "looks": wrong}))
        export.write(Lab(tmp_path / "a"), tmp_path / "y")
        with pytest.raises(DamagedFile, match="not what its key says"):
            export.read(Lab(tmp_path / "b"), tmp_path / "y")
    assert seeds.read(places[1]).looks == both


def test_a_registration_that_goes_on_where_the_lab_s_own_ends_is_taken(tmp_path):
    def entry(runs, date="2026-01-01"):
        claim = {"declared": {"tested": "above 0"}, "test": "", "estimate": {"rows": "", "value": [runs / 7, 0.1, 0.9]}}
        return {"date": date, "version": "1", "runs": runs, "claims": {"D-H1": claim}}

    def there(name, *entries):
        place = Lab(tmp_path / name).open().study_folder("digits") / "large"
        write_atomic(place / "registration.json", seal({"study": "digits", "entries": list(entries)}))
        return place

    here = there("b", entry(0))
    for runs, *comes in ((0, entry(3), entry(5)), (5, entry(0), entry(5)), (5, entry(0))):  # another's, later, earlier
        there("a", *comes)
        export.write(Lab(tmp_path / "a"), tmp_path / "x")
        export.read(Lab(tmp_path / "b"), tmp_path / "x")
        assert registration.read(here)[-1]["runs"] == runs


def rewritten(source, target, change):
    """The export with one line changed and its checksum made right again, as a hostile author would."""
    lines = lzma.decompress(source.read_bytes()).decode().splitlines()[:-1]
    document = json.loads(lines[1])
    change(document)
    lines[1] = json.dumps(document)
    text = "".join(line + "\n" for line in lines)
    text += json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
    target.write_bytes(lzma.compress(text.encode()))


def a_row(document):
    return next(rows["rows"][0] for rows in document["rows"].values() if rows["rows"])


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(key="../../../etc/passwd"),
        lambda d: d["rows"].update({"../../x.json": {"rows": []}}),
        lambda d: d["described"]["run"].update(seed=99),
        lambda d: d.update(rows=[1]),
        lambda d: d.pop("done"),
        lambda d: d["done"].update(outcome="won"),
        lambda d: d["done"].update(seconds="\x1b[2J"),
        lambda d: d["done"].update(seconds=float("nan")),
        lambda d: d["done"].pop("reason"),
        lambda d: d["done"].update(sha256="of something else"),
        lambda d: d["described"].pop("facts"),
        lambda d: d["described"].update(facts=[]),
        lambda d: d["described"]["facts"].update(versions=["model"]),
        lambda d: d["described"].update(later="now"),
        lambda d: a_row(d).update(value=float("inf")),
        lambda d: a_row(d).update(value=10**400),
        lambda d: a_row(d).update(at={"split": {"deep": []}}),
        lambda d: next(iter(d["rows"].values())).update(version="1"),
        lambda d: d["rows"].update({"accuracy.json\n": next(iter(d["rows"].values()))}),
    ],
)
def test_a_hostile_export_writes_nothing(tmp_path, change):
    lab, _ = a_lab(tmp_path / "a", 1)
    export.write(lab, tmp_path / "x")
    rewritten(tmp_path / "x", tmp_path / "y", change)
    with pytest.raises(DamagedFile, match="is not what its key says"):
        export.read(Lab(tmp_path / "b"), tmp_path / "y")
    assert not (tmp_path / "b").exists()


def packed(target, *lines):
    """An export of these lines with a checksum that is right."""
    text = "".join(line + "\n" for line in (json.dumps({"format": export.FORMAT}), *lines))
    text += json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
    target.write_bytes(lzma.compress(text.encode()))
    return target


@pytest.mark.parametrize(
    "line",
    [
        {"study": "../../x/registration.json", "document": {}},
        {"study": "a/b/registration.json\n", "document": {}},
        {"study": "a/b/registration.json", "document": [1]},
        {"study": "a/b/registration.json"},
        {"study": 5, "document": {}},
        {"neither": 1},
        [1],
        None,
    ],
)
def test_a_file_of_a_study_is_one_or_nothing_is_written(tmp_path, line):
    with pytest.raises(DamagedFile, match="export it again"):
        export.read(Lab(tmp_path / "b"), packed(tmp_path / "x", json.dumps(line)))
    assert not (tmp_path / "b").exists()


def test_a_small_file_that_unpacks_to_much_takes_little_memory(tmp_path):
    """Runs of one seed each, 60 MB of them: what is kept while they are checked is one line."""
    lab, _ = a_lab(tmp_path / "a", 1)
    export.write(lab, tmp_path / "x")
    line = lzma.decompress((tmp_path / "x").read_bytes()).decode().splitlines()[1]
    many = packed(tmp_path / "y", *[line[:-1] + ',"padding":"' + " " * 200_000 + '"}'] * 300)
    assert many.stat().st_size < 100_000
    tracemalloc.start()
    try:
        assert len(export.read(Lab(tmp_path / "b"), many).already_here) == 299
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def another_number(content):
    text = lzma.decompress(content)
    assert text.count(b'"value":0.5,') == 2
    return lzma.compress(text.replace(b'"value":0.5,', b'"value":0.6,'))


@pytest.mark.parametrize("spoil", [lambda b: b[:-20], lambda b: b"no xz", lambda b: b"", another_number])
def test_a_damaged_export_is_one_sentence(tmp_path, spoil):
    lab, _ = a_lab(tmp_path / "a", 1)
    export.write(lab, tmp_path / "x")
    (tmp_path / "x").write_bytes(spoil((tmp_path / "x").read_bytes()))
    with pytest.raises(DamagedFile, match="export it again"):
        export.read(Lab(tmp_path / "b"), tmp_path / "x")
    with pytest.raises(SaccadeError, match="no file"):
        export.read(Lab(tmp_path / "b"), tmp_path / "nothing")


def test_an_export_dates_what_changed_of_the_claims_itself(tmp_path, monkeypatch):
    """Otherwise every import would date it anew, and a verdict would read differently every day."""
    from saccade.cli.commands import main

    lab, _ = a_lab(tmp_path / "a")
    session = pipeline.open_session("digits_on_backgrounds", "large", tmp_path / "a")
    changed = next(c for c in session.study.claims if c.id == "D-H1")
    of_before = replace(session.study, claims=(replace(changed, statement="Something else."),))
    registration.review(of_before, session.home, table_of(lab, session.tasks), 3)
    ran = replace(session.tasks[0], run=Run("lenet", "digits_on_backgrounds", Recipe(64), 0))
    monkeypatch.setattr(pipeline, "open_session", lambda *_, **__: replace(session, tasks=(ran,)))
    main(["lab", "export", str(tmp_path / "x"), "--study", session.study.name, "--lab", str(tmp_path / "a")])
    export.read(Lab(tmp_path / "b"), tmp_path / "x")
    said = registration.sentences(registration.read(tmp_path / "b/studies" / session.study.name / "large"), (changed,))
    assert said["D-H1"].startswith("changed after 1 runs") and said["D-H1"].endswith("statement")


@pytest.mark.slow
def test_a_study_is_judged_the_same_from_an_export_and_after_a_run_is_done_again(tmp_path):
    """The whole way with real workers: `verdicts.json` to the byte, and every row of a repeated run."""
    drawn = {"digits": "procedural_digits", "scenes": "procedural_textures", "images": 128}
    study = ("digits_on_backgrounds", "smoke")

    def verdicts(lab):
        return pipeline.write(pipeline.open_session(*study, lab, drawn)).paths["verdicts.json"].read_bytes()

    def rows(ran):  # time is the one thing that a repeated run does not give again
        return [r for r in ran.table() if not r["metric"].endswith("seconds")]

    ran = saccade.run(*study, lab=tmp_path / "a", quiet=True, jobs=1, **drawn)
    said = verdicts(tmp_path / "a")
    export.write(Lab(tmp_path / "a"), tmp_path / "runs.jsonl.xz")
    export.read(Lab(tmp_path / "b"), tmp_path / "runs.jsonl.xz")
    assert verdicts(tmp_path / "b") == said
    lab = Lab(tmp_path / "a")
    before = rows(ran)
    shutil.rmtree(lab.folder(next(t.run.key for t in ran.tasks)))
    assert rows(saccade.run(*study, lab=tmp_path / "a", quiet=True, jobs=1, **drawn)) == before
    assert verdicts(tmp_path / "a") == said


def test_several_files_are_imported_at_once_and_each_says_what_came(tmp_path, capsys):
    from saccade.cli.commands import main

    lab, tasks = a_lab(tmp_path / "a", 2)
    files = [str(tmp_path / f"{i}.jsonl.xz") for i in range(2)]
    for file, task in zip(files, tasks, strict=True):
        export.write(lab, Path(file), [task.run.key])
    main(["lab", "import", *files, "--lab", str(tmp_path / "b")])
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{file}: added: 1, already here: 0, rows added: 0" for file in files]
    (tmp_path / "broken").write_bytes(b"no export")
    with pytest.raises(SystemExit):
        main(["lab", "import", str(tmp_path / "broken"), files[0], "--lab", str(tmp_path / "c")])
    assert "not imported" in (said := capsys.readouterr().out) and "added: 1" in said
    assert len(Lab(tmp_path / "c").keys()) == 1
