"""A lab from before the modules moved into folders: it opens, and nothing in it is done again.

Made by revision 6f836e3 with the four runs below; whoever changes what a key is made from, or how files are read, meets
it here.
"""

import tarfile
from pathlib import Path

import pytest
import torch

from saccade.data.images import Source
from saccade.lab import plan
from saccade.lab.perform import load
from saccade.lab.store import Lab
from saccade.spec import Probe, Recipe, Run, Settings, Task

KEPT = Path(__file__).with_name("lab_before_the_move.tar.xz")
PHOTOS = Settings(of="procedural_textures", p=64)
DIGITS = Settings(digits="procedural_digits", scenes="procedural_textures", backgrounds=2)
SGD = {"optimizer": "sgd", "momentum": 0.9, "lr": 0.01, "schedule": "cosine", "weight_decay": 0.01}
FINISHED = (
    Run("basic_cnn", "photos", Recipe(images=96, batch=16, watch=1), 0, Settings(width=1), PHOTOS),
    Run("basic_cnn", "photos", Recipe(images=96, batch=16, watch=1, **SGD), 1, Settings(width=1), PHOTOS),
    Run("basic_vit", "photos", Recipe(images=64, watch=0), 0, Settings(dim=4), PHOTOS),
)
UNSTABLE = Recipe(images=64, watch=1, lr=1e37, optimizer="sgd")
DIVERGED = Run("basic_cnn", "digits_on_backgrounds", UNSTABLE, 0, Settings(width=1), DIGITS)
ACCURACY = Probe("accuracy", splits=("test",), n=20)
TASKS = [Task(run, (ACCURACY,)) for run in FINISHED] + [Task(DIVERGED, (Probe("accuracy", splits=("id",), n=20),))]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    root = tmp_path_factory.mktemp("old")
    with tarfile.open(KEPT) as packed:
        packed.extractall(root, filter="data")
    return Lab(root).open()


def test_every_run_of_an_old_lab_counts_as_done(lab):
    assert plan.examine(lab, TASKS).complete == tuple(TASKS)


def test_nothing_in_an_old_lab_is_taken_for_damaged(lab):
    assert {key: lab.damage(key) for key in lab.keys() if lab.damage(key)} == {}  # noqa: SIM118


def test_an_old_lab_says_which_run_diverged(lab):
    assert [(gap["run"], gap["why"].partition(":")[0]) for gap in plan.table_of(lab, TASKS).gaps] == [
        (DIVERGED.key, "diverged")
    ]


@pytest.mark.parametrize("run", FINISHED, ids=lambda run: f"{run.model}-{run.seed}")
def test_old_weights_still_give_the_answers_that_were_measured(lab, run):
    subject, data = load(lab, run), Source(run.data, run.data_args, run.seed)
    right = subject.correct(data("test").head(20))
    measured = lab.rows(run.key, ACCURACY)["rows"][0]["value"]
    assert float(torch.as_tensor(right).float().mean()) == pytest.approx(measured)
