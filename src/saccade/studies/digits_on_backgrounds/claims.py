"""The claims of the paper, each with its test."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from saccade import stats
from saccade.lab.table import Series, Table, per_seed, slope_per_seed
from saccade.report import figures
from saccade.report.figures import FigureData
from saccade.spec import Difference, Evidence, Paper, Probe, Recipe, Run, Scale, Settings, Task
from saccade.study import Choice, Claim, Figure, Study, claim, figure

Test = Callable[[Table], Evidence]
Arm = tuple[str, dict[str, Any]]  # a model and its arguments

XS = (1, 2, 4, 8, 16, 32, 64)
LOW, HIGH = 8, 64  # the two values of x whose curves the thesis shows
AT_8, AT_64 = (("CNN", LOW), ("MHA", LOW)), (("CNN", HIGH), ("MHA", HIGH))
LEARNED = 0.8  # in-distribution accuracy from which an arm counts as trained
SEES = 0.3  # accuracy on unseen backgrounds, unmoved, from which there is something to lose when the digit moves
OVERVIEW = {"translation": 4, "rotation": 20, "scale": 0.75}
NEUTRAL = {"translation": 0, "rotation": 0, "scale": 1}
GRIDS: Mapping[str, tuple[float, ...]] = {
    "translation": (0, 1, 2, 3, 4, 5),
    "rotation": (0, 10, 20, 30, 40, 50),
    "scale": (1, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5),
}

CHOICES = (
    Choice("reading", "A", ("A", "B", "C", "D", "E"), "which attention layer the thesis may have built"),
    Choice("heads", 2, (1, 2), "attention heads; must divide 6 and 16"),
    Choice("blend", "opacity", ("opacity", "maximum", "hard", "add"), "how ink and background mix"),
    Choice("placement", "pad", ("pad", "resize"), "how 28x28 digits are put into 32x32"),
    Choice("normalise", "half", ("half", "none"), "pixels in [0, 1] standardised by 0.5 and 0.5, or not at all"),
    Choice("assign", "once", ("once", "every_time"), "a training digit's background is drawn once or at every showing"),
    Choice("optimizer", "adam", ("adam", "sgd"), "adam, or sgd with momentum 0.9"),
    Choice("images", 0, (), "training presentations for every arm; 0 takes the scale's own"),
    Choice("digits", "mnist", ("mnist", "fashion_mnist", "procedural_digits"), "what is pasted"),
    Choice("scenes", "cifar10", ("cifar10", "procedural_textures"), "what it is pasted on"),
)


def tasks(scale: Scale, chosen: Settings) -> Sequence[Task]:
    """The main grid model x backgrounds x seed, then the arms that the author proposes or could not run."""
    images = chosen["images"] or scale(smoke=320, demo=16_000, small=36_000, large=36_000, paper=600_000)
    recipe = Recipe(
        images=images,
        optimizer=chosen["optimizer"],
        momentum=0.9 if chosen["optimizer"] == "sgd" else 0.0,
        watch=scale(smoke=2, small=8, large=8, paper=20, demo=8),
    )
    cnn: Arm = ("lenet", {})
    mha: Arm = ("mha_lenet", {"reading": chosen["reading"], "heads": chosen["heads"]})
    vit: Arm = ("basic_vit", {"dim": 64, "heads": 4, "depth": 2})
    both, few, pooled, mild = (LOW, HIGH), (1, LOW, HIGH), {"head": "mean"}, {"augment": "mild"}
    proposed = scale(smoke=(), small=(), large=(HIGH,), paper=both)
    arms: list[tuple[str, Arm, tuple[int, ...], dict[str, Any], dict[str, Any]]] = [
        ("CNN", cnn, scale(smoke=both, demo=few, small=(1, 4, LOW, 16, HIGH), large=XS, paper=XS), {}, {}),
        ("MHA", mha, scale(smoke=(LOW,), small=both, large=XS, paper=XS), {}, {}),
        ("ViT", vit, scale(smoke=(LOW,), demo=(), small=(HIGH,), large=few, paper=XS), {}, {}),
        ("CNN, pooled", cnn, proposed, pooled, {}),
        ("MHA, pooled", mha, proposed, pooled, {}),
        ("CNN, augmented", cnn, proposed, {}, mild),
        ("MHA, augmented", mha, proposed, {}, mild),
        (
            "CNN, any background",
            cnn,
            scale(smoke=(), small=(HIGH,), large=(HIGH,), paper=(HIGH,)),
            {},
            {"pairing": "random"},
        ),
    ]
    fixed = {name: chosen[name] for name in ("blend", "placement", "normalise", "assign", "digits", "scenes")}
    seeds = range(scale(smoke=2, demo=5, small=5, large=10, paper=10))
    return [
        Task(
            Run(
                model,
                "digits_on_backgrounds",
                recipe,
                seed,
                Settings(args, **more),
                Settings(fixed, backgrounds=x, **extra),
            ),
            _probes(scale, x),
            arm,
        )
        for arm, (model, args), xs, more, extra in arms
        for x in xs
        for seed in seeds
    ]


def _probes(scale: Scale, x: int) -> tuple[Probe, ...]:
    """The whole severity curves at the two x of the thesis' figures 10 to 12; its overview values elsewhere."""
    n = scale(smoke=50, demo=200, small=300, large=1_000, paper=10_000)
    grids: Mapping[str, tuple[float, ...]] = GRIDS if x in (LOW, HIGH) else {k: (v,) for k, v in OVERVIEW.items()}
    if scale.name == "smoke":
        grids = {name: (NEUTRAL[name], OVERVIEW[name]) for name in GRIDS}
    return (Probe("accuracy", splits=("train", "id", "ood"), n=2 * n), Probe("digit_transforms", n=n, **grids))


