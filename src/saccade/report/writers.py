"""How a report looks: blocks -> one HTML page, Markdown, LaTeX.

`report` says what a document contains; the writers here only turn its blocks into text, each with its own
escapes. They share one file so that a new kind of block is not forgotten in one of them.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from importlib import resources
from typing import NamedTuple
from urllib.parse import quote

from saccade.errors import visible
from saccade.report import figures
from saccade.spec import Says


class Look(NamedTuple):
    name: str  # a class on the page, a colour in print
    sign: str
    counted: str  # as in "2 reproduced"
    one: str = ""  # as in "1 that holds", where that differs

    def words(self, n: int) -> str:
        return (n == 1 and self.one) or self.counted


LOOKS = {
    Says.REPRODUCED: Look("reproduced", "✓", "reproduced"),
    Says.HOLDS: Look("reproduced", "✓", "that hold", "that holds"),
    Says.CONTRADICTED: Look("contradicted", "✗", "contradicted"),
    Says.DOES_NOT_HOLD: Look("contradicted", "✗", "that do not hold", "that does not hold"),
    Says.EQUIVALENT: Look("equivalent", "=", "equivalent"),
    Says.UNDECIDED: Look("undecided", "?", "undecided"),
}


def look(label: str) -> Look:
    """By the words that a verdict's label begins with."""
    return next(look for says, look in LOOKS.items() if label.startswith(says))


class Badge(NamedTuple):
    says: str


class Ref(NamedTuple):
    text: str
    to: str  # "#" and an id of this document, or a web address


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
    role: str = ""  # a class on the page


class Fold(NamedTuple):
    id: str
    name: str
    words: str
    says: str
    blocks: tuple[Block, ...]


class Counts(NamedTuple):
    sentence: str
    counts: tuple[tuple[Look, int], ...]


class Command(NamedTuple):
    lines: tuple[str, ...]


class Shown(NamedTuple):
    number: int
    heading: str
    caption: str
    description: str  # for those who cannot see it
    file: str  # beside the page, without suffix
    svg: str
    numbers: Grid | None


Block = Section | Text | Items | Terms | Grid | Fold | Counts | Command | Shown


class Document(NamedTuple):
    question: str
    study: str
    scale: str
    citation: Cell
    loud: str  # a warning before everything else
    blocks: tuple[Block, ...]
    kind: str = ""  # what it is, where it is no report on a study


def slug(text: str, gap: str = "-") -> str:
    return re.sub(r"[^a-z0-9]+", gap, text.lower()).strip(gap) or "x"


# The page can load nothing and run nothing, whatever a statement or caption contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def _esc(text: str) -> str:
    """Text in HTML: its characters, whatever they are."""
    return html.escape(visible(text))


def to_html(document: Document) -> str:
    esc = _esc
    question, study, scale, citation, loud, blocks, kind = document
    style = resources.files("saccade.report").joinpath("style.css").read_text("utf-8")
    titles = [b.title for b in blocks if isinstance(b, Section)]
    links = "".join(f'<li><a href="#{slug(t)}">{esc(t)}</a></li>' for t in titles)
    first = titles[0] if titles else ""
    warning = f'<p class="loud" role="note">{esc(loud)}</p>\n' if loud else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{"Drawn data: " if loud else ""}{esc(question)}</title>
