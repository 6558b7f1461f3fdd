"""The claims of the paper, each with its test."""

from __future__ import annotations

from dataclasses import replace

from saccade import stats
from saccade.lab.table import Table, per_seed
from saccade.spec import Difference, Evidence, Paper, Settings
from saccade.studies.local_structure import measures
from saccade.studies.local_structure.arms import CELLS, CHOICES, LOCAL, MAIN, RESNET, VIT, WINDOWS, tasks
from saccade.studies.local_structure.figures import FIGURES
from saccade.studies.local_structure.measures import (
    BLIND,
    BLIND_MEAN,
    CHANCE,
    TESTS,
    accuracy,
    effect,
    matching,
    near,
    objects,
    ours,
    resting_on,
    share,
    watched,
)
from saccade.study import Claim, Study, claim

WELL = 0.4  # four times chance
CLEARLY = 0.03  # a difference in accuracy that counts as clear; the report's smallest clear one is 14 points
ALIKE = 0.05  # accuracies closer than this are alike; in the report 3.1 points apart counts as "very similar"
SAME_MATCHING = 0.1  # of a class; in the report 0.04 apart
REPORTED = {RESNET: (0.9184, 2.09, 0.15), VIT: (0.747, 1.93, 0.105), LOCAL: (0.887, 2.13, 0.145)}
HISTOGRAM = (0.0714, 0.3810, 0.4286, 0.1143, 0.0048)
RARELY = 0.02  # share of mosaics with all four found that would mostly show none among the report's hundred


def _compared(table: Table) -> str:
    return ours(table, MAIN, accuracy)


# -- claims, in the order and with the ids of the list of published claims


@claim(
    "E-H1",
    "ResNet-50 learns CIFAR-10 well from scratch.",
    paper="0.918",
    concluded="confirmed",
    needs="small",
    tested=f"test accuracy of the ResNet is above {WELL:.0%}, four times chance",
)
def resnet_learns(table: Table) -> Evidence:
    return stats.above(accuracy(table, RESNET), WELL)


@claim(
    "E-H2",
    "ViT trained from scratch on CIFAR-10 is clearly worse than the CNN.",
    paper="0.747 < 0.918",
    concluded="confirmed",
    needs="small",
    tested=f"test accuracy, ResNet minus ViT, is above {100 * CLEARLY:g} points",
)
@resting_on(RESNET, VIT)
def vit_is_worse(table: Table) -> Evidence:
    return stats.greater(accuracy(table, RESNET), accuracy(table, VIT), margin=CLEARLY, note=_compared(table))


@claim(
    "E-H3",
    "The local model scores like the CNN.",
    paper="0.887 ~ 0.918 > 0.747",
    concluded="confirmed",
    needs="small",
    tested=f"test accuracy of the dynamic depth-wise net is within ± {100 * ALIKE:g} points of the "
    "ResNet's, and above the ViT's",
)
@resting_on(RESNET, VIT, LOCAL)
def local_is_like_cnn(table: Table) -> Evidence:
    return stats.all_of(
        stats.equivalent(accuracy(table, LOCAL), accuracy(table, RESNET), margin=ALIKE, note=f"{LOCAL} − {RESNET}"),
        stats.greater(accuracy(table, LOCAL), accuracy(table, VIT), note=f"{LOCAL} − {VIT}"),
        note=_compared(table),
    )


def _reached(id: str, arm: str, name: str) -> Claim:
    value = REPORTED[arm][0]

    @claim(
        id,
        f"{name} test accuracy after 80 epochs.",
        paper=f"{value:.3f}",
        concluded="measured",
        needs="paper",
        tested=f"test accuracy is within ± 2 points of {100 * value:.1f} %",
    )
    def test(table: Table) -> Evidence:
        return near(accuracy(table, arm), value, 0.02)

    return test


resnet_reaches = _reached("E-F4-resnet50", RESNET, "ResNet-50")
vit_reaches = _reached("E-F4-vit", VIT, "ViT-B/16")
local_reaches = _reached("E-F4-localvit", LOCAL, "Local model")


