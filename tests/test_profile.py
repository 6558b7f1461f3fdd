"""The profile: one page on one model, from the words of a command to the written page; and two models compared."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import saccade as sc
from saccade.cli.commands import main
from saccade.data.images import Source
from saccade.profiling import compare as comparing
from saccade.profiling import measure
from saccade.profiling.questions import QUESTIONS, Asked, estimate, pick
from saccade.report import profile_page as page
from saccade.report.profile import Reference, load
from saccade.spec import Row, SaccadeError, Settings

DATA = Source("photos", Settings(of="procedural_textures", hold_out=1000), 0)
N = 24


class Bag(nn.Module):
    """Mean colours to ten classes: neither order nor place of pixels matters."""

    def __init__(self, scale=1.0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.head = nn.Linear(3, 10)
        self.scale = scale

    def forward(self, x):
        return self.scale * self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def made():
    return measure.profile(Bag(), DATA, n=N)


def test_every_question_is_answered_or_says_why_not(made):
    answered = {row.key for row in made.rows}
    assert {q.key for q in QUESTIONS} == {k for k in answered | set(made.skipped) if k not in COSTS}
    assert made.skipped.keys() == {"background", "attention_entropy", "attention_distance"}
    assert answered >= COSTS


COSTS = {"parameters", "flops", "milliseconds"}


def test_a_bag_of_colours_keeps_its_answers_when_squares_are_shuffled(made):
    assert made.row("patch_shuffle").estimate.value == 1
    assert made.row("equivariance").estimate.value == pytest.approx(0, abs=1e-4)


def test_rows_carry_intervals_over_images(made):
    for row in made.rows:
        if row.probe and row.unit == "percent":
            assert row.estimate.low <= row.estimate.value <= row.estimate.high and row.estimate.n in (N, len(row.each))
            assert row.says


def test_images_are_asked_once_per_variant():
    """Transforms, shuffles, occlusion, corruptions and the rest: no probe asks what another one has asked."""
    asked = []
    model = Bag()
    model.register_forward_pre_hook(lambda _, x: asked.append(len(x[0])))
    only = ("accuracy", "translation", "rotation", "scale", "patch_shuffle", "occlusion", "shape_bias", "corruptions")
    measure.profile(model, DATA, n=N, only=(*only, "calibration"))
    variants = 1 + 14 + 3 + 3 + 1 + 20
    assert asked.count(N) == variants


def test_one_question_of_a_probe_costs_only_its_own_variants():
    asked, lines = [], []
    model = Bag()
    model.register_forward_pre_hook(lambda _, x: asked.append(len(x[0])))
    one = measure.profile(model, DATA, n=N, only=("rotation",), report=lines.append)
    assert asked.count(N) == 1 + 5
    assert [row.key for row in one.rows] == ["rotation"]
    assert any("about 1 s" in line for line in lines)


def test_a_long_profile_says_how_to_make_it_shorter():
    variants = measure._variants(())
    assert measure._wait(50, 12.3 / 50 / variants, ()) == "about 12 s"
    long = measure._wait(50, 3719 / 50 / variants, ())
    assert "about 62 min" in long and "--n 20" in long and "--only" in long
    assert "--n" not in measure._wait(20, 3719 / 20 / variants, ())  # it is as short as that already


def test_operations_are_counted(made):
    assert made.row("flops").estimate.value == 2 * 3 * 10
    assert made.row("parameters").estimate.value == 40


class Encoder(nn.Module):
    """Sixteen tokens of 32 through two layers of torch's own encoder."""

    def __init__(self):
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, 32, 8, 8), nn.Linear(32, 10)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.head(self.body(self.patch(x).flatten(2).mT).mean(1))


def test_operations_inside_fused_attention_are_counted():
    n, d, h = 16, 32, 64
    layer = 2 * n * d * 4 * d + 4 * n * n * d + 4 * n * d * h
    wanted = 2 * n * d * 3 * 64 + 2 * layer + 2 * d * 10
    model, x = Encoder().eval(), torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert measure._flops(model, x) == wanted  # its fast path: one operation per layer
        assert measure._flops_of_shapes(model, x) == wanted
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert measure._flops(model, x) == wanted  # scaled_dot_product_attention on a CPU
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


