"""Crossings, peaks and thresholds with known places; simulated error rates within stated bounds."""

import math

import numpy as np
import pytest

from saccade.spec import SaccadeError
from saccade.stats import TooFewSeeds
from saccade.stats.curves import crossing, find_peak, humps, near, peaked, threshold, together

SIZES = [100, 200, 400, 800, 1600]


def laws(*parts):
    return [[c * n**slope for n in SIZES] for c, slope in parts]


@pytest.mark.parametrize("how", ["interpolate", "fit"])
def test_crossing_of_power_laws(how):
    # c · n^-0.5 meets n^-0.25 at c^4
    a, b = laws((4.5, -0.5), (5, -0.5), (4.2, -0.5)), laws(*[(1, -0.25)] * 3)
    found = crossing(SIZES, a, b, how=how)
    assert found.at.value == pytest.approx((4.5 * 5 * 4.2) ** (4 / 3))
    assert found.at.low < found.at.value < found.at.high
    assert (found.crossed, found.seeds, found.direction, found.at.n) == (3, 3, "a falls below b", 3)
    assert how in found.at.method
    other = crossing(SIZES, b, a, how=how)
    assert other.at.value == pytest.approx(found.at.value)
    assert other.direction == "a rises above b"


@pytest.mark.parametrize("how", ["interpolate", "fit"])
def test_crossing_needs_half_of_the_seeds(how):
    crosses, apart = (4.5, -0.5), (50, -0.5)  # the second would cross far beyond the last size
    b = laws(*[(1, -0.25)] * 4)
    half = crossing(SIZES, laws(crosses, apart, crosses, apart), b, how=how)
    assert (half.crossed, half.seeds, half.at.n) == (2, 4, 2)
    assert crossing(SIZES, laws(crosses, apart, apart, apart), b, how=how) is None
    assert crossing(SIZES, b, b, how=how) is None


def test_crossing_opposite_ways_is_no_crossing_of_one_kind():
    one, two = laws((4.5, -0.5), (1, -0.25), (50, -0.5)), laws((1, -0.25), (4.5, -0.5), (1, -0.25))
    assert crossing(SIZES, one, two) is None


@pytest.mark.parametrize(
    ("ratios", "place"),
    [
        ([4, 2, 0.5, 0.25, 0.2], math.sqrt(200 * 400)),
        ([4, 2, 1, 0.5, 0.25], 400),  # touches at a point
        ([4, 1, 1, 0.5, 0.25], math.sqrt(200 * 400)),  # and at two
        ([2, 0.5, 2, 0.5, 0.25], math.sqrt(200 * 400)),  # three times: the middle one
        ([2, 0.5, 0.4, 0.5, 2], None),  # there and back
        ([1, 2, 2, 2, 1], None),  # touching only
    ],
)
def test_crossing_between_points(ratios, place):
    b = np.full((1, 5), 0.1)
    found = crossing(SIZES, b * ratios, b)
    if place is None:
        assert found is None
    else:
        assert found.at.value == pytest.approx(place)
        assert math.isnan(found.at.low)  # one seed


def test_crossing_coverage():
    rng = np.random.default_rng(0)
    inside = 0
    for noise in 0.03 * rng.standard_normal((600, 2, 5, 5)):
        a, b = laws(*[(4.5, -0.5)] * 5), laws(*[(1, -0.25)] * 5)
        found = crossing(SIZES, a * np.exp(noise[0]), b * np.exp(noise[1]), how="fit")
        inside += found.at.low <= 4.5**4 <= found.at.high
    assert inside / 600 >= 0.92


X = 2.0 ** np.arange(8)
PEAKED = np.array([8, 2, 0, 3, 6, 2.4, -1, -2])  # six high at x=16, above the valley at x=4
NULLS = {
    "flat": np.zeros(8),
    "falls late": np.array([0, 0, 0, 0, 0, 0, 0, -50.0]),  # the worst case: every x has a lower one after it
    "rises early": np.array([-50.0, 0, 0, 0, 0, 0, 0, 0]),
    "falls": -np.arange(8) / 2,
    "U": np.array([9, 0, 0, 0, 0, 0, 0, 9.0]),
}


@pytest.mark.parametrize("seeds", [3, 4, 5, 8])
@pytest.mark.parametrize("shape", NULLS)
def test_curves_without_a_peak_show_one_in_at_most_five_percent(shape, seeds):
    noise = np.random.default_rng(seeds).standard_normal((800, seeds, 8))
    noise[::2] = np.round(2 * noise[::2]) / 2  # half of them as coarse as a small test set
    found = [find_peak(X, 0.01 * (NULLS[shape] + e)) is not None for e in noise]
    assert np.mean(found) <= (0.06 if shape in ("falls late", "rises early") else 0.02)


