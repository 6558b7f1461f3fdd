"""What the Look page is told: images as the data make them, answers as the models give them."""

import base64

import pytest
import torch

from saccade import models
from saccade.data.images import Pasted
from saccade.lab import perform
from saccade.lab.store import Lab
from saccade.probes.digit_transforms import transformed
from saccade.spec import SaccadeError
from saccade.subjects.attention import AttentionLayer
from saccade.subjects.subject import standardise
from saccade.web import pictures
from saccade.web.look import Looker, captured, maps_of, seen_from
from saccade.web.pictures import Stock
from tests.web.labs import finish, key_of, session_of, weights_of

pytestmark = pytest.mark.xdist_group("look")  # one process makes the lab and draws the images for all of them


@pytest.fixture(scope="module")
def looker(lab):
    return Looker(lab)


@pytest.fixture(scope="module")
def keys(lab):
    made = {m: key_of(lab, m, seed=0) for m in ("mha_lenet", "quadratic")}
    return {**made, "lenet": key_of(lab, "lenet", seed=0, backgrounds=8)}


def stock_of(lab, key):
    return Stock(lab.run(key))


def test_an_object_in_its_place_is_the_image_of_the_data(lab, keys):
    stock = stock_of(lab, keys["lenet"])
    x, label = pictures.compose(stock, {"index": 5})
    own = stock.held_out
    assert torch.equal(x, own.batch(torch.tensor([5]))[0])
    assert label == int(own.y[5])


@pytest.mark.parametrize(("name", "amount", "move"), [("rotation", 20, {"turn": 20}), ("scale", 0.75, {"scale": 0.75})])
def test_a_moved_object_is_the_image_that_the_probe_measures(lab, keys, name, amount, move):
    stock = stock_of(lab, keys["lenet"])
    own = stock.held_out
    assert isinstance(own, Pasted)
    wanted = transformed(own.head(6), name, amount, 0)[0].batch(torch.tensor([5]))[0]
    x, _ = pictures.compose(stock, {"index": 5, "move": move})
    assert torch.allclose(x, wanted, atol=1e-6)


def test_a_shift_is_by_pixels_right_and_down(lab, keys):
    stock = stock_of(lab, keys["lenet"])
    black = {"colour": [0, 0, 0]}
    still, _ = pictures.compose(stock, {"index": 1, "scene": black})
    moved, _ = pictures.compose(stock, {"index": 1, "scene": black, "move": {"dx": 3, "dy": -2}})
    assert torch.allclose(moved[:, :-2, 3:], still[:, 2:, :-3], atol=1e-5)


def test_what_is_drawn_covers_the_background_by_its_opacity(lab, keys):
    stock = stock_of(lab, keys["lenet"])
    rgba = torch.zeros(32, 32, 4, dtype=torch.uint8)
    rgba[4, 7] = torch.tensor([255, 0, 0, 255])
    sent = base64.b64encode(rgba.numpy().tobytes()).decode()
    x, label = pictures.compose(stock, {"pixels": sent, "scene": {"colour": [0, 0, 255]}})
    assert label is None
    assert x[:, 4, 7].tolist() == [1, 0, 0]
    assert x[:, 0, 0].tolist() == [0, 0, 1]


def test_an_image_of_another_size_is_made_to_fit():
    sent = base64.b64encode(bytes([9, 9, 9, 255] * 64 * 64)).decode()
    assert pictures.outside(sent, 32).shape == (4, 32, 32)


def test_backgrounds_stood_behind_their_class_in_training(lab, keys):
    stock = stock_of(lab, keys["lenet"])
    train = stock.source("train")
    for scene in stock.shelf()["scenes"]:
        if scene["behind"] is not None:
            assert scene["index"] in train.which[train.y == scene["behind"]].tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"index": -1},
        {"index": 10**9},
        {"index": "3"},
        {"index": True},
        {"move": 3},
        {"move": {"dx": "1"}},
        {"move": {"dx": float("nan")}},
        {"move": {"scale": 0}},
        {"move": {"dx": 1e9}},
        {"scene": "x"},
        {"scene": {"split": "../..", "index": 0}},
        {"scene": {"split": "train", "index": 10**9}},
        {"scene": {"colour": [0, 0]}},
        {"scene": {"colour": [0, 0, 300]}},
        {"pixels": 3},
        {"pixels": "not base64!"},
        {"pixels": base64.b64encode(b"123").decode()},
        {"pixels": ""},
    ],
)
def test_an_image_of_the_wrong_types_is_refused(lab, keys, wrong):
    with pytest.raises(SaccadeError):
        pictures.compose(stock_of(lab, keys["lenet"]), wrong)


