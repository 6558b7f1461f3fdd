"""Text from outside stays text: on a terminal, in HTML, Markdown, LaTeX and CSV."""

import csv
import io
import re
import subprocess
import sys

import pytest

from saccade.cli import output
from saccade.errors import quoted, visible
from saccade.lab.table import Table
from saccade.report import writers
from saccade.report.document import to_csv
from saccade.report.writers import Badge, Command, Document, Fold, Grid, Mono, Ref, Section, Small, Terms, Text

EVIL = "\x1b]0;title\x07\x1b[2J\r\x9b31m<script>alert(1)</script> [x](javascript:1) |`*_ \u202eabc\u2066\x00\x7f"


def raw(text):
    """Control characters that came through; lines and tabs are no harm."""
    return [c for c in text if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066"]


def test_visible_shows_every_control_character_and_changes_nothing_else():
    assert visible("\x1b[2J") == r"\x1b[2J" and visible("\u202e") == r"\u202e" and visible("\ud800") == r"\ud800"
    plain = "Größe ± 3 → 5\n\tπ “quoted” 😀 日本語"
    hiding = ["\xad", "\u2063", "\u206f", "\ufff9", "\U000e0041"]  # letters that are there and not to be seen
    assert [visible(c) for c in hiding] == [r"\xad", r"\u2063", r"\u206f", r"\ufff9", r"\U000e0041"]
    assert visible(plain) == plain and not raw(visible(EVIL)) and not raw(quoted(EVIL))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_stream_for_people_passes_colours_on_a_terminal_and_nothing_else():
    screen, file = Terminal(), io.StringIO()
    for stream in (screen, file):
        print(f"\x1b[31mred\x1b[0m {EVIL}", file=output.Visible(stream))
    assert screen.getvalue().startswith("\x1b[31mred\x1b[0m ") and screen.getvalue().count("\x1b") == 2
    assert not raw(file.getvalue())
    assert output.drawing(output.Visible(screen)) is screen


def document():
    cell = (EVIL, Small(EVIL), Mono(EVIL), Ref(EVIL, "https://a.example/"), Badge(EVIL))
    blocks = (
        Section(EVIL),
        Text(cell),
        Terms(((EVIL, cell),)),
        Grid(EVIL, (EVIL, EVIL), ((cell, cell),), (0.5, 0.5)),
        Fold("id", EVIL, EVIL, EVIL, (Text(cell),)),
        Command((EVIL, "```", "# heading")),
    )
    return Document(EVIL, EVIL, EVIL, cell, EVIL, blocks)


@pytest.mark.parametrize("write", [writers.to_html, writers.to_markdown, writers.to_latex])
def test_no_control_character_reaches_a_report(write):
    assert not raw(write(document()))


def test_html_runs_nothing():
    page = writers.to_html(document())
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_markdown_ends_no_table_link_or_code_block():
    text = writers.to_markdown(document())
    prose = re.sub(r"(?<!\\)`[^`]*`", "", text.partition("````sh")[0])  # code spans are shown as they are
    assert "<script>alert" not in text.replace("```", "") or "````sh" in text
    assert not re.search(r"(?<!\\)\]\(javascript:", prose)
    assert "\n````sh\n" in text and text.rstrip().endswith("````")  # longer than what it holds


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", "＝1+1"])
def test_a_spreadsheet_runs_nothing(text):
    rows = [
        {text: 1, "metric": text, "value": 1.0, "n": 1, "arm": text, "model": "m", "data": "d", "seed": 0, "run": "r"}
    ]
    for made in (Table(tuple(rows)).to_csv(), to_csv(rows)):
        (read,) = csv.DictReader(io.StringIO(made))
        heads = [name[0] for name in read]  # a condition of a row from elsewhere is the head of a column
        assert not {read["arm"][0], *heads} & set("=+-@\t\r\n＝") and not raw(made)


def test_an_empty_line_ends_no_html_in_markdown():
    words = "first\n\n# a heading\n\n| a | table |"
    text = writers.to_markdown(Document("q", "s", "small", (), "", (Fold("id", words, words, words, ()),)))
    assert not [line for line in text.splitlines()[2:] if line.startswith(("#", "|"))]


def test_numbers_in_csv_stay_numbers():
    assert "-0.5" in to_csv([{"value": -0.5}]).splitlines() and "-0.5" in to_csv([{"value": "-0.5"}]).splitlines()


def saccade(*words):
    return subprocess.run([sys.executable, "-m", "saccade", *map(str, words)], capture_output=True, text=True)


@pytest.mark.slow
def test_a_plug_ins_words_and_a_score_files_cells_are_shown_as_text(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from torch import nn\nfrom saccade.registry import model\n\n\n@model(family='other')\n"
        "def mine(classes=10):\n    '''Title \x1b]0;owned\x07 and \x1b[2J.'''\n    return nn.Linear(3, classes)\n"
    )
    listed = saccade("list", "models", "--plugin", plugin)
    assert listed.returncode == 0 and r"\x1b]0;owned\x07" in listed.stdout and not raw(listed.stdout)
    scores = tmp_path / "scores.csv"
    scores.write_text("a,b\n0.5,\x1b[2Jx\n")
    refused = saccade("probe", "--scores", scores, "--labels", scores)
    assert refused.returncode == 2 and r"\x1b[2Jx" in refused.stderr and not raw(refused.stderr)
