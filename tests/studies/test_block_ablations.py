"""The study of blocks from arms to verdicts."""

import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import saccade
from saccade import models, registry
from saccade.lab import pipeline
from saccade.lab.table import Table
from saccade.report import document, draw
from saccade.requirements import Learned, Results
from saccade.spec import SCALES, Reason, Says, Scale
from saccade.studies.block_ablations import STUDY, arms, measures
from saccade.studies.block_ablations.arms import (
    BARE,
    CONV,
    CONV_EPOCHS,
    CONV_SIZES,
    CONV_V2,
    CONV_V3,
    DEEPER,
    DROPOUT,
    HALF_PATCH,
    HEADS,
    PARALLEL,
    POST,
    POST_DEPTHS,
    PRE_DEPTHS,
    PRINTED,
    VIT,
    VIT_EPOCHS,
    VIT_SIZES,
    WIDER,
)
from saccade.study import judge
from tests.figure_quality import faults

TRAINED = [c for c in STUDY.claims if c.trained]


def planned(scale, **given):
    return STUDY.tasks(Scale(scale), STUDY.choose(given))


# -- the study as a value


def test_differences_touch_known_claims():
    assert {id for d in STUDY.differs for id in d.touches} <= {c.id for c in STUDY.claims}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("data", ["cifar10", "imagenette", "procedural_textures"])
def test_every_run_is_listed_once_under_one_arm(scale, data):
    found = planned(scale, data=data)
    assert len({t.run.key for t in found}) == len(found)
    by_fields = [(t.arm, t.run.data_args["p"], t.run.model_args.get("depth"), t.run.seed) for t in found]
    assert max(Counter(by_fields).values()) == 1
    for task in found:
        for kind, args in (("model", task.run.model_args), ("data", task.run.data_args)):
            registry.check_args(kind, getattr(task.run, kind), args)
        for probe in task.probes:
            registry.check_args("probe", probe.name, probe.settings)


@pytest.mark.parametrize("scale", ["small", "large"])
def test_one_recipe_for_all_but_at_equal_epochs(scale):
    found = planned(scale)
    (recipe,) = {t.run.recipe for t in found if t.arm not in (CONV_EPOCHS, VIT_EPOCHS)}
    assert (recipe.optimizer, recipe.batch, recipe.warmup, recipe.label_smoothing) == ("adamw", 64, 0.05, 0.1)
    for task in found:
        if task.arm in (CONV_EPOCHS, VIT_EPOCHS):
            epochs = task.run.recipe.images / task.run.data_args["p"]
            assert epochs == pytest.approx(recipe.images / arms.TRAIN, rel=1e-3)


def test_accuracies_are_of_all_test_images_from_small_on():
    for task in (*planned("small"), *planned("large")):
        probe = next(p for p in task.probes if p.name == "through_transforms")
        assert probe.settings["n"] == 10_000 and "test" in probe.settings["splits"]


def test_large_has_every_arm_that_a_claim_requires():
    have = {t.arm for t in planned("large")}
    asked = {r.where["arm"] for c in STUDY.claims for r in c.requires}
    assert asked <= have


def test_one_thing_changes_at_a_time():
    models_of = {t.arm: t.run.model_args for t in planned("paper")}
    base = models_of[VIT]
    assert (base["dim"], base["depth"], base["heads"]) == (128, 16, 4)
    for arm, change in (
        (POST, {"block": "v2"}),
        (arms.SKIP, {"block": "single_skip"}),
        (WIDER, {"dim": 180}),
        (DEEPER, {"depth": 24}),
        (HEADS, {"heads": 8}),
        (DROPOUT, {"dropout": 0.2, "attention_dropout": 0.2}),
        (HALF_PATCH, {"patch": 2}),
        (BARE, {"positions": False}),
        (POST_DEPTHS, {"block": "v2", "depth": 24}),
    ):
        assert dict(models_of[arm]) == {**base, **change}


def test_imagenette_has_the_reports_patches():
    models_of = {t.arm: t.run.model_args for t in planned("paper", data="imagenette")}
    assert models_of[VIT]["image"] == 224 and models_of[VIT]["patch"] == 32
    assert models_of[HALF_PATCH]["patch"] == 16 and models_of[CONV]["stem"] == "imagenet"
    assert measures.parameters_of_vit(**models_of[VIT]) == 3_573_770


