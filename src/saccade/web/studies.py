"""Studies of a lab for the explorer: which there are, and everything that a study's page shows, as one JSON value."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saccade import registry
from saccade.lab import pipeline
from saccade.lab.pipeline import Session
from saccade.lab.store import Lab
from saccade.report import document, figures, writers
from saccade.report.figures import FigureData, jsonable
from saccade.spec import SCALES, Evidence, SaccadeError, suggest
from saccade.study import Study, judge
from saccade.web import runs
from saccade.web.runs import Flat

KEPT = 16  # documents of studies that are kept in memory


class Studies:
    """Sessions and documents of one lab, made again when a run of theirs changed."""

    def __init__(self, lab: Lab, files: Sequence[str] = ()) -> None:
        self.lab = lab
        self.own: dict[str, tuple[str, Study]] = {}
        for file in files:
            study: Study = registry.study(file)
            self.own[study.name] = (file, study)
        self._sessions: dict[tuple[str, str], Session] = {}
        self._kept: dict[tuple[str, str], tuple[Any, Flat, dict[str, FigureData]]] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        return sorted({*registry.cards("study"), *self.own})

    def study(self, name: str) -> Study:
        if name not in self.names():
            raise SaccadeError(suggest("study", name[:80], self.names()))
        found: Study = self.own[name][1] if name in self.own else registry.study(name)
        return found

    def all(self) -> list[Study]:
        return [self.study(name) for name in self.names()]

    def folders(self, name: str) -> list[str]:
        """Sittings of a study in this lab: a scale, with a mark when choices differ from the default ones."""
        home = self.lab.study_folder(name)
        found = [p.name for p in home.iterdir() if p.is_dir()] if home.is_dir() else []
        known = [f for f in found if f.partition("-")[0] in SCALES and (f in SCALES or self._report(name, f))]
        return sorted(known, key=lambda f: (SCALES.index(f.partition("-")[0]), f))

    def session(self, name: str, folder: str) -> Session:
        """The study at that scale, with the choices that its report was made with."""
        with self._lock:
            if (name, folder) in self._sessions:
                return self._sessions[name, folder]
        self.study(name)
        scale = folder.partition("-")[0]
        if scale not in SCALES:
            raise SaccadeError(suggest("scale", scale[:40], SCALES))
        chosen: Mapping[str, Any] = {}
        if folder != scale:
            if folder not in self.folders(name):
                raise SaccadeError(f'no report "{folder[:40]}" of {name} in this lab.')
            chosen = self._report(name, folder).get("chosen", {})
        file = self.own[name][0] if name in self.own else name
        session = pipeline.open_session(file, scale, self.lab.root, chosen)
        with self._lock:
            self._sessions[name, folder] = session
        return session

    def _report(self, name: str, folder: str) -> Flat:
        """What the last report on disk said; empty where there is none or it cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.lab.study_folder(name) / folder / "verdicts.json").read_text())
            return found if isinstance(found, dict) else {}
        return {}

    def cards(self, rows: Iterable[Flat]) -> list[Flat]:
        """One entry per study, with what this lab has of it at each scale."""
        states = {r["run"]: r["state"] for r in rows}
        return [self._card(name, states) for name in self.names()]

    def _card(self, name: str, states: Mapping[str, str]) -> Flat:
        study = self.study(name)
        sittings = []
        for folder in self.folders(name):
            session = self.session(name, folder)
            have = [states.get(t.run.key, "") for t in session.tasks]
            report = self._report(name, folder)
            said = [str(v.get("says", "")) for v in report.get("verdicts", ()) if isinstance(v, dict)]
            sittings.append(
                {
                    "folder": folder,
                    "scale": session.scale,
                    "choices": changed(session),
                    "runs": len(have),
                    "done": sum(s not in ("", "running", "waiting") for s in have),
                    "running": have.count("running"),
                    "counts": counts(said),
                    "claims": len(said),
                    "procedural": bool(report.get("procedural")),
                }
            )
        return {
            "name": name,
            "question": study.question,
            "paper": {"citation": study.paper.citation, "url": safe_url(study.paper.url)},
            "claims": len(study.claims),
            "sittings": sittings,
            "costs": {s: study.costs[s] for s in SCALES if s in study.costs},
            "command": f"saccade run {name} --scale {next((s for s in ('demo', 'smoke') if s in study.costs), 'smoke')}",
        }

    def document(self, name: str, folder: str) -> Flat:
        return self._made(name, folder)[1]

    def figure_csv(self, name: str, folder: str, figure: str) -> str:
        """The numbers behind a figure, the same bytes as the report's file."""
        known = self._made(name, folder)[2]
        if figure not in known:
            raise SaccadeError(suggest("figure", figure[:80], known))
        return document.to_csv(known[figure].rows())

    def _made(self, name: str, folder: str) -> tuple[Any, Flat, dict[str, FigureData]]:
        session = self.session(name, folder)
        stamp = tuple(
            (runs.folder_stamp(home), runs.folder_stamp(home / "rows"))
            for home in (self.lab.folder(t.run.key) for t in session.tasks)
        )
        kept = self._kept.get((name, folder))
        if kept is not None and kept[0] == stamp:
            return kept
        made = (stamp, *page(session, folder))
        with self._lock:
            self._kept[name, folder] = made
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return made


