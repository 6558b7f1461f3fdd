"""Registration: fixed before the runs, changes named with the number of runs that could have been seen."""

import dataclasses

import pytest

from saccade import stats
from saccade.lab import registration
from saccade.lab.table import Table
from saccade.requirements import learned
from saccade.spec import DamagedFile, Paper
from saccade.study import Claim, Study


def rows(*values):
    return Table(tuple({"metric": "contrast", "value": v, "seed": s, "run": str(s)} for s, v in enumerate(values)))


def first_test(table, *, margin):
    return stats.above(table.series("contrast"), margin)


def rewritten_test(table, *, margin):
    """Other words, the same answer."""
    series = table.series("contrast")
    return stats.above(dict(sorted(series.items())), margin)


def other_test(table, *, margin):
    return stats.above(table.series("contrast"), margin + 1)


def a_study(test=first_test, margin=0.1):
    claim = Claim(
        id="T",
        statement="s",
        tested="above {margin}",
        test=test,
        numbers={"margin": margin},
        requires=(learned("A", 0.9),),
    )
    return Study("test", "?", Paper("someone"), lambda scale, chosen: [], (), (claim,))


def test_what_is_claimed_before_the_first_run_is_registered_as_such(tmp_path):
    assert "before the runs" in registration.review(a_study(), tmp_path, Table(), 0)["T"]
    assert "before the runs" in registration.review(a_study(), tmp_path, rows(1.0, 2.0, 3.0), 3)["T"]
    kept = registration.read(tmp_path)[0]["claims"]["T"]["declared"]
    assert kept["tested"] == "above 0.1" and kept["numbers"] == {"margin": 0.1}
    assert any("60% of the way" in sentence for sentence in kept["requires"])


def test_a_threshold_moved_after_runs_is_reported_with_their_number(tmp_path):
    registration.review(a_study(), tmp_path, Table(), 0)
    registration.review(a_study(), tmp_path, rows(1.0, 2.0), 2)
    told = registration.review(a_study(margin=0.05), tmp_path, rows(1.0, 2.0), 2)["T"]
    assert told.startswith("changed after 2 runs") and "numbers" in told


def test_a_threshold_moved_before_any_run_is_no_change(tmp_path):
    registration.review(a_study(), tmp_path, Table(), 0)
    assert "before the runs" in registration.review(a_study(margin=0.05), tmp_path, Table(), 0)["T"]


def test_a_rewritten_test_with_the_same_answer_is_no_change_and_one_with_another_is(tmp_path):
    seen = rows(1.0, 2.0, 3.5)
    registration.review(a_study(), tmp_path, Table(), 0)
    registration.review(a_study(), tmp_path, seen, 3)
    assert "before the runs" in registration.review(a_study(rewritten_test), tmp_path, seen, 3)["T"]
    assert registration.review(a_study(other_test), tmp_path, seen, 3)["T"].startswith("changed after 3 runs")


def test_another_answer_from_a_function_that_the_test_calls_is_a_change(tmp_path, monkeypatch):
    seen = rows(1.0, 2.0, 3.5)
    registration.review(a_study(), tmp_path, Table(), 0)
    registration.review(a_study(), tmp_path, seen, 3)
    exact = stats.above
    monkeypatch.setattr(stats, "above", lambda series, margin: exact({s: 2 * v for s, v in series.items()}, margin))
    told = registration.review(a_study(), tmp_path, seen, 3)["T"]
    assert told.startswith("changed after 3 runs") and told.endswith(": test")
    told = registration.review(a_study(), tmp_path, rows(1.0, 2.0, 3.5, 3.0), 4)["T"]
    assert told.startswith("changed after 3 runs"), "more rows are no further change"


def test_runs_before_the_registration_are_reported(tmp_path):
    assert registration.review(a_study(), tmp_path, rows(1.0, 2.0), 2)["T"].startswith("registered after 2 runs")


def test_a_damaged_registration_is_named(tmp_path):
    registration.review(a_study(), tmp_path, Table(), 0)
    path = tmp_path / registration.FILE
    path.write_bytes(path.read_bytes().replace(b"0.1", b"0.2"))
    with pytest.raises(DamagedFile, match=registration.FILE):
        registration.read(tmp_path)


def test_a_new_claim_is_registered_when_it_comes(tmp_path):
    registration.review(a_study(), tmp_path, Table(), 0)
    study = a_study()
    more = dataclasses.replace(study, claims=(*study.claims, dataclasses.replace(study.claims[0], id="U")))
    told = registration.review(more, tmp_path, rows(1.0, 2.0), 2)
    assert "before the runs" in told["T"] and told["U"].startswith("registered after 2 runs")