def test_operations_inside_a_kernel_are_counted():
    lenet = sc.model("lenet").eval()
    convolutions = 2 * (28 * 28 * 6 * 75 + 10 * 10 * 16 * 150)
    linears = 2 * (400 * 120 + 120 * 84 + 84 * 10)
    with torch.no_grad():
        assert measure._flops_of_shapes(lenet, torch.rand(1, 3, 32, 32)) == convolutions + linears


def test_a_probe_that_a_model_breaks_costs_its_question_and_not_the_page():
    class Alone(Bag):
        def __deepcopy__(self, memo):
            raise TypeError("cannot be copied")

    one = measure.profile(Alone(), DATA, n=N, only=("accuracy", "equivariance"))
    assert [row.key for row in one.rows] == ["accuracy"] and "TypeError: cannot be copied" in one.skipped[
        "equivariance"
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")  # on Python 3.13.0
@pytest.mark.parametrize("wrap", ["whole", "part", "in place"])
def test_a_compiled_model_is_profiled_as_it_is_written(wrap):
    only = ("accuracy", "equivariance", "attention_entropy")
    plain, other = Encoder(), Encoder()
    other.load_state_dict(plain.state_dict())
    if wrap == "whole":
        asked = torch.compile(other, backend="eager")
    else:
        asked = other
        other.body = torch.compile(other.body, backend="eager") if wrap == "part" else other.body
        if wrap == "in place":
            other.compile(backend="eager")
    wanted, one = (measure.profile(m, DATA, n=N, only=only) for m in (plain, asked))
    assert one.name == "Encoder" and not one.skipped and one.facts["flops"] == wanted.facts["flops"]
    for row in wanted.rows:
        assert one.row(row.key).estimate.value == pytest.approx(row.estimate.value, abs=1e-6)


def test_a_page_can_be_written_and_read_again(made, tmp_path):
    paths = made.save(tmp_path)
    again = load(paths["json"])
    assert [r.key for r in again.rows] == [r.key for r in made.rows]
    assert again.rows[0].estimate == made.rows[0].estimate and again.skipped == made.skipped
    assert page.markdown(again) == paths["md"].read_text()
    html = paths["html"].read_text()
    assert "What Bag looks at" in html and "not asked" in html.lower() and "<script" not in html


def test_the_terminal_shows_one_line_per_row(made):
    lines = list(page.lines(made))
    assert sum("answers kept" in line for line in lines) == 6
    assert repr(made).startswith("Bag") and "<table>" in made._repr_html_()


def test_a_reference_with_a_single_number_has_no_column(made):
    def beside(*names):
        return tuple(Reference(name=name, value=0.5, about="a recipe") for name in names)

    first, second, *rest = made.rows
    rows = (replace(first, references=beside("much", "little")), replace(second, references=beside("much")), *rest)
    assert "much" in page.grid(replace(made, rows=rows))[0] and "little" not in page.grid(replace(made, rows=rows))[0]
    alone = replace(made, rows=(replace(first, references=beside("little")), *rest))
    assert "little" in page.grid(alone)[0]


def test_rows_as_a_table(made):
    one = made.table().at(metric="answer_kept", transform="rotation")
    assert one.values("severity") == [5, 15, 30, 45, 90]


def test_a_thousand_classes_are_read_by_agreement_and_the_page_says_so():
    class Wide(Bag):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 1000)

    made = measure.profile(Wide(), DATA, n=N, only=("accuracy", "patch_shuffle", "mosaics", "calibration"))
    assert made.way == "agreement" and "by agreement with its own answers" in "\n".join(page.lines(made))
    assert set(made.skipped) == {"accuracy", "mosaics", "calibration"}
    assert made.row("patch_shuffle").estimate.value == 1 and made.row("patch_shuffle").accuracy is None


class Always(nn.Module):
    """The second class, whatever it is shown."""

    def forward(self, x):
        return torch.eye(10, dtype=x.dtype)[1].expand(len(x), -1)


def test_of_a_model_with_one_answer_that_it_keeps_it_says_nothing():
    asked = ("translation", "patch_shuffle", "occlusion", "corruptions", "calibration")
    made = measure.profile(Always(), DATA, n=N, only=asked)
    for key in asked[:-1]:
        assert made.row(key).estimate.value == 1 and "says nothing of this: 100 %" in made.row(key).says
    assert "nothing" not in made.row("calibration").says
    assert "one and the same answer" in "\n".join(page.lines(made))
    learned = measure.profile(Bag(40.0), DATA, n=N, only=("patch_shuffle",))  # several answers, all of them kept
    assert learned.row("patch_shuffle").says == "sees pieces, not their order" and not learned.notes


