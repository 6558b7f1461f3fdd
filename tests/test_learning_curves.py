"""The sheet's parameter tables, mean-field nets, the exact one-block ViT, and the study from tasks to verdicts."""

from collections import Counter

import numpy as np
import pytest

import saccade
from saccade import stats
from saccade.lab import pipeline
from saccade.lab.table import Table
from saccade.report import draw
from saccade.spec import SCALES, SaccadeError, Scale
from saccade.studies.learning_curves import arms, measures, panels
from saccade.studies.learning_curves.claims import STUDY
from saccade.study import judge

IDS = [
    "L-F8-mnist-fit",
    "L-F9-cifar-fit",
    "L-F9-dd",
    "L-F9-noise",
    "L-F10-fit",
    "L-F11-fit",
    "L-F10-dd",
    "L-F10-weak",
    "L-A1-stop",
    "L-F12-mnist-alpha",
    "L-F12-mnist-order",
    "L-F12-cifar-slope",
    "L-F12-cifar-cross",
    "L-F12-cifar-cnn8192",
    "L-F12-cifar-vit8192",
    "L-F13-heads",
    "L-F13-mnist-opt",
    "L-F13-cifar-opt",
    "L-F14-mnist-slope",
    "L-F14-mnist-cross",
    "L-F14-cifar",
    "L-F15-cifar-best",
    "L-F15-cifar-cnn",
    "L-F15-mnist",
    "L-F16-maps",
    "L-F17-maps",
    "L-F18",
]


# -- the study as a value


def planned(scale, **given):
    return STUDY.tasks(Scale(scale), STUDY.choose(given))


def test_every_claim_stands_once():
    assert [c.id for c in STUDY.claims] == IDS
    assert len({c.statement for c in STUDY.claims}) == 27
    known = set(IDS)
    assert all(set(d.touches) <= known for d in STUDY.differs)


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
        assert {t.run.key for t in mine} <= set(every)
        assert all(set(t.probes) <= set(every[t.run.key].probes) for t in mine)
        union |= {t.run.key for t in mine}
    assert union == set(every)


def test_the_pair_of_figure_12_is_among_the_curves_of_figure_13():
    shared = {t.run.key for t in planned("small", sweep="fig12")} & {t.run.key for t in planned("small", sweep="fig13")}
    assert len(shared) == (4 + 3) * 5  # p = 32, 64, 128, 256 on digits; 64, 128, 256 on photographs


def test_optimisers_can_be_swapped():
    default = {t.arm: t.run for t in planned("small", sweep="fig12")}
    assert default["CNN(10)"].recipe.optimizer == "sgd" and default["CNN(10)"].recipe.lr == 40
    assert default["ViT(128,1,1)"].recipe.optimizer == "adamw"
    swapped = {t.arm: t.run for t in planned("small", sweep="fig12", cnn_optimizer="adamw", vit_optimizer="sgd")}
    assert swapped["CNN(10)"].recipe.optimizer == "adamw" and swapped["CNN(10)"].recipe.lr == 1e-3
    assert swapped["CNN(10)"].model_args["parametrisation"] == "default"
    assert swapped["ViT(128,1,1)"].recipe.optimizer == "sgd"
    twisted = {t.arm: t.run.recipe for t in planned("large", sweep="controls")}
    assert twisted["CNN(10), AdamW"].optimizer == "adamw" and twisted["ViT(128,1,1), SGD"].optimizer == "sgd"
    bare = {t.arm: t.run.recipe for t in planned("paper", sweep="controls")}
    assert bare["ViT(64,4,3), no decay"].weight_decay == 0
    wide = {t.arm: t.run.recipe.lr for t in planned("small", sweep="fig9", eta_eff=1.0)}
    assert wide["CNN(4)"] == 4 and wide["CNN(8)"] == 8


