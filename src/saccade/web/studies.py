"""Studies of a lab for the explorer: which there are, and everything that a study's page shows, as one JSON value."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from saccade import registry, stats
from saccade.lab import pipeline, plan
from saccade.lab.pipeline import Session
from saccade.lab.store import Lab
from saccade.report import document, figures, writers
from saccade.report.figures import FigureData, jsonable
from saccade.spec import SCALES, DamagedFile, Evidence, SaccadeError, Says, Scale, Verdict, suggest
from saccade.study import Study
from saccade.web import runs
from saccade.web.runs import Flat


class Place(NamedTuple):
    """Where a run belongs, and what is measured on it there."""

    study: str
    scale: str
    arm: str
    probes: tuple[str, ...]


PARTIAL = ("-only-", "-recipe-", "-also-")  # parts of studies, changed ones, and models whose code is not here
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
        self._places: tuple[Any, dict[str, Place]] | None = None
        self._counted: dict[tuple[str, str, int], list[Flat] | None] = {}  # of so many runs; None: being judged
        self._turn = threading.Lock()  # one study is judged at a time
        self._lock = threading.Lock()

    def places(self) -> Mapping[str, Place]:
        """The place of every run of every study: at all scales with its default choices, and as this lab has it.

        A run of several scales is listed under the smallest one. The same value until the lab gets another report.
        """
        extra_folders = tuple((name, f) for name in self.names() for f in self.folders(name) if f not in SCALES)
        if self._places is None or self._places[0] != extra_folders:
            place_by_run: dict[str, Place] = {}
            tasks = [(s.name, x, s.tasks(Scale(x), s.choose({}))) for s in self.all() for x in SCALES]
            for name, folder in extra_folders:
                with contextlib.suppress(SaccadeError):  # a report of choices that the study no longer has
                    session = self.session(name, folder)
                    tasks.append((name, session.scale, session.tasks))
            for name, scale, study_tasks in tasks:
                for task in study_tasks:
                    place = Place(name, scale, task.arm or task.run.model, tuple(p.key for p in task.probes))
                    place_by_run.setdefault(task.run.key, place)
            self._places = (extra_folders, place_by_run)
        return self._places[1]

    def names(self) -> list[str]:
        return sorted({*registry.cards("study"), *self.own})

    def study(self, name: str) -> Study:
        if name not in self.names():
            raise SaccadeError(suggest("study", name[:80], self.names()))
        definition: Study = self.own[name][1] if name in self.own else registry.study(name)
        return definition

    def all(self) -> list[Study]:
        return [self.study(name) for name in self.names()]

    def folders(self, name: str) -> list[str]:
        """Sittings of a study in this lab: a scale, with a mark when choices differ from the default ones."""
        folder = self.lab.study_folder(name)
        names = [p.name for p in folder.iterdir() if p.is_dir()] if folder.is_dir() else []
        report_folders = [
            f
            for f in names
            if f.partition("-")[0] in SCALES
            and not any(part in f for part in PARTIAL)
            and (f in SCALES or self._report(name, f))
        ]
        return sorted(report_folders, key=lambda f: (SCALES.index(f.partition("-")[0]), f))

    def session(self, name: str, folder: str) -> Session:
        """The study at that scale, with the choices that its report was made with."""
        with self._lock:
            if (name, folder) in self._sessions:
                return self._sessions[name, folder]
        self.study(name)
        scale = folder.partition("-")[0]
        if scale not in SCALES:
            raise SaccadeError(suggest("scale", scale[:40], SCALES))
        choices: Mapping[str, Any] = {}
        if folder != scale:
            if folder not in self.folders(name):
                raise SaccadeError(f'no report "{folder[:40]}" of {name} in this lab.')
            choices = self._report(name, folder).get("chosen", {})
        file = self.own[name][0] if name in self.own else name
        session = pipeline.open_session(file, scale, self.lab.root, choices)
        with self._lock:
            self._sessions[name, folder] = session
        return session

    def _report(self, name: str, folder: str) -> Flat:
        """What the last report on disk said; empty where there is none or it cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            document = json.loads((self.lab.study_folder(name) / folder / "verdicts.json").read_text("utf-8"))
            return document if isinstance(document, dict) else {}
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
            run_states = [states.get(plan.place_of(self.lab, t), "") for t in session.tasks]
            report = self._report(name, folder)
            says = [str(v.get("says", "")) for v in report.get("verdicts", ()) if isinstance(v, dict)]
            done = sum(s not in ("", "running", "waiting") for s in run_states)
            if (
                not report and done and "running" not in run_states
            ):  # rows that came from elsewhere; a command writes a report
                verdict_counts, judging = self._background_counts(name, folder, done)
            else:
                verdict_counts, judging = counts(says), False
            sittings.append(
                {
                    "folder": folder,
                    "scale": session.scale,
                    "choices": changed(session),
                    "runs": len(run_states),
                    "done": done,
                    "running": run_states.count("running"),
                    "counts": verdict_counts,
                    "judging": judging,
                    "claims": sum(c["n"] for c in verdict_counts),
                    "procedural": bool(report.get("procedural")),
                }
            )
        return {
            "name": name,
            "question": study.question,
            "paper": paper(study),
            "claims": len(study.claims),
            "sittings": sittings,
            "costs": {s: study.costs[s] for s in SCALES if s in study.costs},
            "command": f"saccade run {name} --scale {'demo' if 'demo' in study.costs else 'smoke'}",
        }

    def _background_counts(self, name: str, folder: str, done: int) -> tuple[list[Flat], bool]:
        """Counts of verdicts that no report has written, as after an import; whether they are still being made.

        In the background, so that the list of studies need not wait for them.
        """
        key = (name, folder, done)
        with self._lock:
            if key not in self._counted:
                self._counted[key] = None
                threading.Thread(target=self._count, args=key, daemon=True, name="judge").start()
            verdict_counts = self._counted[key]
        return verdict_counts or [], verdict_counts is None

    def _count(self, name: str, folder: str, done: int) -> None:
        verdict_counts = []
        with self._turn, contextlib.suppress(SaccadeError, DamagedFile):  # the page of the study says what is wrong
            verdict_counts = self._made(name, folder)[1]["counts"]
        self._counted[name, folder, done] = verdict_counts

    def document(self, name: str, folder: str) -> Flat:
        return self._made(name, folder)[1]

    def figure_csv(self, name: str, folder: str, figure: str) -> str:
        """The numbers behind a figure, the same bytes as the report's file."""
        data_by_figure = self._made(name, folder)[2]
        if figure not in data_by_figure:
            raise SaccadeError(suggest("figure", figure[:80], data_by_figure))
        return document.to_csv(data_by_figure[figure].rows())

    def _made(self, name: str, folder: str) -> tuple[Any, Flat, dict[str, FigureData]]:
        session = self.session(name, folder)
        stamp = tuple(
            (runs.folder_stamp(home), runs.folder_stamp(home / "rows"))
            for home in (self.lab.folder(t.run.key) for t in session.tasks)
        )
        stored = self._kept.get((name, folder))
        if stored is not None and stored[0] == stamp:
            return stored
        entry = (stamp, *page(session, folder))
        with self._lock:
            self._kept[name, folder] = entry
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return entry


