"""What was measured, as a table for the terminal and as the page docs/performance.md."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import arms, load, trees
from benchmarks import machine as whole
from saccade.lab import launch

Row = Mapping[str, Any]

HEAD = ("what", "setting", "aim", "measured", "memory aim", "memory measured", "largest error")


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": launch.cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def cells(row: Row) -> tuple[str, ...]:
    memory = row.get("memory")
    return (
        row["name"],
        row["setting"],
        f"{row['aim']:g}",
        measured(row),
        f"{row['memory_aim']:g}" if row["memory_aim"] else "",
        f"{memory['ratio']:.1f}" if memory else "",
        f"{row['error']:.0e}",
    )


def measured(row: Row) -> str:
    """The ratio with its interval; a star where the aim was missed, a mark where other programs were busy beside it."""
    if not row["is_equal"]:
        return "NOT EQUAL"
    missed = "" if row["ratio"] >= row["aim"] else " *"
    return f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}){missed}{busy(row)}"


def busy(row: Row) -> str:
    return f" BUSY: {row['others']:.1f} cores used by others" if load.is_busy(row) else ""


def line(row: Row) -> str:
    return f"{row['name']} ({row['setting']}): aim {row['aim']:g}, measured {measured(row)}"


def lab_line(row: Row) -> str:
    aim = f"aim below {_seconds(row['aim'])}, " if row["aim"] else ""
    missed = " *" if row["aim"] and row["seconds"] > row["aim"] else ""
    return f"{row['name']} ({row['setting']}): {aim}measured {_seconds(row['seconds'])}{missed}{busy(row)}"


def table(found: Row) -> str:
    rows = [HEAD, *(cells(r) for r in found["rows"])]
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEAD))]
    text = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    text.insert(1, "-" * len(text[0]))
    said = found["machine"]
    text += ["", *(lab_line(r) for r in found["lab"])]
    text += ["", *found["absent"], *(f"slower than the run before: {row}" for row in found.get("slower", ()))]
    text += [
        f"{said['cpu']}, {said['cores']} cores, torch {said['torch']}; "
        f"matrix product {found['gemm'] / 1e9:.0f} GFLOP/s on one thread; {found['seconds']:.0f} s in all; "
        "* below the aim"
    ]
    return "\n".join(text)


def slower(found: Row, before: Row) -> list[str]:
    """Rows whose whole interval lies below that of the run before, on the same kind of machine."""
    if found["machine"]["cpu"] != before["machine"]["cpu"]:
        return []
    kept = (r for r in before["rows"] if r["is_equal"] and not load.is_busy(r))
    past = {(r["name"], r["setting"], r["against"]): r for r in kept}
    told = []
    for row in (r for r in found["rows"] if r["is_equal"] and not load.is_busy(r)):
        old = past.get((row["name"], row["setting"], row["against"]))
        if old is not None and row["high"] < old["low"]:
            told.append(f"{row['name']} ({row['setting']}): {row['ratio']:.2f}, it was {old['ratio']:.2f}")
    return told


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *rows))


def arm(row: Row) -> str:
    """One arm of a study, as a line on a terminal."""
    if not row.get("is_equal", True):
        return f"{row['study']}: {row['arm']}: NOT EQUAL"
    return f"{row['study']}: {row['arm']}: {row['share']:.0%} of a matrix product, {row['ratio']:.2f}{busy(row)}"


def _arms(rows: Sequence[Row]) -> str:
    rows = [r for r in rows if "computed" in r and "seconds" in r]  # older tables counted and compared otherwise
    if not rows:
        return "Not measured in this run."
    head = ("study", "arm", "batch", "MFLOP", "time", "of a matrix product")
    head = (*head, "MFLOP computed", "of a matrix product", "core-hours", "plain modules")
    body = [
        (
            r["study"],
            r["arm"],
            str(r["batch"]),
            f"{r['flops'] / 1e6:.1f}",
            _seconds(r["seconds"]),
            f"{r['share']:.0%}",
            f"{r['computed'] / 1e6:.1f}",
            f"{r['share_computed']:.0%}",
            f"{r['images'] * r['seconds'] / 3600:.2f}",
            f"{r['ratio']:.2f}{busy(r)}",
        )
        for r in rows
    ]
    body += [
        (
            f"**{name}**",
            "all arms",
            "",
            "",
            "",
            f"**{t['share']:.0%}**",
            "",
            f"**{t['share_computed']:.0%}**",
            f"**{t['hours']:.1f}**",
            f"**{t['ratio']:.2f}**",
        )
        for name, t in arms.totals(rows).items()
    ]
    return _markdown(head, body)


def on_machine(row: Row) -> str:
    """One arm on the whole machine, as a line on a terminal."""
    return f"{row['study']}: {row['arm']}: {row['ratio']:.2f} times a script's images per second{busy(row)}"


def _machine(rows: Sequence[Row]) -> str:
    if not rows:
        return "Not measured in this run."
    head = ("study", "arm", "ours", "script", "its workers", "faster", "interval")
    body = [
        (
            r["study"],
            r["arm"],
            _seconds(r["seconds"]),
            _seconds(r["peer_seconds"]),
            str(r["workers"]),
            f"**{r['ratio']:.2f}**{busy(r)}",
            f"{r['low']:.2f} to {r['high']:.2f}",
        )
        for r in rows
    ]
    body += [
        (f"**{name}**", "all arms", _hours(t["hours"]), _hours(t["peer_hours"]), "", f"**{t['ratio']:.2f}**", "")
        for name, t in whole.totals(rows).items()
    ]
    return _markdown(head, body)


def _hours(value: float) -> str:
    return f"{value:.1f} h"


def tree(row: Row) -> str:
    """One arm before and after a change, as a line on a terminal."""
    shares = f"{row['before']['share']:.0%} to {row['after']['share']:.0%} of a matrix product"
    return f"{row['study']}: {row['arm']}: {row['gain']:.2f} times faster, {shares}{busy(row)}"


def _trees(found: Row) -> str:
    rows = found.get("trees", ())
    if not rows:
        return "Not measured in this run."
    head = ("study", "arm", "before", "after", "faster", "interval", "share before", "share after")
    body = [
        (
            r["study"],
            r["arm"],
            _seconds(r["before"]["seconds"]),
            _seconds(r["after"]["seconds"]),
            f"**{r['gain']:.2f}**{busy(r)}",
            f"{r['low']:.2f} to {r['high']:.2f}",
            f"{r['before']['share']:.0%}",
            f"{r['after']['share']:.0%}",
        )
        for r in rows
    ]
    body += [
        (
            f"**{name}**",
            "arms shown",
            f"{t['before']:.1f} core-hours",
            f"{t['after']:.1f} core-hours",
            f"**{t['gain']:.2f}**",
            "",
            f"**{t['before_share']:.0%}**",
            f"**{t['after_share']:.0%}**",
        )
        for name, t in trees.totals(rows).items()
    ]
    return f"Before is commit {found['before']}.\n\n" + _markdown(head, body) + _renewed(found, "trees")


def document(found: Row) -> str:
    said, rows = found["machine"], found["rows"]
    speed = _markdown(
        ("what", "setting", "peer", "aim", "measured", "interval", "clock", "wall", "ours", "peer's"),
        [
            (
                r["name"],
                r["setting"],
                r["against"],
                f"{r['aim']:g}",
                f"**{r['ratio']:.2f}**{busy(r)}",
                f"{r['low']:.2f} to {r['high']:.2f} ({100 * r['chance']:.0f} %, {r['rounds']} rounds)",
                r["clock"],
                f"{r['ratio_wall']:.2f}",
                _seconds(r["ours_seconds"][r["clock"]]),
                _seconds(r["peer_seconds"][r["clock"]]),
            )
            for r in rows
            if r["is_equal"]
        ],
    )
    same = _markdown(
        ("what", "setting", "compared", "largest error", "allowed", "GFLOP/s", "of a matrix product"),
        [
            (
                r["name"],
                r["setting"],
                r["equal"],
                f"{r['error']:.1e}",
                f"{r['tolerance']:.0e}",
                f"{r['flops_per_second'] / 1e9:.1f}" if "flops" in r else "",
                f"{100 * r['share_of_gemm']:.0f} %" if "flops" in r else "",
            )
            for r in rows
        ],
    )
    memory = _markdown(
        ("what", "setting", "ours", "peer's", "aim", "times less"),
        [
            (
                r["name"],
                r["setting"],
                f"{r['memory']['ours'] / 2**20:.0f} MiB",
                f"{r['memory']['peer'] / 2**20:.0f} MiB",
                f"{r['memory_aim']:g}",
                f"**{r['memory']['ratio']:.1f}**",
            )
            for r in rows
            if "memory" in r
        ],
    )
    kept = _markdown(
        ("what", "setting", "ratio", "interval"),
        [
            (r["name"], r["setting"], f"{r['ratio']:.2f}", f"{r['low']:.2f} to {r['high']:.2f}")
            for r in found["kept"]
            if r["is_equal"]
        ],
    )
    growth = _markdown(
        ("what", "against", "seconds", "exponent", "MiB", "exponent of memory"),
        [
            (
                g["name"],
                f"{g['of']} {', '.join(map(str, g['x']))}",
                ", ".join(_seconds(t) for t in g["seconds"]),
                f"**{g['exponent']:.2f}**",
                ", ".join(f"{b / 2**20:.1f}" for b in g.get("bytes", ()))
                or (f"{g['largest_worker'] / 2**20:.0f} (largest worker)" if "largest_worker" in g else ""),
                f"{g['memory_exponent']:.2f}" if "memory_exponent" in g else "",
            )
            for g in found["scaling"]
        ],
    )
    model = _markdown(
        ("model", "fixed", "per image", "predicted at 128", "measured at 128", "predicted / measured"),
        [
            (
                f"{c['name']} {', '.join(f'{k}={v}' for k, v in c['args'].items())}",
                _seconds(c["fixed"]),
                _seconds(c["picture"]),
                _seconds(c["predicted"]),
                _seconds(c["measured"]),
                f"**{c['ratio']:.2f}**",
            )
            for c in found["cost_model"]
        ],
    )
    explorer = _markdown(
        ("what", "setting", "aim", "measured", "beside"),
        [
            (
                e["name"],
                e["setting"],
                f"{e['aim']:g} {e['unit']}" if e["aim"] else "",
                f"**{e['value']:.3g} {e['unit']}**{busy(e)}",
                e["beside"],
            )
            for e in found.get("explorer", ())
        ],
    )
    around = _markdown(
        ("what", "setting", "aim", "measured", ""),
        [
            (
                r["name"],
                r["setting"],
                f"below {_seconds(r['aim'])}" if r["aim"] else "",
                f"**{_seconds(r['seconds'])}**{busy(r)}",
                r["beside"],
            )
            for r in found["lab"]
        ],
    )
    missing = "".join(f"- {text}\n" for text in found["absent"])
    return PAGE.format(
        cpu=said["cpu"],
        cores=said["cores"],
        torch=said["torch"],
        python=said["python"],
        system=said["system"],
        gemm=found["gemm"] / 1e9,
        seconds=found["seconds"],
        speed=speed + _renewed(found, "profiles"),
        same=same,
        memory=memory,
        kept=kept,
        growth=growth,
        around=around + _renewed(found, "lab"),
        model=model,
        explorer=explorer + _renewed(found, "explorer") if found.get("explorer") else "Not measured in this run.",
        arms=_arms(found.get("arms", ())) + _renewed(found, "arms"),
        trees=_trees(found),
        whole=_machine(found.get("whole", ())) + _renewed(found, "whole"),
        load=said["load"],
        most=load.MOST,
        unwatched=""
        if all("others" in r for r in rows)
        else " (rows that are older than this measurement have no mark)",
        missing="\nNot measured in this run:\n\n" + missing if missing else "",
    )


def _renewed(found: Row, part: str) -> str:
    """When a part, or some of its rows, was measured by itself, and on which machine."""
    told = found.get("renewed", {}).get(part)
    some = _renewed_rows(found, part)
    if not told:
        return some
    day, cpu = (told, "") if isinstance(told, str) else (told["day"], told["cpu"])
    how = {"trees": "arms --before DIR", "whole": "machine"}.get(part, part)
    rows, table = "The rows of the profile were measured by themselves", "This table was measured by itself"
    where = f" on {cpu}" if cpu else ""  # also of the same name: processors of one name differ in speed
    rate = _product_rate(r for r in found.get(part, ()) if "measured" not in r) if where else ""
    what = rows if part == "profiles" else table
    return f"\n\n{what} on {day}{where}{rate} (`python -m benchmarks --part {how}`).{some}"


def _renewed_rows(found: Row, part: str) -> str:
    """Which studies' rows are of another day than their table."""
    rows = found.get(part, ()) if part in ("arms", "whole") else ()
    of_study = Counter(row["study"] for row in rows)
    again = Counter((r["study"], r["measured"]["day"], r["measured"]["cpu"]) for r in rows if "measured" in r)
    lines = [
        f"Of {study} {n} of {of_study[study]} rows were measured by themselves on {day} on {cpu}"
        + _product_rate(r for r in rows if (r["study"], r.get("measured", {}).get("day")) == (study, day))
        for (study, day, cpu), n in again.items()
    ]
    return "".join(f"\n\n{line}; the last line of the table adds up both kinds of rows." for line in lines)