@claim(
    "E-F4-order",
    "Order of final test accuracy.",
    paper="resnet50 ≥ localvit >> vit",
    concluded="confirmed",
    needs="small",
    tested="test accuracy: ResNet at most 1 point below the dynamic depth-wise net, and that more "
    f"than {100 * CLEARLY:g} points above the ViT",
)
@resting_on(RESNET, VIT, LOCAL)
def order(table: Table) -> Evidence:
    return stats.all_of(
        stats.greater(accuracy(table, RESNET), accuracy(table, LOCAL), margin=-0.01, note=f"{RESNET} − {LOCAL}"),
        stats.greater(accuracy(table, LOCAL), accuracy(table, VIT), margin=CLEARLY, note=f"{LOCAL} − {VIT}"),
        note=_compared(table),
    )


@claim(
    "E-F4-early",
    "The local model starts slowest but overtakes ViT before epoch 60.",
    paper="epoch 20: 0.399 < 0.586 < 0.800; epoch 60: 0.815 > 0.727",
    concluded="not discussed",
    needs="small",
    tested="held-out accuracy of the dynamic depth-wise net: below ViT's and ResNet's after a quarter of training, "
    "above ViT's after three quarters",
)
@resting_on(RESNET, VIT, LOCAL)
def starts_slowest(table: Table) -> Evidence:
    early, late = ({arm: watched(table, arm, part) for arm in (RESNET, VIT, LOCAL)} for part in (0.25, 0.75))
    return stats.all_of(
        stats.greater(early[VIT], early[LOCAL], note="ViT − local after 1/4"),
        stats.greater(early[RESNET], early[LOCAL], note="ResNet − local after 1/4"),
        stats.greater(late[LOCAL], late[VIT], note="local − ViT after 3/4"),
    )


@claim(
    "E-EQ1",
    "Expected top-4 matching of a random classifier.",
    paper="1.6",
    concluded="exact",
    tested="mean of the hypergeometric distribution: four of ten drawn blindly, four of ten present",
)
def blind_mean(table: Table) -> Evidence:
    return stats.exact(BLIND_MEAN, abs(BLIND_MEAN - 1.6) < 1e-12, unit="classes")


@claim(
    "E-T2-random",
    "Random classifier on the combined set.",
    paper="1.6",
    concluded="exact",
    tested="the same mean, and shares of 0 to 4 matches of .0714 .3810 .4286 .1143 .0048 to four digits",
)
def blind_histogram(table: Table) -> Evidence:
    told = " ".join(f"{share:.4f}" for share in BLIND)
    right = [round(share, 4) for share in BLIND] == list(HISTOGRAM) and abs(BLIND_MEAN - 1.6) < 1e-12
    return stats.exact(BLIND_MEAN, right, unit="classes", note=f"shares {told}")


def _finds(id: str, arm: str, name: str) -> Claim:
    value = REPORTED[arm][1]

    @claim(
        id,
        f"{name} on the combined set.",
        paper=f"{value:.2f} (standard error 0.08, 100 images)",
        concluded="measured",
        needs="small",
        tested="mean top-4 matching is above 1.6, what blind guessing gives; the value depends on the net's size",
    )
    @resting_on(arm)
    def test(table: Table) -> Evidence:
        return stats.above(matching(table, arm), BLIND_MEAN, unit="classes", note=f"in the report {value:.2f}")

    return test


resnet_finds = _finds("E-T2-resnet50", RESNET, "ResNet-50")
vit_finds = _finds("E-T2-vit", VIT, "ViT")
local_finds = _finds("E-T2-localvit", LOCAL, "Local model")


