"""The program that looks at figures sees each fault it is there for."""

import pytest

from saccade.lab.table import Table
from saccade.report import figures
from saccade.report.figures import Curves, Heatmap, Panel
from saccade.spec import Estimate
from tests.figure_quality import faults


def line(label, dash="solid", xs=(1.0, 2.0)):
    return figures.line(label, {x: {0: 0.1, 1: 0.2} for x in xs}, family="cnn", dash=dash)


def one(*lines, **how):
    return Curves("title", (Panel("panel", lines, "x", **how),), "y")


def test_a_plain_figure_has_no_fault():
    assert faults(one(line("a"), line("b", "dashed"))) == []


def test_two_lines_that_look_alike_are_seen():
    assert faults(one(line("a"), line("b"))) == ["'b' looks like 'a'"]


def test_text_on_text_is_seen():
    marks = tuple(figures.Mark(1.0, 0.15, text) for text in ("threshold", "peak"))
    assert any("lies on" in fault for fault in faults(one(line("a"), marks=marks)))


def test_what_has_no_rows_is_seen_and_left_out_of_a_report():
    bare = Curves("", (*one(line("a"), line("b", "dashed", xs=())).panels, Panel("none", ())), "y")
    assert faults(bare) == ["the key names 'b', which is not drawn", "nothing is drawn in 'none'"]
    assert faults(figures.with_rows(bare)) == []


def test_a_line_whose_runs_all_diverged_stays_in_the_key():
    lost = figures.line("b", {}, family="cnn", dash="dashed", gaps=({"why": "diverged"},))
    (panel,) = figures.with_rows(one(line("a"), lost)).panels
    assert [kept.caption for kept in panel.lines] == ["a, n=2", "b, n=0, 1 diverged"]


def test_a_category_without_bars_is_left_out_and_the_others_close_up():
    rows = [{"metric": "m", "value": 0.1, "at": k, "arm": "a", "seed": s} for k in ("p", "r") for s in (0, 1)]
    style = {"label": "a", "family": "cnn", "where": {"arm": "a"}}
    bars = figures.bars(Table(tuple(rows)), y="m", x="at", lines=[style], categories=("p", "q", "r"))
    kept = figures.with_rows(bars)
    assert kept.categories == ("p", "r") and kept.lines[0].x == (0.0, 1.0)


@pytest.mark.parametrize("columns", [3, 9, 24])
def test_the_columns_of_a_heat_map_do_not_collide(columns):
    cell = Estimate(0.5, 0.4, 0.6, 5, "t")
    names = tuple(f"turned {15 * i}°" for i in range(columns))
    assert faults(Heatmap("", ((cell,) * columns,) * 3, ("a", "b", "c"), names, unit="error")) == []
