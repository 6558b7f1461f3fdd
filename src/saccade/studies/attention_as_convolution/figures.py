"""Tables 1 to 3 and Figures 1 to 5 and 8 of the report, and the numbers behind what it shows as maps.

Maps and Gaussians are drawn here as small images, each grid with its own key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saccade.lab.table import Series, Table, minus, per_seed
from saccade.report import figures
from saccade.report.figures import Bars, Curves, FigureData, Fit, ImageGrid, Line, Mark, Panel, line
from saccade.spec import Estimate
from saccade.stats import TooFewSeeds
from saccade.studies.attention_as_convolution import measures
from saccade.studies.attention_as_convolution.arms import (
    CONTENT,
    FAMILIES,
    INGREDIENTS,
    ISO,
    NONISO,
    ONE_SHELL,
    PAIR,
    PATCH,
    RELATIVE,
    REPORTED,
    RESNET,
    SLIPS,
    TABLE1,
    TABLE2,
    VIT,
    half_as_deep,
    hierarchical,
    on_few,
    sixteen,
)
from saccade.studies.attention_as_convolution.gaussians import REACH, contours, head_key
from saccade.studies.attention_as_convolution.measures import accuracy
from saccade.study import figure

if TYPE_CHECKING:
    import numpy as np

LOOKS: Mapping[str, tuple[str, str, float]] = {  # family, dash, shade
    RESNET: ("cnn", "solid", 0.5),
    ISO: ("attention", "solid", 0.3),
    NONISO: ("attention", "dashed", 0.45),
    RELATIVE: ("attention", "dashdot", 0.6),
    CONTENT: ("attention", "dotted", 0.9),
}
DASHES = ("solid", "dashed", "dashdot", "dotted")
PAPER_TIMES, PAPER_COUNTS = (0.875, 0.779, 0.759, 0.888), (0.161, 0.094, 0.095, 0.175)
SAME_PAGE = 0.7  # accuracy of some arm from which on the report's values are on the same page


# -- Tables 1 and 2, Figure 1


def _bars(table: Table, groups: Mapping[str, Sequence[str]], labels: Sequence[str], note: str = "") -> Bars:
    """Test accuracy: a category for each of `groups`, in it one bar for each of its arms."""
    lines, marks = [], []
    accuracies = [v for arms in groups.values() for arm in arms for v in accuracy(table, arm).values()]
    for i, label in enumerate(labels):
        arms = {x: each[i] for x, each in enumerate(groups.values()) if i < len(each)}
        lines.append(
            line(
                label,
                {x: accuracy(table, arm) for x, arm in arms.items()},
                family="attention",
                shade=0.25 + 0.5 * i / max(1, len(labels) - 1),
                dash=DASHES[i],
                gaps=[g for arm in arms.values() for g in table.at(arm=arm).gaps],
            )
        )
        if max(accuracies, default=0.0) > SAME_PAGE:
            reported = {x: arm for x, arm in arms.items() if arm in REPORTED and accuracy(table, arm)}
            marks += [Mark(x, REPORTED[arm], line=label) for x, arm in reported.items()]
    return Bars("", tuple(groups), tuple(lines), "", "test accuracy", False, True, tuple(marks), note)


@figure("Test accuracy of the five models, with 9 and with 16 heads", paper="Tables 1 and 2")
def table1_accuracy(table: Table) -> FigureData:
    groups = {arm: (arm, *([sixteen(arm)] if arm in TABLE2 else [])) for arm in TABLE1}
    return _bars(table, groups, ("9 heads (ResNet: none)", "16 heads, narrower"))


@figure("Accuracy over training", paper="Figure 1")
def fig1_training(table: Table) -> FigureData:
    def panel(title: str, arms: Mapping[str, str]) -> Panel:
        lines = []
        for base, arm in arms.items():
            points = list(measures.course(table, arm).items())
            few = dict(points[len(points) // 12 :: max(1, len(points) // 12)])
            family, dash, shade = LOOKS[base]
            lines.append(line(base, few, family=family, dash=dash, shade=shade, gaps=table.at(arm=arm).gaps))
        return Panel(title, tuple(each for each in lines if each.x), "images seen")

    panels = (
        panel("9 heads", {arm: arm for arm in TABLE1}),
        panel("16 heads", {base: sixteen(base) for base in TABLE2}),
    )
    return Curves(
        "",
        tuple(p for p in panels if p.lines),
        "accuracy",
        False,
        True,
        "Held-out images where they were looked at often, else batches before they were learned from (mean over about "
        f"{measures.SMOOTH:,} images): below paper scale an image is seen a few times at most.",
    )


# -- heads: trained against untrained


def _identity(value: float) -> float:
    return value


def _states(
    table: Table,
    metric: str,
    arm: str,
    title: str,
    x_label: str = "layer",
    of: Callable[[float], float] = _identity,
    *,
    y_label: str = "",
) -> Panel:
    """One arm by layer: the trained model and the untrained one of the same seeds; `y_label` for an axis of its own."""
    lines = []
    for label, state, family, dash, shade in (
        ("trained", "trained", "attention", "solid", 0.6),
        ("untrained", "start", "other", "dashed", 0.35),
    ):
        curve = {x: per_seed(of, s) for x, s in table.curve(metric, "layer", arm=arm, state=state).items()}
        if curve:
            lines.append(line(label, curve, family=family, dash=dash, shade=shade, gaps=table.at(arm=arm).gaps))
    return Panel(title, tuple(lines), x_label, y_label=y_label)


def _filled(*panels: Panel, y_label: str, note: str = "") -> Curves:
    """Panels without rows are left out."""
    return Curves("", tuple(p for p in panels if p.lines), y_label, note=note)


@figure("Do centres form a grid?", paper="not in the report")
def fig2_grid(table: Table) -> FigureData:
    return _filled(
        *(
            _states(table, "lattice_distance", arm, f"{arm}: distance to the grid", y_label="tokens")
            for arm in (ISO, NONISO)
        ),
        *(
            _states(table, "coverage", arm, f"{arm}: 3x3 shifts covered", y_label="share of nine shifts")
            for arm in (ISO, NONISO)
        ),
        y_label="tokens",
        note="Distance of centres to the nearest whole-token shift (0.38 for a centre drawn at random), and the share "
        "of the nine shifts of a 3x3 kernel that are the nearest one to some centre.",
    )


@figure("How far centres are from the query, and how far they moved", paper="not in the report")
def fig2_distance(table: Table) -> FigureData:
    return _filled(
        *(_states(table, "centre_norm", arm, f"{arm}: from the query", y_label="tokens") for arm in (ISO, NONISO)),
        *(_states(table, "centre_moved", arm, f"{arm}: moved in training", y_label="tokens") for arm in (ISO, NONISO)),
        y_label="tokens",
        note="Each panel has its own axis.",
    )


@figure("How far from round: log ratio of a head's two precisions", paper="not in the report")
def fig2_anisotropy(table: Table) -> FigureData:
    return _filled(_states(table, "anisotropy", NONISO, ""), y_label="log ratio", note="0 is round.")


@figure("How many tokens a head looks at, by layer or pass", paper="not in the report")
def sparsity(table: Table) -> FigureData:
    return _filled(
        *(_states(table, "entropy", arm, arm, of=math.exp) for arm in (ISO, RELATIVE, CONTENT)),
        _states(table, "entropy", hierarchical(CONTENT), hierarchical(CONTENT), "pass", math.exp),
        y_label="effective tokens",
        note="exp of the mean entropy.",
    )


@figure(
    "How much of a head's map is the same for every image, and how much changes by layer", paper="not in the report"
)
def content_share(table: Table) -> FigureData:
    forms = ((CONTENT, "SA", "layer"), (hierarchical(CONTENT), "HA", "pass"))
    return _filled(
        *(
            _states(table, "positional_share", arm, f"{name}: same for every image", by, y_label="share of the map")
            for arm, name, by in forms
        ),
        *(
            _states(table, "pass_change", arm, f"{name}: moved since the {by} before", by, y_label="share of attention")
            for arm, name, by in forms
        ),
        y_label="share",
        note="Each panel has its own axis.",
    )


# -- Figure 2 as Gaussians around the query


def centres(table: Table, arm: str) -> ImageGrid:
    """Contours of every head's Gaussian around the query: one column per layer, one row per look, then the key."""
    rows = list(table.at(metric="head_centre", arm=arm))
    if not rows:
        raise TooFewSeeds(0)
    ends = {"start": -1, "trained": 10**9}
    states: dict[str, int] = {r["state"]: ends[r["state"]] if r["state"] in ends else r["step"] for r in rows}
    # The last look on the way is at the trained model itself, so one of the two is enough.
    last = max((at for at in states.values() if at < 10**9), default=-1)
    order = sorted((s for s, at in states.items() if not (0 <= at == last)), key=states.__getitem__)
    depth = max(r["layer"] for r in rows)
    grid: list[list[Any]] = [
        [
            contours([r["gaussian"] for r in rows if r["state"] == s and r["layer"] == layer])
            for layer in range(1, depth + 1)
        ]
        for s in order
    ]
    return figures.image_grid(
        [*grid, [head_key(), contours(()), *([None] * (depth - 2))]],
        rows=["untrained" if s == "start" else s for s in order] + ["key: heads 1 to 9; 12 x 12 tokens"],
        columns=[f"layer {i}" for i in range(1, depth + 1)],
        note="One colour per head, in the key row by row. Solid: half of its attention inside; dotted: nine tenths. "
        f"Lines are the borders of tokens, up to {REACH:g} from the query (filled). Seed 0.",
    )


