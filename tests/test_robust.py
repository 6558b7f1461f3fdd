"""What a shell, a locale, a file or a slip may do to a command: one sentence, an honest exit code, no traceback."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import registry
from saccade.cli import commands, output
from saccade.cli.parsing import seed_range, settings
from saccade.lab.store import cache_folder
from saccade.layers import kernels
from saccade.spec import SaccadeError

ROOT = Path(__file__).parent.parent
DRAWN = ["digits=procedural_digits", "scenes=procedural_textures", "backgrounds=2"]
DEEP = "[" * 100_000 + "]" * 100_000


def shell(line, **env):
    """A command line with {saccade} in it, run by sh."""
    text = line.format(saccade=f"{sys.executable} -m saccade")
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, env={**os.environ, **env}, timeout=170)


def refused(capsys, *words):
    """The one sentence of a command that is refused."""
    with pytest.raises(SystemExit) as ended:
        commands.main(list(map(str, words)))
    said = capsys.readouterr().err
    assert ended.value.code == 2 and len(said.strip().splitlines()) == 1, said
    return said


def test_a_reader_that_leaves_early_gets_no_complaint():
    for words in ("--help", "list", "run --help"):
        done = shell(f"{{saccade}} {words} | head -1")
        assert done.stderr == "" and len(done.stdout.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_one_sentence():
    for words in ("--help", "list", "list --json"):
        done = shell(f"{{saccade}} {words} > /dev/full")
        assert done.returncode == 1 and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1 and "No space left" in done.stderr


@pytest.mark.slow
def test_closed_streams_do_no_harm():
    assert shell("{saccade} list >&-").returncode == 0
    assert shell("{saccade} list 2>&- | tail -1").stdout
    done = shell("{saccade} train lennet 2>&-")
    assert done.returncode == 2 and done.stdout == ""


@pytest.mark.slow
def test_a_locale_of_few_letters_changes_letters_only(tmp_path):
    plugin = tmp_path / "größe.py"
    plugin.write_text(
        "from saccade.registry import model\n\n\n@model(family='x')\ndef wide(classes=10):\n    '''Größe ✓.'''\n",
        "utf-8",
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = shell(f"{{saccade}} list models --plugin {plugin}", **plain)
    assert done.returncode == 0 and "Gr??e ?." in done.stdout, done.stderr
    done = shell(f"{{saccade}} train 'größe' --plugin {plugin}", **plain)
    assert done.returncode == 2 and "Traceback" not in done.stderr


@pytest.mark.slow
def test_text_is_read_and_written_as_utf_8_everywhere():
    """Whatever the locale is. Every call says so itself."""
    silent = []
    for path in [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and _text(node) and "encoding" not in {k.arg for k in node.keywords}:
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    assert silent == []


def _text(node):
    """Whether a call opens text without naming an encoding by position."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "read_text":
        return not node.args
    if name == "write_text":
        return len(node.args) < 2
    if any(k.arg == "text" for k in node.keywords) and name in ("run", "Popen", "check_output"):
        return True
    modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    mode = next((m for m in modes if m and set(m) <= set("rwaxbt+")), "")
    if name == "open":
        return "b" not in mode and (isinstance(node.func, ast.Name) or bool(mode))
    return name == "fdopen" and "b" not in mode


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "lenet", "--seeds", "5:0"], "names no seed"),
        (["train", "lenet", "--seeds", "3:3"], "names no seed"),
        (["train", "lenet", "--seeds", f"0:{10**30}"], "at most 10,000 seeds"),
        (["train", "lenet", "--seeds", "9" * 5000], "--seeds takes one seed"),
        (["train", "lenet", "--jobs", "100000000"], "--jobs must be at most"),
        (["train", "lenet", "--set", "head=mean", "head=max"], "head is set twice"),
        (["train", "lenet", "--data-set", "backgrounds=many"], "backgrounds of digits_on_backgrounds must be"),
        (["train", "lenet", "--data-set", "digits=(1,2)"], "digits of digits_on_backgrounds must be one of"),
        (["train", "lenet", "--data-set", f"backgrounds={DEEP}"], "backgrounds of digits_on_backgrounds must be"),
        (["train", "lenet", "--data-set", "blend={1: 2}"], "blend of digits_on_backgrounds must be"),
        (["train", "lenet", "--recipe", "lr=fast"], "lr of the recipe must be a number"),
        (["train", "lenet", "--recipe", "images=3.5"], "images of the recipe must be a whole number"),
        (["train", "lenet", "--probes", "acuracy"], "did you mean accuracy"),
        (["run", "digits_on_backgrounds", "--set", f"heads={DEEP}"], "heads of digits_on_backgrounds must be one of"),
        (["run", "digits_on_backgrounds", "--set", "heads=True"], "heads of digits_on_backgrounds must be one of 1, 2"),
        (["figures", "digits_on_backgrounds", "--lab", "nowhere"], "has no results of digits_on_backgrounds"),
        (["probe", "--scores", "/", "--labels", "/"], "cannot be read"),
        (["show", "x" * 5000], "no model, data set, probe, study or claim"),
    ],
)
def test_slips_are_one_sentence(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, *words)
    assert says in said and len(said) < 700
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nothing_of_this_name", r"cannot be imported \(line 1\): ModuleNotFoundError"),
        ("def f(:\n", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("\n\n1 / 0\n", r"\(line 3\): ZeroDivisionError"),
        ("STUDY = 5", "STUDY of .* is int and not a saccade.study.Study"),
        ("x = 1", "has no STUDY"),
    ],
)
def test_a_users_file_that_does_not_work_is_one_sentence(text, says, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(text, "utf-8")
    with pytest.raises(SaccadeError, match=says):
        registry.study(str(file))
    if "STUDY" not in says:
        with pytest.raises(SaccadeError, match=says):
            registry.load_plugin(str(file))


def test_a_plugin_may_compute_its_defaults(tmp_path):
    file = tmp_path / "computed.py"
    file.write_text(
        "from saccade.registry import model\n\nWIDTH = 3\n\n\n@model(family='x', dial='wi' + 'de')\n"
        "def computed(classes=10, *, wide=2**4, deep=WIDTH):\n    '''Defaults that are no literals.'''\n",
        "utf-8",
    )
    registry.load_plugin(str(file))
    assert registry.card("model", "computed").args == {"wide": 16, "deep": 3}


def test_no_home_is_one_sentence_where_one_is_needed_and_nothing_elsewhere(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SACCADE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(SaccadeError, match="name a folder in SACCADE_DATA"):
        cache_folder()
    assert kernels.load("paste.c", ()) is None


def test_what_goes_wrong_around_a_command_is_one_sentence(capsys):
    for error, says in ((OSError(5, "Input/output error", "a.txt"), "a.txt"), (MemoryError(), "not enough memory")):
        with pytest.raises(SystemExit) as ended, output.guarded():
            raise error
        assert ended.value.code == 1 and says in capsys.readouterr().err


def test_seeds_and_settings_that_are_fine():
    assert list(seed_range("2:4")) == [2, 3] and list(seed_range("7")) == [7]
    assert settings(["a=1", "b=x", "c=(1, 2)"]) == {"a": 1, "b": "x", "c": (1, 2)}


PLUGIN = """
from torch import nn
from saccade.registry import model, probe


@model(family='other')
def broken(classes=10, *, size=3):
    '''Reads nothing of 32 pixels.'''
    return nn.Linear(size, classes)


@probe(version=1)
def asks_too_much(subject, data):
    '''Raises.'''
    raise ValueError('no such thing')
    yield
"""


@pytest.mark.slow
def test_failures_end_with_one_and_are_named(tmp_path, capsys):
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN, "utf-8")
    lab = tmp_path / "lab"
    more = ["--plugin", str(plugin), "--seeds", "0", "--images", "160", "--data-set", *DRAWN, "--lab", str(lab)]
    with pytest.raises(SystemExit) as ended:
        commands.main(["train", "lenet", *more, "--jobs", "1", "--json", "--probes", "asks_too_much"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and "ValueError: no such thing" in told["gaps"][0]["why"]


@pytest.mark.slow
def test_a_damaged_run_of_train_is_redone_on_request(tmp_path, capsys):
    lab = tmp_path / "lab"
    words = [
        "train",
        "lenet",
        "--seeds",
        "0",
        "--images",
        "160",
        "--data-set",
        *DRAWN,
        "--lab",
        str(lab),
        "--jobs",
        "1",
    ]
    commands.main([*words, "--json"])
    capsys.readouterr()
    (weights,) = lab.glob("runs/*/weights.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert "--redo-damaged" in refused(capsys, *words)
    commands.main([*words, "--json", "--redo-damaged"])
    assert weights.read_bytes() == whole
