"""Leases on a folder that machines share: clocks that differ, answers that get lost, views that are old."""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from saccade.lab import lease


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT", 0.05)
    monkeypatch.setattr(lease, "DEAD_AFTER", 0.4)
    monkeypatch.setattr(lease, "_seen", {})
    monkeypatch.setattr(lease, "_dead", set())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lease"


def elsewhere(path, beat=0, token="theirs"):
    """A lease as another machine would have written it."""
    body = {"token": token, "host": "far", "machine": "far 1234", "pid": 1, "born": 1.0}
    path.write_bytes(json.dumps(body).encode() + b"\n%012d" % beat)


def test_one_lease_at_a_time(path):
    mine = lease.take(path)
    assert mine is not None and mine.held() and lease.take(path) is None
    mine.release()
    assert not path.exists() and lease.take(path) is not None


@pytest.mark.parametrize("wrong", [-1e6, 1e6], ids=["slow clock", "fast clock"])
def test_another_machine_lives_by_its_counter_whatever_its_clock_says(path, wrong):
    deadline, beat = time.monotonic() + 1.0, 0
    while time.monotonic() < deadline:
        beat += 1
        elsewhere(path, beat)
        os.utime(path, (time.time() + wrong,) * 2)
        assert lease.take(path) is None
        time.sleep(0.1)


@pytest.mark.parametrize("wrong", [-1e6, 0, 1e6], ids=["slow clock", "same clock", "fast clock"])
def test_another_machine_is_dead_when_its_counter_stands_still(path, wrong):
    elsewhere(path)
    os.utime(path, (time.time() + wrong,) * 2)
    assert lease.take(path) is None  # seen for the first time: nothing is known yet
    time.sleep(0.5)
    assert lease.take(path) is not None


def test_whoever_must_know_can_say_that_a_holder_is_dead(path):
    elsewhere(path)
    assert lease.take(path) is None
    lease.believe_dead("theirs")
    assert lease.take(path) is not None


def test_the_holder_gives_signs_of_life(path):
    mine = lease.take(path)
    first = lease.look(path).beat
    time.sleep(0.5)
    assert lease.look(path).beat != first and not mine.lost.is_set()
    mine.release()


def test_a_holder_that_slept_cannot_write_into_its_successors_lease(path, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT", 1000)  # asleep
    mine = lease.take(path)
    lease.believe_dead(mine.token)
    other = lease.take(path)
    before = path.read_bytes()
    os.pwrite(mine.handle, b"9" * lease.WIDTH, mine.offset)
    assert path.read_bytes() == before and not mine.held() and other.held()
    mine.release()
    assert other.held()  # not his to remove


def test_a_lost_lease_is_noticed(path):
    mine = lease.take(path)
    elsewhere(path)
    assert mine.lost.wait(5)


def test_a_lab_that_has_gone_away_is_no_lost_lease(path, tmp_path):
    there = threading.Event()
    there.set()
    mine = lease.take(path, there.is_set)
    there.clear()
    away = tmp_path / "away"
    os.rename(path, away)
    time.sleep(0.3)
    assert not mine.lost.is_set()
    os.rename(away, path)
    there.set()
    time.sleep(0.3)
    assert not mine.lost.is_set() and mine.held()


def test_a_lost_answer_of_the_server_is_no_lost_lease(path, monkeypatch):
    """The client asks twice, the first request made the link, and the answer to the second is `exists`."""
    link = os.link

    def twice(source, target):
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", twice)
    assert lease.take(path) is not None


def test_without_hard_links_there_is_still_one_holder(path, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert lease.take(path) is not None and lease.take(path) is None


def test_an_observer_with_an_old_view_does_not_take_away_the_lease_of_a_successor(path):
    elsewhere(path)
    old = lease.look(path)
    lease.believe_dead("theirs")
    mine = lease.take(path)
    assert lease._remove_dead(path, old) is False and mine.held()


def test_an_undertaker_that_died_blocks_nobody(path):
    """The link that gives the right to take a dead lease away is there, and nobody does it."""
    elsewhere(path)
    lease.believe_dead("theirs")
    os.link(path, path.with_name(".lease." + hashlib.sha256(b"theirs").hexdigest()[:32] + ".tmp"))
    assert lease.take(path) is None
    time.sleep(0.5)
    assert lease.take(path) is None  # now the right is free again
    assert lease.take(path) is not None


def test_a_token_from_a_file_never_becomes_a_path(path, tmp_path):
    elsewhere(path, token="../../outside")
    lease.believe_dead("../../outside")
    assert lease.take(path) is not None
    assert {p.name for p in tmp_path.iterdir()} == {"lease"}


@pytest.mark.parametrize("text", [b"", b"{", b"null", b"[]", b'{"host": 1}', b"\xff\xfe"])
def test_a_garbled_lease_is_taken_over_when_nothing_happens_to_it(path, text):
    path.write_bytes(text)
    lease.take(path)
    time.sleep(0.5)
    assert lease.take(path) is not None


def test_a_dead_process_of_this_machine_is_known_at_once(path):
    code = "import sys, os, pathlib; from saccade.lab import lease; lease.take(pathlib.Path(sys.argv[1])); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.exists() and lease.take(path) is not None


def test_a_process_that_got_the_number_of_a_dead_one_is_not_taken_for_it(path):
    mine = lease.take(path)
    body = json.loads(path.read_bytes().partition(b"\n")[0])
    mine.release()
    path.write_bytes(json.dumps({**body, "token": "before", "born": body["born"] - 1}).encode() + b"\n%012d" % 0)
    assert lease.take(path) is not None


@pytest.mark.parametrize("seed", range(8))
def test_old_views_and_slow_writers_leave_one_holder(path, seed, monkeypatch):
    """Every look may show what was there up to 50 ms ago, every step may be delayed; a dead lease is up for taking."""
    elsewhere(path)
    lease.believe_dead("theirs")
    draw, look, past = random.Random(seed), lease.look, {}

    def old_look(asked):
        time.sleep(draw.uniform(0, 0.02))
        when, seen = past.get((threading.get_ident(), asked), (0.0, None))
        if time.monotonic() - when > draw.uniform(0, 0.05):
            seen = look(asked)
            past[threading.get_ident(), asked] = (time.monotonic(), seen)
        return seen

    monkeypatch.setattr(lease, "look", old_look)
    monkeypatch.setattr(lease.Lease, "start", lambda self: self)
    taken = []
    threads = [threading.Thread(target=lambda: taken.append(lease.take(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.setattr(lease, "look", look)
    assert sum(t is not None and t.held() for t in taken) == 1
