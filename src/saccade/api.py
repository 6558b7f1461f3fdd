"""What `import saccade` offers: build a model, train it over seeds, probe it, compare two, run a study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import nn

from saccade import models, registry, stats
from saccade.cli import terminal
from saccade.data.images import Images, Source
from saccade.data.named import named
from saccade.errors import in_words
from saccade.lab import pipeline, single
from saccade.lab.store import Lab
from saccade.lab.table import Table
from saccade.profiling import compare as comparing
from saccade.profiling import measure
from saccade.profiling.compare import Comparison, Model
from saccade.report.profile import Profile
from saccade.spec import Evidence, Probe, Recipe, Row, SaccadeError, Settings
from saccade.subjects.subject import Subject, evaluating


def model(name: str = "", classes: int = 10, **args: Any) -> nn.Module:
    """A registered model: saccade.model("mha_lenet", heads=1)."""
    if not isinstance(name, str) or not name:  # as a decorator, which is what the name suggests
        raise SaccadeError(
            'saccade.model("vit") builds a model that is registered; to register one of your own, put '
            '@saccade.registry.model(family="...") before its function (saccade list models).'
        )
    return models.build(name, classes, **args)


def train(
    name: str | Callable[..., nn.Module],
    data: str,
    *,
    recipe: Recipe | Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] = 5,
    lab: str | Path = "lab",
    model_args: Mapping[str, Any] | None = None,
    data_args: Mapping[str, Any] | None = None,
    probes: Sequence[str | Probe] = ("accuracy",),
    device: str = "auto",
    jobs: int | None = None,
    quiet: bool = False,
) -> Table:
    """Train one model over seeds in worker processes; what the lab already has is not repeated.

    The model is a registered name, also of a file that was imported, file.py:function, or a class of a file. The recipe
    may be a dict, as in {"images": 50_000, "lr": 0.002}; 8 000 images are seen where it does not say how many.
    """
    tasks, files = single.tasks(
        name if isinstance(name, str) else _importable_name(name),
        data,
        recipe=recipe or {},
        seeds=range(seeds) if isinstance(seeds, int) else seeds,
        model_args=model_args,
        data_args=data_args,
        probes=probes,
    )
    how = pipeline.How(device=device, jobs=jobs, quiet=quiet, plugins=(*registry.imported(), *files))
    return pipeline.train(Lab(lab).open(), tasks, how)


def _importable_name(factory: Callable[..., nn.Module]) -> str:
    """file.py:name of a class or function, from which the processes that train can import it too."""
    file = getattr(sys.modules.get(factory.__module__), "__file__", None)
    if file is None or "<locals>" in factory.__qualname__ or not callable(factory):
        raise SaccadeError(
            f"{factory.__qualname__} is not at the top of a file, so that the processes that train cannot import it; "
            "put it into a file, as in net.py, and train net.py:Net."
        )
    return f"{file}:{factory.__qualname__}"


def probe(
    subject: nn.Module,
    probes: Sequence[str | Probe],
    data: str,
    *,
    n: int = 0,
    seed: int = 0,
    data_args: Mapping[str, Any] | None = None,
    device: str = "cpu",
    size: int = 0,
    channels: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    arm: str = "outside",
    outcomes: bool = False,
) -> Table:
    """Put any torch model through probes. One model: the images are the replicates, and the rows' n counts them.

    `n` images per probe, where it takes a number of them and was not given its own (0: as many as it asks by itself).
    `size` (pixels on a side) and `channels` say what the model takes, where that is not what the data have: images are
    resized, and their channels averaged or a single one repeated. `mean` and `std` standardise instead of the data's.
    Rows have `low` and `high` (95 %, over images) where a probe gives one outcome per image, and with `outcomes` these
    as `each`; `arm` names the model, so that tables of several can be joined.
    """
    name, args = named(data, data_args)
    where = Source(registry.card("data", name).name, Settings(args), seed, device)
    images = where("train")
    if (mean is None) != (std is None) or (mean and std and len(mean) != len(std)):
        raise SaccadeError("mean and std go together, with one number per channel each.")
    standard = (tuple(mean), tuple(std)) if mean and std else (images.mean, images.std)
    wrapped = Subject(subject.to(device), *standard, device, images.classes, size, channels)
    _try_out(wrapped, images.head(2))
    rows = []
    with evaluating(subject):
        for p in probes:
            one = Probe(p) if isinstance(p, str) else p
            if n and "n" not in one.settings and "n" in registry.card("probe", one.name).args:
                one = Probe(one.name, **one.settings, n=n)
            probe_rows = list(registry.find("probe", one.name)(wrapped, where, **one.settings))
            if not probe_rows:
                raise SaccadeError(f"probe {one.name} gave no rows for this model and data (saccade show {one.name}).")
            for row in probe_rows:
                rows.append(
                    {
                        **row.at,
                        "metric": row.metric,
                        "value": row.value,
                        "n": row.n,
                        **_over_images(row),
                        **({"each": row.each} if outcomes else {}),
                        "seed": seed,
                        "probe": one.name,
                        "model": type(subject).__name__,
                        "data": data,
                        "arm": arm,
                        "run": "",
                    }
                )
    return Table(tuple(rows))


def _over_images(row: Row) -> dict[str, float]:
    """The ends of the interval: Wilson's for right and wrong, Student's for other numbers; none without outcomes."""
    if row.each is None or np.size(row.each) < 2:
        return {}
    each = np.asarray(row.each, dtype=float).ravel()
    share = bool(np.isin(each, (0.0, 1.0)).all())
    interval = stats.proportion(int(each.sum()), len(each)) if share else stats.estimate(each.tolist())
    return {"low": interval.low, "high": interval.high}


def _try_out(subject: Subject, images: Images) -> None:
    """Two images, so that for a model that does not take them there is one sentence. Of the answer probes judge."""
    x = images.batch(torch.arange(len(images), device=images.y.device))
    if subject.channels > 1 and x.shape[1] not in (1, subject.channels):
        raise SaccadeError(
            f"channels must be 1 or {x.shape[1]}, as the data have {x.shape[1]}, not {subject.channels}."
        )
    prepared = subject.prepared(x)
    try:
        with evaluating(subject.model), torch.no_grad():
            subject.model(prepared)
    except Exception as error:
        raise SaccadeError(
            f"the model does not take images of shape {tuple(prepared.shape[1:])} ({in_words(error)}); name the size "
            "or the channels that it takes, as in size=224 or channels=1."
        ) from error


def profile(subject: str | nn.Module | Callable[..., nn.Module], data: str = "cifar10", **how: Any) -> Profile:
    """One page on any model: sc.profile(model), sc.profile("net.py:net", "folder:images"). See `profiling.measure`."""
    return measure.profile(subject, data, **how)


@overload
def compare(a: Table, b: str, c: str, metric: str = "accuracy", **where: Any) -> Evidence: ...


@overload
def compare(a: Model, b: Model, c: str = "cifar10", **how: Any) -> Comparison: ...


def compare(a: Any, b: Any, c: str = "cifar10", metric: str = "accuracy", **how: Any) -> Evidence | Comparison:
    """Two models on the same questions: sc.compare("resnet18", "vit"), sc.compare(one, two, "folder:images").

    Over seeds where this lab has trained both, else over images. With a table, sc.compare(table, "CNN", "MHA", metric):
    the paired difference of two of its arms over their shared seeds.
    """
    if isinstance(a, Table):
        return stats.greater(a.series(metric, arm=b, **how), a.series(metric, arm=c, **how))
    return comparing.compare(a, b, c, **how)


def run(
    study: str,
    scale: str = "small",
    *,
    lab: str | Path = "lab",
    device: str = "auto",
    jobs: int | None = None,
    quiet: bool = False,
    seeds: int | None = None,
    claims: Sequence[str] = (),
    also: str | Callable[..., nn.Module] | Sequence[str | Callable[..., nn.Module]] = (),
    like: str = "",
    recipe: Mapping[str, Any] | None = None,
    **choices: Any,
) -> pipeline.Session:
    """The same as `saccade run`; the session it returns has .table() and .verdicts().

    `claims`, such as ["D-H1"], trains only the arms that they ask for; every claim is judged from what the lab has.

    `also` names models of one's own that join as arms, trained like the arm `like`: also="net.py:net". `recipe` changes
    every arm's, as in recipe={"lr": 0.01}; such a study is not the planned one.
    """
    several = [also] if isinstance(also, str) or callable(also) else also
    joined_models = [one if isinstance(one, str) else _importable_name(one) for one in several]
    session = pipeline.open_session(
        study, scale, lab, choices, seeds=seeds, also=joined_models, like=like, recipe=recipe
    )
    plugins = (*registry.imported(), *(one for one in joined_models if one.rpartition(":")[0].endswith(".py")))
    how = pipeline.How(device=device, jobs=jobs, quiet=quiet, plugins=plugins)
    planned = pipeline.plan_work(session.lab, pipeline.for_claims(session, claims), how, terminal.printer(quiet))
    pipeline.run(session, planned, how)
    pipeline.write(session)
    return session