@pytest.mark.parametrize(
    ("model", "args", "side"),
    [
        ("vit", {"patch": 8, "dim": 48, "depth": 4, "image": 32}, 32),
        ("vit", {"patch": 4, "dim": 20, "depth": 2, "image": 32, "positions": False}, 32),
        ("convnet", {"width": 4, "stages": (1, 2, 1)}, 32),
        ("convnet", {"width": 4, "stages": (2, 1), "stem": "imagenet"}, 64),
    ],
)
def test_costs_are_those_of_the_layers(model, args, side):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    built = models.build(model, **args)
    parameters, operations = measures.cost(model, args, side)
    assert models.parameters(built) == parameters
    if model == "vit":
        built.dense = True  # the model as drawn; every query of the last block
    # The counter does not know the fused attention of a CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        built.eval()(torch.zeros(1, 3, side, side))
    assert counter.get_total_flops() == 2 * operations


def test_the_resnet18_layout_is_counted():
    assert measures.parameters_of_convnet(width=64, stages=(2, 2, 2, 2)) == 11_173_962
    assert measures.parameters_of_convnet(width=64, stages=(2, 2, 2, 2), stem="imagenet") == 11_181_642


# -- verdicts from made-up rows


def rows_of(arm, accuracy, seeds=5, noise=0.003, split="test", transform="test", **more):
    fields = {"p": arms.TRAIN, "data": "photos", **more}
    random = np.random.default_rng(zlib.crc32(f"{arm}{fields}{split}{transform}".encode()))
    conv = arm.startswith("Conv")
    model = {"model": "convnet", "width": 8, "stages": [1, 1]} if conv else {"model": "vit", "patch": 8, "dim": 48}
    model = model if conv else {**model, "depth": 4, "image": 32}
    out = []
    for seed in range(seeds):
        shared = {"arm": arm, "seed": seed, "run": f"{arm}{seed}", "budget": 128_000, **model, **fields}
        if split == "test":
            out.append({**shared, "metric": "parameters", "value": 1})
        seen = {**shared, "split": split, "transform": transform, "n": 1000}
        value = accuracy + noise * random.standard_normal()
        out += [{**seen, "metric": "accuracy", "value": value}, {**seen, "metric": "loss", "value": 2.5 - value}]
    return out


def moved_rows(arm, seeds=5, **layers):
    """Errors by layer name: (scope, metric, move, amount, region) -> value."""
    return [
        {
            "arm": arm,
            "seed": s,
            "metric": metric,
            "layer": layer.replace("__", "."),
            "scope": scope,
            "move": move,
            "amount": amount,
            "region": region,
            "trained": trained,
            "value": value + 0.01 * value * s,
            "n": 8,
            "run": f"{arm}{s}",
        }
        for layer, found in layers.items()
        for (scope, metric, move, amount, region), value in found.items()
        for s in range(seeds)
        for trained in (True, False)
    ]


def use(value, ingredient="positions"):
    return [
        {"arm": VIT, "seed": s, "metric": "use", "ingredient": ingredient, "value": value, "n": 8} for s in range(5)
    ]


def network(metric, **by):
    return {("network", f"{metric}_error", "shift", float(k[1:]), "whole"): v for k, v in by.items()}


def a_vit(arm=VIT, follows=0.6, logits=0.3):
    exact = {("alone", "equivariance_error", k, 1.0, "whole"): 1e-16 for k in ("shift", "permute")}
    exact["alone", "invariance_error", "shift", 1.0, "whole"] = 0.5
    maps = {**exact, **network("equivariance", _1=0.5, _8=follows)}
    return moved_rows(arm, blocks__0=maps, blocks__3=maps, output=network("invariance", _1=0.4, _8=logits))


def a_convnet(follows=0.5, stays=0.9, logits=0.3, step=0.1):
    layer = {
        ("alone", metric, "shift", 1.0, region): value
        for metric, region, value in (
            ("equivariance_error", "interior", 1e-15),
            ("largest_difference", "interior", 1e-15),
            ("equivariance_error", "whole", 0.2),
            ("invariance_error", "interior", 0.7),
        )
    }
    last = {**network("equivariance", _1=0.3, _8=follows), **network("invariance", _1=0.3, _8=stays)}
    return moved_rows(CONV, stem__0=layer, blocks__3=last, output=network("invariance", _1=step, _8=logits))


DEFAULT = {**dict.fromkeys((CONV, CONV_V2, CONV_V3), 0.62), CONV_V2: 0.58}
DEFAULT |= {VIT: 0.45, POST: 0.44, PARALLEL: 0.48, DROPOUT: 0.42, HALF_PATCH: 0.5, BARE: 0.44}
DEFAULT |= {WIDER: 0.451, DEEPER: 0.449, HEADS: 0.4505}


