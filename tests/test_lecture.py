"""The lecture is what its source says, and runs from the first cell to the last."""

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_notebook_is_fresh():
    spec = importlib.util.spec_from_file_location("make_lecture", ROOT / "docs" / "make_lecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.NOTEBOOK.read_text(encoding="utf-8") == module.notebook(), "run python docs/make_lecture.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the notebook's own machinery
def test_the_lecture_runs(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(ROOT / "examples" / "lecture.ipynb", as_version=4)
    client = nbclient.NotebookClient(book, timeout=540, resources={"metadata": {"path": str(tmp_path)}})
    done = client.execute()
    said = ["".join(o.get("text", "") for o in c["outputs"]) for c in done.cells if c.cell_type == "code"]
    assert "largest difference" in said[1]
    assert "cnn_x64" in said[-1]
