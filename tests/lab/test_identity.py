"""Named by content: edited code and overwritten data are other runs; built-in ones keep their keys."""

import os
import time

import pytest

from saccade import registry
from saccade.lab import identity
from saccade.spec import Probe, Recipe, Run, Settings

PLUGIN = """from torch import nn
from saccade.registry import model
{imports}

@model(family="mlp")
def my_cnn(classes: int = 10):
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 8), nn.{activation}(), nn.Linear(8, classes))
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    registry.imported()
    monkeypatch.setattr(registry, "_plugins", dict(registry._plugins))

    def write(activation="ReLU", imports=""):
        file = tmp_path / "nets.py"
        file.write_text(PLUGIN.format(activation=activation, imports=imports))
        registry.load_plugin(str(file))
        return identity.identified(Run("my_cnn", "digits_on_backgrounds", Recipe(64), 0))

    return write


def test_a_built_in_run_keeps_its_key():
    run = Run("lenet", "digits_on_backgrounds", Recipe(64), 0)
    assert identity.identified(run) == run and run.key == "c03a2f3bc0dc"


def test_an_edited_model_is_another_run_and_the_same_text_is_not(plugin):
    before = plugin()
    assert plugin() == before and before.code
    after = plugin("Tanh")
    assert after.key != before.key
    assert "code of my_cnn" in identity.changed_since(after, [before])


def test_an_edited_module_beside_the_plugin_is_another_run(plugin, tmp_path):
    imports = "import sys\nsys.path.insert(0, __file__.rpartition('/')[0])\nimport its_blocks"
    (tmp_path / "its_blocks.py").write_text("WIDTH = 8\n")
    before = plugin(imports=imports)
    (tmp_path / "its_blocks.py").write_text("WIDTH = 9\n")
    assert plugin(imports=imports).key != before.key


def a_folder(path, byte=b"\0"):
    for part in ("train/a", "train/b", "val/a", "val/b"):
        (path / part).mkdir(parents=True, exist_ok=True)
        (path / part / "x.png").write_bytes(byte * 64)
    return path


def test_overwritten_images_are_other_data_and_a_moved_folder_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    folder = a_folder(tmp_path / "photos")
    run = Run("lenet", "imagenette", Recipe(64), 0, data_args=Settings(folder=str(folder)))
    before = identity.identified(run)
    assert before.content
    a_folder(folder, b"\1")
    os.utime(folder / "val/b/x.png", ns=(time.time_ns(), time.time_ns()))
    after = identity.identified(run)
    assert after.key != before.key and "data of lenet" in identity.changed_since(after, [before])


def test_an_image_of_another_name_is_other_data(tmp_path, monkeypatch):
    """The order of names is the order of images."""
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    folder = a_folder(tmp_path / "photos")
    before = identity.checksum(folder)
    (folder / "train/a/x.png").rename(folder / "train/a/y.png")
    assert identity.checksum(folder) != before


def test_the_same_relative_path_in_another_directory_is_other_data(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    run = Run("lenet", "imagenette", Recipe(64), 0, data_args=Settings(folder="photos"))
    keys = []
    for name, byte in (("one", b"\0"), ("two", b"\1")):
        a_folder(tmp_path / name / "photos", byte)
        monkeypatch.chdir(tmp_path / name)
        keys.append(identity.identified(run).key)
    assert keys[0] != keys[1]


def test_a_probe_on_a_folder_is_named_by_its_content(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    folder = a_folder(tmp_path / "backdrops")
    probe = Probe("small_object_accuracy", backdrops=(str(folder),))
    before = identity.of_probe(probe)
    a_folder(folder, b"\1")
    assert before and identity.of_probe(probe) != before
    assert identity.of_probe(Probe("accuracy", n=10)) == ""
