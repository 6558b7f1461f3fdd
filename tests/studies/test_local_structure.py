"""The local-structure study: its runs, its claims on invented rows with a known answer, its figures, end to end."""

import numpy as np
import pytest
import torch

import saccade
from saccade import models
from saccade.data.images import Source
from saccade.data.photos import Enlarged, photos
from saccade.lab import pipeline
from saccade.lab.table import Table
from saccade.report import document, draw
from saccade.requirements import Results
from saccade.spec import MILESTONES, Reason, SaccadeError, Says, Scale, Settings
from saccade.stats import TooFewSeeds
from saccade.studies.local_structure import STUDY, measures
from saccade.studies.local_structure.arms import (
    ATTENTION,
    CELLS,
    DEPTHWISE,
    DYNAMIC,
    MAIN,
    RESNET,
    STATIC,
    SWITCHES,
    VIT,
    WINDOWS,
    arms,
    tasks,
)
from saccade.study import judge
from saccade.subjects.subject import Subject
from tests.figure_quality import faults

EXACT = {"E-EQ1", "E-T2-random", "E-T3-random"}
PAPER = {c.id for c in STUDY.claims if c.needs == "paper"}
TEXTURES = Settings(of="procedural_textures", hold_out=500)


# -- runs


def planned(scale, **given):
    """What is trained; the images of the report need no run."""
    return [t for t in tasks(Scale(scale), STUDY.choose(given)) if not t.run.is_fact]


def test_differences_touch_known_claims():
    assert {claim for d in STUDY.differs for claim in d.touches} <= {c.id for c in STUDY.claims}


@pytest.mark.parametrize("scale", ["smoke", "small", "large", "paper"])
def test_runs_of_one_comparison_share_seeds_budget_and_recipe(scale):
    found = planned(scale)
    assert len({t.run.key for t in found}) == len(found)
    for group in (
        [t for t in found if t.arm in MAIN],
        [t for t in found if t.arm not in MAIN],
    ):
        by_arm = {arm: {t.run.seed for t in group if t.arm == arm} for arm in {t.arm for t in group}}
        assert len(set(map(frozenset, by_arm.values()))) <= 1
        assert len({t.run.data_args for t in group}) <= 1
        if scale != "paper":
            assert len({t.run.recipe for t in group}) <= 1


def test_large_is_what_was_planned():
    found = planned("large")
    main, ablation = [t for t in found if t.arm in MAIN], [t for t in found if t.arm not in MAIN]
    assert {t.arm for t in main} == set(MAIN) and len(main) == 5 * 8
    assert {t.run.recipe.images for t in main} == {153_600}
    assert {t.arm for t in ablation} == {ATTENTION.arm(cell) for cell in CELLS} and len(ablation) == 8 * 6
    assert {t.run.recipe.images for t in ablation} == {61_440}


def test_from_small_upwards_accuracy_is_on_all_test_images():
    for task in (*planned("small"), *planned("large")):
        assert next(p for p in task.probes if p.name == "accuracy").settings["n"] == 10_000


def test_below_paper_scale_all_models_are_of_one_size():
    sizes = {a.name: models.parameters(models.build(a.model, **a.args)) for a in arms(Scale("large"), STUDY.choose({}))}
    assert len(sizes) == 13 and min(sizes.values()) > 115_000 and max(sizes.values()) < 150_000, sizes


@pytest.mark.parametrize(("choice", "kind"), [("ablation", ATTENTION), ("depth-wise ablation", DEPTHWISE)])
def test_the_corners_of_an_ablation_differ_by_their_switches_alone(choice, kind):
    found = {t.arm: t.run for t in planned("large", arms=choice)}
    assert set(found) == {kind.arm(cell) for cell in CELLS} and {r.model for r in found.values()} == {kind.model}
    for cell in CELLS:
        args = found[kind.arm(cell)].model_args
        assert (args["window"] > 0, args["shared"], args["dynamic"]) == (cell.local, cell.shared, cell.dynamic)
    assert {r.model_args["size"] for r in found.values()} == {"mini"}


