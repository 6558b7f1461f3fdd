"""The package as a stranger gets it: built, installed into an environment of its own, used away from the repository."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from pathlib import Path

import pytest

import saccade

ROOT = Path(__file__).parent.parent
DATA = (
    "report/style.css",
    "web/static/index.html",
    "web/static/main.js",
    "layers/kernels/paste.c",
    "layers/kernels/rows.h",
    "layers/kernels/product.h",
    "layers/kernels/tile.h",
    "layers/kernels/attention.h",
    "shipped/cnn_x64.safetensors",
    "shipped/cnn_x64.json",
    "py.typed",
)


def test_there_is_one_version():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited and cited[1] == saccade.__version__
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == saccade.__version__
    assert "version =" not in (ROOT / "pyproject.toml").read_text().partition("[tool")[0]


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=900, **more)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, from a copy of what the repository holds, and the wheel, built from that sdist."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("built")
    copy = folder / "tree"
    kept = ("src", "README.md", "LICENSE", "pyproject.toml", "CITATION.cff", "CHANGELOG.md")
    copy.mkdir()
    for name in kept:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, copy / name)
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", copy)
    return folder / "dist"


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The wheel in an environment that sees this one's libraries, but neither the repository nor its install."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder / "venv", "--without-pip")
    python = folder / "venv" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    home = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    run(sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", home, wheel)
    # After the wheel's own folder on the path, and without running the .pth files of an editable install.
    (home / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def clean():
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_is_needed(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert not [f for f in DATA if f"saccade/{f}" not in inside]
    assert not [f for f in inside if f.startswith(("tests", "benchmarks", "docs", "results"))]
    assert wheel.stat().st_size < 3e6 and sdist.stat().st_size < 3e6
    assert saccade.__version__ in wheel.name


@pytest.mark.slow
@pytest.mark.parametrize("path", [None, "/nowhere"], ids=["compiler", "no_compiler"])
def test_the_wheel_runs_a_study_without_the_repository(installed, tmp_path, path):
    if path is None and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler here")
    env = {**clean(), "SACCADE_DATA": str(tmp_path / "cache"), **({"PATH": path} if path else {})}
    env.pop("CC", None)
    where = run(installed, "-c", "import saccade; print(saccade.__file__)", cwd=tmp_path, env=env)
    assert str(installed.parent.parent) in where
    words = ["run", "digits_on_backgrounds", "--scale", "smoke", "--only", "CNN", "--jobs", "1", "--quiet"]
    drawn = ["--set", "digits=procedural_digits", "scenes=procedural_textures"]
    run(installed, "-m", "saccade", *words, *drawn, cwd=tmp_path, env=env)
    assert next((tmp_path / "lab" / "studies").rglob("report.html")).stat().st_size > 10_000
    assert any((tmp_path / "cache").rglob("*.so")) == (path is None)


@pytest.mark.slow
def test_the_wheel_serves_the_explorer_and_holds_trained_models(installed, tmp_path):
    pytest.importorskip("starlette")
    code = (
        "from saccade import shipped\n"
        "from saccade.lab.store import Lab\n"
        "from saccade.web import app  # imports the server\n"
        "from saccade.web.explorer import Explorer\n"
        "made = Explorer(Lab('lab'))\n"
        "assert len(made.about()['shipped']) == len(shipped.cards()) > 0\n"
        "assert shipped.load('cnn_x64') is not None\n"
    )
    run(installed, "-c", code, cwd=tmp_path, env=clean())
    assert "demo" in run(installed, "-m", "saccade", "--help", cwd=tmp_path, env=clean())


@contextlib.contextmanager
def serving(python, folder, *words):
    """A command that serves until it is stopped; gives the address that it prints, or skips where there is no data."""
    env = {**clean(), "BROWSER": "true", "PYTHONUNBUFFERED": "1"}
    command = [str(python), "-m", "saccade", *words]
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        try:
            said = []
            for line in one.stdout:
                said.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                    yield found[0], "".join(said)
                    break
            else:
                told = one.stderr.read()
                if re.search(
                    r"saccade: \w+ was not found at .*saccade data fetch", told
                ):  # no route to any host of the data
                    pytest.skip(f"no real data here: {told.strip().splitlines()[-1]}")
                raise AssertionError(told)
        finally:
            one.terminate()


def asked(address, path, body=None):
    data, headers = (json.dumps(body).encode(), {"content-type": "application/json"}) if body else (None, {})
    with urllib.request.urlopen(urllib.request.Request(address + path, data, headers), timeout=300) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_the_wheel_looks_at_its_models_in_an_empty_folder(installed, tmp_path):
    pytest.importorskip("starlette")
    with serving(installed, tmp_path, "demo", "--look") as (address, said):
        assert "cnn_x64" in said
        keys = [row["run"] for row in asked(address, "api/lab")["shipped"]]
        told = asked(address, "api/look", {"models": [{"run": k} for k in keys[:2]], "picture": {"index": 1}})
    assert [len(a["logits"]) for a in told["answers"]] == [10, 10]


@pytest.mark.slow
def test_the_wheel_profiles_a_file_and_serves_its_page(installed, tmp_path):
    pytest.importorskip("starlette")
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))\n"
    )
    words = ["profile", "mynet.py:net", "--data", "procedural_textures", "--n", "20", "--only", "accuracy", "--quiet"]
    run(installed, "-m", "saccade", *words, cwd=tmp_path, env=clean())
    with serving(installed, tmp_path, "serve", "--port", "0") as (address, _):
        assert [p["name"] for p in asked(address, "api/profiles")] == ["mynet.py:net"]