def test_a_linear_read_out_is_the_third_way():
    made = measure.profile(Bag(), DATA, n=N, only=("accuracy",), way="linear")
    assert made.way == "linear" and "linear read-out" in made.reading


def test_unknown_questions_and_data_are_named():
    with pytest.raises(SaccadeError, match='no question of a profile "translations"; did you mean translation'):
        measure.profile(Bag(), DATA, only=("translations",))
    with pytest.raises(SaccadeError, match="a number of images above 0"):
        measure.profile(Bag(), DATA, n=-3)
    with pytest.raises(SaccadeError, match='no data "cifar"; did you mean cifar10'):
        measure.source("cifar")


def test_the_number_of_images_follows_the_operations():
    assert measure.images_for(1e6, 150) == 1000
    assert measure.images_for(1e8, 150) < 1000
    assert measure.images_for(1e12, 150) == 50


def test_a_mean_of_shares_stays_a_share():
    one = estimate(Row.mean("x", np.array([1.0, 1, 1, 0.9])))
    assert one.high <= 1 and one.method == "t, images"
    assert pick([Row("x", 1.0, 1, Settings(a=1))], "x", {"a": 2}) is None


@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_every_question_says_something_of_every_value(value):
    asked = Asked(n=10, side=32, input_side=32, classes=10, labels=True)
    for question in QUESTIONS:
        assert question.says(value, asked) and question.words(asked)


# -- own folders


@pytest.fixture
def folder(tmp_path):
    """Two classes of images of different sizes, a bright and a dark square on grey, with masks."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for label, level in (("bright", 230), ("dark", 20)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(12):
            height, width = 40 + i, 60 - i
            image = draw.integers(100, 140, (height, width, 3), dtype=np.uint8)
            mask = np.zeros((height, width), np.uint8)
            mask[height // 2 - 8 : height // 2 + 8, width // 2 - 8 : width // 2 + 8] = 255
            image[mask > 0] = level
            Image.fromarray(image).save(tmp_path / "images" / label / f"{i}.png")
            Image.fromarray(mask).save(tmp_path / "images" / label / f"{i}.mask.png")
    return tmp_path / "images"


class Middle(nn.Module):
    def forward(self, x):
        level = x[:, :, 20:24, 20:24].mean((1, 2, 3))
        return torch.stack([level, -level], 1)


def test_a_folder_of_images_with_masks(folder):
    made = measure.profile(Middle(), f"folder:{folder}", only=("accuracy", "background", "mosaics"), normalise="half")
    assert made.row("accuracy").estimate.value == 1
    assert made.row("background").estimate.value == 0  # looks at the object alone
    assert re.fullmatch("[0-9a-f]{32}", made.data["checksum"]) and made.details[0]["checksum"] == made.data["checksum"]
    assert "known set" in made.skipped["mosaics"]


def test_splits_of_a_folder_do_not_overlap_and_an_added_file_moves_none(folder):
    from PIL import Image

    from saccade.data.folder import listing

    def parts():
        listing.cache_clear()
        return {f: where for f, _, where in listing(str(folder)).files}

    before = parts()
    Image.new("RGB", (50, 50)).save(folder / "dark" / "another.png")
    after = parts()
    assert {f: after[f] for f in before} == before
    assert {"train", "test"} <= set(before.values())


def test_train_and_val_folders_are_splits(tmp_path):
    from PIL import Image

    for part in ("train", "val"):
        for label in ("a", "b"):
            (tmp_path / part / label).mkdir(parents=True)
            for i in range(6 if part == "train" else 2):
                Image.new("L", (16, 16), 9 * i).save(tmp_path / part / label / f"{i}.png")
    data = Source("folder", Settings(folder=str(tmp_path)), 0)
    assert len(data("test")) == 4 and data("test").x.shape[1:] == (1, 16, 16)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "dark" / "3.mask.png").unlink(), "3.png has no mask and others have"),
        (lambda f: (f / "dark" / "3.png").write_bytes(b"no image"), "3.png cannot be read as an image"),
        (lambda f: [x.unlink() for x in (f / "dark").iterdir()], "needs at least two class folders"),
    ],
)
def test_folders_with_something_wrong(folder, spoil, words):
    from saccade.data.folder import listing

    listing.cache_clear()
    spoil(folder)
    data = Source("folder", Settings(folder=str(folder), size=24), 0)
    with pytest.raises(SaccadeError, match=words):
        [data(split) for split in ("test", "train_plain", "held_out")]


# -- comparing


def test_two_models_over_images():
    made = comparing.compare(Bag(), Bag(scale=-1.0), DATA, n=N, on=("accuracy", "patch_shuffle"))
    assert made.over == "images" and made.n == N
    kept = next(r for r in made.rows if r.key == "patch_shuffle")
    assert kept.difference.value == 0 and kept.says.startswith("undecided")
    assert "two single models" in made.lines()[0]


def test_errors_of_one_model_are_its_own():
    made = comparing.compare(Bag(), Bag(), DATA, n=N, on=("accuracy",))
    assert made.errors.consistency == pytest.approx(1) and made.errors.only_a_wrong == 0


def test_error_consistency_is_cohens_kappa():
    a, b = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 0], bool)
    assert comparing.overlap(a, b).consistency == 0
    assert comparing.overlap(a, ~a).consistency == -1


def test_a_clear_difference_over_images_is_named():
    x, y = np.r_[np.ones(90), np.zeros(10)], np.r_[np.ones(50), np.zeros(50)]
    e = comparing.paired(x, y)
    assert e.estimate.value == pytest.approx(0.4) and e.p < 1e-6


def test_profiles_of_different_images_are_not_compared(made):
    other = measure.profile(Bag(), DATA, n=N - 1, only=("accuracy",))
    with pytest.raises(SaccadeError, match="different images"):
        comparing.of_profiles(made, other)


@pytest.mark.slow
def test_models_trained_here_are_compared_over_seeds(tmp_path):
    from saccade.lab.pipeline import How, train
    from saccade.lab.store import Lab
    from saccade.spec import Recipe, Run, Task

    lab = Lab(tmp_path / "lab").open()
    args = Settings(of="procedural_textures", hold_out=1000, p=64)
    tasks = [
        Task(Run(model, "photos", Recipe(images=64, watch=0), seed, data_args=args))
        for model in ("lenet", "basic_cnn")
        for seed in (0, 1)
    ]
    train(lab, tasks, How(quiet=True, jobs=1))
    made = comparing.compare("lenet", "basic-cnn", DATA, lab=str(lab.root), n=N)
    assert made.over == "seeds" and made.n == 2
    assert made.rows[0].says == "too few seeds (2 of 5)" and made.rows[0].difference.n == 2


# -- the commands

NET = """
from torch import nn

