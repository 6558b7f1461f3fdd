"""The figures of the learning-curve study, by the numbers of the report's own: curves with fits, and attention maps.

The two sets have a figure each: on one axis the curves of CIFAR-10 would lie flat beside those of MNIST.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saccade import stats
from saccade.lab.table import Table
from saccade.report import figures
from saccade.report.figures import Curves, FigureData, Fit, Heatmap, ImageGrid, Line, Mark, Panel, line
from saccade.stats import TooFewSeeds
from saccade.studies.learning_curves import measures
from saccade.studies.learning_curves.arms import (
    CNN,
    DECAYED,
    DIGITS,
    EARLY,
    HEADS,
    LAYERS,
    NOISES,
    PHOTOS,
    TWO,
    UNDECAYED,
    VIT,
    Arm,
    cnns,
    matched_dims,
    vit,
    vits,
)
from saccade.studies.learning_curves.measures import Law, deep
from saccade.study import Figure, figure

if TYPE_CHECKING:
    import numpy as np

SETS = {DIGITS: ("mnist", "MNIST"), PHOTOS: ("cifar", "CIFAR-10")}
NAMES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "fashion_mnist": "Fashion-MNIST",
    "procedural_digits": "drawn digits",
    "procedural_textures": "drawn textures",
}
THINGS = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")  # CIFAR-10's classes
DASHES = ("solid", "dashed", "dashdot", "dotted")
BRIGHT = 5.0  # times an even look, from which on a map is brightest
LEGEND = "Warm: attention in units of an even look, with the key below, the same for all maps. Blue: the image."

Look = tuple[Arm, Mapping[str, Any]]  # an arm with label, dash, shade or family of its line, where they are not its own


def set_name(table: Table, channels: int) -> str:
    names = table.at(channels=channels).values("of")
    return NAMES.get(names[0], str(names[0])) if names else SETS[channels][1]


# -- error against points


def learning_curves(
    table: Table,
    channels: int,
    looks: Sequence[Look],
    *,
    fits: bool = False,
    marks: Sequence[Mark] = (),
    note: str = "",
) -> Curves:
    """Test error against p, log-log, one line per arm that has rows, with its power law if wanted."""
    lines, fitted = [], []
    for arm, look in looks:
        curve = measures.learning(table, arm, channels)
        if curve:
            lines.append(_arm_line(table, arm, look, curve, channels=channels, noise=0.0))
        law = law_or_none(table, arm, channels) if fits else None
        if law is not None:
            fitted.append(_fit(law))
    name = set_name(table, channels)
    panel = Panel(name, tuple(lines), "training points p", 2, False, tuple(marks) if lines else (), tuple(fitted))
    return Curves("", (panel,), "test error", True, True, note)


def _arm_line(table: Table, arm: Arm, look: Mapping[str, Any], curve: Mapping[Any, Any], **where: Any) -> Line:
    style = {"label": arm.name, "family": arm.family, **look}
    return line(curve=curve, gaps=table.at(arm=arm.name, **where).gaps, **style)


def law_or_none(table: Table, arm: Arm, channels: int) -> Law | None:
    try:
        return measures.laws(table, [arm], channels)[0]
    except TooFewSeeds:
        return None


def _fit(law: Law) -> Fit:
    ends = (law.fit.sizes[0], law.fit.sizes[-1])
    errors = tuple(math.exp(law.fit.log_prefactor + law.fit.exponent.value * math.log(p)) for p in ends)
    return Fit(law.text, law.arm.family, ends, errors)


def _graded(arms: Mapping[int, Arm], word: str) -> list[Look]:
    """Lighter to darker, each with a dash of its own."""
    count = max(1, len(arms) - 1)
    return [
        (arm, {"label": f"{word} = {x}", "shade": 0.05 + 0.9 * i / count, "dash": DASHES[i % len(DASHES)]})
        for i, (x, arm) in enumerate(arms.items())
    ]


def _per_set(name: str, title: str, paper: str, make: Callable[[Table, int], FigureData]) -> tuple[Figure, Figure]:
    """The same figure once for each set."""
    first, second = (
        Figure(f"{name}_{short}", f"{title}: {long}", paper, lambda table, c=channels: make(table, c))  # type: ignore[misc]
        for channels, (short, long) in SETS.items()
    )
    return first, second


def _pair(table: Table, channels: int) -> FigureData:
    remarks = {DIGITS: "The report has α = −0.53 for both.", PHOTOS: "The report has a crossing near p = 700."}
    values = ((CNN, 0.528), (VIT, 0.671)) if channels == PHOTOS else ()
    marks = [Mark(8192, y, line=arm.name) for arm, y in values if 8192 in measures.learning(table, arm, PHOTOS)]
    note = f"Thin lines: power laws through all sizes. {remarks[channels]}" + " Diamonds: the report's." * bool(marks)
    return learning_curves(table, channels, [(CNN, {}), (VIT, {})], fits=True, marks=marks, note=note)


fig12 = _per_set("fig12_learning_curves", "Learning curves of the fixed pair", "Figure 12", _pair)


def _residuals(table: Table, channels: int) -> FigureData:
    """Log error minus fitted log error, seed by seed: a bend here means that no power law holds."""
    lines = []
    for arm in (CNN, VIT):
        law = law_or_none(table, arm, channels)
        if law is not None:
            curve = {
                p: {s: row[i] for s, row in zip(law.seeds, law.fit.residuals, strict=True)}
                for i, p in enumerate(law.fit.sizes)
            }
            lines.append(line(arm.name, curve, family=arm.family))
    panel = Panel(set_name(table, channels), tuple(lines), "training points p", 2)
    return Curves("", (panel,), "log error minus fit")


fig12_residuals = _per_set("fig12_residuals", "Residuals of these power laws", "not in the report", _residuals)


def _matched(table: Table, channels: int) -> FigureData:
    same_parameters, same_operations = (vit(dim, 1, 1) for dim in matched_dims(channels))
    if not measures.learning(table, same_parameters, channels):
        raise TooFewSeeds(0)
    looks: list[Look] = [
        (CNN, {}),
        (VIT, {"shade": 0.9}),
        (
            same_parameters,
            {"label": f"{same_parameters.name}, as many parameters", "dash": "dashed", "family": "hybrid"},
        ),
        (
            same_operations,
            {"label": f"{same_operations.name}, as many operations", "dash": "dotted", "family": "attention"},
        ),
    ]
    return learning_curves(table, channels, looks)


fig12_matched = _per_set("fig12_matched", "ViTs of CNN(10)'s parameters and operations", "not in the report", _matched)


def _heads() -> dict[int, Arm]:
    return {h: vit(128, h, 1) for h in HEADS}


def _layers(table: Table) -> dict[int, Arm]:
    return {depth: deep(table, 1, depth) for depth in LAYERS}


fig13 = _per_set(
    "fig13_heads",
    "More heads: learning curves of ViT(128,H,1)",
    "Figure 13",
    lambda table, c: learning_curves(table, c, _graded(_heads(), "H")),
)


def _by_layers(table: Table, channels: int) -> FigureData:
    arms = _layers(table)
    if not measures.learning(table, arms[3], channels):
        raise TooFewSeeds(0)
    return learning_curves(table, channels, _graded(arms, "L"), note=f"d = {arms[1].dial}.")


fig14 = _per_set("fig14_layers", "More layers: learning curves of ViT(d,1,L)", "Figure 14", _by_layers)


def _exponents(table: Table, arms: Mapping[int, Arm], x_label: str) -> Curves:
    """Exponents against heads or layers, a panel per set, each with its own axis: the photographs' are near 0."""
    panels = []
    for channels in (DIGITS, PHOTOS):
        try:
            laws = measures.laws(table, list(arms.values()), channels)
        except TooFewSeeds:
            continue
        curve = {x: law.exponents for x, law in zip(arms, laws, strict=True)}
        exponent_line = line(arms[min(arms)].name.partition("(")[0], curve, family="vit")
        panels.append(Panel(set_name(table, channels), (exponent_line,), x_label, 2, y_label="exponent α"))
    return Curves("", tuple(panels), "exponent α", note="Lower is steeper. Each panel has its own axis.")