def test_logits_are_the_models_own(lab, looker, keys):
    told = looker.see({"models": [{"run": keys["lenet"]}], "picture": {"index": 3}})
    subject = perform.load(lab, lab.run(keys["lenet"]))
    x = stock_of(lab, keys["lenet"]).held_out.batch(torch.tensor([3]))
    assert told["answers"][0]["logits"] == pytest.approx(subject.logits(x)[0].tolist(), rel=1e-5)


def test_two_models_answer_to_one_image(looker, keys):
    told = looker.see({"models": [{"run": keys["lenet"]}, {"run": keys["mha_lenet"]}], "picture": {"index": 3}})
    assert [a["run"] for a in told["answers"]] == [keys["lenet"], keys["mha_lenet"]]
    assert told["answers"][0]["logits"] != told["answers"][1]["logits"]


def test_feature_maps_are_what_the_layer_gives(lab, looker, keys):
    told = looker.see({"models": [{"run": keys["lenet"], "layers": ["first"]}], "picture": {"index": 3}})
    (shown,) = told["answers"][0]["features"]
    subject = perform.load(lab, lab.run(keys["lenet"]))
    x = stock_of(lab, keys["lenet"]).held_out.batch(torch.tensor([3]))
    with torch.no_grad():
        wanted = subject.model.first(standardise(x, subject.mean, subject.std))[0]
    raw = torch.frombuffer(bytearray(base64.b64decode(shown["data"])), dtype=torch.uint8).float() / 255
    have = shown["low"] + raw.view(6, 28, 28) * (shown["high"] - shown["low"])
    assert torch.allclose(have, wanted, atol=(shown["high"] - shown["low"]) / 255)


def test_attention_of_a_pixel_is_the_row_of_its_token(lab, looker, keys):
    asked = {"models": [{"run": keys["mha_lenet"]}], "picture": {"index": 3}, "query": {"x": 12.5, "y": 9.5}}
    layer = looker.see(asked)["answers"][0]["attention"][0]
    assert (layer["shape"], layer["at"], layer["margin"]) == ([2, 28, 28], [7, 10], [2.0, 2.0])
    subject = perform.load(lab, lab.run(keys["mha_lenet"]))
    x = stock_of(lab, keys["mha_lenet"]).held_out.batch(torch.tensor([3]))
    with torch.no_grad():
        p = subject.model.first.probabilities(standardise(x, subject.mean, subject.std))[0, :, 7 * 28 + 10]
    assert layer["top"] == pytest.approx(p.amax(1).tolist(), rel=1e-4)


def test_another_pixel_has_another_map(looker, keys):
    asked = {"models": [{"run": keys["mha_lenet"]}], "picture": {"index": 3}}
    one, other = (
        looker.see({**asked, "query": q})["answers"][0]["attention"][0]["data"]
        for q in ({"x": 4.5, "y": 4.5}, {"x": 25.5, "y": 20.5})
    )
    assert one != other


def test_gaussian_heads_come_with_their_centres(lab, looker, keys):
    layers = looker.stock({"run": keys["quadratic"]})["centres"]
    model = perform.load(lab, lab.run(keys["quadratic"])).model
    own = [v.centre.tolist() for v in model.layers()]
    assert [v["centre"] for v in layers] == own
    assert layers[0]["patch"] == 4


def test_a_gaussian_heads_map_does_not_depend_on_the_image(looker, keys):
    asked = {"models": [{"run": keys["quadratic"]}], "query": {"x": 3.5, "y": 3.5}}
    one, other = (looker.see({**asked, "picture": {"index": i}})["answers"][0]["attention"] for i in (0, 1))
    assert one == other


