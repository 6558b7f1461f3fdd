"""Writes what README.md and docs/index.md say of results, from results/*/verdicts.json: python docs/make_readme.py

Between `<!-- NAME: made by docs/make_readme.py -->` and `<!-- end of NAME -->`; nothing else in them is touched. A test
fails when a page does not say what the results say.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from saccade import registry, shipped
from saccade.report.document import in_words, ours, summary, unit_of, what_it_says
from saccade.spec import Estimate, Evidence, Reason, Says, Verdict

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *(ROOT / "docs" / f"{name}.md" for name in registry.built_in("study")),
)
SHOWN = ("digits_on_backgrounds", "images_seen", "D-H1")  # study, figure, the claim that it is about
DRAWN = "Accuracy on seen and on unseen backgrounds against training images seen, of the CNN and of attention"
TERMS = (
    "OOD accuracy is that on unseen backgrounds, MHA the attention model, x the number of backgrounds per digit class."
)
LOOK = "docs/explorer/look-wide.webp"
# As counted in one line; whatever else a verdict says is open.
CLOSED = ("reproduced", "contradicted", "equivalent", "holds", "does not hold")

Verdicts = list[dict[str, Any]]


def results() -> dict[str, dict[str, Any]]:
    """What is in results/, by study, in the order of the registry."""
    found = {}
    for name in registry.built_in("study"):
        file = ROOT / "results" / name / "verdicts.json"
        if file.exists():
            found[name] = json.loads(file.read_text("utf-8"))
    return found


def count(verdicts: Verdicts) -> Counter[str]:
    return Counter(v["says"] if v["says"] in CLOSED else "open" for v in verdicts)


def why(verdicts: Verdicts) -> str:
    """Reasons of the open ones, the most frequent first. A claim that waits for its scale says so in `says`."""
    reasons = Counter(v.get("reason") or _older(v["says"]) for v in verdicts if v["says"] not in CLOSED)
    return ", ".join(f"{n} {reason}" for reason, n in reasons.most_common() if reason)


def _older(says: str) -> str:
    return "out of reach at this scale" if says.startswith("needs ") else ""


SEVERAL = {"holds": "hold", "does not hold": "do not hold"}


def listed(counts: Counter[str]) -> str:
    parts = [f"{counts[s]} {s if counts[s] == 1 else SEVERAL.get(s, s)}" for s in CLOSED if counts[s]]
    return ", ".join([*parts, f"{counts['open']} open"])


def scoreboard(prefix: str) -> str:
    known = results()
    if not known:
        return "No results yet: `make results`."
    every = [v for told in known.values() for v in told["verdicts"]]
    scales = Counter(told["scale"] for told in known.values())
    at = " and ".join(f"{n} at {scale}" if len(scales) > 1 else scale for scale, n in scales.items())
    reasons = why(every)
    return f"**{len(every)} claims of {len(known)} published studies ({at} scale): {listed(count(every))}**" + (
        f" ({reasons})." if reasons else "."
    )


def studies(prefix: str) -> str:
    known = results()
    lines = ["| study | question | claims | verdicts |", "|---|---|---|---|"]
    for name, card in registry.built_in("study").items():
        told = known.get(name)
        link = f"[{listed(count(told['verdicts']))}]({prefix}results/{name}/report.md)" if told else "not run yet"
        page = f"{prefix}docs/{name}.md" if prefix == "" else f"{name}.md"
        n = str(len(told["verdicts"])) if told else "–"
        lines.append(f"| [`{name}`]({page}) | {registry.study(name).question or card.about} | {n} | {link} |")
    return "\n".join(lines)


def picture(prefix: str) -> str:
    """One figure with the claim it is about, in the words and numbers of the verdict."""
    study, figure, claim = SHOWN
    told, file = results().get(study), ROOT / "results" / study / "figures" / f"{figure}.svg"
    if told is None or not file.exists():
        return ""
    v = next((v for v in told["verdicts"] if v["claim"] == claim), None)
    if v is None:
        return ""
    label = ", ".join(w for w in (v["says"], "" if v["says"] in CLOSED else v.get("reason")) if w)
    image = f"![{DRAWN}]({prefix}results/{study}/figures/{figure}.svg)"
    evidence, caption = _evidence(v["evidence"]), ""
    measured = f"{ours(evidence)} {unit_of(evidence)}" if evidence else ours(evidence)
    if not prefix:  # side by side with the explorer, so that the first page fits one screen
        both = {f"results/{study}/figures/{figure}.svg": DRAWN, LOOK: "The explorer: two models, one image"}
        image = "\n".join(f'<img src="{src}" width="49%" alt="{html.escape(alt)}">' for src, alt in both.items())
        caption = " Right: `saccade serve`, two models on one image that you move, turn and put on another background.*"
    return (
        f"{image}\n\n"
        f"*A claim: “{v['statement']}” The paper calls it {v['concluded'] or v['paper']}. Tested here: {v['tested']}. "
        f"Measured: {measured}, **{label}** ({told['scale']} scale). {TERMS}" + (caption or "*")
    )


def caption(study: str, figure: str, prefix: str) -> str:
    """How to read a figure, as the study's report says under it, with the link to its numbers."""
    report = (ROOT / "results" / study / "report.md").read_text("utf-8")
    under = report.partition(f"(figures/{figure}.svg)")[2].strip().split("\n\n")[0]
    return under.replace("](figures/", f"]({prefix}results/{study}/figures/")


