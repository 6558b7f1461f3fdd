"""Known answers, and simulated coverage and error rates within stated bounds."""

import itertools
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from saccade import stats
from saccade.spec import SaccadeError

A = dict(enumerate([0.781, 0.802, 0.769, 0.795, 0.788]))
B = dict(enumerate([0.752, 0.771, 0.760, 0.758, 0.749]))


def series(values):
    return dict(enumerate(map(float, values)))


def rate(flags):
    flags = list(flags)
    return sum(flags) / len(flags)


def draws(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def test_import_is_quick_and_brings_no_numpy():
    code = "import sys, saccade.stats; print(any(m in sys.modules for m in ('numpy', 'scipy', 'torch')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_estimate_known_answer():
    found = stats.estimate(A)
    assert (found.value, found.n, found.method) == (pytest.approx(0.787), 5, "t")
    # scipy.stats.t.interval(0.95, 4, mean, sem)
    assert (found.low, found.high) == pytest.approx((0.7711718276, 0.8028281724), abs=1e-9)
    wide = stats.estimate(list(A.values()), level=0.99)
    assert wide.low < found.low < found.high < wide.high
    assert wide.level == 0.99


def test_estimate_of_few_or_equal_values():
    one = stats.estimate({3: 0.5})
    assert (one.value, one.n) == (0.5, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    same = stats.estimate([0.1, 0.1, 0.1])
    assert same.low == same.value == same.high
    with pytest.raises(stats.TooFewSeeds) as few:
        stats.estimate({})
    assert few.value.have == 0


@pytest.mark.parametrize("n", [3, 5, 10])
def test_t_interval_coverage(n):
    found = [stats.estimate(row) for row in draws(n, 4000, n).tolist()]
    assert rate(e.low <= 0 <= e.high for e in found) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # scipy.stats.binomtest(k, n).proportion_ci(method="wilson")
        (8, 10, 0.4901624715, 0.9433178485),
        (0, 20, 0.0, 0.1611251581),
        (20, 20, 0.8388748419, 1.0),
        (431, 500, 0.8289979864, 0.8894819911),
    ],
)
def test_wilson_interval(successes, n, low, high):
    found = stats.proportion(successes, n)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert (found.method, found.n) == ("wilson, images", n)
    assert found.low <= found.value <= found.high


def test_wilson_coverage():
    hits = np.random.default_rng(0).binomial(200, 0.93, 2000)
    assert rate(e.low <= 0.93 <= e.high for e in (stats.proportion(int(h), 200) for h in hits)) >= 0.93


def test_greater_known_answer():
    found = stats.greater(A, B, note="x=8")
    # scipy.stats.ttest_rel(a, b, alternative="greater") and its two-sided interval
    assert found.p == pytest.approx(0.00276830221, abs=1e-10)
    assert found.p + found.p_against == pytest.approx(1)
    assert (found.estimate.value, found.estimate.low, found.estimate.high) == pytest.approx(
        (0.029, 0.0142038658, 0.0437961342), abs=1e-9
    )
    assert (found.method, found.unit, found.note) == ("paired t, one-sided", "points", "x=8")
    assert stats.greater(A, B, margin=0.02).p == pytest.approx(0.0832615873, abs=1e-9)
    assert stats.greater(A, B, margin=0.02).estimate == found.estimate
    assert stats.greater(B, A).p == pytest.approx(found.p_against)
    assert stats.greater(B, A).seeds_needed is None


def test_above_known_answer():
    found = stats.above(A, 0.75)
    assert found.p == pytest.approx(0.00145309113, abs=1e-10)  # scipy.stats.ttest_1samp
    assert found.estimate == stats.estimate(A)
    assert stats.above(A, 0.787).p == pytest.approx(0.5)