@figure("Exponent against heads", paper="Figure 13, its legends")
def fig13_exponents(table: Table) -> FigureData:
    return _exponents(table, _heads(), "heads H")


@figure("Exponent against layers", paper="Figure 14, its legends")
def fig14_exponents(table: Table) -> FigureData:
    return _exponents(table, _layers(table), "layers L")


def _best(table: Table, channels: int) -> FigureData:
    shapes = {DIGITS: ((1, 1), (4, 3)), PHOTOS: ((1, 3), (8, 1), (8, 3))}[channels]
    arms = [deep(table, *shape) for shape in shapes]
    if not measures.learning(table, arms[-1], channels):
        raise TooFewSeeds(0)
    looks = zip(("hybrid", "local", "vit"), ("dotted", "dashed", "solid"), strict=True)
    styles = [{"family": family, "dash": dash} for family, dash in looks][-len(arms) :]
    return learning_curves(table, channels, [(CNN, {}), *zip(arms, styles, strict=True)])


fig15 = _per_set("fig15_best", "CNN(10) and the best ViTs", "Figure 15", _best)


# -- error against the size dial


def _descent(
    table: Table, channels: int, sweeps: Sequence[tuple[Sequence[Arm], float, Mapping[str, Any]]], paper: float = 0
) -> FigureData:
    """Train (dotted) and test error against the dial, one pair of lines per sweep: arms, noise and look.

    A panel per number of training points. The report's threshold, where it gives one, is an upright line.
    """
    sizes = {p for arms, noise, _ in sweeps if (p := measures.swept_p(table, arms, channels, noise))}
    dial = "width h" if any(arms[0].is_cnn for arms, _, _ in sweeps) else "dimension d"
    panels = []
    for p in sorted(sizes):
        lines = [each for sweep in sweeps for each in _descending(table, channels, p, *sweep)]
        if lines:
            top = max(e.value for each in lines for e in each.estimates)
            upright = (Fit(f"report: interpolates from {dial[-1]} ≈ {paper:g}", "other", (paper, paper), (0, top)),)
            title = f"{set_name(table, channels)}, p = {p}"
            panels.append(Panel(title, tuple(lines), dial, 2, fits=upright if paper else ()))
    if not panels:
        raise TooFewSeeds(0)
    return Curves("", tuple(panels), "error", False, True, "Dotted: training error.")