def split_accuracy(table: Table, arm: str, split: str, x: int) -> Series:
    return table.series("accuracy", arm=arm, split=split, backgrounds=x)


def moved(table: Table, arm: str, transform: str, severity: float, x: int) -> Series:
    return table.series("accuracy", arm=arm, transform=transform, severity=severity, backgrounds=x)


def severity_curve(table: Table, arm: str, transform: str, x: int) -> dict[Any, Series]:
    return table.curve("accuracy", "severity", arm=arm, transform=transform, backgrounds=x)


def retention(table: Table, arm: str, transform: str, x: int) -> Series:
    """Mean over severities of accuracy relative to the unmoved digit's: 1 is invariant, whatever the start."""
    curve = severity_curve(table, arm, transform, x)
    start = curve.pop(NEUTRAL[transform], {})
    start = {seed: a for seed, a in start.items() if a > 0}  # nothing right, nothing to keep
    return per_seed(lambda a, *rest: sum(rest) / len(rest) / a, start, *curve.values()) if curve else {}


def fall(table: Table, arm: str, transform: str, x: int) -> Series:
    """Accuracy lost per pixel, per 10 degrees or per unit of scale: minus the slope of each seed's own curve."""
    unit = {"translation": 1.0, "rotation": 0.1, "scale": -1.0}[transform]
    slopes = slope_per_seed(severity_curve(table, arm, transform, x), lambda severity: unit * severity)
    return {s: -v for s, v in slopes.items()}


def gap_to_ood(table: Table, arm: str, x: int) -> Series:
    return per_seed(lambda i, o: i - o, split_accuracy(table, arm, "id", x), split_accuracy(table, arm, "ood", x))


def why_not(table: Table, arm: str, x: int, moves: bool = False) -> str:
    """Why no claim may rest on this arm at this x: it has not learned its own task, or has nothing to lose."""
    reached, seen = (split_accuracy(table, arm, split, x) for split in ("id", "ood"))
    if reached and (mean := sum(reached.values()) / len(reached)) < LEARNED:
        return f"{arm} at x={x} is under-trained (ID accuracy {100 * mean:.0f} %, below {100 * LEARNED:.0f})"
    if moves and seen and (mean := sum(seen.values()) / len(seen)) < SEES:
        return f"{arm} at x={x} is near chance on unseen backgrounds ({100 * mean:.0f} %) before the digit moves"
    return ""


def tells(*where: tuple[str, int], moves: bool = False) -> Callable[[Test], Test]:
    """A claim's test that is blocked unless these arms have learned."""

    def blocked(table: Table) -> str:
        return next((why for arm, x in where if (why := why_not(table, arm, x, moves))), "")

    return lambda test: lambda table: replace(test(table), blocked=blocked(table))


def where_it_tells(compare: Callable[[Table, int], Evidence], note: str = "") -> Test:
    """MHA against CNN at each of the two x where both have learned and see the unmoved digit."""

    def test(table: Table) -> Evidence:
        xs = [x for x in (LOW, HIGH) if split_accuracy(table, "MHA", "ood", x)] or [LOW]
        why = {x: why_not(table, "CNN", x, True) or why_not(table, "MHA", x, True) for x in xs}
        good = [x for x in xs if not why[x]]
        left = "".join(f"; left out: {why[x]}" for x in xs if good and why[x])
        found = stats.all_of(
            *(compare(table, x) for x in good or xs), note=f"x = {' and '.join(map(str, good or xs))}{left}{note}"
        )
        return found if good else replace(found, blocked=why[xs[-1]])

    return test


