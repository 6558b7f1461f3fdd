"""Probes on subjects whose answer is provable: constant models, and models that read one thing or another."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from saccade import registry
from saccade.data import changes
from saccade.data.folder import Masked
from saccade.data.images import Images, Plain, Source
from saccade.probes import calibration as calibrations
from saccade.spec import SaccadeError, Settings
from saccade.subjects import answers
from saccade.subjects.subject import Subject

SIZE, N = 16, 40


class Fixed(Source):
    """A source with images that are given."""

    def __init__(self, images: Images) -> None:
        object.__setattr__(self, "images", images)
        for name, value in (("name", "given"), ("args", Settings()), ("seed", 0), ("device", "cpu")):
            object.__setattr__(self, name, value)

    def __call__(self, split: str) -> Images:
        return self.images


def plain(x, y, classes=2, mean=0.0):
    return Plain(y, classes, (mean,) * x.shape[1], (1.0,) * x.shape[1], x)


@pytest.fixture
def drawn():
    """Random images with random labels of four classes."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (N, 3, SIZE, SIZE), generator=draw, dtype=torch.uint8)
    return Fixed(plain(x, torch.arange(N) % 4, 4))


class By(nn.Module):
    """Answers from a function of the images."""

    def __init__(self, rule):
        super().__init__()
        self.rule = rule

    def forward(self, x):
        return self.rule(x)


def subject(rule, **more):
    return Subject(By(rule), (0.0,), (1.0,), **more)


def constant(x):
    return torch.tensor([1.0, 0, 0, 0]).expand(len(x), -1)


def rows(probe, asked, data, **settings):
    return list(registry.find("probe", probe)(asked, data, **settings))


def value(found, metric, **at):
    (one,) = [r.value for r in found if r.metric == metric and all(r.at[k] == v for k, v in at.items())]
    return one


# -- what every probe of changed images shares

CHANGING = ["image_transforms", "occlusion", "corruptions", "patch_shuffle"]


@pytest.mark.parametrize("probe", CHANGING)
def test_a_constant_model_keeps_every_answer(probe, drawn):
    kept = [r.value for r in rows(probe, subject(constant), drawn) if r.metric.endswith("answer_kept")]
    assert kept and set(kept) == {1.0}


@pytest.mark.parametrize("probe", CHANGING)
def test_answers_are_asked_once_when_probes_share_them(probe, drawn):
    asked = []
    one = subject(lambda x: (asked.append(len(x)), constant(x))[1], kept={})
    rows(probe, one, drawn)
    first = len(asked)
    rows(probe, one, drawn)
    assert first > 1 and len(asked) == first


def test_shared_answers_are_the_models_own(drawn):
    rule = by_one_pixel
    shared, alone = subject(rule, kept={}), subject(rule)
    for probe in CHANGING:
        assert [r.value for r in rows(probe, shared, drawn)] == [r.value for r in rows(probe, alone, drawn)]


