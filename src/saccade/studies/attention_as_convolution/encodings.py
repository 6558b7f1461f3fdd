"""Claims on encodings of position: theorem, Tables 1 and 2, Figures 1 to 5, in the order of the published list."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from saccade import stats
from saccade.lab.table import Series, Table, per_seed
from saccade.spec import Evidence
from saccade.studies.attention_as_convolution import measures
from saccade.studies.attention_as_convolution.arms import ATTENTION, CONTENT, FEW, ISO, LEARNED, MANY, NONISO, RESNET
from saccade.studies.attention_as_convolution.measures import (
    accuracy,
    contrast,
    early,
    late,
    layers,
    longest,
    mean,
    minus,
    printed_size,
    published,
    told,
)
from saccade.study import claim

EQUAL = 0.01  # accuracies closer than this count as "not below": the papers compare to one point
SAME = 0.02  # what the papers call no significant effect goes up to 1.2 points
FLOAT64, FLOAT32 = 1e-12, 1e-5  # rounding of sums of some hundred products


@claim(
    "R-TH1",
    "A self-attention layer with K*K heads, relative code of dimension 3 or more and quadratic scores "
    "expresses any KxK convolution with min(D_h, D_out) output channels.",
    paper="difference 0",
    concluded="proven",
    tested="random convolutions (K = 1 to 5; zero, replicate, no padding; stride, dilation) "
    "made into attention: largest difference at most 1e-12 in float64 and 1e-5 in float32",
)
def theorem(table: Table) -> Evidence:
    measures.numbers(table, "theorem_error", "dtype")  # too few seeds when there are none
    every = {d: max(r["value"] for r in table.at(metric="theorem_error", dtype=d)) for d in ("float64", "float32")}
    cases = len(table.at(metric="theorem_error", dtype="float64"))
    return stats.exact(
        every["float64"],
        every["float64"] <= FLOAT64 and every["float32"] <= FLOAT32,
        unit="difference",
        note=f"float64 {every['float64']:.1e}, float32 {every['float32']:.1e}, over {cases} kinds of convolution each",
    )


@claim(
    "R-LEM1",
    "The construction needs each head to put all its mass on one distinct shift inside the kernel.",
    paper="leakage → 0 as α → ∞",
    concluded="proven",
    tested="leakage of a head falls with every step of α and is 4 exp(−α) within 3 % from α = 5 on; with two heads "
    "on one shift no values give the convolution",
)
def lemma(table: Table) -> Evidence:
    leaks = measures.numbers(table, "leakage", "alpha")
    ratios = measures.numbers(table, "leakage_ratio", "alpha")
    doubled = next(iter(measures.numbers(table, "doubled_head_error", "run").values()))
    alphas = sorted(leaks)
    falls = all(leaks[a] > leaks[b] for a, b in pairwise(alphas))
    law = all(abs(ratios[a] - 1) < 0.03 for a in alphas if a >= 5)
    return stats.exact(
        leaks[alphas[-1]],
        falls and law and doubled > 0.05,
        unit="share of attention",
        note="leakage "
        + ", ".join(f"{leaks[a]:.1e} at α = {a:g}" for a in alphas)
        + f"; best error with two heads on one shift: {100 * doubled:.0f} % of the output's norm",
    )


@claim(
    "R-FACT",
    "Isotropic quadratic and learned-without-content attention maps are products of a row softmax and a "
    "column softmax; non-isotropic with correlation and with-content maps are not.",
    paper="difference 0",
    concluded="derived and checked",
    tested="largest difference of probabilities from the product, in float64: at "
    "most 1e-12 for the first two, above 1e-3 for the others",
)
def factorises(table: Table) -> Evidence:
    found = measures.numbers(table, "product_error", "kind")
    holds = max(found[ISO], found[LEARNED]) <= FLOAT64 and min(found[NONISO], found[CONTENT]) > 1e-3
    return stats.exact(
        max(found[ISO], found[LEARNED]),
        holds,
        unit="difference",
        note=", ".join(f"{k} {v:.1e}" for k, v in found.items()),
    )


resnet18 = published("R-T1-resnet18", "ResNet-18 on CIFAR-10.", RESNET, ".938 / .946", 0.946, concluded="reproduced")
iso_value = published(
    "R-T1-quadratic-iso",
    "Isotropic quadratic encoding, 9 heads, 6 layers.",
    ISO,
    ".938 / .943",
    0.943,
    concluded="reproduced",
)
noniso_value = published(
    "R-T1-quadratic-noniso",
    "Non-isotropic quadratic encoding, 9 heads, 6 layers.",
    NONISO,
    ".934 / .939",
    0.939,
    concluded="reproduced",
)
learned_value = published(
    "R-T1-learned-nocontent",
    "Learned relative encoding without content.",
    LEARNED,
    ".918 / .904",
    0.904,
    concluded="reproduced (1.4 points off)",
)
content_value = published(
    "R-T1-learned-content",
    "Learned relative encoding with content.",
    CONTENT,
    ".871 / .864",
    0.864,
    concluded="reproduced",
)


@claim(
    "R-T1-params",
    "Sizes of the five models of Table 1.",
    paper="11.2 / 12.1 / 12.1 / 12.3 / 29.5 million",
    concluded="matched by the original code, not by the reproduction's",
    tested="parameters of the nets as built, rounded to 0.1 million",
)
def table1_sizes(table: Table) -> Evidence:
    printed = {RESNET: 11.2, ISO: 12.1, NONISO: 12.1, LEARNED: 12.3, CONTENT: 29.5}
    parts = [printed_size(table, net, million) for net, million in printed.items()]
    other = ", ".join(f"{measures.size(table, f'{n}, reproduction'):,}" for n in ATTENTION)
    ours = ", ".join(f"{measures.size(table, n):,}" for n in printed)
    return stats.all_of(*parts, note=f"{ours}; the reproduction's own attention nets: {other}")


@claim(
    "R-T1-within1",
    "All reproduced accuracies lie within one percent of the original.",
    paper="at most 0.01",
    concluded="claimed (one is 0.014 off)",
    needs="paper",
    tested="test accuracy of each of the five nets within ± 1 point of the original paper's",
)
def within_one(table: Table) -> Evidence:
    original = {RESNET: 0.938, ISO: 0.938, NONISO: 0.934, LEARNED: 0.918, CONTENT: 0.871}
    parts = []
    for arm, value in original.items():
        found = accuracy(table, arm)
        parts.append(stats.equivalent(found, dict.fromkeys(found, value), margin=0.01, note=arm))
    return stats.all_of(*parts)


@claim(
    "R-T1-order",
    "Order of the five models.",
    paper="ResNet-18 ≥ isotropic ≥ non-isotropic > learned > with content",
    concluded="holds in both columns",
    needs="small",
    tested=f"paired differences of test accuracy: ≥ as more than −{100 * EQUAL:g} point, > as more than 0",
)
def order(table: Table) -> Evidence:
    steps = ((RESNET, ISO, -EQUAL), (ISO, NONISO, -EQUAL), (NONISO, LEARNED, 0.0), (LEARNED, CONTENT, 0.0))
    said = ", ".join(
        told(arm, {s: 100 * v for s, v in accuracy(table, arm).items()}, 1, " %") for arm in (RESNET, *ATTENTION)
    )
    return stats.all_of(
        *(stats.greater(accuracy(table, a), accuracy(table, b), margin=m, note=f"{a} − {b}") for a, b, m in steps),
        note=said,
    )


def _slower(table: Table, pairs: tuple[tuple[str, str], ...]) -> Evidence:
    """Does the first of each pair need more presentations than the second?"""
    arms = tuple(dict.fromkeys(arm for pair in pairs for arm in pair))
    found = measures.presentations(table, arms)
    said = ", ".join(told(arm, {s: 100 * v for s, v in found[arm].items()}, 0, " %") for arm in arms)
    return stats.all_of(
        *(stats.greater(found[a], found[b], note=f"{a} − {b}") for a, b in pairs),
        note=f"share of the budget until 90 % of the lowest final accuracy: {said}",
    )


@claim(
    "R-F1-resnet-fast",
    "The convolutional net converges in fewer epochs than all attention models.",
    paper="epochs-to-accuracy(resnet18) < attention models",
    concluded="stated",
    needs="small",
    tested="presentations until 90 % of the lowest final accuracy of the five: each attention net's minus ResNet's "
    "is above 0",
)
def resnet_is_fast(table: Table) -> Evidence:
    return _slower(table, tuple((arm, RESNET) for arm in ATTENTION))


@claim(
    "R-F2-grid",
    "After training, centres of isotropic heads spread into a grid around the query pixel.",
    paper="grid-like in trained layers",
    concluded="confirmed",
    needs="small",
    tested="against the untrained net of the seed: centres lie nearer to whole-pixel shifts, and more of the nine "
    "shifts of a 3x3 kernel are the nearest one to some centre",
)
def grid(table: Table) -> Evidence:
    arm = longest(table, ISO)
    near = {state: mean(layers(table, "lattice_distance", arm, state)) for state in ("start", "trained")}
    covers = {state: mean(layers(table, "coverage", arm, state)) for state in near}
    evidence = stats.all_of(
        stats.greater(near["start"], near["trained"], unit="tokens", note="distance to the grid, start − trained"),
        stats.greater(covers["trained"], covers["start"], unit="share of shifts", note="coverage, trained − start"),
        note="; ".join(
            (
                told("distance", near["start"]),
                told("then", near["trained"]),
                told("coverage", covers["start"]),
                told("then", covers["trained"]),
            )
        ),
    )
    return measures.moved_enough(table, arm, evidence)


@claim(
    "R-F2-depth",
    "First layers attend close to the query, deeper layers further away.",
    paper="layers 1-2 < layers 3-6",
    concluded="confirmed",
    needs="small",
    tested="mean distance of isotropic centres from the query, last two layers minus the ones before: larger after "
    "training than in the untrained net of the seed, where it is chance",
)
def centres_by_depth(table: Table) -> Evidence:
    arm = longest(table, ISO)
    found = {state: layers(table, "centre_norm", arm, state) for state in ("start", "trained")}
    by = ", ".join(told(f"layer {i}", s) for i, s in found["trained"].items())
    evidence = stats.greater(contrast(found["trained"]), contrast(found["start"]), unit="tokens", note=by)
    return measures.moved_enough(table, arm, evidence)


@claim(
    "R-F2-noniso",
    "Heads become anisotropic, mostly in last layers, without accuracy gain.",
    paper="accuracy(noniso) ≤ accuracy(iso)",
    concluded="confirmed",
    needs="small",
    tested="log ratio of a head's two precisions: larger than in the untrained net, and larger in the last two "
    f"layers than before; accuracy of non-isotropic minus isotropic below {100 * EQUAL:g} point",
)
def anisotropy(table: Table) -> Evidence:
    iso, noniso = longest(table, ISO), longest(table, NONISO)
    found = {state: layers(table, "anisotropy", noniso, state) for state in ("start", "trained")}
    by = ", ".join(told(f"layer {i}", per_seed(math.exp, s)) for i, s in found["trained"].items())
    return stats.all_of(
        stats.greater(mean(found["trained"]), mean(found["start"]), unit="log ratio", note="trained − start"),
        stats.above(contrast(found["trained"]), 0.0, unit="log ratio", note="last two layers − before"),
        stats.greater(accuracy(table, iso), accuracy(table, noniso), margin=-EQUAL, note=f"accuracy, {iso} − {noniso}"),
        note=f"ratio of precisions: {by}",
    )


@claim(
    "R-F2-degenerate",
    "Some heads degenerate to thin strips or near-uniform attention.",
    paper="> 0",
    concluded="observed",
    needs="small",
    tested="share of non-isotropic heads with a condition number above 1000 or a largest precision below 1e-5 (the "
    "original code's rule for pruning) is above 0",
)
def degenerate(table: Table) -> Evidence:
    found, ratio = (mean(layers(table, m, longest(table, NONISO))) for m in ("degenerate", "anisotropy"))
    return stats.above(
        found, 0.0, unit="share of heads", note=told("mean ratio of precisions", per_seed(math.exp, ratio))
    )


@claim(
    "R-F3-nocontent",
    "With learned positions only, some heads pick a single pixel, others long-range patterns.",
    paper="both kinds present",
    concluded="confirmed",
    needs="small",
    tested="shares of heads that look at no more than 2 pixels (exp of entropy), and at a mean distance of a "
    "quarter of the grid or more: both above 0",
)
def kinds_of_heads(table: Table) -> Evidence:
    single, far = (mean(layers(table, m, LEARNED)) for m in ("single_heads", "far_heads"))
    pixels = mean(layers(table, "entropy", LEARNED))
    was = mean(layers(table, "entropy", LEARNED, "start"))
    said = "; ".join(
        (told("effective pixels", per_seed(math.exp, pixels), 1), told("untrained", per_seed(math.exp, was), 1))
    )
    return stats.all_of(
        stats.above(single, 0.0, unit="share of heads", note="a single pixel"),
        stats.above(far, 0.0, unit="share of heads", note="far"),
        note=said,
    )


@claim(
    "R-F3-content",
    "With content, some heads remain positional and others depend on content.",
    paper="both kinds present",
    concluded="confirmed",
    needs="small",
    tested="positional share of a head: variance of its mean map over that of its maps on 50 pictures, around an "
    "even look. Shares of heads above and below one half: both above 0",
)
def positional_heads(table: Table) -> Evidence:
    share = layers(table, "positional_heads", CONTENT)
    by = ", ".join(told(f"layer {i}", s) for i, s in layers(table, "positional_share", CONTENT).items())
    return stats.all_of(
        stats.above(mean(share), 0.0, unit="share of heads", note="positional"),
        stats.above(per_seed(lambda v: 1 - v, mean(share)), 0.0, unit="share of heads", note="by content"),
        note=f"positional share: {by}",
    )


@claim(
    "R-F5-avg",
    "Average attention is purely positional without content and mixed with content.",
    paper="image-independent without content",
    concluded="confirmed (true by construction without content)",
    needs="small",
    tested="mean attention a pixel gets: the same for all pictures without content, exactly; with "
    "content, both its fixed and its varying part are at least a tenth of its variance",
)
def average_attention(table: Table) -> Evidence:
    fixed = max(v for s in layers(table, "average_variation", LEARNED).values() for v in s.values())
    share = mean(layers(table, "average_positional", CONTENT))
    return stats.all_of(
        stats.exact(
            fixed, fixed < 1e-6, f"{LEARNED}: attention that moves with the picture", unit="share of attention"
        ),
        stats.above(share, 0.1, unit="share", note=f"{CONTENT}: fixed part"),
        stats.above(per_seed(lambda v: 1 - v, share), 0.1, unit="share", note=f"{CONTENT}: varying part"),
    )


t2_quadratic = published("R-T2-quadratic", "Quadratic encoding with 16 heads, width 256.", ISO + MANY, ".931", 0.931)
t2_learned = published(
    "R-T2-learned-nocontent", "Learned without content, 16 heads, width 256.", LEARNED + MANY, ".912", 0.912
)
t2_content = published(
    "R-T2-learned-content", "Learned with content, 16 heads, width 256.", CONTENT + MANY, ".856", 0.856
)


@claim(
    "R-T2-heads",
    "Going from 9 to 16 heads has no significant effect on accuracy.",
    paper="−1.2, +0.8, −0.8 points",
    concluded="stated",
    needs="small",
    tested=f"accuracy with 16 minus 9 heads within ± {100 * SAME:g} points, for isotropic, learned, and content",
)
def heads(table: Table) -> Evidence:
    return stats.all_of(
        *(
            stats.equivalent(
                accuracy(table, arm + MANY), accuracy(table, arm), margin=SAME, note=f"{arm}: 16 − 9 heads"
            )
            for arm in (ISO, LEARNED, CONTENT)
        ),
        note=", ".join(
            told(
                arm,
                {s: 100 * v for s, v in minus(accuracy(table, arm + MANY), accuracy(table, arm)).items()},
                1,
                " points",
            )
            for arm in (ISO, LEARNED, CONTENT)
        ),
    )


@claim(
    "R-F1b-slow",
    "16-head models converge more slowly because of more parameters.",
    paper="epochs-to-accuracy(16) > epochs-to-accuracy(9)",
    concluded="stated (two of the three are smaller)",
    needs="small",
    tested="presentations until 90 % of the lowest final accuracy: 16 minus 9 heads above 0, for "
    "isotropic, learned, and with content",
)
def more_heads_are_slow(table: Table) -> Evidence:
    found = _slower(table, tuple((arm + MANY, arm) for arm in (ISO, LEARNED, CONTENT)))
    counts = ", ".join(
        f"{measures.size(table, arm + MANY):,} for {measures.size(table, arm):,}" for arm in (ISO, LEARNED, CONTENT)
    )
    return replace(
        found,
        note=f"{found.note}; parameters in the papers, 16 for 9 heads: {counts}",
        limit="that parameters are the cause is not tested",
    )


@claim(
    "R-O1",
    "Attention with content is worst because it lacks the locality and translation bias that position-only "
    "attention has built in.",
    paper="gap shrinks with more data (implied)",
    concluded="hypothesis",
    needs="small",
    tested="lead in accuracy of position-only attention (mean of isotropic and learned) over content: above 0 on "
    "few pictures, and smaller on twenty times as many, at equal presentations",
)
def content_catches_up(table: Table) -> Evidence:
    def lead(twist: str) -> Series:
        return per_seed(
            lambda a, b, c: (a + b) / 2 - c, *(accuracy(table, arm + twist) for arm in (ISO, LEARNED, CONTENT))
        )

    few, whole = lead(FEW), lead("")
    return stats.all_of(
        stats.above(few, 0.0, note="lead on few pictures"),
        stats.greater(few, whole, note="lead on few − on many"),
        note="; ".join(
            (
                told("few", {s: 100 * v for s, v in few.items()}, 1, " points"),
                told("many", {s: 100 * v for s, v in whole.items()}, 1, " points"),
            )
        ),
    )


@claim(
    "R-O2",
    "With content, attention of the last two layers is over-sparse and uninformative.",
    paper="entropy(last two layers) << entropy(first layers)",
    concluded="observed",
    needs="small",
    tested="mean entropy of the layers before, minus that of the last two, is above log 2: half as many pixels",
)
def over_sparse(table: Table) -> Evidence:
    found = layers(table, "entropy", CONTENT)
    by = ", ".join(told(f"layer {i}", per_seed(math.exp, s), 1) for i, s in found.items())
    return stats.greater(
        mean(early(found)), mean(late(found)), margin=math.log(2), unit="nats", note=f"effective pixels: {by}"
    )


CLAIMS = (
    theorem,
    lemma,
    factorises,
    resnet18,
    iso_value,
    noniso_value,
    learned_value,
    content_value,
    table1_sizes,
    within_one,
    order,
    resnet_is_fast,
    grid,
    centres_by_depth,
    anisotropy,
    degenerate,
    kinds_of_heads,
    positional_heads,
    average_attention,
    t2_quadratic,
    t2_learned,
    t2_content,
    heads,
    more_heads_are_slow,
    content_catches_up,
    over_sparse,
)
