"""The learning-curve study: what it plans, its numbers and verdicts from invented rows, and the way from end to end."""

from collections import Counter

import numpy as np
import pytest

import saccade
from saccade.lab import pipeline
from saccade.lab.table import Table
from saccade.report import document, draw
from saccade.requirements import Results
from saccade.spec import SCALES, Reason, SaccadeError, Scale
from saccade.stats import TooFewSeeds
from saccade.studies.learning_curves import STUDY, arms, figures, measures
from saccade.studies.learning_curves.arms import CNN, DIGITS, EARLY, PHOTOS, TWO, VIT, cnn, vit
from saccade.study import judge
from tests.figure_quality import faults

# -- what is planned


def planned(scale, **given):
    return STUDY.tasks(Scale(scale), STUDY.choose(given))


def test_differences_name_claims_that_exist():
    known = {c.id for c in STUDY.claims}
    assert len(known) == 27 and all(set(d.touches) <= known for d in STUDY.differs)


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_is_listed_once_under_one_arm(scale):
    found = planned(scale)
    assert len({t.run.key for t in found}) == len(found)
    cells = Counter(
        (t.arm, t.run.data_args["of"], t.run.data_args["p"], t.run.data_args["noise"], t.run.seed) for t in found
    )
    assert max(cells.values()) == 1  # so that a table never has two rows for one question


@pytest.mark.parametrize("scale", ["smoke", "small", "large"])
def test_sweeps_share_their_runs(scale):
    """Every sweep's runs are the whole study's, and together they are all of it."""
    every = {t.run.key: t for t in planned(scale)}
    union = set()
    for name in arms.SWEEPS:
        mine = planned(scale, sweep=name)
        assert all(set(t.probes) <= set(every[t.run.key].probes) for t in mine)
        union |= {t.run.key for t in mine}
    assert union == set(every)


@pytest.mark.parametrize("scale", ["small", "large", "paper"])
def test_arms_on_the_same_points_have_one_cap_and_one_stopping_rule(scale):
    rules = {}
    for task in planned(scale):
        if EARLY not in task.arm:
            recipe = task.run.recipe
            rule = (recipe.images, recipe.settle, recipe.max_seconds)
            rules.setdefault((task.run.data_args["of"], task.run.data_args["p"]), set()).add(rule)
    assert all(len(found) == 1 for found in rules.values())


