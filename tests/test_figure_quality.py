"""The program that looks at figures sees each fault it is there for."""

import numpy as np
import pytest

from saccade.lab.table import Table
from saccade.report import draw, figures
from saccade.report.figures import Curves, Fit, Heatmap, Panel
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


def test_a_fit_in_two_panels_stands_once_in_the_key():
    fit = Fit("report", "other", (1.0, 2.0), (0.1, 0.2))
    panels = tuple(Panel(title, (line("a"),), "x", fits=(fit,)) for title in ("p", "q"))
    assert faults(Curves("", panels, "y")) == []
    other = tuple(Panel(title, (line("a", dash),), "x") for title, dash in (("p", "solid"), ("q", "dashed")))
    assert faults(Curves("", other, "y")) == ["the key has 'a, n=2' twice"]


def test_text_on_text_is_seen():
    marks = tuple(figures.Mark(1.0, 0.15, text) for text in ("threshold", "peak"))
    assert any("lies on" in fault for fault in faults(one(line("a"), marks=marks)))


def test_text_that_the_edge_cuts_off_is_seen():
    cell = Estimate(0.5, 0.4, 0.6, 5, "t")
    whole = Heatmap("", ((cell,) * 3,) * 3, ("a", "b", "c"), ("x", "y", "z"), unit="error " * 20)
    assert faults(whole) == []  # broken into lines
    grid = figures.image_grid([[np.zeros((4, 4))]], captions=[["longer than the image that it stands under"]])
    assert any("beyond the figure" in fault for fault in faults(grid))


def test_an_axis_of_two_quantities_or_none_is_seen():
    assert faults(Curves("", (Panel("p", (line("a"),), "x"),), "tokens, and shares")) == [
        "y of 'p' shows two quantities: 'tokens, and shares'"
    ]
    assert faults(Curves("", (Panel("p", (line("a"),)),), "y")) == ["nothing says what x of 'p' shows"]


@pytest.mark.parametrize("ends", [(0.70, 0.86), (0.1, 0.7), (0.01, 0.9), (1e-17, 1.0)])
def test_a_logarithmic_axis_has_numbers_however_short_it_is(ends):
    drawn = figures.line("a", {x: {0: y, 1: 1.01 * y} for x, y in enumerate(ends, 1)}, family="cnn")
    assert faults(Curves("", (Panel("p", (drawn,), "x"),), "error", y_log=True, y_percent=True)) == []


def test_panels_with_a_label_of_their_own_have_an_axis_of_their_own():
    small, large = (
        figures.line(name, {x: {0: k * x, 1: 1.1 * k * x} for x in (1.0, 2.0)}, family="cnn")
        for name, k in (("small", 0.01), ("large", 1.0))
    )
    first, second = draw.draw(
        Curves("", (Panel("", (small,), "x", y_label="pixels"), Panel("", (large,), "x", y_label="shares")), "pixels")
    ).axes[:2]
    assert first.get_ylim()[1] < 0.1 < second.get_ylim()[1]
    assert (first.get_ylabel(), second.get_ylabel()) == ("pixels", "shares")


def test_many_categories_listed_downwards_have_room_for_long_names():
    names = tuple(f"a model with a long name, number {i}" for i in range(14))
    lines = tuple(
        figures.line(label, {i: {0: 0.4 + 0.01 * i, 1: 0.5} for i in some}, family=family)
        for label, family, some in (("ConvNet", "cnn", range(6)), ("ViT", "vit", range(6, 14)))
    )
    marks = (figures.Mark(2, 0.6, line="ConvNet"),)
    assert faults(figures.Bars("", names, lines, "", "accuracy", False, True, marks, down=True)) == []


def test_bars_with_their_names_below_need_no_key():
    bars = figures.Bars("", ("a", "b"), (line("a", xs=(0.0,)), line("b", xs=(1.0,))), "", "accuracy")
    drawn = draw.draw(bars)
    assert not drawn.legends
    assert [t.get_text() for t in drawn.axes[0].get_xticklabels()] == ["a\nn=2", "b\nn=2"]


def test_what_has_no_rows_is_seen_and_left_out_of_a_report():
    bare = Curves("", (*one(line("a"), line("b", "dashed", xs=())).panels, Panel("none", (), "x")), "y")
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
