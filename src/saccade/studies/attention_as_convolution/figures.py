"""The figures of the study of attention as convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from saccade.lab.table import Series, Table, per_seed
from saccade.report.figures import Bars, Curves, FigureData, Fit, Line, Mark, Panel, line
from saccade.stats import TooFewSeeds
from saccade.studies.attention_as_convolution import measures, pictures
from saccade.studies.attention_as_convolution.arms import (
    ATTENTION,
    CONTENT,
    DEFECTS,
    FAMILIES,
    FEW,
    HA,
    INGREDIENTS,
    ISO,
    LEARNED,
    MANY,
    NONISO,
    ONE_SHELL,
    PAIR,
    PATCH,
    RESNET,
    VIT,
)
from saccade.studies.attention_as_convolution.measures import accuracy, longest, minus
from saccade.study import figure

LOOKS: Mapping[str, tuple[str, str, float]] = {  # family, dash, shade
    RESNET: ("cnn", "solid", 0.5),
    ISO: ("attention", "solid", 0.3),
    NONISO: ("attention", "dashed", 0.45),
    LEARNED: ("attention", "dashdot", 0.6),
    CONTENT: ("attention", "dotted", 0.9),
    PAIR: ("local", "solid", 0.4),
    PATCH: ("local", "dashed", 0.6),
    VIT: ("vit", "solid", 0.5),
}
PAPER = {
    RESNET: 0.946,
    ISO: 0.943,
    NONISO: 0.939,
    LEARNED: 0.904,
    CONTENT: 0.864,
    ISO + MANY: 0.931,
    LEARNED + MANY: 0.912,
    CONTENT + MANY: 0.856,
    CONTENT + HA: 0.910,
    PAIR: 0.818,
    PAIR + HA: 0.853,
    PATCH: 0.857,
    PATCH + HA: 0.912,
    VIT: 0.843,
    VIT + HA: 0.877,
}
TIME, COUNT = "time", "parameters"
PAPER_TIMES, PAPER_COUNTS = (0.875, 0.779, 0.759, 0.888), (0.161, 0.094, 0.095, 0.175)
LEARNS = 0.7  # accuracy of some arm from which on the papers' values are on the same page


def _look(arm: str) -> tuple[str, str, float]:
    return LOOKS.get(arm.partition(",")[0], ("other", "solid", 0.5))


def _drawn(
    table: Table, label: str, arm: str, curve: Mapping[int, Series], dash: str = "", shade: float = -1.0
) -> Line:
    family, own, tone = _look(arm)
    return line(
        label, curve, family=family, dash=dash or own, shade=tone if shade < 0 else shade, gaps=table.at(arm=arm).gaps
    )


def _bars(table: Table, groups: Mapping[str, Sequence[str]], labels: Sequence[str], note: str = "") -> Bars:
    """Test accuracy: a category for each of `groups`, in it one bar for each of its arms."""
    lines, marks = [], []
    shown = any(v > LEARNS for arms in groups.values() for arm in arms for v in accuracy(table, arm).values())
    for i, label in enumerate(labels):
        arms = [each[i] if i < len(each) else "" for each in groups.values()]
        curve = {x: accuracy(table, arm) for x, arm in enumerate(arms) if arm}
        gaps = [g for arm in arms if arm for g in table.at(arm=arm).gaps]
        lines.append(
            line(
                label,
                curve,
                family="attention",
                shade=0.25 + 0.5 * i / max(1, len(labels) - 1),
                dash=("solid", "dashed", "dashdot", "dotted")[i],
                gaps=gaps,
            )
        )
        marks += [Mark(x, PAPER[arm], line=label) for x, arm in enumerate(arms) if shown and arm in PAPER]
    return Bars("", tuple(groups), tuple(lines), "", "test accuracy", False, True, tuple(marks), note)


# -- Tables 1 and 2


@figure("Test accuracy of the five models, with 9 and with 16 heads", paper="Tables 1 and 2")
def table1_accuracy(table: Table) -> FigureData:
    groups = {arm: (arm, arm + MANY if arm in (ISO, LEARNED, CONTENT) else "") for arm in (RESNET, *ATTENTION)}
    return _bars(table, groups, ("9 heads (ResNet: none)", "16 heads, narrower"))


@figure("Accuracy over training", paper="Figure 1")
def fig1_training(table: Table) -> FigureData:
    def panel(title: str, arms: Sequence[str]) -> Panel:
        lines = []
        for arm in arms:
            found = list(measures.course(table, arm).items())
            thin = dict(found[len(found) // 12 :: max(1, len(found) // 12)])
            lines.append(_drawn(table, arm.removesuffix(MANY), arm, thin))
        return Panel(title, tuple(lines), "presentations")

    made = (panel("9 heads", (RESNET, *ATTENTION)), panel("16 heads", tuple(a + MANY for a in (ISO, LEARNED, CONTENT))))
    return Curves(
        "",
        made,
        "accuracy",
        False,
        True,
        "Held-out pictures where they were looked at often, else batches before they were learned from (mean "
        f"of {measures.SMOOTH} windows): below paper scale a picture comes up about once.",
    )


# -- heads


@figure("Centres of attention, isotropic heads", paper="Figure 2a")
def fig2a_centres(table: Table) -> FigureData:
    return pictures.centres(table, longest(table, ISO))


@figure("Centres of attention, non-isotropic heads", paper="Figure 2b")
def fig2b_centres(table: Table) -> FigureData:
    return pictures.centres(table, longest(table, NONISO))


def _by_layer(table: Table, metric: str, arms: Sequence[str], title: str = "", x_label: str = "layer") -> Panel:
    """Trained as it looks, untrained dotted and pale."""
    lines = []
    for arm in arms:
        for state, dash, shade in (("trained", "", -1.0), ("start", "dotted", 0.2)):
            curve = table.curve(metric, "layer", arm=arm, state=state)
            if curve:
                lines.append(_drawn(table, f"{arm}, {state}", arm, curve, dash, shade))
    return Panel(title, tuple(lines), x_label)


@figure(
    "Do centres form a grid? Distance to whole-token shifts, and shifts of a 3x3 kernel covered",
    paper="not in the report",
)
def fig2_grid(table: Table) -> FigureData:
    arms = (longest(table, ISO), longest(table, NONISO))
    return Curves(
        "",
        (
            _by_layer(table, "lattice_distance", arms, "distance to the grid (tokens)"),
            _by_layer(table, "coverage", arms, "share of the nine shifts"),
        ),
        "tokens, and share",
        note="A centre drawn at random is 0.38 from the grid.",
    )


@figure("Distance of centres from the query, and how far they moved", paper="not in the report")
def fig2_distance(table: Table) -> FigureData:
    arms = (longest(table, ISO), longest(table, NONISO))
    return Curves(
        "",
        (
            _by_layer(table, "centre_norm", arms, "distance from the query"),
            _by_layer(table, "centre_moved", arms, "moved in training"),
        ),
        "tokens",
    )


@figure("How far from round: log ratio of a head's two precisions", paper="not in the report")
def fig2_anisotropy(table: Table) -> FigureData:
    return Curves("", (_by_layer(table, "anisotropy", (longest(table, NONISO),)),), "log ratio", note="0 is round.")


@figure("Attention of a middle query on one picture", paper="Figure 3")
def fig3_maps(table: Table) -> FigureData:
    return pictures.maps(table, (LEARNED, CONTENT), "one")


@figure("The same, averaged over pictures", paper="Figure 4")
def fig4_maps(table: Table) -> FigureData:
    return pictures.maps(table, (LEARNED, CONTENT), "many", "Mean over 50 test pictures.")


@figure("Average attention: what each token gets, mean over queries", paper="Figures 5, 9 to 23")
def fig5_average(table: Table) -> FigureData:
    return pictures.maps(
        table,
        (ISO, LEARNED, CONTENT),
        "average",
        "Equation 4 as printed would be constant; as in the code, the mean is over queries.",
    )


@figure("Hierarchical attention: one query, by pass", paper="Figure 8a")
def fig8_maps(table: Table) -> FigureData:
    return pictures.maps(table, (CONTENT + HA,), "one")


@figure("Hierarchical attention: average attention, by pass", paper="Figure 8b")
def fig8_average(table: Table) -> FigureData:
    return pictures.maps(table, (CONTENT + HA,), "average")


@figure("How many tokens a head looks at, by layer or pass", paper="not in the report")
def sparsity(table: Table) -> FigureData:
    def pixels(arm: str, state: str) -> Mapping[int, Series]:
        return {x: per_seed(math.exp, s) for x, s in table.curve("entropy", "layer", arm=arm, state=state).items()}

    made = []
    for title, arms in (("position only", (ISO, LEARNED)), ("with content", (CONTENT, CONTENT + HA))):
        lines = [
            _drawn(
                table,
                f"{arm}, {state}",
                arm,
                pixels(arm, state),
                "dotted" if state == "start" else "dashed" if arm.endswith(HA) else "solid",
                0.2 if state == "start" else -1.0,
            )
            for arm in arms
            for state in ("trained", "start")
        ]
        made.append(Panel(title, tuple(drawn for drawn in lines if drawn.x), "layer or pass"))
    return Curves("", tuple(made), "effective tokens", note="exp of the mean entropy.")


@figure("How much of a head's map is the same for every picture, and how far it looks", paper="not in the report")
def content_share(table: Table) -> FigureData:
    arms = (CONTENT, CONTENT + HA)
    return Curves(
        "",
        (
            _by_layer(table, "positional_share", arms, "positional share", "layer or pass"),
            _by_layer(table, "pass_change", arms, "attention that moved since the layer before", "layer or pass"),
        ),
        "share",
    )


# -- Table 3


@figure("Independent layers against hierarchical attention", paper="Table 3")
def table3_accuracy(table: Table) -> FigureData:
    return _bars(
        table,
        {arm: (arm, arm + HA) for arm in FAMILIES},
        ("SA: layers of their own", "HA: one shared block"),
        "One recipe for both.",
    )


@figure("Time a picture and parameters, hierarchical over independent", paper="Table 3")
def table3_cost(table: Table) -> FigureData:
    size = measures.timed_size(table)
    ratios = {x: r for x, arm in enumerate(FAMILIES) if (r := measures.time_ratio(table, arm, size))}
    try:
        found = measures.numbers(table, "size", "net")
        counts = {x: {0: found[arm + HA] / found[arm]} for x, arm in enumerate(FAMILIES)}
    except TooFewSeeds:
        counts = {}
    lines = (
        line(TIME, ratios, family="attention", shade=0.7),
        line(COUNT, counts, family="attention", shade=0.25, dash="dashed"),
    )
    marks = [
        Mark(x, y, line=label)
        for label, values in ((TIME, PAPER_TIMES), (COUNT, PAPER_COUNTS))
        for x, y in enumerate(values)
        if ratios or counts
    ]
    told = ", ".join(
        f"{arm} {mean(sa):.3g} and {mean(ha):.3g}"
        for arm in FAMILIES
        if (sa := measures.time(table, arm, "SA", size)) and (ha := measures.time(table, arm, "HA", size))
    )
    what = "the report's sizes" if size == "paper" else "this study's sizes"
    return Bars(
        "",
        FAMILIES,
        lines,
        "",
        "HA over SA",
        False,
        False,
        tuple(marks),
        f"Untrained nets of {what}, in turns at batch 1 on one core; the report timed a GPU. Milliseconds, SA "
        f"and HA: {told}. Parameters are counted at the report's sizes.",
    )


def mean(series: Series) -> float:
    return sum(series.values()) / len(series)


@figure("What hierarchical attention is made of: sharing, frozen keys, depth", paper="not in the report")
def factorial(table: Table) -> FigureData:
    names = {"": "neither (SA)", ", shared": "shared weights", ", frozen keys": "frozen keys", HA: "both (HA)"}
    both = ONE_SHELL if accuracy(table, CONTENT + ONE_SHELL) else HA
    groups = {
        names[twist]: (CONTENT + (both if twist == HA else twist), CONTENT + twist + ", half as deep")
        for twist in INGREDIENTS
    }
    return _bars(table, groups, ("full depth", "half as deep"), f"{CONTENT}, at one recipe.")


# -- what else


@figure("What the reproduction's slips change: accuracy with minus without", paper="not in the report")
def slips(table: Table) -> FigureData:
    inside = {base: minus(accuracy(table, arm), accuracy(table, base)) for arm, base in DEFECTS.items()}
    tested = {
        arm: minus(table.series("accuracy_in_train_mode", arm=arm), accuracy(table, arm))
        for arm in (RESNET, PAIR, PATCH, VIT)
    }
    arms = [arm for arm in (ISO, NONISO, CONTENT, VIT, RESNET, PAIR, PATCH) if inside.get(arm) or tested.get(arm)]
    lines = [
        line(
            label,
            {x: found[arm] for x, arm in enumerate(arms) if found.get(arm)},
            family="attention",
            shade=shade,
            dash=dash,
        )
        for label, found, shade, dash in (
            ("slip in the net", inside, 0.3, "solid"),
            ("tested in training mode", tested, 0.7, "dashed"),
        )
    ]
    short = {ISO: "iso", NONISO: "non-iso", PAIR: "SAN pair", PATCH: "SAN patch"}  # room for seven letters
    return Bars(
        "",
        tuple(short.get(a, a) for a in arms),
        tuple(lines),
        "",
        "points of accuracy",
        False,
        True,
        note="Paired by seed. In the net: centres of Gaussian heads added where they multiply, content "
        "compared at transposed pixels, a class token of noise. In training mode batch norms use and "
        "learn from the test pictures.",
    )


@figure("Accuracy on few and on many pictures", paper="not in the report")
def data_size(table: Table) -> FigureData:
    return _bars(
        table,
        {arm: (arm + FEW, arm) for arm in (ISO, LEARNED, CONTENT)},
        ("few pictures", "many pictures"),
        "Equal presentations.",
    )


@figure(
    "Attention made from a trained convolution net: accuracy before and after training on", paper="not in the report"
)
def conversion_accuracy(table: Table) -> FigureData:
    forms = table.at(metric="converted_accuracy").values("form")
    lines = [
        line(
            f"{when} training on",
            {x: table.series("converted_accuracy", form=f, when=when) for x, f in enumerate(forms)},
            family="attention",
            shade=shade,
        )
        for when, shade in (("before", 0.25), ("after", 0.75))
    ]
    return Bars("", tuple(forms), tuple(lines), "", "test accuracy", False, True, note=_conversion_note(table))


@figure(
    "Does it stay a convolution? Distance of each layer from the nearest one, and drift of centres",
    paper="not in the report",
)
def conversion_drift(table: Table) -> FigureData:
    def panel(title: str, metric: str, whens: Sequence[str]) -> Panel:
        lines = []
        for form in table.at(metric=metric).values("form"):
            for when in whens:
                curve = table.curve(metric, "layer", form=form, when=when)
                lines.append(
                    line(
                        f"{form}, {when}",
                        curve,
                        family="attention",
                        shade=0.7 if "exact" in form else 0.3,
                        dash="dotted" if when == "before" else "solid",
                    )
                )
        return Panel(title, tuple(drawn for drawn in lines if drawn.x), "layer")

    return Curves(
        "",
        (
            panel("distance from the nearest convolution", "nearest_distance", ("before", "after")),
            panel("drift of centres (pixels)", "centre_drift", ("after",)),
        ),
        "",
        note="The distance is the part of the kernel outside the convolution's shifts, from 0 to 1.",
    )


def _conversion_note(table: Table) -> str:
    words = []
    for form in table.at(metric="logit_difference").values("form"):
        if form != "convolution":
            apart = table.series("logit_difference", form=form, when="before")
            same = table.series("agreement", form=form, when="before")
            words.append(
                f"{form}: largest difference of logits {max(apart.values()):.1e}, "
                f"{100 * min(same.values()):.1f} % or more of the answers the same"
            )
    return "Right after conversion, " + "; ".join(words) + "." if words else ""


@figure("Leakage of a head by α, as a power of ten", paper="not in the report")
def leakage(table: Table) -> FigureData:
    rows = {r["alpha"]: {0: math.log10(r["value"])} for r in table.at(metric="leakage") if r["value"] > 0}
    curve = dict(sorted(rows.items()))
    law = Fit("4 exp(−α)", "attention", tuple(curve), tuple(math.log10(4 * math.exp(-a)) for a in curve))
    drawn = line("attention outside the head's own pixel", curve, family="attention")
    return Curves("", (Panel("", (drawn,), "α", None, False, (), (law,) if curve else ()),), "power of ten")


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
