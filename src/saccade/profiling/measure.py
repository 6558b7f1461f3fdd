"""A subject and data to a profile: every question that can be asked, images evaluated once per variant."""

from __future__ import annotations

import copy
import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from saccade import registry
from saccade.data.images import Images, Source
from saccade.data.named import named
from saccade.errors import in_words
from saccade.lab import identity
from saccade.profiling import references
from saccade.profiling.questions import QUESTIONS, VARIANTS, Asked, Question, estimate, pick
from saccade.report.profile import Measured, Profile
from saccade.spec import Estimate, Probe, Row, SaccadeError, Settings, plain, suggest
from saccade.subjects import answers, threads
from saccade.subjects.faster import faster
from saccade.subjects.find import Found, Wanted, find
from saccade.subjects.fit import Facts, fit
from saccade.subjects.readout import Reading, read
from saccade.subjects.subject import Subject, eager, evaluating, standardise

COUNTS = (1000, 500, 250, 100, 50)  # images, the most that fit into the time
SECONDS = 150.0  # that the variants may take by default
RATE = 3e10  # floating-point operations per second of two cores: n must not depend on how busy a machine is
TUNING = 256  # training images by which a normalisation is chosen
TUNING_LARGE = 64  # of models with large inputs
FEWEST = 20  # images that still say something, for models that take seconds per image
LONG = 300.0  # seconds; a longer profile says how to make it shorter
READ_OUT = 2000  # training images of a linear read-out
LAYERS = ("equivariance", "attention_span")  # probes that look inside, and so at the model itself
REPEATS = 9  # of a timed forward pass


def source(
    text: str, *, seed: int = 0, device: str = "cpu", size: int = 0, args: Mapping[str, Any] | None = None
) -> Source:
    """A set (cifar10, mnist), a registered construction, or folder:PATH, at a size if that is given."""
    size_args = {"size": size} if size and text.startswith("folder:") else {}
    name, data_args = named(text, {**size_args, **(args or {})})
    return Source(name, Settings(data_args), seed, device)


def asked_split(data: Source) -> str:
    """`test` where the data have it, else the split that is looked at during training."""
    try:
        data("test")
        return "test"
    except SaccadeError as error:
        watch_split = str(registry.card("data", data.name).extra.get("watch", "test"))
        if watch_split == "test" or "split" not in str(error):
            raise
        return watch_split


@threads.that_pay()
def profile(
    subject: str | nn.Module | Callable[..., nn.Module],
    data: str | Source = "cifar10",
    *,
    n: int = 0,
    seconds: float = SECONDS,
    seed: int = 0,
    split: str = "",
    only: Sequence[str] = (),
    way: str = "",
    classes: str | Mapping[int, Sequence[int]] = "",
    size: int = 0,
    channels: int = 0,
    normalise: str = "",
    device: str = "cpu",
    report: Callable[[str], None] = lambda line: None,
    **wanted: Any,
) -> Profile:
    """One page on one model: what it looks at, and what it is blind to.

    `n` images per question (0: as many of 1000, 500, 250, 100 or 50 as two cores answer in `seconds`, by the model's
    operations); `only` asks some questions by their keys; `way` reads the answers by labels, map, agreement or linear.
    """
    start = time.perf_counter()
    _check_only(only)
    if n < 0:
        raise SaccadeError(f"a profile needs a number of images above 0 (or 0: as many as fit into the time), not {n}.")
    resolved, data = _resolved(subject, data, seed=seed, device=device, size=size, wanted=wanted)
    split = split or asked_split(data)
    images = data(split)
    tuning = _tuning(data, resolved)
    one, facts = fit(resolved, images, tuning=tuning, size=size, channels=channels, normalise=normalise, device=device)
    report(f"{facts.name}: {facts.parameters:,} parameters, takes {facts.channels} x {facts.size[0]} x {facts.size[1]}")
    per_image, latency, flops = cost(one, images)
    n = min(n or images_for(flops, seconds), len(images))
    reading = read(one, facts, data, way=way, classes=classes, split=split, n=n, tuning=_training(data, READ_OUT))
    reading = dataclasses.replace(reading, subject=dataclasses.replace(reading.subject, kept={}))
    report(f"{n} images of {data.words}, {split}; read {reading.says}; {_wait(n, per_image, only)}")
    fast_subject = faster(reading.subject, images.head(n))
    context = _context(reading, facts, images, n)
    if any(q.compares for q in QUESTIONS if not only or q.key in only):
        context = dataclasses.replace(context, commonest=_commonest(fast_subject, reading.data, split, n))
    rows, skipped, details = _ask(reading, fast_subject, context, split, only, report)
    about = _about(data, split, images, n)
    rows += _costs(facts, per_image, latency, flops, only)
    cards = references.of(about["set"] or data.name)
    return Profile(
        name=facts.name,
        facts={**plain(dataclasses.asdict(facts)), "flops": flops},
        data=about,
        reading=reading.says,
        way=reading.way,
        rows=tuple(_with_references(row, cards) for row in rows),
        skipped=skipped,
        notes=(*facts.notes, *_one_answer(context)),
        details=tuple({**d, "model": facts.name, "checksum": about["checksum"]} for d in details),
        seconds=time.perf_counter() - start,
        n=n,
    )