def net(classes):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(NET)
    return tmp_path


def test_the_profile_command_writes_a_page(here, capsys):
    main(["profile", "mine.py:net", "--data", "procedural_textures", "--n", "16", "--only", "accuracy", "occlusion"])
    shown = capsys.readouterr()
    assert "answers kept when 25 % of the area is covered" in shown.out
    assert shown.out.strip().endswith("profile.html") and "mine.py:net: 162 parameters" in shown.err


def test_the_profile_command_as_json(here, capsys):
    main(["profile", "mine.py:net", "--data", "procedural_textures", "--n", "16", "--only", "accuracy", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["n"] == 16 and told["rows"][0]["key"] == "accuracy"


def test_what_a_users_code_prints_is_no_part_of_the_page(here, capsys):
    (here / "loud.py").write_text(
        "from torch import nn\ndef net():\n    print('hello')\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))\n"
    )
    main(["profile", "loud.py:net", "--data", "procedural_textures", "--n", "24", "--only", "accuracy", "--json"])
    told = capsys.readouterr()
    assert json.loads(told.out)["name"] == "loud.py:net" and "hello" in told.err


def test_the_compare_command(here, capsys):
    main(
        ["compare", "mine.py:net", "lenet", "--data", "procedural_textures", "--n", "16", "--on", "accuracy", "-q"][:-1]
    )
    assert "mine.py:net against lenet, over 16 images" in capsys.readouterr().out


def test_a_subject_that_is_none_is_one_sentence(here, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["profile", "mine.py:nett"])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_from_python(here):
    made = sc.profile(Bag(), "procedural_textures", n=16, only=("accuracy",))
    assert made.row("accuracy").estimate.n == 16
    assert sc.compare(Bag(), Bag(), "procedural_textures", n=16, on=("accuracy",)).rows[0].difference.value == 0
