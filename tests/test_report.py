"""Reports: every claim and every figure in every format, nothing unescaped, nothing fetched."""

from __future__ import annotations

import csv
import html
import io
import json
import lzma
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade import stats
from saccade.lab.table import Table, gap, records
from saccade.report import document, figures, writers
from saccade.spec import (
    Difference,
    Estimate,
    Evidence,
    Met,
    Paper,
    Reason,
    Recipe,
    Run,
    SaccadeError,
    Says,
    Settings,
    Task,
    Verdict,
)
from saccade.study import Choice, Claim, Study, figure, judge

NASTY = "<script>alert('x')</script> & 100 % of $5_000 #1 {a} ~b ^c \\d | [e](f) **g** --set"


@figure("Accuracy by x <i>", paper="Figure 8 & 9")
def by_x(table: Table) -> figures.FigureData:
    lines = [
        {"label": name, "family": family, "where": {"model": model}}
        for name, model, family in (("CNN <b>", "lenet", "cnn"), ("MHA", "mha", "attention"))
    ]
    return figures.curves(table, y="accuracy", x="x", lines=lines, x_log=2, y_percent=True, title="By <x>", note=NASTY)


@figure("What the networks see")
def look(table: Table) -> figures.FigureData:
    return figures.image_grid([[np.eye(4), np.ones((4, 4, 3))]], columns=["a", "b"], title="Images")


def table(seeds: int = 5) -> Table:
    rows, gaps = [], []
    for model in ("lenet", "mha"):
        for x in (1, 8):
            for seed in range(seeds):
                task = Task(Run(model, "digits", Recipe(64), seed, data_args=Settings(x=x)))
                if (model, x, seed) == ("mha", 8, 4):
                    gaps.append(gap(task, "diverged: loss is nan"))
                    continue
                value = 0.3 + 0.02 * x + 0.001 * seed * x + 0.1 * (model == "mha")
                rows.extend(records(task, [{"metric": "accuracy", "value": value, "n": 50, "at": {}}]))
    return Table(tuple(rows), tuple(gaps))


def evidence(value: float = 0.044, n: int = 5, **more: Any) -> Evidence:
    low, high = (value - 0.015, value + 0.015) if n > 1 else (math.nan, math.nan)
    return Evidence(Estimate(value, low, high, n), 0.002, 0.998, "paired t", **more)


def verdict(claim: str, says: Says, found: Evidence | None = None, p: float | None = None, **more: Any) -> Verdict:
    texts = {"statement": "statement", "tested": "test", "paper": "finding", "concluded": "reading"}
    given = {name: f"{word} of {claim}" for name, word in texts.items()}
    return Verdict(claim=claim, says=says, evidence=found, p_adjusted=p, family=claim, **(given | more))


