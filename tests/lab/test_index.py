"""The index: the same answers as the folders, deleted without loss, and no folder read twice."""

import os
import sqlite3
import time
from pathlib import Path

import pytest

from benchmarks.lab import PROBE, synthetic, trivial
from saccade.lab import index, lease, plan, store
from saccade.lab.store import Lab
from saccade.spec import Probe


@pytest.fixture
def lab(tmp_path):
    synthetic(tmp_path / "lab", 6)
    return Lab(tmp_path / "lab")


@pytest.fixture
def tasks():
    return [trivial(seed, [PROBE]) for seed in range(6)]


def counted(lab, keys=None):
    return {state: n for state, n in index.status(lab, keys)[0].items() if n}


def test_it_counts_what_the_folders_say_and_reads_each_once(lab):
    first, again = index.status(lab), index.status(lab)
    assert first[0] == {"finished": 6, "running": 0, "waiting": 0} == again[0]
    assert (first[2].read, again[2].read) == (6, 0) and first[1] > 6 * 1000


def test_a_table_is_the_same_through_the_index_and_opens_no_file_the_second_time(lab, tasks, monkeypatch):
    plain = plan.table_of(lab, tasks)
    for _ in range(2):
        with index.reading(lab) as read:
            assert plan.table_of(read, tasks) == plain
    monkeypatch.setattr(store, "unseal", lambda path: pytest.fail(f"{path} was read"))
    with index.reading(lab) as read:
        assert plan.table_of(read, tasks) == plain


def test_what_changes_is_seen(lab, tasks):
    counted(lab)
    key = tasks[0].run.key
    lab.put_rows(key, Probe("accuracy", n=7), 1, [{"metric": "accuracy", "value": 0.25, "n": 7, "at": {}}])
    with index.reading(lab) as read:
        assert read.rows(key, Probe("accuracy", n=7))["rows"][0]["value"] == 0.25
    lab.finish(key, {"outcome": "failed", "reason": "", "seconds": 0.0, "step": 0}, None)
    assert counted(lab) == {"finished": 5, "failed": 1}
    lab.set_aside(key, "stale")
    assert counted(lab) == {"finished": 5}


def test_two_changes_within_one_tick_of_the_clock_are_seen(lab, tasks):
    """The folder's time may be too coarse to tell a second change from the first."""
    key = tasks[0].run.key
    lab.finish(key, {"outcome": "failed", "reason": "", "seconds": 0.0, "step": 0}, None)
    stamp = lab.folder(key).stat().st_mtime_ns
    assert counted(lab)["failed"] == 1
    lab.finish(key, {"outcome": "diverged", "reason": "", "seconds": 0.0, "step": 0}, None)
    os.utime(lab.folder(key), ns=(stamp, stamp))
    assert counted(lab)["diverged"] == 1


@pytest.mark.parametrize("harm", ["deleted", "garbage", "empty", "old version", "truncated"])
def test_a_harmed_index_is_made_again(lab, harm):
    counted(lab)
    (path,) = (lab.root / "index").iterdir()
    if harm == "deleted":
        path.unlink()
    elif harm == "garbage":
        path.write_bytes(b"no database at all" * 1000)
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
    counts, _, done = index.status(lab)
    assert counts["finished"] == 6 and done.read == 6
    assert index.status(lab)[2].read == 0


def test_a_lab_that_cannot_be_written_is_still_counted(lab, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert counted(lab) == {"finished": 6}
    assert not (lab.root / "index").exists()


def test_an_index_that_another_command_holds_is_done_without(lab, monkeypatch):
    counted(lab)
    (path,) = (lab.root / "index").iterdir()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(index, "PATIENCE", 0.1)
    assert counted(lab) == {"finished": 6}
    other.close()
    assert path.exists()


def test_a_damaged_run_is_counted_as_such(lab, tasks):
    path = lab.folder(tasks[0].run.key) / "done.json"
    path.write_bytes(path.read_bytes()[:-5])
    assert counted(lab) == {"finished": 5, "damaged": 1}


def test_running_waiting_and_what_the_lab_lacks(lab, monkeypatch):
    monkeypatch.setattr(lease, "DEAD_AFTER", 0.3)
    held, left = (lab.claim(trivial(seed).run, {}) for seed in (100, 101))
    left.release()
    keys = [trivial(seed, [PROBE]).run.key for seed in (0, 100, 101, 102)]
    assert counted(lab, keys) == {"finished": 1, "running": 1, "waiting": 2}
    held.release()
    path = lab.folder(trivial(103).run.key) / "lease"
    path.parent.mkdir()
    path.write_text('{"token": "x", "host": "far", "machine": "far away", "pid": 1, "born": 1.0}\n000000000001')
    assert counted(lab)["running"] == 1
    time.sleep(0.4)
    monkeypatch.setattr(lease, "_seen", {})  # another command, a while later: the index remembers what was seen
    assert "running" not in counted(lab)