@figure("Centres of attention, isotropic heads", paper="Figure 2a")
def fig2a_centres(table: Table) -> FigureData:
    return centres(table, ISO)


@figure("Centres of attention, non-isotropic heads", paper="Figure 2b")
def fig2b_centres(table: Table) -> FigureData:
    return centres(table, NONISO)


# -- Figures 3 to 5 and 8: maps

BRIGHT = 8.0  # times an even look, from which on a map is brightest
SHOWN = 32  # pixels along the side of a map


def maps(table: Table, arms: Sequence[str], view: str, note: str = "", by: str = "layer") -> ImageGrid:
    """Layers down, heads across, arms below one another; over the image where the map is of a single one."""
    grid: list[list[Any]] = []
    labels: list[str] = []
    for arm in arms:
        cells = {(r["layer"], r["head"]): r["map"] for r in table.at(metric="head_map", arm=arm, view=view)}
        image_row = next(iter(table.at(metric="looked_at", arm=arm)), None)
        if not cells:
            continue
        layers, heads = (sorted({k[i] for k in cells}) for i in (0, 1))
        query = None if image_row is None or view == "average" else image_row["query"]
        under = image_row if image_row is not None and view in ("one", "average") else None
        for layer in layers:
            grid.append([light(cells[layer, head], query, under) for head in heads])
            labels.append(f"{arm}, {by} {layer}" if len(arms) > 1 else f"{by} {layer}")
    if not grid:
        raise TooFewSeeds(0)
    across = max(map(len, grid))
    return figures.image_grid(
        [*grid, [_ramp(), *([None] * (across - 1))]],
        rows=[*labels, f"0 to {BRIGHT:g} times an even look"],
        columns=[f"head {i + 1}" for i in range(across)],
        note=f"{note} Warm: attention; blue: the image; frame: the query. Seed 0.".strip(),
    )


