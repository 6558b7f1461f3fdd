"""Figure data from rows, and drawings of it."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

from saccade.lab.table import Table, gap, records
from saccade.report import document, draw, figures, looks
from saccade.report.figures import Bars, Curves, Fit, Line, Mark, Panel
from saccade.spec import Estimate, Recipe, Run, SaccadeError, Settings, Task, canonical

LINES = [
    {"label": "CNN", "family": "cnn", "where": {"model": "lenet"}},
    {"label": "MHA", "family": "attention", "dash": "dashed", "where": {"model": "mha"}},
]


def table(seeds: int = 5, lost: int = 0, xs: tuple[int, ...] = (1, 2, 4, 8)) -> Table:
    """Two models at every x; the last `lost` seeds of mha at the largest x diverged."""
    rows, gaps = [], []
    for model in ("lenet", "mha"):
        for x in xs:
            for seed in range(seeds):
                task = Task(Run(model, "digits", Recipe(64), seed, data_args=Settings(x=x)))
                if model == "mha" and x == xs[-1] and seed >= seeds - lost:
                    gaps.append(gap(task, "diverged: loss is nan"))
                    continue
                for split, base in (("id", 0.9), ("ood", 0.1 * (1 + math.log2(x)))):
                    value = base + 0.01 * seed
                    rows.extend(
                        records(task, [{"metric": "accuracy", "value": value, "n": 100, "at": {"split": split}}])
                    )
    return Table(tuple(rows), tuple(gaps))


def simple(rows: Table, **more: object) -> Curves:
    settings = {
        "y": "accuracy",
        "x": "x",
        "lines": LINES,
        "where": {"split": "ood"},
        "x_log": 2,
        "y_percent": True,
        "title": "Accuracy",
        **more,
    }
    return figures.curves(rows, **settings)  # type: ignore[arg-type]


def every_kind(rows: Table) -> list[figures.FigureData]:
    shared = {"y": "accuracy", "x": "x", "lines": LINES, "y_percent": True}
    return [
        simple(rows, marks=[Mark(8, 0.5, "thesis", "MHA")], fits=[Fit("slope 1", "cnn", (1, 8), (0.1, 0.4))]),
        figures.beside(
            *(figures.curves(rows, **shared, where={"split": s}, panel=s, x_down=s == "id") for s in ("id", "ood")),
            title="Both",
        ),
        figures.bars(
            rows,
            y="accuracy",
            x="split",
            lines=LINES,
            where={"x": 8},
            y_percent=True,
            categories={"id": "seen", "ood": "unseen"},
            marks=[Mark(1, 0.5, line="MHA")],
        ),
        figures.Heatmap(
            "Cells", ((Estimate(0.5, 0.4, 0.6, 3), None),), ("cnn",), ("1", "8"), "model", "x", "accuracy", True
        ),
        figures.image_grid(
            [[np.zeros((4, 4)), None], [np.ones((3, 4, 4)), np.full((4, 4, 3), 7, np.uint8)]],
            rows=["a", "b"],
            columns=["left", "right"],
        ),
    ]


def svg(data: figures.FigureData) -> str:
    return draw.render(data, "svg").decode()


def test_a_line_has_the_mean_the_interval_and_every_seed():
    line = simple(table()).panels[0].lines[0]
    assert line.x == (1, 2, 4, 8)
    assert line.estimates[0].value == pytest.approx(0.12)
    assert line.estimates[0].n == 5
    assert line.estimates[0].low < 0.12 < line.estimates[0].high
    assert line.seeds[0] == pytest.approx((0.1, 0.11, 0.12, 0.13, 0.14))
    assert line.caption == "CNN, n=5"


def test_diverged_runs_are_counted_beside_the_mean():
    data = simple(table(lost=1))
    assert data.panels[0].lines[1].missing == 1
    assert data.panels[0].lines[1].caption == "MHA, n=4 to 5, 1 diverged"
    assert "n=4 to 5" in svg(data).replace("\u00a0", " ")
    assert "1 diverged" in svg(data).replace("\u00a0", " ")


def test_a_line_that_lost_every_run_stays_in_the_legend():
    data = simple(table(seeds=2, lost=2, xs=(8,)))
    assert data.panels[0].lines[1].caption == "MHA, n=0, 2 diverged"
    assert "2 diverged" in svg(data).replace("\u00a0", " ")


def test_other_reasons_are_separated():
    rows = table(seeds=1)
    tasks = [Task(Run("mha", "digits", Recipe(64), s)) for s in (7, 8, 9)]
    gaps = tuple(gap(t, w) for t, w in zip(tasks, ("failed: disk", "not run yet", "odd"), strict=True))
    line = simple(Table(rows.rows, gaps)).panels[0].lines[1]
    assert line.caption == "MHA, n=1, 1 failed, 1 not run yet, 1 missing"


def test_relative_curves_divide_within_a_seed():
    line = simple(table(), relative_to=1).panels[0].lines[0]
    assert line.seeds[0] == (1,) * 5
    assert line.seeds[1] == pytest.approx([(0.2 + 0.01 * s) / (0.1 + 0.01 * s) for s in range(5)])
    with pytest.raises(SaccadeError, match="not among"):
        simple(table(), relative_to=3)


def test_a_line_may_have_a_metric_of_its_own():
    data = simple(table(), lines=[{"label": "other", "y": "nothing"}])
    assert data.panels[0].lines[0].caption == "other, no rows yet"
    assert data.panels[0].lines[0].family == "other"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lines": [{"label": "a", "colour": "red"}]}, "no setting of a line"),
        ({"lines": [{"label": "a", "family": "cnnn", "where": {"model": "mha"}}]}, "did you mean cnn"),
        ({"lines": [{"label": "a", "dash": "dots", "where": {"model": "mha"}}]}, "no dash"),
        ({"x": "split", "where": {"x": 8}}, "bars take names"),
    ],
)
def test_mistakes_are_one_sentence(wrong, message):
    with pytest.raises(SaccadeError, match=message):
        simple(table(), **wrong)


def test_bars_keep_the_order_and_names_given():
    bars = every_kind(table())[2]
    assert isinstance(bars, Bars)
    assert bars.categories == ("seen", "unseen")
    assert bars.lines[0].estimates[1].value == pytest.approx(0.42)
    plain = figures.bars(table(), y="accuracy", x="split", lines=LINES, where={"x": 8})
    assert plain.categories == ("id", "ood")
    some = Table(tuple(r for r in table() if (r["model"], r["split"]) != ("mha", "id")))
    cnn, mha = figures.bars(some, y="accuracy", x="split", lines=LINES, where={"x": 8}).lines
    assert (cnn.x, mha.x) == ((0, 1), (1,))  # a bar that is missing leaves its place empty


def test_png_holds_the_pixels():
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    made = figures.picture(pixels)
    assert (made.width, made.height) == (7, 5)
    for given in (pixels, pixels.transpose(2, 0, 1), pixels / 255):
        back = Image.open(io.BytesIO(base64.b64decode(figures.picture(given).png)))
        assert np.array_equal(np.asarray(back), pixels)
    with pytest.raises(SaccadeError, match="an image must be"):
        figures.picture(np.zeros((2, 2, 2, 2)))
    with pytest.raises(SaccadeError, match="captions of columns"):
        figures.image_grid([[pixels]], columns=["a", "b"])


def test_every_kind_is_plain_json():
    for data in every_kind(table()):
        assert figures.jsonable(data)["kind"] == type(data).__name__
        canonical(data)
    alone = figures.jsonable(simple(table(seeds=1)))
    assert alone["panels"][0]["lines"][0]["estimates"][0]["low"] is None
    json.dumps(alone, allow_nan=False)


def test_rows_round_trip_through_csv():
    for data in every_kind(table()):
        rows = data.rows()
        back = list(csv.DictReader(io.StringIO(document.to_csv(rows))))
        assert len(back) == len(rows)
        for row, text in zip(rows, back, strict=True):
            assert {k: "" if v is None else str(v) for k, v in row.items()} == {k: text[k] for k in row}
    kinds = [r["kind"] for r in every_kind(table())[0].rows()]
    assert kinds.count("estimate") == 8
    assert kinds.count("paper") == 1
    assert kinds.count("fit") == 2


def test_families_differ_in_colour_and_in_marker():
    assert len({f.colour for f in figures.FAMILIES.values()}) == len(figures.FAMILIES)
    assert len({f.marker for f in figures.FAMILIES.values()}) == len(figures.FAMILIES)
    assert set(looks.MARKERS) == {f.marker for f in figures.FAMILIES.values()}
    assert figures.colour("cnn") == "#0072b2"
    bright = [sum(int(figures.colour("vit", s)[i : i + 2], 16) for i in (1, 3, 5)) for s in (0, 0.25, 0.5, 0.75, 1)]
    assert bright == sorted(bright, reverse=True)


def test_the_description_names_lines_and_ends():
    told = figures.describe(simple(table(lost=1), y_label="accuracy on unseen backgrounds"))
    for words in ("accuracy on unseen backgrounds", "CNN, n=5", "12 at 1", "1 diverged"):
        assert words in told


@pytest.mark.parametrize(
    "rows",
    [Table(), table(seeds=1), table(seeds=2), table(seeds=1, xs=(8,)), table(lost=2)],
    ids=["empty", "one seed", "two seeds", "one point", "diverged"],
)
def test_everything_draws_without_a_warning(rows):
    for data in every_kind(rows):
        text = svg(data)
        assert text.startswith("<?xml")
        if not len(rows) and isinstance(data, Bars | figures.Heatmap):
            assert "no rows yet" in text or data.rows()


def test_an_empty_figure_says_so():
    assert "no rows yet" in svg(simple(Table()))
    assert "no rows yet" in svg(Curves("none", ()))
    assert "no rows yet" in svg(figures.image_grid([]))


def test_an_empty_panel_leaves_the_other_its_axis():
    text = svg(figures.beside(simple(table(), panel="a"), simple(Table(), panel="b")))
    assert "no rows yet" in text
    assert ">30<" in text


@pytest.mark.slow
def test_the_same_data_give_the_same_file(tmp_path):
    for kind in draw.FORMATS:
        first, second = (draw.save(simple(table()), tmp_path / f"{i}.{kind}").read_bytes() for i in range(2))
        assert first == second
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{i}.{k}" for i in range(2) for k in draw.FORMATS)
    with pytest.raises(SaccadeError, match="no figure format"):
        draw.save(simple(table()), tmp_path / "a.jpeg")


def test_svg_is_text_with_unit_and_n_and_no_date():
    text = svg(simple(table(), y_label="accuracy on unseen backgrounds"))
    assert "accuracy on unseen backgrounds (%)</text>" in text
    assert "CNN, n=5</text>" in text
    assert "<dc:date>" not in text
    assert "Helvetica" in text


def test_labels_are_text_and_not_mathematics_or_markup():
    text = svg(simple(table(), lines=[{"label": "$x_1$ <b>", "where": {"model": "lenet"}}]))
    assert "$x_1$ &lt;b&gt;, n=5" in text


def test_the_papers_value_is_a_hollow_diamond():
    with_mark, without = (svg(simple(table(), marks=m)) for m in ([Mark(8, 0.5)], []))
    assert "paper's value" in with_mark
    assert "paper's value" not in without


def test_wide_intervals_do_not_flatten_the_rest():
    line = Line(
        "a",
        "cnn",
        (1.0, 2.0),
        (Estimate(0.5, -9, 10, 2), Estimate(0.6, 0.55, 0.65, 5)),
        ((0.45, 0.55), (0.6, 0.6)),
    )
    axes = draw.draw(Curves("t", (Panel("", (line,)),))).axes[0]
    low, high = axes.get_ylim()
    assert high - low < 0.5


def test_logarithmic_axes():
    rows = table(xs=(10, 100, 1000, 10000, 100000, 1000000))
    assert draw.draw(simple(rows, x_log=10, y_log=True)).axes[0].get_yscale() == "log"
    with pytest.raises(SaccadeError, match="logarithmic"):
        draw.draw(Curves("t", (Panel("", (figures.line("a", {0: {0: 1.0}}, family="cnn"),), "size", 2),)))


def test_many_points_become_a_band_and_many_panels_rows():
    curve = {x: {0: 0.01 * x, 1: 0.02 * x} for x in range(1, 60)}
    panel = Panel("p", (figures.line("a", curve, family="mlp"),), "step")
    assert len(draw.draw(Curves("t", (panel,))).axes[0].collections) == 1
    many = Panel("p", (figures.line("a", {x: curve[x] for x in (1, 2, 3, 4, 5)}, family="mlp"),) * 14, "step")
    assert len(draw.draw(Curves("t", (many,))).axes[0].collections) == 14
    assert len(draw.draw(Curves("t", (panel,) * 5)).axes) == 6  # two rows of three


def test_large_heatmaps_get_a_scale_instead_of_numbers():
    cells = tuple(tuple(Estimate(i * j, i * j - 1, i * j + 1, 5) for j in range(20)) for i in range(-9, 9))
    names = tuple(map(str, range(20)))
    data = figures.Heatmap("t", cells, names[:18], names, unit="points", diverging=True)
    assert len(draw.draw(data).axes) == 2


def test_figure_data_need_neither_torch_nor_matplotlib():
    code = "import sys, saccade.report.document; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore:Glyph")
def test_control_characters_do_not_get_into_an_svg():
    text = svg(simple(table(), title="a \x1btitle", lines=[{"label": "a\x07rm", "where": {"model": "lenet"}}]))
    xml.etree.ElementTree.fromstring(text)
    assert "arm, n=5" in text and not draw.NOT_XML.search(text)