@claim(
    "D-H1",
    "With few backgrounds per digit class the attention model classifies unseen digits on unseen "
    "backgrounds better than the CNN.",
    paper="MHA > CNN (x=8)",
    concluded="confirmed",
    tested="OOD accuracy of MHA minus CNN at x=8 is above 0",
)
@tells(*AT_8)
def few_backgrounds(table: Table) -> Evidence:
    return stats.greater(split_accuracy(table, "MHA", "ood", LOW), split_accuracy(table, "CNN", "ood", LOW))


@claim(
    "D-H2",
    "With many backgrounds per digit class the CNN beats the attention model on unseen backgrounds.",
    paper="CNN > MHA (x=64)",
    concluded="likely, not established",
    needs="small",
    tested="OOD accuracy of CNN minus MHA at x=64 is above 0",
)
@tells(*AT_64)
def many_backgrounds(table: Table) -> Evidence:
    return stats.greater(split_accuracy(table, "CNN", "ood", HIGH), split_accuracy(table, "MHA", "ood", HIGH))


def _keeps_claim(id: str, how: str, transform: str) -> Claim:
    return claim(
        id,
        f"The attention model keeps more of its accuracy than the CNN when the digit is {how}.",
        paper="retention CNN > MHA",
        concluded="rejected",
        tested="mean over severities of accuracy relative to the unmoved digit's, CNN minus MHA, is above 0",
        needs="small",
    )(
        where_it_tells(
            lambda table, x: stats.greater(retention(table, "CNN", transform, x), retention(table, "MHA", transform, x))
        )
    )


keeps_translated = _keeps_claim("D-H3", "translated", "translation")
keeps_rotated = _keeps_claim("D-H4", "rotated", "rotation")
keeps_shrunk = _keeps_claim("D-H5", "shrunk", "scale")


@claim(
    "D-F8-x8",
    "At x=8 the one-standard-deviation bands of OOD accuracy do not overlap, attention on top.",
    paper="mean - sd (MHA) > mean + sd (CNN)",
    concluded="stated",
    tested="(mean - sd) of MHA minus (mean + sd) of CNN at x=8 is above 0, jackknife over seeds",
)
@tells(*AT_8)
def bands_apart(table: Table) -> Evidence:
    return stats.bands_apart(split_accuracy(table, "MHA", "ood", LOW), split_accuracy(table, "CNN", "ood", LOW))


@claim(
    "D-F8-rise",
    "OOD accuracy rises with the number of backgrounds per digit for both models.",
    paper="increasing in x for both",
    concluded="stated",
    needs="small",
    tested="slope of each seed's OOD accuracy against log2 x is above 0, for CNN and for MHA",
)
@tells(*AT_8, *AT_64)
def rises(table: Table) -> Evidence:
    slopes = [
        slope_per_seed(table.curve("accuracy", "backgrounds", arm=arm, split="ood"), math.log2)
        for arm in ("CNN", "MHA")
    ]
    return stats.all_of(*(stats.above(s, 0.0) for s in slopes))


@claim(
    "D-F8-cross",
    "The OOD curves of the two models cross between x=8 and x=64.",
    paper="MHA > CNN at x=8 and CNN > MHA at x=64",
    concluded="stated",
    needs="small",
    tested="OOD accuracy: MHA above CNN at x=8 and CNN above MHA at x=64",
)
@tells(*AT_8, *AT_64)
def crosses(table: Table) -> Evidence:
    return stats.all_of(few_backgrounds.test(table), many_backgrounds.test(table))


@claim(
    "D-F8-gap",
    "At x=1 background alone predicts the digit, so in-distribution accuracy is high while OOD "
    "accuracy is low; the gap closes as x grows.",
    paper="gap(x=1) > gap(x=64)",
    concluded="assumed in the design",
    tested="ID minus OOD accuracy at x=1 exceeds that at x=64, for every arm that was run at x=1",
)
@tells(("CNN", 1), ("CNN", HIGH), ("MHA", 1), ("ViT", 1))
def gap_closes(table: Table) -> Evidence:
    arms = [arm for arm in ("CNN", "MHA", "ViT") if gap_to_ood(table, arm, 1)] or ["CNN"]
    return stats.all_of(
        *(stats.greater(gap_to_ood(table, arm, 1), gap_to_ood(table, arm, HIGH)) for arm in arms),
        note="arms: " + ", ".join(arms),
    )


