"""A user's own model trained by the lab: from a file, from an imported file, from a class; and then looked at."""

import subprocess
import sys
import textwrap

import pytest

import saccade as sc
from saccade import registry
from saccade.cli.commands import main
from saccade.spec import SaccadeError

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes, width=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.body(x))
"""
TRAIN = [
    "--data",
    "procedural_textures",
    "--data-set",
    "hold_out=1000",
    "--seeds",
    "0:2",
    "--images",
    "64",
    "--recipe",
    "watch=0",
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(NET)
    return tmp_path


@pytest.mark.slow
def test_a_file_is_trained_and_its_run_is_what_a_profile_looks_at(here, capsys):
    main(["train", "mine.py:Net", *TRAIN, "--jobs", "1", "--quiet"])
    assert "mine_net: accuracy at split held_out" in capsys.readouterr().out
    main(["profile", "mine.py:Net", "--data", "procedural_textures", "--n", "16", "--only", "accuracy", "--quiet"])
    assert "2 finished runs of it in the lab" in capsys.readouterr().out
    (here / "mine.py").write_text(NET.replace("nn.ReLU()", "nn.GELU()"))  # another model: its runs are not that one's
    main(["profile", "mine.py:Net", "--data", "procedural_textures", "--n", "16", "--only", "accuracy", "--quiet"])
    assert "finished run" not in capsys.readouterr().out


def test_an_adopted_model_has_a_card_with_its_arguments(here):
    name = registry.adopt("mine.py:Net")
    assert name == "mine_net" and registry.card("model", name).args == {"width": 4}
    with pytest.raises(SaccadeError, match='"Nett"; did you mean Net'):
        registry.adopt("mine.py:Nett")


def run(code, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_model_registered_by_an_imported_file_is_known_to_its_workers(here):
    (here / "nets.py").write_text(
        "from saccade.registry import model\n" + NET + '\n@model(family="mine")\ndef my_cnn(classes, *, width=3):\n'
        '    """A small one of my own."""\n    return Net(classes, width)\n'
    )
    out = run(
        """
        import nets, saccade as sc
        table = sc.train("my_cnn", "procedural_textures", recipe=sc.Recipe(images=64, watch=0), seeds=1, quiet=True,
                         data_args={"hold_out": 1000}, jobs=1, probes=[sc.Probe("accuracy", n=32)])
        print(len(table.series("accuracy", split="test")), table.rows[0]["model"])
        """,
        here,
    )
    assert out.split() == ["1", "my_cnn"]


@pytest.mark.slow
def test_a_class_of_an_imported_file_can_be_trained(here):
    out = run(
        """
        import mine, saccade as sc
        table = sc.train(mine.Net, "procedural_textures", recipe={"images": 64, "watch": 0}, seeds=1, quiet=True,
                         data_args={"hold_out": 1000}, jobs=1)
        print(table.rows[0]["model"], sorted({r["split"] for r in table if r["metric"] == "accuracy"}))
        """,
        here,
    )
    assert out.strip() == "mine_net ['held_out', 'test', 'train']"


def test_a_slip_in_a_recipe_of_python_is_a_sentence(tmp_path):
    with pytest.raises(SaccadeError, match="lrr"):
        sc.train("lenet", "cifar10", recipe={"lrr": 0.1}, lab=tmp_path / "lab")
    with pytest.raises(SaccadeError, match="accuracyy"):
        sc.train("lenet", "cifar10", probes=("accuracyy",), lab=tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


@pytest.mark.slow
def test_a_class_that_no_other_process_could_import_is_refused(here):
    out = run(
        """
        import saccade as sc
        from torch import nn
        class Net(nn.Module): pass
        try:
            sc.train(Net, "cifar10", recipe=sc.Recipe(images=64))
        except sc.SaccadeError as error:
            print(error)
        """,
        here,
    )
    assert "put it into a file" in out
