"""Commands that say what there is: one line for each name, or the card of one name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from saccade import arguments, registry
from saccade.cli.flags import Json, LabDir, Plugin, ScaleName
from saccade.cli.parsing import command, out
from saccade.spec import SCALES, SaccadeError, suggest

if TYPE_CHECKING:
    from saccade.study import Claim, Study


@command(name="list")
def list_(
    kind: Positional[Annotated[str, arg(metavar="KIND", help="models, data, probes, studies or all")]] = "all",
    plugin: Plugin = (),
    json: Json = False,
) -> None:
    """What there is: models, data, probes, studies, one line each."""
    for file in plugin:
        registry.load_plugin(file)
    kinds = {folder: k for k, folder in registry.FOLDERS.items()}
    if kind != "all" and kind not in kinds:
        raise SaccadeError(suggest("kind", kind, [*kinds, "all"]))
    chosen_kinds = kinds if kind == "all" else {kind: kinds[kind]}
    cards_by_folder = {folder: list(registry.cards(k).values()) for folder, k in chosen_kinds.items()}
    if json:
        out(
            {
                folder: [{"name": c.name, "about": c.about, "version": c.version, "args": c.args} for c in cards]
                for folder, cards in cards_by_folder.items()
            }
        )
        return
    width = max((len(c.name) for cards in cards_by_folder.values() for c in cards), default=0)
    for folder, cards in cards_by_folder.items():
        print(folder)
        for card in cards:
            print(f"  {card.name:<{width}}  {card.about}")


@command()
def show(
    name: Positional[str],
    registration: Annotated[bool, arg(help="of a study: its claims as registered in the lab before the runs")] = False,
    scale: ScaleName = "small",
    lab: LabDir = "lab",
    plugin: Plugin = (),
    json: Json = False,
) -> None:
    """The card of one name: a model, data set, probe or study with its arguments, or a claim such as D-H3."""
    for file in plugin:
        registry.load_plugin(file)
    if registration:
        _show_registration(name, scale, lab, json)
        return
    normalised = name.replace("-", "_")
    cards_by_name = {n: (k, c) for k in registry.KINDS for n, c in registry.cards(k).items()}
    if normalised not in cards_by_name:
        claims = _claims()
        claim_id = {id.lower(): id for id in claims}.get(name.lower())
        if claim_id is None and name[1:2] == "-":
            raise SaccadeError(suggest("claim", name, claims, "saccade show STUDY lists its claims"))
        if claim_id is None:
            raise SaccadeError(suggest("model, data set, probe, study or claim", name, cards_by_name, "saccade list"))
        _show_claim(*claims[claim_id], json)
        return
    kind, card = cards_by_name[normalised]
    fields: dict[str, Any] = {
        "kind": kind,
        "name": card.name,
        "about": card.about,
        "version": card.version,
        "arguments": card.args,
        "accepted": {a: arguments.words(card.accepts[a]) for a in card.args if card.accepts.get(a)},
        **({"splits": list(card.splits)} if card.splits else {}),
        **card.extra,
    }
    if kind == "model":
        from saccade import models
        from saccade.profiling import references

        fields["parameters"] = models.parameters(models.build(card.name))
        if measured := [reference.sentence() for reference in references.of_model(card.name)]:
            fields["measured"] = measured
    if kind == "study":
        study = registry.study(card.name)
        fields = {
            "kind": kind,
            "name": card.name,
            "question": study.question,
            "paper": study.paper.citation,
            "scales": {s: study.costs[s] for s in SCALES if s in study.costs},
            "choices": {c.name: {"default": c.default, "known": c.known, "about": c.about} for c in study.choices},
            "claims": {c.id: c.statement for c in study.claims},
            "figures": [f.name for f in study.figures],
        }
    if json:
        out(fields)
        return
    accepted = fields.pop("accepted", {})
    for field, value in fields.items():
        if isinstance(value, dict):
            print(f"{field}:")
            for k, v in value.items():
                if isinstance(v, dict):
                    among = f" ({', '.join(map(str, v['known']))})" if v["known"] else ""
                    print(f"  {k} = {v['default']!r}   {v['about']}{among}")
                else:
                    print(f"  {k}: {v}" + (f"   ({accepted[k]})" if field == "arguments" and k in accepted else ""))
        elif field == "measured":
            print("measured, with a short recipe (no best values):")
            print("\n".join(f"  {line}" for line in value))
        elif value not in ("", ()):
            print(f"{field}: {f'{value:,}' if isinstance(value, int) else value}")


def _show_registration(name: str, scale: str, lab: str, json: bool) -> None:
    from saccade.lab import pipeline
    from saccade.lab import registration as registered

    session = pipeline.open_session(name, scale, lab)
    entries = registered.read(session.folder)
    if not entries:
        raise SaccadeError(
            f"{name} at scale {scale} is not registered in {lab}; the first saccade run registers it (--lab, --scale)."
        )
    if json:
        out(entries)
        return
    for entry in entries:
        print(f"{entry['date']}, saccade {entry['version']}, {entry['runs']} runs finished by then")
        for id, claim in entry["claims"].items():
            print(f"  {id}: {claim['declared']['tested']}")
            for sentence in claim["declared"]["requires"]:
                print(f"      requires {sentence}")


def _claims() -> dict[str, tuple[Study, Claim]]:
    return {c.id: (study, c) for study in map(registry.study, registry.built_in("study")) for c in study.claims}


def _show_claim(study: Study, claim: Claim, json: bool) -> None:
    fields = {
        "kind": "claim",
        "name": claim.id,
        "study": study.name,
        "statement": claim.statement,
        "paper": claim.paper,
        "concluded": claim.concluded,
        "tested": claim.relation,
        "requires": list(claim.asked),
        "differs": list(study.differences(claim.id)),
        "family": claim.family or claim.id,
        "run": f"saccade run {study.name} --scale {claim.needs or 'small'} --claims {claim.id}",
    }
    if json:
        out(fields)
        return
    for field, value in fields.items():
        if isinstance(value, list) and value:
            print(f"{field}:")
            print("\n".join(f"  - {line}" for line in value))
        elif value:
            print(f"{field}: {value}")
