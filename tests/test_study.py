"""Judging: requirements first, then floors, corrections and words."""

import dataclasses
import re

import numpy as np
import pytest

from saccade import stats
from saccade.lab.table import Table, slope_per_seed
from saccade.requirements import MIN_PAIRS, Learned, Results, in_use, learned
from saccade.spec import Paper, Reason, SaccadeError, Says, Settings
from saccade.study import Choice, Claim, Study, claim, groups_of, judge

PAPER = Paper("someone 2020")
TRAINED = (learned("A", 0.95),)


def numbers(mean, n=10, noise=0.1, seed=0):
    """One value per seed with exactly this mean and standard deviation."""
    z = np.random.default_rng(seed).standard_normal(n)
    return dict(enumerate(mean + noise * (z - z.mean()) / z.std(ddof=1)))


def rows(metric, values, **fields):
    return tuple({"metric": metric, "value": v, "n": 1, "seed": s, "run": f"{s}", **fields} for s, v in values.items())


def world(contrast, before=None, accuracy=0.9, use=1.0, n=10):
    """Results in which the contrast, its value at three quarters, the accuracy and the use are set by hand."""
    rest = rows("accuracy", numbers(accuracy, n, 0.01), arm="A", split="test", budget=100)
    rest += rows("use", numbers(use, n, 0.01), arm="A", ingredient="positions")

    def table(mean, seed):
        return Table(rows("contrast", numbers(mean, n, seed=seed), arm="A") + rest)

    early = contrast if before is None else before
    return Results(table(contrast, 0), {0.5: table(early, 1), 0.75: table(early, 0)})


def contrast(table):
    values = table.series("contrast", arm="A")
    return stats.greater(values, dict.fromkeys(values, 0.0))


def a_study(*tests, paper=PAPER, requires=TRAINED, **more):
    claims = tuple(
        Claim(
            id=f"T-{i}",
            statement=f"claim {i}",
            paper="a > b",
            concluded="stated",
            tested="a minus b",
            test=t,
            requires=requires,
        )
        for i, t in enumerate(tests)
    )
    return Study("test", "?", paper, lambda scale, chosen: [], (), claims, **more)


def fixed(mean, n=10, noise=0.1, seed=0):
    """A test that finds the same whatever the rows."""
    a = numbers(mean, n, noise, seed)
    return lambda table: stats.greater(a, dict.fromkeys(a, 0.0))


def labels(study, results=None, scale="small"):
    return [v.label for v in judge(study, results or world(1.0), scale)]


def test_clear_effects_are_decided_both_ways_and_unclear_ones_need_seeds():
    study = a_study(fixed(1.0), fixed(-1.0), fixed(0.05))
    assert labels(study) == ["reproduced", "contradicted", "undecided, too few seeds"]
    assert judge(study, world(1.0), "small")[2].remark.startswith("about ")


def test_an_effect_that_no_number_of_seeds_would_show_is_not_blamed_on_them():
    """Two parts on opposite sides: the claim's test is nowhere near either verdict."""
    study = a_study(lambda table: stats.all_of(fixed(0.2)(table), fixed(-0.01)(table)))
    (verdict,) = judge(study, world(1.0), "small")
    assert verdict.reason is Reason.NO_EFFECT and verdict.wants_runs
    assert verdict.remark == "10 seeds point to neither side"


def test_an_effect_that_takes_more_seeds_than_anybody_runs_was_not_seen():
    clear, faint = (judge(a_study(fixed(mean)), world(1.0), "small")[0] for mean in (-0.05, -0.02))
    assert faint.reason is Reason.NO_EFFECT and clear.reason is Reason.TOO_FEW_SEEDS
    assert re.fullmatch(r"10 seeds show none; an effect of the size seen needs about \d{3,} [(].*[)]", faint.remark)


def test_a_claim_that_may_come_out_either_way_is_tested_on_both_sides():
    for mean in (0.05, -0.05):
        (verdict,) = judge(a_study(fixed(mean)), world(1.0), "small")
        assert verdict.p_adjusted == pytest.approx(2 * min(verdict.evidence.p, verdict.evidence.p_against))


