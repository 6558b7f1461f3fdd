"""Faults: a full disk at every write, damage to every kind of file, hanging, memory, signals, a lab that goes away.

After each of them the same command ends with the bits of an undisturbed lab. Kills at random moments are in
test_work.py and test_cluster.py, and in numbers in docs/reliability.md.
"""

import builtins
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from saccade.lab import launch, plan, store
from saccade.lab.perform import perform
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run, SaccadeError, Settings, Task

DRAWN = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
PROBE = Probe("accuracy", splits=("id",), n=20)


def task(seed=0, images=160, model="lenet", **recipe):
    return Task(
        Run(model, "digits_on_backgrounds", Recipe(images=images, watch=1, **recipe), seed, data_args=DRAWN), (PROBE,)
    )


def content(lab, key):
    """Every file of a run that must be the same whatever happened on the way; seconds and logs may differ."""
    out = {}
    for path in sorted(lab.folder(key).rglob("*")):
        name = str(path.relative_to(lab.folder(key)))
        if path.is_file() and name not in ("log.jsonl", "run.json"):
            out[name] = path.read_bytes()
    for name in [n for n in out if n.endswith(".json")]:
        document = json.loads(out[name])
        document.pop("seconds", None)
        document.pop("sha256")
        document["rows"] = [r for r in document.get("rows", ()) if r["metric"] != "train_seconds"]
        out[name] = document
    return out


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("calm") / "lab").open()
    list(perform(lab, task()))
    return content(lab, task().run.key)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setattr("saccade.lab.perform.SAVE_EVERY", 0.0)  # every step is saved: every kind of write happens
    return Lab(tmp_path / "lab").open()


class FullDisk:
    """The n-th operation that needs space fails, as do all after it."""

    def __init__(self, monkeypatch, root, fails_at):
        self.count, self.fails_at, self.kinds, self.root = 0, fails_at, [], str(root)
        self.open, self.link, self.mkdir = builtins.open, os.link, os.mkdir
        monkeypatch.setattr(builtins, "open", self._open)
        monkeypatch.setattr(io, "open", self._open)
        monkeypatch.setattr(os, "link", self._wrap(self.link))
        monkeypatch.setattr(os, "mkdir", self._wrap(self.mkdir))

    def _full(self, path):
        if not str(path).startswith(self.root):
            return
        self.count += 1
        self.kinds.append(Path(path).name)
        if self.count > self.fails_at:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def _wrap(self, real):
        def call(*words, **named):
            self._full(words[-1] if isinstance(words[-1], (str, os.PathLike)) else words[0])
            return real(*words, **named)

        return call

    def _open(self, file, mode="r", *words, **named):
        handle = self.open(file, mode, *words, **named)
        if not isinstance(file, int) and set(mode) & set("wax+"):
            try:
                self._full(file)  # the name is made, but its first byte finds no room
            except OSError:
                handle.close()
                raise
        return handle


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_costs_one_sentence_and_nothing_else(lab, calm, monkeypatch, record_property):
    with monkeypatch.context() as patch:
        disk = FullDisk(patch, lab.root, 10**9)
        list(perform(lab, task()))
    writes, kinds = disk.count, {name.strip(".").split(".")[0] for name in disk.kinds}
    assert {"lease", "run", "log", "state", "rows", "weights", "done", "0", "milestones"} <= kinds, kinds
    record_property("attempts", writes)
    for n in range(writes):
        shutil.rmtree(lab.folder(task().run.key), ignore_errors=True)
        with monkeypatch.context() as patch:
            FullDisk(patch, lab.root, n)
            events = list(perform(lab, task()))
        assert events[-1].kind in ("refused", "finished"), (n, events[-1])
        if events[-1].kind == "refused":
            assert "no space left" in events[-1].reason, (n, events[-1])
        assert lab.holder(task().run.key) is None, f"write {n} left a lease behind"
        assert plan.examine(lab, [task()]).damaged == {}, f"write {n} left damage behind"
        assert list(perform(lab, task()))[-1].kind == "finished"
        assert content(lab, task().run.key) == calm, f"write {n} changed the result"


