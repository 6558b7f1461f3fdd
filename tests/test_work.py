"""Tasks done by real worker processes: once, shared, marked, and not lost to any kill."""

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from saccade.lab import launch, plan
from saccade.lab.perform import load, perform
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run, Settings, Task

DRAWN = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
PROBE = Probe("accuracy", splits=("id",), n=20)


def task(seed=0, images=160, arm="", model="lenet", **recipe):
    return Task(
        Run(model, "digits_on_backgrounds", Recipe(images=images, watch=1, **recipe), seed, data_args=DRAWN),
        (PROBE,),
        arm,
    )


def do(lab, *tasks, jobs=2, **how):
    return list(launch.local(tasks, lab, places=["cpu"] * jobs, **how))


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / "lab").open()


def test_a_task_is_trained_measured_and_never_done_again(lab):
    events = [e.kind for e in perform(lab, task())]
    assert events[-1] == "finished" and "probe" in events
    weights = lab.folder(task().run.key) / "weights.safetensors"
    stamp = weights.stat().st_mtime_ns
    found = plan.examine(lab, [task()])
    assert found.complete == (task(),) and not found.todo
    assert [e.kind for e in perform(lab, task())] == ["finished"]
    assert weights.stat().st_mtime_ns == stamp
    rows = plan.table_of(lab, [task()])
    assert rows.at(metric="parameters").rows[0]["value"] == 62_006
    assert len(rows.series("accuracy", split="id")) == 1


def test_workers_stay_in_the_callers_session_so_that_nice_counts_and_out_of_its_group_so_that_ctrl_c_does_not(lab):
    inbox = queue.Queue()
    process = launch.start(lab, "cpu", (), inbox).process
    try:
        assert os.getsid(process.pid) == os.getsid(0)
        assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    finally:
        process.stdin.close()  # a worker without a launcher ends
        process.wait()
        while inbox.get()[1] is not None:
            pass


def test_a_new_probe_measures_the_old_weights(lab):
    list(perform(lab, task()))
    more = Task(task().run, (PROBE, Probe("accuracy", splits=("ood",), n=20)))
    found = plan.examine(lab, [more])
    assert found.measure == (more,) and not found.train
    assert "step" not in [e.kind for e in perform(lab, more)]
    assert not plan.examine(lab, [more]).todo


def test_a_diverged_run_is_kept_and_not_done_again(lab):
    bad, good = task(0, optimizer="sgd", lr=1e6), task(1)
    ended = {e.key: e.kind for one in (bad, good) for e in perform(lab, one) if e.kind in ("finished", "diverged")}
    assert ended == {bad.run.key: "diverged", good.run.key: "finished"}
    table = plan.table_of(lab, [bad, good])
    assert table.gaps[0]["why"].startswith("diverged: ")
    assert not plan.examine(lab, [bad, good]).todo


@pytest.mark.slow
def test_a_model_that_raises_is_marked_failed_and_tried_again_on_request_only(lab, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from torch import nn\nfrom saccade.registry import model\n\n\nclass Broken(nn.Sequential):\n"
        "    def forward(self, x):\n        if self.training:\n            raise RuntimeError('broken')\n"
        "        return super().forward(x)\n\n\n@model(family='other')\n"
        "def broken(classes=10, *, size=3072):\n    '''Prints, and raises in training.'''\n    print('noise')\n"
        "    return Broken(nn.Flatten(), nn.Linear(size, classes))\n"
    )
    from saccade import registry

    registry.load_plugin(str(plugin))
    broken, diverges = task(model="broken"), task(0, optimizer="sgd", lr=1e6)
    events = do(lab, broken, diverges, task(1), plugins=[str(plugin)])
    failed = next(e for e in events if e.kind == "failed")
    assert "RuntimeError" in failed.reason
    ends = [e.kind for e in events]
    assert ends.count("finished") == ends.count("diverged") == 1
    assert plan.examine(lab, [broken]).failed == (broken,)
    assert plan.examine(lab, [broken], retry=True).train == (broken,)


@pytest.mark.slow
def test_two_launchers_share_one_lab_and_never_both_do_a_run(lab):
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[2]); from test_work import *\n"
        "lab = Lab(sys.argv[1]); print(json.dumps([(e.key, e.kind) for e in "
        "do(lab, *[task(s, 480) for s in range(6)], jobs=1)]))"
    )
    here = os.path.dirname(__file__)
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(lab.root), here], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    heard = [json.loads(p.communicate(timeout=120)[0]) for p in both]
    for seed in range(6):
        key = task(seed, 480).run.key
        # `started` is logged by whoever trains; both launchers end knowing that the run is finished.
        log = [json.loads(line)["event"] for line in (lab.folder(key) / "log.jsonl").read_text().splitlines()]
        assert log.count("started") == 1 and log.count("finished") == 1
        assert all([key, "finished"] in h for h in heard)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_run_goes_on(lab):
    seen, killed = [], False
    for event in launch.local([task(images=16_000)], lab, places=["cpu"]):
        seen.append(event.kind)
        if event.kind == "step" and not killed:
            os.kill(lab.holder(task(images=16_000).run.key)["pid"], signal.SIGKILL)
            killed = True
    assert "worker died" in seen and seen[-1] == "finished"


