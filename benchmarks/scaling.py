"""How time and memory grow: with tokens, with training points, with replicas on a machine, with runs in a queue."""

from __future__ import annotations

import functools
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Action, peak_bytes
from benchmarks.processes import ONE_THREAD, together, trainers
from benchmarks.steps import BATCH
from saccade import models
from saccade.data.images import Source
from saccade.lab import launch
from saccade.lab.store import Lab
from saccade.layers import short_heads
from saccade.spec import Recipe, Run, Settings, Task
from saccade.training import cost
from saccade.training.loop import fit

Row = dict[str, Any]
TOKENS, POINTS, RUNS = (100, 196, 400, 784), (256, 512, 1024, 2048), (2, 4, 8, 16)
TOGETHER = (1, 2, 4, 8)
REPEATS = 3


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y on log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def attention(attend: Callable[..., torch.Tensor], tokens: int) -> Action:
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(4, 1, 6, tokens, generator=g, requires_grad=True) for _ in range(3))
    return lambda: torch.autograd.grad(attend(q, k, v).square().sum(), (q, k, v))


def epoch(points: int) -> Action:
    """One pass over p pictures, with all that a run does besides."""
    data = Source("points", Settings(of="procedural_textures", p=points), 0)
    model = models.build("basic_cnn", seed=0, width=4)
    recipe = Recipe(images=points, batch=32, watch=0)
    data("train")
    return lambda: list(fit(model, data, recipe))


def curves() -> Iterator[tuple[str, str, Sequence[int], Callable[[int], Action]]]:
    yield "short-head attention, ours", "tokens", TOKENS, functools.partial(attention, short_heads.attend)
    yield "short-head attention, dense", "tokens", TOKENS, functools.partial(attention, short_heads.dense)
    yield "an epoch of CNN(4), batch 32", "training points", POINTS, epoch


def timed() -> Iterator[Row]:
    for name, of, xs, make in curves():
        spent = []
        for x in xs:
            action = make(x)
            action()  # the first call pays for set-up
            each = []
            for _ in range(REPEATS):
                began = time.process_time()
                action()
                each.append(time.process_time() - began)
            spent.append(min(each))
        yield {"name": name, "of": of, "x": list(xs), "seconds": spent, "exponent": exponent(xs, spent)}


def weighed() -> Iterator[Row]:
    """In a process that was started with FRESH_PAGES."""
    for name, of, xs, make in curves():
        peaks = [peak_bytes(make(x)) for x in xs]
        if all(peaks):
            sizes = [float(p or 0) for p in peaks]
            yield {"name": name, "of": of, "bytes": sizes, "exponent": exponent(xs, sizes)}


def predicted() -> Iterator[Row]:
    """The cost model behind --dry-run, fitted as it does, and how it fares at a batch that it has not seen."""
    nets = ("basic_cnn", {"width": 10}), ("basic_vit", {"dim": 128}), ("basic_vit", {"dim": 64, "depth": 3})
    for net, args in nets:
        told = {}
        for batch in (32, 128):
            run = Run(
                net,
                "points",
                Recipe(images=1024, batch=batch),
                0,
                Settings(args),
                Settings(of="procedural_textures", p=512),
            )
            told[batch] = cost.cost(run)
        line = [told[32]["step_seconds"] + told[32]["image_seconds"] * n for n in (32, 128)]
        real = told[128]["step_seconds"] + told[128]["image_seconds"] * 128
        yield {
            "name": net,
            "args": args,
            "fixed": told[32]["step_seconds"],
            "picture": told[32]["image_seconds"],
            "predicted": line[1],
            "measured": real,
            "ratio": line[1] / real,
        }


def replicas() -> Row:
    """Seconds a picture of the whole machine, by the number of processes that train."""
    counts = range(1, launch.cores() + 1)
    spent = []
    with trainers(*(("library", seed, ONE_THREAD) for seed in counts)) as made:
        together(made, 20)
        for n in counts:
            spent.append(together(made[:n], 300) / (300 * n * BATCH))
    return {
        "name": f"LeNet replicas, batch {BATCH}: seconds a picture",
        "of": "processes",
        "x": list(counts),
        "seconds": spent,
        "exponent": exponent(list(counts), spent) if len(spent) > 1 else 0.0,
    }


def lockstep() -> Row:
    """Seconds a picture of one process, by the number of replicas that it trains together."""
    spent = []
    with trainers(*((f"group:{n}", 0, ONE_THREAD) for n in TOGETHER)) as made:
        for n, trainer in zip(TOGETHER, made, strict=True):
            together([trainer], 20 * n)  # its own trial is over then
            spent.append(together([trainer], 320) / (320 * BATCH))
    return {
        "name": f"LeNet replicas in lock-step, batch {BATCH}: seconds a picture",
        "of": "replicas",
        "x": list(TOGETHER),
        "seconds": spent,
        "exponent": exponent(TOGETHER, spent),
    }


def runs() -> Row:
    """Wall time of a queue of equal short runs, with starting the workers, and the largest worker's memory."""
    spent = []
    for n in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            recipe = Recipe(images=12_800, batch=16, watch=1)
            args = Settings(digits="procedural_digits", scenes="procedural_textures")
            tasks = [Task(Run("lenet", "digits_on_backgrounds", recipe, seed, Settings(), args)) for seed in range(n)]
            began = time.perf_counter()
            for _ in launch.local(tasks, Lab(folder).open(), places=["cpu"] * launch.cores()):
                pass
            spent.append(time.perf_counter() - began)
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "name": "a queue of short LeNet runs, from nothing",
        "of": "runs",
        "x": list(RUNS),
        "seconds": spent,
        "exponent": exponent(RUNS, spent),
        "largest_worker": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit,
    }