def page(session: Session, folder: str) -> tuple[Flat, dict[str, FigureData]]:
    """Everything about one study at one scale: claims with verdicts, figures, differences, choices, facts."""
    study, results = session.study, session.results()
    table = results.whole
    facts = pipeline.facts(session, None if session.also else table)  # a joined arm is not in the table of the study
    verdicts = session.verdicts(results)
    data_by_figure: dict[str, FigureData] = {}
    figure_documents = []
    for figure, data in document.figures_of(study, table, verdicts):
        data_by_figure[figure.name] = data
        figure_documents.append(
            {
                "name": figure.name,
                "title": figure.title,
                "paper": figure.paper,
                "note": data.note,
                "data": jsonable(data),
                "told": figures.describe(data),
                "python": python(session, figure.name),
            }
        )
    return {
        "study": study.name,
        "folder": folder,
        "scale": session.scale,
        "question": study.question,
        "paper": paper(study),
        "loud": document.LOUD if facts.get("procedural") else "",
        "reading": document.READING if study.paper else "",
        "summary": document.summary(verdicts),
        "counts": counts([str(v.says) for v in verdicts]),
        "claims": [claim(v) for v in verdicts],
        "figures": figure_documents,
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
        "method": [*document.METHOD, *document.required(study)],
        "facts": jsonable({k: v for k, v in facts.items() if k != "command"}),
        "command": session.command(),
        "empty": not len(table),
        "gaps": [{"run": g["run"], "arm": g["arm"], "seed": g["seed"], "why": g["why"]} for g in table.gaps],
    }, data_by_figure


