"""The loop: golden losses, resume to the bit, pairing of streams, divergence."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.registry import model
from saccade.spec import Recipe, Run, SaccadeError, Settings
from saccade.training.distributed import ALONE
from saccade.training.events import Done, Step, Watch
from saccade.training.loop import train
from saccade.training.optimizer import lr_factor
from saccade.training.progress import Learned, Progress
from saccade.training.resume import pack_state, restore

GOLDEN = Path(__file__).parent / "golden"


def finish(run, resume=None):
    *_, last = train(run, resume=resume)
    assert isinstance(last, Done)
    return last


def losses(run, n=10):
    steps = (e for e in train(run) if isinstance(e, Step))
    return [float(e.loss) for e in itertools.islice(steps, n)]


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("adam", {}),
        ("sgd", {"optimizer": "sgd", "momentum": 0.9, "lr": 0.01}),
        (
            "adamw_cosine",
            {"optimizer": "adamw", "weight_decay": 0.01, "schedule": "cosine", "warmup": 0.2, "clip": 1.0},
        ),
        ("one_cycle", {"schedule": "one_cycle", "label_smoothing": 0.1}),
    ],
)
def test_first_losses_are_those_on_record(tiny_run, name, recipe):
    """When this fails because training changed on purpose: bump spec.TRAINING_VERSION and write the file anew."""
    got = losses(tiny_run(images=160, **recipe))
    want = [float(line) for line in (GOLDEN / f"{name}.txt").read_text().split()]
    np.testing.assert_allclose(got, want, rtol=2e-4)


@pytest.mark.parametrize("name", ["lenet", "mha_lenet", "basic_vit"])
def test_a_run_stopped_anywhere_and_resumed_ends_with_the_same_bits(tiny_run, name):
    run = tiny_run(images=160, model=name)
    whole = finish(run)
    stop = int(torch.randint(1, 10, (), generator=torch.Generator().manual_seed(len(name))))
    state = next(e.state() for e in train(run) if isinstance(e, Step) and e.step == stop)
    resumed = finish(run, state)
    for (n, a), b in zip(whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), n
    assert whole.curve == resumed.curve


def test_the_curve_goes_on_in_the_middle_of_a_window(tiny_run):
    run = tiny_run(images=96, batch=1)  # a point of the curve every two steps
    state = next(
        e.state() for e in train(run) if isinstance(e, Step) and e.step % 2 and e.state.args[0]["right"].item()
    )
    assert finish(run, state).curve == finish(run).curve


def test_an_epoch_that_was_interrupted_is_counted_as_a_whole():
    """Two batches of four, then a resume; three of all eight images were right."""
    recipe, y = Recipe(images=64, batch=4, settle=2), torch.tensor([0, 0, 0, 1])
    before, after = (Progress(recipe, 4, 2, "cpu", ALONE) for _ in range(2))
    before.count(Learned(torch.eye(2)[[0, 0, 1, 0]], torch.tensor(0.0)), y)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    after.restore(restore(pack_state(before.meta(), model, optimizer), model, optimizer))
    after.count(Learned(torch.eye(2)[[1, 1, 1, 1]], torch.tensor(0.0)), y)
    assert not after.over(8) and after.errors == [1 - 3 / 8]


def test_training_leaves_global_random_state_alone(tiny_run):
    before = torch.get_rng_state()
    finish(tiny_run(images=32))
    assert torch.equal(before, torch.get_rng_state())


def test_two_models_of_one_seed_see_the_same_images_in_the_sameorder_of(tiny_run):
    from saccade.data.images import Source
    from saccade.training.batches import order_of

    a, b = tiny_run(seed=3), tiny_run(seed=3, model="basic_vit")
    orders = [order_of(Source(r.data, r.data_args, r.seed)("train"), r.seed, 0) for r in (a, b)]
    assert torch.equal(*orders)
    other = Source(a.data, a.data_args, 4)("train")
    assert not torch.equal(orders[0], order_of(other, 4, 0))


def test_it_learns_and_says_how_it_goes(tiny_run):
    events = list(train(tiny_run(images=4800)))
    online = [e for e in events if isinstance(e, Watch) and e.split == "online"]
    watched = [e for e in events if isinstance(e, Watch) and e.split == "ood"]
    assert online[-1].accuracy > 0.85 > 0.5 > online[0].accuracy
    assert [w.images for w in watched] == [2400, 4800] and watched[0].n == 256
    assert events[-1].outcome == "finished" and events[-1].step == 300


def test_a_run_that_blows_up_is_marked_diverged(tiny_run):
    end = finish(tiny_run(images=320, optimizer="sgd", lr=1e6))
    assert end.outcome == "diverged" and ("loss was" in end.reason or "not finite" in end.reason)


@model(family="other")
def noisy(classes=10, *, p=0.5):
    """Test-only: a model with dropout."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(p), torch.nn.Linear(3072, classes))


def test_dropout_is_drawn_by_step_and_survives_a_resume(tiny_run, monkeypatch):
    from saccade import registry

    monkeypatch.setitem(
        registry._plugins, ("model", "noisy"), registry.Card("model", "noisy", "", __name__, args={"p": 0.5})
    )
    run = tiny_run(images=160, model="noisy")
    state = next(e.state() for e in train(run) if isinstance(e, Step) and e.step == 4)
    torch.rand(17)
    a, b = finish(run).model.state_dict(), finish(run, state).model.state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_schedules():
    one = Recipe(images=1600, schedule="one_cycle")
    assert lr_factor(one, 0) == pytest.approx(1 / 25)
    assert lr_factor(one, 30) == pytest.approx(1.0)
    assert lr_factor(one, 99) < 0.01
    cosine = Recipe(images=1600, schedule="cosine", warmup=0.1)
    assert lr_factor(cosine, 0) < 0.2 and lr_factor(cosine, 10) == pytest.approx(1.0) and lr_factor(cosine, 99) < 0.01
    assert {lr_factor(Recipe(images=1600), s) for s in range(100)} == {1.0}


def test_mixed_precision_is_refused_on_a_cpu(tiny_run):
    with pytest.raises(SaccadeError, match="needs a GPU"):
        next(train(tiny_run(precision="mixed")))


def test_a_budget_larger_than_the_set_goes_over_it_again():
    data = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=1)
    run = Run("lenet", "digits_on_backgrounds", Recipe(images=12_000, batch=1500, watch=0), 0, data_args=data)
    assert finish(run).step == 8
