"""The explorer as a folder of files: the same page and the same answers, with no server behind them.

Data are scripts that hand over one value, and the page's modules are written as one plain script: a browser loads both
from any web host, and also when somebody opens index.html by double click, where fetching data and modules is refused.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from saccade.lab.store import write_atomic
from saccade.report.figures import jsonable
from saccade.spec import SaccadeError
from saccade.web import profiles, runs
from saccade.web.explorer import Explorer
from saccade.web.page import page_files

Say = Callable[[str], None]
MARK = ".saccade-export"  # a folder with this file was written here and may be written again
MOST_RUNS = 5000  # runs with a page of their own
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; base-uri 'none'"
SHIFTS = (-8, -4, 0, 4, 8)
TURNS = (-60, -40, -20, 20, 40, 60)
SIZES = (0.5, 0.75, 1.25, 1.5)
QUERY_STEP = 5  # pixels between the queries whose attention is kept
SCENES = 4  # backgrounds for each image: its own, two of other classes, one that training never showed


def write(
    explorer: Explorer, to: Path, *, images: int = 3, models: Sequence[str] = (), say: Say = lambda _: None
) -> dict[str, Any]:
    """Write everything; returns how many files, how many bytes, and the page to open."""
    if not (explorer.lab.root / "runs").is_dir():
        raise SaccadeError(f"no lab at {explorer.lab.root}; --lab DIR names another.")
    if to.exists() and (not to.is_dir() or (any(to.iterdir()) and not (to / MARK).exists())):
        raise SaccadeError(f"{to} is not empty and no earlier export; name another folder.")
    files: dict[str, bytes] = {}
    for name, value in _answers(explorer, say):
        _add(files, name, value)
    if images:
        for name, value in _look(explorer, images, models, say):
            _add(files, name, value)
    files |= _page()
    for old in _old(to):
        if str(old.relative_to(to)) not in files:
            old.unlink()
    for name, content in files.items():
        write_atomic(to / name, content)
    write_atomic(to / MARK, b"written by saccade export; written again it is replaced\n")
    total = sum(map(len, files.values()))
    return {"files": len(files), "bytes": total, "index": str((to / "index.html").resolve())}


def _add(files: dict[str, bytes], name: str, value: Any) -> None:
    """A text is a file of its own; anything else a script that hands it over."""
    place = f"data/{file_name(name)}" + ("" if isinstance(value, str) else ".js")
    if place in files:
        raise SaccadeError(f"two answers of the export have the name {place}.")
    if isinstance(value, str):
        files[place] = value.encode()
        return
    text = json.dumps(jsonable(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    files[place] = f'saccadeFile("{file_name(name)}",{text});\n'.encode()


def file_name(path: str) -> str:
    """The same as in data.js."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", path)


def _old(to: Path) -> list[Path]:
    return [p for p in to.rglob("*") if p.is_file() and p.name != MARK] if (to / MARK).exists() else []


def _answers(explorer: Explorer, say: Say) -> Iterator[tuple[str, Any]]:
    explorer.catalogue.look()
    yield "lab", {**explorer.about(), "saved": time.strftime("%Y-%m-%d")}
    for name in explorer.studies.names():
        for folder in explorer.studies.folders(name):
            say(f"{name}, {folder}")
            document = explorer.study(name, folder)
            yield f"study/{name}/{folder}", document
            for figure in document["figures"]:
                csv = explorer.studies.figure_csv(name, folder, figure["name"])
                yield f"study/{name}/{folder}/{figure['name']}.csv", csv
    yield "studies", explorer.cards()  # after the documents: what no report has counted is counted from those
    rows = explorer.catalogue.rows()
    say(f"{len(rows)} runs")
    yield "runs", explorer.catalogue.document()
    for row in sorted(rows, key=lambda r: -r.get("started", 0))[:MOST_RUNS]:
        yield f"run/{row['run']}", explorer.run(row["run"])
    measures = explorer.catalogue.measures()
    yield "measures", measures
    for metric in measures:
        yield f"measure/{metric}", explorer.catalogue.measure(metric, {})
    yield "profiles", profiles.all_of(explorer.lab)


# -- the Look page: a grid of answers


def _look(explorer: Explorer, images: int, keys: Sequence[str], say: Say) -> Iterator[tuple[str, Any]]:
    rows = {r["run"]: r for r in explorer.catalogue.rows()}
    if not keys and not any(_has_model(r) for r in rows.values()):  # as in a lab that was imported: rows, no weights
        rows |= {r["run"]: r for r in explorer.shipped()}
    model_keys = _models(rows, keys)
    if not model_keys:
        return
    say(f"models at work: {', '.join(model_keys)}")
    looker = explorer.looker()
    stocks = {key: looker.stock({"run": key}) for key in model_keys}
    first = stocks[model_keys[0]]
    shown_images = first["images"][:images]
    moves = list(_moves())
    pictures = {}
    for image in shown_images:
        scenes = _scenes(first["scenes"], image["label"])
        pictures[image["index"]] = scenes
        answers: dict[str, list[Any]] = {key: [] for key in model_keys}
        pngs: list[list[str]] = []
        for scene in scenes:
            answers_by_move = [
                looker.see({"models": [{"run": k} for k in model_keys], "picture": _picture(image, scene, move)})
                for move in moves
            ]
            pngs.append([s["png"] for s in answers_by_move])
            query_answers = list(_queries(looker, model_keys, image, scene, first["size"]))
            for i, key in enumerate(model_keys):
                answers[key].append(
                    {
                        "moves": [s["answers"][i] for s in answers_by_move],
                        "queries": [
                            {**at, "attention": reply["answers"][i]["attention"]} for at, reply in query_answers
                        ],
                    }
                )
        yield f"look/pictures/{image['index']}", {"pngs": pngs, "label": image["label"], "size": first["size"]}
        for key in model_keys:
            yield f"look/{key}/{image['index']}", answers[key]
    yield (
        "look",
        {
            "rows": [rows[k] for k in model_keys],
            "stocks": {k: {**s, "images": shown_images, "states": s["states"][-1:]} for k, s in stocks.items()},
            "scenes": pictures,
            "moves": moves,
        },
    )


