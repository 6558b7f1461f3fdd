"""Study, rows and verdicts -> a report as Markdown, one HTML page, LaTeX and CSV.

`content` says once what is in it; the writers in `pages` turn that into text.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import lzma
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade import stats
from saccade.cli.terminal import duration
from saccade.lab.store import write_atomic
from saccade.lab.table import Table, cell, join
from saccade.report import figures, joined, writers
from saccade.report.budget import against_budget
from saccade.report.joined import Beside
from saccade.report.writers import (
    Badge,
    Block,
    Cell,
    Command,
    Counts,
    Document,
    Fold,
    Grid,
    Inline,
    Items,
    Mono,
    Ref,
    Section,
    Shown,
    Small,
    Terms,
    Text,
)
from saccade.requirements import MIN_PAIRS
from saccade.spec import Evidence, SaccadeError, Settings, Verdict, suggest
from saccade.stats import ALPHA
from saccade.study import SETTLED, Choice, Figure, Study

WRITERS = {"md": writers.to_markdown, "html": writers.to_html, "tex": writers.to_latex}
FORMATS = ("md", "html", "csv", "tex")
ACCEPTED = (*FORMATS, "csv.xz")  # as csv, with the rows compressed: for what is published
AT_ONCE = ("md", "html", "csv")  # after a run; the PDF figures of tex take as long as all of these together
RUNS = ("runs", "done", "diverged", "failed")
PAPER_WIDTH, REASON_WIDTH = 40, 44  # characters on a terminal
LOUD = (
    "DRAWN DATA, NOT REAL DATA: the images behind every number here were made by a program, so nothing "
    "below speaks about the paper's own data sets."
)
READING = "A verdict says whether the paper's finding (“paper found”), not its hypothesis, came out again."
METHOD = (
    "The unit of replication is a trained model, that is a seed; n counts them. Images are not replicates.",
    "Intervals are 95 % Student t intervals over seeds unless a claim's detail names another kind. One seed "
    "has none. Numbers marked exact were computed, not sampled.",
    "p is two-sided and Holm-corrected over all claims of this study that could be tested. Below "
    f"{ALPHA:g} the paper's finding is reproduced or, when the effect runs the other way, contradicted; otherwise "
    "it is undecided, which does not say that there is no difference.",
    f"No verdict is given below {MIN_PAIRS} seeds. Every planned claim is listed, also those that failed.",
    "Runs that diverged or failed are not replaced; their number stands beside every mean that lacks them.",
    "In the figures points are single seeds, bars or bands are the intervals, and a hollow diamond is the "
    "paper's value.",
)


def write(
    study: Study,
    scale: str,
    chosen: Settings,
    table: Table,
    verdicts: Sequence[Verdict],
    folder: Path,
    *,
    facts: Mapping[str, Any],
    formats: Sequence[str] = FORMATS,
    beside: Sequence[Beside] = (),
) -> dict[str, Path]:
    """Write the report and return what was written, by format or by path inside the folder.

    `facts`, all optional: procedural (bool), data (mapping of data set to source), runs, done, diverged,
    failed (counts), anything that ends in `seconds`, environment (mapping) or environments (several), command
    (a line or several), remarks (sentences); others are listed as they are. `table` has the planned rows, on which
    the verdicts rest; those of joined arms are in `beside`.
    """
    for name in formats:
        if name not in ACCEPTED:
            raise SaccadeError(suggest("report format", name, ACCEPTED))
    from saccade.report import draw  # here: matplotlib takes a second to load, and a terminal's verdicts need none

    drawings = list(figures_of(study, table, verdicts, beside))
    needs_svg = "md" in formats or "html" in formats
    shown = [
        _shown(i, f, data, draw.render(data, "svg").decode() if needs_svg else "")
        for i, (f, data) in enumerate(drawings, 1)
    ]
    document = _document(study, scale, facts, content(study, scale, chosen, table, verdicts, shown, facts, beside))
    # Everything is made before anything is written: a figure that fails leaves the old report whole.
    files = {f: (f"report.{f}", WRITERS[f](document).encode()) for f in formats if f in WRITERS}
    tables = [name for name in formats if name.startswith("csv")]
    if tables:
        # Accuracy on the way is most of the rows and little of the news: a lean file of its own, joined by `run`.
        every = join([table, *(one.table for one in beside)])
        rows = to_csv([r for r in every if r["metric"] != "online"]).encode()
        files |= {f: (f"rows.{f}", rows if f == "csv" else _packed(Path(folder) / f"rows.{f}", rows)) for f in tables}
        files["training.csv"] = (
            "training.csv",
            to_csv([{k: r[k] for k in ("run", "images", "value", "n")} for r in every.at(metric="online")]).encode(),
        )
        files["gaps.csv"] = ("gaps.csv", to_csv([*every.gaps, *every.faults]).encode())
    files["verdicts.json"] = ("verdicts.json", _json(study, scale, chosen, verdicts, facts).encode())
    for s, (_, data) in zip(shown, drawings, strict=True):
        bodies = {
            ".csv": to_csv(data.rows()).encode(),
            ".svg": s.svg.encode(),
            ".pdf": draw.render(data, "pdf") if "tex" in formats else b"",
        }
        files |= {s.file + end: (s.file + end, body) for end, body in bodies.items() if body or end == ".csv"}
    for name, body in files.values():
        write_atomic(Path(folder) / name, body)
    for extension in ("csv", "csv.xz") if tables else ():
        if extension not in tables:  # rows of an earlier report
            (Path(folder) / f"rows.{extension}").unlink(missing_ok=True)
    _remove_left_out(study, Path(folder) / "figures", {Path(s.file).name for s in shown})
    return {key: Path(folder) / name for key, (name, _) in files.items()}


def _packed(path: Path, text: bytes) -> bytes:
    """Compressed; the file as it is where it has this text already, as releases of a compressor differ in bytes."""
    with contextlib.suppress(OSError, lzma.LZMAError):
        old = path.read_bytes()
        if lzma.decompress(old) == text:
            return old
    return lzma.compress(text)


def _remove_left_out(study: Study, folder: Path, current: Collection[str]) -> None:
    """Files of this study's figures that an earlier report had and this one leaves out; no others."""
    known_stems = {writers.slug(name, "_") for name in ("verdict_against_budget", *(f.name for f in study.figures))}
    for old in folder.glob("*"):
        if old.suffix in (".csv", ".svg", ".pdf") and old.stem in known_stems and old.stem not in current:
            old.unlink()


