"""Study, rows and verdicts -> a report as Markdown, one HTML page, LaTeX and CSV.

`content` says once what is in it; three short writers turn its blocks into text. They share one file
so that a new kind of block is not forgotten in one of them.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from saccade import figures
from saccade.spec import Evidence, SaccadeError, Settings, Verdict, suggest
from saccade.store import write_atomic
from saccade.study import ALPHA, MIN_PAIRS, Figure, Study
from saccade.table import Table

FORMATS = ("md", "html", "csv", "tex")
RUNS = ("runs", "done", "diverged", "failed")
COLUMNS = ("claims", "paper", "ours", "verdict")
# What a verdict begins with -> its class on the page, its sign, how a sentence counts it.
KINDS = {
    "reproduced": ("reproduced", "✓", "reproduced"),
    "contradicted": ("contradicted", "✗", "contradicted"),
    "undecided": ("undecided", "?", "undecided"),
    "too few seeds": ("few", "…", "with too few seeds"),
    "needs": ("needs", "↑", "waiting for a larger scale"),
    "": ("other", "·", "other"),
}
LOUD = ("DRAWN DATA, NOT REAL DATA: the images behind every number here were made by a program, so nothing "
        "below speaks about the paper's own data sets.")
METHOD = (
    "The unit of replication is a trained model, that is a seed; n counts them. Images are not replicates.",
    "Intervals are 95 % Student t intervals over seeds unless a claim's detail names another kind. One seed "
    "has none. Numbers marked exact were computed, not sampled.",
    "p is two-sided and Holm-corrected over all claims of this study that could be tested. Below "
    f"{ALPHA:g} a claim is reproduced or, when the effect runs the other way, contradicted; otherwise it is "
    "undecided, which does not say that there is no difference.",
    f"No verdict is given below {MIN_PAIRS} seeds. Every planned claim is listed, also those that failed.",
    "Runs that diverged or failed are not replaced; their number stands beside every mean that lacks them.",
    "In the figures points are single seeds, bars or bands are the intervals, and a hollow diamond is the "
    "paper's value.",
)


class Badge(NamedTuple):
    says: str


class Ref(NamedTuple):
    text: str
    to: str  # an id of this document, or a web address


class Small(NamedTuple):
    text: str


class Mono(NamedTuple):
    text: str


Inline = str | Badge | Ref | Small | Mono
Cell = tuple[Inline, ...]


class Section(NamedTuple):
    title: str


class Text(NamedTuple):
    cell: Cell


class Items(NamedTuple):
    cells: tuple[Cell, ...]


class Terms(NamedTuple):
    pairs: tuple[tuple[str, Cell], ...]


class Grid(NamedTuple):
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    weights: tuple[float, ...]  # of the columns, in print
    role: str = ""


class Fold(NamedTuple):
    id: str
    name: str
    words: str
    says: str
    blocks: tuple[Any, ...]


class Counts(NamedTuple):
    verdicts: tuple[Verdict, ...]


class Command(NamedTuple):
    lines: tuple[str, ...]


class Shown(NamedTuple):
    number: int
    figure: Figure
    data: figures.FigureData
    svg: str

    @property
    def file(self) -> str:
        return f"figures/{_slug(self.figure.name, '_')}"

    @property
    def caption(self) -> str:
        return f"In the paper: {self.figure.paper or 'no counterpart'}. {self.data.note}".strip()


Block = Section | Text | Items | Terms | Grid | Fold | Counts | Command | Shown


def write(study: Study, scale: str, chosen: Settings, table: Table, verdicts: Sequence[Verdict],
          folder: Path, *, facts: Mapping[str, Any], formats: Sequence[str] = FORMATS) -> dict[str, Path]:
    """Write the report and return what was written, by format or by path inside the folder.

    `facts`, all optional: procedural (bool), data (mapping of data set to source), runs, done, diverged,
    failed (counts), anything that ends in `seconds`, environment (mapping) or environments (several), command
    (a line or several), remarks (sentences); others are listed as they are.
    """
    for name in formats:
        if name not in FORMATS:
            raise SaccadeError(suggest("report format", name, FORMATS))
    from saccade import draw  # here: matplotlib takes a second to load, and a terminal's verdicts need none

    drawn = "md" in formats or "html" in formats
    made = [(f, f.make(table)) for f in study.figures]
    shown = [Shown(i, f, data, draw.render(data, "svg").decode() if drawn else "")
             for i, (f, data) in enumerate(made, 1)]
    blocks = list(content(study, scale, chosen, table, verdicts, shown, facts))
    pages = {"md": _markdown, "html": _page, "tex": _latex}
    loud = LOUD if facts.get("procedural") else ""
    # Everything is made before anything is written: a figure that fails leaves the old report whole.
    files = {f: (f"report.{f}", pages[f](study, scale, blocks, loud).encode()) for f in formats if f in pages}
    if "csv" in formats:
        files["csv"] = ("rows.csv", table.to_csv().encode())
        files["gaps.csv"] = ("gaps.csv", to_csv(table.gaps).encode())
    files["verdicts.json"] = ("verdicts.json", _json(study, scale, chosen, verdicts, facts).encode())
    for s in shown:
        kept = {".csv": to_csv(s.data.rows()).encode(), ".svg": s.svg.encode(),
                ".pdf": draw.render(s.data, "pdf") if "tex" in formats else b""}
        files |= {s.file + end: (s.file + end, body) for end, body in kept.items() if body or end == ".csv"}
    for name, body in files.values():
        write_atomic(Path(folder) / name, body)
    return {key: Path(folder) / name for key, (name, _) in files.items()}


def terminal(verdicts: Iterable[Verdict]) -> list[tuple[str, ...]]:
    """The headings, then a row for each claim."""
    return [COLUMNS, *((f"{v.claim}  {v.statement}", v.concluded or v.paper, ours(v.evidence),
                       v.says + (f", {v.remark}" if v.remark else "")) for v in verdicts)]


def summary(verdicts: Sequence[Verdict]) -> str:
    counts = [f"{n} {KINDS[k][2]}" for k, n in _counted(verdicts).items() if n]
    if not counts:
        return "No claims."
    listed = counts[0] if len(counts) == 1 else f"{', '.join(counts[:-1])} and {counts[-1]}"
    return f"{len(verdicts)} claim{'s' if len(verdicts) != 1 else ''}: {listed}."


def ours(evidence: Evidence | None) -> str:
    if evidence is None:
        return "–"
    e = evidence.estimate
    if e.method != "exact" and not (math.isfinite(e.low) and math.isfinite(e.high)):
        return e.text(evidence.unit).split(" [")[0] + f" n={e.n}, no interval"
    return e.text(evidence.unit)


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(k for r in rows for k in r)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def content(study: Study, scale: str, chosen: Settings, table: Table, verdicts: Sequence[Verdict],
            shown: Sequence[Shown], facts: Mapping[str, Any]) -> Iterator[Block]:
    yield Section("Verdicts")
    yield Counts(tuple(verdicts))
    yield Grid("Every planned claim. Ours: estimate with 95 % interval and number of seeds n.",
               ("claim", "paper's reading", "ours", "p (Holm)", "verdict"),
               tuple(_summary_row(v) for v in verdicts), (0.34, 0.2, 0.2, 0.1, 0.16), "verdicts")
    if facts.get("remarks"):
        yield Text(("To bear in mind when reading the verdicts:",))
        yield Items(tuple((str(r),) for r in facts["remarks"]))
    yield Section("Claims in detail")
    for v in verdicts:
        yield Fold(_claim(v.claim), v.claim, v.statement, v.says, tuple(_detail(v)))
    yield Section("Figures")
    yield from shown
    yield Section("Open choices")
    if study.choices:
        yield Grid("What the paper leaves open, and what was taken here.",
                   ("choice", "taken", "alternatives", "about"),
                   tuple(_choice_row(c, chosen) for c in study.choices), (0.18, 0.2, 0.22, 0.4))
    else:
        yield Text(("The paper leaves nothing open that this study had to choose.",))
    yield Section("Differences from the paper")
    if study.differs:
        yield Items(tuple((d.text, *_touches(d.touches)) for d in study.differs))
    else:
        yield Text(("None known.",))
    yield Section("How the numbers were made")
    yield Items(tuple((m,) for m in METHOD))
    yield Section("Runs and environment")
    yield Terms(tuple((k, (v,)) for k, v in _facts(scale, table, facts)))
    command = facts.get("command", ())
    if command:
        yield Command((command,) if isinstance(command, str) else tuple(command))


def _summary_row(v: Verdict) -> tuple[Cell, ...]:
    measured: Cell = (ours(v.evidence),)
    if v.evidence and v.evidence.unit:
        measured += (Small("percentage points" if v.evidence.unit == "points" else v.evidence.unit),)
    says: Cell = (Badge(v.says), *((Small(v.remark),) if v.remark else ()))
    paper: Cell = (v.concluded or v.paper or "–", *((Small(v.paper),) if v.concluded and v.paper else ()))
    p = "exact" if v.evidence and v.evidence.estimate.method == "exact" else _p(v.p_adjusted)
    return (Ref(v.claim, _claim(v.claim)), " " + v.statement), paper, measured, (p,), says


def _detail(v: Verdict) -> Iterator[Block]:
    e = v.evidence
    pairs: list[tuple[str, Cell]] = [("Tested", (v.tested,)), ("Paper", (v.paper or "–",)),
                                     ("It concludes", (v.concluded or "–",)), ("Ours", (ours(e),))]
    if e:
        holm = f"; {_p(v.p_adjusted)} two-sided after Holm" if v.p_adjusted is not None else ""
        one_sided = f"{_p(e.p)} testing for the relation, {_p(e.p_against)} for its opposite"
        pairs += [("Test", (f"{e.method} (interval: {e.estimate.method})",)), ("p", (one_sided + holm,))]
    pairs += [("Verdict", (Badge(v.says),))] + ([("Remark", (v.remark,))] if v.remark else [])
    yield Terms(tuple(pairs))
    if e and e.parts:
        parts = [((p.note or f"part {i}",), (ours(p),), (_p(p.p),), (p.method,))
                 for i, p in enumerate(e.parts, 1)]
        yield Grid("What the claim is made of.", ("part", "ours", "p", "test"), tuple(parts),
                   (0.34, 0.28, 0.12, 0.26))
    if v.differs:
        yield Text(("Differences from the paper that may touch this claim:",))
        yield Items(tuple((d,) for d in v.differs))


def _choice_row(choice: Any, chosen: Settings) -> tuple[Cell, ...]:
    taken = chosen.get(choice.name, choice.default)
    mark = "default" if taken == choice.default else f"default: {_value(choice.default)}"
    others = [_value(k) for k in choice.known if k != taken]
    listed = ", ".join(others) or ("–" if choice.known else f"any {type(choice.default).__name__}")
    return (Mono(choice.name),), (Mono(_value(taken)), Small(mark)), (listed,), (choice.about,)


def _touches(claims: Sequence[str]) -> Cell:
    refs: list[Inline] = [x for c in claims for x in (", ", Ref(c, _claim(c)))]
    return (" (may touch ", *(refs[1:] or ["every claim"]), ")")


def _facts(scale: str, table: Table, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Scale", scale
    runs = [f"{facts[k]:,} {k if k != 'runs' else 'planned'}" for k in RUNS if facts.get(k) is not None]
    yield "Runs", ", ".join(runs) or f"{len({r['run'] for r in table})} with rows, {len(table.gaps)} without"
    yield "Rows", f"{len(table):,}"
    data = facts.get("data", {})
    for name, source in data.items() if isinstance(data, Mapping) else ((d, "") for d in data):
        yield f"Data: {name}", _value(source) or "–"
    for name, value in facts.items():
        label = name[:1].upper() + name[1:]
        if name.endswith("seconds"):
            yield label.removesuffix("seconds").strip() or "Time", duration(value)
        elif name == "environment":
            yield from ((str(k), _value(v)) for k, v in value.items())
        elif name == "environments":
            yield from ((f"Environment {i}" if len(value) > 1 else "Environment", _value(v))
                        for i, v in enumerate(value, 1))
        elif name not in ("procedural", "scale", "data", "command", "remarks", *RUNS):
            yield label, _value(value)


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = round(seconds / 60), round(seconds / 60) // 60
    return f"{minutes} min" if minutes < 60 else f"{hours} h {minutes % 60} min"


def _json(study: Study, scale: str, chosen: Settings, verdicts: Sequence[Verdict],
          facts: Mapping[str, Any]) -> str:
    return json.dumps({"study": study.name, "scale": scale, "procedural": bool(facts.get("procedural")),
                       "chosen": figures.jsonable(chosen), "summary": summary(verdicts),
                       "verdicts": figures.jsonable(list(verdicts))}, indent=1, ensure_ascii=False) + "\n"


def _citation(study: Study) -> Cell:
    paper = study.paper
    return ("After ", Ref(paper.citation, paper.url)) if _web(paper.url) else ("After ", paper.citation)


def _kind(says: str) -> str:
    return next(k for k in KINDS if says.startswith(k))


def _counted(verdicts: Iterable[Verdict]) -> dict[str, int]:
    said = [_kind(v.says) for v in verdicts]
    return {k: said.count(k) for k in KINDS}


def _p(p: float | None) -> str:
    if p is None or not math.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_value(v)}" for k, v in value.items())
    return ", ".join(map(_value, value)) if isinstance(value, (list, tuple)) else str(value)


def _slug(text: str, gap: str = "-") -> str:
    return re.sub(r"[^a-z0-9]+", gap, text.lower()).strip(gap) or "x"


def _claim(id: str) -> str:
    return f"claim-{_slug(id)}"


def _web(address: str) -> bool:
    return address.startswith(("https://", "http://"))


# -- HTML

# The page can load nothing and run nothing, whatever a statement or caption contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def _page(study: Study, scale: str, blocks: Sequence[Block], loud: str) -> str:
    esc = html.escape
    style = resources.files("saccade").joinpath("report.css").read_text()
    titles = [b.title for b in blocks if isinstance(b, Section)]
    links = "".join(f'<li><a href="#{_slug(t)}">{esc(t)}</a></li>' for t in titles)
    shout = f'<p class="loud" role="note">{esc(loud)}</p>\n' if loud else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{"Drawn data: " if loud else ""}{esc(study.question)}</title>
<style>
{style}</style>
</head>
<body>
{shout}<a class="skip" href="#verdicts">Skip to the verdicts</a>
<header>
<p class="over"><b>saccade</b> report on {esc(study.name)}, {esc(scale)} scale</p>
<h1>{esc(study.question)}</h1>
<p>{"".join(map(_html_inline, _citation(study)))}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{"".join(map(_html, blocks))}</main>
<footer>Written by saccade. The rows, the figures and the numbers behind them lie beside this page.</footer>
</body>
</html>
"""


