"""Runs trained in lock-step end as they do alone, whoever leaves, joins late or is stopped in between."""

import collections
import importlib

import pytest
import torch
from torch.nn import functional as F

from benchmarks.pure import without_kernels
from saccade import models, registry
from saccade.data.images import Source
from saccade.lab import bundles, together
from saccade.lab.perform import perform
from saccade.lab.store import Lab
from saccade.layers import stacked
from saccade.layers.conv_pool import conv_relu_pool
from saccade.spec import MILESTONES, Probe, Recipe, Run, Settings, Task
from saccade.training import lockstep, loop
from saccade.training.events import Done, Step, Watch
from saccade.training.lockstep import Grouped, train_together
from saccade.training.loop import train

DRAWN = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)


def run(seed=0, steps=20, **recipe):
    return Run("lenet", "digits_on_backgrounds", Recipe(images=16 * steps, watch=1, **recipe), seed, data_args=DRAWN)


@pytest.fixture(autouse=True)
def always_stacked(monkeypatch):
    """From the second step on, whatever a trial would find on a busy machine."""
    monkeypatch.setattr(lockstep, "TRIAL", 1)
    monkeypatch.setattr(lockstep, "PAYS", 0.0)
    lockstep._gains.clear()
    yield
    lockstep._gains.clear()


def ends(events):
    found, news = {}, []
    for i, event in events:
        if isinstance(event, Done):
            found[i] = event
        if isinstance(event, Grouped):
            news.append((i, event.replicas))
    return found, news


def alone(one, resume=None):
    return next(e for e in train(one, "cpu", resume) if isinstance(e, Done))