def test_seeds_are_paired_by_name_and_unshared_ones_left_out():
    shuffled = {s: B[s] for s in (3, 1, 4, 0, 2)}
    assert stats.greater(A, {**shuffled, 77: 0.1}) == stats.greater(A, B)
    with pytest.raises(stats.TooFewSeeds) as few:
        stats.greater(A, {4: 0.7, 9: 0.8})
    assert few.value.have == 1
    assert pickle.loads(pickle.dumps(few.value)).have == 1
    assert "run more seeds" in str(few.value)


@pytest.mark.parametrize(
    ("b", "margin", "p"),
    [
        ((0.2, 0.3, 0.6), 0.0, 0.0),
        ((0.4, 0.5, 0.8), 0.0, 1.0),
        ((0.3, 0.4, 0.7), 0.0, 0.5),
        # 0.3 − 0.2 and 0.7 − 0.6 differ in the last bits, from each other and from 0.1
        ((0.2, 0.3, 0.6), 0.1, 0.5),
        ((0.2, 0.3, 0.6), 0.09, 0.0),
        ((0.2, 0.3, 0.6), 0.11, 1.0),
    ],
)
def test_equal_differences_are_decided_by_their_sign(b, margin, p):
    found = stats.greater(series((0.3, 0.4, 0.7)), series(b), margin=margin)
    assert (found.p, found.p_against) == (p, 1 - p)
    assert found.estimate.low == found.estimate.high
    assert found.seeds_needed == (2 if p == 0 else None)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_greater_errs_in_five_percent_either_way(n):
    a, b = draws(20 + n, 2, 2000, n)
    b = 0.6 * a + 2 * b  # paired, and of other variance
    found = [stats.greater(series(u), series(v)) for u, v in zip(a, b, strict=True)]
    assert rate(e.p < 0.05 for e in found) <= 0.065
    assert rate(e.p_against < 0.05 for e in found) <= 0.065


@pytest.mark.parametrize(("effect", "n"), [(0.5, 34), (0.8, 15), (1.0, 10), (0.2, 199), (0.3, 90)])
def test_seeds_needed_as_in_power_tables(effect, n):
    assert stats.seeds_needed(effect) == n
    assert stats.power_t(effect, n - 1) < 0.8 <= stats.power_t(effect, n)


def test_power_is_what_simulation_finds():
    found = [stats.greater(series(row), series([0] * 6)) for row in 1 + draws(1, 3000, 6)]
    assert rate(e.p < 0.025 for e in found) == pytest.approx(stats.power_t(1.0, 6), abs=0.025)
    assert stats.power_t(0, 5) == pytest.approx(0.025)
    assert stats.power_t(1e6, 1000) == stats.power_t(math.inf, 2) == 1
    assert stats.power_t(-math.inf, 2) == 0


def test_seeds_needed_has_limits():
    assert stats.seeds_needed(0) is None
    assert stats.seeds_needed(-1) is None
    assert stats.seeds_needed(1e-9) is None
    assert stats.seeds_needed(math.inf) == 2
    assert stats.seeds_needed(0.5, alpha=0.05 / 8) > 34
    assert stats.seeds_needed(0.5, power=0.95) > 34


def test_equivalent_known_answer():
    found = stats.equivalent(A, B, margin=0.05)
    assert found.p == pytest.approx(0.00847576538, abs=1e-10)  # the larger of two scipy.stats.ttest_1samp
    assert found.estimate == stats.greater(A, B).estimate
    outside = stats.equivalent(A, B, margin=0.01)
    tails = stats.greater(A, B, margin=0.01).p + stats.greater(A, B, margin=-0.01).p
    assert outside.p_against == pytest.approx(tails)
    assert outside.seeds_needed is None
    swapped = stats.equivalent(B, A, margin=0.01)
    assert (swapped.p, swapped.p_against) == pytest.approx((outside.p, outside.p_against))
    same = stats.equivalent(A, A, margin=0.01)
    assert (same.p, same.p_against, same.seeds_needed) == (0, 1, 2)


