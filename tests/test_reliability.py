"""The page of what was tried is that of its tally, and the check behind the kills sees a run that is done twice."""

import pytest

from benchmarks import kills, reliability
from saccade.lab.store import Lab


def test_the_page_is_made_of_the_tally():
    assert reliability.PAGE.read_text("utf-8") == reliability.document(reliability.tally())


def test_what_has_not_been_tried_or_was_lost_is_said():
    words = reliability.killed_words("a Ray node")
    page = reliability.document({(words, 0): reliability.Outcome(1, ("a run",), (kills.Kill(0.5, 8, 0),), 20.0)})
    assert f"| kills | {words} | 1 | not all tried yet; so far **1**: a run |" in page
    assert "| a Ray node | 20 s | 0 | 0 | 1 | 0 |" in page and "lost: 1." in page


@pytest.mark.parametrize(
    ("events", "twice"),
    [
        (["started", "saved", "resumed", "finished"], False),
        (["started", "finished", "finished"], True),
        (["started", "finished", "resumed"], True),
        (["started", "finished", "started", "finished"], True),
        (["started", "saved"], False),
    ],
)
def test_a_run_that_is_trained_after_its_end_is_seen(tmp_path, events, twice):
    lab = Lab(tmp_path / "lab").open()
    lab.folder("0123456789ab").mkdir(parents=True)
    for event in events:
        lab.log("0123456789ab", {"event": event})
    assert kills.done_twice(lab) == (["0123456789ab"] if twice else [])


def test_weights_that_are_written_again_are_seen_even_with_the_same_bits():
    assert kills._changed({"a": ("bits", 1), "b": ("bits", 1)}, {"a": ("bits", 1), "b": ("bits", 2)}) == [
        "finished run b was gone or written again"
    ]