def world(vit=None, convnet=None, bare=None, used=0.3, **change):
    """Rows of a world in which every trained claim comes out as the report has it; keywords change accuracies."""
    rows = []
    for arm, accuracy in DEFAULT.items():
        rows += rows_of(arm, change.get(arm, accuracy), **({"depth": 6} if arm == DEEPER else {}))
    for arm in (CONV, VIT):
        rows += rows_of(arm, DEFAULT[arm] + 0.1, split="train")
        rows += rows_of(arm, DEFAULT[arm] + change.get("through", 0.0), split="train", transform="training")
        rows += rows_of(arm, DEFAULT[arm], split="held_out", noise=0.015)
    for p, conv, other in ((arms.FEWER, 0.5, 0.25), (arms.MORE, 0.7, 0.65)):
        for arm in (CONV_SIZES, CONV_EPOCHS):
            rows += rows_of(arm, conv, p=p)
        for arm in (VIT_SIZES, VIT_EPOCHS):
            rows += rows_of(arm, change.get(f"{arm} {p}", other), p=p)
    for depth, apart in ((2, 0.0), (8, 0.05)):
        rows += rows_of(PRE_DEPTHS, 0.45, depth=depth)
        rows += rows_of(POST_DEPTHS, 0.45 - change.get("grows", 1) * apart, depth=depth)
    rows += convnet or a_convnet()
    rows += (vit or a_vit()) + (bare or a_vit(BARE, 1e-16, 1e-16)) + use(used)
    return Table(tuple(rows))


def verdicts(whole, before=None, scale="large", study=STUDY):
    before = before or whole
    return {v.claim: v for v in judge(study, Results(whole, {0.5: before, 0.75: before}), scale)}


AS_REPORTED = {
    "B-conv-v2": Says.REPRODUCED,
    "B-conv-v3": Says.REPRODUCED,
    "B-vit-vs-conv": Says.REPRODUCED,
    "B-vit-v2": Says.REPRODUCED,
    "B-vit-v2-depth": Says.HOLDS,
    "B-vit-v3": Says.HOLDS,
    "B-hp-dropout": Says.REPRODUCED,
    "B-hp-patch16": Says.REPRODUCED,
    "B-hp-embed180": Says.REPRODUCED,
    "B-hp-depth24": Says.REPRODUCED,
    "B-hp-heads8": Says.REPRODUCED,
    "B-Q1-data": Says.REPRODUCED,
    "B-Q2-conv": Says.REPRODUCED,
    "B-Q2-vitblock": Says.CONTRADICTED,
    "B-Q2-convnet": Says.REPRODUCED,
    "B-Q2-vit": Says.REPRODUCED,
    "B-eval": Says.REPRODUCED,
}


@pytest.fixture(scope="module")
def as_reported():
    return verdicts(world())


@pytest.mark.parametrize("id", AS_REPORTED)
def test_a_world_like_the_reports_gives_its_findings(as_reported, id):
    assert as_reported[id].says == AS_REPORTED[id], as_reported[id].label


def test_costs_stand_in_the_remark(as_reported):
    assert "multiply-adds x 1.00" in as_reported["B-hp-heads8"].remark


@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("B-conv-v2", {CONV_V2: 0.66}),
        ("B-conv-v3", {CONV_V3: 0.68}),
        ("B-vit-vs-conv", {VIT: 0.58}),
        ("B-vit-v2", {POST: 0.5}),
        ("B-hp-dropout", {DROPOUT: 0.5}),
        ("B-hp-patch16", {HALF_PATCH: 0.4}),
        ("B-hp-embed180", {WIDER: 0.5}),
        ("B-Q1-data", {f"{VIT_SIZES} {arms.MORE}": 0.42, f"{VIT_SIZES} {arms.FEWER}": 0.42}),
        ("B-eval", {"through": 0.2}),
    ],
)
def test_the_opposite_contradicts(id, change):
    assert verdicts(world(**change))[id].says == Says.CONTRADICTED


def test_what_the_report_left_open_does_not_hold_when_the_opposite_is_found():
    found = verdicts(world(grows=-1, **{PARALLEL: 0.42}))
    assert {found[id].says for id in ("B-vit-v3", "B-vit-v2-depth")} == {Says.DOES_NOT_HOLD}


def test_an_effect_below_one_point_is_equivalent_to_none():
    found = verdicts(world(**{CONV_V2: 0.6195}))["B-conv-v2"]
    assert found.says == Says.EQUIVALENT and found.reason is Reason.EFFECT_SMALL


def test_a_gap_that_shrinks_at_equal_images_only_is_not_reproduced():
    assert verdicts(world(**{f"{VIT_EPOCHS} {arms.MORE}": 0.42}))["B-Q1-data"].says != Says.REPRODUCED