MET = Met(Reason.STILL_MOVING, "the contrast has settled", False, "it has not")
VERDICTS = (
    verdict(
        "D-H1",
        Says.REPRODUCED,
        evidence(parts=(evidence(note="at x=1"), evidence(0.05, note="at x=8"))),
        0.0004,
        registered="registered before the runs",
        by_budget=((0.5, evidence(0.01)), (1.0, evidence())),
    ),
    verdict("D-H2", Says.CONTRADICTED, evidence(-0.044), 0.02, differs=("five seeds instead of ten",)),
    verdict("D-H3", Says.UNDECIDED, evidence(0.001), 0.4, reason=Reason.TOO_FEW_SEEDS, remark="about 9 needed; x = 8"),
    verdict("D-H4", Says.UNDECIDED, evidence(n=1), reason=Reason.STILL_MOVING, requirements=(MET,)),
    verdict("D-L1", Says.UNDECIDED, reason=Reason.OUT_OF_REACH),
    verdict(
        "D-P1",
        Says.REPRODUCED,
        Evidence(Estimate(6058, 6058, 6058, 0, "exact"), 0, 1, "exact", "parameters"),
        0.0,
    ),
    verdict(
        "D-X",
        Says.UNDECIDED,
        evidence(unit=NASTY, note=NASTY),
        0.5,
        reason=Reason.TOO_FEW_SEEDS,
        statement=NASTY,
        tested=NASTY,
        paper=NASTY,
        concluded=NASTY,
        remark=NASTY,
        differs=(NASTY,),
        registered=NASTY,
    ),
)
STUDY = Study(
    name="digits_on_backgrounds",
    question="Does attention generalise better? " + NASTY,
    paper=Paper("A. Author 2022 & co", "https://example.org/a?b=1&c=2"),
    tasks=lambda scale, chosen: (),
    figures=(by_x, look),
    claims=tuple(
        Claim(id=v.claim, statement=v.statement, tested="counted", test=lambda t: evidence(), trained=False)
        for v in VERDICTS
    ),
    choices=(
        Choice("heads", 2, (1, 2), "Must divide 6 and 16."),
        Choice("blend", "opacity", ("opacity", "add"), NASTY),
        Choice("budget", 60000, (), "Sample presentations."),
    ),
    differs=(Difference("one budget for both"), Difference("five seeds instead of ten", ("D-H1", "D-H2"))),
)
FACTS = {
    "procedural": False,
    "environments": [{"torch": "2.13.0", "device": "cpu", "data": {}, "versions": {"model": 1, "data": 2}}],
    "wall seconds": 4321.0,
    "done": 19,
    "diverged": 1,
    "failed": 0,
    "data": {"mnist": "a mirror <x>"},
    "command": "saccade run digits --scale small",
    "remarks": ["MHA was still improving"],
}


