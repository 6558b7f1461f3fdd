"""The 20 claims of the report, each with its test and what it requires.

The report's differences are between single runs on 947 images: one standard error of such a difference is about two
points. So "no change" is tested as less than two points, and an effect of less than one point counts as none: the
smallest that the report calls an effect is 1.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from saccade import stats
from saccade.lab.table import Series, Table, slope_per_seed
from saccade.requirements import Learned, above_chance, in_use, learned
from saccade.spec import Evidence
from saccade.studies.block_ablations.arms import (
    BARE,
    CONV,
    CONV_EPOCHS,
    CONV_SIZES,
    CONV_V2,
    CONV_V3,
    DEEPER,
    DROPOUT,
    FEWER,
    HALF_PATCH,
    HEADS,
    HELD_OUT,
    MORE,
    PARALLEL,
    POST,
    POST_DEPTHS,
    PRE_DEPTHS,
    PRINTED,
    SKIP,
    VIT,
    VIT_EPOCHS,
    VIT_SIZES,
    WIDER,
)
from saccade.studies.block_ablations.measures import (
    apart,
    beside,
    by_depth,
    by_size,
    extremes,
    first_and_last,
    gain,
    listed,
    moved,
    score,
    whole_cells,
)
from saccade.study import Claim, claim

SAME = 0.02  # a difference below this is no change: one standard error of a difference in the report
SMALL = 0.01  # and an effect below this is none
ROUNDING = 1e-9  # an error of equivariance up to here is none, in float64


def taught(*arms: str) -> tuple[Learned, ...]:
    """Each arm near enough to what the report prints for it."""
    return tuple(learned(arm, PRINTED[arm]) for arm in arms)


def _value(arm: str, loss: float) -> Callable[..., Evidence]:
    """A printed number can only be met on its own data; rows of other data do not count."""

    def test(table: Table, *, margin: float) -> Evidence:
        own = table.at(data="imagenette")
        lost = score(own, arm, "loss")
        note = f"ours: loss {stats.estimate(lost).value:.4f}; the report has {loss:.4f}" if lost else ""
        return stats.within(score(own, arm), PRINTED[arm], margin, note=note)

    return test


conv_v1 = claim(
    "B-conv-v1",
    "ConvNet with standard basic blocks.",
    paper="accuracy .8015, loss 1.0371",
    concluded="measured once",
    needs="paper",
    tested="on Imagenette, test accuracy is within {margin} (share of one) of .8015",
    requires=taught(CONV),
    margin=0.05,
)(_value(CONV, 1.0371))


@claim(
    "B-conv-v2",
    "Moving the first ReLU behind the second convolution hurts.",
    paper=".7825 < .8015 (v2 < v1)",
    concluded="confirmed, smaller than expected",
    needs="small",
    tested="test accuracy v1 minus v2 is above 0",
    requires=taught(CONV, CONV_V2),
    small=SMALL,
)
def relu_behind(table: Table) -> Evidence:
    return stats.greater(score(table, CONV), score(table, CONV_V2), note=beside(table, CONV_V2, CONV))


@claim(
    "B-conv-v3",
    "Moving the last ReLU before the addition changes little.",
    paper=".8089 against .8015 (v3, v1)",
    concluded="slight improvement, within noise",
    needs="small",
    tested="test accuracies of v3 and v1 differ by less than {margin} (share of one)",
    requires=taught(CONV, CONV_V3),
    margin=SAME,
)
def relu_before(table: Table, *, margin: float) -> Evidence:
    return stats.equivalent(score(table, CONV_V3), score(table, CONV), margin=margin, note=beside(table, CONV_V3, CONV))


vit_v1 = claim(
    "B-vit-v1",
    "ViT baseline (patch 32, width 128, depth 16, 4 heads).",
    paper="accuracy .5153, loss 1.6160",
    concluded="measured once",
    needs="paper",
    tested="on Imagenette, test accuracy is within {margin} (share of one) of .5153",
    requires=taught(VIT),
    margin=0.05,
)(_value(VIT, 1.6160))


@claim(
    "B-vit-vs-conv",
    "ViT is far worse than the ConvNet on the small data set.",
    paper=".5153 < .8015",
    concluded="confirmed",
    needs="small",
    tested="test accuracy ConvNet minus ViT is above {far} (share of one)",
    requires=taught(CONV, VIT),
    far=0.1,
)
def far_worse(table: Table, *, far: float) -> Evidence:
    return stats.greater(score(table, CONV), score(table, VIT), margin=far, note=beside(table, VIT, CONV))


@claim(
    "B-vit-v1b",
    "The ViT baseline is printed with a second value in the block study, which measures run-to-run variation.",
    paper=".4963 against .5153: 1.9 points apart",
    concluded="not discussed",
    left_open=True,
    needs="small",
    tested="runs differ enough for 1.9 points between two of them to come up more than once in twenty: standard "
    "deviation over seeds of accuracy on all test images, so that drawing images adds next to nothing, is above {sd} "
    "(share of one)",
    requires=taught(VIT),
    sd=0.0069,  # 1.9 points / (1.96 √2)
)
def varies(table: Table, *, sd: float) -> Evidence:
    few = score(table, VIT, split="held_out")
    note = ""
    if len(few) > 2:
        share = stats.estimate(few).value
        alone = math.sqrt(2 * share * (1 - share) / HELD_OUT)
        note = (
            f"drawing {HELD_OUT} images twice gives accuracies that differ with a standard deviation of "
            f"{100 * alone:.1f} points whatever the runs do"
        )
    found = stats.spread_above(score(table, VIT), sd, note=note)
    return replace(found, limit="a seed here also draws other training images, so runs on the same ones vary less")


@claim(
    "B-vit-v2",
    "Post-norm is comparable or slightly worse than pre-norm at this size.",
    paper=".4889 against .4963 (v2, v1)",
    concluded="slightly worse, within noise",
    needs="small",
    tested="test accuracy of v2 is at most {above} above and at most {below} below that of v1 (shares of one)",
    requires=taught(VIT, POST),
    above=SAME,
    below=0.05,
)
def post_norm(table: Table, *, above: float, below: float) -> Evidence:
    pre, post = score(table, VIT), score(table, POST)
    change = gain(table, POST, VIT)
    words = f"v2 - v1: {stats.estimate(change).text()}; {beside(table, POST, VIT)}" if change else ""
    return stats.all_of(
        stats.greater(pre, post, margin=-above, note="v1 - v2"),
        stats.greater(post, pre, margin=-below, note="v2 - v1"),
        note=words,
    )


@claim(
    "B-vit-v2-depth",
    "The disadvantage of post-norm grows with network size.",
    paper="expects: increasing with depth",
    concluded="conjecture",
    left_open=True,
    needs="large",
    tested="slope of accuracy v1 minus v2 against log2 of the depth, per seed, is above 0",
    requires=(
        *taught(VIT, POST),
        *(learned(PRE_DEPTHS, PRINTED[VIT], depth=d, optional=True) for d in (2, 4, 8)),
        *(
            above_chance(POST_DEPTHS, depth=d, optional=True, why="learning badly when deep is what is expected of it")
            for d in (2, 4, 8, 24)
        ),
    ),
    small=SMALL,
)
def grows_with_depth(table: Table) -> Evidence:
    gaps = apart(by_depth(table, "v1"), by_depth(table, "v2"))
    found = stats.above(slope_per_seed(gaps, math.log2), 0.0, note=f"points by depth: {listed(gaps)}")
    return replace(found, per="per doubling of the depth")


@claim(
    "B-vit-v3",
    "Adding both sub-modules to the residual stream in one step helps slightly.",
    paper=".5026 against .4963 (v3, v1)",
    concluded="slightly better, within noise, needs more tests",
    left_open=True,
    needs="small",
    tested="test accuracy of v3 (parallel: x + Att(LN x) + MLP(LN x)) minus v1 is above 0",
    requires=taught(VIT, PARALLEL),
    small=SMALL,
)
def one_step(table: Table) -> Evidence:
    other = gain(table, SKIP, VIT)
    words = f"; the other reading, one skip around both: {stats.estimate(other).text()}" if other else ""
    return stats.greater(score(table, PARALLEL), score(table, VIT), note=beside(table, PARALLEL, VIT) + words)


@claim(
    "B-hp-dropout",
    "Dropout 0.2 on activations and attention hurts, so the ViT does not over-fit.",
    paper=".5026 < .5153",
    concluded="worse",
    needs="small",
    tested="test accuracy without minus with dropout is above 0; what follows from it for over-fitting is not tested",
    requires=taught(VIT, DROPOUT),
    small=SMALL,
)
def dropout_hurts(table: Table) -> Evidence:
    fit, unseen = score(table, VIT, split="train"), score(table, VIT)
    words = ""
    if fit and unseen:
        words = (
            f"without dropout {stats.estimate(fit).short()} % of training and {stats.estimate(unseen).short()} % of "
            "test images are right; "
        )
    return stats.greater(score(table, VIT), score(table, DROPOUT), note=words + beside(table, DROPOUT, VIT))


@claim(
    "B-hp-patch16",
    "Halving the patch side improves accuracy.",
    paper=".5681 > .5153",
    concluded="better",
    needs="small",
    tested="test accuracy with half the patch minus baseline is above 0",
    requires=taught(VIT, HALF_PATCH),
    small=SMALL,
)
def smaller_patches(table: Table) -> Evidence:
    return stats.greater(score(table, HALF_PATCH), score(table, VIT), note=beside(table, HALF_PATCH, VIT))


def _no_change(id: str, statement: str, arm: str) -> Claim:
    @claim(
        id,
        statement,
        paper=f"{PRINTED[arm]:.4f} against {PRINTED[VIT]:.4f}".replace("0.", "."),
        concluded="no significant change",
        needs="small",
        tested="test accuracy and the baseline's differ by less than {margin} (share of one)",
        requires=taught(VIT, arm),
        margin=SAME,
    )
    def test(table: Table, *, margin: float) -> Evidence:
        return stats.equivalent(score(table, arm), score(table, VIT), margin=margin, note=beside(table, arm, VIT))

    return test


@claim(
    "B-Q1-data",
    "ViT needs far more data than a ConvNet because it lacks its biases; with more data the gap shrinks.",
    paper="gap decreasing in data size",
    concluded="stated",
    needs="large",
    tested="slope of accuracy ConvNet minus ViT against log2 of the number of training images is below 0, at equal "
    "images seen and at equal epochs",
    requires=(
        *taught(CONV, VIT),
        *(
            learned(arm, reaches, p=MORE, optional=True)
            for arm, reaches in (
                (CONV_SIZES, PRINTED[CONV]),
                (CONV_EPOCHS, PRINTED[CONV]),
                (VIT_SIZES, PRINTED[VIT]),
                (VIT_EPOCHS, PRINTED[VIT]),
            )
        ),
        *(
            above_chance(arm, p=FEWER, why="the report prints no accuracy for so few images")
            for arm in (CONV_SIZES, CONV_EPOCHS, VIT_SIZES, VIT_EPOCHS)
        ),
    ),
)
def gap_shrinks(table: Table) -> Evidence:
    parts = []
    for how, conv, vit in (("images seen", CONV_SIZES, VIT_SIZES), ("epochs", CONV_EPOCHS, VIT_EPOCHS)):
        gaps = apart(by_size(table, CONV, conv), by_size(table, VIT, vit))
        shrinks = {s: -v for s, v in slope_per_seed(gaps, math.log2).items()}
        found = stats.above(shrinks, 0.0, note=f"equal {how}: gap in points by images: {listed(gaps)}")
        parts.append(replace(found, per="less per doubling of the images"))
    return stats.all_of(*parts, note="; ".join(p.note for p in parts))


# -- equivariance, asked of the layers themselves


@claim(
    "B-Q2-conv",
    "A convolution layer is translation equivariant but not invariant.",
    paper="difference 0",
    concluded="stated",
    tested="a 3x3 layer's map of the image shifted by a pixel is its shifted map up to rounding (error at most "
    "{rounding}), away from the border, and not the unshifted map; in every seed, trained and untrained",
    trained=False,
    rounding=ROUNDING,
)
def convolution_moves(table: Table, *, rounding: float) -> Evidence:
    at = {"layer": "stem.0", "scope": "alone", "move": "shift", "amount": 1}
    _, error = extremes(table, CONV, "equivariance_error", region="interior", **at)
    still, _ = extremes(table, CONV, "invariance_error", region="interior", **at)
    _, edge = extremes(table, CONV, "equivariance_error", region="whole", **at)
    _, largest = extremes(table, CONV, "largest_difference", region="interior", **at)
    return stats.exact(
        error,
        error <= rounding < still,
        unit="error",
        note=(
            f"largest difference {largest:.1g}; with the border, where zero padding acts, error {edge:.2f}; against "
            f"the unshifted map {still:.2f} or more. Errors: 1 is another image's map"
        ),
    )


@claim(
    "B-Q2-vitblock",
    "A ViT block is neither equivariant nor invariant to translation.",
    paper="difference > 0",
    concluded="stated",
    tested="a block's output for rolled or permuted tokens differs from its rolled or permuted output by more than "
    "rounding (error above {rounding}), in every seed, trained and untrained",
    trained=False,
    rounding=ROUNDING,
)
def vit_block(table: Table, *, rounding: float) -> Evidence:
    first, last = first_and_last(table, VIT)
    where = {"layer": (first, last), "scope": "alone", "region": "whole"}
    found = {m: extremes(table, VIT, "equivariance_error", move=m, **where) for m in ("shift", "permute")}
    still, _ = extremes(table, VIT, "invariance_error", move="shift", **where)
    coded = moved(table, VIT, "equivariance_error", first, whole_cells(table, VIT))
    words = f"; behind learned position codes, for whole patches: {_mean(coded)}" if coded else ""
    return stats.exact(
        max(high for _, high in found.values()),
        min(low for low, _ in found.values()) > rounding,
        unit="error",
        note=(
            f"the block itself is equivariant to every order of its tokens: error {found['shift'][1]:.1g} under rolls "
            f"of the grid, {found['permute'][1]:.1g} under permutations{words}. It is not invariant: error "
            f"{still:.2f} or more against the unrolled output"
        ),
    )


@claim(
    "B-Q2-convnet",
    "A whole ConvNet is equivariant and approximately invariant thanks to pooling.",
    paper="small",
    concluded="stated",
    needs="small",
    tested="trained; image shifted by a whole cell of the last map: that map is nearer to its shifted self than to its "
    "unshifted self, and the logits, behind the pooling, change less than that map does (each against the distance "
    "between two images); image shifted by one pixel: the logits change less than a ViT's",
    requires=taught(CONV, VIT),
)
def convnet_moves(table: Table) -> Evidence:
    last, cell = first_and_last(table, CONV)[1], whole_cells(table, CONV)
    follows, stays = (moved(table, CONV, f"{m}_error", last, cell) for m in ("equivariance", "invariance"))
    logits, step, other = (
        moved(table, arm, "invariance_error", "output", by) for arm, by in ((CONV, cell), (CONV, 1), (VIT, 1))
    )
    note = (
        f"by a whole cell: last map against its shifted self {_mean(follows)}, against its unshifted self "
        f"{_mean(stays)}, logits {_mean(logits)}; by a pixel: logits {_mean(step)}, of the ViT {_mean(other)}"
    )
    return stats.all_of(
        stats.greater(stays, follows, unit="error", note="the last map follows"),
        stats.greater(stays, logits, unit="error", note="pooling"),
        stats.greater(other, step, unit="error", note="logits, ViT − ConvNet"),
        note=note,
    )


@claim(
    "B-Q2-vit",
    "A whole ViT is neither equivariant nor invariant.",
    paper="difference > 0",
    concluded="stated",
    needs="small",
    tested="trained, image shifted by whole patches, which a ViT without position codes follows to rounding: errors "
    "of the last map and of the logits are larger with position codes than without",
    requires=(*taught(VIT), learned(BARE, PRINTED[VIT]), in_use(VIT, "positions")),
)
def vit_moves(table: Table) -> Evidence:
    last, patch = first_and_last(table, VIT)[1], whole_cells(table, VIT)
    maps, bare_maps = (moved(table, arm, "equivariance_error", last, patch) for arm in (VIT, BARE))
    logits, bare, step, bare_step = (
        moved(table, arm, "invariance_error", "output", by) for by in (patch, 1) for arm in (VIT, BARE)
    )
    note = (
        f"by whole patches: last map {_mean(maps)}, logits {_mean(logits)}, without codes {_mean(bare_maps)} and "
        f"{_mean(bare)}; by a pixel, where the cut into patches acts, logits {_mean(step)} and {_mean(bare_step)}"
    )
    return stats.all_of(
        stats.greater(maps, bare_maps, unit="error", note="last map"),
        stats.greater(logits, bare, unit="error", note="logits"),
        note=note,
    )


def _mean(series: Mapping[int, float]) -> str:
    return f"{stats.estimate(series).value:.2g}" if series else "not run"


@claim(
    "B-eval",
    "Training accuracy is under-estimated when measured through the augmenting transform; measured through the test "
    "transform it is higher.",
    paper="test transform > training transform",
    concluded="explained, adopted",
    needs="small",
    tested="accuracy on the same training images, test transform minus training transform, is above 0 for ConvNet "
    "and ViT",
    requires=taught(CONV, VIT),
    small=SMALL,
)
def transform_matters(table: Table) -> Evidence:
    def both(arm: str) -> tuple[Series, Series]:
        return score(table, arm, split="train"), score(table, arm, split="train", transform="training")

    return stats.all_of(*(stats.greater(*both(arm), note=arm) for arm in (CONV, VIT)))


CLAIMS = (
    conv_v1,
    relu_behind,
    relu_before,
    vit_v1,
    far_worse,
    varies,
    post_norm,
    grows_with_depth,
    one_step,
    dropout_hurts,
    smaller_patches,
    _no_change("B-hp-embed180", "Width 180 instead of 128 changes nothing.", WIDER),
    _no_change("B-hp-depth24", "Depth 24 instead of 16 changes nothing.", DEEPER),
    _no_change("B-hp-heads8", "Eight heads instead of four change nothing.", HEADS),
    gap_shrinks,
    convolution_moves,
    vit_block,
    convnet_moves,
    vit_moves,
    transform_matters,
)
