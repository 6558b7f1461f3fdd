"""`python -m tests.fuzz --inputs 1000000`: changed bytes into every parser. Single-threaded; use `nice`.

What a parser may not do with them is written to tests/fuzz/corpus/, which the tests replay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.targets import PARSERS, Target, targets

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 5  # for one input; more is a hang
LONGEST = 20_000  # bytes that a changed input may grow to


def changed(target: Target, draw: random.Random) -> bytes:
    """A seed with up to eight changes: bits, bytes, cuts, repetitions, pieces of others, words that mean something."""
    raw = bytearray(draw.choice(target.seeds))
    for _ in range(draw.randint(1, 8)):
        at = draw.randint(0, len(raw))
        kind = draw.randint(0, 7)
        if kind == 0 and raw:
            raw[min(at, len(raw) - 1)] ^= 1 << draw.randint(0, 7)
        elif kind == 1 and raw:
            raw[min(at, len(raw) - 1)] = draw.randint(0, 255)
        elif kind == 2:
            del raw[at : at + draw.randint(1, 16)]
        elif kind == 3:
            raw[at:at] = draw.randbytes(draw.randint(1, 8))
        elif kind == 4:
            raw[at:at] = raw[at : at + draw.randint(1, 64)] * draw.randint(1, 3)
        elif kind == 5:
            other = draw.choice(target.seeds)
            cut = draw.randint(0, len(other))
            raw[at:] = other[cut:]
        elif kind == 6 and target.words:
            word = draw.choice(target.words)
            raw[at : at + (len(word) if draw.random() < 0.5 else 0)] = word
        elif draw.random() < 0.2:
            del raw[at:]
    return bytes(raw[:LONGEST])


def tried(target: Target, raw: bytes, folder: Path) -> str:
    """Nothing, or the trace of what it may not do."""
    try:
        target.parse(raw, folder)
    except target.refusals:
        pass
    except Exception:
        return traceback.format_exc()
    return ""


def fuzz(target: Target, inputs: int, seed: int) -> Iterator[tuple[bytes, str]]:
    draw = random.Random(f"{target.name} {seed}")

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    memory = Path("/dev/shm")  # where there is one: millions of small files need no disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for _ in range(inputs):
            raw = changed(target, draw)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            said = tried(target, raw, Path(folder))
            signal.setitimer(signal.ITIMER_REAL, 0)
            if said:
                yield raw, said


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    flags.add_argument("--inputs", type=int, default=10_000, help="for each parser")
    flags.add_argument("--parser", choices=PARSERS, help="only this one")
    flags.add_argument("--seed", type=int, default=0)
    asked = flags.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A parser that believes a header's size must be refused, not the machine be filled.
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, resource.RLIM_INFINITY))
    warnings.simplefilter("error")  # a warning is no sentence for a user
    failed = False
    for target in targets():
        if asked.parser not in (None, target.name):
            continue
        began, seen = time.perf_counter(), {}
        for raw, said in fuzz(target, asked.inputs, asked.seed):
            lines = said.strip().splitlines()
            where = lines[-1].partition(":")[0] + next((x for x in reversed(lines) if "src/saccade" in x), "")
            if where not in seen:
                seen[where] = said
                CORPUS.mkdir(exist_ok=True)
                name = f"{target.name.replace(' ', '_')}-{hashlib.sha256(raw).hexdigest()[:10]}"
                (CORPUS / name).write_bytes(raw)
                print(f"{target.name}: {name}\n{said}", flush=True)
        failed |= bool(seen)
        spent = time.perf_counter() - began
        told = {"parser": target.name, "inputs": asked.inputs, "defects": len(seen), "seconds": round(spent, 1)}
        print(json.dumps(told), flush=True)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