@claim(
    "E-T2-order",
    "All models beat chance on the combined set; local and CNN are alike and above ViT.",
    paper="2.13 ~ 2.09 > 1.93 > 1.6; paired t over its 100 images 2.17 (local − vit), 1.66 (resnet − vit), −0.43 "
    "(resnet − local)",
    concluded="confirmed",
    needs="small",
    tested=f"mean top-4 matching: all above 1.6; ResNet and dynamic depth-wise net within ± {SAME_MATCHING:g}, both "
    "above the ViT",
)
@resting_on(RESNET, VIT, LOCAL)
def matching_order(table: Table) -> Evidence:
    found = {arm: matching(table, arm) for arm in (RESNET, VIT, LOCAL)}
    beat = [stats.above(s, BLIND_MEAN, unit="classes", note=f"{arm} above 1.6") for arm, s in found.items()]
    above = [stats.greater(found[arm], found[VIT], unit="classes", note=f"{arm} − {VIT}") for arm in (RESNET, LOCAL)]
    same = stats.equivalent(
        found[LOCAL], found[RESNET], margin=SAME_MATCHING, unit="classes", note=f"{LOCAL} − {RESNET}"
    )
    return stats.all_of(*beat, *above, same, note=ours(table, MAIN, matching, percent=False))


@claim(
    "E-F5-hist",
    "The local model most often of all finds three of four classes and never four.",
    paper="local 1,18,48,33,0; resnet 1,21,49,26,3; vit 2,27,48,22,1 of 100",
    concluded="measured",
    needs="small",
    tested="share of mosaics with three matches: dynamic depth-wise net above ResNet and ViT; with four: below "
    f"{RARELY:.0%}",
)
@resting_on(RESNET, VIT, LOCAL)
def threes(table: Table) -> Evidence:
    three = {arm: share(table, arm, 3) for arm in (RESNET, VIT, LOCAL)}
    never = {s: RARELY - v for s, v in share(table, LOCAL, 4).items()}
    return stats.all_of(
        stats.greater(three[LOCAL], three[RESNET], note=f"three: {LOCAL} − {RESNET}"),
        stats.greater(three[LOCAL], three[VIT], note=f"three: {LOCAL} − {VIT}"),
        stats.above(never, 0.0, note=f"{RARELY:.0%} − share of four"),
    )


@claim(
    "E-F5-skew",
    "Histograms of CNN and local model lean to higher counts than that of ViT.",
    paper="three or four of 100: local 33, resnet 29, vit 23",
    concluded="confirmed",
    needs="small",
    tested="share of mosaics with three or four matches: ResNet and dynamic depth-wise net above ViT",
)
@resting_on(RESNET, VIT, LOCAL)
def leans(table: Table) -> Evidence:
    high = {arm: share(table, arm, 3, 4) for arm in (RESNET, VIT, LOCAL)}
    return stats.all_of(
        *(stats.greater(high[arm], high[VIT], note=f"{arm} − {VIT}") for arm in (RESNET, LOCAL)),
        note=ours(table, MAIN, lambda t, arm: share(t, arm, 3, 4)),
    )


@claim(
    "E-H4",
    "CNN and local model do poorly on small objects over large backgrounds.",
    paper="0.918 → 0.150 and 0.887 → 0.145",
    concluded="confirmed",
    needs="small",
    tested="objects of a quarter of the side: ResNet and dynamic depth-wise net keep less than half of their test "
    "accuracy above chance",
)
@resting_on(RESNET, LOCAL)
def poor_on_small(table: Table) -> Evidence:
    parts = []
    for arm in (RESNET, LOCAL):
        lost = per_seed(lambda a, b: (a - CHANCE) / 2 - (b - CHANCE), accuracy(table, arm), objects(table, arm))
        parts.append(stats.above(lost, 0.0, note=f"{arm}: half of accuracy above chance − that on small objects"))
    return stats.all_of(*parts, note=ours(table, MAIN, objects))