def light(values: Sequence[float], query: int | None = None, under: Mapping[str, Any] | None = None) -> np.ndarray:
    """A map that sums to one as light, token by token, over a faint image: (SHOWN, SHOWN, 3) in [0, 1]."""
    import numpy as np

    side = math.isqrt(len(values))
    heat = _warm(_enlarged(np.reshape(np.array(values, float), (side, side)) * side * side / BRIGHT))
    if under is not None:
        image = np.reshape(np.array(under["image"], float), (-1, 32, 32)).mean(0) / 255
        heat = heat + (1 - heat.max(2, keepdims=True)) * _enlarged(image)[..., None] * np.array([0.1, 0.35, 0.75])
    if query is not None:
        size = SHOWN // side
        i, j = (v * size for v in divmod(query, side))
        for part in (np.s_[i : i + size, [j, j + size - 1]], np.s_[[i, i + size - 1], j : j + size]):
            heat[part] = 0.75
    clipped: np.ndarray = np.clip(heat, 0, 1)
    return clipped


def _warm(share: np.ndarray) -> np.ndarray:
    """Black over red and orange to pale yellow, for shares of the brightest."""
    import numpy as np

    ramps = ((1.8, 0.0), (1.7, 0.5), (2.5, 1.7))
    share = np.clip(share, 0, 1)[..., None]
    return np.concatenate([np.clip(rise * share - start, 0, 1) for rise, start in ramps], -1)


def _ramp() -> np.ndarray:
    import numpy as np

    return _warm(np.tile(np.linspace(0, 1, SHOWN), (SHOWN, 1)))


def _enlarged(grid: np.ndarray) -> np.ndarray:
    import numpy as np

    at = np.arange(SHOWN) * len(grid) // SHOWN
    large: np.ndarray = grid[at][:, at]
    return large