@claim(
    "D-F9-pattern",
    "For every transformation attention is relatively good at low x and the CNN better at high x.",
    paper="sign change along x for all three",
    concluded="stated",
    needs="small",
    tested="accuracy at translation 4, rotation 20, scale 0.75: MHA above CNN at x=8 and CNN above MHA at x=64",
)
@tells(*AT_8, *AT_64, moves=True)
def pattern_in_all(table: Table) -> Evidence:
    parts = []
    for name, value in OVERVIEW.items():
        parts.append(stats.greater(moved(table, "MHA", name, value, LOW), moved(table, "CNN", name, value, LOW)))
        parts.append(stats.greater(moved(table, "CNN", name, value, HIGH), moved(table, "MHA", name, value, HIGH)))
    return stats.all_of(*parts)


@claim(
    "D-F9-scale",
    "At high x the gap between CNN and attention is widest for scaling.",
    paper="gap at scale .75 is the largest",
    concluded="stated",
    needs="small",
    tested="accuracy CNN minus MHA at x=64: larger at scale 0.75 than at rotation 20 and at translation 4",
)
@tells(*AT_64, moves=True)
def widest_for_scale(table: Table) -> Evidence:
    gaps = {
        name: per_seed(
            lambda c, m: c - m, moved(table, "CNN", name, value, HIGH), moved(table, "MHA", name, value, HIGH)
        )
        for name, value in OVERVIEW.items()
    }
    return stats.all_of(*(stats.greater(gaps["scale"], gaps[other]) for other in ("rotation", "translation")))


def _falls_claim(id: str, statement: str, transform: str, unit: str) -> Claim:
    return claim(
        id,
        statement,
        paper="drop MHA > drop CNN",
        concluded="confirmed",
        needs="small",
        tested=f"accuracy lost per {unit}, MHA minus CNN, is above 0",
    )(
        where_it_tells(
            lambda table, x: stats.greater(fall(table, "MHA", transform, x), fall(table, "CNN", transform, x)),
            note="; absolute accuracy as in the thesis: an arm that starts lower has less to lose",
        )
    )


falls_translated = _falls_claim(
    "D-F10-slope",
    "Accuracy falls faster with translation for attention than for the CNN, at x=8 and at x=64.",
    "translation",
    "pixel",
)
falls_rotated = _falls_claim(
    "D-F11-slope", "Accuracy falls faster with rotation for attention than for the CNN.", "rotation", "10 degrees"
)
falls_shrunk = _falls_claim(
    "D-F12-slope",
    "Accuracy falls faster with shrinking for attention than for the CNN, with high variance in both.",
    "scale",
    "unit of scale",
)


@claim(
    "D-F10-cnn",
    "The CNN with flatten and linear head is itself not translation invariant.",
    paper="acc(5 px) << acc(0 px)",
    concluded="stated",
    tested="CNN accuracy at 0 px exceeds that at 5 px by more than 10 points, at x=8 and x=64",
)
@tells(("CNN", LOW), ("CNN", HIGH))
def cnn_moves(table: Table) -> Evidence:
    xs = [x for x in (LOW, HIGH) if moved(table, "CNN", "translation", 5, x)] or [LOW]
    return stats.all_of(
        *(
            stats.greater(
                moved(table, "CNN", "translation", 0, x), moved(table, "CNN", "translation", 5, x), margin=0.1
            )
            for x in xs
        )
    )


@claim(
    "D-V1",
    "Results of the attention model vary much more between replications than those of the CNN.",
    paper="sd(MHA) >> sd(CNN)",
    concluded="stated",
    tested="ratio of the standard deviations of OOD accuracy over seeds, MHA to CNN at x=8, is above 1",
)
@tells(*AT_8)
def varies_more(table: Table) -> Evidence:
    return stats.spread_greater(split_accuracy(table, "MHA", "ood", LOW), split_accuracy(table, "CNN", "ood", LOW))


@claim(
    "D-P1",
    "The CNN has fewer parameters than the attention model of equal shape.",
    paper="62 006 < 68 064 (reading A)",
    concluded="stated without numbers",
    tested="counted",
)
def smaller(table: Table) -> Evidence:
    counts = [set(table.at(arm=arm, metric="parameters").values("value")) for arm in ("CNN", "MHA")]
    if not all(counts):
        raise stats.TooFewSeeds(0)
    cnn, mha = (int(min(c)) for c in counts)
    return stats.exact(mha - cnn, cnn < mha, note=f"CNN {cnn:,}, MHA {mha:,}")