@pytest.mark.parametrize("margin", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("n", [3, 5])
def test_equivalent_errs_in_five_percent_at_its_margin(n, margin):
    zero = series([0] * n)
    found = [stats.equivalent(series(row), zero, margin=margin) for row in margin + draws(n, 2000, n)]
    assert rate(e.p < 0.05 for e in found) <= 0.06
    assert 0.03 <= rate(e.p_against < 0.05 for e in found) <= 0.06


def test_seeds_needed_for_equivalence_give_the_power():
    n = stats.equivalent(series([-1, 0, 1]), series([0, 0, 0]), margin=1).seeds_needed
    powers = []
    for seeds in (n - 1, n):
        found = [stats.equivalent(series(r), series([0] * seeds), margin=1) for r in draws(4, 1500, seeds)]
        powers.append(rate(e.p < 0.025 for e in found))
    assert powers[0] < 0.82
    assert powers[1] > 0.77


def test_all_of_takes_the_weakest_part():
    strong, weak = stats.greater(A, B), stats.above({s: A[s] for s in (0, 1, 2)}, 0.78, note="weak")
    both = stats.all_of(strong, weak)
    assert (both.p, both.parts, both.note) == (weak.p, (strong, weak), "weak")
    assert both.p_against == min(1, 2 * weak.p_against)
    assert both.estimate == weak.estimate
    assert both.seeds_needed == weak.seeds_needed
    assert "all of 2" in both.method
    assert stats.all_of(strong).p == strong.p
    with pytest.raises(SaccadeError):
        stats.all_of()


def test_a_claim_made_of_parts_is_shown_by_the_part_that_decides_it():
    """Contradicted by its precise part, where an imprecise one lies further on the other side and says less."""
    sure = stats.above(series([0.010, 0.011, 0.009, 0.010, 0.010]), 0.1, note="sure")
    far = stats.above(series([-0.9, 0.1, -0.4, -0.8, 0.5]), 0.0, note="far")
    good, weak = stats.greater(A, B), stats.above({s: A[s] for s in (0, 1, 2)}, 0.78)
    assert stats.deciding(stats.all_of(far, sure)) is sure
    assert stats.deciding(stats.all_of(good, stats.all_of(far, sure))) is sure
    assert stats.deciding(stats.all_of(good, weak)) is weak
    assert stats.deciding(good) is good


def test_all_of_counts_the_fewest_seeds_and_says_when_more_will_not_help():
    strong = stats.above({s: A[s] for s in (0, 1, 2)}, 0.1)
    weak, wrong = stats.greater(A, B, margin=0.02), stats.greater(B, A)
    both = stats.all_of(strong, weak)
    assert both.estimate == weak.estimate and weak.fewest == weak.estimate.n > 3  # an interval stands beside its own n
    assert both.fewest == stats.all_of(both, weak).fewest == 3
    assert stats.all_of(strong, stats.exact(-2, False)).fewest == stats.exact(-2, False).estimate.n
    assert stats.all_of(strong, weak).seeds_needed == weak.seeds_needed
    assert stats.all_of(weak, wrong).seeds_needed is None
    # All parts hold, yet the claim may stay open after correction for other claims.
    assert stats.all_of(strong, stats.greater(A, B)).seeds_needed == stats.greater(A, B).seeds_needed


def test_all_of_with_counted_parts():
    sampled, true, false = stats.greater(A, B), stats.exact(10, True), stats.exact(-2, False)
    assert stats.all_of(sampled, true).estimate == sampled.estimate
    failed = stats.all_of(sampled, false)
    assert (failed.p, failed.p_against, failed.estimate.method) == (1, 0, "exact")
    certain = stats.greater(series([1, 1]), series([0, 0]))
    assert stats.all_of(true, certain).estimate.n == 2


def test_all_of_never_errs_more_often_than_its_parts():
    one, two = draws(7, 2, 2000, 5)
    for shift in (0, 0.5, 5):  # the second part null, nearly true, plainly true
        found = [
            stats.all_of(stats.above(series(u), 0), stats.above(series(v + shift), 0))
            for u, v in zip(one, two, strict=True)
        ]
        assert rate(e.p < 0.05 for e in found) <= 0.06
        # the first part lies on its border, so the opposite of "all" is not true either
        assert rate(e.p_against < 0.05 for e in found) <= 0.06


def test_spread_greater_known_answer():
    x, y = series([3.1, 5.2, 1.0, 6.3, 2.2, 7.7]), series([2.0, 2.9, 1.8, 2.5, 2.1, 3.3])
    found = stats.spread_greater(x, y)
    # scipy.stats.pearsonr(x + y, x − y, alternative="greater"); the ends of the interval give 0.05 two-sided
    assert found.p == pytest.approx(0.000234971945, abs=1e-12)
    assert found.p + found.p_against == pytest.approx(1)
    assert (found.estimate.value, found.estimate.low, found.estimate.high) == pytest.approx(
        (4.4472337971, 2.6072486070, 7.5857317148), abs=1e-9
    )
    assert found.unit == "ratio"
    assert stats.spread_greater(x, y, ratio=1.5).p == pytest.approx(0.00143127555, abs=1e-10)
    assert stats.spread_greater(x, y, ratio=found.estimate.low).p == pytest.approx(0.025)
    assert stats.spread_greater(x, y, ratio=found.estimate.high).p_against == pytest.approx(0.025)
    assert stats.spread_greater(y, x).p == pytest.approx(found.p_against)
    assert stats.spread_greater(y, x).estimate.low == pytest.approx(1 / found.estimate.high)


def test_spread_greater_without_noise():
    moving, still = series([1, 2, 4]), series([5, 5, 5])
    assert (stats.spread_greater(moving, still).p, stats.spread_greater(still, moving).p) == (0, 1)
    assert stats.spread_greater(moving, still).estimate.value == math.inf
    neither = stats.spread_greater(still, still)
    assert (neither.p, neither.p_against, neither.seeds_needed) == (0.5, 0.5, None)
    double = stats.spread_greater({s: 2 * v for s, v in moving.items()}, moving)
    assert (double.p, double.estimate.low, double.estimate.high) == (0, pytest.approx(2), pytest.approx(2))
    with pytest.raises(stats.TooFewSeeds):
        stats.spread_greater(series([1, 2]), series([1, 3]))


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("correlation", [0, 0.8])
def test_spread_greater_error_and_coverage(n, correlation):
    a, b = draws(40 + n, 2, 2000, n)
    b = 0.5 * (correlation * a + math.sqrt(1 - correlation**2) * b)
    found = [stats.spread_greater(series(u), series(v), ratio=2) for u, v in zip(a, b, strict=True)]
    assert rate(e.p < 0.05 for e in found) <= 0.065
    assert rate(e.p_against < 0.05 for e in found) <= 0.065
    assert rate(e.estimate.low <= 2 <= e.estimate.high for e in found) == pytest.approx(0.95, abs=0.015)


def test_seeds_needed_for_a_spread_give_the_power():
    rng = np.random.default_rng(5)
    found = [
        stats.spread_greater(series(3 * rng.standard_normal(10)), series(rng.standard_normal(10))) for _ in range(1500)
    ]
    n = round(float(np.median([e.seeds_needed or np.inf for e in found])))
    assert 6 <= n <= 14  # sds of 3 and 1 have a correlation of 0.8 between sum and difference: about 10
    assert rate(e.p < 0.025 for e in found) == pytest.approx(0.85, abs=0.1)


def test_spread_above_known_answer():
    found = stats.spread_above({0: 0.0, 1: 0.02, 2: 0.04}, 0.02)
    # two degrees of freedom: the tail of chi-square at 2 is exp(-1), its quantiles are -2 log q
    assert found.estimate.value == pytest.approx(0.02) and found.p == pytest.approx(math.exp(-1))
    assert found.p + found.p_against == pytest.approx(1)
    ends = [math.sqrt(8e-4 / (-2 * math.log(q))) for q in (0.025, 0.975)]
    assert (found.estimate.low, found.estimate.high) == pytest.approx(ends)
    assert stats.spread_above({0: 0.0, 1: 0.02, 2: 0.04}, ends[0]).p == pytest.approx(0.025)


def test_spread_above_needs_three_seeds():
    with pytest.raises(stats.TooFewSeeds):
        stats.spread_above(series([1, 2]), 1)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_spread_above_error_and_coverage(n):
    found = [stats.spread_above(series(row), 1) for row in draws(70 + n, 2000, n)]
    assert rate(e.p < 0.05 for e in found) == pytest.approx(0.05, abs=0.015)
    assert rate(e.p_against < 0.05 for e in found) == pytest.approx(0.05, abs=0.015)
    assert rate(e.estimate.low <= 1 <= e.estimate.high for e in found) == pytest.approx(0.95, abs=0.015)


def test_seeds_needed_for_a_spread_above_give_the_power():
    needed = stats.spread_above(series([-2.0, 0.0, 2.0]), 1).seeds_needed
    found = [stats.spread_above(series(2 * row), 1) for row in draws(7, 1500, needed)]
    assert rate(e.p < 0.025 for e in found) == pytest.approx(0.8, abs=0.06)


def test_bands_apart_known_answer():
    a, b = series([0.8, 0.9, 1.0]), series([0.3, 0.4, 0.5])
    found = stats.bands_apart(a, b)
    assert found.estimate.value == pytest.approx((0.9 - 0.1) - (0.4 + 0.1))
    assert found.estimate.low < found.estimate.value < found.estimate.high
    assert found.p < found.p_against
    assert stats.bands_apart(b, a).p > 0.5
    shifted = stats.bands_apart({s: v + 5 for s, v in a.items()}, b)
    assert shifted.estimate.value == pytest.approx(found.estimate.value + 5)
    still = stats.bands_apart(series([1, 1, 1]), series([0, 0, 0]))
    assert (still.p, still.estimate.low, still.estimate.high) == (0, 1, 1)
    with pytest.raises(stats.TooFewSeeds) as few:
        stats.bands_apart(series([1, 2]), series([1, 2]))
    assert few.value.have == 2


@pytest.mark.parametrize(("n", "low"), [(3, 0.97), (5, 0.955), (10, 0.935)])
@pytest.mark.parametrize("wide", [1, 3])
def test_bands_apart_coverage(n, low, wide):
    a, b = draws(60 + n, 2, 2000, n)
    b = wide * (0.7 * a + math.sqrt(0.51) * b)
    found = [stats.bands_apart(series(u), series(v + 1 + wide)) for u, v in zip(a, b, strict=True)]
    truth = -2 * (1 + wide)
    assert rate(e.estimate.low <= truth <= e.estimate.high for e in found) >= low
    touching = [stats.bands_apart(series(u), series(v - 1 - wide)) for u, v in zip(a, b, strict=True)]
    assert rate(e.p < 0.025 for e in touching) <= 0.055  # more than the nominal 0.025; the docstring says so
    assert rate(e.p_against < 0.025 for e in touching) <= 0.025


def test_exact():
    yes, no = stats.exact(1234, True, "counted"), stats.exact(0, False)
    assert (yes.p, yes.p_against, yes.note) == (0, 1, "counted")
    assert (no.p, no.p_against) == (1, 0)
    assert (yes.estimate.method, yes.estimate.n, yes.estimate.text()) == ("exact", 0, "1,234 (exact)")


def test_holm_known_answer():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.4, 0.9, 0.8]) == [1.0, 1.0, 1.0]
    assert stats.holm([]) == []
    with pytest.raises(ValueError, match="p-values"):
        stats.holm([0.1, math.nan])