<style>
{style}</style>
</head>
<body>
{warning}<a class="skip" href="#{slug(first)}">Skip to the {esc(first.lower())}</a>
<header>
<p class="over"><b>saccade</b> {esc(kind or f"report on {study}, {scale} scale")}</p>
<h1>{esc(question)}</h1>
<p>{_html_cell(citation)}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{"".join(map(_html, blocks))}</main>
<footer>Written by saccade. The rows, the figures and the numbers behind them lie beside this page.</footer>
</body>
</html>
"""


def _html(block: Block) -> str:
    esc = _esc
    match block:
        case Section(title):
            return f'<h2 id="{slug(title)}">{esc(title)}</h2>\n'
        case Text(cell):
            return f"<p>{_html_cell(cell)}</p>\n"
        case Items(cells):
            return "<ul>" + "".join(f"<li>{_html_cell(c)}</li>" for c in cells) + "</ul>\n"
        case Terms(pairs):
            return "<dl>" + "".join(f"<dt>{esc(t)}</dt><dd>{_html_cell(c)}</dd>" for t, c in pairs) + "</dl>\n"
        case Command(lines):
            return f'<pre tabindex="0"><code>{esc(chr(10).join(lines))}</code></pre>\n'
        case Grid(caption, head, rows, _, role):
            top = "".join(f'<th scope="col">{esc(h)}</th>' for h in head)
            # On a narrow page the rows of a table with a role are cards, whose cells name their column.
            names = [f' data-column="{esc(h)}"' if role else "" for h in head[1:]]
            body = "\n".join(
                f'<tr><th scope="row">{_html_cell(first)}</th>'
                + "".join(f"<td{name}>{_html_cell(c)}</td>" for name, c in zip(names, rest, strict=True))
                + "</tr>"
                for first, *rest in rows
            )
            return (
                f'<div class="scroll {role}" role="region" tabindex="0" aria-label="{esc(caption)}">'
                f"<table><caption>{esc(caption)}</caption>\n<thead><tr>{top}</tr></thead>\n"
                f"<tbody>{body}</tbody></table></div>\n"
            )
        case Fold(id, name, words, says, inner):
            return (
                f'<details id="{id}"><summary><b>{esc(name)}</b> <span class="words">{esc(words)}</span> '
                f"{_html_cell((Badge(says),))}</summary>\n"
                f"<div>{''.join(map(_html, inner))}</div></details>\n"
            )
        case Counts(sentence, counts):
            tiles = "".join(
                f'<li class="{kind.name}"><b>{n} <i aria-hidden="true">{kind.sign}</i></b>{esc(kind.words(n))}</li>'
                for kind, n in counts
            )
            bar = "".join(f'<i class="{kind.name}" style="flex:{n}"></i>' for kind, n in counts)
            return (
                f'<p>{esc(sentence)}</p>\n<ul class="counts">{tiles}</ul>'
                f'<div class="share" aria-hidden="true">{bar}</div>\n'
            )
        case Shown():
            id = f"figure-{block.number}"
            more = (
                '<details class="quiet"><summary>Numbers behind this figure</summary>'
                f"<div>{_html(block.numbers)}</div></details>\n"
                if block.numbers
                else ""
            )
            return (
                f'<h3 id="{id}">{esc(block.heading)}</h3>\n<figure aria-labelledby="{id}">'
                f'<div class="picture" tabindex="0">{_inline_svg(block)}</div>\n'
                f"<figcaption>{esc(block.caption)}</figcaption>\n{more}</figure>\n"
            )


def _html_cell(cell: Cell) -> str:
    def one(inline: Inline) -> str:
        match inline:
            case Badge(says):
                shown = look(says)
                return f'<span class="badge {shown.name}"><i aria-hidden="true">{shown.sign}</i>{_esc(says)}</span>'
            case Ref(text, to):
                return f'<a href="{_esc(to)}">{_esc(text)}</a>'
            case Small(text):
                return f"<small>{_esc(text)}</small>"
            case Mono(text):
                return f"<code>{_esc(text)}</code>"
        return _esc(inline)

    return "".join(map(one, cell))


def _inline_svg(shown: Shown) -> str:
    """As part of a page: ids of its own, the page's light or dark colours, words for those who listen."""
    svg = shown.svg[shown.svg.index("<svg") :]
    svg = re.sub(r"<title>.*?</title>|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.S)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>f{shown.number}-", svg)
    inks = {"ink": figures.INK, "muted": figures.MUTED, "grid": figures.GRID, "card": figures.PAPER}
    for name, ink in inks.items():
        svg = re.sub(rf"(fill|stroke): {ink}", rf"\1: var(--{name})", svg)
    width = re.search(r'width="([\d.]+)pt"', svg)
    size = f'style="max-width:{1.28 * float(width[1]):.0f}pt" ' if width else ""
    svg = re.sub(r'^(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg)
    return f'<svg {size}role="img" aria-label="{_esc(shown.description)}"' + svg.removeprefix("<svg")


def to_markdown(document: Document) -> str:
    warning = [f"> **{_md(document.loud)}**"] if document.loud else []
    what = _md(document.kind) if document.kind else f"report on {_md_code(document.study)}, {_md(document.scale)} scale"
    about = f"saccade {what}. {_md_cell(document.citation)}"
    return "\n\n".join([*warning, f"# {_md(document.question)}", about, *map(_md_block, document.blocks)]) + "\n"


def _md_code(text: str) -> str:
    return f"`{visible(' '.join(text.split())).replace('`', '')}`"


def _md(text: str) -> str:
    escaped = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", visible(" ".join(text.split())))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _md_target(address: str) -> str:
    """An address that cannot end its link: brackets, spaces and the like as in a URL."""
    return re.sub(r"[\s()<>\[\]|\\`\"]", lambda match: quote(match[0], safe=""), address)


def _md_cell(cell: Cell) -> str:
    def one(inline: Inline) -> str:
        match inline:
            case Badge(says):
                return f"{look(says).sign} **{_md(says)}**"
            case Ref(text, to):
                return f"[{_md(text)}]({_md_target(to)})"
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
            text = visible("\n".join(lines))
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))  # nothing in it can end it
            return f"{fence}sh\n{text}\n{fence}"
        case Grid(caption, head, rows, _, _):
            grid = [[_md(h) for h in head], ["---"] * len(head), *([_md_cell(c) for c in r] for r in rows)]
            return f"{_md(caption)}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in grid)
        case Fold(id, name, words, says, inner):
            title = f"<b>{_esc(name)}</b> {_esc(words)} <i>({_esc(says)})</i>"
            # A backslash would show inside HTML, and an empty line would end it.
            title = " ".join(title.replace("](", "&#93;(").split())
            start = f'<a id="{id}"></a>\n<details><summary>{title}</summary>'
            return "\n\n".join([start, *map(_md_block, inner), "</details>"])
        case Counts(sentence, _):
            return f"**{_md(sentence)}**"
        case Shown():
            return (
                f"### {_md(block.heading)}\n\n![{_md(block.description)}]({block.file}.svg)\n\n"
                f"{_md(block.caption)} [Numbers]({block.file}.csv)"
            )


TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_\allowbreak{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': r"\textquotedbl{}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≈": r"$\approx$",
    "≠": r"$\ne$",
    "→": r"$\to$",
    "°": r"\textdegree{}",
    "…": r"\ldots{}",
    "·": r"$\cdot$",
    "²": r"$^2$",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "\n": " ",
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
\definecolor{equivalent}{HTML}{1F5FA8}
\setlength{\parindent}{0pt}\setlength{\parskip}{0.5em}
\begin{document}
"""


def to_latex(document: Document) -> str:
    question, study, scale, citation, loud, blocks, kind = document
    what = _tex(kind) if kind else f"report on \\texttt{{{_tex(study)}}}, {_tex(scale)} scale"
    comment = f"% {visible(' '.join(loud.split()))}\n" if loud else ""
    warning = f"\\fbox{{\\parbox{{0.96\\linewidth}}{{\\bfseries {_tex(loud)}}}}}\n\n" if loud else ""
    top = f"{{\\LARGE\\bfseries\\raggedright {_tex(question)}\\par}}\n\nsaccade {what}. {_tex_cell(citation)}\n\n"
    return comment + TEX_TOP + warning + top + "\n".join(map(_tex_block, blocks)) + "\n\\end{document}\n"


def _tex(text: str) -> str:
    """Plain text. A character that the standard fonts lack is named rather than lost."""

    def one(c: str) -> str:
        known = c in TEX or ord(c) < 0x180
        return TEX.get(c, c) if known else f"[{unicodedata.name(c, f'U+{ord(c):04X}').lower()}]"

    # -- would become a dash, in commands too.
    return re.sub("-(?=-)", "-{}", "".join(map(one, unicodedata.normalize("NFC", visible(text)))))


def _tex_cell(cell: Cell) -> str:
    def one(inline: Inline) -> str:
        match inline:
            case Badge(says):
                return f"\\textcolor{{{look(says).name}}}{{\\textbf{{{_tex(says)}}}}}"
            case Ref(text, to):
                kind = f"\\hyperlink{{{to[1:]}}}" if to.startswith("#") else f"\\href{{{_tex_url(to)}}}"
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
            return "\n".join(
                [
                    _tex(caption),
                    "",
                    f"\\begin{{longtable}}{{{columns}}}",
                    r"\toprule",
                    top,
                    r"\midrule",
                    r"\endhead",
                    *body,
                    r"\bottomrule",
                    r"\end{longtable}",
                ]
            )
        case Fold(id, name, words, says, inner):
            title = f"\\subsection*{{\\hypertarget{{{id}}}{{{_tex(name)}}}: {_tex(words)} ({_tex(says)})}}"
            return "\n".join([title, *map(_tex_block, inner)])
        case Counts(sentence, _):
            return f"\\textbf{{{_tex(sentence)}}}\n"
        case Shown():
            size = r"width=0.95\linewidth,height=0.8\textheight,keepaspectratio"
            under = f"\\textbf{{{_tex(block.heading)}.}} {_tex(block.caption)}"
            return _tex_list("center", (f"\\includegraphics[{size}]{{{block.file}.pdf}}", "", under))


def _tex_list(kind: str, lines: Iterable[str]) -> str:
    return "\n".join([f"\\begin{{{kind}}}", *lines, f"\\end{{{kind}}}"])