def test_choices_reach_the_runs():
    found = planned(
        "large",
        images=64,
        lr=0.01,
        window=4,
        backdrop="plain",
        route="report",
        arms="main",
        photos="procedural_textures",
    )
    assert {t.arm for t in found} == set(MAIN) and {t.run.recipe.images for t in found} == {64}
    assert {t.run.recipe.lr for t in found} == {0.01} and {t.run.data_args["of"] for t in found} == {
        "procedural_textures"
    }
    assert next(t for t in found if t.arm == WINDOWS).run.model_args["window"] == 4
    asked = {p.name: p.settings for p in found[0].probes}
    assert asked["top_k_matching"]["route"] == "report" and asked["native_object_accuracy"]["backdrops"] == ("plain",)


def test_probe_images_are_made_as_in_the_report_at_paper_scale_only():
    routes = {
        scale: {p.settings.get("route", "clean") for p in planned(scale)[0].probes if p.name == "top_k_matching"}
        for scale in ("large", "paper")
    }
    assert routes == {"large": {"clean"}, "paper": {"report"}}


def test_the_reports_recipes_at_paper_scale():
    by_arm = {t.arm: t.run for t in planned("paper")}
    for arm, optimizer, batch in ((RESNET, "adam", 64), (VIT, "adam", 64), (DYNAMIC, "adamw", 16)):
        recipe = by_arm[arm].recipe
        assert (recipe.optimizer, recipe.batch, recipe.lr, recipe.schedule) == (optimizer, batch, 1e-4, "one_cycle")
        assert by_arm[arm].data_args["size"] == 224 and recipe.images == 4_000_000
    assert by_arm[VIT].recipe.precision == "mixed" and by_arm[DYNAMIC].recipe.clip == 5.0


