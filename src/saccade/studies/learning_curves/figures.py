"""The figures of the learning-curve study, by the numbers of the report's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from saccade.lab.table import Table
from saccade.report.figures import Curves, FigureData, Mark, Panel, line
from saccade.studies.learning_curves import measures, panels
from saccade.studies.learning_curves.arms import DIGITS, HEADS, PHOTOS, matched_dims
from saccade.studies.learning_curves.measures import cnns, vits
from saccade.studies.learning_curves.panels import LATER, descent, exponents, learning_panel, log_log
from saccade.study import figure

CNN, VIT = "CNN(10)", "ViT(128,1,1)"
SHADES = {0.0: 0.25, 0.1: 0.5, 0.2: 0.75}


def _noises(arms: tuple[str, ...], noises: Sequence[float] = (0.0, 0.1, 0.2)) -> list[dict[str, Any]]:
    return [{"arms": arms, "noise": n, "label": f"{100 * n:.0f} % noise", "shade": SHADES[n]} for n in noises]


def _descent(
    table: Table, channels: int, sweeps: Sequence[Mapping[str, Any]], x_label: str, mark: float = 0
) -> FigureData:
    """The report's threshold, where it gives one, is marked at the training error that counts as interpolating."""
    marks = [Mark(mark, measures.INTERPOLATES, f"{x_label[-1]} ≈ {mark:g}")] if mark else []
    made = descent(table, channels, sweeps, x_label, marks)
    if not any(drawn.x for drawn in made.lines):
        return Curves("", (replace(made, marks=()),), "error", False, True, LATER)
    p = measures.swept_p(table, sweeps[0]["arms"], channels)
    note = f"p = {p}. Dotted: training error." + " Diamond: where the report's net starts to interpolate." * bool(mark)
    return Curves("", (made,), "error", False, True, note)


@figure("CNN on MNIST: error against width", paper="Figure 8")
def fig8_cnn_mnist(table: Table) -> FigureData:
    return _descent(table, DIGITS, _noises(cnns()), "width h", 2)


@figure("CNN on CIFAR-10: error against width", paper="Figure 9")
def fig9_cnn_cifar(table: Table) -> FigureData:
    return _descent(table, PHOTOS, _noises(cnns()), "width h", 6)


@figure("ViT with 4 heads and 3 layers on MNIST: error against dimension", paper="Figure 10")
def fig10_vit_mnist(table: Table) -> FigureData:
    bare = [{"arms": vits(4, 3, ", no decay"), "noise": 0.2, "label": "20 % noise, no weight decay", "dash": "dashed"}]
    return _descent(table, DIGITS, _noises(vits(4, 3)) + bare, "dimension d", 30)


@figure("ViT with 8 heads and 6 layers on CIFAR-10: error against dimension", paper="Figure 11")
def fig11_vit_cifar(table: Table) -> FigureData:
    return _descent(table, PHOTOS, _noises(vits(8, 6)), "dimension d", 45)


@figure("Learning curves of the fixed pair", paper="Figure 12")
def fig12_learning_curves(table: Table) -> FigureData:
    marks = {DIGITS: [], PHOTOS: [Mark(8192, 0.528, line=CNN), Mark(8192, 0.671, line=VIT)]}
    pair = [{"arm": CNN}, {"arm": VIT}]
    return log_log(
        [learning_panel(table, c, pair, marks=_within(table, marks[c])) for c in (DIGITS, PHOTOS)],
        "Thin lines: power laws through the sizes at which a net interpolates. The report has α = −0.53 for "
        "both on MNIST, and a crossing near p = 700 on CIFAR-10.",
    )


@figure("Residuals of these power laws", paper="not in the report")
def fig12_residuals(table: Table) -> FigureData:
    return panels.residuals(table, (CNN, VIT))


@figure("Nets of equal size: ViTs with CNN(10)'s parameters and with its operations", paper="not in the report")
def fig12_matched(table: Table) -> FigureData:
    def panel(channels: int) -> Panel:
        same, work = matched_dims(channels)
        arms: list[dict[str, Any]] = [
            {"arm": CNN},
            {"arm": VIT, "shade": 0.8},
            {"arm": f"ViT({same},1,1)", "dash": "dashed"},
            {"arm": f"ViT({work},1,1)", "dash": "dotted", "shade": 0.3},
        ]
        return learning_panel(table, channels, arms, fits=False)

    made = [panel(c) for c in (DIGITS, PHOTOS)]
    return log_log(
        made,
        "Dashed: as many parameters as CNN(10). Dotted: as many operations a picture. "
        + LATER * (not all(len(p.lines) and p.lines[2].x for p in made)),
    )


