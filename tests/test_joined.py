"""A user's architecture as one more arm of a study: trained alike, shown everywhere, no part of any claim."""

import pytest
import torch

from saccade import registry, stats
from saccade.data.images import Plain
from saccade.lab import joined, perform, pipeline
from saccade.lab.table import Table
from saccade.report import figures
from saccade.report.joined import Beside, drawn
from saccade.spec import Recipe, Run, SaccadeError, Settings
from saccade.study import Figure
from saccade.subjects.build import build

DRAWN = {"digits": "procedural_digits", "scenes": "procedural_textures"}
NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.body(x))

class Answers(Net):
    def forward(self, x):
        return {"logits": super().forward(x), "image": x}

class Lazy(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.LazyLinear(classes))

class Fixed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(28 * 28, 10))

class Thousand(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.LazyLinear(1000))

class Empty(nn.Flatten):
    def forward(self, x):
        return super().forward(x)[:, :10]

class Double(Net):
    def __init__(self, classes, channels):
        super().__init__(classes, channels)
        self.double()
    def forward(self, x):
        return super().forward(x.double())

def broken(classes):
    raise ValueError("three is not two")

def text(classes):
    return "a model"
"""


@pytest.fixture
def net(tmp_path):
    file = tmp_path / "mynet.py"
    file.write_text(NET)
    return str(file)


def images(channels=3, size=8):
    x = torch.randint(0, 256, (6, channels, size, size), dtype=torch.uint8)
    return Plain(torch.arange(6) % 10, 10, (0.5,) * channels, (0.5,) * channels, x)


def made(net, function, **shape):
    run = Run(registry.adopt(f"{net}:{function}"), "digits_on_backgrounds", Recipe(images=32), 0)
    return build(run, images(**shape))


def test_a_factory_is_given_the_channels_and_classes_of_the_images(net):
    model = made(net, "Net", channels=1)
    assert model.body[0].in_channels == 1 and model.head.out_features == 10


def test_a_mapping_is_unpacked_for_training(net):
    model = made(net, "Answers")
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 10)


def test_lazy_layers_are_made_by_the_trial_and_from_the_seed(net):
    one, two = made(net, "Lazy"), made(net, "Lazy")
    assert torch.equal(one[1].weight, two[1].weight) and one[1].weight.shape == (10, 3 * 8 * 8)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("Fixed", "does not take images of 3 x 8 x 8"),
        ("Thousand", "1000 scores per image, and the data have 10 classes"),
        ("Empty", "no parameters to train"),
        ("Double", "is a float64 model"),
        ("broken", "raised an error when it was built: ValueError: three is not two"),
        ("text", "returned str, not a torch module"),
    ],
)
def test_what_does_not_fit_is_one_sentence(net, function, sentence):
    with pytest.raises(SaccadeError, match=sentence):
        made(net, function)


def opened(tmp_path, *also, **more):
    return pipeline.open_session(
        "digits_on_backgrounds", "smoke", tmp_path / "lab", {**DRAWN, "images": 32}, "CNN", also=also, **more
    )


def test_a_joined_arm_takes_recipe_data_seeds_and_probes_of_the_arm_it_is_like(net, tmp_path):
    plain, more = opened(tmp_path), opened(tmp_path, f"{net}:Net")
    assert [t.run.key for t in more.planned] == [t.run.key for t in plain.tasks]
    theirs = [(t.run.recipe, t.run.data_args, t.run.seed, t.probes) for t in plain.tasks]
    assert [(t.run.recipe, t.run.data_args, t.run.seed, t.probes) for t in more.tasks[len(theirs) :]] == theirs
    assert {t.arm for t in more.tasks} == {"CNN", "mynet.py:Net"}


def test_the_report_of_a_joined_arm_has_its_own_folder(net, tmp_path):
    plain, more = opened(tmp_path), opened(tmp_path, f"{net}:Net")
    assert more.home == plain.folder and more.folder != plain.folder


@pytest.mark.parametrize(
    ("also", "like", "sentence"),
    [
        (("{}",), "", "needs the name of a function or class in it"),
        (("{}:Net",), "CNNN", "did you mean CNN"),
        (("{}:Nett",), "", "did you mean Net"),
        (("{}:Net", "{}:Net"), "", "give each model once"),
        (("lenett",), "", "did you mean lenet"),
        ((), "CNN", "give --also too"),
    ],
)
def test_a_wrong_name_is_one_sentence(net, tmp_path, also, like, sentence):
    with pytest.raises(SaccadeError, match=sentence):
        opened(tmp_path, *(word.format(net) for word in also), like=like)


@pytest.mark.slow
def test_a_joined_arm_reaches_table_figures_and_report_and_no_claim(net, tmp_path):
    session = opened(tmp_path, f"{net}:Net", f"{net}:Answers")
    for task in session.tasks:
        events = [e.kind for e in perform.perform(session.lab.open(), task)]
        assert events[-1] == "finished", events
    assert {"CNN", "mynet.py:Net", "mynet.py:Answers"} == set(session.table().values("arm"))
    assert set(session.results().whole.values("arm")) == {"CNN"}
    for panel in session.figure("fig8_backgrounds").panels:
        assert {"CNN", "mynet.py:Net", "mynet.py:Answers"} == {line.label for line in panel.lines}, panel.title
    paths = pipeline.write(session).paths
    report = paths["md"].read_text("utf-8")
    assert "Not planned: mynet.py:Answers" in report and "no claim rests on it" in report
    assert "mynet.py:Net" in paths["csv"].read_text("utf-8")
    drawn = list((session.folder / "figures").glob("*.csv"))  # a figure without its rows is left out
    assert len(drawn) > len(session.study.figures) / 2, drawn
    for path in drawn:  # in every figure that shows the arm it stands beside
        text = path.read_text("utf-8")
        assert ("mynet.py:Net" in text) == ("CNN" in text), path.name
    kept = {p.name for p in session.home.iterdir()} if session.home.exists() else set()
    assert "report.md" not in kept
    assert session.command().endswith("--like CNN")


def test_another_recipe_gives_other_runs_in_a_folder_of_their_own(tmp_path):
    plain, changed = opened(tmp_path), opened(tmp_path, recipe={"lr": 0.01})
    assert {t.run.recipe.lr for t in changed.tasks} == {0.01}
    assert not {t.run.key for t in changed.tasks} & {t.run.key for t in plain.tasks}
    assert changed.folder != plain.folder and "--recipe lr=0.01" in changed.command()
    with pytest.raises(SaccadeError, match="lr of the recipe must be a number above 0"):
        opened(tmp_path, recipe={"lr": "abc"})


# -- figures


def rows(arm, value, **more):
    return [{"metric": "accuracy", "value": value + 0.01 * s, "n": 10, "arm": arm, "model": arm, "data": "d", "seed": s,
             "run": f"{arm}{s}{more}", **more} for s in range(3)]  # fmt: skip


def beside(planned, new):
    one = joined.Joined("mine", "mine.py:net", "mine", "CNN")
    kept = [r for r in planned if r["arm"] != "CNN"]
    swapped = Table((*kept, *({**r, "arm": "CNN", "model": "CNN"} for r in new)))
    return Beside(one.arm, one.source, one.like, Table(tuple(new)), swapped)


def both(make, x):
    planned = [r for arm, v in (("CNN", 0.5), ("ViT", 0.7)) for at in x for r in rows(arm, v, at=at)]
    new = [r for at in x for r in rows("mine", 0.3, at=at)]
    return drawn(Figure("f", "a figure", "", make), Table(tuple(planned)), [beside(planned, new)])


def test_a_line_of_a_figure_is_drawn_once_more_in_grey():
    def make(table):
        lines = [{"label": f"{a}, all", "family": "cnn", "where": {"arm": a}} for a in ("CNN", "ViT")]
        return figures.curves(table, y="accuracy", x="at", lines=lines)

    data = both(make, (1, 2))
    assert [line.label for line in data.panels[0].lines] == ["CNN, all", "ViT, all", "mine, all"]
    new = data.panels[0].lines[2]
    assert new.family == "other" and new.x == (1, 2) and new.estimates[0].value == pytest.approx(0.31)
    assert "not planned" in data.note


def test_a_line_that_does_not_name_the_arm_says_whose_it_is():
    def make(table):
        return figures.curves(table, y="accuracy", x="at", lines=[{"label": "best", "where": {"arm": "CNN"}}])

    assert [line.label for line in both(make, (1,)).panels[0].lines] == ["best", "best (mine for CNN)"]


def test_arms_as_categories_of_bars_get_one_more():
    def make(table):
        return figures.bars(table, y="accuracy", x="arm", lines=[{"label": "all", "where": {}}])

    data = both(make, (1,))
    assert data.categories == ("CNN", "ViT", "mine")
    assert [round(e.value, 2) for e in data.lines[0].estimates] == [0.51, 0.71, 0.31]


def a_heatmap(table, row, column):
    down, across = table.values(row), table.values(column)
    cells = [[stats.estimate(table.series("accuracy", **{row: r, column: c})) for c in across] for r in down]
    return figures.Heatmap("", tuple(map(tuple, cells)), tuple(map(str, down)), tuple(map(str, across)))


def test_arms_as_rows_or_columns_of_a_heatmap_get_one_more():
    for row, column in (("arm", "at"), ("at", "arm")):
        data = both(lambda t, r=row, c=column: a_heatmap(t, r, c), (1, 2))
        assert (data.row_labels if row == "arm" else data.column_labels) == ("CNN", "ViT", "mine")
        assert len(data.cells) == (3 if row == "arm" else 2) and data.rows()[-1]["value"] == pytest.approx(0.31)


def test_a_condition_wins_over_an_argument_of_the_arm_that_is_replaced(net, tmp_path):
    planned = opened(tmp_path).tasks[0]
    one = joined.Joined("mine", "x", registry.adopt(f"{net}:Net"), "CNN")
    task, mine = joined.pairs([planned], one)[0]
    from dataclasses import replace

    task = replace(task, run=replace(task.run, model_args=Settings(head="mean", split="of the model")))
    own = Table(({"run": mine.run.key, "arm": "mine", "model": "m", "split": "test", "metric": "a", "value": 1.0},))
    [row] = joined.in_place(Table(), own, one, [(task, mine)]).rows
    assert row["split"] == "test" and row["head"] == "mean" and (row["arm"], row["model"]) == ("CNN", "lenet")