def kinds_of_files(lab):
    """A finished run and one that was stopped, and every file of both."""
    list(perform(lab, task()))
    stopping = iter([False] * 3)
    list(perform(lab, task(1), stopping=lambda: next(stopping, True)))
    return [p for seed in (0, 1) for p in sorted(lab.folder(task(seed).run.key).rglob("*")) if p.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["truncated", "flipped", "emptied", "removed"])
def test_harm_to_any_file_is_noticed_or_does_not_matter(lab, calm, harm, tmp_path, record_property):
    files = kinds_of_files(lab)
    record_property("attempts", len(files))
    assert {p.name.split("-")[0] for p in files} >= {"run.json", "done.json", "log.jsonl", "weights.safetensors"}
    assert any(p.name == "state.sealed" for p in files) and any(p.parent.name == "milestones" for p in files)
    kept = tmp_path / "kept"
    shutil.copytree(lab.root, kept)
    for path in files:
        shutil.rmtree(lab.root)
        shutil.copytree(kept, lab.root)
        raw = bytearray(path.read_bytes())
        if harm == "truncated":
            path.write_bytes(raw[: len(raw) // 2])
        elif harm == "flipped":
            raw[len(raw) // 2] ^= 4
            path.write_bytes(raw)
        elif harm == "emptied":
            path.write_bytes(b"")
        else:
            path.unlink()
        found = plan.examine(lab, [task(), task(1)])
        for key in found.damaged:
            lab.set_aside(key, "damaged")
        for seed in (0, 1):
            assert list(perform(lab, task(seed)))[-1].kind == "finished", (harm, path)
        assert content(lab, task().run.key) == calm, (harm, path)
        assert not plan.examine(lab, [task(), task(1)]).todo, (harm, path)


def plugin(tmp_path, body):
    path = tmp_path / "mine.py"
    path.write_text(
        "import os, signal, time\nfrom torch import nn\nfrom saccade.registry import model\n\n\n"
        "@model(family='other')\n"
        f"def mine(classes=10, *, size=3):\n    '''Made to break.'''\n    {body}\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3072, classes))\n"
    )
    from saccade import registry

    registry.load_plugin(str(path))
    return str(path)


def do(lab, tasks, **how):
    return list(launch.local(tasks, lab, places=["cpu"], **how))


@pytest.mark.slow
def test_a_task_that_never_returns_is_ended_and_the_rest_goes_on(lab, tmp_path):
    file = plugin(tmp_path, "time.sleep(10_000)")
    events = do(lab, [task(model="mine"), task(1)], plugins=[file], silence=20.0)
    ended = {e.key: e for e in events if e.kind in ("failed", "finished")}
    assert "no sign of life for 20 s" in ended[task(model="mine").run.key].reason
    assert ended[task(1).run.key].kind == "finished"


@pytest.mark.slow
def test_a_run_that_wants_more_memory_than_there_is_fails_alone(lab, tmp_path):
    """Once as an error of the allocator, once as the kernel ends such processes."""
    file = plugin(tmp_path, "import torch; torch.empty(2**50)")
    events = do(lab, [task(model="mine"), task(1)], plugins=[file])
    assert {e.kind for e in events if e.kind in ("refused", "finished")} == {"refused", "finished"}
    assert "memory" in next(e.reason for e in events if e.kind == "refused")
    file = plugin(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    events = do(lab, [task(2, model="mine"), task(3)], plugins=[file])
    assert [e.kind for e in events].count("worker died") == launch.RETRIES
    assert "perhaps out of memory" in next(e.reason for e in events if e.kind == "failed")
    assert [e.kind for e in events].count("finished") == 1


RUN = ["run", "digits_on_backgrounds", "--scale", "smoke", "--only", "CNN", "--jobs", "2", "--json", "--set"]
CHOSEN = ["digits=procedural_digits", "scenes=procedural_textures"]


def command(lab, images):
    return [sys.executable, "-m", "saccade", *RUN, *CHOSEN, f"images={images}", "--lab", str(lab)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "before"),
    [
        (signal.SIGTERM, ()),
        (signal.SIGINT, ()),
        (signal.SIGTERM, ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")),  # as a command behind `nohup ... &` starts
    ],
    ids=["SIGTERM", "SIGINT", "SIGTERM where SIGINT is ignored"],
)
def test_a_polite_end_saves_within_ten_seconds(tmp_path, signum, before):
    lab = tmp_path / "lab"
    words = [*before, *command(lab, 320_000)]
    process = subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # these tests may run where it is ignored
    )
    deadline = time.time() + 120
    while not list(lab.glob("runs/*/log.jsonl")) and time.time() < deadline:
        time.sleep(0.1)
    time.sleep(2.0)
    began = time.monotonic()
    process.send_signal(signum)
    _, error = process.communicate(timeout=60)
    # Ten seconds on a machine that has time; a loaded one gets more, as the fact is that it saves and ends.
    spare = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert time.monotonic() - began < 10 * spare and process.returncode == 130 and "Traceback" not in error
    assert list(lab.glob("runs/*/state.sealed")) and not list(lab.glob("runs/*/lease"))


def test_a_lab_that_cannot_be_written_is_one_sentence_and_can_be_read(lab, monkeypatch):
    """As root permissions do not bind, so every way to write is refused here instead."""
    list(perform(lab, task()))

    def read_only(path, content):
        raise store.disk_error(OSError(errno.EROFS, "Read-only file system"), path)

    monkeypatch.setattr(store, "write_atomic", read_only)
    with pytest.raises(SaccadeError, match=r"cannot write .*Read-only file system.*--lab"):
        Lab(lab.root).open()
    assert plan.examine(lab, [task()]).complete == (task(),)
    assert len(plan.table_of(lab, [task()]))


@pytest.mark.slow
def test_a_lab_that_vanishes_and_comes_back_is_waited_for(lab, calm, monkeypatch):
    """As when a server restarts. Nothing is written to the empty place where the lab was."""
    monkeypatch.setattr(store, "AWAY", 60.0)
    away = lab.root.with_name("away")
    gone, back = threading.Event(), threading.Event()

    def server():
        gone.wait()
        os.rename(lab.root, away)
        lab.root.mkdir()  # a mount point without its mount
        time.sleep(1.5)
        assert list(lab.root.iterdir()) == [], "something was written to the mount point"
        lab.root.rmdir()
        os.rename(away, lab.root)
        back.set()

    thread = threading.Thread(target=server)
    thread.start()
    events = []
    for event in perform(lab, task(), stopping=lambda: (gone.set(), time.sleep(0.05))[0] and False):
        events.append(event.kind)
    thread.join()
    assert back.is_set() and events[-1] == "finished"
    assert content(lab, task().run.key) == calm


def test_a_lab_that_does_not_come_back_is_one_sentence(lab, monkeypatch):
    monkeypatch.setattr(store, "AWAY", 0.3)
    os.rename(lab.root, lab.root.with_name("away"))
    events = list(perform(lab, task()))
    assert [e.kind for e in events] == ["refused"] and "has gone away" in events[0].reason
    assert not lab.root.exists()


def test_a_lab_that_was_never_opened_is_refused_at_once(tmp_path):
    lab = store.Lab(tmp_path / "new")
    events = list(perform(lab, task()))
    assert [e.kind for e in events] == ["refused"] and ".open() makes one" in events[0].reason
    with pytest.raises(SaccadeError, match="there is no lab at"):
        lab.claim(task().run, {})
    assert not lab.root.exists()
    lab.open().claim(task().run, {}).release()