@pytest.mark.slow
def test_a_plugin_that_breaks_the_worker_is_one_sentence(lab, tmp_path):
    from saccade.spec import SaccadeError

    with pytest.raises(SaccadeError, match="could not start"):
        do(lab, task(), plugins=[str(tmp_path / "nowhere.py")], jobs=1)


RUN = [
    "run",
    "digits_on_backgrounds",
    "--scale",
    "smoke",
    "--only",
    "CNN",
    "--jobs",
    "2",
    "--json",
    "--set",
    "digits=procedural_digits",
    "scenes=procedural_textures",
]


def command(lab, images=9600):
    return [sys.executable, "-m", "saccade", *RUN, f"images={images}", "--lab", str(lab)]


def weights_of(lab):
    return {p.parent.name: p.read_bytes() for p in lab.glob("runs/*/weights.safetensors")}


def log_of(lab):
    return [
        json.loads(line)["event"]
        for p in lab.glob("runs/*/log.jsonl")
        for line in p.read_text().splitlines()
        if line.endswith("}")
    ]


@pytest.mark.slow
def test_ten_kills_at_random_moments_lose_nothing_and_change_no_bit(tmp_path):
    """kill -9 of the launcher and all its workers, while they train and save; then the same command again."""
    subprocess.run(command(tmp_path / "calm", 32_000), check=True, capture_output=True)
    calm = weights_of(tmp_path / "calm")
    assert len(calm) == 4
    rng, lab, kept = random.Random(7), tmp_path / "stormy", {}
    # Saves come every half second here, so that kills also hit moments of saving.
    env = {**os.environ, "SACCADE_SAVE_EVERY": "0.5"}
    for _ in range(10):
        begun = len(log_of(lab))
        process = subprocess.Popen(
            command(lab, 32_000), env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while len(log_of(lab)) < begun + 4 and process.poll() is None:  # started, then points of the curve
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 2.0))
        workers = subprocess.run(["pgrep", "-f", f"saccade.lab.worker --lab {lab}"], capture_output=True, text=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in workers.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        process.wait()
        now = weights_of(lab)
        assert all(now[k] == v for k, v in kept.items()), "a finished run was lost or changed"
        kept = {k: v for k, v in now.items() if (lab / "runs" / k / "done.json").exists()}
    last = subprocess.run(command(lab, 32_000), env=env, check=True, capture_output=True, text=True)
    assert weights_of(lab) == calm
    assert log_of(lab).count("resumed") >= 3  # the kills did hit runs under way
    again = subprocess.run(command(lab, 32_000), check=True, capture_output=True, text=True)
    assert json.loads(last.stdout)["runs"] == 4 and json.loads(again.stdout)["trained"] == 0


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path):
    lab = tmp_path / "lab"
    process = subprocess.Popen(
        command(lab), start_new_session=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.time() + 60
    while not list(lab.glob("runs/*/log.jsonl")) and time.time() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "same command goes on" in error and "Traceback" not in error
    assert list(lab.glob("runs/*/state.sealed")) or list(lab.glob("runs/*/done.json"))


def test_a_gpu_is_shared_by_as_many_small_runs_as_fit(monkeypatch):
    """No GPU here: what nvidia-smi would print stands in for it."""
    monkeypatch.setattr(launch, "cores", lambda: 8)
    monkeypatch.setattr(
        launch,
        "_ask_nvidia",
        lambda *words: ["24000", "3000"] if "memory.free" in words[0] else ["GPU 0: one", "GPU 1: two"],
    )
    places, need = launch.devices("cuda"), 1000 * 2**20
    assert places == ["cuda:0", "cuda:1"]
    assert launch.share(places, need, None) == ["cuda:0", "cuda:1", "cuda:0", "cuda:0", "cuda:0"]
    assert launch.share(places, 30_000 * 2**20, None) == places  # too large for company
    assert launch.share(places, 0.0, None) == places and launch.share(places, need, 2) == places
    assert launch.share(["cpu", "cpu"], need, None) == ["cpu", "cpu"]
    monkeypatch.setattr(launch, "cores", lambda: 4)
    assert len(launch.share(places, need, None)) == 3  # a process needs a core to feed its GPU
    monkeypatch.setattr(launch, "_ask_nvidia", lambda *words: ["[N/A]"])
    assert launch.share(places, need, None) == places


def test_loaded_weights_are_the_trained_ones(lab):
    list(perform(lab, task()))
    subject = load(lab, task().run)
    again = load(lab, task().run)
    x = torch.rand(4, 3, 32, 32)
    assert torch.equal(subject.logits(x), again.logits(x)) and subject.logits(x).shape == (4, 10)