def test_the_stopping_rule_looks_back_further_than_the_first_plateau():
    for task in planned("large") + planned("paper"):
        recipe = task.run.recipe
        if EARLY not in task.arm:
            assert recipe.settle * (task.run.data_args["p"] // arms.BATCH) >= arms.WINDOW


def test_accuracy_is_measured_on_the_whole_test_set_from_small_upwards():
    for scale in ("small", "large", "paper"):
        probes = {p for t in planned(scale) for p in t.probes}
        assert all(p.settings["n"] == 10_000 for p in probes if p.name == "accuracy")
        assert all(p.settings["n"] >= 2000 for p in probes if p.name == "attention_maps")


def test_every_arm_that_a_claim_requires_is_planned_at_the_scale_that_it_needs():
    names = {scale: {t.arm for t in planned(scale)} for scale in {claim.needs for claim in STUDY.claims}}
    for claim in STUDY.claims:
        wanted = {r.where["arm"] for r in claim.requires if "arm" in r.where and not getattr(r, "optional", False)}
        assert wanted <= names[claim.needs], claim.id


def test_optimisers_can_be_swapped():
    default = {t.arm: t.run for t in planned("small", sweep="fig12")}
    assert default["CNN(10)"].recipe.optimizer == "sgd" and default["CNN(10)"].recipe.lr == 40
    assert default["ViT(128,1,1)"].recipe.optimizer == "adamw"
    swapped = {t.arm: t.run for t in planned("small", sweep="fig12", cnn_optimizer="adamw", vit_optimizer="sgd")}
    assert swapped["CNN(10)"].recipe.optimizer == "adamw" and swapped["CNN(10)"].recipe.lr == 1e-3
    assert swapped["CNN(10)"].model_args["parametrisation"] == "default"
    assert swapped["ViT(128,1,1)"].recipe.optimizer == "sgd"


def test_the_learning_rate_of_a_mean_field_cnn_grows_with_its_width():
    rates = {t.arm: t.run.recipe.lr for t in planned("large", sweep="fig9", eta_eff=1.0)}
    assert rates["CNN(4)"] == 4 and rates["CNN(8)"] == 8


def test_where_widths_are_swept_on_photographs_the_cnn_has_the_reports_learning_rate():
    rates = {(t.arm, t.run.data_args["noise"]): t.run.recipe.lr for t in planned("large", sweep="fig9")}
    assert all(rates["CNN(3)", noise] == 3 and rates["CNN(16)", noise] == 16 for noise in (0.0, 0.1, 0.2))
    assert {t.run.recipe.lr / t.run.model_args["width"] for t in planned("large", sweep="fig19")} == {1}
    on_digits = {
        (t.run.data_args["noise"], t.run.recipe.lr / t.run.model_args["width"]) for t in planned("large", sweep="fig8")
    }
    assert on_digits == {(0.0, 4), (0.2, 1)}


def test_the_learning_rate_of_a_cnn_falls_with_the_photographs_beyond_2048():
    found = [t.run for t in planned("large", sweep="fig12") if t.arm == "CNN(10)"]
    rates = {(run.model_args["channels"], run.data_args["p"]): run.recipe.lr for run in found}
    assert [rates[PHOTOS, p] for p in (128, 2048, 4096, 8192)] == [40, 40, 20, 10]
    assert {rate for (channels, _), rate in rates.items() if channels == DIGITS} == {40}


def test_weight_decay_can_be_taken_away():
    bare = {t.arm: t.run.recipe for t in planned("paper", sweep="fig10")}
    assert bare["ViT(64,4,3), no decay"].weight_decay == 0 < bare["ViT(64,4,3)"].weight_decay


def test_unknown_choices_get_a_sentence():
    with pytest.raises(SaccadeError, match="did you mean eta_eff"):
        STUDY.choose({"eta_ef": 1.0})
    with pytest.raises(SaccadeError, match="must be one of all, fig8"):
        STUDY.choose({"sweep": "fig99"})


# -- verdicts from invented rows


def rows_of(arm, channels, curve, noise=0.0, seeds=5, split="test", spread=0.02, **more):
    """Rows of a learning curve p -> error, each seed a little off in level."""
    random = np.random.default_rng(len(arm.name) + channels)
    tilt = 1 + spread * random.standard_normal((seeds, len(curve)))
    return [
        {
            "metric": "accuracy",
            "split": split,
            "arm": arm.name,
            "channels": channels,
            "p": p,
            "noise": noise,
            "seed": s,
            "value": 1 - e * tilt[s, i],
            "n": 1000,
            "of": "mnist" if channels == 1 else "cifar10",
            "run": f"{arm.name}{channels}{p}{noise}{s}",
            **arm.args,
            **more,
        }
        for i, (p, e) in enumerate(curve.items())
        for s in range(seeds)
    ]


def power(prefactor, alpha, ps=(128, 256, 512, 1024)):
    return {p: prefactor * p**alpha for p in ps}


def fitted(*curves, channels=DIGITS, train=0.0):
    found = []
    for arm, curve in curves:
        found += rows_of(arm, channels, curve)
        found += rows_of(arm, channels, dict.fromkeys(curve, train), split="train", spread=0.0)
    return Table(tuple(found))


def verdict(claim, table, before=None):
    """`before` is what three quarters of the budget gave; unless said, the same."""
    early = table if before is None else before
    results = Results(table, {0.5: early, 0.75: early})
    return next(v for v in judge(STUDY, results, "paper") if v.claim == claim)


def test_equal_exponents_are_found_equal_and_unequal_ones_not():
    same = fitted((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.53)))
    assert verdict("L-F12-mnist-alpha", same).says == "reproduced"
    assert "α = -0.5" in verdict("L-F12-mnist-alpha", same).remark
    apart = fitted((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.2)))
    assert verdict("L-F12-mnist-alpha", apart).says == "contradicted"


def test_equal_exponents_of_another_size_are_not_the_reports():
    assert verdict("L-F12-mnist-alpha", fitted((CNN, power(1.0, -0.2)), (VIT, power(1.2, -0.2)))).says == "contradicted"


