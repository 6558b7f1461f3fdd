"""The command line. Flags say where and how much; what is scientific is Python or an explicit --set."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

import saccade.cli.cards  # noqa: F401  # list and show come first in --help
from saccade import __version__, registry
from saccade.cli import output
from saccade.cli.flags import (
    Also,
    Device,
    Jobs,
    Json,
    LabDir,
    Like,
    Plugin,
    Quiet,
    RecipeSet,
    RedoDamaged,
    Retry,
    ScaleName,
    Set,
    Study,
)
from saccade.cli.parsing import command, out, parse, say, seconds_of, seed_count, seed_range, settings
from saccade.spec import Outcome, SaccadeError, Says, suggest


@command()
def train(
    model: Positional[Annotated[str, arg(metavar="MODEL", help="a registered name, or file.py:function")]],
    data: Annotated[
        str, arg(metavar="NAME", help="a set (cifar10, mnist), a construction, or folder:PATH")
    ] = "digits_on_backgrounds",
    seeds: Annotated[str, arg(metavar="A:B", help="one seed, or a range without its end")] = "0:5",
    images: Annotated[int, arg(metavar="N", help="training images seen")] = 8000,
    recipe: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help="optimizer, lr, batch ...")] = (),
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help="arguments of the model")] = (),
    data_set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help="arguments of the data")] = (),
    probes: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = ("accuracy",),
    retry: Retry = False,
    redo_damaged: RedoDamaged = False,
    lab: LabDir = "lab",
    device: Device = "auto",
    jobs: Jobs = None,
    plugin: Plugin = (),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train one model over seeds and print its accuracy; finished seeds are not trained again."""
    for file in plugin:
        registry.load_plugin(file)
    from saccade.lab import pipeline, single
    from saccade.lab.store import Lab

    tasks, needed = single.tasks(
        model,
        data,
        recipe={"images": images, **settings(recipe)},
        seeds=seed_range(seeds),
        model_args=settings(set),
        data_args=settings(data_set),
        probes=probes,
    )
    plugin = (*plugin, *needed)
    how = pipeline.How(
        device=device, jobs=jobs, plugins=plugin, quiet=quiet or json, retry=retry, redo_damaged=redo_damaged
    )
    table = pipeline.train(Lab(lab).open(), tasks, how)
    results = (Outcome.DIVERGED, Outcome.TIMEOUT)  # they gave none, but are none of the failures
    failed = any(not str(gap["why"]).startswith(results) for gap in table.gaps)
    if json:
        out({"rows": [dict(r) for r in table], "gaps": [dict(g) for g in (*table.gaps, *table.faults)]})
    for line in () if json else table.estimates():
        print(f"{tasks[0].run.model}: {line}")
    rows_of_probes = [(p, Lab(lab).rows(t.run.key, p)) for t in tasks for p in t.probes]
    for name in (
        () if json else dict.fromkeys(p.name for p, document in rows_of_probes if document and not document["rows"])
    ):
        say(f"probe {name} gave no rows; saccade show {name} says what it needs.")
    for gap in () if json else (*table.gaps, *table.faults):
        print(f"seed {gap['seed']}: {gap['why']}")
    if failed or table.faults:
        raise SystemExit(1)


@command()
def probe(
    scores: Annotated[str, arg(metavar="FILE", help="one row per image, one column per class")],
    labels: Annotated[str, arg(metavar="FILE", help="numbers of classes, or one column of 0 and 1 per class")],
    probe: Annotated[
        tuple[str, ...], arg(metavar="NAME ...", help="accuracy, top_k_matching; default: what fits the labels")
    ] = (),
    k: Annotated[int, arg(metavar="N", help="answers that count; default as many as an image has classes")] = 0,
    json: Json = False,
) -> None:
    """Measure a model from elsewhere by its scores: text files, comma or space separated."""
    from saccade.subjects import scores as files

    result = files.compare(scores, labels, probe, k)
    if json:
        out(result)
    else:
        print("\n".join(files.sentences(result)))