@pytest.mark.parametrize("claim", TRAINED, ids=lambda c: c.id)
def test_an_arm_that_has_not_learned_decides_nothing(claim):
    """Each arm that a claim reads, in turn, near chance."""
    table = world()
    scale = claim.needs or "large"
    if scale == "paper":
        table = Table(tuple({**r, "data": "imagenette"} for r in table))
    for wanted in (r for r in claim.requires if isinstance(r, Learned)):
        low = Table(
            tuple(
                {**r, "value": 0.1 + 0.0001 * r["seed"] - 0.0002}
                if r["metric"] == "accuracy" and all(r.get(k) == v for k, v in wanted.where.items())
                else r
                for r in table
            )
        )
        if table.series("accuracy", **wanted.where):
            found = verdicts(low, scale=scale, study=replace(STUDY, claims=(claim,)))[claim.id]
            assert found.says == Says.UNDECIDED and found.reason is Reason.NOT_LEARNED, wanted.asks


def test_a_contrast_that_moves_back_decides_nothing():
    early = world(**{CONV_V2: 0.5, HALF_PATCH: 0.6})
    found = verdicts(world(), before=early)
    assert {found[id].reason for id in ("B-conv-v2", "B-hp-patch16")} == {Reason.STILL_MOVING}


def test_position_codes_that_are_not_used_decide_nothing():
    found = verdicts(world(used=0.01))["B-Q2-vit"]
    assert (found.says, found.reason) == (Says.UNDECIDED, Reason.NOT_IN_USE)


def test_a_vit_that_follows_whole_patches_as_well_as_one_without_codes_is_no_evidence():
    found = verdicts(world(vit=a_vit(follows=1e-16, logits=1e-16)))["B-Q2-vit"]
    assert found.says != Says.REPRODUCED


@pytest.mark.parametrize("change", [{"follows": 1.2}, {"logits": 1.2}, {"step": 0.8}])
def test_a_convnet_must_follow_pool_and_beat_the_vit(change):
    assert verdicts(world(convnet=a_convnet(**change)))["B-Q2-convnet"].says == Says.CONTRADICTED


def test_run_to_run_variation_can_be_refuted_and_not_shown():
    still, wide = (
        Table(tuple(r for r in world() if (r["arm"], r.get("split")) != (VIT, "test")) + tuple(rows))
        for rows in (rows_of(VIT, 0.45, noise=0.0001), rows_of(VIT, 0.45, noise=0.05))
    )
    assert verdicts(still)["B-vit-v1b"].says == Says.DOES_NOT_HOLD
    found = verdicts(wide)["B-vit-v1b"]
    assert found.says == Says.UNDECIDED and "other training images" in found.remark


def test_printed_numbers_count_on_imagenette_at_paper_scale_only():
    near = world(**{CONV: 0.8015, VIT: 0.5153})
    ids = ("B-conv-v1", "B-vit-v1")
    assert {verdicts(near)[i].reason for i in ids} == {Reason.OUT_OF_REACH}
    assert {verdicts(near, scale="paper")[i].reason for i in ids} == {Reason.TOO_FEW_SEEDS}
    own = Table(tuple({**r, "data": "imagenette"} for r in near))
    assert {verdicts(own, scale="paper")[i].says for i in ids} == {Says.REPRODUCED}
    assert set(PRINTED) <= {t.arm for t in planned("paper")}


# -- figures


@pytest.mark.parametrize("figure", STUDY.figures, ids=lambda f: f.name)
def test_a_figure_without_rows_is_empty(figure):
    assert not figure.make(Table()).rows()


@pytest.mark.parametrize("figure", STUDY.figures, ids=lambda f: f.name)
def test_a_figure_is_drawn_from_what_there_is(figure):
    made = figure.make(world())
    if figure.name not in ("images_seen", "lie"):  # of these the made-up world has no rows
        assert made.rows()
    assert draw.render(made, "svg")


# -- end to end


@pytest.mark.slow
def test_the_study_runs_at_smoke_on_drawn_data(tmp_path):
    ran = saccade.run("block_ablations", "smoke", lab=tmp_path / "lab", quiet=True, jobs=1, data="procedural_textures")
    table = ran.table()
    assert not table.gaps
    assert len(table.series("accuracy", arm=PARALLEL, split="test", transform="test")) == 2
    assert all(v.reason is Reason.OUT_OF_REACH for v in ran.verdicts())
    for id, holds in (("B-Q2-conv", True), ("B-Q2-vitblock", False)):  # identities hold whatever was learned
        (claim,) = (c for c in STUDY.claims if c.id == id)
        assert claim.evidence(table).p == (0 if holds else 1)
    for figure in STUDY.figures:
        assert figure.make(table).rows(), figure.name
    for figure, data in document.figures_of(STUDY, ran.table(), ran.verdicts()):
        assert not faults(data), figure.name
    report = pipeline.write(ran).paths["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "B-hp-patch16" in report