def _product_rate(rows: Iterable[Row]) -> str:
    """What a share is a share of: the machine's own matrix product beside these rows."""
    speed = next((r["flops"] / r["seconds"] / r["share"] for r in rows if "share" in r), 0.0)
    return f", where a matrix product ran at {speed / 1e9:.0f} GFLOP/s" if speed else ""


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.1e} s"


PAGE = """# Speed, measured

Written by `make bench`; do not edit. Numbers of one run on {cpu}, {cores} cores, {system}, Python {python},
torch {torch}. A float32 matrix product of 1024 by 1024 ran at {gemm:.0f} GFLOP/s on one thread in the same run.
All of it took {seconds:.0f} s; the load of the machine at the start was {load:.1f}.

## How to read it

Each row is one function computed in two ways, ours and the peer's. Before anything is timed, outputs and gradients of
both are compared; a row whose two sides differ has no ratio, and the command fails. Then they take turns in one
process, the order reversed every other round. The ratio is the peer's time over ours, round by round; the table shows
the median and an interval for it from order statistics, with the chance that it holds the true median. Ratios are of
processor time on one thread, which other programs disturb little; where the number of processes or threads is the
question, processes wait for their turns and the wall clock counts. While a row is measured, so is the work of other
programs; a row beside which they kept more than {most:g} cores busy is marked BUSY and is to be measured
again{unwatched}. Times are of one call; in the rows of whole machines, of one image.

## Speed

{speed}
{missing}
## The same function

Errors are the largest distance between the two sides, in units of the largest entry of the tensor. Operations are those
of matrix products and convolutions in our version, as torch counts them; where a C kernel does the work they are not
counted, and element-wise work never is.

{same}

## Memory

Growth of the resident set at its peak, for one forward and backward pass, in a forked child whose allocator gives every
larger tensor fresh pages.

{memory}

## With memory that is kept

Above, both sides have the allocator as the system brings it. saccade's workers tell it to keep freed memory, which
helps whoever asks for much of it. The same rows with that policy on both sides:

{kept}

## The arms of the studies

One thread; per training image at the batch of the recipe. MFLOP: the forward pass of the plain module as torch counts
it, times three; and how fast these come, as a share of the rate of a matrix product. Where exact algebra leaves
most of them out, as in a ViT of one layer, that share is above 1; so it is where the installed library multiplies with
narrower vectors than the processor has, which our kernels use. MFLOP computed: the same for what is really done.
Core-hours: all runs of the arm at `large`, at most (a stopping rule ends many earlier). Plain modules: how many times
longer the same arm takes as one would write it: torch's own modules, every token and every map computed, torch's
own optimiser, fed by a `DataLoader` that makes one image at a time. Logits and gradients of both are compared first.
Shares and ratios of a study are weighted by its core-hours. Here and below an arm with the model and batch of another
shows the other's measurement.

{arms}

### The whole machine

How long a study's arms take on all cores: one process per core with one thread each, as the lab starts them, against
one script with plain modules, torch's default number of threads and a `DataLoader` of 0 or 2 workers, whichever is
faster for the arm. Wall time per image. That seeds of the smallest nets are trained in lock-step is not counted.

{whole}

### Before and after

The same steps by an older checkout and by this one, in processes that take turns, each with the environment that the
lab gives its workers. Operations are those that are really done. The matrix product of 512 by 512 that shares refer to
is timed beside every turn, so that they hold on a busy machine. Arms that are missing were not measured this time.

{trees}

The aims are half of the rate, with operations counted in the plain module and weighted by core-hours, and twice as fast
as plain modules. What limits, as far as it was profiled on a busy machine with vectors of eight: linear maps of 32 to
288 channels over 500 to 8,000 tokens ran at 38 to 84 GFLOP/s in torch's own calls where a product of 1024 by 1024 ran
at 72, so they leave little. Of a ResNet's step convolutions of 8 to 64 channels are 71 % and batch norm with ReLU
19 %, of a ConvNet's 51 and 23 %, of CNN(10)'s convolutions 77 %: these are torch's own. The digits' attention spends
two thirds in its kernel, which is bound by exponentials.

## How it grows

An exponent of 1 is growth in proportion, 2 with the square, 0 none, -1 in inverse proportion. The queue is timed by the
wall clock on all cores, workers started from nothing, so that it begins with their start-up.

{growth}

## What the lab costs

Wall time per run beyond that of its data, its model and its steps, for runs of a single step by one worker; and how
long a lab of many runs takes to answer. Starting workers or a cluster is not in it.

{around}

## What `--dry-run` predicts

Time of a step as a straight line over the batch, fitted on the machine at hand through the run's batch and a quarter of
it, once for each model of a study. Here fitted at 32 and 8, asked about 128:

{model}

## The explorer

What somebody waits for in Debian's Chromium on the same machine, the server beside it; a lab written by a program, and
the small models that come with the package.

{explorer}

## Why it is faster

- **Short heads.** "Cut out patches, then a linear map" is a convolution, so no patch is copied. The map of 784 by 784
  probabilities is computed one head of one image at a time, stays in cache, and is computed again in the backward
  pass. The C kernel never writes it at all.
- **Class token.** When only the class token is read, the last block needs one query. Keys and values of the other
  tokens are folded into that query's side, never formed. A one-layer model is all last block; in six layers it is one
  of six.
- **Position attention.** Scores that are a sum of a row part and a column part have a softmax that is a product. A head
  is then two 16 by 16 matrices instead of one of 256 by 256. The value map takes most of what is left, which
  bounds the gain; the function works on a few images at a time and never holds heads side by side. With dropout
  on the attention map, or where rows and columns do not separate, the dense path is taken.
- **Tokens.** In training, the attention of one head of one image, 17 to 128 tokens, is five products of small matrices
  that never leave the cache, read and written where the linear maps have them; norm, linear map, GELU, linear map and
  residual sum go over a few tokens at a time as one function, forward and back. torch's own attention is made for long
  sequences, and the maps between are a quarter to a third of a step in passes over memory.
- **Local aggregation.** Neighbourhoods are shifted views of one padded map. Nothing is unfolded, forward or backward.
- **Small convolutions.** A convolution of a few channels, ReLU and max-pooling are one C function. Only the place that
  wins its window has a gradient, so three quarters of the backward pass are never done.
- **Data.** Sets are uint8 tensors in memory, and a batch is indexed, composed and moved at once.
- **Vectors.** The kernels' products take sixteen floats at a time where the processor can. With eight, as elsewhere,
  they ran behind torch's own products there.
- **Processes.** One process per core with one torch thread each; small models gain nothing from threads and
  lose much where another program wants the core.
- **Lock-step.** What is left of a small model's step is mostly calls. Runs that differ in seed and data alone share
  it: weights in stacks, one forward and backward pass, one call of the optimiser, the same bits here as alone. Tried
  and not taken: grouped convolutions and vmap (slower than a loop), one flat parameter vector (gains a third of what a
  group gains), updating stacked tensors as one (other rounding at their ends).
"""