def test_images_can_be_trained_on_enlarged_and_autoaugmented():
    small = photos("test", seed=0, **TEXTURES)
    large = photos("test", seed=0, size=64, **TEXTURES)
    index = torch.arange(4)
    assert isinstance(large, Enlarged) and large.batch(index).shape == (4, 3, 64, 64)
    assert torch.equal(large.head(9).pick(torch.tensor([3, 5])).y, small.y[[3, 5]])
    shrunk = torch.nn.functional.avg_pool2d(large.batch(index), 2)
    assert (shrunk - small.batch(index)).abs().mean() < 0.05
    train = photos("train", seed=0, augment="autoaugment", **TEXTURES)
    once, again, other = (train.batch(index, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(once, again) and not torch.equal(once, other)
    assert torch.equal(train.batch(index), photos("train", seed=0, augment="none", **TEXTURES).batch(index))
    with pytest.raises(SaccadeError, match="size of photos must be"):
        photos("test", seed=0, size=-1, **TEXTURES)


@pytest.mark.slow
def test_the_reports_precision_is_refused_on_a_cpu_before_anything_is_built(tmp_path):
    from saccade.lab import launch
    from saccade.lab.store import Lab

    with pytest.raises(SaccadeError, match=r"^precision=mixed needs a GPU"):
        launch.costs(planned("paper")[:1], Lab(tmp_path / "lab").open(), "cpu")


# -- claims, from rows with a known answer

SCORES = {RESNET: 0.70, DYNAMIC: 0.69, STATIC: 0.68, WINDOWS: 0.66, VIT: 0.55}
EFFECTS = {"locality": 0.04, "sharing": 0.02, "dynamic": -0.01}
WEIGHTS = np.array([-0.04, -0.15, -0.05, 0.24, 0.0])  # of accuracy on the shares of 0 to 4 matches


def corner(cell, base=0.55):
    """Every corner's accuracy as a sum of its switches."""
    return base + sum(EFFECTS[s] for s in SWITCHES if cell.on(s))


def invented(scores=SCORES, corners=corner, *, seeds=6, noise=0.002, clutter=0.3, use=0.5, shift=None):
    """Rows of a large run. Matching and objects follow accuracy; `shift` adds to an arm's, as at a milestone."""
    r, rows = np.random.default_rng(0), []
    every = {arm: (level, {}) for arm, level in scores.items()}
    every |= {
        ATTENTION.arm(cell): (corners(cell), {**ATTENTION.where(cell), "window": 2 if cell.local else 0})
        for cell in CELLS
    }
    for arm, (level, fields) in every.items():
        for seed in range(seeds):
            a = level + noise * r.standard_normal() + (shift or {}).get(arm, 0.0)
            shares = np.array(measures.BLIND) + (a - 0.1) * WEIGHTS
            here = [("accuracy", a, {"split": "test"})]
            here += [("top_k_matching", float(shares @ np.arange(5)), {"k": 4})]
            here += [("matching_share", float(s), {"k": 4, "matches": m}) for m, s in enumerate(shares)]
            here += [
                ("object_accuracy", 0.1 + 0.05 * (a - 0.1), {"scale": q, "backdrop": b})
                for q in (0.25, 0.5)
                for b in ("plain", "procedural_textures")
            ]
            here += [
                ("native_object_accuracy", 0.1 + share * (a - 0.1), {"canvas": c, "backdrop": b, "plain": b == "plain"})
                for c in (48, 64)
                for b, share in (("plain", 0.5), ("procedural_textures", clutter))
            ]
            here += [("shuffled_accuracy", 0.1 + (a - 0.1) / g, {"grid": g}) for g in (1, 2, 4)]
            slow = -0.2 if arm == DYNAMIC else 0.0
            here += [
                ("watched", a + (slow if q == 0.25 else 0.0), {"split": "held_out", "images": int(1000 * q)})
                for q in (0.25, 0.5, 0.75, 1.0)
            ]
            here += [("use", use, {"ingredient": "content"})]
            known = {"arm": arm, "seed": seed, "run": f"{arm}{seed}", "n": 1, "budget": 1000, **fields}
            rows += [{**known, "metric": m, "value": v, **at} for m, v, at in here]
    return Table(tuple(rows))


def verdicts(table, scale="large", before=None):
    """Judged as if measured at the milestones too; without `before` nothing has moved since."""
    on_the_way = dict.fromkeys(MILESTONES, before or table)
    return {v.claim: v for v in judge(STUDY, Results(table, on_the_way, lambda: table), scale)}


def test_rows_as_the_report_has_them_reproduce_every_relation():
    found = verdicts(invented({**SCORES, DYNAMIC: 0.705}))
    for name, v in found.items():
        if name in PAPER:
            assert v.reason is Reason.OUT_OF_REACH, name
        elif name == "E-C1":
            assert v.says is Says.HOLDS, v.remark
        else:
            assert v.says is Says.REPRODUCED, (name, v.label, v.remark)
    assert found["E-F4-vit"].remark == "needs --scale paper: saccade run local_structure --scale paper"
    assert "locality +4.1" in found["E-C1"].remark  # 4 points and noise


def test_rows_the_other_way_round_contradict():
    turned = {RESNET: 0.62, DYNAMIC: 0.60, STATIC: 0.6, WINDOWS: 0.72, VIT: 0.70}
    found = verdicts(invented(turned, lambda cell: 0.60 - 0.04 * cell.local))
    for name in ("E-H2", "E-H3", "E-F4-order", "E-T2-order", "E-F5-skew", "E-F5-hist", "E-H5"):
        assert found[name].says is Says.CONTRADICTED, (name, found[name].label, found[name].remark)
    assert found["E-C1"].says is Says.DOES_NOT_HOLD


def test_accuracy_on_the_way_is_of_images_that_are_new_to_the_model():
    def row(metric, images, value, budget, **more):
        return {"arm": VIT, "seed": 0, "metric": metric, "images": images, "value": value, "budget": budget, **more}

    def looked(budget):
        online = [row("online", n * budget // 40, n / 40, budget, split="online") for n in range(1, 41)]
        return Table((*online, row("watched", budget // 4, 0.9, budget, split="held_out")))

    assert measures.on_the_way(looked(153_600), 0.25, arm=VIT)[0] == pytest.approx(
        0.25
    )  # the mean of three points, none twice
    assert measures.on_the_way(looked(400_000), 0.25, arm=VIT) == {
        0: 0.9
    }  # images have come again: the held-out ones count
    assert measures.on_the_way(looked(153_600), 0.75, arm=VIT) == {}  # nobody looked then
    assert measures.on_the_way(Table(), 0.25, arm=VIT) == {}


def test_an_arm_that_has_not_learned_decides_nothing():
    found = verdicts(invented({**SCORES, VIT: 0.45}))
    for name in ("E-H2", "E-H3", "E-F4-order", "E-F4-early", "E-T2-order", "E-F5-hist", "E-F5-skew", "E-H5", "E-C1"):
        assert found[name].reason is Reason.NOT_LEARNED and "ViT" in found[name].remark, name
    assert found["E-H4"].says is Says.REPRODUCED


def test_a_contrast_that_moves_to_the_other_side_decides_nothing():
    before = invented(shift={VIT: -0.1})  # the ViT gains on all others in the last quarter
    found = verdicts(invented(), before=before)
    for name in ("E-H2", "E-F4-order", "E-F5-skew", "E-H5"):
        assert found[name].reason is Reason.STILL_MOVING, (name, found[name].label)


def test_attention_that_is_not_in_use_carries_no_bias():
    assert verdicts(invented(use=0.01))["E-C1"].reason is Reason.NOT_IN_USE


def test_where_every_model_guesses_nothing_is_lost_to_the_background():
    found = verdicts(invented(clutter=-0.01))
    for name in ("E-H4", "E-H5", "E-C1"):
        failed = [m.asks for m in found[name].requirements if not m.met]
        assert found[name].reason is Reason.NOT_LEARNED and all("native_object_accuracy" in asks for asks in failed)


def test_most_of_the_accuracy_kept_on_a_background_contradicts():
    assert verdicts(invented(clutter=0.8))["E-H4"].says is Says.CONTRADICTED


@pytest.mark.parametrize(("share", "reproduced"), [(0.0, {"E-T3-vit"}), (0.07, {"E-T3-resnet50", "E-T3-localvit"})])
def test_no_accuracy_is_both_at_and_above_chance(share, reproduced):
    """All arms at 10 %, then all at about 15 %."""
    rows = [
        {**r, "value": 0.1 + share * 5 / 7} if r["metric"] == "object_accuracy" else r
        for r in invented({**SCORES, RESNET: 0.9, VIT: 0.75, DYNAMIC: 0.88})
    ]
    found = verdicts(Table(tuple(rows)), "paper")
    ours = {c: found[c].says for c in ("E-T3-resnet50", "E-T3-vit", "E-T3-localvit")}
    assert {c for c, says in ours.items() if says is Says.REPRODUCED} == reproduced
    assert {c for c, says in ours.items() if says is Says.CONTRADICTED} == set(ours) - reproduced


def test_learning_well_is_learning_as_well_as_the_report():
    for level, says in ((0.91, Says.REPRODUCED), (0.80, Says.CONTRADICTED)):
        assert verdicts(invented({**SCORES, RESNET: level}), "paper")["E-H1"].says is says


def test_what_is_exact_needs_no_run():
    found = {v.claim: v for v in judge(STUDY, Table(), "small")}
    assert {name for name, v in found.items() if v.says is Says.REPRODUCED} == EXACT
    assert found["E-EQ1"].evidence.estimate.value == pytest.approx(1.6, abs=1e-12)
    assert "0.0714 0.3810 0.4286 0.1143 0.0048" in found["E-T2-random"].remark
    drawn = torch.rand(20_000, 10, generator=torch.Generator().manual_seed(0)).topk(4).indices
    counts = (drawn < 4).sum(1)  # four classes are there, whichever
    assert counts.double().mean() == pytest.approx(1.6, abs=0.02)
    assert np.allclose(torch.bincount(counts, minlength=5) / 20_000, measures.BLIND, atol=0.012)


def test_one_observation_counts_once():
    families = {v.claim: v.family for v in judge(STUDY, Table(), "small")}
    assert families["E-EQ1"] == families["E-T2-random"] and families["E-H1"] == families["E-F4-resnet50"]
    assert families["E-H3"] == families["E-F4-order"] != families["E-H2"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_effects_are_recovered_from_the_corners(switch):
    table = invented(noise=0.0)
    assert measures.effect(table, switch, measures.accuracy) == pytest.approx(dict.fromkeys(range(6), EFFECTS[switch]))
    with pytest.raises(TooFewSeeds):
        measures.effect(table, switch, measures.accuracy, DEPTHWISE)


def test_what_shuffling_leaves_is_above_chance_and_relative():
    kept = measures.shuffle_kept(invented(noise=0.0), arm=RESNET)
    assert kept == pytest.approx(dict.fromkeys(range(6), 0.25))


def test_a_time_that_has_not_come_has_no_accuracy():
    table = invented(noise=0.0)
    assert measures.on_the_way(table, 0.25, arm=DYNAMIC) == pytest.approx(dict.fromkeys(range(6), 0.49))
    early = Table(tuple(r for r in table if r.get("images", 0) <= 500))
    assert measures.on_the_way(early, 0.75, arm=DYNAMIC) == {}


# -- figures and images


@pytest.mark.parametrize("figure", STUDY.figures, ids=lambda f: f.name)
def test_a_figure_is_drawn_from_rows_and_left_out_without(figure):
    with pytest.raises(TooFewSeeds):
        figure.make(Table())
    if figure.name == "asked_images":  # below
        return
    table = Table((*invented().rows, *(_as(r, "online") for r in invented() if r["metric"] == "watched")))
    table = Table((*table.rows, *(_as(r, "answer_kept") for r in table if r["metric"] == "shuffled_accuracy")))
    assert draw.render(figure.make(table), "svg")


def _as(row, metric):
    return {**row, "metric": metric}


def test_every_bar_has_the_name_of_its_model():
    bars = next(f for f in STUDY.figures if f.name == "fig4_final").make(invented())
    assert bars.categories == (*MAIN, "blind guessing")
    assert [(line.label, line.x) for line in bars.lines] == [(name, (i,)) for i, name in enumerate(bars.categories)]


def test_the_images_are_those_the_models_are_asked_about():
    from saccade.probes.local_pictures import local_pictures

    data = Source("photos", TEXTURES, 0)
    images = data("test")
    rows = list(local_pictures(Subject(torch.nn.Identity(), images.mean, images.std), data, n=2, grids=(2,)))
    shown = [r.at["shown"] for r in rows]
    objects = [f"object, scale {s}" for s in ("1", "0.5", "0.25")]
    kinds = ["mosaic", *objects, "object, native on 64 x 64", "shuffled 2 x 2"]
    assert shown == [kind for kind in kinds for _ in range(2)] and len(rows[0].at["labels"]) == 4
    sides = {r.at["shown"]: (len(r.at["picture"]) // 3) ** 0.5 for r in rows}
    assert sides == {kind: 64 if "native" in kind else 32 for kind in kinds}
    whole = (255 * images.batch(torch.tensor([0]))).round().flatten().tolist()
    assert sorted(whole) == sorted(rows[-2].at["picture"])  # shuffling moves pixels and makes none
    known = {"seed": 0, "of": "procedural_textures", "arm": RESNET}
    table = Table(tuple({**r.at, **known, "metric": r.metric, "value": r.value} for r in rows))
    grid = next(f for f in STUDY.figures if f.name == "asked_images").make(table)
    assert grid.row_labels == tuple(kinds) and len(grid.images[0]) == 2


# -- end to end


@pytest.mark.slow
def test_the_study_runs_at_smoke_on_drawn_data(tmp_path):
    ran = saccade.run(
        "local_structure", "smoke", lab=tmp_path / "lab", quiet=True, jobs=2, images=64, photos="procedural_textures"
    )
    table = ran.table()
    assert not table.gaps and len(measures.accuracy(table, arm=RESNET)) == 2
    assert all(len(measures.native(table, arm=arm)) == 2 for arm in MAIN)
    assert len(table.series("use", arm=WINDOWS, ingredient="content")) == 2
    assert {v.reason for v in ran.verdicts()} == {Reason.OUT_OF_REACH}
    for figure, data in document.figures_of(STUDY, ran.table(), ran.verdicts()):
        assert not faults(data), figure.name
    report = pipeline.write(ran).paths["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "E-C1" in report