def test_claims_without_a_paper_hold_or_do_not():
    assert labels(a_study(fixed(1.0), fixed(-1.0), paper=None)) == ["holds", "does not hold"]


def test_what_a_paper_left_open_is_never_reproduced():
    study = a_study(fixed(1.0), fixed(-1.0))
    claims = tuple(dataclasses.replace(c, left_open=True) for c in study.claims)
    assert labels(dataclasses.replace(study, claims=claims)) == ["holds", "does not hold"]


def test_no_verdict_below_five_pairs_however_clear():
    for n in (2, 3, 4):
        verdict = judge(a_study(fixed(5.0, n)), world(1.0), "small")[0]
        assert verdict.reason is Reason.TOO_FEW_SEEDS and verdict.remark.startswith(f"{n} of {MIN_PAIRS}; ")
    assert labels(a_study(fixed(5.0, 5))) == ["reproduced"]
    assert labels(a_study(lambda t: stats.greater({}, {}))) == ["undecided, too few seeds"]


def test_counting_needs_no_seeds_and_no_training():
    study = a_study(lambda t: stats.exact(3, True), lambda t: stats.exact(3, False), requires=())
    assert labels(study) == ["reproduced", "contradicted"]


def test_smoke_gives_no_verdicts():
    assert (
        labels(a_study(fixed(1.0), lambda t: stats.exact(3, True)), scale="smoke")
        == ["undecided, out of reach at this scale"] * 2
    )


def test_holm_makes_many_claims_stricter():
    alone = fixed(0.1, 10, 0.1, 3)
    assert labels(a_study(alone)) == ["reproduced"]
    crowd = a_study(alone, *(fixed(0.0, seed=100 + i) for i in range(30)))
    verdict = judge(crowd, world(1.0), "small")[0]
    assert verdict.says is Says.UNDECIDED and verdict.p_adjusted > 0.05
    needed = int(verdict.remark.split()[1])
    assert needed > 10  # more than the ten in hand, or the remark would be of no use


def test_a_verdict_does_not_depend_on_which_runs_of_other_claims_are_in():
    """A claim counts while it waits for runs as it does when they show nothing; not when it can never be tested."""

    def waiting(table):
        return stats.greater(table.series("accuracy", arm="b"), table.series("accuracy", arm="c"))

    def p_adjusted(*others, gaps=(), requires=TRAINED):
        study, rows = a_study(fixed(0.1, 10, 0.1, 3), *others), world(1.0)
        claims = (study.claims[0], *(dataclasses.replace(c, requires=requires) for c in study.claims[1:]))
        results = dataclasses.replace(rows, whole=Table(rows.whole.rows, gaps))
        return judge(dataclasses.replace(study, claims=claims), results, "small")[0].p_adjusted

    gaps, alone = tuple({"arm": "b", "seed": s, "why": "not run yet"} for s in range(5)), p_adjusted()
    unclear = [fixed(0.0, seed=100 + i) for i in range(3)]
    assert p_adjusted(*unclear) == p_adjusted(*[waiting] * 3, gaps=gaps) == 4 * alone
    assert p_adjusted(*[waiting] * 3) == alone  # none of their runs is planned
    blocked = {"requires": (learned("b", 0.95),)}
    assert p_adjusted(*unclear, **blocked) == alone and p_adjusted(*unclear, gaps=gaps, **blocked) == 4 * alone


