"""The worker process: one task per line of standard input, one event per line of standard output."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import sys
import threading

import torch

from saccade import registry
from saccade.lab import together
from saccade.lab.events import Cost, Event, Ready, Refused
from saccade.lab.store import Lab
from saccade.spec import Run, SaccadeError, Task
from saccade.training import cost, distributed
from saccade.training.loop import train


def follow() -> None:
    """What every process of `torchrun` but the first does: train along, write and print nothing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the first process saves, then ends this one
    device = distributed.place(distributed.await_notice())
    if device == distributed.NONE:
        return
    distributed.join(device)
    while (order := distributed.receive())[0] is not None:
        for plugin in order[0].get("plugins", ()):
            registry.load_plugin(plugin)
        if "run" in order[0]:
            with contextlib.suppress(
                SaccadeError, distributed.Closed
            ):  # the first process has the same error and reports it
                for _ in train(Run.parse(order[0]["run"]), device, order[1] or None):
                    pass
    distributed.leave()


def main() -> None:
    """Work until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lab", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plugin", action="append", default=[])
    arguments = parser.parse_args()
    lab = Lab(arguments.lab, opened=True)
    # Standard output carries events only; a user's model that prints must not break them.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    for plugin in arguments.plugin:
        registry.load_plugin(plugin)
    inbox: queue.Queue[str | None] = queue.Queue()
    stop = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            inbox.put(line)
        stop.set()  # the launcher asked us to stop, or has ended: save and end
        inbox.put(None)

    def tell(event: Event) -> None:
        try:
            out.write(json.dumps(event.plain()) + "\n")
            out.flush()
        except BrokenPipeError:
            stop.set()

    threading.Thread(target=listen, daemon=True).start()
    tell(Ready())
    while (line := inbox.get()) is not None and not stop.is_set():
        order = json.loads(line)
        tasks = [Task.parse(values) for values in order["tasks"]]
        if order["do"] == "cost":
            try:
                tell(Cost(at=order["at"], values=cost.cost(tasks[0].run, arguments.device)))
            except SaccadeError as error:
                tell(Refused(reason=str(error)))
            continue
        if distributed.started() and distributed.current().size == 1:
            distributed.give_notice(arguments.device)
            distributed.join(arguments.device)
            distributed.send({"plugins": arguments.plugin})
        for event in together.perform(lab, tasks, arguments.device, stop.is_set, order["retry"]):
            tell(event)
    if distributed.current().size > 1:
        distributed.send(None)
        distributed.leave()


if __name__ == "__main__":
    main()