def test_an_order_at_every_size():
    ordered = fitted((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.53)))
    assert verdict("L-F12-mnist-order", ordered).says == "reproduced"
    crossing = fitted((CNN, power(0.1, -0.1)), (VIT, power(1.0, -0.53)))
    assert verdict("L-F12-mnist-order", crossing).says == "contradicted"


def test_a_size_that_some_seeds_have_not_finished_takes_none_from_the_others():
    pair = ((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.53)))
    begun = [r for arm, _ in pair for r in rows_of(arm, DIGITS, {2048: 0.5}, seeds=2)]
    table = Table((*fitted(*pair), *begun))
    found = measures.learning_together(table, (CNN, VIT), DIGITS)
    assert [list(curve) for curve in found] == [[128, 256, 512, 1024]] * 2
    assert all(len(seeds) == 5 for curve in found for seeds in curve.values())


def test_a_size_with_more_seeds_than_the_others_is_one_of_many():
    pair = ((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.53)))
    more = [r for arm, _ in pair for r in rows_of(arm, DIGITS, {2048: 0.5}, seeds=10)]
    found = measures.learning_together(Table((*fitted(*pair), *more)), (CNN, VIT), DIGITS)
    assert [{p: len(seeds) for p, seeds in curve.items()} for curve in found] == [
        {128: 5, 256: 5, 512: 5, 1024: 5, 2048: 10}
    ] * 2


def test_models_that_do_not_interpolate_decide_nothing():
    table = fitted((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.53)), train=0.05)
    found = verdict("L-F12-mnist-alpha", table)
    assert found.reason is Reason.NOT_LEARNED and found.remark.startswith("CNN(10), channels 1, noise 0.0, p 128")


def test_one_size_that_does_not_interpolate_is_enough_to_decide_nothing():
    table = fitted((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.53)))
    late = [
        {**r, "value": 0.9} if (r["arm"], r["p"], r["split"]) == (VIT.name, 1024, "train") else r for r in table.rows
    ]
    found = verdict("L-F12-mnist-alpha", Table(tuple(late)))
    assert found.reason is Reason.NOT_LEARNED and "ViT(128,1,1), channels 1, noise 0.0, p 1024" in found.remark


def test_a_contrast_that_shrinks_with_training_is_still_moving():
    now = fitted((CNN, power(1.5, -0.4)), (VIT, power(3.0, -0.3)), channels=PHOTOS)
    before = fitted((CNN, power(1.5, -0.7)), (VIT, power(3.0, -0.3)), channels=PHOTOS)
    assert verdict("L-F12-cifar-slope", now).says == "reproduced"
    assert verdict("L-F12-cifar-slope", now, before).reason is Reason.STILL_MOVING


def test_a_law_is_fitted_at_a_milestone_at_which_no_model_interpolates_yet():
    table = fitted((CNN, power(1.5, -0.5)), (VIT, power(3.0, -0.5)), train=0.4)
    assert measures.laws(table, (CNN, VIT), DIGITS)[0].fit.sizes == (128, 256, 512, 1024)


def test_a_crossing_in_the_bracket_and_one_outside():
    inside = fitted((CNN, power(2.66, -0.3)), (VIT, power(1.0, -0.15)), channels=PHOTOS)  # at 680
    assert verdict("L-F12-cifar-cross", inside).says == "reproduced"
    assert "falls below ViT(128,1,1) at p = " in verdict("L-F12-cifar-cross", inside).remark
    before = fitted((CNN, power(1.0, -0.2)), (VIT, power(1.0, -0.1)), channels=PHOTOS)
    assert verdict("L-F12-cifar-cross", before).says == "contradicted"


def test_a_crossing_is_not_judged_from_one_side():
    """Depth pays at 128 points already, which says nothing about a crossing near 3000."""
    few = (128, 256, 512, 1024)
    turned = fitted((vit(64, 1, 3), power(1.0, -0.4, few)), (vit(64, 1, 1), power(1.5, -0.4, few)))
    assert verdict("L-F14-mnist-cross", turned).reason is Reason.TOO_FEW_SEEDS
    whole = (*few, 2048, 4096)
    late = fitted((vit(64, 1, 3), power(4.0, -0.6, whole)), (vit(64, 1, 1), power(0.83, -0.4, whole)))  # at 2600
    assert verdict("L-F14-mnist-cross", late).says == "reproduced"