def by_one_pixel(x):
    """Which quarter of brightness the pixel in the middle has: as sensitive to place as can be."""
    level = (x[:, 0, SIZE // 2, SIZE // 2] * 3.999).long()
    return torch.nn.functional.one_hot(level, 4).float()


def by_brightness(x):
    """The order of pixels does not matter."""
    level = ((x.mean((1, 2, 3)) - 0.45) * 40).clamp(0, 3).long()
    return torch.nn.functional.one_hot(level, 4).float()


# -- image_transforms


def test_shifts_move_what_is_there_and_bring_in_the_colour():
    x = torch.arange(16.0).view(1, 1, 4, 4).repeat(2, 1, 1, 1) / 16
    moved = changes.shifted(x, torch.tensor([1, 0]), torch.tensor([0, -2]), torch.tensor([0.5]))
    torch.testing.assert_close(moved[0, 0, 1:], x[0, 0, :3])
    assert bool((moved[0, 0, 0] == 0.5).all())
    torch.testing.assert_close(moved[1, 0, :, :2], x[1, 0, :, 2:])
    assert bool((moved[1, 0, :, 2:] == 0.5).all())


def test_each_image_has_its_own_shift_also_beyond_its_side():
    x = torch.rand(5, 2, 6, 7, generator=torch.Generator().manual_seed(0))
    down, right = torch.tensor([2, -1, 0, 6, 2]), torch.tensor([-3, 0, 0, 1, -3])
    moved = changes.shifted(x, down, right, torch.tensor([0.25, 0.75]))
    for image in range(5):
        for row in range(6):
            for column in range(7):
                at = row - int(down[image]), column - int(right[image])
                inside = 0 <= at[0] < 6 and 0 <= at[1] < 7
                wanted = x[image, :, at[0], at[1]] if inside else torch.tensor([0.25, 0.75])
                assert torch.equal(moved[image, :, row, column], wanted)


def test_a_model_of_the_middle_is_kept_by_turns_and_not_by_shifts():
    """Images with one bright disc in the middle: turning leaves it, a shift of half the side takes it away."""
    away = (torch.arange(SIZE) - (SIZE - 1) / 2).square()
    disc = ((away[:, None] + away) < 9).byte() * 255
    data = Fixed(plain(disc.expand(N, 1, SIZE, SIZE).contiguous(), torch.ones(N, dtype=torch.long)))

    def lit(x):
        bright = x[:, 0, SIZE // 2 - 1 : SIZE // 2 + 1, SIZE // 2 - 1 : SIZE // 2 + 1].mean((1, 2))
        return torch.stack([1 - bright, bright], 1)

    found = rows("image_transforms", subject(lit), data, translation=(0.5,), rotation=(30, 90), scale=(2.0,))
    assert value(found, "answer_kept", transform="translation", severity=0.5) == 0
    assert value(found, "answer_kept", transform="rotation", severity=30) == 1
    assert value(found, "transformed_accuracy", transform="scale", severity=2.0) == 1


def test_a_shift_of_a_pixel_changes_a_model_of_one_pixel(drawn):
    found = rows("image_transforms", subject(by_one_pixel), drawn, translation=(1 / SIZE,), rotation=(), scale=())
    assert value(found, "answer_kept", transform="translation", severity=1 / SIZE) < 0.6  # a quarter, by chance


def test_four_quarter_turns_are_none(drawn):
    x = drawn("test").batch(torch.arange(4))
    from saccade.data import pixels

    turned = x
    for _ in range(4):
        turned = changes.warped(turned, pixels.rotation(torch.full((4,), 90.0)), torch.zeros(3))
    torch.testing.assert_close(turned, x, atol=1e-4, rtol=0)


# -- occlusion


def test_the_covered_area_is_the_share(drawn):
    x = torch.ones(6, 3, 20, 20)
    covered = changes.covered(x, torch.arange(6), torch.arange(6), 10, torch.zeros(3))
    assert float((covered == 0).float().mean()) == 0.25


def test_covering_everything_leaves_what_a_model_says_to_nothing(drawn):
    found = rows("occlusion", subject(by_one_pixel), drawn, shares=(1.0,))
    grey = by_one_pixel(torch.zeros(1, 3, SIZE, SIZE)).argmax()
    wanted = float((drawn("test").y == grey).float().mean())
    assert value(found, "occluded_accuracy", share=1.0) == pytest.approx(wanted)


# -- corruptions


@pytest.mark.parametrize("kind", changes.CORRUPTIONS)
def test_a_stronger_corruption_is_farther_from_the_image(kind, drawn):
    x = changes.blurred(drawn("test").batch(torch.arange(8)), 1.0)  # photographs are smoother than noise
    draw = [torch.Generator().manual_seed(1) for _ in range(5)]
    far = [float((changes.corrupted(x, kind, s, draw[s - 1]) - x).square().mean()) for s in (1, 2, 3, 4, 5)]
    assert far == sorted(far) and far[0] > 0


def test_blur_and_contrast_keep_a_flat_image():
    flat = torch.full((2, 3, SIZE, SIZE), 0.3)
    for kind in ("blur", "contrast", "pixelate"):
        torch.testing.assert_close(changes.corrupted(flat, kind, 5), flat, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (28, 30), (9, 5)])
def test_blur_is_the_convolution_with_a_gaussian(height, width):
    x, sigma = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0)), 1.3
    reach = 4  # three standard deviations, rounded up
    line = torch.exp(-0.5 * (torch.arange(-reach, reach + 1.0) / sigma) ** 2)
    kernel = (line[:, None] * line / line.sum() ** 2).expand(3, 1, -1, -1)
    padded = torch.nn.functional.pad(x, (reach,) * 4, mode="replicate")
    wanted = torch.nn.functional.conv2d(padded, kernel, groups=3)
    torch.testing.assert_close(changes.blurred(x, sigma), wanted, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (28, 30), (9, 5), (65, 32)])
@pytest.mark.parametrize("strength", [1, 2, 3, 4, 5])
def test_coarse_pixels_are_means_over_areas(height, width, strength):
    x = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    small = [max(1, round(changes.PIXELATE[strength - 1] * side)) for side in (height, width)]
    areas = torch.nn.functional.interpolate(x, size=small, mode="area")
    wanted = torch.nn.functional.interpolate(areas, size=(height, width), mode="nearest-exact")
    torch.testing.assert_close(changes.corrupted(x, "pixelate", strength), wanted, atol=1e-6, rtol=0)


