"""Pages whose facts come from the registry and from results/: python docs/make_pages.py

docs/gallery.md, docs/models/FAMILY.md and the index pages are made whole. Of docs/probes/NAME.md only what stands
between the marks is made; a probe without a page gets one that says what its file says.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import make_readme as readme

from saccade import registry
from saccade.profiling import references
from saccade.registry import Card
from saccade.spec import SCALES, Scale

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FAMILIES = {
    "cnn": "Convolution models: one kernel for every place, neighbours only",
    "attention": "Attention in place of convolution: weights made from content or from relative positions",
    "vit": "Vision transformers: patches as tokens, attention over all of them",
    "local": "Local models: windows and depth-wise mixing, with sharing and dynamic weights apart",
}
# A probe that any model and any labelled images can be asked; the others need data or a model of their kind.
ANYWHERE = ("accuracy", "calibration", "corruptions", "cue_conflict", "image_transforms", "occlusion", "patch_shuffle")
START, END = "<!-- facts: made by docs/make_pages.py -->", "<!-- end of facts -->"
DRAWN = '{"digits": "procedural_digits", "scenes": "procedural_textures"}'


def pages() -> dict[Path, str]:
    """Every made page with its text."""
    made = {DOCS / "gallery.md": gallery()}
    probes, models = registry.built_in("probe"), registry.built_in("model")
    used = users()
    for card in probes.values():
        made[DOCS / "probes" / f"{card.name}.md"] = probe_page(card, used.get(("probe", card.name), []))
    made[DOCS / "probes" / "index.md"] = index(
        "Probes",
        "A probe asks one question of a trained model. Each gives rows: a metric, its value, how many images, under "
        "which condition.",
        [(c.name, question(c)) for c in probes.values()],
    )
    families = sorted({str(c.extra["family"]) for c in models.values()})
    for family in families:
        cards = [c for c in models.values() if c.extra["family"] == family]
        made[DOCS / "models" / f"{family}.md"] = family_page(family, cards, used)
    made[DOCS / "models" / "index.md"] = (
        index(
            "Model families",
            "Every registered model belongs to a family, which also gives its colour in figures.",
            [
                (f, f"{FAMILIES.get(f, f)} ({', '.join(c.name for c in models.values() if c.extra['family'] == f)})")
                for f in families
            ],
        )
        + measured()
    )
    return made


def measured() -> str:
    """Every reference card as a row, and what they all share above them."""
    found: dict[str, dict[str, references.Card]] = {}
    for card in references.cards():
        found.setdefault(card.model, {})[card.data] = card
    sets = sorted({card.data for card in references.cards()})
    recipes = {name: "; ".join(sorted({c[name].recipe for c in found.values() if name in c})) for name in sets}
    rows = "\n".join(
        f"| `{name}` | {', '.join(f'{k}={v}' for k, v in cards['cifar10'].args.items()) or 'its defaults'} | "
        + " | ".join(_accuracy(cards[s]) if s in cards else "" for s in sets)
        + f" | {cards['cifar10'].seconds:.0f} s |"
        for name, cards in sorted(found.items())
        if "cifar10" in cards
    )
    head = f"| model | settings | {' | '.join(sets)} | time per seed, cifar10 |\n|{'---|' * (len(sets) + 3)}"
    said = "\n".join(f"- {name}: {recipe}" for name, recipe in recipes.items())
    return (
        "\n## Is mine broken?\n\nTest accuracy after one short recipe, with its interval over seeds. These are no best "
        "values: longer training gets much further. A model of yours that stays far below one of its kind after the "
        f"same recipe has something wrong with it. `saccade show NAME` prints the same.\n\n{said}\n\n{head}\n{rows}\n\n"
        "Measured by `python -m benchmarks.cards`, three seeds, on the first 2000 test images; times are of a machine "
        f"with other work on it, and are upper limits.{_unmeasured(found)}\n"
    )


def _unmeasured(found: Mapping[str, Mapping[str, references.Card]]) -> str:
    """Built-in models without a card by name, so that none is passed over in silence."""
    left = [f"`{name}`" for name in sorted(registry.built_in("model")) if "cifar10" not in found.get(name, {})]
    return f" Not measured: {', '.join(left)}; what it would take is said in `benchmarks/cards.py`." if left else ""


def _accuracy(card: references.Card) -> str:
    return f"{100 * card.accuracy:.1f} % [{100 * card.low:.1f}, {100 * card.high:.1f}]"


def users() -> dict[tuple[str, str], list[str]]:
    """Which studies train a model or ask a probe, at any scale."""
    found: dict[tuple[str, str], set[str]] = {}
    for name in registry.built_in("study"):
        study = registry.study(name)
        for scale in SCALES:
            for task in study.tasks(Scale(scale), study.choose({})):
                found.setdefault(("model", task.run.model), set()).add(name)
                for probe in task.probes:
                    found.setdefault(("probe", probe.name), set()).add(name)
    return {key: sorted(names) for key, names in found.items()}


def docstring(card: Card) -> str:
    """What the file of a name says of itself."""
    spec = importlib.util.find_spec(card.module)
    assert spec is not None and spec.origin is not None
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text("utf-8"))) or ""


def question(card: Card) -> str:
    return " ".join(docstring(card).partition("\n\n")[0].split())


def index(title: str, about: str, entries: list[tuple[str, str]]) -> str:
    lines = "\n".join(f"- [`{name}`]({name}.md): {text}" for name, text in entries)
    return f"# {title}\n\n{about}\n\n{lines}\n"


def arguments(card: Card) -> str:
    if not card.args:
        return "It has no settings."
    rows = "\n".join(f"| `{name}` | `{value!r}` |" for name, value in card.args.items())
    return f"| setting | default |\n|---|---|\n{rows}"


def asked_by(names: list[str]) -> str:
    if not names:
        return "No built-in study; the profile of a model or a study of your own may."
    return ", ".join(f"[{name}](../{name}.md)" for name in names)


def probe_page(card: Card, names: list[str]) -> str:
    """The page as it is, with fresh facts."""
    file = DOCS / "probes" / f"{card.name}.md"
    first = "\n\n".join(p for p in (f"# {card.name}", question(card), rest(card)) if p)
    said = file.read_text("utf-8") if file.exists() else first
    before, mark, after = said.partition(START)
    after = after.partition(END)[2] if mark else ""
    return f"{before.rstrip()}\n\n{START}\n{facts(card, names)}\n{END}\n{after.lstrip()}"


def facts(card: Card, names: list[str]) -> str:
    parts = [f"**Gives:** {card.about}", "## Settings", arguments(card)]
    parts += [
        f"Version {card.version}; rows of an older version are measured again.",
        "**Asked by:** " + asked_by(names),
    ]
    if card.name in ANYWHERE:
        setting = 'splits=("ood",)' if card.name == "accuracy" else 'split="ood"'
        parts += [
            "## Ask it of any model",
            "```python\nimport saccade as sc\nfrom torch import nn\n\n"
            "mine = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))\n"
            f"drawn = {DRAWN}  # leave out for MNIST on CIFAR-10\n"
            f'asked = sc.Probe("{card.name}", {setting}, n=20)\n'
            'table = sc.probe(mine, [asked], "digits_on_backgrounds", data_args=drawn)\n'
            'assert len(table) > 0\nprint({row["metric"] for row in table})\n```',
        ]
    return "\n\n".join(parts)


def rest(card: Card) -> str:
    return docstring(card).partition("\n\n")[2].strip()


def family_page(family: str, cards: list[Card], used: dict[tuple[str, str], list[str]]) -> str:
    parts = [f"# {family}", FAMILIES.get(family, "") + "."]
    for card in cards:
        parts += [f"## `{card.name}`", question(card), card.about]
        if dial := card.extra.get("dial"):
            parts.append(f"Size dial: `{dial}`.")
        parts += [arguments(card), "**Trained by:** " + asked_by(used.get(("model", card.name), []))]
    first = cards[0].name
    parts.append(
        f'## In Python\n\n```python\nimport saccade as sc\n\nmodel = sc.model("{_light(cards) or first}")\n'
        "print(sum(p.numel() for p in model.parameters()))\n```"
    )
    return "\n\n".join(p for p in parts if p) + "\n"


def _light(cards: list[Card]) -> str:
    small = ("lenet", "mha_lenet", "vit", "local_attn")
    return next((c.name for c in cards if c.name in small), "")


# -- the gallery


def gallery() -> str:
    parts = [
        "# Gallery",
        "Every figure in `results/`, with the command that made it. Each comes from its own rows: the same command "
        "with `saccade figures` draws it again, and the numbers behind it stand in a CSV file beside it.",
    ]
    for study in registry.built_in("study"):
        folder = ROOT / "results" / study
        if not (folder / "report.md").exists():
            continue
        command = command_of(folder)
        parts += [
            f"## {study}",
            f"```sh\n{command}\n```",
            f"[The report](../results/{study}/report.md), [the study]({study}.md).",
        ]
        for title, file in figures(folder):
            at = f"../results/{study}/figures/{file}"
            caption = readme.caption(study, file, "../") or f"[Numbers]({at}.csv)"
            parts.append(f"### {title}\n\n![{title}]({at}.svg)\n\n{caption}")
    return "\n\n".join(parts) + "\n"


def command_of(folder: Path) -> str:
    file = folder / "environment.json"
    told: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return str(told.get("command") or f"saccade run {folder.name}")


def figures(folder: Path) -> Iterator[tuple[str, str]]:
    """Title and name of each figure, as the report has them; then files that the report does not show."""
    shown = set()
    said = (folder / "report.md").read_text("utf-8")
    shape = r"^### (?:Figure \d+\. )?(.*?)\n\n!\[[^\n]*\]\(figures/(\w+)\.svg\)"
    for title, name in re.findall(shape, said, re.MULTILINE):
        shown.add(name)
        yield plain_title(title), name
    for file in sorted((folder / "figures").glob("*.svg")):
        if file.stem not in shown:
            yield file.stem, file.stem


def plain_title(title: str) -> str:
    return re.sub(r"[\[\]]", "", title.replace("\\", "")).strip()


def write() -> None:
    for folder in ("probes", "models"):
        (DOCS / folder).mkdir(exist_ok=True)
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