def test_a_measured_error_is_judged_only_where_it_was_measured():
    ps = (128, 256, 512, 1024)
    reached = fitted((CNN, {**dict.fromkeys(ps, 0.7), 8192: 0.528}), channels=PHOTOS)
    assert verdict("L-F12-cifar-cnn8192", reached).says == "reproduced"
    other = fitted((CNN, {**dict.fromkeys(ps, 0.7), 8192: 0.40}), channels=PHOTOS)
    assert verdict("L-F12-cifar-cnn8192", other).says == "contradicted"
    already = fitted((CNN, dict.fromkeys(ps, 0.4)), channels=PHOTOS)
    assert verdict("L-F12-cifar-cnn8192", already).reason is Reason.TOO_FEW_SEEDS


def test_the_best_number_of_heads():
    alphas = {1: -0.1, 2: -0.2, 4: -0.3, 8: -0.4, 16: -0.2}
    table = fitted(*((vit(128, h, 1), power(1.0, a)) for h, a in alphas.items()), channels=PHOTOS)
    assert verdict("L-F13-cifar-opt", table).says == verdict("L-F13-heads", table).says == "reproduced"
    other = fitted(*((vit(128, h, 1), power(1.0, a)) for h, a in alphas.items()), channels=DIGITS)
    assert verdict("L-F13-mnist-opt", other).says == "contradicted"
    assert "steepest on average: H = 8" in verdict("L-F13-mnist-opt", other).remark


def test_the_best_vit_may_catch_up_with_the_cnn_or_not():
    ps = (256, 512, 1024, 2048)
    steep, flat = (vit(64, 4, 3), power(6.0, -0.6, ps)), (vit(64, 4, 3), power(3.0, -0.3, ps))
    for best, says in ((steep, "reproduced"), (flat, "contradicted")):
        table = fitted((CNN, power(1.0, -0.45, ps)), best)  # without the arms of other depths, which it does not read
        assert verdict("L-F15-mnist", table).says == says


def descent(noise, shape, split="test", twist=""):
    return [r for h, e in shape.items() for r in rows_of(cnn(h, twist), PHOTOS, {1024: e}, noise, split=split)]


UP = {1: 0.80, 2: 0.72, 4: 0.78, 8: 0.86, 16: 0.70, 32: 0.60}
FITS = [r for noise in (0.0, 0.1, 0.2) for r in descent(noise, {16: 0.0}, "train")]


def test_double_descent_is_found_where_there_is_one():
    mild, flat = ({h: 0.7 + s * (e - 0.7) for h, e in UP.items()} for s in (0.5, 0.05))
    table = Table(tuple(descent(0.2, UP) + descent(0.1, mild) + descent(0.0, flat) + FITS))
    assert verdict("L-F9-dd", table).says == verdict("L-F9-noise", table).says == "reproduced"


def test_a_falling_curve_is_no_double_descent():
    falling = Table(tuple(descent(0.2, {h: 0.9 - 0.05 * i for i, h in enumerate(UP)}) + FITS))
    assert verdict("L-F9-dd", falling).evidence.p > 0.5


def test_a_run_that_never_learned_is_named_beside_the_peak_that_it_may_make():
    table = Table(tuple(descent(0.2, UP) + FITS))
    assert "never learned" not in verdict("L-F9-dd", table).remark
    dead = next(r for r in descent(0.2, {4: 0.9}, "train") if r["seed"] == 3)
    assert "never learned, and counted: CNN(4) seed 3" in verdict("L-F9-dd", Table((*table, dead))).remark


def test_a_peak_below_which_nothing_interpolates_is_not_judged():
    table = Table(tuple(descent(0.2, UP) + descent(0.2, {16: 0.3}, "train")))
    assert verdict("L-F9-dd", table).reason is Reason.NOT_LEARNED


def test_early_stopping_flattens_a_hump_or_leaves_it():
    flat = dict.fromkeys(UP, 0.75)
    for shape, says in ((flat, "reproduced"), (UP, "equivalent")):
        early = descent(0.2, shape, twist=EARLY)
        table = Table(tuple(descent(0.2, UP) + early + FITS))
        assert verdict("L-A1-stop", table).says == says