def _descending(
    table: Table, channels: int, p: int, arms: Sequence[Arm], noise: float, look: Mapping[str, Any]
) -> Iterator[Line]:
    """Test and training error of one sweep, where it was run at this size."""
    for split, dash in (("test", look.get("dash", "solid")), ("train", "dotted")):
        curve = measures.sweep(table, arms, channels, noise, split, p)
        if len(curve) > 1:
            gaps = table.at(arm=[a.name for a in arms], channels=channels, noise=noise, p=p).gaps
            style = {"family": arms[0].family, **look, "label": f"{look['label']}, {split}", "dash": dash}
            yield line(curve=curve, gaps=gaps, **style)


def _noises(arms: Sequence[Arm]) -> list[tuple[Sequence[Arm], float, Mapping[str, Any]]]:
    shades = dict(zip(NOISES, (0.1, 0.5, 0.9), strict=True))
    dashes = dict(zip(NOISES, ("solid", "dashed", "dashdot"), strict=True))
    return [(arms, n, {"label": f"{100 * n:.0f} % noise", "shade": shades[n], "dash": dashes[n]}) for n in NOISES]


@figure("CNN on MNIST: error against width", paper="Figure 8")
def fig8_cnn_mnist(table: Table) -> FigureData:
    return _descent(table, DIGITS, _noises(cnns()), 2)


