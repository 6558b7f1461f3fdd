"""The command line as a user meets it: exit codes, one sentence for each mistake, and separate processes."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from saccade.__main__ import overview
from saccade.cli import commands

SMOKE = ["run", "digits_on_backgrounds", "--scale", "smoke"]
DRAWN = ["digits=procedural_digits", "scenes=procedural_textures"]


def saccade(*words, cwd=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "saccade", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **env},
        timeout=170,
    )


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab with two tiny CNN runs in it, made by the command itself."""
    folder = tmp_path_factory.mktemp("cli") / "lab"
    done = saccade(*SMOKE, "--only", "CNN", "--lab", folder, "--json", "--set", *DRAWN)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["to train"] == 4 and told["complete"] == 0
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("lab")  # one process makes the lab for all of them
def test_no_torch_is_loaded_for_what_must_answer_at_once(lab):
    code = (
        "import sys; from saccade.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
        "assert 'tyro' not in sys.modules or sys.argv[1:] != ['--help']"
    )
    for words in (
        ["--help"],
        ["list"],
        ["status", "--lab", str(lab)],
        ["run", "--help"],
        ["report", *SMOKE[1:], "--lab", str(lab), "--format", "md", "--set", *DRAWN],
    ):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)


@pytest.mark.slow
@pytest.mark.xdist_group("lab")  # one process makes the lab for all of them
def test_a_second_call_trains_nothing(lab):
    again = saccade(*SMOKE, "--only", "CNN", "--lab", lab, "--json", "--set", *DRAWN)
    told = json.loads(again.stdout)
    assert told["trained"] == 0 and told["complete"] == 4
    assert all(v["says"] == "undecided" for v in told["verdicts"])
    assert all(name in told["report"] for name in ("md", "html", "csv"))