def test_double_descent_of_vits_on_one_set_is_half_of_the_claim():
    dims = (4, 8, 16, 24, 32, 64)
    peaked = [r for d, e in zip(dims, UP.values(), strict=True) for r in rows_of(vit(d, 4, 3), DIGITS, {512: e}, 0.2)]
    fit = rows_of(vit(64, 4, 3), DIGITS, {512: 0.0}, 0.2, split="train", spread=0.0)
    found = verdict("L-F10-dd", Table(tuple(peaked + fit)))
    assert found.reason is Reason.OUT_OF_REACH and "only MNIST was run" in found.remark


def test_a_vits_peak_is_lower_than_a_cnns_on_as_many_digits_or_it_is_not():
    dims = (4, 8, 16, 24, 32, 64)
    falling = (0.6, 0.5, 0.45, 0.4, 0.35, 0.3)

    def table(of_cnn, of_vit):
        swept = [*zip(map(cnn, UP), of_cnn, strict=True), *zip((vit(d, 4, 3) for d in dims), of_vit, strict=True)]
        rows = [r for arm, e in swept for r in rows_of(arm, DIGITS, {512: e}, 0.2)]
        for arm in (cnn(16), vit(64, 4, 3)):
            rows += rows_of(arm, DIGITS, {512: 0.0}, 0.2, split="train", spread=0.0)
        return Table(tuple(rows))

    assert verdict("L-F10-weak", table(UP.values(), falling)).says == "reproduced"
    assert verdict("L-F10-weak", table(falling, UP.values())).says == "contradicted"
    planned_runs = [t for t in planned("large", sweep="fig8") if t.run.data_args["noise"]]
    assert {t.run.data_args["p"] for t in planned_runs} == {512}
    assert all(t.run.recipe.lr == t.run.model_args["width"] for t in planned_runs)


def test_where_interpolation_starts_is_asked_at_the_most_points_and_a_peak_where_labels_are_noisy():
    dims = (4, 8, 16, 24, 32, 64)
    fits = [
        r
        for p in (512, 4096)
        for d in dims
        for r in rows_of(vit(d, 4, 3), DIGITS, {p: 0.5 * (p == 4096 and d < 32)}, split="train", spread=0.0)
    ]
    noisy = [r for d, e in zip(dims, UP.values(), strict=True) for r in rows_of(vit(d, 4, 3), DIGITS, {512: e}, 0.2)]
    noisy += rows_of(vit(64, 4, 3), DIGITS, {512: 0.0}, 0.2, split="train", spread=0.0)
    table = Table(tuple(fits + noisy))
    found = verdict("L-F10-fit", table)
    assert found.says == "reproduced" and "p = 4096" in found.remark  # from 32 on, where the report has 30
    assert "only MNIST was run" in verdict("L-F10-dd", table).remark  # a peak at 512 points


def test_thresholds_of_widths():
    train = {1: 0.5, 2: 0.3, 3: 0.1, 4: 0.05, 6: 0.0, 8: 0.0, 16: 0.0}
    table = Table(tuple(descent(0.0, train, split="train")))
    assert verdict("L-F9-cifar-fit", table).says == "reproduced"
    late = Table(tuple(descent(0.0, {**dict.fromkeys(train, 0.5), 16: 0.0}, split="train")))
    assert verdict("L-F9-cifar-fit", late).says == "undecided"  # between 8 and 16: on both sides of the factor
    assert verdict("L-F8-mnist-fit", table).reason is Reason.TOO_FEW_SEEDS
    early = verdict("L-F9-cifar-fit", Table(tuple(descent(0.0, dict.fromkeys(train, 0.0), split="train"))))
    assert early.reason is Reason.OUT_OF_REACH and "perhaps fewer than the report's" in early.remark


# -- maps


