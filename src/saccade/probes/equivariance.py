"""Do layers move with the image, and is the answer left alone?   Lehnhausen et al. 2025, Question 2, with numbers"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import torch

from saccade.analysis.equivariance import Move, measure, untrained
from saccade.arguments import Count, Range
from saccade.data.images import Source
from saccade.registry import probe
from saccade.spec import Row, Settings
from saccade.subjects.subject import Subject


@probe(version=1)
def equivariance(
    subject: Subject,
    data: Source,
    *,
    split: str = "",
    n: Count = 32,
    layers: Sequence[str] = (),
    scopes: Sequence[Literal["network", "alone"]] = ("network", "alone"),
    shift: Sequence[float] = (1, 4, 0.5),
    padded_shift: Sequence[float] = (1, 4),
    rotate: Sequence[float] = (90, 15),
    scale: Sequence[Annotated[float, Range(above=0)]] = (0.9,),
    flip: bool = True,
    permute: bool = True,
    lie: bool = True,
    regions: Sequence[Literal["whole", "interior"]] = ("whole", "interior"),
    fresh: bool = False,
    precision: Literal["float64", "float32"] = "float64",
) -> Iterator[Row]:
    """Equivariance and invariance errors of every layer and of the output, as trained and, if `fresh`, reset.

    0: no difference; 1: the distance between two images' maps. `largest` is the greatest difference in units of the
    map. Layers are named as in the model, with * and ?; those that give no map are counted, with their names.
    """
    images = data(data.held_out(split)).head(n)
    x = subject.prepared(images.batch(torch.arange(len(images), device=images.y.device)))
    moves = [
        Move(kind, float(amount))
        for kind, amounts in (("shift", shift), ("padded_shift", padded_shift), ("rotate", rotate), ("scale", scale))
        for amount in amounts
    ]
    moves += [Move("flip"), Move("flip_down")] if flip else []
    moves += [Move("permute")] if permute and "alone" in scopes else []
    for trained in (True, False) if fresh else (True,):
        model = subject.model if trained else untrained(subject.model, data.seed)
        report = measure(
            model,
            x,
            moves=moves,
            layers=layers,
            scopes=scopes,
            lie=("shift", "rotate", "scale") if lie else (),
            precision=precision,
        )
        for finding in report.findings:
            if finding.region not in regions:
                continue
            at = {k: v for k, v in asdict(finding).items() if k not in ("error", "largest", "n", "measure", "type")}
            at = {**at, "layer_type": finding.type, "trained": trained}
            yield Row(f"{finding.measure}_error", finding.error, finding.n, Settings(at))
            if finding.measure == "equivariance":
                yield Row("largest_difference", finding.largest, finding.n, Settings(at))
        yield Row(
            "layers_skipped",
            float(len(report.skipped)),
            len(x),
            Settings(trained=trained, names=tuple(f"{name}: {why}" for name, why in report.skipped.items())),
        )