@claim(
    "D-L1",
    "Aggregating over positions instead of flattening would make the models translation invariant.",
    paper="expects: pooled > flatten",
    concluded="conjecture",
    needs="large",
    tested="retention under translation at x=64: mean-pooled head minus flattened head is above 0, for both models",
)
@tells(*AT_64, ("CNN, pooled", HIGH), ("MHA, pooled", HIGH), moves=True)
def pooling_helps(table: Table) -> Evidence:
    return stats.all_of(
        *(
            stats.greater(
                retention(table, f"{arm}, pooled", "translation", HIGH), retention(table, arm, "translation", HIGH)
            )
            for arm in ("CNN", "MHA")
        )
    )


@claim(
    "D-L2",
    "Training with mild augmentation would help the attention model more than the CNN.",
    paper="expects: gain MHA > CNN",
    concluded="conjecture",
    needs="large",
    tested="gain in accuracy from augmentation, mean over translation 4, rotation 20, scale 0.75 at x=64, "
    "MHA minus CNN is above 0",
)
@tells(*AT_64, ("CNN, augmented", HIGH), ("MHA, augmented", HIGH), moves=True)
def augmenting_helps(table: Table) -> Evidence:
    gains = {
        arm: per_seed(
            lambda *a: sum(a[:3]) / 3 - sum(a[3:]) / 3,
            *(moved(table, name, t, v, HIGH) for name in (f"{arm}, augmented", arm) for t, v in OVERVIEW.items()),
        )
        for arm in ("CNN", "MHA")
    }
    return stats.greater(gains["MHA"], gains["CNN"])


_LOOK = {"CNN": {"family": "cnn"}, "MHA": {"family": "attention"}, "ViT": {"family": "vit"}}
_OVER_X: dict[str, Any] = {
    "y": "accuracy",
    "x": "backgrounds",
    "x_label": "backgrounds per digit class, x",
    "y_label": "accuracy",
    "x_log": 2,
    "y_percent": True,
}


@figure("Accuracy against backgrounds per digit", paper="Figure 8")
def fig8_backgrounds(table: Table) -> FigureData:
    lines = [
        {
            "label": f"{arm}, {split.upper() if split != 'train' else split}",
            **look,
            "dash": dash,
            "where": {"arm": arm, "split": split},
        }
        for arm, look in _LOOK.items()
        for split, dash in (("train", "dotted"), ("id", "dashed"), ("ood", "solid"))
    ]
    return figures.curves(table, lines=lines, **_OVER_X)


@figure("Accuracy on unseen backgrounds, digit moved, turned or shrunk", paper="Figure 9")
def fig9_transforms(table: Table) -> FigureData:
    kinds = [("OOD, untouched", {"split": "ood"}, "solid")] + [
        (f"{name} {value}", {"transform": name, "severity": value}, dash)
        for (name, value), dash in zip(OVERVIEW.items(), ("dashed", "dashdot", "dotted"), strict=True)
    ]
    lines = [
        {"label": f"{arm}, {label}", **_LOOK[arm], "dash": dash, "where": {"arm": arm, **where}}
        for arm in ("CNN", "MHA")
        for label, where, dash in kinds
    ]
    return figures.curves(table, lines=lines, **_OVER_X)


def _severity(transform: str, x_label: str) -> Callable[[Table], FigureData]:
    def make(table: Table) -> FigureData:
        lines = [
            {
                "label": f"{arm}, x={x}",
                **_LOOK[arm],
                "dash": dash,
                "shade": shade,
                "where": {"arm": arm, "transform": transform, "backgrounds": x},
            }
            for arm in ("CNN", "MHA")
            for x, dash, shade in ((LOW, "dashed", 0.35), (HIGH, "solid", 0.6))
        ]
        shared: dict[str, Any] = {
            "y": "accuracy",
            "x": "severity",
            "lines": lines,
            "x_label": x_label,
            "y_label": "accuracy, or share of it kept",
            "y_percent": True,
            "x_down": transform == "scale",
        }
        return figures.beside(
            figures.curves(table, **shared, panel="accuracy"),
            figures.curves(
                table,
                **shared,
                panel="retention: relative to the same replication's unmoved digit",
                relative_to=NEUTRAL[transform],
            ),
        )

    return make


