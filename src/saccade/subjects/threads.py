"""As many threads of torch as pay: on a busy machine two threads that wait for each other are far slower than one."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator

import torch

GAIN = 0.85  # of the time of one thread that several may take, so that they are worth it
ROUNDS, CALLS = 4, 12
LONG = 0.2  # seconds, after which it is known


@contextlib.contextmanager
def that_pay() -> Iterator[int]:
    """Inside, torch has its threads, or one where these do not help at this moment; afterwards as many as before."""
    before = torch.get_num_threads()
    if before > 1 and not _pay(before):
        torch.set_num_threads(1)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def _pay(many: int) -> bool:
    """Whether small products and element-wise work, as in small models, gain by this many threads."""
    x, w = torch.rand(512, 192), torch.rand(192, 192)
    spent: dict[int, list[float]] = {1: [], many: []}
    for _ in range(ROUNDS):
        for threads, times in spent.items():  # in turn: both see the same load
            torch.set_num_threads(threads)
            torch.relu(x @ w)  # the first call with a new number of threads starts them
            for _ in range(CALLS):
                began = time.perf_counter()
                torch.relu(x @ w)
                times.append(time.perf_counter() - began)
                if sum(times) > LONG:
                    break
        if sum(spent[many]) > LONG:
            break
    return statistics.fmean(spent[many]) <= GAIN * statistics.fmean(spent[1])