def test_stopping_rules_are_in_the_recipe():
    for task in planned("paper"):
        recipe, p = task.run.recipe, task.run.data_args["p"]
        assert recipe.max_seconds > 0 and recipe.settle >= 20
        assert recipe.settle * (p // recipe.batch) >= 400  # the plateau at the start does not count as settled
        assert recipe.batch == (128 if p >= 4096 else 32)
    asked = planned("small", sweep="fig12", settle=30)
    assert all(t.run.recipe.settle >= 30 for t in asked)


def test_a_larger_scale_goes_on_from_the_small_one():
    small, large = ({t.run.key for t in planned(s)} for s in ("small", "large"))
    assert len(small & large) > 0.35 * len(small)


def test_unknown_choices_get_a_sentence():
    with pytest.raises(SaccadeError, match="did you mean eta_eff"):
        STUDY.choose({"eta_ef": 1.0})
    with pytest.raises(SaccadeError, match="sweep must be one of"):
        STUDY.choose({"sweep": "fig99"})


# -- numbers from made-up rows


def rows_of(arm, channels, curve, noise=0.0, seeds=5, split="test", spread=0.02, **more):
    """Rows of a learning curve p -> error, each seed a little off in level."""
    random = np.random.default_rng(len(arm) + channels)
    tilt = 1 + spread * random.standard_normal((seeds, len(curve)))
    return [
        {
            "metric": "accuracy",
            "split": split,
            "arm": arm,
            "channels": channels,
            "p": p,
            "noise": noise,
            "seed": s,
            "value": 1 - e * tilt[s, i],
            "n": 1000,
            "of": "mnist" if channels == 1 else "cifar10",
            "run": f"{arm}{channels}{p}{noise}{s}",
            **more,
        }
        for i, (p, e) in enumerate(curve.items())
        for s in range(seeds)
    ]


def power(prefactor, alpha, ps=(128, 256, 512, 1024)):
    return {p: prefactor * p**alpha for p in ps}


def fitted(*arms, channels=1, train=0.0):
    found = []
    for arm, curve in arms:
        found += rows_of(arm, channels, curve)
        found += rows_of(arm, channels, dict.fromkeys(curve, train), split="train", spread=0.0)
    return Table(tuple(found))


def verdict(claim, table):
    return next(v for v in judge(STUDY, table, "paper") if v.claim == claim)


def test_equal_exponents_are_found_equal_and_unequal_ones_not():
    same = fitted(("CNN(10)", power(1.5, -0.53)), ("ViT(128,1,1)", power(3.0, -0.53)))
    assert verdict("L-F12-mnist-alpha", same).says == "reproduced"
    assert "α = -0.5" in verdict("L-F12-mnist-alpha", same).remark
    apart = fitted(("CNN(10)", power(1.5, -0.53)), ("ViT(128,1,1)", power(3.0, -0.2)))
    assert verdict("L-F12-mnist-alpha", apart).says == "contradicted"
    assert verdict("L-F12-mnist-order", same).says == "reproduced"


def test_nets_that_do_not_interpolate_block_the_verdict():
    table = fitted(("CNN(10)", power(1.5, -0.53)), ("ViT(128,1,1)", power(3.0, -0.53)), train=0.05)
    found = verdict("L-F12-mnist-alpha", table)
    assert found.says == "undecided"
    assert "fewer than 4 sizes at which all interpolate; CNN(10) does not at p = 128" in found.remark


def test_a_size_that_does_not_interpolate_is_left_out_of_the_fit():
    curve = power(1.5, -0.5, (128, 256, 512, 1024, 2048))
    rows = rows_of("CNN(10)", 1, {**curve, 2048: 0.9}, spread=0.0)
    rows += rows_of("CNN(10)", 1, {**dict.fromkeys(curve, 0.0), 2048: 0.3}, split="train", spread=0.0)
    law = measures.laws(Table(tuple(rows)), ["CNN(10)"], 1)["CNN(10)"]
    assert law.fit.sizes[-1] == 1024 and law.fit.exponent.value == pytest.approx(-0.5) and not law.blocked


def test_a_crossing_in_the_bracket_and_one_outside():
    inside = fitted(("CNN(10)", power(2.66, -0.3)), ("ViT(128,1,1)", power(1.0, -0.15)), channels=3)  # at 680
    assert verdict("L-F12-cifar-cross", inside).says == "reproduced"
    assert "falls below ViT(128,1,1) at p = " in verdict("L-F12-cifar-cross", inside).remark
    assert verdict("L-F12-cifar-slope", inside).says == "reproduced"
    before = fitted(("CNN(10)", power(1.0, -0.2)), ("ViT(128,1,1)", power(1.0, -0.1)), channels=3)
    assert verdict("L-F12-cifar-cross", before).says == "contradicted"


def test_half_a_crossing_may_contradict_but_not_reproduce():
    """Where the far size was not run, the near one is all there is."""
    nets = ("ViT(64,1,1)", "ViT(64,1,3)")
    few = (32, 64, 128, 256)
    holds = fitted((nets[0], power(1.0, -0.4, few)), (nets[1], power(1.5, -0.4, few)))
    table = Table(tuple({**r, "dim": 64, "heads": 1, "depth": int(r["arm"][-2])} for r in holds))
    found = verdict("L-F14-mnist-cross", table)
    assert found.says == "undecided" and "only p = 256 was tested" in found.remark
    assert "seeds needed" not in found.remark
    turned = fitted((nets[1], power(1.0, -0.4, few)), (nets[0], power(1.5, -0.4, few)))
    table = Table(tuple({**r, "dim": 64, "heads": 1, "depth": int(r["arm"][-2])} for r in turned))
    assert verdict("L-F14-mnist-cross", table).says == "contradicted"


def test_an_error_of_the_report_is_judged_where_it_was_run_and_bounded_before():
    ps = (128, 256, 512, 1024)
    reached = fitted(("CNN(10)", {**dict.fromkeys(ps, 0.7), 8192: 0.528}), channels=3)
    assert verdict("L-F12-cifar-cnn8192", reached).says == "reproduced"
    still = fitted(("CNN(10)", dict.fromkeys(ps, 0.6)), channels=3)
    found = verdict("L-F12-cifar-cnn8192", still)
    assert found.says == "undecided" and "p = 8192 comes with --scale large" in found.remark
    already = fitted(("CNN(10)", dict.fromkeys(ps, 0.4)), channels=3)
    assert verdict("L-F12-cifar-cnn8192", already).says == "contradicted"


def test_the_best_number_of_heads():
    alphas = {1: -0.1, 2: -0.2, 4: -0.3, 8: -0.4, 16: -0.2}
    table = fitted(*((f"ViT(128,{h},1)", power(1.0, a)) for h, a in alphas.items()), channels=3)
    assert verdict("L-F13-cifar-opt", table).says == verdict("L-F13-heads", table).says == "reproduced"
    other = fitted(*((f"ViT(128,{h},1)", power(1.0, alphas[h])) for h in alphas), channels=1)
    assert verdict("L-F13-mnist-opt", other).says == "contradicted"
    assert "steepest on average: H = 8" in verdict("L-F13-mnist-opt", other).remark


def descent(noise, shape, arm="CNN", split="test"):
    return [r for h, e in shape.items() for r in rows_of(f"{arm}({h})", 3, {1024: e}, noise, split=split, width=h)]


def test_double_descent_is_found_where_there_is_one():
    up = {1: 0.80, 2: 0.72, 4: 0.78, 8: 0.86, 16: 0.70, 32: 0.60}
    mild, flat = ({h: 0.7 + s * (e - 0.7) for h, e in up.items()} for s in (0.5, 0.05))
    rows = descent(0.2, up) + descent(0.1, mild) + descent(0.0, flat)
    table = Table(tuple(rows))
    assert verdict("L-F9-dd", table).says == verdict("L-F9-noise", table).says == "reproduced"
    falling = Table(tuple(descent(0.2, {h: 0.9 - 0.05 * i for i, h in enumerate(up)})))
    assert verdict("L-F9-dd", falling).says in ("contradicted", "undecided")
    assert stats.all_of(verdict("L-F9-dd", falling).evidence).p > 0.5


def test_thresholds_of_widths():
    train = {1: 0.5, 2: 0.3, 3: 0.1, 4: 0.05, 5: 0.0, 6: 0.0, 8: 0.0}
    table = Table(tuple(descent(0.0, train, split="train")))
    assert verdict("L-F9-cifar-fit", table).says == "reproduced"
    assert verdict("L-F8-mnist-fit", table).says.startswith("too few seeds")


def test_endings_in_words():
    rows = [{"metric": "parameters", "run": k, "value": 1} for k in "abc"]
    rows += [
        {"metric": "watched", "run": "a", "value": 1},
        {"metric": "accuracy", "split": "train", "run": "b", "value": 0.9},
    ]
    words = measures.endings(Table(tuple(rows), ({"run": "c", "why": "timeout: 9 seconds were up"},)))
    assert words.startswith("1 of 2 runs ended with their last step, 1 with a settled training error, 1 timeout; 1 ")


def test_every_figure_is_made_from_nothing_and_from_little():
    for table in (Table(), fitted(("CNN(10)", power(1.5, -0.53)), ("ViT(128,1,1)", power(3.0, -0.53)))):
        for figure in STUDY.figures:
            assert draw.render(figure.make(table), "svg")


def test_maps_are_drawn_over_their_picture():
    row = {
        "metric": "picture",
        "arm": "ViT(128,1,1)",
        "channels": 1,
        "p": 64,
        "shown": "instance",
        "label": 3,
        "of": "mnist",
        "picture": [0] * 512 + [200] * 512,
        "map": [0.0] * 63 + [1.0],
        "rollout": [1 / 64] * 64,
    }
    heat = panels.overlay(row)
    assert heat.shape == (32, 32, 3) and heat[-1, -1].min() > 0.5 and heat[0, 0].max() == 0
    grid = panels.maps(Table((row,)), 1, [("ViT(128,1,1)", "map"), ("ViT(128,4,3)", "map")])
    assert grid.row_labels == ("image", "ViT(128,1,1)") and grid.column_labels == ("3",)


# -- end to end


@pytest.mark.slow
def test_the_study_runs_at_smoke_on_drawn_data(tmp_path):
    """Real workers, one sweep; then the whole study's tables, verdicts and report from the same lab."""
    drawn = {"digits": "procedural_digits", "photos": "procedural_textures", "epochs": 1}
    ran = saccade.run("learning_curves", "smoke", lab=tmp_path / "lab", quiet=True, jobs=2, sweep="fig18", **drawn)
    table = ran.table()
    assert not table.gaps and len(table.series("accuracy", arm="ViT(128,1,1), 5 or 8", split="test")) == 2
    assert table.at(metric="difference_share") and table.at(metric="picture")
    whole = pipeline.open_session("learning_curves", "smoke", tmp_path / "lab", drawn)
    verdicts = whole.verdicts()
    assert [v.claim for v in verdicts] == IDS and all(v.says.startswith("needs") for v in verdicts)
    report = pipeline.write(whole)["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "L-F12-cifar-cross" in report