def test_holm_is_monotone_and_blind_to_order():
    ps = [0.001, 0.02, 0.02, 0.3]
    expected = dict(zip(ps, stats.holm(ps), strict=True))
    for order in itertools.permutations(ps):
        assert stats.holm(order) == [expected[p] for p in order]
    assert stats.holm(ps) == sorted(stats.holm(ps))
    assert all(adjusted >= p for p, adjusted in expected.items())


def test_holm_family_wise_error_under_the_complete_null():
    def any_claim(values):  # eight claims judged two-sidedly, as in study.judge
        found = [stats.above(series(v), 0) for v in values]
        return min(stats.holm([min(1, 2 * min(e.p, e.p_against)) for e in found])) < 0.05

    assert rate(any_claim(values) for values in draws(8, 1000, 8, 5)) <= 0.06


def test_holm_counts_a_claim_once_and_those_that_are_still_to_be_tested():
    ps = [0.01, 0.2, 0.02]
    assert stats.holm(ps, of="aab") == pytest.approx([0.02, 0.2, 0.04])  # two claims, until one is left
    assert stats.holm(ps, of="abc") == stats.holm(ps)
    assert stats.holm(ps, others=2) == pytest.approx([0.05, 0.6, 0.08])
    assert stats.holm([0.0, 0.01], others=3) == pytest.approx([0.0, 0.04])


