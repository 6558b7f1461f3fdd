"""The processes that time and weigh: `python -m benchmarks.inside time|memory|arms|grow|swell|cost`, JSON lines."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks import arms, images, layers, load, nets, profiles, scaling
from benchmarks.measure import Pair, describe, gemm_speed, peak_bytes, time_pair

QUICK = {"rounds": 5, "seconds": 0.12}
FULL = {"rounds": 11, "seconds": 0.2}


def pairs(quick: bool, only: str) -> Iterator[Pair | str]:
    kinds = (nets, layers, images, profiles)
    cases: list[Callable[[], Pair | str]] = [case for kind in kinds for case in kind.cases(quick)]
    for case in cases:
        made = case()
        if only in (made if isinstance(made, str) else f"{made.name} {made.setting} {made.against}"):
            yield made


def timed(quick: bool, only: str) -> Iterator[dict[str, Any]]:
    yardstick = gemm_speed()
    yield {"gemm": yardstick}
    for pair in pairs(quick, only):
        if isinstance(pair, str):
            yield {"absent": pair}
        else:
            budget = QUICK if quick else FULL
            with load.watched() as beside:
                row = time_pair(pair, rounds=int(budget["rounds"]), seconds=budget["seconds"], gemm=yardstick)
            yield {"row": row | beside}


def weighed(quick: bool, only: str) -> Iterator[dict[str, Any]]:
    for pair in pairs(quick, only):
        if isinstance(pair, str) or pair.memory_aim is None:
            continue
        peaks = [peak_bytes(action) for action in (pair.ours, pair.peer)]
        yield {"row": describe(pair) | {"memory": dict(zip(("ours", "peer"), peaks, strict=True))}}


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("what", choices=("time", "memory", "arms", "grow", "swell", "cost"))
    flags.add_argument("--quick", action="store_true")
    flags.add_argument("--only", default="")
    asked = flags.parse_args()
    torch.set_num_threads(1)
    kinds: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "time": lambda: timed(asked.quick, asked.only),
        "memory": lambda: weighed(asked.quick, asked.only),
        "arms": lambda: arms.measured(asked.only),
        "grow": scaling.timed,
        "swell": scaling.weighed,
        "cost": scaling.predicted,
    }
    for line in kinds[asked.what]():
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