def paper(study: Study) -> Flat | None:
    return {"citation": study.paper.citation, "url": safe_url(study.paper.url)} if study.paper else None


def claim(verdict: Verdict) -> Flat:
    """A verdict as the page shows it."""
    look = writers.look(verdict.says)
    return {
        "id": verdict.claim,
        "says": str(verdict.says),
        "look": look.name,
        "sign": look.sign,
        "reason": str(verdict.reason or ""),
        "statement": verdict.statement,
        "tested": verdict.tested,
        "paper": verdict.paper,
        "concluded": verdict.concluded,
        "remark": verdict.remark,
        "p_adjusted": verdict.p_adjusted,
        "family": verdict.family,
        "differs": list(verdict.differs),
        "requirements": [{"met": r.met, "asks": r.asks, "found": r.found} for r in verdict.requirements],
        "by_budget": [{"share": s, "estimate": jsonable(e.estimate)} for s, e in verdict.by_budget],
        "registered": verdict.registered,
        "looked": verdict.look,
        "evidence": tested(verdict.evidence),
    }


def tested(evidence: Evidence | None) -> Flat | None:
    if evidence is None:
        return None
    part = stats.deciding(evidence)
    return {
        "ours": document.ours(evidence),
        "unit": part.unit,
        "per": part.per,
        "unit_in_words": document.unit_in_words(part),
        "estimate": jsonable(part.estimate),
        "each": [{"seed": seed, "value": value} for seed, value in part.each],
        "null": part.null,
        "margin": part.margin,
        "p": evidence.p,
        "p_against": evidence.p_against,
        "method": evidence.method,
        "note": evidence.note,
        "limit": evidence.limit,
        "seeds_needed": evidence.seeds_needed,
        "parts": [tested(part) for part in evidence.parts],
    }


def counts(says: Sequence[str]) -> list[Flat]:
    """How many verdicts say what, in the order of the reports; words that no verdict has are passed over."""
    looks = [writers.LOOKS[Says(s)] for s in says if s in set(Says)]
    return [
        {"look": one.name, "sign": one.sign, "counted": one.words(looks.count(one)), "n": looks.count(one)}
        for one in writers.LOOKS.values()
        if one in looks
    ]


def changed(session: Session) -> Flat:
    default = session.study.choose({})
    return {k: jsonable(v) for k, v in session.chosen.items() if default[k] != v}


def python(session: Session, figure: str) -> str:
    """The lines that draw a figure from the same lab."""
    more = f", {changed(session)!r}" if changed(session) else ""
    opening = f"open_session({session.study.name!r}, {session.scale!r}, {str(session.lab.root)!r}{more})"
    return (
        "from saccade.lab.pipeline import open_session\nfrom saccade.report import draw\n\n"
        f'draw.save({opening}.figure({figure!r}), "{figure}.svg")'
    )


def safe_url(url: str) -> str:
    return url if url.startswith(("https://", "http://")) else ""
