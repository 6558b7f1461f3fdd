"""The study from tasks to verdicts: exact claims from the probes' own numbers, relations from made-up rows."""

import math
import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import saccade
from saccade import models
from saccade.lab import pipeline
from saccade.lab.table import Table
from saccade.report import document, draw
from saccade.requirements import InUse, Learned, Results
from saccade.spec import SCALES, Reason, SaccadeError, Says, Scale
from saccade.stats import TooFewSeeds
from saccade.studies.attention_as_convolution import STUDY, figures, gaussians, measures
from saccade.studies.attention_as_convolution.arms import (
    ATTENTION,
    CONTENT,
    FAMILIES,
    ISO,
    NONISO,
    PAIR,
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
    passes,
    reproduced,
    sixteen,
)
from saccade.study import judge
from tests.figure_quality import faults

HA = hierarchical(CONTENT)


def planned(scale, **given):
    """What is trained; facts need no run."""
    return [t for t in STUDY.tasks(Scale(scale), STUDY.choose(given)) if not t.run.is_fact]


def arms_at(scale, **given):
    return {t.arm: t.run for t in planned(scale, **given)}


# -- the design


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_is_listed_once_under_one_arm(scale):
    found = planned(scale)
    assert len({t.run.key for t in found}) == len(found)
    assert set(Counter(t.arm for t in found).values()) == {2 if scale in ("smoke", "demo") else 5}


@pytest.mark.parametrize("scale", ["large", "paper"])
def test_a_claim_has_its_arms_at_the_scale_that_it_needs(scale):
    have = set(arms_at(scale))
    for claim in STUDY.claims:
        if claim.needs == scale:
            asked = {r.where["arm"] for r in claim.requires if not getattr(r, "optional", False)}
            assert asked <= have, (claim.id, asked - have)


def test_small_can_be_judged_only_where_no_training_is_needed():
    assert {c.needs for c in STUDY.claims if c.trained} == {"large", "paper"}
    assert {c.id for c in STUDY.claims if c.needs in ("", "small")} == {c.id for c in STUDY.claims if not c.trained}


def test_parts_of_the_study_share_their_runs_and_make_up_the_whole():
    parts = next(c for c in STUDY.choices if c.name == "sweep").known[1:]
    together = {t.run.key for part in parts for t in planned("smoke", sweep=part)}
    assert together == {t.run.key for t in planned("smoke")}


def test_arms_that_are_compared_see_equally_many_images_at_one_recipe():
    for scale in ("small", "large"):
        arms = arms_at(scale)
        for group in (TABLE1, (ISO, sixteen(ISO)), *((base, hierarchical(base)) for base in FAMILIES)):
            assert len({arms[arm].recipe for arm in group if arm in arms}) <= 1


def test_both_forms_of_a_family_share_width_below_paper_scale():
    arms = arms_at("smoke")
    for base in FAMILIES:
        assert {**arms[base].model_args, "hierarchical": True} == dict(arms[hierarchical(base)].model_args)


def test_the_ablation_is_a_full_factorial():
    arms = arms_at("smoke", sweep="factorial")
    counts = {arm: models.parameters(models.build(r.model, **r.model_args)) for arm, r in arms.items()}
    whole = {CONTENT, f"{CONTENT}, shared", f"{CONTENT}, frozen keys", HA}
    assert set(counts) == whole | set(map(half_as_deep, whole))
    shared = {arm for arm, run in arms.items() if run.model_args.get("shared") or run.model_args.get("hierarchical")}
    assert len(shared) == 4 and len({counts[a] for a in shared}) == 1  # size depends neither on depth nor on keys
    assert counts[CONTENT] > counts[f"{CONTENT}, frozen keys"] > counts[HA]


def test_every_slip_of_the_published_code_is_an_option_of_its_model_and_an_arm():
    arms = arms_at("paper", sweep="slips")
    options = {name for slip in SLIPS for name in slip.args} - {"hierarchical"}
    assert options == {
        "additive_centre",
        "transposed_content",
        "noise_class_token",
        "raw_attention",
        "one_key_map",
    }
    for slip in SLIPS:
        assert {**arms[slip.without].model_args, **slip.args} == dict(arms[slip.arm].model_args)
        assert arms[slip.arm].recipe == arms[slip.without].recipe