def _models(rows: dict[str, runs.Flat], keys: Sequence[str]) -> list[str]:
    """Those named, or two of one data set and different architectures, trained longest."""
    for key in keys:
        if key not in rows or not _has_model(rows[key]):
            raise SaccadeError(f'no finished run "{key}" with weights in this lab; saccade status lists them.')
    if keys:
        return list(dict.fromkeys(keys))[:2]
    finished = [r for r in rows.values() if _has_model(r)]

    def length(row: runs.Flat) -> tuple[Any, ...]:
        return row.get("images", 0), row["model"] == "lenet", row.get("backgrounds", 0), -row["seed"]

    if not finished:
        return []
    one = max(finished, key=length)
    others = [r for r in finished if r["data"] == one["data"] and r["model"] != one["model"]]
    return [one["run"], *([max(others, key=length)["run"]] if others else [])]


def _has_model(row: runs.Flat) -> bool:
    return row["state"] == "finished" and "model" in row and row.get("weights") != "none"


def _moves() -> Iterator[dict[str, float]]:
    still: dict[str, float] = {"dx": 0, "dy": 0, "turn": 0, "scale": 1}
    for dy, dx in itertools.product(SHIFTS, SHIFTS):
        yield {**still, "dx": dx, "dy": dy}
    yield from ({**still, "turn": t} for t in TURNS)
    yield from ({**still, "scale": s} for s in SIZES)


def _scenes(offered: Sequence[Any], label: int) -> list[dict[str, Any] | None]:
    """The image's own background, some that stood behind other classes in training, one that was never shown."""
    other = [s for s in offered if s["behind"] is not None and s["behind"] != label][: SCENES - 2]
    unseen = [s for s in offered if s["behind"] is None][1 : SCENES - len(other)]  # the first stands behind image 0
    return [None, *({"split": s["split"], "index": s["index"]} for s in (*other, *unseen))]


def _picture(image: Any, scene: dict[str, Any] | None, move: dict[str, float]) -> dict[str, Any]:
    return {"index": image["index"], "move": move, **({"scene": scene} if scene else {})}


def _queries(
    looker: Any, keys: Sequence[str], image: Any, scene: dict[str, Any] | None, size: int
) -> Iterator[tuple[dict[str, float], Any]]:
    """Attention from pixels on a coarse grid, of the object in its place."""
    models = [{"run": k, "layers": []} for k in keys]
    picture = _picture(image, scene, {"dx": 0, "dy": 0, "turn": 0, "scale": 1})
    at = [v + 0.5 for v in range(QUERY_STEP // 2, size, QUERY_STEP)]
    for y, x in itertools.product(at, at):
        yield {"x": x, "y": y}, looker.see({"models": models, "picture": picture, "query": {"x": x, "y": y}})


# -- the page


def _page() -> dict[str, bytes]:
    files = page_files()
    html = files["index.html"].decode()
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    html = html.replace('<html lang="en">', '<html lang="en" data-export>')
    html = html.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}')
    html = html.replace(
        '<script type="module" src="static/main.js"></script>', '<script defer src="static/explorer.js"></script>'
    )
    modules = {name: body.decode() for name, body in files.items() if name.endswith(".js")}
    return {
        "index.html": html.encode(),
        "static/explorer.js": bundle(modules, "main.js").encode(),
        **{f"static/{name}": body for name, body in files.items() if not name.endswith((".js", ".html"))},
    }


IMPORT = re.compile(r'^import\s+(\* as \w+|\{[^}]*\})\s+from\s+"\./([\w.]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)


def bundle(modules: dict[str, str], start: str) -> str:
    """The page's modules as one plain script: each a function that returns what it exports, in the order of imports.

    Only the forms of import and export that these modules use are known; anything else is refused.
    """
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...] = ()) -> None:
        if name in above:
            raise ValueError(f"{name} imports itself through {' and '.join(above)}")
        if name not in order:
            for _, other in IMPORT.findall(modules[name]):
                visit(other, (*above, name))
            order.append(name)

    visit(start)
    parts = []
    for name in order:
        text = modules[name]
        exported = EXPORT.findall(text)
        text = IMPORT.sub(_binding, text)
        text = re.sub(r"^export (?=(?:async )?(?:function|const|class) )", "", text, flags=re.MULTILINE)
        if re.search(r"^(?:import|export)\b", text, re.MULTILINE):
            raise ValueError(f"{name} has an import or export that cannot be bundled")
        parts.append(f"const {_variable(name)} = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();\n")
    return '"use strict";\n(() => {\n' + "".join(parts) + "})();\n"


def _binding(match: re.Match[str]) -> str:
    names, module = match[1], _variable(match[2])
    if names.startswith("*"):
        return f"const {names.removeprefix('* as ')} = {module};"
    return f"const {names.replace(' as ', ': ')} = {module};"


def _variable(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)