def test_a_windows_map_lies_where_the_window_lies():
    """A model that was only watched: windows of 2 x 2 tokens on a 4 x 4 grid, rolled by one before they were cut."""
    weights = torch.zeros(1, 4, 1, 4, 4)
    weights[0, :, :, :, 3] = 1  # every token looks at the last one of its window
    layer = AttentionLayer("windows", weights, (2, 2), 0, (2, 2), 0, shift=(-1, -1))
    told = seen_from(layer, 32, (8.5, 8.5))  # the token in row 1 and column 1: the first of window 0 after rolling
    shown = torch.frombuffer(bytearray(base64.b64decode(told["data"])), dtype=torch.uint8).view(4, 4)
    assert told["at"] == [1, 1]
    assert shown.nonzero().tolist() == [[2, 2]]  # the last of window 0, rolled back


def test_attention_in_windows_is_watched(lab):
    model = models.build("local_attn", 10, seed=0).eval()
    with torch.no_grad():
        layers = maps_of(model, torch.rand(1, 3, 32, 32))
    assert layers and all(seen_from(v, 32, (3.0, 30.0)) is not None for v in layers)


def test_nothing_is_left_on_a_model_that_was_looked_at(lab, keys):
    model = perform.load(lab, lab.run(keys["mha_lenet"])).model
    with torch.no_grad():
        maps_of(model, torch.zeros(1, 3, 32, 32))
        with captured(model):
            model(torch.zeros(1, 3, 32, 32))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_run_can_be_seen_before_its_training(lab, looker, keys):
    told = [
        looker.see({"models": [{"run": keys["lenet"], "state": s}], "picture": {"index": 3}})["answers"][0]
        for s in ("0", "1")
    ]
    assert told[0]["logits"] == told[1]["logits"]  # the weights of this lab are those of the start


def test_milestones_and_a_running_state_can_be_seen(tmp_path):
    session = session_of(tmp_path / "lab")
    lab, one = session.lab.open(), session.tasks[0]
    lab.folder(one.run.key).mkdir(parents=True)
    lab.save_milestone(one.run.key, 0.5, weights_of(one.run))
    finish(lab, one, weights_of(one.run))
    assert [s["state"] for s in Looker(lab).states(one.run.key)] == ["0", "0.5", "1"]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"models": []},
        {"models": [3]},
        {"models": [{}] * 3},
        {"models": [{"run": "../../etc"}]},
        {"models": [{"run": ["x"]}]},
        {"models": [{"run": "0" * 12}]},
    ],
)
def test_models_that_are_none_are_refused(looker, wrong):
    with pytest.raises(SaccadeError):
        looker.see({"picture": {"index": 0}, **wrong})


@pytest.mark.parametrize(
    "wrong", [{"state": "0.3"}, {"state": 1}, {"layers": ["nothing"]}, {"layers": "first"}, {"layers": ["first"] * 7}]
)
def test_states_and_layers_that_are_none_are_refused(looker, keys, wrong):
    with pytest.raises(SaccadeError):
        looker.see({"models": [{"run": keys["lenet"], **wrong}], "picture": {"index": 0}})


@pytest.mark.parametrize("query", [3, [1, 2], {"x": 1}, {"x": "1", "y": 2}, {"x": float("inf"), "y": 0}])
def test_a_query_that_is_no_place_is_refused(looker, keys, query):
    with pytest.raises(SaccadeError):
        looker.see({"models": [{"run": keys["mha_lenet"]}], "picture": {"index": 0}, "query": query})


def test_a_pixel_outside_is_the_nearest_one_inside(looker, keys):
    asked = {"models": [{"run": keys["mha_lenet"]}], "picture": {"index": 0}, "query": {"x": 900, "y": -900}}
    assert looker.see(asked)["answers"][0]["attention"][0]["at"] == [0, 27]


def test_damaged_weights_are_refused(tmp_path):
    session = session_of(tmp_path / "lab")
    lab, one = Lab(tmp_path / "lab").open(), session.tasks[0]
    finish(lab, one, weights_of(one.run))
    path = lab.folder(one.run.key) / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    with pytest.raises(SaccadeError, match="damaged"):
        Looker(lab).see({"models": [{"run": one.run.key}], "picture": {"index": 0}})