def figures_of(
    study: Study, table: Table, verdicts: Sequence[Verdict], beside: Sequence[Beside] = ()
) -> Iterator[tuple[Figure, figures.FigureData]]:
    """The figures that have rows; verdict against budget first. One without its rows is left out, not drawn empty."""
    path = against_budget(verdicts)
    if path is not None:
        yield Figure("verdict_against_budget", path.title, "", lambda _: path), path
    for figure in study.figures:
        data = figure_of(figure, table, beside)
        if data is not None:
            yield figure, data


def figure_of(figure: Figure, table: Table, beside: Sequence[Beside] = ()) -> figures.FigureData | None:
    """The figure's data, without lines and panels that have no rows; None where nothing is left."""
    try:
        data = figures.with_rows(joined.drawn(figure, table, beside))
    except stats.TooFewSeeds:
        return None
    return data if data.rows() else None


def terminal(verdicts: Iterable[Verdict]) -> list[tuple[str, ...]]:
    """The headings, then a row for each claim, about 120 characters wide together."""
    rows = []
    for v in verdicts:
        # For want of seeds the remark begins with their number; for other reasons the word is enough on a terminal.
        more = f": {re.split(r'; | [(]', v.remark)[0]}" if v.wants_runs else ""
        says = f"{writers.look(v.says).sign} {_short(v.label + more, REASON_WIDTH)}"
        rows.append((v.claim, _short(v.paper, PAPER_WIDTH) or "–", ours(v.evidence), says))
    return [("claim", "paper found", "ours", "verdict"), *rows]