@pytest.mark.parametrize("margin", [0.1, 0.5, 1.0, 2.0])
def test_family_wise_error_of_claims_with_three_answers(margin):
    """Half of the claims have no effect, half one that is just not small: neither may come out as the other."""

    def any_error(values):
        truths = [0.0, margin] * 2
        found = [stats.above(series([x + mean for x in v]), 0) for v, mean in zip(values, truths, strict=True)]
        sides = [min(1, 2 * min(e.p, e.p_against)) for e in found]
        adjusted = stats.holm([*sides, *(stats.small(e, margin) for e in found)], of=[*range(4), *range(4)])
        wrong = [
            (adjusted[i] < 0.05 and (not mean or e.p_against < e.p)) or (mean and adjusted[4 + i] < 0.05)
            for i, (e, mean) in enumerate(zip(found, truths, strict=True))
        ]
        return any(wrong)

    assert rate(any_error(values) for values in draws(9, 1000, 4, 8)) <= 0.06


SIZES = [250, 500, 1000, 2000, 4000, 8000]


def curves(seed, count, seeds, noise=0.05, spread=0.03):
    rng = np.random.default_rng(seed)
    slope = -0.53 + spread * rng.standard_normal((count, seeds, 1))
    return 9.0 * np.asarray(SIZES) ** slope * np.exp(noise * rng.standard_normal((count, seeds, len(SIZES))))


