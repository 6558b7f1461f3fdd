"""Two real processes train one run: the weights of one process alone, and nobody is left waiting."""

import contextlib
import datetime
import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from saccade.data.images import Source
from saccade.spec import Recipe, SaccadeError, Settings
from saccade.training import distributed
from saccade.training.events import Done, Step
from saccade.training.loop import fit

RECIPE = Recipe(images=160, batch=16, optimizer="sgd", momentum=0.9, lr=0.05, clip=1.0, watch=1)
DATA = Source("photos", Settings(of="procedural_textures", p=200, hold_out=500), 3)
TRAIN = [
    "-m",
    "saccade",
    "train",
    "lenet",
    "--data-set",
    "digits=procedural_digits",
    "scenes=procedural_textures",
    "backgrounds=2",
    "--images",
    "320",
    "--recipe",
    "optimizer=sgd",
    "momentum=0.9",
    "lr=0.01",
]


def net(norm=False):
    """A small network, the same in every process; `norm`: with batch norm, of the last axis."""
    from saccade import models

    if norm:
        return models.build("local_dw", seed=0, size="mini", dims=(8, 16), depths=(1, 1), window=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10))


def events(model):
    """Shifted and mirrored images: the processes must agree on order and augmentation."""
    return fit(model, DATA, RECIPE, team=distributed.current())


def trained(norm):
    *_, last = events(net(norm))
    assert isinstance(last, Done)
    return last


@contextlib.contextmanager
def meeting(rank, port):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60)
    )
    try:
        yield
    finally:
        distributed.leave()


def second(port, path):
    """What the other process does."""
    with meeting(1, int(port)):
        mine = [trained(norm).model.state_dict() for norm in (False, True)]
        try:
            list(events(net()))
        except distributed.Closed:
            torch.save([*mine, "sent home"], path)


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(tmp_path):
    """Without batch norm, with it, and when the first process stops in the middle."""
    alone = [trained(norm) for norm in (False, True)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import test_distributed as t; t.second(*sys.argv[1:])"
    words = [os.path.dirname(__file__), str(port), str(tmp_path / "other.pt")]
    other = subprocess.Popen([sys.executable, "-c", code, *words], env={**os.environ, "OMP_NUM_THREADS": "1"})
    with meeting(0, port):
        both = [trained(norm) for norm in (False, True)]
        stopped = (e for e in events(net()) if isinstance(e, Step))
        assert [e.step for e in itertools.islice(stopped, 3)] == [1, 2, 3]
        stopped.close()
        *_, own = fit(net(), DATA, RECIPE)  # as a probe does, in the first process only
        assert other.wait(60) == 0
    *theirs, word = torch.load(tmp_path / "other.pt")
    assert word == "sent home"
    start = net().state_dict()
    assert all(torch.equal(v, own.model.state_dict()[k]) for k, v in alone[0].model.state_dict().items())
    for one, two, far in zip(alone, both, theirs, strict=True):
        assert one.curve == two.curve and one.outcome == two.outcome == "finished"
        for name, value in one.model.state_dict().items():
            torch.testing.assert_close(two.model.state_dict()[name], value, rtol=1e-5, atol=1e-5)
            assert torch.equal(two.model.state_dict()[name], far[name]), name
    moved = (alone[0].model.state_dict()["0.weight"] - start["0.weight"]).abs().max()
    assert moved > 1e-2  # a thousand times the tolerance: it would be seen if a share were lost


def state_after(steps, model):
    """What a run would go on from, saved after so many steps."""
    run = (e for e in events(model) if isinstance(e, Step))
    state = next(itertools.islice(run, steps - 1, None)).state()
    run.close()
    return state


def resumed(state):
    *_, last = fit(net(), DATA, RECIPE, resume=state, team=distributed.current())
    return last.model.state_dict()


def second_resumed(port, path):
    with meeting(1, int(port)):
        with contextlib.suppress(distributed.Closed):
            list(events(net()))
        resumed(Path(path).read_bytes())


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """From one to two and from two to one: the weights of an undisturbed run, up to the order of sums."""
    alone, half = trained(False).model.state_dict(), state_after(4, net())
    (tmp_path / "half").write_bytes(half)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import test_distributed as t; t.second_resumed(*sys.argv[1:])"
    )
    words = [os.path.dirname(__file__), str(port), str(tmp_path / "half")]
    other = subprocess.Popen([sys.executable, "-c", code, *words], env={**os.environ, "OMP_NUM_THREADS": "1"})
    with meeting(0, port):
        by_two = state_after(4, net())
        one_then_two = resumed(half)
        assert other.wait(60) == 0
    two_then_one = resumed(by_two)
    for name, value in alone.items():
        torch.testing.assert_close(one_then_two[name], value, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(two_then_one[name], value, rtol=1e-5, atol=1e-5)


def test_alone_everything_is_as_it_was():
    alone = distributed.current()
    value, model = torch.tensor(2.0), net(True)
    assert alone == distributed.Group() and alone.part(7) == slice(0, 7) and alone.agree(3.0) == 3.0
    assert alone.sum(value) is value and alone.mean(value) is value and alone.wrap(model) is model
    assert not any(isinstance(m, distributed.SharedBatchNorm) for m in model.modules())
    alone.leave()


def test_shares_are_equal_and_make_up_the_batch():
    parts = [distributed.Group(rank, 4).part(12) for rank in range(4)]
    assert [list(range(12))[p] for p in parts] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    with pytest.raises(SaccadeError, match="multiple of 4"):
        distributed.Group(0, 4).part(10)


def test_shared_batch_norm_keeps_names_weights_answers_and_a_forward_of_its_own():
    from saccade.layers.pyramid import BatchNorm  # of the last axis

    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(BatchNorm(4), nn.ReLU())).eval()
    x, before, names = torch.rand(2, 8, 8, 3), dict(model.named_parameters()), list(model.state_dict())
    wanted = model(x)
    distributed.share_batch_norm(model)
    assert isinstance(model[1][0], distributed.SharedBatchNorm) and list(model.state_dict()) == names
    assert all(p is before[n] for n, p in model.named_parameters())
    assert torch.equal(model(x), wanted)


def torchrun(lab, seeds, *recipe):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        *TRAIN,
        *recipe,
        "--lab",
        str(lab),
        "--seeds",
        seeds,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.slow
def test_a_user_starts_it_with_torchrun_and_a_second_call_finds_everything_done(tmp_path):
    from safetensors.torch import load_file

    subprocess.run([sys.executable, *TRAIN, "--seeds", "0", "--lab", str(tmp_path / "one"), "--quiet"], check=True)
    done = torchrun(tmp_path / "two", "0:2")
    assert done.returncode == 0 and "(seeds 0, 1)" in done.stdout, done.stderr
    one, *more = (tmp_path / "one").glob("runs/*/weights.safetensors")
    assert not more
    two = load_file(tmp_path / "two" / one.relative_to(tmp_path / "one"))
    for name, value in load_file(one).items():
        torch.testing.assert_close(two[name], value, rtol=1e-5, atol=1e-5)
    again = torchrun(tmp_path / "two", "0:2")
    assert again.returncode == 0 and again.stdout == done.stdout


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_is_one_sentence(tmp_path):
    done = torchrun(tmp_path / "lab", "0", "batch=15")
    assert "batch of 15 cannot be shared equally by 2 processes" in done.stderr + done.stdout
