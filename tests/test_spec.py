import hashlib
import math

import pytest

from saccade import rng
from saccade.spec import (
    Estimate,
    Probe,
    Recipe,
    Run,
    SaccadeError,
    Scale,
    Settings,
    Task,
    canonical,
    digest,
    plain,
    suggest,
)


def test_key_depends_on_content_and_not_on_order():
    a = Settings({"b": 1, "a": (1, 2)})
    b = Settings({"a": [1, 2], "b": 1})
    assert a == b and hash(a) == hash(b) and digest(a) == digest(b)
    assert digest(Settings(a=1)) != digest(Settings(a=2))


def test_run_survives_its_own_json():
    run = Run("lenet", "digits_on_backgrounds", Recipe(images=100), 3, Settings(head="mean"), Settings(backgrounds=4))
    again = Run.parse(plain(run))
    assert again == run and again.key == run.key and len(run.key) == 12
    assert {run, again} == {run}


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"model": "mha_lenet"}, {"recipe": Recipe(images=101)}, {"version": 99}]
)
def test_every_part_of_a_run_moves_its_key(change):
    base = {"model": "lenet", "data": "d", "recipe": Recipe(images=100), "seed": 0}
    assert Run(**base).key != Run(**{**base, **change}).key


def test_the_key_of_a_known_run_stays():
    # A changed key would silently orphan every lab in the world.
    assert Run("lenet", "digits_on_backgrounds", Recipe(images=320), 0).key == "fb07e309a885"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"images": 0}, "images of the recipe must be a whole number from 1"),
        ({"images": 1, "lr": -1}, "lr of the recipe must be a number above 0"),
        ({"images": 1, "optimizer": "adma"}, "did you mean adam"),
        ({"images": 1, "momentum": 1.0}, "momentum"),
        ({"images": 1, "precision": "half"}, "precision of the recipe must be one of"),
    ],
)
def test_a_recipe_out_of_range_is_one_sentence(bad, says):
    with pytest.raises(SaccadeError, match=says) as caught:
        Recipe(**bad)
    assert "\n" not in str(caught.value)


def test_what_has_no_text_form_is_refused():
    with pytest.raises(SaccadeError, match="finite"):
        canonical(math.nan)
    with pytest.raises(SaccadeError, match="not object"):
        canonical(object())


def test_suggestions_and_scales():
    assert "did you mean lenet?" in suggest("model", "lennet", ["lenet", "vit"])
    assert suggest("model", "vit, lenet", ["lenet", "vit"]).endswith("several are written with spaces: vit lenet.")
    assert Scale("demo")(smoke=1, small=2, large=3, paper=4) == 1
    assert Scale("demo")(smoke=1, demo=9, small=2, large=3, paper=4) == 9
    with pytest.raises(SaccadeError, match="did you mean small"):
        Scale("smal")


def test_probe_and_task_keys():
    assert Probe("accuracy", n=5) == Probe("accuracy", {"n": 5})
    assert Probe("accuracy", n=5).key != Probe("accuracy", n=6).key
    assert Task(Run("lenet", "d", Recipe(images=1), 0)).probes == ()


@pytest.mark.parametrize("names", [("noise", 5), ("order", 0), ("a b", -1, "é")])
def test_a_stream_is_named_by_its_canonical_text(names):
    text = hashlib.sha256(canonical([7, *names]).encode()).digest()
    assert rng.seed_of(7, *names) == int.from_bytes(text[:8], "big") >> 1


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.044, "points", "+4.4 [-5.6, 14.4] n=5"),
        (0.27, "nats", "+0.270 [0.170, 0.370] n=5"),
        (65.498, "thousand images", "+65.5 [65.4, 65.6] n=5"),  # three decimals of a large number say nothing
    ],
)
def test_an_estimate_is_shown_as_precisely_as_its_unit_asks(value, unit, text):
    assert Estimate(value, value - 0.1, value + 0.1, 5, "t").text(unit) == text