def test_power_law_known_answer():
    errors = [[3 * n**-0.5 for n in SIZES], [5 * n**-0.6 for n in SIZES]]
    law = stats.power_law(SIZES, errors)
    assert law.exponents == pytest.approx((-0.5, -0.6))
    assert law.exponent == stats.estimate(law.exponents)
    assert law.log_prefactor == pytest.approx((math.log(3) + math.log(5)) / 2)
    assert law.sizes == tuple(SIZES)
    assert np.shape(law.residuals) == (2, 6)
    assert np.abs(law.residuals).max() < 1e-12
    assert law.r2 == pytest.approx(1)
    assert stats.fit_power_law(SIZES, errors) == law.exponent


def test_power_law_residuals_and_r2_of_a_bent_curve():
    bent = [[0.5, 0.45, 0.4, 0.3, 0.15, 0.05]]
    law = stats.power_law(SIZES, bent)
    slope, start = np.polyfit(np.log(SIZES), np.log(bent[0]), 1)
    assert law.exponents[0] == pytest.approx(slope)
    assert law.residuals[0] == pytest.approx(np.log(bent[0]) - start - slope * np.log(SIZES))
    assert law.r2 == pytest.approx(np.corrcoef(np.log(SIZES), np.log(bent[0]))[0, 1] ** 2)