def summary(verdicts: Sequence[Verdict]) -> str:
    """As in `19 claims in 15 families: 3 reproduced and 16 undecided (9 still moving, 7 not learned).`"""
    if not verdicts:
        return "No claims."
    counts = []
    for look, n in _counted(verdicts):
        reasons = Counter(str(v.reason) for v in verdicts if writers.LOOKS[v.says] == look and not v.decided)
        why = ", ".join(f"{k} {reason}" for reason, k in reasons.most_common())
        counts.append(f"{n} {look.words(n)}" + (f" ({why})" if why else ""))
    counts_text = counts[0] if len(counts) == 1 else f"{', '.join(counts[:-1])} and {counts[-1]}"
    families = len({v.family for v in verdicts})
    families_text = f" in {families} famil{'ies' if families != 1 else 'y'}" if families != len(verdicts) else ""
    return f"{len(verdicts)} claim{'s' if len(verdicts) != 1 else ''}{families_text}: {counts_text}."


def what_it_says(headline: Sequence[str], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The three claims that tell most, those with a verdict first; all of them stand in the table.

    Those of the headline. Where some have no number yet, decided claims take their place, and they come last.
    """
    verdict_by_claim = {v.claim: v for v in verdicts}
    headline_verdicts = [verdict_by_claim[id] for id in headline if id in verdict_by_claim]
    measured, open_ones = [v for v in headline_verdicts if v.evidence], [v for v in headline_verdicts if not v.evidence]
    others = [v for v in verdicts if v.decided and v.evidence and v not in measured]
    selected = [*measured, *others[: max(0, len(headline_verdicts) - len(measured))]]
    return [*sorted(selected, key=lambda v: not v.decided), *open_ones]


def in_words(v: Verdict) -> tuple[str, str]:
    """As in `MHA beats CNN (D-H1): -20.7 [-25.5, -16.0] n=5 percentage points.`, and what was tested."""
    number = ": " + " ".join(filter(None, (ours(v.evidence), unit_of(v.evidence)))) if v.evidence else ""
    return f"{v.statement.rstrip('.')} ({v.claim}){number}.", f"Tested: {v.tested}."


def ours(evidence: Evidence | None) -> str:
    """The number with its interval; of a claim made of parts that of the part which decides."""
    if evidence is None:
        return "–"
    part = stats.deciding(evidence)
    e = part.estimate
    if e.method != "exact" and not (math.isfinite(e.low) and math.isfinite(e.high)):
        return e.text(part.unit).split(" [")[0] + f" n={e.n}, no interval"
    return e.text(part.unit)


def unit_in_words(part: Evidence) -> str:
    """As in `percentage points per doubling of x`."""
    return " ".join(filter(None, ({"points": "percentage points"}.get(part.unit, part.unit), part.per)))


def unit_of(evidence: Evidence) -> str:
    """The unit, and on what the number had to lie where that is not the side of 0: `nats (above 0.693 asked)`."""
    part = stats.deciding(evidence)
    words = [unit_in_words(part)]
    if part.estimate.method != "exact":
        k = 100 if part.unit == "points" else 1
        if part.margin is not None:
            words.append(f"(within ± {k * part.margin:.3g} asked)")
        elif part.null:
            words.append(f"(above {k * part.null:.3g} asked)")
    return " ".join(filter(None, words))


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    names = list(dict.fromkeys(k for r in rows for k in r))
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writerow({name: cell(name) for name in names})
    writer.writerows({k: v if isinstance(v, (list, tuple)) else cell(v) for k, v in r.items()} for r in rows)
    return out.getvalue()


def content(
    study: Study,
    scale: str,
    chosen: Settings,
    table: Table,
    verdicts: Sequence[Verdict],
    shown: Sequence[Shown],
    facts: Mapping[str, Any],
    beside: Sequence[Beside] = (),
) -> Iterator[Block]:
    counts = Counts(summary(verdicts), _counted(verdicts))
    if study.headline:
        yield Section("What this study says")
        yield counts
        entries = [(v.label, *in_words(v)) for v in what_it_says(study.headline, verdicts)]
        yield Items(tuple((Badge(label), f" {sentence} ", Small(tested)) for label, sentence, tested in entries))
    yield Section("Verdicts")
    if not study.headline:
        yield counts
    yield Text((READING,))
    yield Grid(
        "Every planned claim. Ours: estimate with 95 % interval and number of seeds n.",
        ("claim", "paper concluded", "paper found", "ours", "p (Holm)", "verdict"),
        tuple(_summary_row(v) for v in verdicts),
        (0.26, 0.13, 0.17, 0.18, 0.09, 0.17),
        "verdicts",
    )
    first = [s for s in shown if s.file.endswith("verdict_against_budget")]
    yield from first
    if facts.get("remarks"):
        yield Text(("To bear in mind when reading the verdicts:",))
        yield Items(tuple((str(r),) for r in facts["remarks"]))
    yield Section("Claims in detail")
    for v in verdicts:
        yield Fold(_anchor(v.claim), v.claim, v.statement, v.label, tuple(_detail(v)))
    yield Section("Figures")
    yield from (s for s in shown if s not in first)
    for one in beside:
        yield from joined.table_of(one, table)
    yield Section("Differences from the paper")
    if study.differs:
        yield Items(tuple((d.text, *_touches(d.touches)) for d in study.differs))
    else:
        yield Text(("None known.",))
    yield Section("Open choices")
    if study.choices:
        yield Grid(
            "What the paper leaves open, and what was taken here.",
            ("choice", "taken", "alternatives", "about"),
            tuple(_choice_row(c, chosen) for c in study.choices),
            (0.18, 0.2, 0.22, 0.4),
        )
    else:
        yield Text(("The paper leaves nothing open that this study had to choose.",))
    yield Section("How the numbers were made")
    yield Items(tuple((m,) for m in (*METHOD, *required(study))))
    yield Section("Runs and environment")
    yield Terms(tuple((k, (v,)) for k, v in _facts(scale, table, facts)))
    command = facts.get("command", ())
    if command:
        yield Command((command,) if isinstance(command, str) else tuple(command))


def required(study: Study) -> list[str]:
    """What verdicts of this study require, in the words of the requirements themselves."""
    trained = [c for c in study.claims if c.trained]
    if not trained:
        return []
    out = [f"A claim on trained models is decided only if {SETTLED}."]
    kinds: dict[str, list[str]] = {}
    for claim in trained:
        for requirement in claim.requires:
            kinds.setdefault(requirement.asks, []).append(claim.id)
    out += [f"Required: {asks} (for {', '.join(ids)})." for asks, ids in kinds.items()]
    untrained = [c.id for c in study.claims if not c.trained]
    if untrained:
        out.append(f"Counts, identities and times, which rest on no training: {', '.join(untrained)}.")
    return out


def _document(study: Study, scale: str, facts: Mapping[str, Any], blocks: Iterable[Block]) -> Document:
    name, url = (study.paper.citation, study.paper.url) if study.paper else ("", "")
    citation: Inline = Ref(name, url) if url.startswith(("https://", "http://")) else name
    loud = LOUD if facts.get("procedural") else ""
    source: Cell = ("After ", citation) if name else ("A study of one's own.",)
    return Document(study.question, study.name, scale, source, loud, tuple(blocks))


def _shown(number: int, figure: Figure, data: figures.FigureData, svg: str) -> Shown:
    def text(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

    rows = [] if isinstance(data, figures.ImageGrid) else data.rows()
    head = tuple(dict.fromkeys(k for r in rows for k in r))
    numbers = Grid(
        f"Numbers behind figure {number}.", head, tuple(tuple((text(r.get(k)),) for k in head) for r in rows), ()
    )
    parts = (f"In the paper: {figure.paper or 'no counterpart'}.", data.note, figures.reading(data))
    caption = " ".join(filter(None, parts))
    return Shown(
        number,
        f"Figure {number}. {figure.title}",
        caption,
        figures.describe(data),
        f"figures/{writers.slug(figure.name, '_')}",
        svg,
        numbers if rows else None,
    )


def _summary_row(v: Verdict) -> tuple[Cell, ...]:
    measured: Cell = (ours(v.evidence),)
    if v.evidence and (unit := unit_of(v.evidence)):
        measured += (Small(unit),)
    says: Cell = (Badge(v.label), *((Small(v.remark),) if v.remark else ()))
    p = "exact" if v.evidence and v.evidence.estimate.method == "exact" else _p(v.p_adjusted)
    claim: Cell = (_ref(v.claim), " " + v.statement)
    return claim, (v.concluded or "–",), (v.paper or "–",), measured, (p,), says


def _detail(v: Verdict) -> Iterator[Block]:
    e = v.evidence
    pairs: list[tuple[str, Cell]] = [
        ("Paper concluded", (v.concluded or "–",)),
        ("Paper found", (v.paper or "–",)),
        ("Tested", (v.tested,)),
        ("Ours", (ours(e),)),
    ]
    if e:
        holm = f"; {_p(v.p_adjusted)} two-sided after Holm" if v.p_adjusted is not None else ""
        one_sided = f"{_p(e.p)} testing for the relation, {_p(e.p_against)} for its opposite"
        pairs += [("Test", (f"{e.method} (interval: {e.estimate.method})",)), ("p", (one_sided + holm,))]
    pairs += [("Verdict", (Badge(v.label),))] + ([("Remark", (v.remark,))] if v.remark else [])
    if v.family != v.claim:
        pairs.append(("Family", (f"{v.family}: claims of one family rest on one observation",)))
    if v.registered:
        pairs.append(("Registration", (v.registered,)))
    if v.look:
        pairs.append(("Look", (v.look,)))
    yield Terms(tuple(pairs))
    if v.requirements:
        requirement_rows = tuple(
            ((m.asks,), ("–" if not m.applies else "yes" if m.met else "no",), (m.found,)) for m in v.requirements
        )
        yield Grid("What a verdict requires.", ("requirement", "met", "found"), requirement_rows, (0.5, 0.08, 0.42))
    if e and e.parts:
        parts = [((p.note or f"part {i}",), (ours(p),), (_p(p.p),), (p.method,)) for i, p in enumerate(e.parts, 1)]
        yield Grid("What the claim is made of.", ("part", "ours", "p", "test"), tuple(parts), (0.34, 0.28, 0.12, 0.26))
    if v.differs:
        yield Text(("Differences from the paper that may touch this claim:",))
        yield Items(tuple((d,) for d in v.differs))


def _choice_row(choice: Choice, chosen: Settings) -> tuple[Cell, ...]:
    value = chosen.get(choice.name, choice.default)
    mark = "default" if value == choice.default else f"default: {_value(choice.default)}"
    others = [_value(k) for k in choice.known if k != value]
    alternatives = ", ".join(others) or ("–" if choice.known else f"any {type(choice.default).__name__}")
    return (Mono(choice.name),), (Mono(_value(value)), Small(mark)), (alternatives,), (choice.about,)


def _touches(claims: Sequence[str]) -> Cell:
    refs: list[Inline] = [x for c in claims for x in (", ", _ref(c))]
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
        timed = name.endswith("seconds")
        label = name.removesuffix("seconds") + "time" if timed else name
        label = label[:1].upper() + label[1:]
        if timed:
            yield label, duration(value)
        elif name == "environment":
            yield from ((str(k), _value(v)) for k, v in value.items())
        elif name == "environments":
            yield from (
                (f"Environment {i}" if len(value) > 1 else "Environment", _value(v)) for i, v in enumerate(value, 1)
            )
        elif name not in ("procedural", "scale", "data", "command", "remarks", *RUNS):
            yield label, _value(value)


def _json(study: Study, scale: str, chosen: Settings, verdicts: Sequence[Verdict], facts: Mapping[str, Any]) -> str:
    return (
        json.dumps(
            {
                "study": study.name,
                "scale": scale,
                "procedural": bool(facts.get("procedural")),
                "chosen": figures.jsonable(chosen),
                "summary": summary(verdicts),
                "verdicts": figures.jsonable(list(verdicts)),
            },
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


def _counted(verdicts: Iterable[Verdict]) -> tuple[tuple[writers.Look, int], ...]:
    looks = [writers.LOOKS[v.says] for v in verdicts]
    return tuple((look, looks.count(look)) for look in writers.LOOKS.values() if look in looks)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _p(p: float | None) -> str:
    if p is None or not math.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(
            f"{k} ({_value(v)})" if isinstance(v, Mapping) else f"{k}: {_value(v)}"
            for k, v in value.items()
            if v not in ({}, "")
        )
    return ", ".join(map(_value, value)) if isinstance(value, (list, tuple)) else str(value)


def _anchor(claim: str) -> str:
    return f"claim-{writers.slug(claim)}"


def _ref(claim: str) -> Ref:
    return Ref(claim, "#" + _anchor(claim))