def _html(block: Block) -> str:
    esc = html.escape
    match block:
        case Section(title):
            return f'<h2 id="{_slug(title)}">{esc(title)}</h2>\n'
        case Text(cell):
            return f"<p>{_html_cell(cell)}</p>\n"
        case Items(cells):
            return "<ul>" + "".join(f"<li>{_html_cell(c)}</li>" for c in cells) + "</ul>\n"
        case Terms(pairs):
            body = "".join(f"<dt>{esc(t)}</dt><dd>{_html_cell(c)}</dd>" for t, c in pairs)
            return f"<dl>{body}</dl>\n"
        case Command(lines):
            return f'<pre tabindex="0"><code>{esc(chr(10).join(lines))}</code></pre>\n'
        case Grid(caption, head, rows, _, role):
            top = "".join(f'<th scope="col">{esc(h)}</th>' for h in head)
            body = "\n".join("<tr>" + f'<th scope="row">{_html_cell(r[0])}</th>'
                             + "".join(f"<td>{_html_cell(c)}</td>" for c in r[1:]) + "</tr>" for r in rows)
            return (f'<div class="scroll {role}" role="region" tabindex="0" aria-label="{esc(caption)}">'
                    f"<table><caption>{esc(caption)}</caption>\n<thead><tr>{top}</tr></thead>\n"
                    f"<tbody>{body}</tbody></table></div>\n")
        case Fold(id, name, words, says, inner):
            return (f'<details id="{id}"><summary><b>{esc(name)}</b> <span class="words">{esc(words)}</span> '
                    f"{_html_inline(Badge(says))}</summary>\n"
                    f"<div>{''.join(map(_html, inner))}</div></details>\n")
        case Counts(verdicts):
            found = [(KINDS[k], n) for k, n in _counted(verdicts).items() if n]
            tiles = "".join(f'<li class="{css}"><b>{n} <i aria-hidden="true">{sign}</i></b>{esc(words)}</li>'
                            for (css, sign, words), n in found)
            bar = "".join(f'<i class="{css}" style="flex:{n}"></i>' for (css, _, _), n in found)
            return (f'<p>{esc(summary(verdicts))}</p>\n<ul class="counts">{tiles}</ul>'
                    f'<div class="share" aria-hidden="true">{bar}</div>\n')
        case Shown():
            return _html_figure(block)


