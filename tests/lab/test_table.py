import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.lab.table import Table, gap, per_seed, records, slope_per_seed
from saccade.spec import Recipe, Run, SaccadeError, Settings, Task


def row(seed, value, **more):
    return {"metric": "accuracy", "value": value, "n": 10, "seed": seed, "arm": "CNN", **more}


rows = st.lists(st.builds(row, st.integers(0, 3), st.floats(0, 1), x=st.integers(1, 4), split=st.sampled_from("ab")))


@given(rows, st.integers(1, 4), st.sampled_from("ab"))
def test_filters_commute(some, x, split):
    table = Table(tuple(some))
    assert table.at(x=x).at(split=split) == table.at(split=split).at(x=x) == table.at(x=x, split=split)


def test_series_needs_one_row_a_seed():
    table = Table((row(0, 0.5, x=1), row(0, 0.6, x=2), row(1, 0.7, x=1)))
    assert table.series("accuracy", x=1) == {0: 0.5, 1: 0.7}
    with pytest.raises(SaccadeError, match="more than one row for seed 0"):
        table.series("accuracy")
    assert table.curve("accuracy", "x") == {1: {0: 0.5, 1: 0.7}, 2: {0: 0.6}}


def test_slope_is_least_squares_per_seed():
    curve = {1: {0: 1.0, 1: 3.0}, 2: {0: 2.0, 1: 2.0}, 3: {0: 3.0, 1: 1.0, 2: 9.0}}
    assert slope_per_seed(curve) == pytest.approx({0: 1.0, 1: -1.0})  # seed 2 lacks two points
    assert per_seed(lambda a, b: a - b, {0: 1.0, 1: 2.0}, {1: 0.5}) == {1: 1.5}


def test_gaps_are_counted_where_they_belong():
    run = Run("lenet", "d", Recipe(images=1), 4, data_args=Settings(backgrounds=8))
    table = Table((row(0, 0.5, backgrounds=8),), (gap(Task(run, arm="CNN"), "diverged: nan"),))
    assert table.missing(arm="CNN", backgrounds=8, split="ood") == 1
    assert table.missing(arm="CNN", backgrounds=4) == 0
    assert table.at(arm="CNN", metric="accuracy").gaps == table.gaps


def test_record_joins_run_and_condition_and_csv_round_trips():
    run = Run("lenet", "d", Recipe(images=1), 4, Settings(head="mean"), Settings(backgrounds=8))
    row = {"metric": "accuracy", "value": 0.5, "n": 3, "at": {"split": "ood"}}
    (made,) = records(Task(run, arm="CNN, pooled"), [row])
    assert made["arm"] == "CNN, pooled" and made["head"] == "mean" and made["backgrounds"] == 8
    back = list(csv.DictReader(io.StringIO(Table((made,)).to_csv())))
    assert back[0]["split"] == "ood" and float(back[0]["value"]) == 0.5 and back[0]["run"] == run.key


def test_a_printed_table_shows_estimates_and_not_its_rows():
    rows = tuple(
        {"metric": "accuracy", "value": 0.5 + 0.1 * seed, "n": 10, "seed": seed, "arm": "a", "split": split, "run": ""}
        for split in ("train", "test")
        for seed in range(3)
    )
    shown = repr(Table(rows))
    assert shown.splitlines()[0] == "Table of 6 rows"
    assert "accuracy at split test: 60 % ± 25, n=3" in shown
    alone = {**rows[0], "low": 0.2, "high": 0.8}
    assert "accuracy: 50 % [20, 80] n=10 images" in repr(Table((alone,)))
    assert "(seeds 0)" in repr(Table(rows[:1]))


def test_conditions_are_the_fields_that_tell_rows_apart():
    rows = tuple({"metric": "m", "value": 1.0, "seed": s, "x": x, "same": 1} for s in range(2) for x in (1, 2))
    assert Table(rows).conditions("m") == [{"x": 1}, {"x": 2}]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"value": st.integers(0, 3)}, optional={k: st.sampled_from("ab") for k in ("metric", "arm")}
        )
    )
)
def test_the_index_finds_what_a_walk_over_all_rows_finds(some):
    """Also rows that lack a field, and values that are lists."""
    table = Table(tuple(some))
    for where in (
        {"metric": "a"},
        {"arm": "b", "metric": "a"},
        {"arm": ("a", "b")},
        {"metric": "c"},
        {"value": 1, "arm": "a"},
    ):
        wanted = {k: v if isinstance(v, tuple) else (v,) for k, v in where.items()}
        assert list(table.at(**where)) == [r for r in some if all(r.get(k) in v for k, v in wanted.items())]