@figure("Attention of a middle query on one image", paper="Figure 3")
def fig3_maps(table: Table) -> FigureData:
    return maps(table, (RELATIVE, CONTENT), "one")


@figure("The same, averaged over images", paper="Figure 4")
def fig4_maps(table: Table) -> FigureData:
    return maps(table, (RELATIVE, CONTENT), "many", "Mean over 50 test images.")


@figure("Average attention: what each token gets, mean over queries", paper="Figures 5, 9 to 23")
def fig5_average(table: Table) -> FigureData:
    note = "Equation 4 as printed would be constant; as in the code, the mean is over queries."
    return maps(table, (ISO, RELATIVE, CONTENT), "average", note)


@figure("Hierarchical attention: one query, by pass", paper="Figure 8a")
def fig8_maps(table: Table) -> FigureData:
    return maps(table, (hierarchical(CONTENT),), "one", by="pass")


@figure("Hierarchical attention: average attention, by pass", paper="Figure 8b")
def fig8_average(table: Table) -> FigureData:
    return maps(table, (hierarchical(CONTENT),), "average", by="pass")


# -- Table 3


@figure("Independent layers against hierarchical attention", paper="Table 3")
def table3_accuracy(table: Table) -> FigureData:
    groups = {base: (base, hierarchical(base)) for base in FAMILIES}
    return _bars(table, groups, ("SA: layers of their own", "HA: one shared block"), "One recipe for both.")


@figure("Time per image and parameters, hierarchical over independent", paper="Table 3")
def table3_cost(table: Table) -> FigureData:
    size = measures.timed_size(table)
    sizes = measures.counted(table, "size", "net")
    ratios = {x: measures.time_ratio(table, base, size) for x, base in enumerate(FAMILIES)}
    counts = {x: {0: sizes[hierarchical(base)] / sizes[base]} for x, base in enumerate(FAMILIES)}
    series = (("time", ratios, PAPER_TIMES, 0.7, "solid"), ("parameters", counts, PAPER_COUNTS, 0.25, "dashed"))
    by = ", ".join(
        f"{base} {_mean(measures.milliseconds(table, base, 'SA', size)):.3g} and "
        f"{_mean(measures.milliseconds(table, base, 'HA', size)):.3g}"
        for base in FAMILIES
    )
    return Bars(
        "",
        FAMILIES,
        tuple(
            line(label, curve, family="attention", shade=shade, dash=dash) for label, curve, _, shade, dash in series
        ),
        "",
        "HA over SA",
        False,
        False,
        tuple(Mark(x, y, line=label) for label, _, values, *_ in series for x, y in enumerate(values)),
        f"Untrained models of {'the report' if size == 'paper' else 'this study'}'s sizes, in turns at batch 1 on "
        f"{measures.timed_on(table)}; the report timed a GPU. Milliseconds, SA and HA: {by}. Parameters are counted at "
        "the report's sizes.",
    )


def _mean(series: Series) -> float:
    if not series:
        raise TooFewSeeds(0)
    return sum(series.values()) / len(series)


@figure("What hierarchical attention is made of: sharing, frozen keys, depth", paper="not in the report")
def factorial(table: Table) -> FigureData:
    names = ("neither (SA)", "shared weights", "frozen keys", "both (HA)")
    whole = {name: name for name in INGREDIENTS}
    if accuracy(table, ONE_SHELL):
        whole[hierarchical(CONTENT)] = ONE_SHELL
    _require_any(table, [half_as_deep(name) for name in INGREDIENTS])
    groups = {label: (whole[name], half_as_deep(name)) for label, name in zip(names, INGREDIENTS, strict=True)}
    return _bars(table, groups, ("full depth", "half as deep"), f"{CONTENT}, at one recipe.")


def _require_any(table: Table, arms: Sequence[str]) -> None:
    """A figure that is about these arms is left out where none of them has been run."""
    if not any(accuracy(table, arm) for arm in arms):
        raise TooFewSeeds(0)


# -- what else


@figure("What the slips of the published code change: accuracy with minus without", paper="not in the report")
def slips(table: Table) -> FigureData:
    change_by_label = {s.label: minus(accuracy(table, s.arm), accuracy(table, s.without)) for s in SLIPS}
    for arm in (RESNET, PAIR, PATCH, VIT):
        in_training = table.series("accuracy_in_train_mode", arm=arm)
        change_by_label[f"{arm}: training mode"] = minus(in_training, accuracy(table, arm))
    change_by_label = {label: series for label, series in change_by_label.items() if series}
    return Bars(
        "",
        tuple(change_by_label),
        (line("with − without", dict(enumerate(change_by_label.values())), family="attention"),),
        "",
        "change of test accuracy (points)",
        False,
        True,
        note="Paired by seed. Added centre: the second centre of a Gaussian added where it should multiply; flipped: "
        "content compared at transposed pixels; noise token: a class token drawn anew at every pass; raw: SAN's "
        "attention before its norm; one key: the first block's keys for the second too; training mode: tested without "
        "the switch to evaluation, so that batch norms use and learn from the test images.",
    )