def _variants(only: Sequence[str]) -> int:
    """How often the images are asked: once as they are, and once per change of the questions asked."""
    return VARIANTS if not only else 1 + sum(q.variants for q in QUESTIONS if q.key in only and q.key != "accuracy")


def _wait(n: int, per_image: float, only: Sequence[str]) -> str:
    """How long it will take, and what shortens it where that is long."""
    seconds = _variants(only) * n * per_image
    if seconds < LONG:
        return f"about {max(1.0, seconds):.0f} s"
    shorter = [f"--n {FEWEST} asks fewer images"] if n > FEWEST else []
    shorter += [] if only else ["--only translation occlusion asks less"]
    return f"about {seconds / 60:.0f} min" + (f" ({', '.join(shorter)})" if shorter else "")


def _check_only(only: Sequence[str]) -> None:
    known = [q.key for q in QUESTIONS]
    for key in only:
        if key not in known:
            raise SaccadeError(suggest("question of a profile", key, known))


def _resolved(
    subject: str | nn.Module | Callable[..., nn.Module],
    data: str | Source,
    *,
    seed: int,
    device: str,
    size: int,
    wanted: Mapping[str, Any],
) -> tuple[Found, Source]:
    """The model, and the data at the size it states where they are files of any size."""
    one = source(data, seed=seed, device=device, size=size) if isinstance(data, str) else data
    first = one(asked_split(one)).head(1)
    shape = first.batch(first.y * 0).shape
    request = Wanted(**{"classes": first.classes, "size": shape[-1], "channels": shape[1], "data": one, **wanted})
    resolved = find(subject, request)
    if one.name == "folder" and resolved.size and "size" not in one.args:
        one = dataclasses.replace(one, args=Settings(one.args, size=resolved.size))
    return resolved, one


def _tuning(data: Source, resolved: Found) -> Images | None:
    """Training images to choose a normalisation by; none where the model's source says which."""
    if resolved.mean is not None:
        return None
    return _training(data, TUNING_LARGE if (resolved.size or 0) > 64 else TUNING)


def _training(data: Source, n: int) -> Images | None:
    for split in ("train_plain", "train"):
        try:
            return data(split).head(n)
        except SaccadeError:
            continue
    return None


def images_for(flops: float, seconds: float) -> int:
    """How many images per question two cores answer in this time; never fewer than 50."""
    return next((c for c in COUNTS if VARIANTS * c * flops / RATE <= seconds), COUNTS[-1])