def test_the_mean_over_the_ladder_is_the_mean_of_its_rungs(drawn):
    found = rows("corruptions", subject(by_one_pixel), drawn)
    rungs = [r.value for r in found if r.metric == "corrupted_accuracy"]
    assert len(rungs) == 20
    assert value(found, "mean_corrupted_accuracy") == pytest.approx(sum(rungs) / 20)


# -- patch shuffle stays what it was


def test_a_bag_of_pixels_does_not_notice_shuffled_squares(drawn):
    found = rows("patch_shuffle", subject(by_brightness), drawn)
    assert all(r.value == 1 for r in found if r.metric == "answer_kept")


# -- calibration


def confident(share):
    """Says class 0 with this confidence, always."""
    return lambda x: torch.tensor([share, 1 - share]).log().expand(len(x), -1)


def test_a_model_as_sure_as_it_is_right_has_no_error():
    y = (torch.arange(N) % 10 >= 7).long()  # class 0 in seven of ten
    found = rows("calibration", subject(confident(0.7)), Fixed(plain(torch.zeros(N, 1, 2, 2).byte(), y)), bins=1)
    assert value(found, "calibration_error") == pytest.approx(0, abs=1e-6)
    assert value(found, "over_confidence") == pytest.approx(0, abs=1e-6)
    assert value(found, "brier") == pytest.approx(0.7 * 2 * 0.3**2 + 0.3 * 2 * 0.7**2, abs=1e-6)
    assert value(found, "log_loss") == pytest.approx(-0.7 * math.log(0.7) - 0.3 * math.log(0.3), abs=1e-6)


def test_a_model_surer_than_right_is_over_confident_by_that_much():
    y = torch.arange(N) % 2
    found = rows("calibration", subject(confident(0.9)), Fixed(plain(torch.zeros(N, 1, 2, 2).byte(), y)), bins=1)
    assert value(found, "calibration_error") == pytest.approx(0.4, abs=1e-6)
    assert value(found, "over_confidence") == pytest.approx(0.4, abs=1e-6)
    # a bin is named by its number alone, so that bins of several seeds are averaged
    assert {(r.metric, r.at["bin"], round(r.value, 6)) for r in found if "bin" in r.at} == {
        ("bin_accuracy", 1, 0.5),
        ("bin_confidence", 1, 0.9),
    }


def test_errors_of_two_bins_do_not_cancel():
    confidence = np.array([0.6] * 10 + [0.8] * 10)
    right = np.array([1] * 10 + [0] * 4 + [1] * 6, bool)  # 1.0 and 0.6: 0.4 too low, 0.2 too high
    assert calibrations.calibration_error(confidence, right, 2) == pytest.approx(0.3)


# -- background_reliance


def masked():
    """A square in the middle whose red says the class, on a background whose green says it too."""
    y = torch.arange(N) % 2
    x = torch.zeros(N, 3, SIZE, SIZE)
    x[:, 1] = y[:, None, None] * 255.0
    mask = torch.zeros(N, 1, SIZE, SIZE)
    mask[:, :, 4:12, 4:12] = 255
    inside = torch.stack([y * 255.0, torch.full((N,), 128.0), torch.zeros(N)], 1)[:, :, None, None]
    return Masked(y, 2, (0.25, 0.5, 0.0), (1.0,) * 3, torch.where(mask > 0, inside, x).byte(), mask.byte())


def of_channel(channel, where):
    def rule(x):
        level = x[:, channel, where, where].mean((-2, -1)) if isinstance(where, slice) else x[:, channel, where, where]
        return torch.stack([1 - level, level], 1)

    return rule


def test_a_model_of_the_object_does_not_mind_the_background():
    found = rows("background_reliance", subject(of_channel(0, slice(6, 10))), Fixed(masked()))
    assert {r.at["show"]: r.value for r in found if r.metric == "background_accuracy"} == {
        "original": 1.0, "own": 1.0, "foreign": 1.0, "none": 1.0,
    }  # fmt: skip
    assert value(found, "background_gap") == 0 and value(found, "follows_background") == 0


def test_a_model_of_the_background_is_led_by_it():
    found = rows("background_reliance", subject(of_channel(1, 0)), Fixed(masked()))
    assert value(found, "background_accuracy", show="own") == 1
    assert value(found, "background_accuracy", show="foreign") == 0
    assert value(found, "background_gap") == 1 and value(found, "follows_background") == 1


def test_background_needs_masks(drawn):
    with pytest.raises(SaccadeError, match="needs to know where the object is"):
        rows("background_reliance", subject(constant), drawn)