@claim(
    "E-H5",
    "ViT does better than CNN and local model on small objects over large backgrounds.",
    paper="vit 0.105 < local 0.145 ~ resnet 0.150; z over its 200 images 1.35 and 1.21",
    concluded="rejected",
    needs="small",
    tested="accuracy on objects of a quarter of the side: ResNet and dynamic depth-wise net above ViT",
)
@resting_on(RESNET, VIT, LOCAL)
def vit_no_better_on_small(table: Table) -> Evidence:
    return stats.all_of(
        *(stats.greater(objects(table, arm), objects(table, VIT), note=f"{arm} − {VIT}") for arm in (RESNET, LOCAL)),
        note=ours(table, MAIN, objects),
    )


@claim(
    "E-T3-random",
    "Random classifier on the background set.",
    paper="0.10",
    concluded="exact",
    tested="ten classes equally often: any answer that does not depend on the picture is right once in ten",
)
def blind_small(table: Table) -> Evidence:
    return stats.exact(CHANCE, CHANCE == 0.1, unit="share")


def _small(id: str, arm: str, name: str, p: str) -> Claim:
    value = REPORTED[arm][2]

    @claim(
        id,
        f"{name} on the background set.",
        paper=f"{value:.3f} (200 images; binomial p against chance {p})",
        concluded="measured",
        needs="small",
        tested="accuracy on objects of a quarter of the side is above chance (10 %)",
    )
    @resting_on(arm)
    def test(table: Table) -> Evidence:
        return stats.above(objects(table, arm), CHANCE, note=f"in the report {100 * value:.1f} %")

    return test


resnet_small = _small("E-T3-resnet50", RESNET, "ResNet-50", ".016")
local_small = _small("E-T3-localvit", LOCAL, "Local model", ".027")


@claim(
    "E-T3-vit",
    "ViT on the background set.",
    paper="0.105 (200 images; binomial p against chance .44)",
    concluded="measured (at chance)",
    needs="small",
    tested="accuracy on objects of a quarter of the side is within ± 3 points of chance (10 %)",
)
@resting_on(VIT)
def vit_small(table: Table) -> Evidence:
    return near(objects(table, VIT), CHANCE, 0.03, note="in the report 10.5 %")


@claim(
    "E-C1",
    "Attention over local windows carries the same local-structure bias as convolution.",
    paper="behaviour(local) ~ behaviour(cnn), both unlike vit; no attention in its local net",
    concluded="strong indication",
    needs="small",
    tested="by ablation, not resemblance: windows instead of the whole map, mean over weight sharing and dynamic "
    "weights on and off, raise the scores of attention on each test on which the ResNet is above chance",
)
@resting_on(RESNET, *(cell.arm() for cell in CELLS))
def locality_helps(table: Table) -> Evidence:
    parts, left = [], []
    for name, (measure, blind, unit) in TESTS.items():
        base = measure(table, RESNET)
        if base and stats.estimate(base).low <= blind:
            left.append(name)
            continue
        parts.append(stats.above(effect(table, "locality", measure), 0.0, unit=unit, note=f"locality on {name}"))
    far = {
        arm: per_seed(lambda a, r: abs(a - r), accuracy(table, arm), accuracy(table, RESNET)) for arm in (WINDOWS, VIT)
    }
    told = [
        f"effects on test accuracy: {measures.effects_text(table, accuracy)}",
        f"distance in accuracy from the ResNet: {ours(table, (WINDOWS, VIT), lambda _, arm: far[arm])}",
        f"left out, as the ResNet is at chance: {', '.join(left)}" if left else "",
    ]
    return replace(stats.all_of(*parts), note="; ".join(t for t in told if t))


