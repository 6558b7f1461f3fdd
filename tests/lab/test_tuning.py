"""Tuning: on validation images, on seeds of its own, kept in the lab."""

import pytest

from saccade.lab import pipeline, tuning
from saccade.lab.store import unseal
from saccade.spec import SaccadeError

DRAWN = {"data": "procedural_textures"}


def test_only_validation_images_and_other_seeds_are_used(tmp_path):
    session = pipeline.open_session("block_ablations", "smoke", tmp_path / "lab", DRAWN)
    arm = session.tasks[0].arm
    own = {t.run.seed for t in session.tasks}
    planned = tuning.tasks(session, arm, {"lr": (0.01, 0.1), "batch": (8, 16)}, seeds=2)
    assert len(planned) == 4
    for point, some in planned.items():
        for task in some:
            assert task.run.seed not in own and task.run.recipe.lr == point["lr"]
            assert [p.settings["splits"] for p in task.probes] == [("held_out",)]


@pytest.mark.slow
def test_the_grid_and_its_result_are_kept(tmp_path):
    session = pipeline.open_session("block_ablations", "smoke", tmp_path / "lab", DRAWN)
    how = pipeline.How(jobs=1, quiet=True)
    tried = tuning.tune(session, session.tasks[0].arm, {"lr": (0.001, 0.01)}, seeds=1, images=64, how=how)
    assert len(tried) == 2 and tried[0].accuracy.value >= tried[1].accuracy.value
    (kept,) = (unseal(p) for p in (tmp_path / "lab/studies/block_ablations/tuning").glob("*.json"))
    assert kept["split"] == "held_out" and len(kept["tried"]) == 2 and kept["seeds"] == [tuning.FIRST_SEED]


def test_data_without_validation_images_are_refused(tmp_path):
    session = pipeline.open_session("digits_on_backgrounds", "smoke", tmp_path / "lab")
    with pytest.raises(SaccadeError, match="no validation images"):
        tuning.tune(session, "CNN", {"lr": (0.1,)}, seeds=1, how=pipeline.How(quiet=True))


def test_mistakes_are_one_sentence(tmp_path):
    session = pipeline.open_session("digits_on_backgrounds", "smoke", tmp_path / "lab")
    with pytest.raises(SaccadeError, match="did you mean CNN"):
        tuning.tasks(session, "CNNN", {"lr": (0.1,)}, seeds=1)
    with pytest.raises(SaccadeError, match="did you mean lr"):
        tuning.tasks(session, "CNN", {"lrr": (0.1,)}, seeds=1)