def test_power_law_coverage_at_four_seeds():
    found = [stats.fit_power_law(SIZES, errors) for errors in curves(1, 2000, 4)]
    assert {e.n for e in found} == {4}
    assert rate(e.low <= -0.53 <= e.high for e in found) >= 0.92


def test_power_law_of_one_seed_uses_its_residuals_and_says_so():
    found = [stats.fit_power_law(SIZES, errors) for errors in curves(2, 2000, 1, spread=0)]
    assert {(e.n, e.method) for e in found} == {(1, "t, residuals of one seed's fit")}
    assert rate(e.low <= -0.53 <= e.high for e in found) == pytest.approx(0.95, abs=0.015)


GOOD = [[0.5, 0.4, 0.3, 0.2]]


@pytest.mark.parametrize(
    ("sizes", "errors", "says"),
    [
        ([1, 2, 4], [[0.5, 0.4, 0.3]], "at least four sizes, not 3"),
        ([1, 2, 4, 8], [[0.5, 0.4, 0.3, 0.0]], "zero or negative error points cannot be fitted on a log scale"),
        ([1, 2, 4, 8], [[0.5, 0.4, -0.3, 0.1]], "zero or negative"),
        ([1, 2, 4, 8], [*GOOD, [0.5, math.nan, 0.3, 0.2]], "the error in row 1 at size 2 is nan"),
        ([1, 2, 4, 8], [0.5, 0.4, 0.3, 0.2], r"shape \(seeds, 4\), not \(4,\)"),
        ([1, 2, 4, 8], [[0.5, 0.4, 0.3]], r"not \(1, 3\)"),
        ([1, 2, 4, 8], [], "one row per seed"),
        ([1, 2, 4, 8], [[0.5, 0.4, 0.3, 0.2], [0.5]], "needs numbers"),
        ([1, 4, 2, 8], GOOD, "increasing"),
        ([0, 2, 4, 8], GOOD, "positive"),
        ([1, 2, 2, 8], GOOD, "increasing"),
    ],
)
def test_power_law_refusals(sizes, errors, says):
    with pytest.raises(SaccadeError, match=says):
        stats.fit_power_law(sizes, errors)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: stats.estimate({0: 0.5, 7: math.nan}), "seed 7 has the value nan; leave out"),
        (lambda: stats.greater({0: 1.0, 1: math.inf}, {0: 1.0, 1: 1.0}), "seed 1 has the value inf"),
        (lambda: stats.estimate([1, 2], level=95), "level of an interval must lie between 0 and 1"),
        (lambda: stats.proportion(11, 10), "not 11 of 10"),
        (lambda: stats.proportion(0, 0), "n ≥ 1"),
        (lambda: stats.equivalent(A, B, margin=0), "margin .* must be above 0"),
        (lambda: stats.spread_above(A, 0.0), "standard deviation to compare with must be above 0"),
        (lambda: stats.spread_greater(A, B, ratio=-1), "ratio of spreads must be above 0"),
    ],
)
def test_bad_input_gets_a_sentence(call, says):
    with pytest.raises(SaccadeError, match=says):
        call()


@pytest.mark.slow
def test_fits_have_the_same_bits_whatever_the_processor():
    """Published verdicts are compared to the byte, also on a machine whose numpy takes other paths."""
    fit = (
        "import math, random; from saccade import stats; r = random.Random(0); sizes = [128 * 2**i for i in range(9)];"
        "rows = [[math.exp(r.gauss(0, 0.1)) * s**-0.4 for s in sizes] for _ in range(6)];"
        "print(stats.power_law(sizes, rows), stats.curves.crossing(sizes, rows[:3], rows[3:], how='fit'))"
    )
    other = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"}
    command = [sys.executable, "-W", "ignore", "-c", "import saccade.stats.curves; " + fit]
    here, there = (
        subprocess.run(command, env={**os.environ, **env}, capture_output=True, encoding="utf-8", check=True).stdout
        for env in ({}, other)
    )
    assert here == there and "PowerLaw" in here
