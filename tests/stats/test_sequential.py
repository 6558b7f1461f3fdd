"""Looks at 5, 10 and 20 seeds: false decisions over all looks, for every test that verdicts use."""

import numpy as np
import pytest

from saccade import stats
from saccade.stats import sequential

REPEATS = 400  # 5 % of 400 worlds is 20; 32 would happen by chance in 0.6 % of test runs


def decided_at(p_by_look):
    """The number of seeds at the first look whose p lies below its level."""
    return next((n for n, level in sequential.levels().items() if n in p_by_look and p_by_look[n] < level), None)


def series(values):
    return dict(enumerate(values))


def greater(r):
    a, b = r.standard_normal((2, 20))
    return lambda n: stats.greater(series(a[:n]), series(b[:n]))


def at_the_margin(r):
    a, b = r.standard_normal((2, 20))
    return lambda n: stats.equivalent(series(a[:n] + 1.0), series(b[:n]), margin=1.0)


def spreads(r):
    a, b = r.standard_normal((2, 20))
    return lambda n: stats.spread_greater(series(a[:n]), series(b[:n]))


def all_of(r):
    """One part holds by far, the other is null: the null decides."""
    a, b = r.standard_normal((2, 20))
    return lambda n: stats.all_of(stats.above(series(a[:n] + 9), 0.0), stats.above(series(b[:n]), 0.0))


def two_sided(evidence):
    return min(1.0, 2 * min(evidence.p, evidence.p_against))


@pytest.mark.parametrize("null", [greater, at_the_margin, spreads, all_of])
def test_false_decisions_over_all_looks_stay_below_five_percent(null):
    wrong = 0
    for repeat in range(REPEATS):
        evidence = null(np.random.default_rng(repeat))
        wrong += decided_at({n: two_sided(evidence(n)) for n in sequential.LOOKS}) is not None
    assert wrong <= 32


def test_bands_err_one_sidedly_at_their_border():
    """Two bands that just touch: called apart more often than 5 % would be a false decision of that test."""
    wrong = 0
    for repeat in range(REPEATS):
        a, b = np.random.default_rng(repeat).standard_normal((2, 20))
        p = {n: two_sided(stats.bands_apart(series(a[:n] + 2), series(b[:n]))) for n in sequential.LOOKS}
        wrong += decided_at(p) is not None
    assert wrong <= 32


def test_the_whole_error_rate_is_spent_and_no_more():
    assert sum(sequential.levels().values()) == pytest.approx(stats.ALPHA)
    assert list(sequential.levels()) == list(sequential.LOOKS)


def test_a_clear_effect_is_decided_at_the_first_look_and_an_absent_one_never():
    assert decided_at({5: 0.0001, 10: 0.5}) == 5
    assert decided_at({5: 0.02, 10: 0.01}) == 10  # 0.02 would do for one look, not for the first of three
    assert decided_at({5: 0.5, 10: 0.5, 20: 0.5}) is None
