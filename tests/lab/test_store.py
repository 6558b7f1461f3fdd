"""The lab folder: atomic, checked, shared, merged."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.lab.store import TRAINING, Lab, seal, unseal, write_atomic
from saccade.spec import DamagedFile, Probe, Recipe, Run, SaccadeError, Settings, plain

PROBE = Probe("accuracy", n=3)


def a_run(seed=0):
    return Run("lenet", "d", Recipe(images=1), seed, data_args=Settings(backgrounds=2))


def finished(lab, seed=0):
    run = a_run(seed)
    lease = lab.claim(run, {"versions": {}})
    lab.put_rows(run.key, TRAINING, 1, [{"metric": "parameters", "value": 7, "n": 1, "at": {}}])
    lab.put_rows(run.key, PROBE, 1, [{"metric": "accuracy", "value": 0.5, "n": 3, "at": {}}], b"outcomes")
    lab.finish(run.key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 1}, b"weights")
    lease.release()
    return run.key


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / "lab").open()


def test_sealed_json_notices_any_change(tmp_path):
    path = tmp_path / "a.json"
    write_atomic(path, seal({"x": [1, 2.5, "ü"], "y": None}))
    assert unseal(path) == {"x": [1, 2.5, "ü"], "y": None}
    text = path.read_bytes()
    for i in range(0, len(text), 7):
        path.write_bytes(text[:i] + bytes([text[i] ^ 1]) + text[i + 1 :])
        with pytest.raises(DamagedFile, match=r"a\.json is damaged"):
            unseal(path)
    for broken in (b"", b"{", b"[]", b"null", text[: len(text) // 2]):
        path.write_bytes(broken)
        with pytest.raises(DamagedFile):
            unseal(path)


def test_a_claimed_run_is_nobody_elses_until_released(lab):
    lease = lab.claim(a_run(), {})
    assert lease is not None and lab.holder(a_run().key)["pid"] == os.getpid()
    assert lab.claim(a_run(), {}) is None
    assert lab.claim(a_run(1), {}) is not None
    lease.release()
    assert lab.claim(a_run(), {}) is not None


def test_a_dead_processs_lease_is_taken_over_at_once(lab):
    code = (
        "import sys, os; from saccade.lab.store import Lab; from saccade.spec import *;"
        "lab = Lab(sys.argv[1]);"
        "lab.claim(Run('lenet', 'd', Recipe(images=1), 0, data_args=Settings(backgrounds=2)), {}); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(lab.root)], check=False)
    assert (lab.folder(a_run().key) / "lease").exists()
    assert lab.claim(a_run(), {}) is not None


def test_a_run_that_is_resumed_with_other_kernels_says_so(lab):
    for facts in ({"kernels": "native"}, {"kernels": "native"}, {"kernels": "off"}, {"kernels": "off"}):
        lab.claim(a_run(), facts).release()
    assert lab.described(a_run().key)["facts"] == {"kernels": "native"}
    assert lab.described(a_run().key)["later"] == [{"kernels": "off"}]
    assert lab.damage(a_run().key) == []


@pytest.mark.slow
def test_many_processes_claim_each_run_once(lab):
    code = (
        "import sys, time; from saccade.lab.store import Lab; from saccade.spec import *; lab = Lab(sys.argv[1])\n"
        "got = [s for s in range(30) if lab.claim(Run('lenet', 'd', Recipe(images=1), s, "
        "data_args=Settings(backgrounds=2)), {})]\nprint(*got); sys.stdout.flush(); time.sleep(1.5)"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(lab.root)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    got = [w.communicate()[0].split() for w in workers]
    assert sorted(int(s) for some in got for s in some) == list(range(30))


@pytest.mark.parametrize("file", ["weights.safetensors", "done.json", "run.json", "rows", "each"])
def test_one_flipped_byte_anywhere_is_named(lab, file):
    key = finished(lab)
    assert lab.damage(key) == []
    path = lab.folder(key) / file
    if path.is_dir():
        (path,) = path.glob("accuracy*")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    assert [Path(p).name for p in lab.damage(key)] == [path.name]
    if file in ("weights.safetensors", "done.json"):
        with pytest.raises(DamagedFile):
            lab.weights(key)


def test_a_missing_weight_file_and_a_torn_state_are_damage(lab):
    key = finished(lab)
    (lab.folder(key) / "weights.safetensors").unlink()
    assert lab.damage(key) == ["weights.safetensors"]
    lab.save_state(key, b"state bytes")
    assert lab.load_state(key) == b"state bytes"
    path = lab.folder(key) / "state.sealed"
    path.write_bytes(path.read_bytes()[:-1])
    assert "state.sealed" in lab.damage(key)


def test_a_garbled_lease_or_a_missing_description_is_no_traceback(lab):
    key = finished(lab)
    for text in ("", "{}", "null", '{"host": 1}', '{"host": "x", "pid": "?"}'):
        (lab.folder(key) / "lease").write_text(text)
        lab.holder(key)
    (lab.folder(key) / "run.json").unlink()
    assert lab.damage(key) == ["run.json"]


@pytest.mark.parametrize("name", ["run.json", f"rows/{TRAINING.key}.json"])
def test_what_a_finished_run_must_hold_is_missed(lab, name):
    key = finished(lab)
    (lab.folder(key) / name).unlink()
    assert lab.damage(key) == [name]


def test_a_run_that_failed_needs_no_rows(lab):
    lab.claim(a_run(), {}).release()
    lab.finish(a_run().key, {"outcome": "failed", "reason": "?", "seconds": 0.0, "step": 0}, None)
    assert lab.damage(a_run().key) == []


def test_set_aside_keeps_and_frees(lab):
    key = finished(lab)
    target = lab.set_aside(key, "damaged")
    assert (target / "weights.safetensors").exists() and lab.keys() == []
    assert lab.prune(dry_run=True) and target.exists()
    assert list(lab.prune()) == [f"aside/{key}-damaged-1"] and not target.exists()


def test_merge_copies_finished_runs_once_and_names_damaged_ones(tmp_path):
    a, b = Lab(tmp_path / "a").open(), Lab(tmp_path / "b").open()
    first, second, third = finished(a, 0), finished(b, 1), finished(b, 2)
    (b.folder(third) / "weights.safetensors").write_bytes(b"other")
    b.claim(a_run(3), {}).release()
    told = a.merge(b, dry_run=True)
    assert told["copied"] == [second] and a.keys() == [first]
    told = a.merge(b)
    assert told["copied"] == [second] and told["damaged"] == [third] and told["unfinished"] == [a_run(3).key]
    assert a.keys() == sorted([first, second]) and a.damage(second) == []
    assert a.merge(b)["already here"] == [second]


@pytest.mark.parametrize("where", ["weights.safetensors", "rows/other.json", "each/deep", "."])
def test_merge_follows_no_link_out_of_a_lab(tmp_path, where):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "diary").write_text("private")
    a, b = Lab(tmp_path / "a").open(), Lab(tmp_path / "b").open()
    key = finished(b)
    if where == ".":
        b.folder(key).rename(secret / "run")
        b.folder(key).symlink_to(secret / "run")
    else:
        (b.folder(key) / where).unlink(missing_ok=True)
        (b.folder(key) / where).symlink_to(secret if where == "each/deep" else secret / "diary")
    assert a.merge(b)["links"] == [key] and a.keys() == []
    finished(a)
    a.merge(b)
    assert not any(p.is_symlink() or p.name == "diary" for p in a.root.rglob("*"))


def test_merge_onto_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    a, b = Lab(tmp_path / "a").open(), Lab(tmp_path / "b").open()
    finished(b)

    def full(source, target, **_):
        raise OSError(28, "No space left on device", target)

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(SaccadeError, match="no space left"):
        a.merge(b)
    assert a.keys() == [] and not list(a.root.glob(".incoming*"))


def test_prune_takes_what_is_never_read_again(lab):
    key, working = finished(lab), a_run(1)
    held = lab.claim(working, {})
    lab.save_state(key, b"left behind")
    lab.save_state(working.key, b"needed")
    dead = {"token": "x", "host": socket.gethostname(), "pid": 2**22 + 1, "born": 1.0}
    (lab.folder(key) / "lease").write_text(json.dumps(dead))
    (lab.folder(key) / "rows" / ".a.json.1.2.tmp").write_text("half")
    (lab.root / ".costs.json.1.2.tmp").write_text("half")
    os.utime(lab.root / ".costs.json.1.2.tmp", (1, 1))
    gone = lab.prune()
    assert set(gone) == {
        f"runs/{key}/lease",
        f"runs/{key}/state.sealed",
        f"runs/{key}/rows/.a.json.1.2.tmp",
        ".costs.json.1.2.tmp",
    }
    assert lab.load_state(working.key) == b"needed" and lab.holder(working.key)
    assert lab.damage(key) == [] and lab.prune() == {}
    held.release()


@pytest.mark.parametrize("name", ["run.json", "done.json", "state.sealed", "weights.safetensors", "rows", "each"])
def test_a_folder_in_place_of_a_file_is_named_as_damage(lab, name):
    key = finished(lab)
    path = lab.folder(key) / name
    if path.is_dir():
        (path,) = path.glob("accuracy*")
    path.unlink(missing_ok=True)
    path.mkdir()
    assert lab.damage(key) == [str(path.relative_to(lab.folder(key)))]


def test_json_nested_deeply_is_damage_or_nothing(lab):
    key = finished(lab)
    deep = "[" * 100_000
    (lab.folder(key) / "done.json").write_text(deep)
    (lab.folder(key) / "lease").write_text(deep)
    lab.holder(key)  # whoever that is
    assert lab.damage(key) == ["done.json"]


def test_every_word_of_damage_comes_with_a_remedy(lab):
    key = finished(lab)
    (lab.folder(key) / "done.json").write_text("{}")
    with pytest.raises(DamagedFile, match="--redo-damaged"):
        lab.done(key)


def test_merge_brings_new_measurements_of_a_run_that_is_here(tmp_path):
    a, b = Lab(tmp_path / "a").open(), Lab(tmp_path / "b").open()
    key = finished(a)
    assert finished(b) == key
    other = Probe("accuracy", n=9)
    b.put_rows(key, other, 1, [], None)
    a.merge(b)
    assert a.rows(key, other) is not None


def test_merge_names_a_run_that_is_damaged_here_and_leaves_it_alone(tmp_path):
    a, b = Lab(tmp_path / "a").open(), Lab(tmp_path / "b").open()
    key = finished(a)
    finished(b)
    (a.folder(key) / "weights.safetensors").write_bytes(b"other")
    told = a.merge(b)
    assert told["damaged here"] == [key] and told["already here"] == []


def test_an_unwritable_or_full_place_is_one_sentence(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SaccadeError, match="cannot write"):
        Lab(blocked / "lab").open()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaccadeError, match="no space left"):
        Lab(tmp_path / "lab").open()
    assert list((tmp_path / "lab").glob(".*tmp")) == []


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("done.json", {"outcome": "won", "reason": "", "seconds": 1.0, "step": 1, "files": {}}),
        ("done.json", {"outcome": "finished", "reason": "", "step": 1, "files": {}}),
        ("run.json", {"run": plain(a_run())}),
        ("run.json", {"run": plain(a_run()), "facts": {"versions": [1]}}),
        (f"rows/{PROBE.key}.json", {"probe": "accuracy", "settings": {}, "version": 1, "rows": [{"metric": "x"}]}),
        (f"rows/{PROBE.key}.json", {"probe": "accuracy", "settings": {}, "rows": []}),
        (f"failures/{PROBE.key}.json", {"probe": "accuracy", "version": 1}),
    ],
)
def test_a_right_checksum_does_not_make_a_document_right(tmp_path, name, document):
    """Whoever changes a file can change its checksum: what is read of another's lab is checked for its shape too."""
    lab, key = Lab(tmp_path).open(), a_run().key
    write_atomic(lab.folder(key) / name, seal(document))
    read = {
        "done.json": lambda: lab.done(key),
        "run.json": lambda: lab.described(key),
        f"rows/{PROBE.key}.json": lambda: lab.rows(key, PROBE),
        f"failures/{PROBE.key}.json": lambda: lab.failure(key, PROBE),
    }[name]
    with pytest.raises(DamagedFile, match="redo-damaged"):
        read()
    assert name in lab.damage(key)