def test_seeds_that_would_show_a_difference_to_be_small_are_named_where_they_are_fewer():
    def verdict(n):
        a = {i: 0.01 + 0.1 * (-1) ** i for i in range(n)}
        study = a_study(lambda table: stats.greater(a, dict.fromkeys(a, 0.0)), *(fixed(0.0, seed=i) for i in range(9)))
        claims = tuple(dataclasses.replace(c, small=0.09 if c.id == "T-0" else None) for c in study.claims)
        return judge(dataclasses.replace(study, claims=claims), world(1.0), "small")[0]

    few = verdict(8)
    assert few.says is Says.UNDECIDED and "to show that the difference is small, 8 run" in few.remark
    needed = int(few.remark.split()[1])
    assert verdict(needed + 2).says is Says.EQUIVALENT and verdict(needed // 2).says is Says.UNDECIDED


def test_an_arm_that_has_not_learned_decides_nothing_and_leaves_the_correction():
    study = a_study(contrast)
    assert labels(study, world(1.0, accuracy=0.9)) == ["reproduced"]
    verdict = judge(study, world(1.0, accuracy=0.5), "small")[0]
    assert verdict.label == "undecided, not learned" and verdict.p_adjusted is None
    assert "47% of the way" in verdict.remark and "95 %" in verdict.requirements[0].asks


@pytest.mark.parametrize("every", ["", "p"])
def test_an_arm_that_training_does_not_raise_is_not_sent_to_train_longer(every):
    def table(level, noise=0.01):
        accuracy = rows("accuracy", numbers(level, noise=noise, seed=int(1000 * level)), arm="A", split="test", p=8)
        return Table(rows("contrast", numbers(1.0), arm="A") + accuracy)

    def remark(half, later, whole, **more):
        results = Results(table(whole, **more), {0.5: table(half, **more), 0.75: table(later, **more)})
        return judge(a_study(contrast, requires=(learned("A", 1.0, every=every),)), results, "large")[0].remark

    assert "another recipe: 19.5 → 19.1 → 18.7 % over the budget" in remark(0.195, 0.191, 0.187)
    for rising in (remark(0.15, 0.18, 0.2), remark(0.3, 0.4, 0.5)):
        assert "takes longer training: saccade run test --scale paper" in rising
    assert "takes longer training" in remark(0.3, 0.301, 0.302, noise=0.4)  # too unsure to say that it stands


def test_without_a_published_value_the_goal_is_the_largest_budget_in_the_lab():
    longer = Table(rows("accuracy", numbers(0.9, 5, 0.01), arm="A", split="test", budget=1000))
    study = a_study(contrast, requires=(learned("A"),))
    for reached, label in ((0.8, "reproduced"), (0.4, "undecided, not learned")):
        results = dataclasses.replace(world(1.0, accuracy=reached), every_budget=lambda: longer)
        assert labels(study, results) == [label]
    here = world(1.0, accuracy=0.4)  # itself the largest: nothing shows how far it could get
    (verdict,) = judge(study, here, "small")
    assert "only clear of chance is asked" in verdict.requirements[0].found


def test_one_seed_that_has_not_learned_is_counted_and_no_rounding_hides_it():
    values = {**dict.fromkeys(range(9), 1.0), 9: 0.87}
    table = Table(rows("accuracy", values, arm="A", split="train"))
    asked = learned("A", 1.0, split="train", share=0.99, why="it interpolates")
    met = asked.check(Results(table))
    assert not met.met and met.found == "A, split train: 98.7 %, 98.6% of the way, 9 of 10 seeds far enough"


def test_above_chance_must_be_clear_of_chance():
    chance = Learned(where=Settings(arm="A", split="test"), reaches=1.0, share=0.0, why="a shortcut")
    study = a_study(contrast, requires=(chance,))
    assert labels(study, world(1.0, accuracy=0.15)) == ["reproduced"]
    assert labels(study, world(1.0, accuracy=0.103)) == ["undecided, not learned"]


def test_another_share_needs_its_reason():
    with pytest.raises(SaccadeError, match="needs its reason"):
        learned("A", 0.9, share=0.3)


def test_a_contrast_that_moves_back_is_still_moving_whatever_its_p():
    study = a_study(contrast)
    assert labels(study, world(1.0, before=1.3)) == ["undecided, still moving"]
    assert labels(study, world(-1.0, before=-1.3)) == ["undecided, still moving"]
    assert labels(study, world(0.05, before=0.4)) == ["undecided, still moving"]
    assert labels(study, world(1.0, before=0.7)) == ["reproduced"]  # away from none: more of the same


def test_runs_that_had_ended_do_not_move_and_that_is_said():
    whole = world(1.0).whole
    (verdict,) = judge(a_study(contrast), Results(whole, {0.75: whole}), "small")
    assert verdict.says == "reproduced" and "had ended by then" in verdict.requirements[-1].found
    (verdict,) = judge(a_study(contrast), world(1.0, before=0.7), "small")
    assert "had ended" not in verdict.requirements[-1].found


def test_what_moved_before_three_quarters_of_the_budget_has_settled_since():
    still = world(1.0).at[0.75]
    high = Table(tuple({**r, "value": r["value"] + 2 * (r["metric"] == "contrast")} for r in still))
    for half, later, label in ((high, still, "reproduced"), (still, high, "undecided, still moving")):
        assert labels(a_study(contrast), Results(world(1.0).whole, {0.5: half, 0.75: later})) == [label]


def test_equality_that_is_being_lost_is_still_moving():
    def same(table):
        values = table.series("contrast", arm="A")
        return stats.equivalent(values, dict.fromkeys(values, 0.0), margin=0.5)

    study = a_study(same)
    assert labels(study, world(0.1, before=0.1)) == ["reproduced"]
    assert labels(study, world(0.2, before=0.0)) == ["undecided, still moving"]
    assert labels(study, world(2.0, before=2.5)) == ["undecided, still moving"]  # unequal, but becoming equal
    assert labels(study, world(2.0, before=1.5)) == ["contradicted"]


def test_a_part_that_moves_back_stops_the_whole():
    def both(table):
        values = table.series("contrast", arm="A")
        return stats.all_of(stats.above(values, 0.0), stats.above(dict.fromkeys(range(10), 1.0) | {0: 1.1}, 0.0))

    assert labels(a_study(both), world(1.0, before=0.9)) == ["reproduced"]
    assert labels(a_study(both), world(1.0, before=1.3)) == ["undecided, still moving"]


def test_what_is_said_to_move_is_the_part_that_does_not_the_weakest():
    def both(table):
        values = table.series("contrast", arm="A")
        rising = stats.above({s: 0.3 - 0.2 * v for s, v in values.items()}, 0.0, note="weakest")
        return stats.all_of(stats.above(values, 0.0, note="strongest"), rising)

    (verdict,) = judge(a_study(both), world(1.0, before=1.3), "small")
    assert verdict.evidence.note == "weakest" and verdict.reason is Reason.STILL_MOVING
    assert verdict.remark.startswith("strongest: +130.0 → +130.0 → +100.0 over the budget, p < 0.001 for moving back")


def test_runs_that_were_not_measured_on_the_way_decide_nothing():
    results = dataclasses.replace(world(1.0), at={})
    verdict = judge(a_study(contrast), results, "small")[0]
    assert verdict.label == "undecided, not measured" and "three quarters" in verdict.remark


def test_an_unused_ingredient_decides_nothing():
    study = a_study(contrast, requires=(learned("A", 0.95), in_use("A", "positions")))
    assert labels(study, world(1.0, use=0.3)) == ["reproduced"]
    assert labels(study, world(1.0, use=0.01)) == ["undecided, not in use"]
    other = a_study(contrast, requires=(learned("A", 0.95), in_use("A", "content")))
    assert labels(other, world(1.0)) == ["undecided, not measured"]


def test_a_study_cannot_leave_the_requirements_out():
    with pytest.raises(SaccadeError, match="which must have learned"):
        judge(a_study(contrast, requires=()), world(1.0), "small")


def test_a_small_effect_is_an_equivalence_and_is_said():
    study = a_study(contrast)
    claims = tuple(dataclasses.replace(c, small=0.5) for c in study.claims)
    study = dataclasses.replace(study, claims=claims)
    verdict = judge(study, world(0.01), "small")[0]
    assert (verdict.says, verdict.reason) == (Says.EQUIVALENT, Reason.EFFECT_SMALL)
    assert verdict.p_adjusted == pytest.approx(stats.small(verdict.evidence, 0.5))  # its two nulls exclude each other
    assert labels(study, world(1.0)) == ["reproduced"]


def test_a_limited_test_contradicts_but_does_not_reproduce():
    def limited(mean):
        return lambda t: dataclasses.replace(fixed(mean)(t), limit="only half was tested")

    holds, fails = judge(a_study(limited(9.0), limited(-9.0)), world(1.0), "small")
    assert (holds.label, fails.label) == ("undecided, out of reach at this scale", "contradicted")
    assert holds.remark.startswith("only half was tested")


def test_a_contradiction_that_the_design_would_explain_is_none():
    def excused(mean):
        return lambda t: dataclasses.replace(fixed(mean)(t), excuse="fewer points")

    holds, fails = judge(a_study(excused(9.0), excused(-9.0)), world(1.0), "small")
    assert (holds.label, fails.label) == ("reproduced", "undecided, out of reach at this scale")
    assert fails.remark.startswith("fewer points")


def test_a_claim_may_need_a_larger_scale():
    needy = dataclasses.replace(a_study(fixed(1.0)).claims[0], needs="large")
    study = dataclasses.replace(a_study(), claims=(needy,))
    assert labels(study) == ["undecided, out of reach at this scale"]
    assert labels(study, scale="paper") == ["reproduced"]


def test_declared_numbers_reach_the_test_and_the_sentence():
    @claim("T", "s", tested="above {margin} points", requires=(learned("A", 0.95),), margin=0.03)
    def test(table, *, margin):
        values = table.series("contrast", arm="A")
        return stats.above(values, margin)

    assert test.relation == "above 0.03 points"
    assert test.evidence(world(1.0).whole).null == 0.03


def by_run(*series):
    """Rows of several arms or sizes, each with a run of its own for every seed."""
    return Table(
        tuple(
            {"metric": "x", "arm": arm, "p": p, "seed": seed, "value": value, "run": f"{arm}{p}-{seed}"}
            for arm, p, values in series
            for seed, value in enumerate(values)
        )
    )


def groups(claim, table):
    return groups_of(claim, table, {r["run"]: r["run"].partition("-")[0] for r in table})


A_LITTLE, MUCH, NONE = (0.0, 1.0, 0.5, 0.8, -0.2), (4.0, 4.1, 4.2, 3.9, 4.0), (0.1, -0.1, 0.3, 0.0, -0.2)


def test_a_claim_gets_seeds_of_the_runs_that_it_rests_on_and_of_no_other_size_or_arm():
    @claim("T", "s", tested="above 0", trained=False)
    def test(table):
        return stats.above(table.series("x", arm="A", p=2), 0.0)

    table = by_run(("A", 1, MUCH), ("A", 2, A_LITTLE), ("B", 2, MUCH))
    assert groups(test, table) == {"A2"}


@claim("T", "s", tested="A above B, B above C", trained=False)
def of_three_arms(table):
    a, b, c = (table.series("x", arm=arm) for arm in "ABC")
    return stats.all_of(stats.greater(a, b), stats.all_of(stats.greater(b, c)))


def test_a_size_that_moves_no_slope_gets_its_seeds_too():
    @claim("T", "s", tested="the slope is above 0", trained=False)
    def test(table):
        return stats.above(slope_per_seed(table.curve("x", "p", arm="A")), 0.0)

    table = by_run(("A", 1, NONE), ("A", 2, NONE), ("A", 3, MUCH))  # the value in the middle has no weight
    assert groups(test, table) == {"A1", "A2", "A3"}


def test_a_claim_made_of_parts_gets_seeds_of_all_of_them_while_they_hold():
    table = by_run(("A", 1, MUCH), ("B", 1, A_LITTLE), ("C", 1, NONE))
    assert groups(of_three_arms, table) == {"A1", "B1", "C1"}


def test_a_claim_without_evidence_gets_seeds_of_all_that_it_asks_for():
    table = by_run(("A", 1, MUCH[:1]), ("B", 1, MUCH[:1]), ("D", 1, MUCH))
    assert groups(of_three_arms, table) == {"A1", "B1"}


def test_a_claim_that_one_part_speaks_against_gets_seeds_of_that_part():
    table = by_run(("A", 1, MUCH), ("B", 1, A_LITTLE), ("C", 1, MUCH))
    assert groups(of_three_arms, table) == {"B1", "C1"}


def test_choices_are_checked():
    study = a_study(choices=(Choice("heads", 2, (1, 2), ""), Choice("images", 0, (), "")))
    assert dict(study.choose({"heads": 1})) == {"heads": 1, "images": 0}
    for bad, message in (
        ({"hedas": 1}, "did you mean heads"),
        ({"heads": 3}, "one of 1, 2"),
        ({"images": "x"}, "images of .* must be a whole number, not"),
    ):
        with pytest.raises(SaccadeError, match=message):
            study.choose(bad)


def test_a_requirement_at_every_value_of_a_field_fails_at_the_first_that_fails():
    def table(late):
        sizes = ((64, 0.95), (128, late))
        return Table(sum((rows("accuracy", numbers(a, 5, 0.01), arm="A", split="test", p=p) for p, a in sizes), ()))

    asked = learned("A", 1.0, every="p")
    assert asked.asks.endswith("at every p that was run") and asked.check(Results(table(0.9))).met
    failed = asked.check(Results(table(0.3)))
    assert not failed.met and failed.reason is Reason.NOT_LEARNED and failed.found.startswith("A, p 128, split test")
    assert asked.check(Results(Table())).reason is Reason.NOT_MEASURED
    assert learned("A", 1.0, every="p", p=(64,)).check(Results(table(0.3))).met
    begun = rows("accuracy", numbers(0.3, 2, 0.01), arm="A", split="test", p=256)
    assert asked.check(Results(Table((*table(0.9).rows, *begun)))).met  # a claim on it would have too few seeds
    fewer = rows("accuracy", numbers(0.3, 5, 0.01), arm="A", split="test", p=256)
    more = rows("accuracy", numbers(0.9, 8, 0.01), arm="A", split="test", p=512)
    assert not asked.check(Results(Table((*more, *fewer)))).met  # enough for a verdict, so it counts


def test_a_claim_without_rows_says_which_arms_have_runs_to_do():
    def evidence(table):
        return stats.greater(table.series("accuracy", arm="a"), table.series("accuracy", arm="b"))

    study = a_study(evidence, requires=(learned("a", 0.95),))
    rows = tuple({"metric": "accuracy", "value": 0.5 + 0.01 * s, "arm": "a", "seed": s} for s in range(5))
    gaps = tuple({"arm": arm, "seed": s, "why": "not run yet"} for arm in ("b", "c") for s in range(3))
    (verdict,) = judge(study, Table(rows, gaps), "large")
    assert verdict.reason is Reason.NOT_RUN and verdict.wants_runs
    assert verdict.remark == f"0 of 5; b: 3 runs to do; saccade run test --scale large --claims {verdict.claim}"
    (verdict,) = judge(study, Table(rows), "large")  # nothing of it is planned, so nothing waits for its turn
    assert verdict.reason is Reason.TOO_FEW_SEEDS and "not part of this scale: b" in verdict.remark


def test_an_arm_that_lacks_runs_under_one_condition_is_named_too():
    def evidence(table):
        return stats.greater(*(table.series("accuracy", arm="a", noise=noise) for noise in (0.1, 0.0)))

    study = a_study(evidence, requires=(learned("a", 0.95),))
    rows = tuple({"metric": "accuracy", "value": 0.5 + 0.01 * s, "arm": "a", "seed": s, "noise": 0.0} for s in range(5))
    gaps = tuple({"arm": "a", "seed": s, "why": "not run yet", "noise": 0.1} for s in range(5))
    (verdict,) = judge(study, Table(rows, gaps), "large")
    assert verdict.remark == f"0 of 5; a: 5 runs to do; saccade run test --scale large --claims {verdict.claim}"