def map_rows(arm, channels, p, *, difference=0.3, heads=1, entropy=2.0, seeds=5, **numbers):
    """Rows as the probe gives them; `numbers` are of the last layer's mean map."""
    random = np.random.default_rng(heads)
    base = {"arm": arm.name, "channels": channels, "p": p, "noise": 0.0, "n": 100, **arm.args}
    found = []
    for s in range(seeds):
        off = 1 + 0.01 * random.standard_normal()
        one = {**base, "seed": s, "run": f"{arm.name}{s}"}
        found.append({**one, "metric": "map_difference", "ingredient": "content", "value": difference})
        found += [
            {**one, "metric": "entropy", "layer": 1, "head": h, "value": entropy * off} for h in range(1, heads + 1)
        ]
        found += [{**one, "metric": m, "view": "last", "value": v * off} for m, v in numbers.items()]
    return found


def photos(error_of, patches_of, middle_of, difference=0.3):
    """One-layer ViTs at 2048 points. The mean map widens with the heads, as a mean of more maps does by itself."""
    rows = []
    for h in arms.HEADS:
        arm = vit(128, h, 1)
        rows += fitted((arm, {2048: error_of(h)}), channels=PHOTOS).rows
        rows += map_rows(
            arm,
            PHOTOS,
            2048,
            difference=difference,
            heads=h,
            entropy=np.log(patches_of(h)),
            effective_patches=20.0 + h,
            centre_share=middle_of(h),
        )
    return Table(tuple(rows))


def test_closeness_of_look_is_that_of_a_single_head():
    """Better models whose heads look closer, in the middle, though the mean of their heads is wider."""
    table = photos(lambda h: 0.8 - 0.01 * h, lambda h: 30 - h, lambda h: 0.2 + 0.02 * h)
    assert verdict("L-F17-maps", table).says == "reproduced"
    wider = photos(lambda h: 0.8 - 0.01 * h, lambda h: 20 + h, lambda h: 0.2 + 0.02 * h)
    assert verdict("L-F17-maps", wider).says == "contradicted"
    aside = photos(lambda h: 0.8 - 0.01 * h, lambda h: 30 - h, lambda h: 0.6 - 0.02 * h)
    assert verdict("L-F17-maps", aside).says == "contradicted"


def test_maps_that_are_the_same_for_every_image_decide_nothing():
    table = photos(lambda h: 0.8 - 0.01 * h, lambda h: 30 - h, lambda h: 0.2 + 0.02 * h, difference=0.01)
    assert verdict("L-F17-maps", table).reason is Reason.NOT_IN_USE


def test_an_inconclusive_finding_holds_or_does_not_but_is_never_reproduced():
    arm = vit(128, 1, 1, TWO)
    fit = rows_of(arm, DIGITS, {1024: 0.0}, split="train", spread=0.0)
    for share, says in ((0.4, "holds"), (-0.4, "does not hold")):
        numbers = map_rows(arm, DIGITS, 1024, effective_patches=20.0, difference_share=share)
        assert verdict("L-F18", Table(tuple(fit + numbers))).says == says


def test_separation_of_digit_and_background():
    basic, best = vit(64, 1, 1), vit(64, 4, 3)
    for contrast, says in ((2.0, "reproduced"), (1.2, "contradicted")):
        rows = list(fitted((basic, {2048: 0.1}), (best, {2048: 0.05})).rows)
        rows += map_rows(basic, DIGITS, 2048, effective_patches=20.0, ink_contrast=1.6)
        rows += map_rows(best, DIGITS, 2048, heads=4, effective_patches=30.0, ink_contrast=contrast)
        assert verdict("L-F16-maps", Table(tuple(rows))).says == says


def test_endings_in_words():
    rows = [{"metric": "parameters", "run": k, "value": 1} for k in "abc"]
    rows += [
        {"metric": "watched", "run": "a", "value": 1},
        {"metric": "accuracy", "split": "train", "run": "b", "value": 0.9},
    ]
    words = measures.endings(Table(tuple(rows), ({"run": "c", "why": "timeout: 9 seconds were up"},)))
    assert words.startswith("1 of 2 runs ended with their last step, 1 with a settled training error, 1 timeout; 1 ")


# -- figures


def made(table):
    found = {}
    for figure in STUDY.figures:
        try:
            data = figure.make(table)
        except TooFewSeeds:
            continue
        if data.rows():
            found[figure.name] = data
    return found


def test_no_figure_is_made_from_nothing():
    assert not made(Table())