def _heads(channels: int) -> dict[int, str]:
    return {h: f"ViT(128,{h},1)" for h in HEADS}


def _layers(table: Table) -> dict[int, str]:
    return {depth: f"ViT({measures.deep_dim(table)},1,{depth})" for depth in (1, 2, 3)}


def _shaded(arms: Mapping[int, str], word: str) -> list[dict[str, Any]]:
    dashes = ("solid", "dashed", "dashdot", "dotted", "solid")
    return [
        {"arm": arm, "label": f"{word} = {x}", "shade": 0.1 + 0.8 * i / max(1, len(arms) - 1), "dash": dashes[i]}
        for i, (x, arm) in enumerate(arms.items())
    ]


@figure("More heads: learning curves of ViT(128,H,1)", paper="Figure 13")
def fig13_heads(table: Table) -> FigureData:
    return log_log([learning_panel(table, c, _shaded(_heads(c), "H"), fits=False) for c in (DIGITS, PHOTOS)])


@figure("Exponent against heads", paper="Figure 13, its legends")
def fig13_exponents(table: Table) -> FigureData:
    return exponents(table, {"digits": _heads(DIGITS), "photos": _heads(PHOTOS)}, "heads H")


@figure("More layers: learning curves of ViT(d,1,L)", paper="Figure 14")
def fig14_layers(table: Table) -> FigureData:
    made = [learning_panel(table, c, _shaded(_layers(table), "L"), fits=False) for c in (DIGITS, PHOTOS)]
    return log_log(made, f"d = {measures.deep_dim(table)}." if made[0].lines[1].x else LATER)


@figure("Exponent against layers", paper="Figure 14, its legends")
def fig14_exponents(table: Table) -> FigureData:
    return exponents(table, dict.fromkeys(("digits", "photos"), _layers(table)), "layers L")


@figure("CNN(10) and the best ViTs", paper="Figure 15")
def fig15_best(table: Table) -> FigureData:
    d = measures.deep_dim(table)
    wanted = {DIGITS: (f"ViT({d},4,1)", f"ViT({d},4,3)"), PHOTOS: (f"ViT({d},1,3)", f"ViT({d},8,1)", f"ViT({d},8,3)")}
    dashes = ("dotted", "dashed", "solid")
    made = [
        learning_panel(
            table,
            c,
            [{"arm": CNN}]
            + [
                {"arm": a, "dash": d, "shade": 0.3 + 0.2 * i}
                for i, (a, d) in enumerate(zip(arms, dashes, strict=False))
            ],
        )
        for c, arms in wanted.items()
    ]
    whole = all(line.x for p in made for line in p.lines)
    return log_log(made, "" if whole else "Nets without rows come with a larger scale.")


@figure("Attention on digits: one of each class, and class means", paper="Figure 16")
def fig16_maps_mnist(table: Table) -> FigureData:
    basic, deep = (f"ViT({measures.deep_dim(table)},{h},{depth})" for h, depth in ((1, 1), (4, 3)))
    nets = [(basic, "map"), (deep, "map"), (deep, "rollout")]
    return panels.stacked(*(panels.maps(table, DIGITS, nets, shown=(kind,)) for kind in ("instance", "class mean")))


@figure("The same, by layer and head", paper="not in the report")
def fig16_layers_and_heads(table: Table) -> FigureData:
    return panels.head_maps(table, f"ViT({measures.deep_dim(table)},4,3)", DIGITS)


@figure("Attention on photographs, one layer, by heads", paper="Figure 17")
def fig17_maps_heads(table: Table) -> FigureData:
    return panels.maps(table, PHOTOS, [(arm, "map") for arm in _heads(PHOTOS).values()])


@figure("Attention of nets that know only 5 and 8", paper="Figure 18")
def fig18_two_classes(table: Table) -> FigureData:
    nets = [("ViT(128,1,1)", "map"), ("ViT(128,2,1)", "map"), ("ViT(128,1,2)", "rollout"), ("ViT(128,2,2)", "rollout")]
    return panels.maps(
        table, DIGITS, nets, shown=("instance", "class mean", "made-up 8"), twist=", 5 or 8", names={0: "5", 1: "8"}
    )