@command()
def run(
    study: Positional[Study],
    scale: ScaleName = "small",
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help="open choices (saccade show STUDY)")] = (),
    only: Annotated[str, arg(metavar="GLOB", help="only arms whose name matches, e.g. 'CNN*'")] = "",
    claims: Annotated[
        tuple[str, ...],
        arg(metavar="ID ...", help="train only the arms that these claims ask for; the report is of all claims"),
    ] = (),
    recipe: RecipeSet = (),
    also: Also = (),
    like: Like = "",
    dry_run: Annotated[bool, arg(help="print the plan with its cost on this machine, and stop")] = False,
    retry: Retry = False,
    redo_damaged: RedoDamaged = False,
    strict: Annotated[bool, arg(help="exit with 3 when a claim is contradicted")] = False,
    on: Annotated[str, arg(metavar="PLACE", help="local, ray, or ray:HOST:PORT of a Ray cluster")] = "local",
    detach: Annotated[bool, arg(help="hand the work to the Ray cluster and leave")] = False,
    seeds: Annotated[
        str, arg(metavar="N", help="seeds 0 to N - 1 for every arm, also as 0:N; default: the scale's own")
    ] = "",
    until: Annotated[
        str,
        arg(
            metavar="decided",
            help="look at 5, 10 and 20 seeds (at most --seeds); add them where claims (those of --claims) lack seeds",
        ),
    ] = "",
    budget: Annotated[
        str, arg(metavar="TIME", help="stop cleanly after so long, as in 90s, 45m or 2h; short runs go first then")
    ] = "",
    lab: LabDir = "lab",
    device: Device = "auto",
    jobs: Jobs = None,
    plugin: Plugin = (),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study: plan, train what is missing, measure, judge every claim, write the report.

    Finished runs are never done again; a stopped or killed call goes on where it was."""
    from saccade.cli import terminal
    from saccade.lab import pipeline, where
    from saccade.report import document

    for file in plugin:
        registry.load_plugin(file)
    if until not in ("", "decided"):
        raise SaccadeError(f'--until takes "decided", not "{until}".')
    number = seed_count(seeds)
    session = pipeline.open_session(
        study, scale, lab, settings(set), only, None if until else number, also, like, settings(recipe)
    )
    looks = pipeline.looks_up_to(number) if until else ()
    tell = terminal.printer(quiet or json)
    limit = seconds_of(budget) if budget else None
    how = pipeline.How(
        device=device,
        jobs=jobs,
        plugins=(*plugin, *(one for one in also if ".py:" in one)),
        retry=retry,
        redo_damaged=redo_damaged,
        quiet=quiet or json,
        seconds=limit,
        on=where.parse(on, detach, terminal.ask),
    )
    with terminal.progress_bar("data") as progress:
        tasks = pipeline.for_claims(session, claims)
        planned = pipeline.plan_work(session.lab, tasks, how, terminal.printer(quiet), progress)
    if until and dry_run:
        session, planned = pipeline.plan_until_decided(session, how, tell, claims, looks)
    todo = planned.todo
    summary = {
        "study": session.study.name,
        "scale": scale,
        "runs": len(todo.tasks),
        "complete": len(todo.complete),
        "to train": len(todo.train),
        "to measure": len(todo.measure),
        "failed": len(todo.failed),
        "seconds": round(planned.seconds, 1),
        "jobs": len(planned.places),
        "device": planned.places[0],
    }
    tell(f"{session.study.name} ({scale})   {planned.headline()}")
    labels = terminal.labels(todo.tasks)
    for task in todo.failed:
        done = session.lab.done(task.run.key) or {}
        tell(f"  {labels[task.run.key]} failed earlier ({done.get('reason', '')}); --retry tries it again")
    for key, faults in todo.faults.items():
        tell(f"  {labels[key]}: probe {'; '.join(faults)} (failed earlier); --retry measures again")
    if dry_run:
        arms = planned.cost.by_arm(todo.todo)
        if json:
            out({**summary, "arms": arms})
        else:
            terminal.print_plan(arms)
        return
    try:
        if until:
            session = pipeline.run_until_decided(session, how, tell, claims, looks)
        elif not pipeline.run(session, planned, how):
            tell(f"the budget of {budget} is spent; the same command goes on from here")
    except where.LeftRunning as left:
        tell(str(left))
        if json:
            out({**summary, "left running": True})
        return
    claim_tasks = pipeline.for_claims(session, claims)  # those of `--until decided` are known by now
    missing = pipeline.shortfall(session, claim_tasks, spent=limit is not None)
    if not len(session.table()):
        raise SystemExit(_nothing(session, missing, summary, json))
    written = pipeline.write(session)
    open_lines = pipeline.still_open(session, how) if limit is not None else []
    if json:
        out(
            {
                **summary,
                "trained": len(todo.train),
                "verdicts": list(written.verdicts),
                "report": {k: str(p) for k, p in written.paths.items()},
                "open": open_lines,
                "missing": missing,
            }
        )
    else:
        terminal.print_grid(document.terminal(written.verdicts))
        for line in open_lines:
            print(f"still open: {line}")
        print(f"\n{document.summary(written.verdicts)} The report:\n{written.paths['html'].resolve()}")
        for line in missing:
            tell(f"  {line}")
    if missing:
        raise SystemExit(1)
    if strict and any(v.says in (Says.CONTRADICTED, Says.DOES_NOT_HOLD) for v in written.verdicts):
        raise SystemExit(3)


def _nothing(session: Any, missing: Sequence[str], summary: dict[str, Any], json: bool) -> int:
    """What is said, and the exit code, when there is not a single row to report on."""
    if json:
        out({**summary, "missing": list(missing)})
    for line in missing:
        say(f"  {line}")
    say(f"saccade: no run of {session.study.name} at scale {session.scale} gave a result; nothing is reported.")
    return 1


@command()
def tune(
    study: Positional[Study],
    arm: Positional[str],
    grid: Annotated[tuple[str, ...], arg(metavar="NAME=A,B ...", help="settings of the recipe, as in lr=0.001,0.003")],
    seeds: Annotated[int, arg(metavar="N", help="seeds of their own, which no study uses")] = 3,
    images: Annotated[int, arg(metavar="N", help="training images seen; default: the arm's own number")] = 0,
    scale: ScaleName = "small",
    set: Set = (),
    lab: LabDir = "lab",
    device: Device = "auto",
    jobs: Jobs = None,
    plugin: Plugin = (),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Choose hyper-parameters on validation images and on seeds that no claim is tested on.

    Every point of the grid is trained and kept in the lab; test images are never looked at."""
    from saccade.lab import pipeline, tuning

    for file in plugin:
        registry.load_plugin(file)
    session = pipeline.open_session(study, scale, lab, settings(set))
    how = pipeline.How(device=device, jobs=jobs, plugins=plugin, quiet=quiet or json)
    grid_values = {name: value if isinstance(value, tuple) else (value,) for name, value in settings(grid).items()}
    results = tuning.tune(session, arm, grid_values, seeds=seeds, images=images, how=how)
    if json:
        out(results)
        return
    for t in results:
        reached = f"{t.accuracy.short()} %" if t.accuracy else "nothing"
        failures = f", {t.diverged} without a result" if t.diverged else ""
        print(f"{reached:<16} {', '.join(f'{k}={v}' for k, v in t.settings.items())}{failures}")
    print(f"validation accuracy over {seeds} seeds; kept in {session.lab.study_folder(session.study.name) / 'tuning'}")