def _evidence(told: dict[str, Any] | None) -> Evidence | None:
    if told is None:
        return None
    numbers = {k: float("nan") if v is None else v for k, v in told["estimate"].items()}
    same = {k: told[k] for k in ("p", "p_against", "method", "unit", "note", "null", "margin")}
    parts = tuple(part for each in told["parts"] if (part := _evidence(each)))
    return Evidence(Estimate(**numbers), parts=parts, per=told.get("per", ""), **same)


def verdict(told: dict[str, Any]) -> Verdict:
    """What the table of a report shows of it."""
    words = {k: told[k] for k in ("claim", "statement", "tested", "paper", "concluded", "remark", "family")}
    reason = Reason(told["reason"]) if told["reason"] else None
    return Verdict(says=Says(told["says"]), reason=reason, evidence=_evidence(told["evidence"]), **words)


def says(name: str) -> str:
    """What stands on top of the study's report, with the scale that it speaks of."""
    told = results().get(name)
    if told is None:
        return "Not run yet."
    verdicts = [verdict(v) for v in told["verdicts"]]
    shown = what_it_says(registry.study(name).headline, verdicts)
    lines = (f"- **{v.label}**: {' '.join(in_words(v))}" for v in shown)
    counts = f"At scale {told['scale']}, {summary(verdicts)} [The whole table](../results/{name}/report.md)."
    return "\n".join([counts, "", *lines])


def models(prefix: str) -> str:
    """The models that come with the package, and what they reach."""
    lines = [
        "| name | model | parameters | images seen | seen backgrounds | unseen backgrounds |",
        "|---|---|---|---|---|---|",
    ]
    n = 0
    for card in shipped.cards().values():
        (seen, n), (unseen, _) = card.accuracy("id"), card.accuracy("ood")
        what = f"`{card.run.model}`, x = {card.run.data_args['backgrounds']}"
        lines.append(
            f"| `{card.name}` | {what} | {card.parameters:,} | {card.trained['images']:,} | {seen:.1%} | {unseen:.1%} |"
        )
    return "\n".join([*lines, "", f"Right answers on {n:,} test images; one seed each."])


def trained(name: str) -> str:
    """What the verdicts require of each arm, and what it reached: every requirement of learning once."""
    told = results().get(name)
    if told is None:
        return "Not run yet."
    lines = ["| what must have been learned | reached | met |", "|---|---|---|"]
    asked: dict[str, dict[str, Any]] = {}
    for verdict in told["verdicts"]:
        for one in verdict["requirements"]:
            if " at least " in one["asks"] and " of the way " in one["asks"]:
                asked.setdefault(one["asks"], one)
    for asks, one in asked.items():
        reached = one["found"].partition(": ")[2] or one["found"]
        left_out = one["met"] and one["reason"] == Reason.NOT_MEASURED
        met = "–" if left_out else "yes" if one["met"] else "no"
        lines.append(f"| {asks} | {reached} | {met} |")
    if not asked:
        return f"At scale {told['scale']} no claim got as far as its requirements."
    return f"At scale {told['scale']}:\n\n" + "\n".join(lines)


MADE = {"scoreboard": scoreboard, "studies": studies, "picture": picture, "models": models}


def text(page: Path) -> str:
    """The page as it should read."""
    prefix = "" if page.parent == ROOT else os.path.relpath(ROOT, page.parent) + "/"
    said = page.read_text("utf-8")
    made = {**MADE, "what this study says": lambda _: says(page.stem), "trained": lambda _: trained(page.stem)}
    for name, make in made.items():
        marks = rf"(<!-- {name}: made by docs/make_readme.py -->\n).*?(<!-- end of {name} -->)"
        said = re.sub(marks, lambda m, make=make: f"{m[1]}{make(prefix)}\n{m[2]}", said, flags=re.DOTALL)
    return said


if __name__ == "__main__":
    for one in PAGES:
        one.write_text(text(one), encoding="utf-8")