@pytest.mark.slow
@pytest.mark.xdist_group("lab")
def test_a_claim_asks_for_its_arms_alone_and_all_claims_are_reported(lab):
    told = json.loads(saccade(*SMOKE, "--claims", "D-F10-cnn", "--lab", lab, "--json", "--set", *DRAWN).stdout)
    assert told["trained"] == 0 and told["runs"] == 4  # the CNN's, which the lab has
    assert len(told["verdicts"]) == 19 and not told["missing"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "digits_on_background"], 'no study "digits_on_background"; did you mean digits_on_backgrounds?'),
        (["run", "digits_on_backgrounds", "--scale", "smal"], "did you mean small?"),
        (["run", "digits_on_backgrounds", "--set", "head=1"], "did you mean heads?"),
        (["run", "digits_on_backgrounds", "--set", "heads=3"], "heads of digits_on_backgrounds must be one of 1, 2"),
        (
            ["run", "digits_on_backgrounds", "--set", "images=lots"],
            "images of digits_on_backgrounds must be a whole number",
        ),
        (["run", "digits_on_backgrounds", "--set", "heads"], "--set takes name=value"),
        (["run", "digits_on_backgrounds", "--claims", "D-H9"], 'no claim "D-H9"; did you mean D-H'),
        (["run", "digits_on_backgrounds", "--claims", "D-L1"], "claim D-L1 takes --scale large"),
        (
            ["run", "digits_on_backgrounds", "--until", "decided", "--claims", "D-H9"],
            'no claim "D-H9"; did you mean D-H',
        ),
        (
            ["run", "digits_on_backgrounds", "--until", "decided", "--seeds", "4"],
            "with --until, --seeds is the most that a claim gets: at least 5, not 4.",
        ),
        (["run", "digits_on_backgrounds", "--only", "RNN"], 'no arm of digits_on_backgrounds matches "RNN"'),
        (["run", "digits_on_backgrounds", "--device", "gpu"], 'no device "gpu"'),
        (["run", "digits_on_backgrounds", "--jobs", "0"], "--jobs must be at least 1"),
        (["run", "digits_on_backgrounds", "--lab", "/dev/null/lab"], "cannot write"),
        (["run", "nowhere.py"], "no file nowhere.py"),
        (["train", "lennet"], "did you mean lenet?"),
        (["train", "lenet", "--sede", "3"], "saccade train has no option --sede; did you mean --seeds?"),
        (["train", "lenet", "--data", "folder:nowhere"], 'there is no folder "nowhere"'),
        (["run", "digits_on_backgrounds", "--recipe", "lrr=1"], "did you mean lr?"),
        (["run", "digits_on_backgrounds", "--also", "nowhere.py:net"], "no file nowhere.py"),
        (["train", "lenet", "--set", "haed=mean"], "did you mean head?"),
        (["train", "lenet", "--seeds", "a:b"], "--seeds takes one seed or a range"),
        (["train", "lenet", "--images", "-5"], "images of the recipe must be a whole number from 1"),
        (["train", "lenet", "--recipe", "lr=-1"], "lr of the recipe must be a number above 0"),
        (["train", "lenet", "--recipe", "rate=1"], 'no argument of the recipe "rate"'),
        (["show", "lenett"], "did you mean lenet?"),
        (["show", "D-H33"], 'no claim "D-H33"; did you mean D-H3?'),
        (["list", "model"], "did you mean models?"),
        (["data", "fetch", "mnits"], "did you mean mnist?"),
        (["status", "--lab", "nowhere"], "no lab at nowhere"),
        (["lab", "merge", "nowhere"], "folder of another lab"),
        (["report", "digits_on_backgrounds", "--lab", "nowhere"], "no results of digits_on_backgrounds"),
        (["report", "digits_on_backgrounds", "--format", "docx"], 'no format "docx"'),
        (["rnu"], 'no command "rnu"; did you mean run?'),
        (["run"], "saccade run needs STUDY."),
        (["run", "digits_on_backgrounds", "--scal", "small"], "did you mean --scale?"),
        (["run", "digits_on_backgrounds", "--jobs", "two"], '--jobs takes a whole number, not "two".'),
        (["run", "digits_on_backgrounds", "--seeds", "ten"], "--seeds takes a number of seeds, as in 10 or 0:10"),
        (["run", "digits_on_backgrounds", "--seeds", "3:10"], "the seeds of a study begin with 0"),
        (["data", "lst"], 'ACTION is one of list, fetch, verify, not "lst".'),
    ],
)
def test_each_mistake_gets_one_sentence_and_exit_code_two(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        commands.main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and says in said and len(said.strip().splitlines()) == 1, said


def test_a_mistake_ends_the_command_itself_with_the_sentence_and_code_two(tmp_path):
    done = saccade("train", "lennet", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("saccade: ") and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.xdist_group("lab")  # one process makes the lab for all of them
def test_a_damaged_run_is_named_left_alone_and_redone_on_request(lab, tmp_path):
    mine = tmp_path / "lab"
    shutil.copytree(lab, mine)
    victim = sorted(mine.glob("runs/*/weights.safetensors"))[1]
    content = bytearray(victim.read_bytes())
    content[1000] ^= 1
    victim.write_bytes(bytes(content))
    words = [*SMOKE, "--only", "CNN", "--lab", mine, "--set", *DRAWN]
    refused = saccade(*words)
    assert refused.returncode == 2 and str(victim) in refused.stderr and "--redo-damaged" in refused.stderr
    assert saccade("lab", "verify", "--lab", mine).returncode == 1
    mended = saccade(*words, "--redo-damaged", "--json")
    assert json.loads(mended.stdout)["trained"] == 1
    original = lab / "runs" / victim.parent.name / "weights.safetensors"
    assert victim.read_bytes() == original.read_bytes()  # the same bits again
    assert saccade("lab", "verify", "--lab", mine).returncode == 0
    assert list((mine / "aside").iterdir())


@pytest.mark.slow
@pytest.mark.xdist_group("lab")  # one process makes the lab for all of them
def test_plan_status_figures_and_reports(lab, tmp_path):
    plan = saccade(*SMOKE, "--lab", lab, "--dry-run", "--json", "--set", *DRAWN)
    told = json.loads(plan.stdout)
    assert told["complete"] == 4 and told["arms"]["MHA"]["runs"] == 2 and told["seconds"] > 0
    status = json.loads(saccade("status", "--lab", lab, "--json").stdout)
    assert status["finished"] == 4 and status["runs"] == 4
    drawn = saccade(
        "figures",
        "digits_on_backgrounds",
        "--scale",
        "smoke",
        "--lab",
        lab,
        "--only",
        "fig8_backgrounds",
        "--format",
        "png",
        "--to",
        tmp_path,
        "--set",
        *DRAWN,
    )
    assert (tmp_path / "fig8_backgrounds.png").stat().st_size > 5000, drawn.stderr
    page = saccade("report", *SMOKE[1:], "--lab", lab, "--to", tmp_path / "out", "--set", *DRAWN)
    assert page.returncode == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "DRAWN DATA" in text.splitlines()[0] and "D-H1" in text


def test_the_card_of_a_claim_says_how_it_is_tested_and_run(capsys):
    commands.main(["show", "d-h3"])
    shown = capsys.readouterr().out
    assert (
        "is above 0 at x=8 (trained with varied colours) and at x=64" in shown
        and "saccade run digits_on_backgrounds --scale large --claims D-H3" in shown
    )
    commands.main(["show", "R-T1-order", "--json"])
    card = json.loads(capsys.readouterr().out)
    assert card["study"] == "attention_as_convolution" and card["requires"] and card["differs"]


def test_the_overview_names_every_command():
    from saccade.cli import cluster, demo, parsing, web  # noqa: F401 - they register their commands

    assert {name for name, _ in overview()} == set(parsing._commands)


@pytest.mark.slow
def test_list_show_and_data(tmp_path):
    listed = json.loads(saccade("list", "--json").stdout)
    assert {"lenet", "mha_lenet", "basic_vit"} <= {m["name"] for m in listed["models"]}
    assert any(m["about"] for m in listed["studies"])
    card = json.loads(saccade("show", "mha-lenet", "--json").stdout)
    assert card["parameters"] == 68_064 and card["arguments"]["heads"] == 2
    shown = saccade("show", "lenet").stdout
    assert "head: flatten   (one of flatten, mean, max)" in shown  # what is accepted
    assert "measured, with a short recipe" in shown and "cifar10: " in shown  # its reference cards
    study = saccade("show", "digits_on_backgrounds").stdout
    assert "D-F8-x8" in study and "blend" in study and "(opacity, maximum, hard, add)" in study
    empty = json.loads(saccade("data", "list", "--json", SACCADE_DATA=str(tmp_path)).stdout)
    assert {d["name"]: d["state"] for d in empty}["mnist"] == "not fetched"
    assert saccade("--version").stdout.startswith("saccade ")


@pytest.mark.slow
def test_train_prints_an_estimate_and_takes_plugins(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from torch import nn\nfrom saccade.registry import model\n\n\n@model(family='mlp')\n"
        "def one_layer(classes=10, *, scale=1.0):\n    '''A linear map.'''\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3072, classes))\n"
    )
    done = saccade(
        "train",
        "one_layer",
        "--plugin",
        plugin,
        "--seeds",
        "0:2",
        "--images",
        "320",
        "--lab",
        tmp_path / "lab",
        "--data-set",
        *DRAWN,
        "backgrounds=2",
        "--probes",
        "accuracy",
        "calibration",
        "sizes",
    )
    assert done.returncode == 0, done.stderr
    assert "one_layer: accuracy at split ood" in done.stdout and "(seeds 0, 1)" in done.stdout
    assert "one_layer: calibration_error" in done.stdout  # every probe that was asked for
    assert "probe sizes gave no rows" in done.stderr


@pytest.mark.slow
def test_a_damaged_data_cache_is_refused_named_and_repaired(tmp_path):
    """A cache of the right shape with wrong bytes: run, verify and the worker's own load all refuse it."""
    import numpy as np

    from saccade.data.fetch import sets

    home = tmp_path / "mnist"
    home.mkdir()
    made = {key: np.zeros(spec.shape, np.uint8) for key, spec in sets.SETS["mnist"].arrays.items()}
    sets.write(home, made, "a test")
    checked = saccade("data", "verify", "mnist", SACCADE_DATA=str(tmp_path))
    assert checked.returncode == 1 and "train_x" in checked.stdout
    assert "saccade data fetch mnist --again" in checked.stdout
    ran = saccade(*SMOKE, "--lab", tmp_path / "lab", "--set", "scenes=procedural_textures", SACCADE_DATA=str(tmp_path))
    assert ran.returncode == 2 and "is damaged and was not used" in ran.stderr
    assert not list((tmp_path / "lab").glob("runs/*"))


@pytest.mark.parametrize(("command", "saved"), [("run", True), ("profile", False)])
def test_ctrl_c_says_what_is_kept_only_where_something_is(command, saved, monkeypatch, capsys):
    def stop(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "parse", stop)
    with pytest.raises(SystemExit) as ended:
        commands.main([command])
    assert ended.value.code == 130 and ("saved" in "".join(capsys.readouterr())) == saved
