"""Where work is done: on this machine, or on a Ray cluster. What `--on` names."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from saccade.lab import cluster, launch, plan, supervisor
from saccade.lab.events import Event
from saccade.lab.store import Lab
from saccade.spec import SaccadeError, Task, digest


class LeftRunning(Exception):
    """The work continues without this command; the text says how to return to it."""


@dataclass
class Work:
    """Work under way: its events, and what becomes of it when the command is interrupted."""

    events: Generator[Event, None, None]

    @property
    def interrupt(self) -> str:
        """What Ctrl-C does, in words."""
        return "saves and stops"

    def interrupted(self) -> None:
        """Closing the events makes the workers save what they are working on."""
        self.events.close()


@dataclass(frozen=True)
class Local:
    """Worker processes of this machine."""

    def words(self) -> str:
        return ""

    def seats(self, device: str, jobs: int | None) -> list[str]:
        return launch.devices(device, jobs)

    def price(self, todo: plan.Plan, lab: Lab, device: str, plugins: Sequence[str]) -> plan.Cost:
        return plan.price(todo, lab, device, plugins)

    def share(self, places: Sequence[str], cost: plan.Cost, jobs: int | None) -> list[str]:
        return launch.share(places, cost.memory, jobs)

    def begin(
        self,
        todo: plan.Plan,
        cost: plan.Cost,
        lab: Lab,
        *,
        places: Sequence[str],
        jobs: int | None = None,
        plugins: Sequence[str] = (),
        retry: bool = False,
        seconds: float | None = None,
    ) -> Work:
        return Work(
            launch.local(
                plan.queue(todo, cost, len(places), seconds),
                lab,
                places=places,
                plugins=plugins,
                retry=retry,
                silence=launch.silence_of(cost.seconds.values()),
            )
        )


BACK = "`saccade status` counts what is done, and the same command shows it again and writes the report."


@dataclass
class WorkOnRay(Work):
    """`ask` decides whether an interrupted command leaves its work running; a cluster of its own ends with it."""

    name: str
    ask: Callable[[str], bool]

    @property
    def interrupt(self) -> str:
        return "saves and stops" if cluster.is_own() else "asks whether to leave it running"

    def interrupted(self) -> None:
        if not cluster.is_own() and self.ask("Leave the work running on the cluster?"):
            cluster.leave(self.name)
            self.events.close()
            raise LeftRunning(f"the work continues on the cluster; {BACK}")
        self.events.close()
        cluster.cancel(self.name)


@dataclass(frozen=True)
class OnRay:
    """A Ray cluster. `detach` hands the work over and leaves."""

    address: str = ""
    detach: bool = False
    ask: Callable[[str], bool] = lambda question: False

    def words(self) -> str:
        """Without an address Ray joins whatever cluster it finds on this machine: the user is told which."""
        return " on Ray, started for this command" if cluster.is_own() else f" on Ray at {cluster.address()}"

    def seats(self, device: str, jobs: int | None) -> list[str]:
        if cluster.connect(self.address) and self.detach:
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

    def _need(self, place: str, cost: plan.Cost) -> supervisor.Need:
        return cluster.need_of(place, cost.resident, cost.memory, cost.device_memory)

    def begin(
        self,
        todo: plan.Plan,
        cost: plan.Cost,
        lab: Lab,
        *,
        places: Sequence[str],
        jobs: int | None = None,
        plugins: Sequence[str] = (),
        retry: bool = False,
        seconds: float | None = None,
    ) -> Work:
        name = name_of(lab, todo.tasks)
        events = cluster.on_ray(
            plan.queue(todo, cost, len(places), seconds),
            lab,
            places=places,
            plugins=plugins,
            retry=retry,
            name=name,
            jobs=jobs,
            need=self._need(places[0], cost),
            silence=launch.silence_of(cost.seconds.values()),
        )
        if self.detach:
            next(events)  # handed over
            cluster.leave(name)
            events.close()
            raise LeftRunning(f"{len(todo.todo)} runs were handed to the cluster; {BACK}")
        return WorkOnRay(events, name, self.ask)


Where = Local | OnRay


def name_of(lab: Lab, tasks: Sequence[Task]) -> str:
    """The name of this work on a cluster: the same command has the same tasks, whatever is finished of them."""
    return f"saccade-{digest([str(lab.root.resolve()), sorted(t.run.key for t in tasks)], 16)}"


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