def _html_inline(inline: Inline) -> str:
    match inline:
        case Badge(says):
            css, sign, _ = KINDS[_kind(says)]
            return f'<span class="badge {css}"><i aria-hidden="true">{sign}</i>{html.escape(says)}</span>'
        case Ref(text, to):
            return f'<a href="{html.escape(to if _web(to) else "#" + to)}">{html.escape(text)}</a>'
        case Small(text):
            return f"<small>{html.escape(text)}</small>"
        case Mono(text):
            return f"<code>{html.escape(text)}</code>"
    return html.escape(inline)


def _html_cell(cell: Cell) -> str:
    return "".join(map(_html_inline, cell))


def _html_figure(shown: Shown) -> str:
    n = shown.number
    return (f'<h3 id="figure-{n}">Figure {n}. {html.escape(shown.figure.title)}</h3>\n'
            f'<figure aria-labelledby="figure-{n}">'
            f'<div class="picture" tabindex="0">{_inline_svg(shown)}</div>\n'
            f"<figcaption>{html.escape(shown.caption)}</figcaption>\n{_html_numbers(shown)}</figure>\n")


def _html_numbers(shown: Shown) -> str:
    rows = [] if isinstance(shown.data, figures.ImageGrid) else shown.data.rows()
    head = tuple(dict.fromkeys(k for r in rows for k in r))

    def text(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

    numbers = Grid(f"Numbers behind figure {shown.number}.", head,
                   tuple(tuple((text(r.get(k)),) for k in head) for r in rows), ())
    return ('<details class="quiet"><summary>Numbers behind this figure</summary>'
            f"<div>{_html(numbers)}</div></details>\n" if rows else "")


def _inline_svg(shown: Shown) -> str:
    """As part of a page: ids of its own, the page's light or dark colours, words for those who listen."""
    prefix = f"f{shown.number}-"
    svg = shown.svg[shown.svg.index("<svg"):]
    svg = re.sub(r"<title>.*?</title>|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.S)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", svg)
    for ink, name in ((figures.INK, "ink"), (figures.MUTED, "muted"), (figures.GRID, "grid"),
                      (figures.PAPER, "card")):
        svg = re.sub(rf"(fill|stroke): {ink}", rf"\1: var(--{name})", svg)
    width = re.search(r'width="([\d.]+)pt"', svg)
    size = f'style="max-width:{1.28 * float(width[1]):.0f}pt" ' if width else ""
    told = html.escape(figures.describe(shown.data))
    svg = re.sub(r'^(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg)
    return f'<svg {size}role="img" aria-label="{told}"' + svg.removeprefix("<svg")


# -- Markdown


def _markdown(study: Study, scale: str, blocks: Sequence[Block], loud: str) -> str:
    shout = [f"> **{_md(loud)}**"] if loud else []
    top = [f"# {_md(study.question)}",
           f"saccade report on `{study.name}`, {_md(scale)} scale. {_md_cell(_citation(study))}"]
    return "\n\n".join([*shout, *top, *map(_md_block, blocks)]) + "\n"


def _md(text: str) -> str:
    safe = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", " ".join(text.split()))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _md_cell(cell: Cell) -> str:
    def one(inline: Inline) -> str:
        match inline:
            case Badge(says):
                return f"{KINDS[_kind(says)][1]} **{_md(says)}**"
            case Ref(text, to):
                return f"[{_md(text)}]({to if _web(to) else '#' + to})"
            case Small(text):
                return f"<br><sub>{_md(text)}</sub>"
            case Mono(text):
                return f"<code>{_md(text)}</code>"
        return (" " * inline.startswith(" ")) + _md(inline) + (" " * inline.endswith(" "))
    return "".join(map(one, cell))


def _md_block(block: Block) -> str:
    match block:
        case Section(title):
            return f"## {_md(title)}"
        case Text(cell):
            return _md_cell(cell)
        case Items(cells):
            return "\n".join(f"- {_md_cell(c)}" for c in cells)
        case Terms(pairs):
            return "\n".join(f"- **{_md(t)}:** {_md_cell(c)}" for t, c in pairs)
        case Command(lines):
            return "```sh\n" + "\n".join(lines) + "\n```"
        case Grid(caption, head, rows, _, _):
            grid = [[_md(h) for h in head], ["---"] * len(head), *([_md_cell(c) for c in r] for r in rows)]
            return f"{_md(caption)}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in grid)
        case Fold(id, name, words, says, inner):
            start = f"<b>{html.escape(name)}</b> {html.escape(words)} <i>({html.escape(says)})</i>"
            start = start.replace("](", "&#93;(")  # a backslash would show inside HTML
            return "\n\n".join([f'<a id="{id}"></a>\n<details><summary>{start}</summary>',
                                *map(_md_block, inner), "</details>"])
        case Counts(verdicts):
            return f"**{_md(summary(verdicts))}**"
        case Shown():
            title = f"Figure {block.number}. {block.figure.title}"
            return (f"### {_md(title)}\n\n![{_md(figures.describe(block.data))}]({block.file}.svg)\n\n"
                    f"{_md(block.caption)} [Numbers]({block.file}.csv)")


# -- LaTeX

TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_\allowbreak{}",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", '"': r"\textquotedbl{}", "–": r"\textendash{}", "—": r"\textemdash{}",
    "−": "$-$", "×": r"$\times$", "±": r"$\pm$", "≤": r"$\le$", "≥": r"$\ge$", "≈": r"$\approx$",
    "≠": r"$\ne$", "→": r"$\to$", "°": r"\textdegree{}", "…": r"\ldots{}", "·": r"$\cdot$", "²": r"$^2$",
    "‘": "`", "’": "'", "“": "``", "”": "''", "\u00a0": "~", "\n": " ",
}
TEX_TOP = r"""\documentclass[11pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{lmodern,textcomp,array,booktabs,longtable,graphicx,xcolor}
\usepackage[margin=2.2cm]{geometry}
\usepackage[hidelinks]{hyperref}
\definecolor{reproduced}{HTML}{0A6B4B}
\definecolor{contradicted}{HTML}{A63C00}
\definecolor{undecided}{HTML}{5F5200}
\definecolor{few}{HTML}{4D5661}
\definecolor{needs}{HTML}{4D5661}
\definecolor{other}{HTML}{4D5661}
\setlength{\parindent}{0pt}\setlength{\parskip}{0.5em}
\begin{document}
"""


def _latex(study: Study, scale: str, blocks: Sequence[Block], loud: str) -> str:
    shout = f"\\fbox{{\\parbox{{0.96\\linewidth}}{{\\bfseries {_tex(loud)}}}}}\n\n" if loud else ""
    top = (f"{{\\LARGE\\bfseries\\raggedright {_tex(study.question)}\\par}}\n\n"
           f"saccade report on \\texttt{{{_tex(study.name)}}}, {_tex(scale)} scale. "
           f"{_tex_cell(_citation(study))}\n\n")
    comment = f"% {loud}\n" if loud else ""
    return comment + TEX_TOP + shout + top + "\n".join(map(_tex_block, blocks)) + "\n\\end{document}\n"


def _tex(text: str) -> str:
    """Plain text. A character that the standard fonts lack is named rather than lost."""
    def one(c: str) -> str:
        known = c in TEX or ord(c) < 0x180
        return TEX.get(c, c) if known else f"[{unicodedata.name(c, f'U+{ord(c):04X}').lower()}]"
    # -- would become a dash, in commands too.
    return re.sub("-(?=-)", "-{}", "".join(map(one, unicodedata.normalize("NFC", text))))


def _tex_cell(cell: Cell) -> str:
    def one(inline: Inline) -> str:
        match inline:
            case Badge(says):
                return f"\\textcolor{{{KINDS[_kind(says)][0]}}}{{\\textbf{{{_tex(says)}}}}}"
            case Ref(text, to):
                kind = f"\\href{{{_tex_url(to)}}}" if _web(to) else f"\\hyperlink{{{to}}}"
                return f"{kind}{{{_tex(text)}}}"
            case Small(text):
                return f" \\newline {{\\footnotesize {_tex(text)}}}"
            case Mono(text):
                return f"\\texttt{{{_tex(text)}}}"
        return _tex(inline)
    return "".join(map(one, cell))


def _tex_url(address: str) -> str:
    return re.sub(r"([%#&])", r"\\\1", re.sub(r"[\s\\{}^~]", "", address))


def _tex_block(block: Block) -> str:
    match block:
        case Section(title):
            return f"\\section*{{{_tex(title)}}}"
        case Text(cell):
            return _tex_cell(cell) + "\n"
        case Items(cells):
            return _tex_list("itemize", (f"\\item {{}}{_tex_cell(c)}" for c in cells))
        case Terms(pairs):
            return _tex_list("description", (f"\\item[{{{_tex(t)}}}] {_tex_cell(c)}" for t, c in pairs))
        case Command(lines):
            return _tex_list("quote", (f"\\texttt{{{_tex(line)}}}\\par" for line in lines))
        case Grid(caption, head, rows, weights, _):
            left = r">{\raggedright\arraybackslash}"
            columns = "".join(f"{left}p{{\\dimexpr {w:.3f}\\linewidth-2\\tabcolsep}}" for w in weights)
            top = " & ".join(f"\\textbf{{{_tex(h)}}}" for h in head) + r" \\"
            # {} first: a row that begins with [ or * would be read as an argument of the \\ before it.
            body = ["{}" + " & ".join(map(_tex_cell, r)) + r" \\" for r in rows]
            return "\n".join([_tex(caption), "", f"\\begin{{longtable}}{{{columns}}}", r"\toprule", top,
                              r"\midrule", r"\endhead", *body, r"\bottomrule", r"\end{longtable}"])
        case Fold(id, name, words, says, inner):
            title = f"\\subsection*{{\\hypertarget{{{id}}}{{{_tex(name)}}}: {_tex(words)} ({_tex(says)})}}"
            return "\n".join([title, *map(_tex_block, inner)])
        case Counts(verdicts):
            return f"\\textbf{{{_tex(summary(verdicts))}}}\n"
        case Shown():
            size = r"width=0.95\linewidth,height=0.8\textheight,keepaspectratio"
            caption = f"\\textbf{{Figure {block.number}.}} {_tex(block.figure.title)}. {_tex(block.caption)}"
            return _tex_list("center", (f"\\includegraphics[{size}]{{{block.file}.pdf}}", "", caption))


def _tex_list(kind: str, lines: Iterable[str]) -> str:
    return "\n".join([f"\\begin{{{kind}}}", *lines, f"\\end{{{kind}}}"])