def page(session: Session, folder: str) -> tuple[Flat, dict[str, FigureData]]:
    """Everything about one study at one scale: claims with verdicts, figures, differences, choices, facts."""
    study, table = session.study, session.table()
    facts = pipeline.facts(session)
    verdicts = judge(study, table, session.scale)
    drawn: dict[str, FigureData] = {}
    shown = []
    for figure in study.figures:
        told: Flat = {"name": figure.name, "title": figure.title, "paper": figure.paper}
        try:
            drawn[figure.name] = data = figure.make(table)
            told |= {"data": jsonable(data), "told": figures.describe(data), "note": data.note}
        except SaccadeError as error:
            told["error"] = str(error)
        shown.append({**told, "python": python(session, figure.name)})
    return {
        "study": study.name,
        "folder": folder,
        "scale": session.scale,
        "question": study.question,
        "paper": {"citation": study.paper.citation, "url": safe_url(study.paper.url)},
        "loud": document.LOUD if facts.get("procedural") else "",
        "reading": document.READING,
        "summary": document.summary(verdicts),
        "counts": counts([v.says for v in verdicts]),
        "claims": [claim(v) for v in verdicts],
        "figures": shown,
        "differs": [{"text": d.text, "touches": list(d.touches)} for d in study.differs],
        "choices": [
            {
                "name": c.name,
                "taken": jsonable(session.chosen.get(c.name, c.default)),
                "default": jsonable(c.default),
                "known": jsonable(c.known),
                "about": c.about,
            }
            for c in study.choices
        ],
        "method": list(document.METHOD),
        "facts": jsonable({k: v for k, v in facts.items() if k != "command"}),
        "command": session.command(),
        "empty": not len(table),
        "gaps": [{"run": g["run"], "arm": g["arm"], "seed": g["seed"], "why": g["why"]} for g in table.gaps],
    }, drawn


def claim(verdict: Any) -> Flat:
    """A verdict as the page shows it. Fields that this version of the verdict lacks are left empty."""
    evidence: Evidence | None = verdict.evidence
    look = writers.look(verdict.says)
    told: Flat = {
        "id": verdict.claim,
        "says": verdict.says,
        "look": look.name,
        "sign": look.sign,
        "reason": str(getattr(verdict, "reason", "") or ""),
        "statement": verdict.statement,
        "tested": verdict.tested,
        "paper": verdict.paper,
        "concluded": verdict.concluded,
        "remark": verdict.remark,
        "p_adjusted": verdict.p_adjusted,
        "family": str(getattr(verdict, "family", "") or ""),
        "differs": list(verdict.differs),
        "requirements": [requirement(r) for r in getattr(verdict, "requirements", ()) or ()],
        "by_budget": budget(getattr(verdict, "by_budget", ()) or ()),
        "registered": str(getattr(verdict, "registered", "") or ""),
        "evidence": test(evidence),
    }
    return told


def test(evidence: Evidence | None) -> Flat | None:
    if evidence is None:
        return None
    return {
        "ours": document.ours(evidence),
        "unit": evidence.unit,
        "estimate": jsonable(evidence.estimate),
        "each": jsonable(list(getattr(evidence, "each", ()) or ())),
        "p": evidence.p,
        "p_against": evidence.p_against,
        "method": evidence.method,
        "note": evidence.note,
        "seeds_needed": evidence.seeds_needed,
        "parts": [test(part) for part in evidence.parts],
    }


def requirement(value: Any) -> Flat:
    """Whether it is met, and its sentence."""
    met = getattr(value, "met", None)
    words = next((str(t) for n in ("sentence", "text", "says", "note") if (t := getattr(value, n, ""))), str(value))
    return {"met": None if met is None else bool(met), "text": words}


def budget(values: Any) -> list[Flat]:
    """Estimates at shares of the budget, as [{share, estimate}]."""
    pairs = values.items() if isinstance(values, Mapping) else (v for v in values if isinstance(v, (tuple, list)))
    return [{"share": float(share), "estimate": jsonable(estimate)} for share, estimate in pairs]


def counts(said: Sequence[str]) -> list[Flat]:
    looks = [writers.look(s) for s in said]
    return [
        {"look": one.name, "sign": one.sign, "counted": one.counted, "n": looks.count(one)}
        for one in writers.LOOKS.values()
        if one in looks
    ]


def changed(session: Session) -> Flat:
    default = session.study.choose({})
    return {k: jsonable(v) for k, v in session.chosen.items() if default[k] != v}


def python(session: Session, figure: str) -> str:
    """The lines that draw a figure from the same lab."""
    more = f", {changed(session)!r}" if changed(session) else ""
    opened = f"open_session({session.study.name!r}, {session.scale!r}, {str(session.lab.root)!r}{more})"
    return (
        "from saccade.lab.pipeline import open_session\nfrom saccade.report import draw\n\n"
        f'draw.save({opened}.figure({figure!r}), "{figure}.svg")'
    )


def safe_url(url: str) -> str:
    return url if url.startswith(("https://", "http://")) else ""