@figure("Accuracy on few and on many images", paper="not in the report")
def data_size(table: Table) -> FigureData:
    _require_any(table, list(map(on_few, TABLE2)))
    groups = {base: (on_few(base), base) for base in TABLE2}
    return _bars(table, groups, ("few distinct images", "many"), "Equal images seen.")


@figure(
    "Attention made from a trained convolution model: accuracy before and after training on", paper="not in the report"
)
def conversion_accuracy(table: Table) -> FigureData:
    forms = table.at(metric="converted_accuracy").values("form")
    lines = [
        line(
            f"{when} training on",
            {x: table.series("converted_accuracy", form=form, when=when) for x, form in enumerate(forms)},
            family="attention",
            shade=shade,
            dash=dash,
        )
        for when, shade, dash in (("before", 0.25, "dashed"), ("after", 0.75, "solid"))
    ]
    return Bars("", tuple(forms), tuple(lines), "", "test accuracy", False, True, note=_conversion_note(table))


@figure("Does it stay a convolution? Distance from the nearest one, and drift of centres", paper="not in the report")
def conversion_drift(table: Table) -> FigureData:
    families = dict(
        zip(table.at(metric="nearest_distance").values("form"), ("attention", "hybrid", "mlp"), strict=False)
    )

    def panel(title: str, metric: str, whens: Sequence[str], y_label: str) -> Panel:
        lines: list[Line] = []
        for form, family in families.items():
            for when in whens:
                curve = table.curve(metric, "layer", form=form, when=when)
                dash, shade = ("dotted", 0.3) if when == "before" else ("solid", 0.6)
                lines.append(line(f"{form}, {when}", curve, family=family, shade=shade, dash=dash))
        return Panel(title, tuple(each for each in lines if each.x), "layer", y_label=y_label)

    return _filled(
        panel("distance from the nearest convolution", "nearest_distance", ("before", "after"), "share of the kernel"),
        panel("drift of centres", "centre_drift", ("after",), "pixels"),
        y_label="share of the kernel",
        note="The distance is the part of the kernel outside the convolution's shifts, from 0 to 1.",
    )


def _conversion_note(table: Table) -> str:
    words = []
    for form in table.at(metric="nearest_distance").values("form"):
        difference = table.series("logit_difference", form=form, when="before")
        agreement = table.series("agreement", form=form, when="before")
        words.append(
            f"{form}: largest difference of logits {max(difference.values()):.1e}, "
            f"{100 * min(agreement.values()):.1f} % or more of the answers the same"
        )
    return "Right after conversion, " + "; ".join(words) + "." if words else ""


@figure("Leakage of a head by α: attention outside its own pixel", paper="not in the report")
def leakage(table: Table) -> FigureData:
    rows = {r["alpha"]: r["value"] for r in table.at(metric="leakage") if r["value"] > 0}
    if not rows:
        raise TooFewSeeds(0)
    curve = dict(sorted(rows.items()))
    law = Fit("4 exp(−α)", "other", tuple(curve), tuple(4 * math.exp(-a) for a in curve))
    exact = tuple(Estimate(v, v, v, 0, "exact") for v in curve.values())
    computed = Line("computed", "attention", tuple(map(float, curve)), exact, tuple((v,) for v in curve.values()))
    note = "Computed for one head, not sampled. For large α the four neighbours of its pixel have all that leaks."
    return Curves("", (Panel("", (computed,), "α", 2, False, (), (law,)),), "share of attention", True, note=note)


FIGURES = (
    table1_accuracy,
    fig1_training,
    fig2a_centres,
    fig2b_centres,
    fig2_grid,
    fig2_distance,
    fig2_anisotropy,
    fig3_maps,
    fig4_maps,
    fig5_average,
    sparsity,
    content_share,
    table3_accuracy,
    table3_cost,
    factorial,
    fig8_maps,
    fig8_average,
    slips,
    data_size,
    conversion_accuracy,
    conversion_drift,
    leakage,
)