fig10 = Figure("fig10_translation", "Translation of the digit", "Figure 10", _severity("translation", "shift (px)"))
fig11 = Figure(
    "fig11_rotation",
    "Rotation of the digit",
    "Figure 11",
    _severity("rotation", "rotation (degrees, mean of both directions)"),
)
fig12 = Figure("fig12_scale", "Shrinking of the digit", "Figure 12", _severity("scale", "scale"))


@figure("Accuracy against training presentations: is an arm under-trained?", paper="")
def presentations(table: Table) -> FigureData:
    def panel(x: int) -> Any:
        lines = [
            {
                "label": f"{arm}, {label}",
                **look,
                "dash": dash,
                "y": metric,
                "where": {"arm": arm, "backgrounds": x, "split": split},
            }
            for arm, look in _LOOK.items()
            for label, metric, split, dash in (
                ("ID, before it is learned", "online", "online", "dashed"),
                ("OOD", "watched", "ood", "solid"),
            )
        ]
        return figures.curves(
            table,
            y="accuracy",
            x="images",
            lines=lines,
            x_label="training images shown",
            y_label="accuracy",
            y_percent=True,
            panel=f"x = {x}",
        )

    return figures.beside(*(panel(x) for x in (LOW, HIGH)))


@figure("What the author proposed: a pooled head, mild augmentation", paper="Section 6, conjectures")
def proposals(table: Table) -> FigureData:
    arms = [(arm, extra) for arm in ("CNN", "MHA") for extra in ("", ", pooled", ", augmented")]

    def panel(transform: str, label: str) -> Any:
        lines = [
            {
                "label": arm + extra,
                **_LOOK[arm],
                "dash": {"": "solid", ", pooled": "dashed"}.get(extra, "dotted"),
                "where": {"arm": arm + extra, "transform": transform, "backgrounds": HIGH},
            }
            for arm, extra in arms
        ]
        return figures.curves(
            table,
            y="accuracy",
            x="severity",
            lines=lines,
            x_label=label,
            y_label="accuracy",
            y_percent=True,
            panel=f"{transform}, x = {HIGH}",
            x_down=transform == "scale",
        )

    return figures.beside(
        panel("translation", "translation (px)"), panel("rotation", "rotation (degrees)"), panel("scale", "scale")
    )


DIFFERS = (
    Difference("the thesis' code is not public: attention layer, heads, blending, optimiser and epochs are choices"),
    Difference("paired seeds, t intervals and Holm correction instead of overlap of one-standard-deviation bands"),
    Difference(
        "below paper scale: fewer training presentations than the thesis may have used, the same for all arms",
        ("D-H1", "D-H2", "D-F8-x8", "D-F8-rise", "D-F8-cross", "D-F9-pattern", "D-F9-scale", "D-V1"),
    ),
    Difference(
        "retention is accuracy relative to the same replication's unmoved accuracy; the thesis reads absolute "
        "curves that start at different heights. Chance is not subtracted: an arm near it has little to lose",
        ("D-H3", "D-H4", "D-H5", "D-L1"),
    ),
    Difference(
        "backgrounds of the OOD set come from CIFAR-10's test split, those of training from its train split, so "
        "they are disjoint for every x"
    ),
)

STUDY = Study(
    name="digits_on_backgrounds",
    question="Does attention see the digit where a convolution sees the background?",
    paper=Paper(
        'P. de Kruijff, "Generalization and Data Transformation Invariance of Visual Attention Models", '
        "bachelor thesis, TU Delft, 2022"
    ),
    tasks=tasks,
    figures=(fig8_backgrounds, fig9_transforms, fig10, fig11, fig12, presentations, proposals),
    claims=(
        few_backgrounds,
        many_backgrounds,
        keeps_translated,
        keeps_rotated,
        keeps_shrunk,
        bands_apart,
        rises,
        crosses,
        gap_closes,
        pattern_in_all,
        widest_for_scale,
        falls_translated,
        cnn_moves,
        falls_rotated,
        falls_shrunk,
        varies_more,
        smaller,
        pooling_helps,
        augmenting_helps,
    ),
    choices=CHOICES,
    differs=DIFFERS,
    costs=Settings(
        smoke="under a minute",
        demo="at most 5 minutes on two cores",
        small="at most 15 minutes on two cores",
        large="about two hours on two cores",
        paper="140 trainings and the extra arms: days on two cores, hours on a GPU",
    ),
)
