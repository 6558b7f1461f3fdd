"""Where work is done: on this machine, or on a Ray cluster. What `--on` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from saccade.cli import terminal
from saccade.lab import cluster, launch, pipeline, plan
from saccade.lab.store import Lab
from saccade.spec import SaccadeError


class LeftRunning(Exception):
    """The work goes on without this command; the text says how to come back to it."""


@dataclass(frozen=True)
class Local:
    """Worker processes of this machine."""

    def seats(self, device: str, jobs: int | None) -> list[str]:
        return launch.devices(device, jobs)

    def price(self, todo: plan.Plan, lab: Lab, device: str, plugins: Sequence[str]) -> plan.Cost:
        return plan.price(todo, lab, device, plugins)

    def share(self, places: Sequence[str], cost: plan.Cost, jobs: int | None) -> list[str]:
        return launch.share(places, cost.memory, jobs)

    def perform(
        self,
        session: pipeline.Session,
        todo: plan.Plan,
        cost: plan.Cost,
        *,
        places: Sequence[str],
        jobs: int | None = None,
        plugins: Sequence[str] = (),
        retry: bool = False,
        quiet: bool = False,
    ) -> terminal.Board:
        work = partial(launch.local, silence=launch.silence_of(cost.seconds.values()))
        return pipeline.perform(
            session, todo, cost, places=places, plugins=plugins, retry=retry, quiet=quiet, work=work
        )


@dataclass(frozen=True)
class OnRay:
    """A Ray cluster. `detach` leaves the work running; otherwise `ask` decides when this command is interrupted."""

    address: str = ""
    detach: bool = False
    ask: Callable[[str], bool] = lambda question: False

    def seats(self, device: str, jobs: int | None) -> list[str]:
        own = cluster.connect(self.address)
        if own and self.detach:
            cluster.disconnect()
            raise SaccadeError(
                "--detach needs a Ray cluster that outlives this command: `ray start --head`, then --on ray:HOST:PORT."
            )
        return cluster.devices(device, jobs)

    def price(self, todo: plan.Plan, lab: Lab, device: str, plugins: Sequence[str]) -> plan.Cost:
        return plan.price(todo, lab, device, plugins, cluster.costs, where=f"ray {self.address}")

    def share(self, places: Sequence[str], cost: plan.Cost, jobs: int | None) -> list[str]:
        need = self._need(places[0], cost)
        cluster.check_room(need)
        return list(places) * (1 if jobs or not need.gpu else int(1 / need.gpu))

    def _need(self, place: str, cost: plan.Cost) -> cluster.Need:
        return cluster.need_of(place, cost.resident, cost.memory, cost.device_memory)

    def perform(
        self,
        session: pipeline.Session,
        todo: plan.Plan,
        cost: plan.Cost,
        *,
        places: Sequence[str],
        jobs: int | None = None,
        plugins: Sequence[str] = (),
        retry: bool = False,
        quiet: bool = False,
    ) -> terminal.Board:
        name = cluster.name_of(session.folder)
        need, silence = self._need(places[0], cost), launch.silence_of(cost.seconds.values())
        work = partial(cluster.on_ray, name=name, jobs=jobs, need=need, silence=silence)
        back = f"`saccade status {session.study.name} --scale {session.scale}` counts; the same command shows it again."
        if self.detach:
            events = work(plan.longest_first(todo, cost), session.lab, places=places, plugins=plugins, retry=retry)
            next(events)  # handed over
            raise LeftRunning(f"{len(todo.todo)} runs were handed to the cluster; {back}")
        try:
            return pipeline.perform(
                session, todo, cost, places=places, plugins=plugins, retry=retry, quiet=quiet, work=work
            )
        except KeyboardInterrupt:
            if not cluster.is_own() and self.ask("Leave the work running on the cluster?"):
                raise LeftRunning(f"the work goes on on the cluster; {back}") from None
            cluster.cancel(name)
            raise
        finally:
            if cluster.is_own():
                cluster.disconnect()


Where = Local | OnRay


def parse(on: str, detach: bool = False, ask: Callable[[str], bool] = lambda question: False) -> Where:
    """`local`, `ray` or `ray:HOST:PORT`."""
    kind, _, address = on.partition(":")
    if kind == "local" and not address:
        if detach:
            raise SaccadeError("--detach needs --on ray:HOST:PORT; work on this machine ends with its command.")
        return Local()
    if kind != "ray":
        raise SaccadeError(f'--on takes local, ray or ray:HOST:PORT, not "{on}".')
    return OnRay(address, detach, ask)
