"""The study from tasks to verdicts: every published claim, exact ones from numbers, relations from made-up rows."""

import math
import zlib
from collections import Counter

import numpy as np
import pytest

import saccade
from saccade import models
from saccade.lab import pipeline
from saccade.lab.table import Table
from saccade.report import draw
from saccade.spec import SCALES, SaccadeError, Scale
from saccade.studies.attention_as_convolution import arms, measures, pictures
from saccade.studies.attention_as_convolution.arms import (
    CONTENT,
    FEW,
    HA,
    ISO,
    LEARNED,
    LONGER,
    MANY,
    NONISO,
    PAIR,
    RESNET,
)
from saccade.studies.attention_as_convolution.claims import STUDY
from saccade.study import judge

IDS = [
    "R-TH1",
    "R-LEM1",
    "R-FACT",
    "R-T1-resnet18",
    "R-T1-quadratic-iso",
    "R-T1-quadratic-noniso",
    "R-T1-learned-nocontent",
    "R-T1-learned-content",
    "R-T1-params",
    "R-T1-within1",
    "R-T1-order",
    "R-F1-resnet-fast",
    "R-F2-grid",
    "R-F2-depth",
    "R-F2-noniso",
    "R-F2-degenerate",
    "R-F3-nocontent",
    "R-F3-content",
    "R-F5-avg",
    "R-T2-quadratic",
    "R-T2-learned-nocontent",
    "R-T2-learned-content",
    "R-T2-heads",
    "R-F1b-slow",
    "R-O1",
    "R-O2",
    "R-T3-learned-SA",
    "R-T3-learned-HA",
    "R-T3-sanpair-SA",
    "R-T3-sanpair-HA",
    "R-T3-sanpatch-SA",
    "R-T3-sanpatch-HA",
    "R-T3-vit-SA",
    "R-T3-vit-HA",
    "R-T3-better",
    "R-T3-gain5",
    "R-T3-params",
    "R-T3-time",
    "R-HA-const",
    "R-F8-dense",
    "R-F8-conv",
    "R-HA-distinct",
]
FULL_SIZE = {
    "R-T1-resnet18",
    "R-T1-quadratic-iso",
    "R-T1-quadratic-noniso",
    "R-T1-learned-nocontent",
    "R-T1-learned-content",
    "R-T1-within1",
    "R-T2-quadratic",
    "R-T2-learned-nocontent",
    "R-T2-learned-content",
    "R-T3-learned-SA",
    "R-T3-learned-HA",
    "R-T3-sanpair-SA",
    "R-T3-sanpatch-SA",
    "R-T3-vit-SA",
    "R-T3-vit-HA",
}


def planned(scale, **given):
    return STUDY.tasks(Scale(scale), STUDY.choose(given))


# -- the study as a value


def test_every_claim_stands_once_and_only_full_size_values_wait():
    assert [c.id for c in STUDY.claims] == IDS
    assert {c.id for c in STUDY.claims if c.needs == "paper"} == FULL_SIZE
    assert {c.needs for c in STUDY.claims} == {"", "small", "paper"}
    assert all(set(d.touches) <= set(IDS) for d in STUDY.differs)


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_is_listed_once_under_one_arm(scale):
    found = planned(scale)
    assert len({t.run.key for t in found}) == len(found)
    assert max(Counter((t.arm, t.run.seed) for t in found).values()) == 1
    seeds = Counter(t.arm for t in found)
    assert set(seeds.values()) == {2 if scale in ("smoke", "demo") else 5}


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_sweeps_share_their_runs(scale):
    every = {t.run.key: t for t in planned(scale)}
    union = set()
    for name in arms.SWEEPS:
        mine = planned(scale, sweep=name)
        assert {t.run.key for t in mine} <= set(every)
        union |= {t.run.key for t in mine}
    assert union == set(every)


def test_looks_know_how_their_run_was_made():
    for task in planned("small", shell="reproduction"):
        for probe in task.probes:
            if probe.name in ("attention_geometry", "centres_in_training"):
                assert probe.settings["args"] == task.run.model_args and probe.settings["model"] == task.run.model
            if probe.name == "centres_in_training":
                assert probe.settings["recipe"] == task.run.recipe.essence() and task.run.seed == 0