@pytest.mark.parametrize(("seeds", "power"), [(3, 0.15), (4, 0.75), (5, 0.95), (8, 0.99)])
def test_a_clear_peak_is_found(seeds, power):
    noise = np.random.default_rng(seeds).standard_normal((300, seeds, 8))
    peaks = [find_peak(X, PEAKED + e) for e in noise]
    peaks = [p for p in peaks if p]
    assert len(peaks) / 300 >= power
    assert all(p.p <= 0.05 for p in peaks)
    if seeds >= 5:
        assert np.mean([p.place.low <= 16 <= p.place.high for p in peaks]) >= 0.95
        assert np.mean([p.height.low <= 6 <= p.height.high for p in peaks]) >= 0.92


def test_peak_known_answer():
    errors = np.array([PEAKED, PEAKED + 1, PEAKED - 2])  # seeds differ in level only, which pairing removes
    peak = find_peak(X, errors)
    assert (peak.place.value, peak.before, peak.after) == (pytest.approx(16), 4, 128)
    assert (peak.place.low, peak.place.high) == pytest.approx((math.sqrt(8 * 16), math.sqrt(16 * 32)))
    assert (peak.height.value, peak.height.low, peak.height.high) == (6, 6, 6)
    assert peak.p < 1e-6


def test_peak_height_is_not_picked_for_its_noise():
    shape = np.array([0, 0, 0, 0, 6, -1, -1, -1])
    heights = [find_peak(X, shape + e).height for e in np.random.default_rng(9).standard_normal((200, 8, 8))]
    # Taken at each seed's own valleys, it would be 7 on average: the lowest of four is one sd below their mean.
    assert np.mean([h.value for h in heights]) == pytest.approx(6, abs=0.1)


def test_no_peak_without_noise():
    for shape in NULLS.values():
        assert find_peak(X, [shape, shape + 0.1, shape + 0.3]) is None
    assert find_peak(X, np.zeros((3, 8))) is None


def test_threshold_known_answer():
    x = [1, 2, 4, 8, 16]
    train = [[0.5, 0.2, 0.01, 0.0, 0.0], [0.5, 0.005, 0.2, 0.01, 0.0], [0.4, 0.3, 0.2, 0.1, 0.1]]
    found = threshold(x, train)  # 4; 8, since 2 does not stay; never
    assert found.value == pytest.approx(math.sqrt(4 * 8))
    assert (found.n, found.method) == (2, "t on log x, 2 of 3 seeds get there")
    assert threshold(x, train[2:] * 2 + train[:1]) is None


def test_threshold_interval_reaches_the_earlier_point():
    steady = threshold([1, 2, 4, 8], [[0.5, 0.1, 0.0, 0.0]] * 3)
    assert (steady.value, steady.low, steady.high) == pytest.approx((4, 2, 4))
    assert threshold([1, 2, 4, 8], [[0.0, 0.0, 0.0, 0.0]] * 3).low == 0
    assert threshold([1, 2, 4, 8], [[0.5, 0.1, 0.0, 0.0]] * 3, step=1).low == pytest.approx(3)  # 2 does not, 3 may
    assert threshold([1, 2, 4, 8], [[0.0, 0.0, 0.0, 0.0]] * 3, step=1).low == pytest.approx(1)
    assert threshold([1, 2, 4, 8], [[0.5, 0.1, 0.0, 0.0]] * 3, level=0.2).value == pytest.approx(2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: crossing(SIZES, laws((1, -1)), laws((1, -1), (2, -1))), "the same seeds, not 1 and 2 rows"),
        (lambda: crossing(SIZES, laws((1, -1)), [[0.0] * 5]), "cannot be crossed on a log scale"),
        (lambda: crossing(SIZES, laws((1, -1)), laws((2, -1)), how="fitted"), "did you mean fit"),
        (lambda: find_peak([1, 2], [[1, 2]] * 3), "at least three x, not 2"),
        (lambda: find_peak([1, 2, 3], [[1, 2, math.nan]] * 3), "is nan"),
        (lambda: threshold([2, 1], [[1, 2]]), "increasing"),
    ],
)
def test_bad_input_gets_a_sentence(call, says):
    with pytest.raises(SaccadeError, match=says):
        call()


def test_peak_of_two_seeds_cannot_be_tested():
    with pytest.raises(TooFewSeeds) as few:
        find_peak(X, [PEAKED, PEAKED])
    assert few.value.have == 2