_TRAINED = ("E-H1", "E-H2", "E-H3", "E-F4-order", "E-F4-early", "E-C1")
_ABSOLUTE = ("E-F4-resnet50", "E-F4-vit", "E-F4-localvit")
_MOSAIC = ("E-T2-resnet50", "E-T2-vit", "E-T2-localvit", "E-T2-order", "E-F5-hist", "E-F5-skew")
_SMALL = ("E-H4", "E-H5", "E-T3-resnet50", "E-T3-vit", "E-T3-localvit")
_VIT = (
    "E-H2",
    "E-H3",
    "E-F4-order",
    "E-F4-early",
    "E-F4-vit",
    "E-T2-vit",
    "E-T2-order",
    "E-F5-skew",
    "E-H5",
    "E-T3-vit",
)
_LOCAL = (
    "E-H3",
    "E-F4-localvit",
    "E-F4-order",
    "E-F4-early",
    "E-T2-localvit",
    "E-T2-order",
    "E-F5-hist",
    "E-F5-skew",
    "E-H4",
    "E-H5",
    "E-T3-localvit",
    "E-C1",
)
DIFFERS = (
    Difference(
        "the net that the report calls Local ViT has no attention: it is a depth-wise convolution with dynamic "
        "weights. That net is trained here under its own name, and window attention beside it",
        _LOCAL,
    ),
    Difference(
        "below paper scale one recipe for all: AdamW, one-cycle, 32 pixels, random shift and flip, shuffled. "
        "The report's local net has another optimiser, batch, augmentation and length than the two others",
        (*_TRAINED, *_MOSAIC, *_SMALL),
    ),
    Difference(
        "the report's ViT was trained on unshuffled batches and tested on AutoAugmented pictures; here batches "
        "are shuffled and test pictures plain, at every scale",
        _VIT,
    ),
    Difference(
        "below paper scale nets of about 118 000 to 145 000 parameters instead of 23.5, 85.8 and 160.6 million, "
        "with 16 000 (small) or 200 000 (large) presentations instead of 4 million",
        (*_TRAINED, *_MOSAIC, *_SMALL),
    ),
    Difference(
        "2000 or more mosaics a seed instead of 100, lossless and not AutoAugmented (the report's route: --set "
        "route=report), at the training resolution, so that a tile has half the side in both",
        _MOSAIC,
    ),
    Difference(
        "1000 or more small objects a seed (400 at other sizes) instead of 200, on drawn textures unless a "
        "folder is named (--set backdrop=DIR); the report's photographs are not included. Object and picture "
        "keep the ratio 1 : 4, but below paper scale the object then has 8 pixels, in the report 56",
        _SMALL,
    ),
    Difference(
        "five paired seeds with t intervals and Holm correction instead of one run a net; the seed, not the "
        "picture, is what is repeated"
    ),
    Difference(
        "at paper scale mixup, cutmix, RandAugment, colour jitter and random erasing of the local net are not "
        "there: it trains on AutoAugmented pictures as the others do, with label smoothing and drop path",
        ("E-F4-localvit",),
    ),
    Difference("a picture set's own mean and deviation standardise the pixels, not ImageNet's", _ABSOLUTE),
)

STUDY = Study(
    name="local_structure",
    question="Is local structure what a CNN knows and attention has to learn?",
    paper=Paper(
        'A. Feer, H. Hilmarsson, M. Noruišis, S. Ray, "Investigating Possible Inductive Biases in Local Sparse '
        'Attention ViT Architectures Against Traditional CNNs", course report, ETH Zurich, 2022',
        "https://github.com/Siddhant-Ray/Deep-Learning-Project-2021",
    ),
    tasks=tasks,
    figures=FIGURES,
    claims=(
        resnet_learns,
        vit_is_worse,
        local_is_like_cnn,
        resnet_reaches,
        vit_reaches,
        local_reaches,
        order,
        starts_slowest,
        blind_mean,
        blind_histogram,
        resnet_finds,
        vit_finds,
        local_finds,
        matching_order,
        threes,
        leans,
        poor_on_small,
        vit_no_better_on_small,
        blind_small,
        resnet_small,
        vit_small,
        local_small,
        locality_helps,
    ),
    choices=CHOICES,
    differs=DIFFERS,
    costs=Settings(
        smoke="under a minute",
        small="at most 15 minutes on two cores",
        large="about three hours on two cores",
        paper="days on several GPUs; mixed precision is refused on a CPU",
    ),
)