def test_figures_are_made_from_what_there_is_and_have_no_empty_line():
    pair = fitted((CNN, power(1.5, -0.53)), (VIT, power(3.0, -0.53)))
    found = made(Table((*pair.rows, *descent(0.2, UP), *descent(0.0, UP))))
    assert {"fig12_learning_curves_mnist", "fig12_residuals_mnist", "fig9_cnn_cifar"} <= set(found)
    assert "fig12_learning_curves_cifar" not in found and "fig12_matched_mnist" not in found
    for data in found.values():
        panels = getattr(data, "panels", ())  # a heat map has none
        assert all(line.x for panel in panels for line in panel.lines) and draw.render(data, "svg")


def test_lines_of_a_figure_look_different():
    ps = (256, 512, 1024, 2048)
    every = [CNN, VIT, *(vit(64, h, depth) for h, depth in ((1, 1), (1, 2), (1, 3), (8, 1), (8, 3), (4, 3)))]
    every += [vit(128, h, 1) for h in (2, 4, 8, 16)]
    rows = [r for c in (DIGITS, PHOTOS) for r in fitted(*((a, power(1.0, -0.3, ps)) for a in every), channels=c).rows]
    found = made(Table(tuple(rows)))
    assert {"fig13_heads_cifar", "fig14_layers_mnist", "fig15_best_cifar", "fig15_best_mnist"} <= set(found)
    for data in found.values():
        for panel in getattr(data, "panels", ()):
            looks = [(line.family, line.dash, line.shade) for line in panel.lines]
            assert len(set(looks)) == len(looks), data.panels[0].title


def image_row(arm, **more):
    return {
        "metric": "image",
        "arm": arm.name,
        "channels": 1,
        "p": 64,
        "shown": "instance",
        "label": 3,
        "of": "mnist",
        "image": [0] * 512 + [200] * 512,
        "map": [0.0] * 63 + [1.0],
        "rollout": [1 / 64] * 64,
        **more,
    }


def test_maps_are_drawn_over_their_image():
    warm = figures.overlay(image_row(VIT))
    assert warm.shape == (32, 32, 3) and warm[-1, -1].min() > 0.5 and warm[0, 0].max() == 0


def test_a_grid_of_maps_has_a_row_per_arm_and_a_key():
    rows = (image_row(VIT), image_row(VIT, label=4))
    grid = figures.maps(Table(rows), 1, [(VIT, "map"), (vit(128, 4, 3), "map")])
    assert grid.row_labels == ("image", "ViT(128,1,1)", "key: times an even look") and grid.column_labels == ("3", "4")
    assert [image.caption for image in grid.images[-1]] == ["0", "5"]


def test_instances_and_class_means_of_ten_classes_stand_below_one_another():
    rows = [image_row(VIT, label=i, shown=kind) for i in range(10) for kind in ("instance", "class mean")]
    grid = figures.maps(Table(tuple(rows)), 1, [(VIT, "map")], ("instance", "class mean"))
    assert grid.row_labels == ("image", VIT.name, "class mean", VIT.name, "key: times an even look")
    assert len(grid.column_labels) == 10 and draw.render(grid, "svg")


# -- end to end


@pytest.mark.slow
def test_the_study_runs_at_smoke_on_drawn_data(tmp_path):
    """Real workers, one sweep; then the whole study's tables, verdicts and report from the same lab."""
    drawn = {"digits": "procedural_digits", "photos": "procedural_textures", "epochs": 1}
    ran = saccade.run("learning_curves", "smoke", lab=tmp_path / "lab", quiet=True, jobs=2, sweep="fig18", **drawn)
    table = ran.table()
    assert not table.gaps and len(table.series("accuracy", arm="ViT(128,1,1), 5 or 8", split="test")) == 2
    assert table.at(metric="difference_share") and table.at(metric="image") and table.at(metric="map_difference")
    whole = pipeline.open_session("learning_curves", "smoke", tmp_path / "lab", drawn)
    assert all(v.reason is Reason.OUT_OF_REACH for v in whole.verdicts())
    for figure, data in document.figures_of(STUDY, whole.table(), whole.verdicts()):
        assert not faults(data), figure.name
    report = pipeline.write(whole).paths["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "L-F12-cifar-cross" in report
