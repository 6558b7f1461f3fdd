"""What is published follows from the exported runs: whoever imports them gets the same verdicts, to the byte."""

import json
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
    pipeline.write(session, tmp_path / "report", ("csv",))
    assert (tmp_path / "report" / "verdicts.json").read_bytes() == published.read_bytes()
    for table in ("rows.csv", "training.csv"):
        assert (tmp_path / "report" / table).read_bytes() == (RESULTS / name / table).read_bytes()
