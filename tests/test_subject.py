"""Models from elsewhere: what is no answer gives no number, and nothing of the model is changed."""

import pytest
import torch
from torch import nn

import saccade as sc
from saccade.spec import Probe, SaccadeError

DRAWN = {"digits": "procedural_digits", "scenes": "procedural_textures", "backgrounds": 2}
ASKED = [Probe("accuracy", splits=("id",), n=40)]


class Model(nn.Module):
    """A linear map whose answer is changed on its way out."""

    def __init__(self, change=lambda z: z, side=32, channels=3):
        super().__init__()
        self.map, self.change = nn.Linear(channels * side * side, 10), change

    def forward(self, x):
        return self.change(self.map(x.flatten(1)))


def probe(model, **more):
    return sc.probe(model, ASKED, "digits_on_backgrounds", data_args=DRAWN, **more)


def late_nan(z):
    """The first images are fine."""
    return z.where(torch.arange(len(z))[:, None] < 10, torch.nan)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda z: z * torch.nan, "not finite"),
        (lambda z: z + torch.inf, "not finite"),
        (late_nan, "not finite .* for 30 of 40 images"),
        (lambda z: z[:, :, None], r"shape \(40, 10, 1\), not \(40, 10\)"),
        (lambda z: z[:1], r"shape \(1, 10\)"),
        (lambda z: z.mean(0, keepdim=True), r"shape \(1, 10\)"),
        (lambda z: z[:, :3], r"shape \(40, 3\), not \(40, 10\)"),
        (lambda z: (z, z), "answers with tuple"),
    ],
)
def test_what_is_no_answer_is_refused_in_one_sentence(change, says):
    with pytest.raises(SaccadeError, match=says) as error:
        probe(Model(change))
    assert "\n" not in str(error.value)


def test_rows_have_intervals_over_images_an_arm_and_outcomes_when_asked():
    torch.manual_seed(0)  # a model that is wrong on all 40 images has its value at the end of its interval
    table = probe(Model(), arm="mine", outcomes=True)
    [row] = table
    assert row["arm"] == "mine" and row["low"] < row["value"] < row["high"]
    assert len(row["each"]) == row["n"] == 40 and row["each"].mean() == row["value"]
    assert "each" not in next(iter(probe(Model())))


def test_mean_and_std_replace_the_data_s():
    seen = []

    class Watch(Model):
        def forward(self, x):
            seen.append(x)
            return super().forward(x)

    probe(Watch(), mean=(0.0,), std=(1.0,))
    assert float(seen[-1].min()) >= 0 and float(seen[-1].max()) <= 1
    with pytest.raises(SaccadeError, match="mean and std go together"):
        probe(Model(), mean=(0.5,))


def test_a_probe_that_gives_no_rows_says_so():
    with pytest.raises(SaccadeError, match="probe sizes gave no rows"):
        sc.probe(Model(), ["sizes"], "digits_on_backgrounds", data_args=DRAWN)


def test_every_part_is_in_its_own_mode_again():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.BatchNorm1d(3072), nn.Linear(3072, 10)).train()
    model[2].eval()  # a user froze it
    before = [m.training for m in model.modules()]
    probe(model)
    assert [m.training for m in model.modules()] == before
    with pytest.raises(SaccadeError):
        sc.probe(model, [Probe("attention_maps")], "digits_on_backgrounds", data_args=DRAWN)
    assert [m.training for m in model.modules()] == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_models_in_another_precision_are_asked_in_it(dtype):
    model = Model()
    plain = probe(model).series("accuracy", split="id")[0]
    assert abs(probe(Model().to(dtype)).series("accuracy", split="id")[0]) <= 1
    model.to(dtype)
    assert abs(probe(model).series("accuracy", split="id")[0] - plain) < 0.1
    assert model.map.weight.dtype == dtype


@pytest.mark.parametrize("takes", [{"side": 224}, {"channels": 1}, {"side": 48, "channels": 1}])
def test_models_for_another_size_or_channels(takes):
    model = Model(**takes)
    with pytest.raises(SaccadeError, match=r"does not take images of shape \(3, 32, 32\).*size=224 or channels=1"):
        probe(model)
    asked = probe(model, size=takes.get("side", 0), channels=takes.get("channels", 0))
    assert 0 <= asked.series("accuracy", split="id")[0] <= 1


def test_a_grey_set_is_shown_to_a_colour_model():
    table = sc.probe(
        Model(),
        [Probe("accuracy", n=20)],
        "points",
        data_args={"of": "procedural_digits", "p": 100},
        channels=3,
    )
    assert len(table) == 1


def test_a_number_of_images_goes_to_every_probe_that_takes_one():
    data = {"of": "procedural_digits", "p": 100}
    asked = ["accuracy", Probe("calibration", n=30), "corruptions"]
    table = sc.probe(Model(), asked, "points", data_args=data, channels=3, n=20)
    assert {(r["probe"], r["n"]) for r in table if "bin" not in r} == {
        ("accuracy", 20),
        ("calibration", 30),
        ("corruptions", 20),
    }


@pytest.mark.parametrize("taken", [lambda: sc.model(family="cnn"), lambda: sc.model(Model)])
def test_a_decorator_taken_from_the_wrong_place_is_named_with_the_right_one(taken):
    with pytest.raises(SaccadeError, match=r"@saccade\.registry\.model\(family="):
        taken()