def test_curves_of_a_table_as_arrays():
    a = {1: {0: 0.5, 1: 0.6, 2: 0.7}, 2: {0: 0.4, 2: 0.3}, 4: {0: 0.2, 1: 0.2, 2: 0.1}}
    x, seeds, (rows,) = together(a)
    assert (x, seeds) == ([1.0, 2.0, 4.0], [0, 2])  # seed 1 lacks x = 2
    np.testing.assert_array_equal(rows, [[0.5, 0.4, 0.2], [0.7, 0.3, 0.1]])
    b = {1: {0: 1.0, 1: 1.0}, 4: {0: 1.0, 1: 1.0}, 8: {0: 1.0}}
    x, seeds, (first, second) = together(a, b)
    assert (x, seeds) == ([1.0, 4.0], [0, 1]) and first.shape == second.shape == (2, 2)
    assert together({})[:2] == ([], [])


@pytest.mark.parametrize("seeds", [4, 5, 8])
@pytest.mark.parametrize("shape", NULLS)
def test_a_peak_is_claimed_as_rarely_as_found(shape, seeds):
    noise = np.random.default_rng(100 + seeds).standard_normal((400, seeds, 8))
    wrong = [peaked(X, 0.01 * (NULLS[shape] + e)).p < 0.025 for e in noise]
    assert np.mean(wrong) <= 0.05


@pytest.mark.parametrize("seeds", [5, 8])
def test_a_peak_of_just_the_least_height_is_denied_in_at_most_five_percent(seeds):
    border = 0.02 * np.array([1, 0, 0, 1, 0, 0, 0, 0.0])  # stands out by exactly 0.02
    noise = np.random.default_rng(seeds).standard_normal((600, seeds, 8))
    assert np.mean([peaked(X, border + 0.005 * e).p_against < 0.025 for e in noise]) <= 0.05


def test_a_clear_peak_and_a_clear_fall():
    up = peaked(X, 0.01 * PEAKED + np.zeros((5, 1)))
    assert up.p < 1e-6 and up.p_against > 0.5 and up.estimate.value == pytest.approx(0.06) and "16" in up.note
    noise = 0.001 * np.random.default_rng(0).standard_normal((5, 8))
    down = peaked(X, 0.5 - 0.03 * np.arange(8) + noise)
    assert down.p > 0.5 and down.p_against < 1e-3
    with pytest.raises(TooFewSeeds):
        peaked(X, [PEAKED, PEAKED])


def test_humps_are_taken_where_the_others_have_them():
    flat = np.zeros((3, 8))
    own = humps(0.01 * PEAKED + flat)
    assert [h.height for h in own] == pytest.approx([0.06] * 3)
    assert [h.descent for h in own] == pytest.approx([0.08] * 3) and [h.gain for h in own] == pytest.approx([0.02] * 3)
    assert [h.height for h in humps(flat, 0.01 * PEAKED + flat)] == pytest.approx([0] * 3)
    with pytest.raises(SaccadeError, match="one shape"):
        humps(flat, flat[:, :4])


@pytest.mark.parametrize(("value", "verdict"), [(6, "near"), (2, "above"), (30, "below")])
def test_near_known_answer(value, verdict):
    x = [1, 2, 4, 5, 6, 8, 16]
    train = [[0.5, 0.3, 0.1, 0.05, 0.0, 0.0, 0.0], [0.5, 0.3, 0.1, 0.0, 0.0, 0.0, 0.0]] * 3  # 6 and 5
    found = near(x, train, value)
    assert found.estimate.value == pytest.approx(math.sqrt(30)) and found.estimate.n == 6
    assert (found.p < 0.01) == (verdict == "near") and (found.p_against < 0.01) == (verdict != "near")
    assert found.note == {6: "asked: 2.5 to 12.5", 2: "asked: 0.5 to 4.5", 30: "asked: 14.5 to 60.5"}[value]


def test_near_counts_what_the_grid_does_not_tell():
    coarse = near([2, 16], [[0.5, 0.0]] * 5, 6)  # somewhere from 3 to 16
    assert coarse.p > 0.5 and coarse.p_against > 0.5
    never = near([1, 2, 4], [[0.5, 0.4, 0.3]] * 5, 1)
    assert never.p > 0.5 and never.p_against < 1e-6  # above 4, so not within a factor 2 of 1
    assert math.isinf(never.estimate.high)
    open_end = near([1, 2, 4], [[0.5, 0.4, 0.3]] * 5, 6)
    assert open_end.p > 0.5 and open_end.p_against > 0.5
    least = near([1, 2, 4], [[0.0, 0.0, 0.0]] * 5, 2)  # one channel is the smallest model there is: a factor 2
    assert least.p < 1e-6