def test_a_pasted_object_is_painted_on_the_other_scene():
    from saccade.probes.background_reliance import composed

    data = Source("digits_on_backgrounds", Settings(digits="procedural_digits", scenes="procedural_textures"), 0)
    images = data("ood").head(6)
    index = torch.arange(6)
    torch.testing.assert_close(composed(images, index, index), images.batch(index))
    grey = composed(images, index, None)
    assert float((grey[:, :, 0, 0] - torch.tensor(images.mean)).abs().max()) < 1e-6


# -- cue_conflict


def gratings(period, phase, label):
    """Stripes: the period is the texture, the phase says where they are."""
    at = torch.arange(32.0)
    wave = 0.5 + 0.4 * torch.cos(2 * math.pi * at / period[:, None] + phase[:, None])
    x = wave[:, None, None].expand(-1, 1, 32, 32)
    return plain((255 * x).round().byte().contiguous(), label)


def by_texture(x):
    size = torch.fft.rfft(x[:, 0, 0] - 0.5).abs()
    return size[:, [4, 8]]


def by_place(x):
    level = x[:, 0, 0, 0]
    return torch.stack([1 - level, level], 1)


def test_a_model_of_frequencies_follows_texture():
    y = torch.arange(N) % 2
    data = Fixed(gratings(torch.where(y == 1, 4.0, 8.0), torch.zeros(N), y))
    found = rows("cue_conflict", subject(by_texture), data)
    assert value(found, "shape_bias") == 0 and value(found, "follows_texture") == 1


def test_a_model_of_places_follows_shape():
    y = torch.arange(N) % 2
    data = Fixed(gratings(torch.full((N,), 8.0), torch.where(y == 1, 0.0, math.pi), y))
    found = rows("cue_conflict", subject(by_place), data)
    assert value(found, "shape_bias") == 1 and value(found, "follows_shape") == 1


def test_an_images_own_spectrum_gives_it_back(drawn):
    x = drawn("test").batch(torch.arange(4))
    torch.testing.assert_close(changes.recombined(x, x), x, atol=1e-5, rtol=0)


def test_partners_are_of_the_other_or_the_same_class():
    y = torch.tensor([0, 0, 1, 1, 1, 2])
    draw = torch.Generator().manual_seed(0)
    other, same = changes.partners(y, False, draw), changes.partners(y, True, draw)
    assert bool((y[other] != y).all())
    assert bool((y[same] == y).all()) and int(same[5]) == 5 and bool((same[:5] != torch.arange(5)).all())


# -- attention_span


class Looks(nn.Module):
    """Sixteen places; attention is a given matrix, the same for every image."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, x):
        tokens = torch.nn.functional.avg_pool2d(x, SIZE // 4).flatten(2).transpose(1, 2)
        return torch.bmm(self.weights.expand(len(x), -1, -1), tokens).mean(1)


def span(weights, drawn):
    asked = Subject(Looks(weights), (0.0,), (1.0,))
    return rows("attention_span", asked, drawn, n=8)


def test_looking_everywhere_alike_has_entropy_one_and_the_even_distance(drawn):
    found = span(torch.full((16, 16), 1 / 16), drawn)
    assert value(found, "mean_attention_entropy") == pytest.approx(1)
    (row,) = [r for r in found if r.metric == "mean_attention_distance"]
    assert row.value == pytest.approx(row.at["even"], rel=1e-5)


def test_looking_one_place_to_the_right_has_little_entropy_and_that_distance(drawn):
    step = 0.99 * torch.eye(16).roll(1, 1) + 0.01 * torch.eye(16)
    step[3::4] = torch.eye(16)[3::4] * 0.98 + 0.02 / 16  # the last column stays where it is
    step /= step.sum(1, keepdim=True)
    found = span(step, drawn)
    assert value(found, "mean_attention_entropy") < 0.06
    assert value(found, "mean_attention_distance") == pytest.approx(0.75 * 0.99 * 0.25 + 0.25 * 0.02 * 0.55, abs=0.01)


def test_a_model_without_attention_is_refused(drawn):
    with pytest.raises(SaccadeError, match="needs a model with attention"):
        rows("attention_span", subject(constant), drawn)


# -- the answers themselves


def test_a_variant_is_kept_under_its_name(drawn):
    one = subject(by_one_pixel, kept={})
    dark = answers.said(one, drawn, "test", N, lambda x, index: x * 0, variant="dark")
    assert bool((dark == 0).all())
    assert torch.equal(answers.said(one, drawn, "test", N, lambda x, index: x, variant="dark"), dark)
    assert not torch.equal(answers.said(one, drawn, "test", N), dark)