def test_paper_scale_has_the_recipes_of_table_4():
    arms = arms_at("paper")
    found = {
        arm: (r.recipe.images // 45_000, r.recipe.batch, r.recipe.lr, r.recipe.schedule) for arm, r in arms.items()
    }
    assert found[RESNET] == found[ISO] == found[HA] == (300, 100, 0.1, "cosine")
    assert found[VIT] == found[hierarchical(VIT)] == (100, 32, 0.01, "cosine")
    assert found[PAIR] == (300, 256, 0.1, "steps") and found[hierarchical(PAIR)] == (300, 40, 0.1, "cosine")
    assert arms[ISO].recipe.nesterov and arms[ISO].recipe.warmup == pytest.approx(15 / 300)


def test_accuracy_is_measured_on_the_whole_test_set_from_small_upwards():
    for scale in ("small", "large", "paper"):
        sizes = {p.settings["n"] for t in planned(scale) for p in t.probes if p.name == "accuracy"}
        assert sizes == {10_000}


def test_looks_at_heads_know_how_their_run_was_made():
    for task in planned("small", shell="reproduction"):
        for probe in task.probes:
            if probe.name in ("attention_geometry", "centres_in_training"):
                assert probe.settings["args"] == task.run.model_args and probe.settings["model"] == task.run.model
            if probe.name == "centres_in_training":
                assert probe.settings["recipe"] == task.run.recipe.essence() and task.run.seed == 0


def test_an_unknown_part_gets_a_sentence():
    with pytest.raises(SaccadeError, match="sweep of attention_as_convolution must be one of"):
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
    """Test accuracy of every arm: what the report prints, unless said otherwise."""
    few = {on_few(base): 0.4 for base in TABLE2}
    return [r for arm, v in {**REPORTED, **few, **by_arm}.items() for r in rows("accuracy", arm, v, split="test")]


def used(moved=1.0, varies=0.3):
    found = [r for arm in (ISO, NONISO) for r in rows("moved", arm, moved, ingredient="centres")]
    return found + [r for arm in (CONTENT, HA) for r in rows("varies", arm, varies, ingredient="content")]


def layered(metric, arm, by_layer, state="trained", spread=0.01):
    return [r for i, v in enumerate(by_layer, 1) for r in rows(metric, arm, v, spread=spread, state=state, layer=i)]


def verdict(claim, found, scale="large", before=None, accuracies=(), use=()):
    """One claim alone, so that no other one takes part in the correction. `before`: the rows at three quarters."""
    shared = [*(accuracies or scores()), *(use or used())]
    whole = Table((*shared, *found))
    earlier = whole if before is None else Table((*shared, *before))
    claims = tuple(c for c in STUDY.claims if c.id == claim)
    (one,) = judge(replace(STUDY, claims=claims), Results(whole, {0.5: earlier, 0.75: earlier}), scale)
    return one


def test_the_order_of_table_1():
    assert verdict("R-T1-order", []).says == Says.REPRODUCED
    assert verdict("R-T1-order", [], accuracies=scores(**{CONTENT: 0.95})).says == Says.CONTRADICTED


def test_hierarchical_gains_of_three_points_are_gains_but_not_five():
    accuracies = scores(**{hierarchical(base): REPORTED[base] + 0.03 for base in FAMILIES})
    assert verdict("R-T3-better", [], accuracies=accuracies).says == Says.REPRODUCED
    small = verdict("R-T3-gain5", [], accuracies=accuracies)
    assert small.says == Says.CONTRADICTED and "3.9, 3.5, 5.5 and 3.4" in small.remark
    large = scores(**{hierarchical(base): REPORTED[base] + 0.08 for base in FAMILIES})
    assert verdict("R-T3-gain5", [], accuracies=large).says == Says.REPRODUCED


def test_what_is_said_of_all_families_is_contradicted_by_one_and_not_reproduced_by_one():
    def only(*, gain):
        return [r for r in scores(**{hierarchical(VIT): REPORTED[VIT] + gain}) if r["arm"] in (VIT, hierarchical(VIT))]

    one = verdict("R-T3-better", [], accuracies=only(gain=0.03))
    assert one.says == Says.UNDECIDED and one.reason == Reason.OUT_OF_REACH and "SAN pairwise" in one.remark
    assert verdict("R-T3-better", [], accuracies=only(gain=-0.03)).says == Says.CONTRADICTED


def test_sixteen_heads_are_the_same_within_two_points():
    assert verdict("R-T2-heads", []).says == Says.REPRODUCED
    assert verdict("R-T2-heads", [], accuracies=scores(**{sixteen(ISO): 0.8})).says == Says.CONTRADICTED


def test_a_hypothesis_holds_and_is_not_reproduced():
    closing = scores(**{on_few(ISO): 0.5, on_few(RELATIVE): 0.5, on_few(CONTENT): 0.3})
    assert verdict("R-O1", [], "paper", accuracies=closing).says == Says.HOLDS


def course(arm, slow, seeds=5):
    places = range(2500, 100_001, 2500)
    return [
        r for at in places for r in rows("online", arm, 0.1 + 0.4 * (1 - math.exp(-at / slow)), seeds, 0.002, images=at)
    ]


def test_a_model_that_rises_sooner_converges_sooner():
    quick = course(RESNET, 7500) + [r for arm in ATTENTION for r in course(arm, 25_000)]
    assert verdict("R-F1-resnet-fast", quick).says == Says.REPRODUCED


def test_convergence_is_read_at_a_common_level():
    straight = [
        {"metric": "online", "arm": arm, "seed": 0, "run": arm, "n": 1, "images": at, "value": at / 100 * top}
        for arm, top in (("a", 1.0), ("b", 0.5))
        for at in range(10, 101, 10)
    ]
    found = measures.time_to_level(Table(tuple(straight)), ("a", "b"), 0.9)
    # the mean over all ten points so far is half of the last plus 0.05 of the top, and b ends at 0.275
    level = 0.9 * 0.275
    assert found["b"][0] == pytest.approx(level / 0.5 * 2 - 0.1) and found["a"][0] == pytest.approx(level * 2 - 0.1)


def on_a_grid(distance, coverage):
    return (
        layered("lattice_distance", ISO, (0.38,) * 4, "start")
        + layered("lattice_distance", ISO, (distance,) * 4)
        + layered("coverage", ISO, (0.3,) * 4, "start")
        + layered("coverage", ISO, coverage)
    )


def test_a_grid_is_near_whole_shifts_and_covers_the_kernel():
    assert verdict("R-F2-grid", on_a_grid(0.1, (0.9, 0.9, 0.3, 0.3))).says == Says.REPRODUCED
    assert verdict("R-F2-grid", on_a_grid(0.35, (0.9, 0.9, 0.3, 0.3))).says == Says.CONTRADICTED
    assert verdict("R-F2-grid", on_a_grid(0.1, (0.3, 0.3, 0.9, 0.9))).says == Says.CONTRADICTED


def test_depth_is_judged_against_where_centres_were_drawn():
    start = layered("centre_norm", ISO, (2.5,) * 4, "start")
    assert verdict("R-F2-depth", start + layered("centre_norm", ISO, (1.0, 1.0, 3.0, 3.0))).says == Says.REPRODUCED
    assert verdict("R-F2-depth", start + layered("centre_norm", ISO, (2.5,) * 4)).says == Says.EQUIVALENT


def test_heads_a_little_out_of_round_are_not_anisotropic():
    assert verdict("R-F2-noniso", layered("anisotropy", NONISO, (1.0, 1.0, 2.0, 2.0))).says == Says.REPRODUCED
    assert verdict("R-F2-noniso", layered("anisotropy", NONISO, (0.2, 0.2, 0.4, 0.4))).says == Says.CONTRADICTED


def test_no_degenerate_head_decides_nothing():
    def found(*shares):
        return layered("degenerate", NONISO, shares, spread=0.01 * any(shares)) + layered(
            "anisotropy", NONISO, (1.0,) * 4
        )

    assert verdict("R-F2-degenerate", found(0.0, 0.0, 0.0)).says == Says.UNDECIDED
    assert verdict("R-F2-degenerate", found(0.1, 0.2, 0.3)).says == Says.REPRODUCED


def heads(single, far):
    found = layered("entropy", RELATIVE, (2.0,) * 4) + layered("entropy", RELATIVE, (4.0,) * 4, "start")
    for metric, share in (("single_heads", single), ("far_heads", far)):
        found += layered(metric, RELATIVE, (share,) * 4, spread=0.01 if share else 0)
    return found


def test_both_kinds_of_positional_heads_must_be_there():
    assert verdict("R-F3-nocontent", heads(0.2, 0.2)).says == Says.REPRODUCED
    assert verdict("R-F3-nocontent", heads(0.0, 0.2)).says == Says.CONTRADICTED


def test_heads_with_content_are_of_both_kinds():
    def found(share):
        return layered("positional_heads", CONTENT, (share,) * 4) + layered("positional_share", CONTENT, (0.4,) * 4)

    assert verdict("R-F3-content", found(0.3)).says == Says.REPRODUCED
    assert verdict("R-F3-content", found(0.0)).says != Says.REPRODUCED


def average(trained, start, moves=0.3, constant=0.0):
    return (
        layered("average_variation", RELATIVE, (constant,) * 4, spread=0)
        + layered("average_variation", CONTENT, (moves,) * 4)
        + layered("average_positional", CONTENT, (trained,) * 4)
        + layered("average_positional", CONTENT, (start,) * 4, "start")
    )


def test_average_attention_is_mixed_when_training_adds_a_fixed_part():
    assert verdict("R-F5-avg", average(0.2, 0.05)).says == Says.REPRODUCED
    assert verdict("R-F5-avg", average(0.05, 0.2)).says == Says.CONTRADICTED
    assert verdict("R-F5-avg", average(0.2, 0.05, constant=0.1)).says == Says.CONTRADICTED


def test_average_attention_as_in_the_untrained_model_reproduces_nothing():
    assert verdict("R-F5-avg", average(0.048, 0.048)).says == Says.UNDECIDED


def test_sparse_is_half_as_many_tokens():
    assert verdict("R-O2", layered("entropy", CONTENT, (4.0, 4.0, 1.0, 1.0))).says == Says.REPRODUCED
    assert verdict("R-O2", layered("entropy", CONTENT, (4.0, 4.0, 3.6, 3.6))).says == Says.CONTRADICTED


def test_denser_last_passes():
    sparse = layered("entropy", CONTENT, (4.0, 4.0, 1.0, 1.0))
    assert verdict("R-F8-dense", sparse + layered("entropy", HA, (4.0, 4.0, 3.0, 3.0))).says == Says.REPRODUCED
    assert verdict("R-F8-dense", sparse + layered("entropy", HA, (4.0, 4.0, 1.0, 1.0))).says == Says.EQUIVALENT


def distances(by_pass, fixed=0.08):
    return (
        layered("distance", HA, by_pass)
        + layered("positional_share", HA, (fixed,) * 4)
        + layered("distinct_shifts", HA, (0.2,) * 4)
    )


def test_only_the_printed_relation_decides_whether_later_passes_look_further():
    assert verdict("R-F8-conv", distances((1.0, 2.0, 3.0, 4.0))).says == Says.REPRODUCED
    assert verdict("R-F8-conv", distances((4.0, 3.0, 2.0, 1.0))).says == Says.CONTRADICTED
    assert verdict("R-F8-conv", distances((4.1, 4.1, 4.1, 4.1))).says == Says.EQUIVALENT


def test_passes_attend_to_patterns_of_their_own():
    start = layered("pass_change", HA, (0.1, 0.1), "start")
    assert verdict("R-HA-distinct", start + layered("pass_change", HA, (0.5, 0.4))).says == Says.REPRODUCED
    assert verdict("R-HA-distinct", start + layered("pass_change", HA, (0.02, 0.02))).says == Says.CONTRADICTED


def timed(ha):
    return [
        r
        for base in FAMILIES
        for form, ms in (("SA", 10.0), ("HA", ha))
        for r in rows("milliseconds", "LeNet", ms, spread=0.1, family=base, form=form, size="paper", device="cpu")
    ]


def test_times_on_a_cpu_do_not_contradict_times_on_a_gpu():
    slower = verdict("R-T3-time", timed(12.0), "small")
    assert slower.says == Says.DOES_NOT_HOLD and "timed on a CPU, where the report has a GPU" in slower.remark
    assert verdict("R-T3-time", timed(8.0), "small").says == Says.HOLDS


def test_a_published_value_needs_the_published_training():
    size = [
        {"metric": "size", "net": hierarchical(PAIR), "value": 352_750, "seed": 0, "run": "x", "arm": "LeNet", "n": 1}
    ]
    assert verdict("R-T3-sanpair-HA", size).reason == Reason.OUT_OF_REACH
    assert verdict("R-T3-sanpair-HA", size, "paper").says == Says.REPRODUCED
    off = scores(**{hierarchical(PAIR): 0.7})
    assert verdict("R-T3-sanpair-HA", size, "paper", accuracies=off).says == Says.CONTRADICTED


# -- requirements


@pytest.mark.parametrize("claim", [c.id for c in STUDY.claims if c.trained])
def test_every_arm_that_a_trained_claim_reads_must_have_learned_what_the_report_prints(claim):
    needed = next(c for c in STUDY.claims if c.id == claim).requires
    learned = [r for r in needed if isinstance(r, Learned)]
    for requirement in learned:
        arm = requirement.where["arm"]
        assert requirement.reaches == REPORTED.get(arm) or claim in ("R-T3-learned-SA",), arm
        assert requirement.share == 0.6


def test_an_arm_that_has_not_learned_decides_nothing():
    found = verdict("R-T1-order", [], accuracies=scores(**{ISO: 0.55}))
    assert found.says == Says.UNDECIDED and found.reason == Reason.NOT_LEARNED and "isotropic" in found.remark


def test_centres_that_have_not_moved_decide_nothing():
    found = verdict("R-F2-grid", on_a_grid(0.1, (0.9, 0.9, 0.3, 0.3)), use=used(moved=0.4))
    assert found.says == Says.UNDECIDED and found.reason == Reason.NOT_IN_USE


def test_maps_that_no_image_changes_say_nothing_on_content():
    found = verdict("R-O2", layered("entropy", CONTENT, (4.0, 4.0, 1.0, 1.0)), use=used(varies=0.01))
    assert found.says == Says.UNDECIDED and found.reason == Reason.NOT_IN_USE


def test_a_contrast_on_its_way_back_decides_nothing():
    found = verdict("R-F8-conv", distances((1.0, 2.0, 3.0, 2.0)), before=distances((1.0, 2.0, 3.0, 4.0)))
    assert found.says == Says.UNDECIDED and found.reason == Reason.STILL_MOVING


def test_claims_on_what_heads_do_require_that_they_do_it():
    asked = {c.id: {r.where["ingredient"] for r in c.requires if isinstance(r, InUse)} for c in STUDY.claims}
    for claim in ("R-F2-grid", "R-F2-depth", "R-F2-noniso", "R-F2-degenerate"):
        assert asked[claim] == {"centres"}
    for claim in ("R-F3-content", "R-F5-avg", "R-O2", "R-F8-dense", "R-F8-conv", "R-HA-distinct"):
        assert asked[claim] == {"content"}


# -- exact claims from what the probes count


@pytest.fixture(scope="module")
def exact_rows():
    from saccade import registry
    from saccade.data.images import Source

    chosen = STUDY.choose({"photos": "procedural_textures"})
    (task,) = (t for t in STUDY.tasks(Scale("smoke"), chosen) if t.run.is_fact)
    data = Source(task.run.data, task.run.data_args, 0)
    return [
        {"metric": r.metric, "value": r.value, "n": r.n, "arm": task.arm, "seed": 0, "run": "x", **r.at}
        for p in task.probes
        for r in registry.find("probe", p.name)(None, data, **p.settings)
    ]


@pytest.mark.parametrize("claim", ["R-TH1", "R-LEM1", "R-FACT", "R-T1-params", "R-T3-params", "R-HA-const"])
def test_exact_claims_are_reproduced(exact_rows, claim):
    found = verdict(claim, exact_rows, "small")
    assert found.says == Says.REPRODUCED and found.evidence.estimate.method == "exact"


def test_a_wrong_size_is_contradicted(exact_rows):
    wrong = [{**r, "value": r["value"] + 100_000} if r.get("net") == ISO else r for r in exact_rows]
    assert verdict("R-T1-params", wrong, "small").says == Says.CONTRADICTED
    grown = [{**r, "value": r["value"] + 1} if r.get("net") == passes(CONTENT, 12) else r for r in exact_rows]
    assert verdict("R-HA-const", grown, "small").says == Says.CONTRADICTED


def test_an_inexact_construction_is_contradicted(exact_rows):
    off = [
        {**r, "value": 1e-9} if r["metric"] == "theorem_error" and r["dtype"] == "float64" else r for r in exact_rows
    ]
    assert verdict("R-TH1", off, "small").says == Says.CONTRADICTED


def test_published_sizes(exact_rows):
    counts = {r["net"]: r["value"] for r in exact_rows if r["metric"] == "size"}
    assert [counts[n] for n in TABLE1] == [11_173_962, 12_086_844, 12_087_006, 12_278_682, 29_484_282]
    assert [counts[sixteen(n)] for n in TABLE2] == [7_538_058, 13_973_802, 26_459_754]
    assert [counts[reproduced(n)] for n in (ISO, CONTENT)] == [11_124_444, 28_478_682]
    assert [counts[hierarchical(n)] for n in FAMILIES] == [4_754_122, 352_750, 356_282, 6_531_946]
    assert [counts[n] for n in FAMILIES] == [29_484_282, 3_737_056, 3_851_142, 37_394_506]


# -- figures


def test_a_figure_without_its_rows_is_left_out():
    for figure in STUDY.figures:
        try:
            assert not figure.make(Table()).rows(), figure.name
        except TooFewSeeds:
            continue


def test_figures_are_drawn_from_few_rows():
    few = Table(tuple(scores() + course(ISO, 12_500) + on_a_grid(0.1, (0.9,) * 4) + timed(8.0)))
    for figure in (figures.table1_accuracy, figures.fig1_training, figures.fig2_grid, figures.table3_accuracy):
        assert draw.render(figure.make(few), "svg")


def test_the_papers_value_stands_beside_a_bar_or_not_at_all():
    few = figures.table1_accuracy.make(Table(tuple(r for r in scores() if "16" not in r["arm"])))
    assert {m.line for m in few.marks} == {"9 heads (ResNet: none)"} and len(few.marks) == len(few.categories)
    every = figures.table1_accuracy.make(Table(tuple(scores())))
    assert {m.line for m in every.marks} == {line.label for line in every.lines}


def test_trained_and_untrained_lines_differ_in_colour_and_dash():
    (panel, *_) = figures.fig2_grid.make(Table(tuple(on_a_grid(0.1, (0.9,) * 4)))).panels
    one, other = panel.lines
    assert one.family != other.family and one.dash != other.dash


def test_contours_stand_where_half_the_mass_is():
    image = gaussians.contours([(0.0, 0.0, 1.0, 0.0, 1.0)])
    middle, scale = gaussians.PIXELS / 2, gaussians.PIXELS / (2 * gaussians.REACH)
    radius = math.sqrt(2 * math.log(2))  # half of a round Gaussian of width one
    at = image[int(middle), int(middle + radius * scale)]
    assert at.min() < 0.6 and image[int(middle), int(middle + 5.2 * scale)].min() > 0.8


def test_maps_show_light_and_query():
    image = figures.light([0.0] * 63 + [1.0], query=0)
    assert image.shape == (32, 32, 3) and image[-2, -2].min() > 0.5 and image[20, 20].max() == 0
    assert image[0, 0].min() == pytest.approx(0.75)


def test_grids_of_maps_and_centres_end_with_their_key():
    cells = [
        {"metric": "head_map", "arm": HA, "view": "one", "layer": 1, "head": h, "map": [1 / 16] * 16, "value": 0.0}
        for h in (1, 2)
    ]
    grid = figures.fig8_maps.make(Table(tuple(cells)))
    assert grid.row_labels[-1] == "0 to 8 times an even look" and grid.images[-1][0] is not None
    gaussian = {
        "metric": "head_centre",
        "arm": ISO,
        "state": "start",
        "step": 0,
        "gaussian": (0, 0, 1, 0, 1),
        "value": 0,
    }
    grid = figures.fig2a_centres.make(Table(tuple({**gaussian, "layer": i} for i in (1, 2, 3))))
    assert grid.row_labels == ("untrained", "key: heads 1 to 9; 12 x 12 tokens") and grid.images[-1][1] is not None


# -- end to end


@pytest.mark.slow
def test_the_study_runs_at_smoke_on_drawn_data(tmp_path):
    """Real workers on one part, twice; then the whole study's verdicts and report from the same lab."""
    drawn = {"photos": "procedural_textures", "images": 32}
    ran = saccade.run(
        "attention_as_convolution", "smoke", lab=tmp_path / "lab", quiet=True, jobs=2, sweep="table1", **drawn
    )
    table = ran.table()
    assert not table.gaps and table.at(metric="same_as_trained").values("value") == [1.0]
    again = saccade.run(
        "attention_as_convolution", "smoke", lab=tmp_path / "lab", quiet=True, jobs=1, sweep="table1", **drawn
    )
    assert again.table().rows == table.rows
    whole = pipeline.open_session("attention_as_convolution", "smoke", tmp_path / "lab", drawn)
    assert {v.reason for v in whole.verdicts()} == {Reason.OUT_OF_REACH}  # smoke gives no verdicts
    for figure, data in document.figures_of(STUDY, whole.table(), whole.verdicts()):
        assert not faults(data), figure.name
    report = pipeline.write(whole).paths["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "R-F2-grid" in report
