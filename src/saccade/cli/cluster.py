"""Commands about more machines than this one."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import Positional, arg

from saccade import registry
from saccade.cli.flags import Device, Json, LabDir, Plugin, ScaleName, Set, Study
from saccade.cli.parsing import command, out, settings
from saccade.spec import SaccadeError, plain


@command()
def plan(
    study: Positional[Study],
    scale: ScaleName = "small",
    set: Set = (),
    runs: Annotated[int | None, arg(metavar="N", help="default: as many as the study has at this scale")] = None,
    nodes: Annotated[int, arg(metavar="N")] = 1,
    cores: Annotated[int | None, arg(metavar="N", help="of a node; default: as many as this machine has")] = None,
    node_life: Annotated[float, arg(metavar="HOURS", help="between losses of one node, on average")] = 720.0,
    price: Annotated[float, arg(metavar="X", help="of one core for one hour, in any currency")] = 0.0,
    lab: LabDir = "lab",
    device: Device = "cpu",
    plugin: Plugin = (),
    json: Json = False,
) -> None:
    """What a sweep would take on a cluster: time, losses, store, index and cost, simulated from figures measured here.

    The study's own runs are repeated, in their proportions, until there are as many as asked for."""
    from saccade.cli.terminal import duration
    from saccade.lab import forecast, launch, pipeline
    from saccade.lab import plan as planning

    for file in plugin:
        registry.load_plugin(file)
    for name, value in (("--runs", runs), ("--nodes", nodes), ("--cores", cores)):
        if value is not None and not 1 <= value <= 10**10:
            raise SaccadeError(f"{name} must be at least 1 and at most ten thousand million, not {value}.")
    if not node_life > 0 or price < 0:
        raise SaccadeError("--node-life must be above 0 and --price must not be negative.")
    session = pipeline.open_session(study, scale, lab, settings(set))
    full_plan = planning.everything(session.tasks)
    cost = planning.price(full_plan, session.lab.open(), device, plugin)
    sweep = forecast.Sweep(
        runs or len(session.tasks), nodes, cores or launch.cores(), life=3600 * node_life, price=price
    )
    figures = forecast.measure(session.lab, list(cost.seconds.values()))
    ahead = forecast.simulate(figures, sweep)
    if json:
        out({"figures": plain(figures), "sweep": plain(sweep), "forecast": plain(ahead)})
        return
    each = sum(figures.seconds) / max(1, len(figures.seconds))
    lines = {
        "runs": f"{sweep.runs:,}, {duration(each)} of one core each on average, as measured here",
        "cluster": f"{sweep.nodes:,} nodes of {sweep.cores} cores",
        "time": f"{duration(ahead.wall)} ({duration(ahead.ideal)} without overhead, waiting and losses)",
        "cores": f"{ahead.core_seconds / 3600:,.1f} hours of training, {100 * ahead.busy:.0f} % of the cluster's time",
        "losses": f"{ahead.lost_nodes:,.1f} nodes lost, {ahead.redone / 3600:,.2f} core hours done twice, no run lost",
        "store": f"{ahead.bytes / 1e9:,.1f} GB in {ahead.files:,.0f} files, {ahead.requests:,.0f} requests per second",
        "index": f"{duration(ahead.index)} to build, once",
        "cost": f"{ahead.cost:,.2f}"
        if price
        else f"{ahead.wall * nodes * sweep.cores / 3600:,.1f} core hours (--price)",
    }
    for name, text in lines.items():
        print(f"{name:<8} {text}")
    for text in ahead.warnings:
        print(f"NOTE     {text}")