def _context(reading: Reading, facts: Facts, images: Images, n: int) -> Asked:
    card = registry.card("data", reading.data.name)
    set_name = str(reading.data.args.get("of", card.args.get("of", "")))
    return Asked(
        n=n,
        side=images.batch(images.y[:1] * 0).shape[-1],
        input_side=facts.size[0],
        classes=images.classes if reading.way != "agreement" else facts.classes,
        labels=reading.way != "agreement",
        set_name=set_name,
    )


def _commonest(subject: Subject, data: Source, split: str, n: int) -> float:
    """The share of the images that get the most frequent answer. The answers are those that the probes share."""
    predictions = answers.said(subject, data, split, n)
    return float(torch.bincount(predictions).max()) / len(predictions)


def _one_answer(context: Asked) -> tuple[str, ...]:
    if not context.says_one_thing:
        return ()
    return (
        f"{100 * context.commonest:.0f} % of the unchanged images get one and the same answer, as from a model that "
        "has not learned: that it keeps its answers says nothing",
    )


def _ask(
    reading: Reading,
    fast_subject: Subject,
    context: Asked,
    split: str,
    only: Sequence[str],
    report: Callable[[str], None],
) -> tuple[list[Measured], dict[str, str], list[dict[str, Any]]]:
    rows: list[Measured] = []
    skipped: dict[str, str] = {}
    details: list[dict[str, Any]] = []
    rows_by_probe: dict[Probe, list[Row]] = {}
    for question in QUESTIONS:
        if only and question.key not in only:
            continue
        if question.needs_labels and not context.labels:
            skipped[question.key] = "needs right and wrong, and the answers are read by agreement with themselves"
            continue
        if question.needs_set and not context.set_name:
            skipped[question.key] = "its images are made of a known set (such as cifar10), and these are not from one"
            continue
        probe = _probe(question, context, split, only)
        if probe not in rows_by_probe:
            start = time.perf_counter()
            one = reading.subject if probe.name in LAYERS else fast_subject
            try:
                rows_by_probe[probe] = list(registry.find("probe", probe.name)(one, reading.data, **probe.settings))
            except Exception as error:  # of foreign code: it costs this question, not the page
                known_error = isinstance(error, SaccadeError)
                skipped[question.key] = str(error) if known_error else f"{probe.name} failed on it ({in_words(error)})"
                rows_by_probe[probe] = []
                continue
            details += [_detail(probe, row) for row in rows_by_probe[probe]]
            report(f"{probe.name} {time.perf_counter() - start:.1f} s")
        row = pick(rows_by_probe[probe], question.metric, question.at(context))
        if row is None:
            skipped.setdefault(
                question.key, next((w for k, w in skipped.items() if _same_probe(k, question)), "gave no row")
            )
            continue
        accuracy_row = (
            pick(rows_by_probe[probe], question.right, question.at(context))
            if question.right and context.labels
            else None
        )
        rows.append(
            Measured(
                key=question.key,
                question=question.words(context),
                probe=probe.name,
                unit=question.unit,
                estimate=estimate(row),
                accuracy=estimate(accuracy_row) if accuracy_row else None,
                says=question.means(row.value, context),
                each=row.each,
            )
        )
    return rows, skipped, details


def _same_probe(key: str, question: Question) -> bool:
    return next(q.probe for q in QUESTIONS if q.key == key) == question.probe


def _probe(question: Question, context: Asked, split: str, only: Sequence[str]) -> Probe:
    settings = dict(question.settings(context))
    if only:
        unasked = [q for q in QUESTIONS if q.probe == question.probe and q.part and q.key not in only]
        settings.update({q.part: () for q in unasked})
    accepted = registry.card("probe", question.probe).args
    if "split" in accepted:
        settings["split"] = split
    if "splits" in accepted:
        settings["splits"] = (split,)
    return Probe(question.probe, settings)


def _detail(probe: Probe, row: Row) -> dict[str, Any]:
    return {**plain(row.at), "metric": row.metric, "value": row.value, "n": row.n, "probe": probe.name, "seed": 0}


