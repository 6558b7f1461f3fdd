"""What is published follows from the exported runs: an import gives the same verdicts and report, to the byte."""

import json
import lzma
from pathlib import Path

import pytest

from saccade.lab import export, pipeline
from saccade.lab.store import Lab

RESULTS = Path(__file__).parent.parent / "results"
EXPORTS = sorted((RESULTS / "exports").glob("*.jsonl.xz"))


@pytest.mark.slow
@pytest.mark.parametrize("file", EXPORTS, ids=lambda file: file.name.partition(".")[0])
def test_the_exported_runs_give_the_published_verdicts(file, tmp_path):
    name = file.name.partition(".")[0]
    published = RESULTS / name / "verdicts.json"
    export.read(Lab(tmp_path / "lab"), file)
    session = pipeline.open_session(name, json.loads(published.read_text("utf-8"))["scale"], tmp_path / "lab", {})
    pipeline.write(session, tmp_path / "report", ("md", "csv"))
    for made in ("verdicts.json", "training.csv", "report.md", "environment.json"):
        assert (tmp_path / "report" / made).read_bytes() == (RESULTS / name / made).read_bytes()
    rows = lzma.decompress((RESULTS / name / "rows.csv.xz").read_bytes())  # its own bytes are the compressor's affair
    assert (tmp_path / "report" / "rows.csv").read_bytes() == rows


def test_figures_and_tables_are_small_enough_to_be_cloned():
    files = [f for folder in (RESULTS, RESULTS.parent / "docs") for f in folder.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files if "__pycache__" not in f.parts) < 20e6