@command()
def status(
    study: Positional[Annotated[str, arg(metavar="STUDY", help="one study; default: the whole lab")]] = "",
    scale: ScaleName = "small",
    set: Set = (),
    lab: LabDir = "lab",
    also: Also = (),
    like: Like = "",
    plugin: Plugin = (),
    watch: Annotated[bool, arg(help="look again every two seconds until Ctrl-C")] = False,
    json: Json = False,
) -> None:
    """Done, running, waiting, diverged, failed; disk used."""
    import time

    for file in plugin:
        registry.load_plugin(file)

    while True:
        result = _status(study, scale, settings(set), lab, also, like)
        if json:
            out(result)
        else:
            print("  ".join(f"{k}: {v}" for k, v in result.items()))
        if not watch:
            return
        time.sleep(2)


def _status(
    study: str, scale: str, chosen: dict[str, Any], folder: str, also: Sequence[str], like: str
) -> dict[str, Any]:
    from saccade.lab import index
    from saccade.lab.store import Lab

    lab, keys = Lab(folder), None
    if not (lab.root / "runs").is_dir():
        raise SaccadeError(f"no lab at {lab.root}; saccade run STUDY makes one, --lab DIR names another.")
    if study:
        from saccade.lab import pipeline, plan

        session = pipeline.open_session(study, scale, folder, chosen, also=also, like=like)
        keys = [plan.place_of(lab, t) for t in session.tasks]
    result, size, refreshed = index.status(lab, keys)
    if refreshed.read >= index.MANY:
        say(refreshed.sentence())
    counts = dict.fromkeys(("finished", "running", "waiting", *(o for o in Outcome if o is not Outcome.FINISHED)), 0)
    return {
        **({"study": study, "scale": scale} if study else {"lab": str(lab.root)}),
        "runs": refreshed.runs if keys is None else len(keys),
        **counts,
        **result,
        "disk": f"{size / 1e6:.1f} MB",
    }


