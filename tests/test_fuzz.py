"""Every parser of outside bytes, with a few hundred changed inputs and all that ever broke one."""

import pytest

from tests.fuzz.__main__ import CORPUS, fuzz, tried
from tests.fuzz.targets import PARSERS, targets

TARGETS = {t.name: t for t in targets()}


def test_every_parser_can_be_asked_for_by_name():
    assert tuple(TARGETS) == PARSERS


@pytest.mark.parametrize("name", TARGETS)
def test_changed_bytes_are_refused_in_words(name):
    raw, said = next(fuzz(TARGETS[name], 150, seed=1), (b"", ""))
    assert not said, (raw, said)


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_themselves_are_read(name, tmp_path):
    """Otherwise nothing beyond the first check would be tried."""
    target = TARGETS[name]
    for raw in target.seeds[:1]:
        if name not in ("done", "export file", "score CSV"):
            target.parse(raw, tmp_path)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*")), ids=lambda p: p.name)
def test_what_once_broke_a_parser_does_so_no_more(path, tmp_path):
    target = TARGETS[path.name.rpartition("-")[0].replace("_", " ")]
    for _ in range(2):  # the second time into what the first has left
        assert not tried(target, path.read_bytes(), tmp_path)