def same(a, b):
    """To the bit here; elsewhere a library may add in another order, hence the tolerance that the docs state."""
    assert a.outcome == b.outcome and a.step == b.step
    assert [{**p, "accuracy": 0} for p in a.curve] == [{**p, "accuracy": 0} for p in b.curve]
    for p, q in zip(a.model.parameters(), b.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.slow
def test_together_as_alone_also_without_kernels():
    runs = [run(seed) for seed in range(3)]
    together, news = ends(train_together(runs, "cpu", [None] * 3))
    assert news == [(0, 3), (1, 3), (2, 3)]  # it was tried, and told to each
    for i in range(3):
        same(alone(runs[i]), together[i])
    with without_kernels():
        together, again = ends(train_together(runs, "cpu", [None] * 3))
        assert again == news  # what the first trial found is used, and told
        for i in range(3):
            same(alone(runs[i]), together[i])


@pytest.mark.parametrize(
    "recipe",
    [
        {"optimizer": "sgd", "momentum": 0.9, "lr": 0.01, "weight_decay": 1e-3},
        {"optimizer": "adamw", "schedule": "one_cycle", "label_smoothing": 0.1},
        {"optimizer": "sgd", "momentum": 0.0, "lr": 0.01},  # nothing to stack: one by one
        {"clip": 1.0},
    ],
)
def test_every_recipe(recipe):
    runs = [run(seed, 8, **recipe) for seed in range(2)]
    together, _ = ends(train_together(runs, "cpu", [None] * 2))
    for i in range(2):
        same(alone(runs[i]), together[i])


@pytest.mark.parametrize("head", ["mean", "max"])
def test_pooled_readouts_too(head):
    nets = [models.build("lenet", seed=s, head=head) for s in range(2)]
    x = torch.randn(2, 4, 3, 32, 32)
    weights = {name: torch.stack([net.get_parameter(name) for net in nets]) for name, _ in nets[0].named_parameters()}
    expected = torch.stack([net(each) for net, each in zip(nets, x, strict=True)])
    torch.testing.assert_close(nets[0].together(weights, x), expected, rtol=0, atol=1e-5)


def test_one_that_resumes_elsewhere_is_waited_for():
    first, second = run(0), run(1)
    saved = next(e.state() for e in train(second) if isinstance(e, Step) and e.step == 7)
    order = []
    together = {}
    for i, event in train_together([first, second], "cpu", [None, saved]):
        if isinstance(event, Step):
            order.append((i, event.step))
        if isinstance(event, Done):
            together[i] = event
    assert order[:7] == [(0, step) for step in range(1, 8)] and sorted(order[7:9]) == [(0, 8), (1, 8)]
    same(alone(first), together[0])
    same(alone(second), together[1])


def test_a_state_saved_in_lock_step_resumes_alone():
    runs, saved = [run(0), run(1)], {}
    for i, event in train_together(runs, "cpu", [None, None]):
        if isinstance(event, Step) and event.step == 9:
            saved[i] = event.state()
        if len(saved) == 2:
            break
    for i in range(2):
        same(alone(runs[i]), alone(runs[i], saved[i]))


def test_who_diverges_leaves_and_the_others_go_on():
    runs = [run(seed) for seed in range(3)]
    nets = [models.build("lenet", seed=seed) for seed in range(3)]

    def asking(i):
        return loop._loop(nets[i], Source(runs[i].data, DRAWN, i), runs[i].recipe, None, loop.ALONE, lockstep.Ask)

    seen, together = collections.Counter(), {}
    for i, event in lockstep.together([asking(i) for i in range(3)]):
        seen[i] += isinstance(event, Step)
        if isinstance(event, Step) and i == 1 and event.step == 6:
            nets[1].get_parameter("first.bias").data[0] = torch.nan
        if isinstance(event, Done):
            together[i] = event
    assert together[1].outcome == "diverged" and seen[1] == 6 and seen[0] == seen[2] == 20
    same(alone(runs[0]), together[0])
    same(alone(runs[2]), together[2])


def test_where_it_does_not_pay_each_goes_alone(monkeypatch):
    monkeypatch.setattr(lockstep, "PAYS", 1e9)
    stacked_steps = []
    learn = lockstep.Stack.learn
    monkeypatch.setattr(lockstep.Stack, "learn", lambda self, asks: stacked_steps.append(1) or learn(self, asks))
    runs = [run(seed) for seed in range(2)]
    together, _ = ends(train_together(runs, "cpu", [None] * 2))
    assert len(stacked_steps) == 1  # the trial
    assert not ends(train_together(runs, "cpu", [None] * 2))[1]
    assert len(stacked_steps) == 1  # remembered
    same(alone(runs[1]), together[1])


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("SACCADE_LOCKSTEP", "off")
    _, news = ends(train_together([run(0, 5), run(1, 5)], "cpu", [None] * 2))
    assert not news


def test_seconds_are_a_runs_own():
    together, _ = ends(train_together([run(seed, 30) for seed in range(4)], "cpu", [None] * 4))
    shares = [end.seconds for end in together.values()]
    assert max(shares) < sum(shares) * 0.6  # not each the time of all


def test_global_random_state_is_put_back():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    ends(train_together([run(0, 5), run(1, 5)], "cpu", [None] * 2))
    assert torch.equal(torch.get_rng_state(), before)


def test_stacked_layers_are_the_layers():
    torch.manual_seed(0)
    layers, x = [torch.nn.Linear(84, 10) for _ in range(3)], torch.randn(3, 16, 84, requires_grad=True)
    weight, bias = (torch.stack([getattr(m, n).detach() for m in layers]).requires_grad_() for n in ("weight", "bias"))
    torch.autograd.gradcheck(
        stacked.linear, [t.detach().double().requires_grad_() for t in (x[:, :2, :5], weight[:, :3, :5], bias[:, :3])]
    )
    out = stacked.linear(x, weight, bias)
    out.square().sum().backward()
    for i, layer in enumerate(layers):
        each = x[i].detach().requires_grad_()
        alone = layer(each)
        alone.square().sum().backward()
        for ours, theirs in ((out[i], alone), (weight.grad[i], layer.weight.grad), (x.grad[i], each.grad)):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_stacked_convolutions_are_the_convolutions():
    torch.manual_seed(0)
    convs, x = [torch.nn.Conv2d(6, 16, 5) for _ in range(3)], torch.randn(3, 4, 6, 14, 14)
    weight, bias = (torch.stack([getattr(m, n).detach() for m in convs]) for n in ("weight", "bias"))
    expected = torch.stack([F.max_pool2d(F.relu(conv(each)), 2) for conv, each in zip(convs, x, strict=True)])
    torch.testing.assert_close(stacked.conv_relu_pool(x, weight, bias), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(conv_relu_pool(convs[1], x[1]), expected[1], rtol=0, atol=1e-5)
    with without_kernels():
        torch.testing.assert_close(stacked.conv_relu_pool(x, weight, bias), expected, rtol=0, atol=1e-5)


def tasks(*seeds, **recipe):
    return [Task(run(seed, **recipe), (Probe("accuracy", splits=("id",), n=20),)) for seed in seeds]


def test_a_bundle_is_a_fair_share_of_one_kind(monkeypatch):
    def taken(queue, seats=2, place="cpu", alone=frozenset()):
        left = collections.deque(queue)
        some = bundles.bundle(left, seats, place, alone)
        assert len(some) + len(left) == len(queue)
        return [t.run.seed for t in some]

    five = tasks(*range(5))
    assert taken(five) == [0, 1, 2] and taken(five, seats=5) == [0]
    assert taken(tasks(*range(40))) == list(range(bundles.MOST))
    assert taken([five[0], *tasks(7, 8, 9, steps=50), five[1]], seats=1) == [0, 1]  # another recipe is another kind
    assert taken(five, place="cuda:0") == [0]
    assert taken(five, seats=1, alone={five[2].run.key}) == [0, 1, 3, 4]
    assert taken(five, seats=1, alone={five[0].run.key}) == [0]
    other = [Task(Run("mha_lenet", "digits_on_backgrounds", Recipe(images=32), s, data_args=DRAWN)) for s in range(4)]
    assert taken(other, seats=1) == [0]
    monkeypatch.setenv("SACCADE_LOCKSTEP", "off")
    assert taken(five, seats=1) == [0]


def test_models_that_go_in_bundles_are_those_that_can_be_stacked():
    for name, card in registry.built_in("model").items():
        made = vars(importlib.import_module(card.module)).values()
        if any(isinstance(c, type) and hasattr(c, "together") for c in made):
            assert hasattr(models.build(name), "together") == (name in bundles.MODELS), name
    assert registry.built_in("model").keys() >= bundles.MODELS


@pytest.mark.slow
def test_tasks_done_together_are_kept_and_measured_as_those_done_alone(tmp_path):
    one, two = Lab(tmp_path / "one").open(), Lab(tmp_path / "two").open()
    events = list(together.perform(one, tasks(0, 1, 2)))
    measured = ["probe"] * (1 + len(MILESTONES))
    assert [e.kind for e in events if e.kind in ("finished", "probe")] == [*measured, "finished"] * 3
    for task in tasks(0, 1, 2):
        list(perform(two, task))
        key = task.run.key
        assert '"lock-step"' in (one.folder(key) / "log.jsonl").read_text()
        assert one.rows(key, task.probes[0])["rows"] == two.rows(key, task.probes[0])["rows"]
    assert [e.kind for e in together.perform(one, tasks(0, 1, 2))] == ["finished"] * 3


def test_stopping_saves_every_one_of_them(tmp_path):
    lab, count = Lab(tmp_path / "lab").open(), []

    def stopping():
        count.append(1)
        return len(count) > 30

    assert [e.kind for e in together.perform(lab, tasks(0, 1, 2), stopping=stopping)][-3:] == ["stopped"] * 3
    assert all(lab.load_state(t.run.key) for t in tasks(0, 1, 2))
    events = list(together.perform(lab, tasks(0, 1, 2)))
    assert [e.kind for e in events if e.kind == "finished"] == ["finished"] * 3


def test_a_group_that_breaks_is_done_one_by_one(tmp_path, monkeypatch):
    def breaks(self, asks):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(lockstep.Stack, "learn", breaks)
    lab = Lab(tmp_path / "lab").open()
    events = list(together.perform(lab, tasks(0, 1)))
    assert [e.kind for e in events if e.kind not in ("step", "probe")] == ["finished"] * 2
    assert "no such luck" in (lab.folder(tasks(0)[0].run.key) / "log.jsonl").read_text()


def test_watched_accuracy_is_that_of_the_runs_own_weights():
    runs = [run(0), run(1)]
    seen = {
        i: e.accuracy
        for i, e in train_together(runs, "cpu", [None] * 2)
        if isinstance(e, Watch) and e.split != "online"
    }
    for i in range(2):
        assert seen[i] == next(e.accuracy for e in train(runs[i]) if isinstance(e, Watch) and e.split != "online")