@figure("CNN on CIFAR-10: error against width", paper="Figure 9")
def fig9_cnn_cifar(table: Table) -> FigureData:
    return _descent(table, PHOTOS, _noises(cnns()), 6)


@figure("ViT with 4 heads and 3 layers on MNIST: error against dimension", paper="Figure 10")
def fig10_vit_mnist(table: Table) -> FigureData:
    no_decay = {"label": "20 % noise, no weight decay", "family": "hybrid"}
    return _descent(table, DIGITS, [*_noises(vits(4, 3)), (vits(4, 3, UNDECAYED), 0.2, no_decay)], 30)


@figure("ViT with 8 heads and 6 layers on CIFAR-10: error against dimension", paper="Figure 11")
def fig11_vit_cifar(table: Table) -> FigureData:
    return _descent(table, PHOTOS, _noises(vits(8, 6)), 45)


@figure("CNN on CIFAR-10 at 20 % noise: stopped early, and with weight decay", paper="Figure 19")
def fig19_stopping(table: Table) -> FigureData:
    if not measures.swept_p(table, cnns(EARLY), PHOTOS, 0.2):
        raise TooFewSeeds(0)
    looks = (("", "converged", "cnn"), (EARLY, EARLY, "hybrid"), (DECAYED, DECAYED, "mlp"))
    return _descent(table, PHOTOS, [(cnns(t), 0.2, {"label": label, "family": f}) for t, label, f in looks])


@figure("ViT with one head and one layer on MNIST: error against dimension", paper="Figure 20")
def fig20_vit_one_layer(table: Table) -> FigureData:
    return _descent(table, DIGITS, [s for s in _noises(vits(1, 1)) if measures.sweep(table, s[0], DIGITS, 0.2)])


# -- attention maps


@figure("Attention on digits: one of each class, and class means", paper="Figure 16")
def fig16_maps_mnist(table: Table) -> FigureData:
    basic, best = deep(table, 1, 1), deep(table, 4, 3)
    return maps(table, DIGITS, [(basic, "map"), (best, "map"), (best, "rollout")], ("instance", "class mean"))


@figure("The same, by layer and head", paper="not in the report")
def fig16_layers_and_heads(table: Table) -> FigureData:
    """One image's maps by layer (down) and head (across)."""
    import numpy as np

    arm = deep(table, 4, 3)
    rows = list(table.at(metric="head_map", arm=arm.name, channels=DIGITS))
    last = max((r["p"] for r in rows), default=0)
    cells = {(r["layer"], r["head"]): np.reshape(r["map"], (8, 8)) for r in rows if r["p"] == last}
    if not cells:
        raise TooFewSeeds(0)
    layers, heads = (sorted({k[i] for k in cells}) for i in (0, 1))
    return _with_key(
        [[heat(cells[i, j]) for j in heads] for i in layers],
        [f"layer {i}" for i in layers],
        [f"head {j}" for j in heads],
        f"{arm.name} on the first image above. {LEGEND}",
    )


@figure("Attention on photographs, one layer, by heads", paper="Figure 17")
def fig17_maps_heads(table: Table) -> FigureData:
    return maps(table, PHOTOS, [(arm, "map") for arm in _heads().values()])


@figure("Attention of models that know only 5 and 8", paper="Figure 18")
def fig18_two_classes(table: Table) -> FigureData:
    views = [(vit(128, h, depth, TWO), "map" if depth == 1 else "rollout") for depth in (1, 2) for h in (1, 2)]
    return maps(table, DIGITS, views, ("instance", "class mean", "made-up 8"), names={0: "5", 1: "8"})