def write(folder: Path, rows: Table | None = None, facts: Any = FACTS, **more: Any) -> dict[str, Path]:
    chosen = STUDY.choose({"heads": 1})
    return document.write(
        STUDY, "small", chosen, table() if rows is None else rows, VERDICTS, folder, facts=facts, **more
    )


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> dict[str, Path]:
    return write(tmp_path_factory.mktemp("report"))


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not close."""

    VOID = ("meta", "link", "br", "img", "hr", "path", "use", "rect", "image")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page(paths) -> Page:
    return Page(paths["html"].read_text())


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_slope_says_of_what_it_is_one():
    slope = evidence(per="per doubling of x")
    assert document.unit_of(slope) == "percentage points per doubling of x"
    assert document.unit_of(evidence(unit="nats", null=0.5)) == "nats (above 0.5 asked)"


def test_a_requirement_of_an_arm_that_the_scale_leaves_out_is_neither_met_nor_unmet():
    out = Met(Reason.NOT_MEASURED, "A: accuracy", True, "no rows; this scale may leave the arm out")
    assert not out.applies and MET.applies and Met(Reason.NOT_MEASURED, "A", False, "no rows").applies


def test_everything_asked_for_is_written(paths):
    assert {"md", "html", "tex", "csv", "verdicts.json"} < set(paths)
    for name in ("by_x", "look"):
        assert {f"figures/{name}.{end}" for end in ("svg", "csv", "pdf")} < set(paths)
    folder = paths["html"].parent
    assert all(p.is_file() for p in paths.values())
    assert {p for p in folder.rglob("*") if p.is_file()} == set(paths.values())


def test_every_claim_is_in_every_format(paths, page):
    latex, markdown = (paths[k].read_text() for k in ("tex", "md"))
    for v in VERDICTS[:-1]:
        for words in (v.claim, v.statement, v.tested, v.paper, v.concluded, v.says):
            assert words in page.text
            assert words in markdown
            assert words in latex
    sentence = (
        "7 claims: 2 reproduced, 1 contradicted and 4 undecided (2 too few seeds, 1 still moving, 1 out of reach at "
        "this scale)."
    )
    for text in (page.text, markdown, latex):
        assert sentence in text
        assert text.index("not its hypothesis, came out again") < text.index("p (Holm)")
    assert document.summary(VERDICTS) == sentence


def test_numbers_come_with_interval_n_and_p(page):
    for words in (
        "+4.4 [2.9, 5.9] n=5",
        "+4.4 n=1, no interval",
        "6,058 (exact)",
        "< 0.001",
        "0.020",
        "at x=8",
        "about 9 needed",
        "five seeds instead of ten",
    ):
        assert words in page.text
    assert "nan" not in page.text


def test_every_figure_is_in_every_format(paths, page):
    labels = [a.get("aria-label") or "" for t, a in page.tags if t == "svg"]
    assert len(labels) == 3
    assert (
        "D-H1, reproduced: +1.0 points at 50%, +4.4 points at 100%" in labels[0]
    )  # verdict against budget comes first
    assert "MHA, n=4 to 5, 1 diverged" in labels[1]
    for n, shown in enumerate(STUDY.figures, 2):
        assert f"Figure {n}. {shown.title}" in page.text
        assert f"figures/{shown.name}.svg" in paths["md"].read_text()
        assert f"figures/{shown.name}.pdf" in paths["tex"].read_text()
    assert "In the paper: Figure 8 & 9." in page.text
    assert "In the paper: no counterpart." in page.text


def test_the_page_fetches_and_runs_nothing(paths, page):
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "img")
        assert not any(name.startswith("on") for name in attrs)
        for name in ("src", "srcset", "href", "xlink:href", "data", "action"):
            if tag != "a" and attrs.get(name):
                assert str(attrs[name]).startswith(("#", "data:"))
    style = re.findall(r"<style>(.*?)</style>", paths["html"].read_text(), re.S)
    assert len(style) == 1
    assert "@import" not in style[0]
    assert "url(" not in style[0]


def test_text_is_escaped_everywhere(paths, page):
    text = paths["html"].read_text()
    assert "<script" not in text
    assert html.escape(NASTY) in text
    assert one_line(NASTY) in page.text
    assert "<script" not in paths["md"].read_text()
    assert r"\[e\](f) \*\*g\*\*" in paths["md"].read_text()
    latex = paths["tex"].read_text()
    assert r"100 \% of \$5\_\allowbreak{}000 \#1 \{a\} \textasciitilde{}b \textasciicircum{}c" in latex
    assert "-{}-scale" in latex
    assert not re.search(r"(?<!\\)[%#&](?! &| \\| |$)[^\n]*alert", latex)


def test_latex_braces_and_environments_match(paths):
    text = paths["tex"].read_text()
    bare = re.sub(r"\\[\\{}]", "", text)
    assert bare.count("{") == bare.count("}")
    begun, ended = (sorted(re.findall(rf"\\{w}{{(\w+)}}", text)) for w in ("begin", "end"))
    assert begun == ended
    assert r"\toprule" in text
    rows = re.search(r"\\endhead\n(.*?)\\bottomrule", text, re.S)
    assert rows
    assert all(len(re.findall(r"(?<!\\)&", line)) == 5 for line in rows[1].strip().split("\n"))


def test_latex_names_characters_it_has_no_font_for():
    assert writers._tex("± 2−1 ≥ ö – ☃") == r"$\pm$ 2$-$1 $\ge$ ö \textendash{} [snowman]"


def test_markdown_links_resolve(paths):
    text, folder = paths["md"].read_text(), paths["md"].parent
    links = re.findall(r"(?<!\\)\]\(([^)\s]+)\)", text)
    local = [link for link in links if not link.startswith(("http", "#"))]
    assert len(local) == 6
    assert all((folder / link).is_file() for link in local)
    anchors = set(re.findall(r'<a id="([^"]+)">', text))
    assert {link[1:] for link in links if link.startswith("#")} <= anchors


def test_markdown_tables_have_equal_columns(paths):
    for block in re.findall(r"(?:^\|.*\n)+", paths["md"].read_text(), re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().split("\n")}) == 1


def test_ids_are_unique_and_links_inside_the_page_resolve(page):
    ids = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    for tag, attrs in page.tags:
        target = str(attrs.get("href") or attrs.get("xlink:href") or "")
        if target.startswith("#"):
            assert target[1:] in ids, (tag, target)
        clip = re.match(r"url\(#(.*)\)", str(attrs.get("clip-path") or ""))
        assert not clip or clip[1] in ids


def test_the_page_can_be_read_without_seeing_it(page):
    tags = [t for t, _ in page.tags]
    assert tags.count("h1") == 1
    assert tags.count("caption") == tags.count("table")
    assert ("html", {"lang": "en"}) in page.tags
    assert all(a.get("scope") for t, a in page.tags if t == "th")
    assert next(a for t, a in page.tags if t == "a") == {"class": "skip", "href": "#verdicts"}
    assert [t for t, a in page.tags if a.get("class") == "badge reproduced"]
    assert "✓" in page.text


def test_choices_show_value_default_and_alternatives(paths):
    text = paths["md"].read_text()
    assert "| <code>heads</code> | <code>1</code><br><sub>default: 2</sub> | 2 |" in text
    assert "| <code>blend</code> | <code>opacity</code><br><sub>default</sub> | add |" in text
    assert "any int" in text


def test_facts_and_method_are_reported(page):
    for words in (
        "19 done, 1 diverged, 0 failed",
        "Wall time 72 min",
        "a mirror <x>",
        "torch: 2.13.0, device: cpu, versions (model: 1, data: 2)",
        "saccade run digits --scale small",
        "MHA was still improving",
        "Student t",
        "Holm",
        "below 5 seeds",
    ):
        assert words in page.text


def test_csv_and_json_round_trip(paths):
    rows = list(csv.DictReader(io.StringIO(paths["csv"].read_text())))
    assert len(rows) == len(table())
    assert [float(r["value"]) for r in rows] == [r["value"] for r in table()]
    gaps = list(csv.DictReader(io.StringIO(paths["gaps.csv"].read_text())))
    assert [g["why"] for g in gaps] == ["diverged: loss is nan"]
    data = json.loads(paths["verdicts.json"].read_text())
    assert [v["claim"] for v in data["verdicts"]] == [v.claim for v in VERDICTS]
    assert data["verdicts"][3]["evidence"]["estimate"]["low"] is None
    assert data["chosen"] == {"blend": "opacity", "budget": 60000, "heads": 1}
    drawn = list(csv.DictReader(io.StringIO(paths["figures/by_x.csv"].read_text())))
    assert [len(r["seeds"].split()) for r in drawn] == [5, 5, 5, 4]
    assert {r["missing"] for r in drawn if r["line"] == "MHA"} == {"1"}


def test_drawn_data_are_said_first_and_loudly(tmp_path):
    paths = write(tmp_path, facts={**FACTS, "procedural": True})
    assert "NOT REAL DATA" in paths["md"].read_text().split("\n")[0]
    assert "NOT REAL DATA" in paths["tex"].read_text().split("\n")[0]
    body = Page(paths["html"].read_text().split("<body>")[1].split("</body>")[0])
    assert body.words[1 if not body.words[0].strip() else 0].startswith("DRAWN DATA")
    assert json.loads(paths["verdicts.json"].read_text())["procedural"] is True


def test_real_data_are_not_called_drawn(paths):
    assert all("NOT REAL" not in paths[k].read_text() for k in ("md", "html", "tex"))


def test_a_report_of_nothing_and_one_of_a_single_seed(tmp_path):
    for rows in (Table(), table(seeds=1)):
        paths = write(tmp_path / str(len(rows)), rows, facts={}, formats=("html", "md"))
        text = Page(paths["html"].read_text()).text
        assert (by_x.title in text) == bool(len(rows))  # a figure without rows is left out, not drawn empty


@pytest.mark.slow
def test_the_same_input_gives_the_same_files(tmp_path, paths):
    again = write(tmp_path)
    assert {k: p.read_bytes() for k, p in again.items()} == {k: p.read_bytes() for k, p in paths.items()}


def test_only_the_formats_asked_for(tmp_path):
    assert set(write(tmp_path / "a", formats=("csv",))) == {
        "csv",
        "gaps.csv",
        "training.csv",
        "verdicts.json",
        "figures/verdict_against_budget.csv",
        "figures/by_x.csv",
        "figures/look.csv",
    }
    with pytest.raises(SaccadeError, match="no report format"):
        write(tmp_path / "b", formats=("docx",))
    assert not (tmp_path / "b").exists()


def test_rows_may_be_compressed_and_a_file_that_has_them_stays_as_it_is(tmp_path):
    plain = write(tmp_path, formats=("csv",))["csv"].read_bytes()
    packed = write(tmp_path, formats=("csv.xz",))["csv.xz"]
    assert packed.name == "rows.csv.xz" and lzma.decompress(packed.read_bytes()) == plain
    assert not (tmp_path / "rows.csv").exists()  # of the report before: it would go stale
    other = lzma.compress(plain, preset=0)  # as another release of the compressor may write it
    packed.write_bytes(other)
    assert write(tmp_path, formats=("csv.xz",))["csv.xz"].read_bytes() == other
    packed.write_bytes(other[:50])
    assert lzma.decompress(write(tmp_path, formats=("csv.xz",))["csv.xz"].read_bytes()) == plain


def test_a_figure_that_fails_is_not_hidden_and_leaves_the_old_report(tmp_path):
    before = write(tmp_path, formats=("md",))["md"].read_text()

    @figure("broken")
    def broken(table: Table) -> figures.FigureData:
        raise ValueError("cannot draw")

    study = Study(STUDY.name, "other", STUDY.paper, STUDY.tasks, (by_x, broken), STUDY.claims)
    with pytest.raises(ValueError, match="cannot draw"):
        document.write(study, "small", Settings(), table(), VERDICTS, tmp_path, facts={}, formats=("md",))
    assert (tmp_path / "report.md").read_text() == before


def test_an_address_that_is_not_a_web_page_is_no_link(tmp_path):
    study = Study("s", "q", Paper("cited", "javascript:alert(1)"), STUDY.tasks, (), ())
    text = document.write(study, "smoke", Settings(), Table(), (), tmp_path, facts={})["html"].read_text()
    assert "javascript" not in text
    assert "After cited" in text
    assert "No claims." in text


def test_a_figure_that_is_left_out_goes_and_other_files_stay(tmp_path):
    write(tmp_path, formats=("md",))
    names = {p.name for p in (tmp_path / "figures").iterdir()}
    (tmp_path / "figures" / "mine.svg").write_text("of the user")
    write(tmp_path, rows=Table(), formats=("md",))
    left = {p.name for p in (tmp_path / "figures").iterdir()}
    assert left < names | {"mine.svg"} and "mine.svg" in left


def test_terminal_rows():
    rows = document.terminal(VERDICTS)
    assert rows[0] == ("claim", "paper found", "ours", "verdict")
    assert rows[1][3] == "✓ reproduced"
    assert rows[3] == ("D-H3", "finding of D-H3", "+0.1 [-1.4, 1.6] n=5", "? undecided, too few seeds: about 9 needed")
    assert rows[5][2:] == ("–", "? undecided, out of reach at this scale")
    assert rows[7][1] == NASTY[:39].rstrip() + "…"
    assert rows[7][3] == "? undecided, too few seeds: <script>alert('x'…"
    assert all(sum(map(len, row)) + 6 <= 120 for row in rows)
    moving = verdict("D-H6", Says.UNDECIDED, evidence(), reason=Reason.STILL_MOVING, remark="+3.0 → +1.0; x = 8")
    assert document.terminal([moving])[1][3] == "? undecided, still moving"


def test_the_summary_counts_every_verdict():
    assert document.summary(VERDICTS[:1]) == "1 claim: 1 reproduced."
    assert document.summary(()) == "No claims."
    one, other = (replace(verdict(id, Says.HOLDS, evidence()), family="same") for id in ("A", "B"))
    assert document.summary([one, other]) == "2 claims in 1 family: 2 that hold."
    assert document.summary([one]) == "1 claim: 1 that holds."


def test_what_a_study_says_begins_with_what_was_decided():
    moving = verdict("A", Says.UNDECIDED, evidence(), reason=Reason.STILL_MOVING)
    waiting = verdict("B", Says.UNDECIDED, reason=Reason.TOO_FEW_SEEDS)
    decided, other = (verdict(id, Says.REPRODUCED, evidence(unit="points")) for id in ("C", "D"))
    shown = document.what_it_says(("A", "B", "C"), [moving, waiting, other, decided])
    assert [v.claim for v in shown] == ["C", "D", "A", "B"]  # D stands in for B, which has no number
    said = document.in_words(decided)
    assert said == ("statement of C (C): +4.4 [2.9, 5.9] n=5 percentage points.", "Tested: test of C.")
    assert document.in_words(waiting)[0] == "statement of B (B)."


def test_a_number_says_which_side_was_asked_for():
    seeds = dict(enumerate((0.02, 0.03, 0.02, 0.03, 0.02)))
    assert document.unit_of(stats.above(seeds, 0.0)) == "percentage points"
    assert document.unit_of(stats.above(seeds, 0.1)) == "percentage points (above 10 asked)"
    assert document.unit_of(stats.above(seeds, 0.693, unit="nats")) == "nats (above 0.693 asked)"
    assert document.unit_of(stats.within(seeds, 0.0, 0.05)) == "percentage points (within ± 5 asked)"
    assert document.unit_of(stats.exact(3, True)) == document.unit_of(stats.all_of(stats.exact(3, True)))
    parts = stats.all_of(stats.above(seeds, 0.0), stats.above(seeds, 0.1))
    assert document.ours(parts) == "+2.4 [1.7, 3.1] n=5" and document.unit_of(parts).endswith("(above 10 asked)")


def test_a_judged_study_can_be_written(tmp_path):
    verdicts = judge(STUDY, table(), "small")
    paths = document.write(STUDY, "small", STUDY.choose({}), table(), verdicts, tmp_path, facts={}, formats=("md",))
    assert "7 claims: 7 reproduced." in paths["md"].read_text()


@pytest.mark.web
def test_a_browser_shows_headings_and_figures(paths, tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on PATH")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path}",
        "--dump-dom",
    ]
    done = subprocess.run(
        [browser, *flags, paths["html"].as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    dom = Page(done.stdout)
    tags = [t for t, _ in dom.tags]
    assert tags.count("svg") == 3
    assert tags.count("h2") == 7
    assert tags.count("details") == len(VERDICTS) + 2
    assert "script" not in tags
    assert "statement of D-H1" in dom.text


def test_a_link_target_cannot_end_its_link():
    told = writers._md_cell((writers.Ref("text", "https://a.org/x(1) y](javascript:0)"),))
    assert told == "[text](https://a.org/x%281%29%20y%5D%28javascript:0%29)"


def test_cells_that_a_spreadsheet_would_run_are_text():
    rows = [{"a": "=1+1", "b": "-0.5", "c": -0.5, "d": "@x", "e": "+cmd", "f": "plain"}]
    assert document.to_csv(rows).splitlines()[1] == "'=1+1,-0.5,-0.5,'@x,'+cmd,plain"
    assert "'=1+1" in Table(({**dict.fromkeys(("arm", "run"), "=1+1"), "metric": "m", "value": 1, "n": 1},)).to_csv()