def test_ablation_is_a_full_factorial_at_one_recipe():
    arms = {t.arm: t.run for t in planned("small", sweep="factorial")}
    assert len(arms) == 8 and len({r.recipe for r in arms.values()}) == 1
    counts = {arm: models.parameters(models.build(r.model, **r.model_args)) for arm, r in arms.items()}
    shared = {arm for arm in arms if "shared" in arm or HA in arm}
    assert len({counts[a] for a in shared}) == 1  # size does not depend on depth, nor on frozen keys
    assert counts[CONTENT] > counts[f"{CONTENT}, frozen keys"] > counts[f"{CONTENT}, shared"]


def test_both_forms_of_a_family_share_width_and_recipe_below_paper_scale():
    arms = {t.arm: t.run for t in planned("small")}
    for family in arms.FAMILIES:
        one, other = arms[family], arms[family + HA]
        assert one.recipe == other.recipe
        assert {**one.model_args, "hierarchical": True} == dict(other.model_args)


def test_paper_scale_has_the_recipes_of_table_4():
    arms = {t.arm: t.run for t in planned("paper")}
    told = {arm: (r.recipe.images // 45_000, r.recipe.batch, r.recipe.lr, r.recipe.schedule) for arm, r in arms.items()}
    assert told[RESNET] == told[ISO] == told[CONTENT + HA] == (300, 100, 0.1, "cosine")
    assert told["ViT"] == told["ViT, HA"] == (100, 32, 0.01, "cosine")
    assert told[PAIR] == (300, 256, 0.1, "steps") and told[PAIR + HA] == (300, 40, 0.1, "cosine")
    assert arms[ISO].recipe.nesterov and arms[ISO].recipe.warmup == pytest.approx(15 / 300)
    assert ISO + LONGER not in arms and arms[ISO].data_args["p"] == 0


def test_unknown_choices_get_a_sentence():
    with pytest.raises(SaccadeError, match="sweep must be one of"):
        STUDY.choose({"sweep": "table9"})


# -- verdicts from made-up rows


def rows(metric, arm, value, seeds=5, spread=0.005, **at):
    random = np.random.default_rng(zlib.crc32(f"{metric}{arm}{at}".encode()))
    return [
        {
            "metric": metric,
            "arm": arm,
            "seed": s,
            "run": f"{arm}{s}",
            "n": 100,
            "value": value + spread * random.standard_normal(),
            **at,
        }
        for s in range(seeds)
    ]


def scores(**by_arm):
    return [r for arm, value in by_arm.items() for r in rows("accuracy", arm, value, split="test")]


def verdict(claim, found, scale="small"):
    return next(v for v in judge(STUDY, Table(tuple(found)), scale) if v.claim == claim)


def test_the_order_of_table_1():
    right = {RESNET: 0.6, ISO: 0.55, NONISO: 0.55, LEARNED: 0.5, CONTENT: 0.4}
    assert verdict("R-T1-order", scores(**right)).says == "reproduced"
    assert verdict("R-T1-order", scores(**{**right, CONTENT: 0.7})).says == "contradicted"


def test_hierarchical_gains():
    base = dict.fromkeys(arms.FAMILIES, 0.5)
    little = scores(**base, **{arm + HA: 0.53 for arm in base})
    assert verdict("R-T3-better", little).says == "reproduced"
    assert verdict("R-T3-gain5", little).says == "contradicted"
    assert "3.9, 3.5, 5.5 and 3.4" in verdict("R-T3-gain5", little).remark
    assert verdict("R-T3-gain5", scores(**base, **{arm + HA: 0.6 for arm in base})).says == "reproduced"


def test_heads_and_data_size():
    same = scores(**{a + t: 0.5 for a in (ISO, LEARNED, CONTENT) for t in ("", MANY)})
    assert verdict("R-T2-heads", same).says == "reproduced"
    closing = scores(**{ISO: 0.5, LEARNED: 0.5, CONTENT: 0.48, ISO + FEW: 0.4, LEARNED + FEW: 0.4, CONTENT + FEW: 0.3})
    assert verdict("R-O1", closing).says == "reproduced"


def course(arm, slow, seeds=5):
    places = range(100, 4001, 100)
    return [
        r for at in places for r in rows("online", arm, 0.1 + 0.4 * (1 - math.exp(-at / slow)), seeds, 0.002, images=at)
    ]


def test_convergence_is_timed_at_a_common_level():
    quick = course(RESNET, 300) + [r for arm in arms.ATTENTION for r in course(arm, 1000)]
    assert verdict("R-F1-resnet-fast", quick).says == "reproduced"
    straight = [
        {"metric": "online", "arm": arm, "seed": 0, "run": arm, "n": 1, "images": at, "value": at / 100 * top}
        for arm, top in (("a", 1.0), ("b", 0.5))
        for at in range(10, 101, 10)
    ]
    found = measures.presentations(Table(tuple(straight)), ("a", "b"))
    # the mean over all ten windows so far is half of the last plus 0.05, and b ends at 0.275
    level = 0.9 * 0.275
    assert found["b"][0] == pytest.approx(level / 0.5 * 2 - 0.1) and found["a"][0] == pytest.approx(level * 2 - 0.1)


def layered(metric, arm, by_layer, state="trained", spread=0.01):
    return [r for i, v in enumerate(by_layer, 1) for r in rows(metric, arm, v, spread=spread, state=state, layer=i)]


def test_centres_that_have_not_moved_decide_nothing():
    arm = ISO + LONGER
    moved = layered("lattice_distance", arm, (0.4,) * 3, "start") + layered("lattice_distance", arm, (0.1,) * 3)
    moved += layered("coverage", arm, (0.3,) * 3, "start") + layered("coverage", arm, (0.9,) * 3)
    assert verdict("R-F2-grid", moved + layered("centre_moved", arm, (1.0,) * 3)).says == "reproduced"
    still = verdict("R-F2-grid", moved + layered("centre_moved", arm, (0.05,) * 3))
    assert still.says == "undecided" and "still where they were drawn" in still.remark


def test_depth_sparsity_and_passes():
    arm = ISO + LONGER
    deep = layered("centre_norm", arm, (2.5,) * 3, "start") + layered("centre_norm", arm, (1.0, 3.0, 3.0))
    assert verdict("R-F2-depth", deep + layered("centre_moved", arm, (1.0,) * 3)).says == "reproduced"
    sparse = layered("entropy", CONTENT, (4.0, 1.0, 1.0)) + layered("entropy", CONTENT + HA, (4.0, 3.0, 3.0))
    assert verdict("R-O2", sparse).says == verdict("R-F8-dense", sparse).says == "reproduced"
    assert "effective pixels: layer 1 54." in verdict("R-O2", sparse).remark
    start = layered("pass_change", CONTENT + HA, (0.1, 0.1), "start")
    passes = start + layered("pass_change", CONTENT + HA, (0.5, 0.4))
    assert verdict("R-HA-distinct", passes).says == "reproduced"
    same = start + layered("pass_change", CONTENT + HA, (0.02, 0.02))
    assert verdict("R-HA-distinct", same).says == "contradicted"


def test_a_head_is_degenerate_or_it_is_not():
    none = layered("degenerate", NONISO, (0.0,) * 3, spread=0) + layered("anisotropy", NONISO, (1.0,) * 3)
    assert verdict("R-F2-degenerate", none).says == "undecided"
    some = layered("degenerate", NONISO, (0.1, 0.2, 0.3)) + layered("anisotropy", NONISO, (1.0,) * 3)
    assert verdict("R-F2-degenerate", some).says == "reproduced"


def test_times_are_compared_in_pairs():
    def timed(ha):
        return [
            r
            for arm in arms.FAMILIES
            for form, ms in (("SA", 10.0), ("HA", ha))
            for r in rows("milliseconds", CONTENT + HA, ms, spread=0.1, family=arm, form=form, size="paper")
        ]

    assert verdict("R-T3-time", timed(8.0)).says == "reproduced"
    assert verdict("R-T3-time", timed(12.0)).says == "contradicted"


def test_published_values_wait_for_the_published_training():
    size = [{"metric": "size", "net": PAIR + HA, "value": 352_750, "seed": 0, "run": "x", "arm": "LeNet", "n": 1}]
    early = scores(**{PAIR + HA: 0.3}) + rows("online", PAIR + HA, 0.3, images=1920) + size
    assert verdict("R-T3-sanpair-HA", early).says == "undecided"
    assert "1,920 presentations" in verdict("R-T3-sanpair-HA", early).remark
    late = scores(**{PAIR + HA: 0.853}) + rows("online", PAIR + HA, 0.9, images=13_500_000) + size
    assert verdict("R-T3-sanpair-HA", late, "paper").says == "reproduced"
    off = scores(**{PAIR + HA: 0.7}) + rows("online", PAIR + HA, 0.9, images=13_500_000) + size
    assert verdict("R-T3-sanpair-HA", off, "paper").says == "contradicted"


# -- exact claims from what the probes count


@pytest.fixture(scope="module")
def exact_rows():
    from saccade import registry
    from saccade.data.images import Source

    task = next(t for t in planned("smoke", photos="procedural_textures") if any(p.name == "sizes" for p in t.probes))
    data = Source(task.run.data, task.run.data_args, 0)
    return [
        {"metric": r.metric, "value": r.value, "n": r.n, "arm": task.arm, "seed": 0, "run": "x", **r.at}
        for p in task.probes
        if p.name in ("sizes", "convolution_theorem")
        for r in registry.find("probe", p.name)(None, data, **p.settings)
    ]


@pytest.mark.parametrize("claim", ["R-TH1", "R-LEM1", "R-FACT", "R-T1-params", "R-T3-params", "R-HA-const"])
def test_exact_claims_are_reproduced_at_any_scale(exact_rows, claim):
    found = verdict(claim, exact_rows, "smoke")
    assert found.says == "reproduced" and found.evidence.estimate.method == "exact"


def test_exact_claims_can_fail(exact_rows):
    wrong = [{**r, "value": r["value"] + 100_000} if r.get("net") == ISO else r for r in exact_rows]
    assert verdict("R-T1-params", wrong, "smoke").says == "contradicted"
    leaky = [
        {**r, "value": 1e-9} if r["metric"] == "theorem_error" and r["dtype"] == "float64" else r for r in exact_rows
    ]
    assert verdict("R-TH1", leaky, "smoke").says == "contradicted"
    grown = [{**r, "value": r["value"] + 1} if r.get("net") == f"{CONTENT}{HA}, 12 passes" else r for r in exact_rows]
    assert verdict("R-HA-const", grown, "smoke").says == "contradicted"


def test_published_sizes(exact_rows):
    counts = {r["net"]: r["value"] for r in exact_rows if r["metric"] == "size"}
    assert [counts[n] for n in (ISO, NONISO, LEARNED, CONTENT, RESNET)] == [
        12_086_844,
        12_087_006,
        12_278_682,
        29_484_282,
        11_173_962,
    ]
    assert [counts[n + MANY] for n in (ISO, LEARNED, CONTENT)] == [7_538_058, 13_973_802, 26_459_754]
    assert [counts[f"{n}, reproduction"] for n in (ISO, CONTENT)] == [11_124_444, 28_478_682]
    assert [counts[n + HA] for n in arms.FAMILIES] == [4_754_122, 352_750, 356_282, 6_531_946]
    assert [counts[n] for n in arms.FAMILIES] == [29_484_282, 3_737_056, 3_851_142, 37_394_506]


# -- pictures


def test_every_figure_is_made_from_nothing_and_from_little():
    few = scores(**dict.fromkeys((RESNET, ISO, CONTENT), 0.5)) + course(ISO, 500)
    for table in (Table(), Table(tuple(few))):
        for figure in STUDY.figures:
            assert draw.render(figure.make(table), "svg")


def test_contours_stand_where_half_the_mass_is():
    image = pictures.contours([(0.0, 0.0, 1.0, 0.0, 1.0)])
    middle, scale = pictures.PIXELS / 2, pictures.PIXELS / (2 * pictures.REACH)
    radius = math.sqrt(2 * math.log(2))  # half of a round Gaussian of width one
    at = image[int(middle), int(middle + radius * scale)]
    assert at.min() < 0.6 and image[int(middle), int(middle + 5.2 * scale)].min() > 0.8


def test_maps_show_light_and_query():
    values = [0.0] * 63 + [1.0]
    image = pictures.shown(values, query=0)
    assert image.shape == (32, 32, 3) and image[-2, -2].min() > 0.5 and image[20, 20].max() == 0
    assert image[0, 0].min() == pytest.approx(0.75)


# -- end to end


@pytest.mark.slow
def test_the_study_runs_at_smoke_on_drawn_data(tmp_path):
    """Real workers on one sweep, twice; then the whole study's verdicts and report from the same lab."""
    drawn = {"photos": "procedural_textures", "images": 32}
    ran = saccade.run(
        "attention_as_convolution", "smoke", lab=tmp_path / "lab", quiet=True, jobs=2, sweep="centres", **drawn
    )
    table = ran.table()
    assert not table.gaps and table.at(metric="same_as_trained").values("value") == [1.0]
    again = saccade.run(
        "attention_as_convolution", "smoke", lab=tmp_path / "lab", quiet=True, jobs=1, sweep="centres", **drawn
    )
    assert again.table().rows == table.rows
    whole = pipeline.open_session("attention_as_convolution", "smoke", tmp_path / "lab", drawn)
    assert [v.claim for v in whole.verdicts()] == IDS
    report = pipeline.write(whole)["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "R-F2-grid" in report