@figure("Attention on photographs, eight heads, by layers", paper="Figure 21")
def fig21_maps_layers(table: Table) -> FigureData:
    if not table.at(metric="image", channels=PHOTOS, heads=8, depth=3):
        raise TooFewSeeds(0)
    views = ((1, "map"), (2, "map"), (2, "rollout"), (3, "map"), (3, "rollout"))
    return maps(table, PHOTOS, [(deep(table, 8, depth), view) for depth, view in views])


def maps(
    table: Table,
    channels: int,
    views: Sequence[tuple[Arm, str]],
    shown: Sequence[str] = ("instance",),
    *,
    names: Mapping[int, str] | None = None,
) -> ImageGrid:
    """The images above, then one row of overlays for each arm and way of reading its maps ("map" or "rollout")."""
    arms = {arm.name for arm, _ in views}
    rows = [r for r in table.at(metric="image", arm=arms, channels=channels) if r["shown"] in shown]
    if not rows:
        raise TooFewSeeds(0)
    last = max(r["p"] for r in rows)
    cells = {(r["arm"], r["shown"], r["label"]): r for r in rows if r["p"] == last}
    kinds = [kind for kind in shown if any(key[1] == kind for key in cells)]
    columns = sorted({(kinds.index(kind), label) for _, kind, label in cells})
    if len(columns) > 10:  # a block of rows for each kind
        blocks = [maps(table, channels, views, (kind,), names=names) for kind in kinds]
        return figures.ImageGrid(
            "",
            tuple(row for b in blocks for row in b.images[:-1]) + blocks[0].images[-1:],
            tuple(label for b in blocks for label in b.row_labels[:-1]) + blocks[0].row_labels[-1:],
            blocks[0].column_labels,
            LEGEND,
        )
    first = [next(r for (_, kind, label), r in cells.items() if (kinds.index(kind), label) == at) for at in columns]
    grid: list[list[Any]] = [[_image(r) for r in first]]
    labels = ["image" if kinds[0] == "instance" else kinds[0]]
    for arm, view in views:
        image_rows = [cells.get((arm.name, kinds[i], label)) for i, label in columns]
        if any(image_rows):
            grid.append([None if r is None else overlay(r, view) for r in image_rows])
            labels.append(arm.name + (", rollout" if view == "rollout" else ""))
    class_names = names or (dict(enumerate(THINGS)) if first[0]["of"] == "cifar10" else {})
    titles = [_title(r, class_names, means=len(kinds) > 1) for r in first]
    return _with_key(grid, labels, titles, LEGEND)


def _title(row: Mapping[str, Any], names: Mapping[int, str], *, means: bool) -> str:
    if row["label"] < 0:
        return str(row["shown"])
    mean = "mean " if means and row["shown"] == "class mean" else ""
    return f"{mean}{names.get(row['label'], row['label'])}"


def _with_key(grid: list[list[Any]], labels: Sequence[str], columns: Sequence[str], note: str) -> ImageGrid:
    """A last row of patches with their attention in units of an even look."""
    import numpy as np

    across = len(columns)
    levels = sorted((0, BRIGHT, 1, 3, 2, 4)[:across])
    rest = across - len(levels)
    patches = [*(heat(np.full((8, 8), level / 64)) for level in levels), *[None] * rest]
    captions = [[""] * across for _ in grid] + [[f"{level:g}" for level in levels] + [""] * rest]
    return figures.image_grid(
        [*grid, patches], rows=[*labels, "key: times an even look"], columns=columns, captions=captions, note=note
    )


def _image(row: Mapping[str, Any]) -> np.ndarray:
    import numpy as np

    image = np.reshape(np.array(row["image"], np.uint8), (-1, 32, 32)).transpose(1, 2, 0)
    return np.repeat(image, 3, 2) if image.shape[2] == 1 else image