@command()
def report(
    study: Positional[Study],
    scale: ScaleName = "small",
    set: Set = (),
    lab: LabDir = "lab",
    to: Annotated[str | None, arg(metavar="DIR", help="where to write; default inside the lab")] = None,
    format: Annotated[
        tuple[str, ...], arg(metavar="NAME ...", help="md, html, csv, tex (these by default), csv.xz (rows compressed)")
    ] = (),
    open: Annotated[bool, arg(help="show the HTML report in a browser")] = False,
    only: Annotated[str, arg(metavar="GLOB", help="only arms whose name matches")] = "",
    recipe: RecipeSet = (),
    also: Also = (),
    like: Like = "",
    plugin: Plugin = (),
    json: Json = False,
) -> None:
    """Write a study's report from the rows in the lab: Markdown, HTML, CSV, LaTeX, figures as SVG."""
    from saccade.lab import pipeline
    from saccade.report import document as reports

    for name in format:
        if name not in reports.ACCEPTED:
            raise SaccadeError(suggest("format", name, reports.ACCEPTED))
    for file in plugin:
        registry.load_plugin(file)
    session = pipeline.open_session(
        study, scale, lab, settings(set), only, also=also, like=like, recipe=settings(recipe)
    )
    paths = pipeline.write(session, Path(to) if to else None, format or reports.FORMATS).paths
    if json:
        out({k: str(p) for k, p in paths.items()})
    else:
        for path in paths.values():
            print(path)
    if open and "html" in paths:
        import webbrowser

        webbrowser.open(paths["html"].resolve().as_uri())


@command()
def figures(
    study: Positional[Study],
    scale: ScaleName = "small",
    set: Set = (),
    lab: LabDir = "lab",
    only: Annotated[str, arg(metavar="NAME", help="one figure (saccade show STUDY)")] = "",
    format: Annotated[str, arg(metavar="NAME", help="svg, pdf or png")] = "svg",
    to: Annotated[str | None, arg(metavar="DIR")] = None,
    recipe: RecipeSet = (),
    also: Also = (),
    like: Like = "",
    plugin: Plugin = (),
    json: Json = False,
) -> None:
    """Draw a study's figures from the rows in the lab."""
    from saccade.lab import pipeline, plan
    from saccade.report import document, draw

    if format not in ("svg", "pdf", "png"):
        raise SaccadeError(suggest("format", format, ("svg", "pdf", "png")))
    for file in plugin:
        registry.load_plugin(file)
    session = pipeline.open_session(study, scale, lab, settings(set), also=also, like=like, recipe=settings(recipe))
    figures_by_name = {f.name: f for f in session.study.figures}
    if only and only not in figures_by_name:
        raise SaccadeError(suggest("figure", only, figures_by_name))
    table = pipeline.check_rows(session, plan.table_of(session.lab, session.planned))
    folder, beside = Path(to) if to else session.folder / "figures", session.beside(table)
    data_by_name = {
        f.name: document.figure_of(f, table, beside) for f in figures_by_name.values() if only in ("", f.name)
    }
    paths = [draw.save(data, folder / f"{name}.{format}") for name, data in data_by_name.items() if data is not None]
    if only and not paths:
        raise SaccadeError(f"{only} has no rows yet; saccade run {session.study.name} --scale {scale} makes them.")
    if json:
        out([str(p) for p in paths])
    else:
        for path in paths:
            print(path)


from saccade.cli import care as care  # noqa: E402  # their commands come after these in --help
from saccade.cli import models as models  # noqa: E402

TRAINS = ("run", "train", "tune", "demo")  # the commands whose work goes on where it was stopped


def main(words: Sequence[str] | None = None) -> None:
    """Entry point: one sentence for each mistake; exit codes 0 fine, 1 failed, 2 wrong usage, 3 not reproduced."""
    from saccade.cli import cluster, demo, web  # noqa: F401 - they register their commands

    words = list(sys.argv[1:] if words is None else words)
    if words == ["--version"]:
        print(f"saccade {__version__}")
        return
    signal.signal(signal.SIGTERM, _save_and_stop)
    try:
        with output.guarded():
            parse(words)()
    except SaccadeError as error:
        say(f"saccade: {error}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        note = "; finished runs are kept and unfinished ones were saved. The same command goes on from here"
        say(f"\nstopped{note if words[:1] and words[0] in TRAINS else ''}.")
        raise SystemExit(130) from None


def _save_and_stop(*_: object) -> None:
    """SIGTERM saves as Ctrl-C does, also where Ctrl-C is switched off: `nohup saccade run ... &` ignores it."""
    output.told_to_end.set()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
