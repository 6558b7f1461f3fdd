"""Ctrl-C asks the user at the terminal once; SIGTERM asks nobody."""

import io
import signal
import sys

import pytest

from saccade.cli import commands, output, terminal


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def typed(monkeypatch):
    """A user at a terminal who types this."""
    monkeypatch.setattr(output, "told_to_end", type(output.told_to_end)())
    before = [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def type_in(words):
        monkeypatch.setattr(sys, "stdin", Terminal(words))
        monkeypatch.setattr(sys, "stderr", Terminal())

    yield type_in
    for which, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(which, handler)


@pytest.mark.parametrize(
    ("words", "answer"), [("y\n", True), ("yes\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_the_answer_is_what_was_typed(typed, words, answer):
    typed(words)
    assert terminal.ask("Leave it?") is answer and "Leave it? [y/N]" in sys.stderr.getvalue()


def test_after_sigterm_nobody_is_asked(typed):
    typed("y\n")
    with pytest.raises(SystemExit):
        commands.main(["--help"])  # every command sets what SIGTERM does
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    typed("y\n")
    assert terminal.ask("Leave it?") is False and not sys.stderr.getvalue()


def test_another_ctrl_c_is_no_answer_but_no(typed, monkeypatch):
    typed("")
    monkeypatch.setattr(sys.stdin, "readline", lambda: signal.raise_signal(signal.SIGINT))
    assert terminal.ask("Leave it?") is False
