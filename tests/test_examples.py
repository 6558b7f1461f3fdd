"""The examples that a newcomer copies run as they stand."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.lab import pipeline
from saccade.lab.store import Lab
from saccade.spec import Reason

EXAMPLES = Path(__file__).parent.parent / "examples"
DRAWN = {"digits": "procedural_digits", "scenes": "procedural_textures"}


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_convolution_becomes_attention():
    assert load("convolution_to_attention").main() < 1e-5


@pytest.mark.slow
def test_a_model_of_ones_own_is_probed():
    ran = subprocess.run([sys.executable, EXAMPLES / "own_model.py"], capture_output=True, text=True, check=True)
    assert "'ood':" in ran.stdout


@pytest.mark.slow
def test_a_study_of_ones_own_runs_and_is_judged(tmp_path):
    session = pipeline.open_session(str(EXAMPLES / "own_study.py"), "smoke", tmp_path / "lab", DRAWN)
    how = pipeline.How(jobs=1, quiet=True)
    pipeline.run(session, pipeline.plan_work(session.lab, session.tasks, how), how)
    written = pipeline.write(session)
    assert written.verdicts[0].reason is Reason.OUT_OF_REACH
    assert "ID minus OOD" in written.paths["md"].read_text(encoding="utf-8")


def test_rows_become_a_frame(tmp_path, capsys):
    pytest.importorskip("pandas")
    lab = Lab(tmp_path / "lab").open()
    for task in pipeline.open_session("digits_on_backgrounds", "smoke", lab.root).tasks:
        lease = lab.claim(task.run, {"versions": {}})
        rows = [{"metric": "accuracy", "value": 0.5, "n": 10, "at": {"split": "ood"}}]
        lab.put_rows(task.run.key, task.probes[0], 1, rows)
        lab.finish(task.run.key, {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 1}, b"weights")
        lease.release()
    load("plot_over_seeds").main(str(lab.root), "smoke")
    assert "CNN      x=8   50.0" in capsys.readouterr().out