@figure("CNN on CIFAR-10 at 20 % noise: stopped early, and with weight decay", paper="Figure 19")
def fig19_stopping(table: Table) -> FigureData:
    looks = (
        ("", "converged", "solid", 0.75),
        (", stopped early", "stopped early", "dashed", 0.5),
        (", weight decay", "weight decay", "dashdot", 0.25),
    )
    return _descent(
        table,
        PHOTOS,
        [
            {"arms": cnns(twist), "noise": 0.2, "label": label, "dash": dash, "shade": shade}
            for twist, label, dash, shade in looks
        ],
        "width h",
    )


@figure("ViT with one head and one layer on MNIST: error against dimension", paper="Figure 20")
def fig20_vit_one_layer(table: Table) -> FigureData:
    return _descent(table, DIGITS, _noises(vits(1, 1)), "dimension d")


@figure("Attention on photographs, eight heads, by layers", paper="Figure 21")
def fig21_maps_layers(table: Table) -> FigureData:
    d = measures.deep_dim(table)
    nets = [
        (f"ViT({d},8,{depth})", kind)
        for depth, kind in ((1, "map"), (2, "map"), (2, "rollout"), (3, "map"), (3, "rollout"))
    ]
    return panels.maps(table, PHOTOS, nets)


@figure("How closely the class token looks: effective number of patches, of 64", paper="not in the report")
def looks(table: Table) -> FigureData:
    made = []
    for channels in (DIGITS, PHOTOS):
        rows = table.at(metric="effective_patches", channels=channels, noise=0.0, view="last")
        p = max(rows.values("p"), default=0)
        lines = []
        for depth in (1, 2, 3):
            arms = {h: f"ViT({128 if depth == 1 else measures.deep_dim(table)},{h},{depth})" for h in HEADS}
            mean = rows.at(p=p, arm=tuple(arms.values())).curve("effective_patches", "heads")
            single = {h: s for h, arm in arms.items() if (s := measures.head_patches(table, arm, channels, p))}
            lines += [
                line(f"L = {depth}, mean of the heads", mean, family="vit", shade=0.2 * depth),
                line(f"L = {depth}, a single head", single, family="vit", shade=0.2 * depth, dash="dashed"),
            ]
        made.append(
            Panel(
                f"{panels.set_name(table, channels)}, p = {p}", tuple(drawn for drawn in lines if drawn.x), "heads H", 2
            )
        )
    return Curves(
        "",
        tuple(made),
        "patches",
        note="exp(entropy) of the last layer: of the heads' mean map, and of one "
        "head (mean entropy of all). 64 is an even look.",
    )


@figure("Does every run interpolate? Training error at the end", paper="not in the report")
def interpolation(table: Table) -> FigureData:
    def panel(channels: int) -> Panel:
        arms = [{"arm": CNN}, *_shaded(_heads(channels), "H")]
        lines = [
            panels.arm_line(
                table, look, measures.learning(table, look["arm"], channels, "train"), channels=channels, noise=0.0
            )
            for look in arms
        ]
        return Panel(panels.set_name(table, channels), tuple(lines), "training points p", 2)

    return Curves("", (panel(DIGITS), panel(PHOTOS)), "training error", False, True, measures.endings(table))


FIGURES = (
    fig8_cnn_mnist,
    fig9_cnn_cifar,
    fig10_vit_mnist,
    fig11_vit_cifar,
    fig12_learning_curves,
    fig12_residuals,
    fig12_matched,
    fig13_heads,
    fig13_exponents,
    fig14_layers,
    fig14_exponents,
    fig15_best,
    fig16_maps_mnist,
    fig16_layers_and_heads,
    fig17_maps_heads,
    fig18_two_classes,
    fig19_stopping,
    fig20_vit_one_layer,
    fig21_maps_layers,
    looks,
    interpolation,
)


def _within(table: Table, marks: Sequence[Mark]) -> list[Mark]:
    """The report's values at sizes that were run: others would stretch the axis."""
    ps = table.values("p")
    return [m for m in marks if m.x in ps]
