"""The models that come with the package load without data and answer; their cards say how they were made."""

import pytest
import torch

from saccade import models, shipped
from saccade.spec import SaccadeError
from saccade.subjects.find import Wanted, find


def test_there_are_some_and_they_are_small():
    assert {"cnn_x8", "cnn_x64"} <= set(shipped.cards())
    assert sum(f.stat().st_size for f in shipped.FOLDER.glob("*.safetensors")) < 800_000


@pytest.mark.parametrize("name", list(shipped.cards()))
def test_it_answers_and_its_card_fits(name):
    card, model = shipped.card(name), shipped.load(name)
    assert models.parameters(model) == card.parameters
    with torch.no_grad():
        answer = model(torch.zeros(2, card.channels, card.size, card.size))
    assert answer.shape == (2, card.classes) and bool(torch.isfinite(answer).all())
    assert card.accuracy("id")[1] == card.accuracy("ood")[1] == 10_000
    assert shipped.by_key(card.run.key) == card


def test_its_weights_are_trained_ones():
    card = shipped.card("cnn_x64")
    fresh = models.build(card.run.model, card.classes, seed=card.run.seed, **card.run.model_args)
    assert not torch.allclose(fresh.first.weight, shipped.load("cnn_x64").first.weight, atol=0.01)


def test_a_profile_finds_it_by_name():
    found = find("shipped:cnn_x8", Wanted())
    assert found.trained and found.mean == (0.5, 0.5, 0.5) and found.size == 32


def test_an_unknown_one_is_named():
    with pytest.raises(SaccadeError, match="did you mean cnn_x64"):
        shipped.load("cnn_x6")


def test_the_look_page_shows_one_in_an_empty_lab(tmp_path, monkeypatch):
    """The card's run on drawn data: the model comes from the package, the images from whatever is there."""
    import dataclasses

    from saccade.lab.store import Lab
    from saccade.spec import Settings
    from saccade.web.explorer import Explorer

    card = shipped.card("cnn_x8")
    drawn = Settings(card.run.data_args, digits="procedural_digits", scenes="procedural_textures")
    shown = dataclasses.replace(card, run=dataclasses.replace(card.run, data_args=drawn))
    monkeypatch.setattr(shipped, "cards", lambda: {"cnn_x8": shown})
    explorer = Explorer(Lab(tmp_path / "lab"))
    (row,) = explorer.about()["shipped"]
    looker = explorer.looker()
    assert [s["label"] for s in looker.stock({"run": row["run"]})["states"]] == ["untrained", "trained"]
    answers = [
        looker.see({"models": [{"run": row["run"], "state": state}], "picture": {"index": 0}})["answers"][0]["logits"]
        for state in ("0", "1")
    ]
    assert answers[0] != answers[1]
