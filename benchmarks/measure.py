"""Two ways to compute one thing, timed in turns: ratios survive a busy machine, absolute times do not."""

from __future__ import annotations

import gc
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from saccade.profiling.measure import FUSED

Action = Callable[[], object]

# What glibc needs so that every larger tensor gets fresh pages and gives them back. Otherwise a measured process
# reuses what was freed before, and peaks of small batches look up to three times too good.
FRESH_PAGES = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "0"}

FEWEST = 5
PATIENCE = 5.0


@dataclass(frozen=True)
class Pair:
    """One row before it is measured. `ours` and `peer` do the same work; `error` says how far apart they end."""

    name: str
    setting: str
    against: str  # what the peer is, with the version of what it comes from
    aim: float
    ours: Action
    peer: Action
    equal: str  # what is compared
    error: Callable[[], float]
    tolerance: float
    memory_aim: float | None = None
    counted: bool = True  # whether torch can count the operations of `ours`; it cannot see into a C kernel
    clock: str = "cpu"


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, a value a round."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]


def difference(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The greatest distance between two lists of tensors, each in units of the largest entry of its peer."""
    if len(mine) != len(theirs):
        raise ValueError(f"{len(mine)} tensors cannot equal {len(theirs)}")
    worst = 0.0
    for a, b in zip(mine, theirs, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"shapes {tuple(a.shape)} and {tuple(b.shape)} differ")
        if not b.numel():
            continue
        far = (a.detach().double() - b.detach().double()).abs().max().item()
        size = b.detach().double().abs().max().item()
        if math.isnan(far) or math.isnan(size):
            return math.inf
        worst = max(worst, far / size if size else far)
    return worst


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Low and high end for the median from order statistics, and the chance that they hold it, 95 % if it can be."""
    x, n = sorted(values), len(values)
    low, chance = 0, 1 - 2 * 0.5**n
    while low + 1 < (n - 1) / 2:
        inner = 1 - 2 * sum(math.comb(n, i) for i in range(low + 2)) * 0.5**n
        if inner < 0.95:
            break
        low, chance = low + 1, inner
    return x[low], x[n - 1 - low], max(0.0, chance)


def alternate(first: Action, second: Action, *, rounds: int, seconds: float) -> tuple[Timing, Timing]:
    """Time both in turns, the order reversed every other round, about `seconds` for each side of a round.

    On a machine so busy that it takes PATIENCE times as long, the rounds end early, but not before FEWEST.
    """
    actions = (first, second)
    counts = [_calls(action, seconds) for action in actions]
    cpu: tuple[list[float], list[float]] = ([], [])
    wall: tuple[list[float], list[float]] = ([], [])
    start = time.perf_counter()
    for turn in range(rounds):
        if turn >= FEWEST and time.perf_counter() - start > PATIENCE * 2 * rounds * seconds:
            break
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            gc.collect()
            began, worked = time.perf_counter(), time.process_time()
            for _ in range(counts[side]):
                actions[side]()
            cpu[side].append((time.process_time() - worked) / counts[side])
            wall[side].append((time.perf_counter() - began) / counts[side])
    return Timing(tuple(cpu[0]), tuple(wall[0])), Timing(tuple(cpu[1]), tuple(wall[1]))


def _calls(action: Action, seconds: float) -> int:
    action()  # the first call pays for set-up
    began = time.perf_counter()
    action()
    return max(1, round(seconds / max(1e-7, time.perf_counter() - began)))


def ratios(ours: Timing, peer: Timing, clock: str) -> dict[str, Any]:
    """How many times faster, round by round, on the clock asked for; the other clock's median beside it."""
    each = {
        name: [p / max(1e-12, o) for o, p in zip(getattr(ours, name), getattr(peer, name), strict=True)]
        for name in ("cpu", "wall")
    }
    low, high, chance = interval(each[clock])
    return {
        "ratio": statistics.median(each[clock]),
        "low": low,
        "high": high,
        "chance": chance,
        "clock": clock,
        "ratio_cpu": statistics.median(each["cpu"]),
        "ratio_wall": statistics.median(each["wall"]),
        "rounds": len(each[clock]),
        "ours_seconds": {"cpu": statistics.median(ours.cpu), "wall": statistics.median(ours.wall)},
        "peer_seconds": {"cpu": statistics.median(peer.cpu), "wall": statistics.median(peer.wall)},
    }


def time_pair(pair: Pair, *, rounds: int, seconds: float, gemm: float) -> dict[str, Any]:
    """A row. Where the two do not compute the same thing there is no ratio, and the row says so."""
    row = describe(pair)
    row["error"] = pair.error()
    row["is_equal"] = row["error"] <= pair.tolerance
    if not row["is_equal"]:
        return row
    row |= ratios(*alternate(pair.ours, pair.peer, rounds=rounds, seconds=seconds), pair.clock)
    if pair.counted and (work := flops(pair.ours)):
        speed = work / row["ours_seconds"]["cpu"]
        row |= {"flops": work, "flops_per_second": speed, "share_of_gemm": speed / gemm}
    return row


def describe(pair: Pair) -> dict[str, Any]:
    return {
        "name": pair.name,
        "setting": pair.setting,
        "against": pair.against,
        "aim": pair.aim,
        "equal": pair.equal,
        "tolerance": pair.tolerance,
        "memory_aim": pair.memory_aim,
    }


def flops(action: Action) -> int:
    """Operations of matrix products and convolutions in one call, as torch counts them."""
    with _Counter() as counter:
        action()
    return int(counter.total)


# torch's own table leaves out its fused attention on a CPU
COUNTED = {**flop_registry, **{operation: shape_wrapper(count) for operation, count in FUSED.items()}}


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """torch's own counter also follows modules, and then cannot count a call of autograd.grad."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if (count := COUNTED.get(func._overloadpacket)) is not None:
            self.total += int(count(*args, **(kwargs or {}), out_val=out))
        return out


def gemm_speed(size: int = 1024, rounds: int = 7) -> float:
    """FLOP/s of a square float32 matrix product in this process, on its thread: the yardstick."""
    a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(i)) for i in range(2))
    out = torch.mm(a, b)
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        torch.mm(a, b, out=out)
        spent.append(time.process_time() - began)
    return 2 * size**3 / statistics.median(spent)


def peak_bytes(action: Action) -> int | None:
    """By how much one call raises the resident set, at its peak, in a forked child. None where that cannot be read.

    The process must have been started with FRESH_PAGES in its environment.
    """
    if not Path("/proc/self/status").exists() or torch.get_num_threads() != 1:
        return None
    action()  # buffers that libraries keep for good belong to neither side
    gc.collect()
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = _resident("VmRSS")
            kept = action()
            os.write(writing, json.dumps(_resident("VmHWM") - before).encode())
            del kept
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        told = stream.read()
    os.waitpid(child, 0)
    return int(json.loads(told)) if told else None


def _resident(field: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text("utf-8").splitlines() if x.startswith(field + ":"))
    return int(line.split()[1]) * 1024
