"""Every study, one code path: each requirement of each claim fails in turn; the verdict is undecided with its reason.

The claims' own tests are replaced by one contrast that is clear, so that only the requirements can stop a verdict.
"""

import dataclasses

import numpy as np
import pytest

from saccade import registry, stats
from saccade.lab.table import Table
from saccade.requirements import InUse, Learned, Results
from saccade.spec import MILESTONES, Reason
from saccade.study import judge

STUDIES = sorted(registry.cards("study"))
SEEDS = range(8)


def rows(metric, mean, fields):
    noise = 0.001 * np.random.default_rng(0).standard_normal(len(SEEDS))
    return [{"metric": metric, "value": mean + noise[s], "seed": s, "run": str(s), "n": 1, **fields} for s in SEEDS]


def contrast(table, **_):
    values = table.series("contrast")
    return stats.greater(values, dict.fromkeys(values, 0.0))


def fields_of(requirement):
    """A row that the requirement reads: of several values one, and one of the field that it goes through."""
    more = {requirement.every: 64} if getattr(requirement, "every", "") else {}
    return more | {k: v[0] if isinstance(v, tuple) else v for k, v in requirement.where.items()}


def met(requirement):
    """Rows that satisfy a requirement."""
    if isinstance(requirement, InUse):
        return rows(requirement.metric, 2 * requirement.least + 1.0, fields_of(requirement))
    goal = 0.9 if requirement.reaches is None else requirement.reaches
    return rows(requirement.metric, goal, fields_of(requirement))


def failed(requirement):
    value = 0.0 if isinstance(requirement, InUse) else requirement.chance
    return rows(requirement.metric, value, fields_of(requirement))


def result_of(claim, study, replaced=None, before=0.5):
    """The label of one claim when one of its requirements is replaced, or the contrast came from another value."""
    supplied = {}
    for requirement in claim.requires:
        for row in met(requirement) if requirement != replaced else failed(requirement):
            supplied[row["metric"], tuple(sorted((k, str(v)) for k, v in row.items() if k != "value"))] = row
    for row in failed(replaced) if replaced else ():  # one that shares its rows with another must win
        supplied[row["metric"], tuple(sorted((k, str(v)) for k, v in row.items() if k != "value"))] = row
    rest = list(supplied.values())

    def table(mean):
        return Table(tuple(rest + rows("contrast", mean, {"arm": "A"})))

    later = Table(tuple({**row, "budget": 9} for requirement in claim.requires for row in met(requirement)))
    results = Results(table(0.5), dict.fromkeys(MILESTONES, table(before)), lambda: later)
    clear = dataclasses.replace(claim, test=contrast, needs="", left_open=False)
    (verdict,) = judge(dataclasses.replace(study, claims=(clear,)), results, "large")
    return verdict


@pytest.mark.parametrize("name", STUDIES)
def test_every_requirement_can_stop_its_claim(name):
    study = registry.study(name)
    trained = [c for c in study.claims if c.trained and c.requires]
    assert trained
    for claim in trained:
        assert result_of(claim, study).says == "reproduced", claim.id
        assert result_of(claim, study, before=0.9).reason is Reason.STILL_MOVING, claim.id
        for requirement in claim.requires:
            reason = result_of(claim, study, replaced=requirement).reason
            assert reason is requirement.reason, (claim.id, requirement.asks)


@pytest.mark.parametrize("name", STUDIES)
def test_every_claim_on_trained_models_says_what_must_have_learned(name):
    for claim in registry.study(name).claims:
        assert not claim.trained or any(isinstance(r, Learned) for r in claim.requires), claim.id


@pytest.mark.parametrize("name", STUDIES)
def test_smoke_decides_nothing_in_any_study(name):
    study = registry.study(name)
    assert not any(v.decided for v in judge(study, Table(), "smoke"))