def overlay(row: Mapping[str, Any], view: str = "map") -> np.ndarray:
    """The map as warm light over the image in faint blue: (32, 32, 3), float in [0, 1]."""
    import numpy as np

    warm = heat(np.reshape(np.array(row[view], float), (8, 8)))
    blue = _image(row).mean(2, keepdims=True) / 255 * np.array([0.1, 0.35, 0.75])
    mixed: np.ndarray = np.clip(warm + (1 - warm.max(2, keepdims=True)) * blue, 0, 1)
    return mixed


def heat(grid: np.ndarray) -> np.ndarray:
    """A map that sums to one, as 32 x 32 light: black over red and orange to pale yellow."""
    import numpy as np

    share = _large(np.clip(grid * grid.size / BRIGHT, 0, 1)[..., None])
    ramps = ((1.8, 0.0), (1.7, 0.5), (2.5, 1.7))
    return np.concatenate([np.clip(rise * share - start, 0, 1) for rise, start in ramps], -1)


def _large(grid: np.ndarray) -> np.ndarray:
    """8 x 8 to 32 x 32, linear between the patches' middles."""
    import numpy as np

    at = np.clip((np.arange(32) + 0.5) / 4 - 0.5, 0, 7)
    low = np.floor(at).astype(int)
    high, share = np.minimum(low + 1, 7), (at - low)[:, None, None]
    rows = grid[low] * (1 - share) + grid[high] * share
    share = share.transpose(1, 0, 2)
    large: np.ndarray = rows[:, low] * (1 - share) + rows[:, high] * share
    return large


@figure(
    "How closely the class token looks on photographs: effective number of patches, of 64", paper="not in the report"
)
def looks(table: Table) -> FigureData:
    p = measures.maps_p(table, vit(128, 1, 1), PHOTOS)
    arms = {h: arm for h, arm in _heads().items() if arm in measures.mapped(table, p)}
    mean = {h: measures.map_number(table, arm, PHOTOS, "effective_patches", p) for h, arm in arms.items()}
    single = {h: measures.head_patches(table, arm, PHOTOS, p) for h, arm in arms.items()}
    lines = (
        line("mean map of the heads", mean, family="vit", shade=0.2),
        line("a single head", single, family="hybrid", dash="dashed"),
    )
    note = "exp(entropy) of the mean map, which more heads flatten by themselves, and of one head. 64 is an even look."
    panel = Panel(f"ViT(128,H,1), {set_name(table, PHOTOS)}, p = {p}", lines, "heads H", 2)
    return Curves("", (panel,), "effective patches", note=note)


def _interpolation(table: Table, channels: int) -> FigureData:
    """Numbers in cells: nearly all are 0, so that lines would lie on one another."""
    arms = {CNN.name: CNN, **{f"ViT, {h} head{'s' * (h > 1)}": arm for h, arm in _heads().items()}}
    curves = {name: measures.learning(table, arm, channels, "train") for name, arm in arms.items()}
    curves = {name: curve for name, curve in curves.items() if curve}
    sizes = sorted({p for curve in curves.values() for p in curve})
    return Heatmap(
        "",
        tuple(tuple(stats.estimate(c[p]) if p in c else None for p in sizes) for c in curves.values()),
        tuple(curves),
        tuple(f"{p:,}" for p in sizes),
        "",
        "training points p",
        f"training error, {set_name(table, channels)}",
        percent=True,
        note=measures.endings(table),
        ceiling=0.1,
    )


interpolation = _per_set(
    "interpolation", "Does every run interpolate? Training error at the end", "not in the report", _interpolation
)

FIGURES = (
    fig8_cnn_mnist,
    fig9_cnn_cifar,
    fig10_vit_mnist,
    fig11_vit_cifar,
    *fig12,
    *fig12_residuals,
    *fig12_matched,
    *fig13,
    fig13_exponents,
    *fig14,
    fig14_exponents,
    *fig15,
    fig16_maps_mnist,
    fig16_layers_and_heads,
    fig17_maps_heads,
    fig18_two_classes,
    fig19_stopping,
    fig20_vit_one_layer,
    fig21_maps_layers,
    looks,
    *interpolation,
)