def _about(data: Source, split: str, images: Images, n: int) -> dict[str, Any]:
    """What was asked with, named by content: sets are known by name and checked, folders by their checksum."""
    folders = identity.content_of(data.name, data.args)
    return {
        "name": data.name,
        "set": str(data.args.get("of", "")),
        "args": plain(data.args),
        "split": split,
        "classes": images.classes,
        "images": n,
        "checksum": next(iter(folders.values()), ""),
    }


# -- cost


def cost(subject: Subject, images: Images) -> tuple[float, float, float]:
    """Seconds per image in a batch, seconds of a batch of one, and floating-point operations of one image."""
    first = images.head(1)
    x = standardise(first.batch(first.y * 0), subject.mean, subject.std)
    with evaluating(subject.model), torch.no_grad():
        flops = _flops_of_shapes(subject.model, x) or _flops(subject.model, x)
        single = _seconds(lambda: subject.model(x))
        count = 64 if single < 0.02 else 8
        batch = x.expand(count, -1, -1, -1).contiguous()
        together = _seconds(lambda: subject.model(batch)) / count
    return together, single, flops


def _flops(model: nn.Module, x: torch.Tensor) -> float:
    with eager(), FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
        model(x)
    return float(counter.get_total_flops())


def _flops_of_shapes(model: nn.Module, x: torch.Tensor) -> float:
    """Counted without numbers, where no kernel in C hides its operations; 0 for a model that reads its own numbers."""
    try:
        return _flops(copy.deepcopy(model).to("meta"), x.to("meta"))
    except Exception:
        return 0.0


def _attention_flops(query: Sequence[int], key: Sequence[int], *_: Any, **__: Any) -> int:
    """`nn.MultiheadAttention` on its fast path: projections, scores, sums and the last projection in one operation."""
    (n, queries, width), keys = query, key[1]
    return 2 * n * width * (2 * queries * width + 2 * keys * width + 2 * queries * keys)


def _encoder_flops(src: Sequence[int], *more: Any, **__: Any) -> int:
    """`nn.TransformerEncoderLayer` on its fast path: the whole layer in one operation."""
    hidden = more[13][0]  # rows of its first feed-forward weight
    return _attention_flops(src, src) + 4 * src[0] * src[1] * src[2] * int(hidden)


def _product_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any) -> int:
    """`scaled_dot_product_attention` on a CPU: scores and sums."""
    n, heads, queries, width = query
    return 2 * n * heads * queries * key[2] * (width + value[3])


FUSED = {  # what torch's own counter does not know, and would leave out
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _product_flops,
    torch.ops.aten._native_multi_head_attention: _attention_flops,
    torch.ops.aten._transformer_encoder_layer_fwd: _encoder_flops,
}


def _seconds(action: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
        if sum(times) > 2:
            break
    return min(times[1:] or times) if len(times) < 5 else statistics.median(times)


def _costs(facts: Facts, per_image: float, latency: float, flops: float, only: Sequence[str]) -> list[Measured]:
    if only:
        return []

    def one(key: str, words: str, value: float, unit: str, says: str) -> Measured:
        exact = Estimate(value, value, value, 1, "exact" if unit == "count" else "one number")
        return Measured(key=key, question=words, probe="", unit=unit, estimate=exact, says=says)

    return [
        one("parameters", "parameters", float(facts.parameters), "count", ""),
        one("flops", "floating-point operations per image", flops, "count", "two per multiplication and addition"),
        one(
            "milliseconds",
            "milliseconds per image, alone",
            1000 * latency,
            "milliseconds",
            f"in batches {_digits(1000 * per_image)}",
        ),
    ]


def _digits(value: float) -> str:
    """Two digits, and whole numbers above that, never as a power of ten."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _with_references(row: Measured, cards: Sequence[references.Card]) -> Measured:
    values = tuple(references.reference(card, row.key) for card in cards if row.key in card.values)
    return dataclasses.replace(row, references=values)
