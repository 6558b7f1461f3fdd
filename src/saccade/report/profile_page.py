"""A profile to be read: on a terminal, as Markdown, as one HTML page, in a notebook. Nothing here needs torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from saccade.report import writers
from saccade.report.profile import Measured, Profile
from saccade.report.writers import Block, Cell, Document, Fold, Grid, Items, Mono, Section, Small, Terms, Text
from saccade.spec import Estimate

READING = (
    "Intervals are over images: they say how well this one model is known, and nothing about another training of it. "
    "Answers kept is the share of images whose answer stays as it was; a model that always says the same keeps all."
)
FOLDED = ("image_transforms", "patch_shuffle", "occlusion", "corruptions", "small_object_accuracy", "equivariance",
          "attention_span", "background_reliance", "calibration", "top_k_matching")  # fmt: skip
MOST = 120  # rows of a folded table


def lines(profile: Profile) -> Iterator[str]:
    """For a terminal: who, how it was read, a table, what was left out."""
    yield f"{profile.name}   {_origin(profile)}"
    yield f"{_images_asked(profile)}; read {profile.reading}"
    yield from (f"note: {note}" for note in profile.notes)
    yield ""
    table = grid(profile)
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for key, why in profile.skipped.items():
        yield f"not asked: {key}: {why}"


def grid(profile: Profile) -> list[tuple[str, ...]]:
    """Headings, then a row per question, as text."""
    references = _reference_names(profile)
    head = ("", "measured", "right then", *references, "what it means")
    return [
        head,
        *(
            (
                one.question,
                number(one.estimate, one.unit),
                number(one.accuracy, "percent") if one.accuracy else "",
                *(_reference_cell(one, name) for name in references),
                one.says,
            )
            for one in profile.rows
        ),
    ]


def number(e: Estimate, unit: str) -> str:
    """A value with its interval where it has one."""
    k, digits, after = {
        "percent": (100, 1, " %"),
        "points": (100, 1, " points"),
        "of 4": (1, 2, " of 4"),
        "share": (1, 3, ""),
        "sides": (1, 3, ""),
        "count": (1, 0, ""),
        "milliseconds": (1, 2, " ms"),
    }[unit]
    sign = "+" if unit == "points" else ""
    if unit == "count":
        return f"{e.value:,.0f}"
    value = f"{k * e.value:{sign}.{digits}f}{after}"
    if not (math.isfinite(e.low) and math.isfinite(e.high)) or e.low == e.high:
        return value
    return f"{value} [{k * e.low:.{digits}f}, {k * e.high:.{digits}f}]"


def markdown(profile: Profile) -> str:
    return writers.to_markdown(document(profile))


def html(profile: Profile) -> str:
    return writers.to_html(document(profile))


def fragment(profile: Profile) -> str:
    """A table for a notebook."""
    from html import escape

    head, *rows = grid(profile)
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    not_asked = "".join(f"<li>{escape(k)}: {escape(w)}</li>" for k, w in profile.skipped.items())
    return (
        f"<p><b>{escape(profile.name)}</b> {escape(_origin(profile))}<br>{escape(_images_asked(profile))}; read "
        f"{escape(profile.reading)}</p><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
        + (f"<p>Not asked:</p><ul>{not_asked}</ul>" if not_asked else "")
    )


def document(profile: Profile) -> Document:
    title = f"What {profile.name} looks at, and what it is blind to"
    return Document(title, profile.name, "", (_origin(profile),), "", tuple(_blocks(profile)), "profile of one model")


def _blocks(profile: Profile) -> Iterator[Block]:
    yield Section("Profile")
    yield Text((f"{_images_asked(profile)}; read {profile.reading}. ", READING))
    if profile.notes:
        yield Items(tuple((note,) for note in profile.notes))
    references = _reference_names(profile)
    yield Grid(
        "One row per question: value with 95 % interval over images, and what it means.",
        ("question", "measured", "right then", *references, "what it means"),
        tuple(_cells(one, references) for one in profile.rows),
        (0.3, 0.2, 0.15, *[0.35 / (len(references) + 1)] * (len(references) + 1)),
        "profile",
    )
    if references:
        about = {r.name: r.about for one in profile.rows for r in one.references}
        yield Items(tuple((Mono(name), f": {about[name]}") for name in references))
    if profile.skipped:
        yield Section("Not asked")
        yield Terms(tuple((key, (why,)) for key, why in profile.skipped.items()))
    yield Section("All conditions")
    for probe in FOLDED:
        rows = [d for d in profile.details if d["probe"] == probe]
        if rows:
            yield _fold(probe, rows)
    yield Section("The model and the data")
    yield Terms(tuple(_facts(profile)))


def _cells(one: Measured, references: Sequence[str]) -> tuple[Cell, ...]:
    return (
        (one.question, Small(one.key)),
        (_unbroken(number(one.estimate, one.unit)), Small(f"n={one.estimate.n}" if one.probe else "")),
        (_unbroken(number(one.accuracy, "percent")),) if one.accuracy else ("",),
        *((_reference_cell(one, name),) for name in references),
        (one.says,),
    )


def _unbroken(text: str) -> str:
    """Both ends of an interval on one line of a narrow column."""
    return text.replace(", ", ",\N{NO-BREAK SPACE}")


def _fold(probe: str, rows: Sequence[Mapping[str, Any]]) -> Fold:
    columns = [k for k in rows[0] if k not in ("metric", "value", "n", "probe", "seed", "model", "checksum")]
    keys = list(dict.fromkeys([*columns, *(k for r in rows for k in r if k in columns)]))
    more = [
        k
        for r in rows
        for k in r
        if k not in keys and k not in ("metric", "value", "n", "probe", "seed", "model", "checksum")
    ]
    keys += list(dict.fromkeys(more))
    listed_rows = rows[:MOST]
    table = Grid(
        f"Rows of the probe {probe}" + (f", the first {MOST} of {len(rows)}" if len(rows) > MOST else ""),
        ("metric", *keys, "value", "n"),
        tuple(
            ((str(r["metric"]),), *((_text(r.get(k, "")),) for k in keys), (f"{r['value']:.4g}",), (str(r["n"]),))
            for r in listed_rows
        ),
        tuple([1 / (len(keys) + 3)] * (len(keys) + 3)),
    )
    return Fold(f"probe-{writers.slug(probe)}", probe, "", f"{len(rows)} rows", (table,))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return f"{len(value)} entries"
    return str(value)


def _facts(profile: Profile) -> Iterator[tuple[str, Cell]]:
    facts, how = profile.facts, profile.facts["how"]
    yield "source", (str(facts["origin"]),)
    yield "input", (f"{facts['channels']} x {facts['size'][0]} x {facts['size'][1]}, from {how.get('size', '')}",)
    yield (
        "normalisation",
        (f"mean {_numbers_text(facts['mean'])}, std {_numbers_text(facts['std'])}: {how.get('normalisation', '')}",),
    )
    yield "output", (f"{facts['output']} of {facts['classes']} classes, {facts['precision']}",)
    yield "answers read", (profile.reading,)
    data = profile.data
    args = ", ".join(f"{k}={v}" for k, v in data["args"].items())
    yield "data", (f"{data['name']} ({args}), split {data['split']}, {data['images']} images",)
    if data["checksum"]:
        yield "checksum of the data", (Mono(str(data["checksum"])),)
    yield "time", (f"{profile.seconds:.0f} s",)


def _numbers_text(values: Sequence[float]) -> str:
    return " ".join(f"{v:.4g}" for v in values)


def _origin(profile: Profile) -> str:
    return f"{int(profile.facts['parameters']):,} parameters, {profile.facts['origin']}"


def _images_asked(profile: Profile) -> str:
    data = profile.data
    return f"{profile.n} images of {data['set'] or data['name']}, {data['split']}"


def _reference_names(profile: Profile) -> list[str]:
    """Those that were asked more than one of these questions, where there are any: a column for one number is too wide.
    What every model reaches stands in its card."""
    counts = Counter(r.name for one in profile.rows for r in one.references)
    several = [name for name, count in counts.items() if count > 1]
    return several or list(counts)


def _reference_cell(one: Measured, name: str) -> str:
    matches = [r for r in one.references if r.name == name]
    return number(Estimate(matches[0].value, math.nan, math.nan, 0), one.unit) if matches else ""
