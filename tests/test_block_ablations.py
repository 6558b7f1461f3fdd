"""The study of blocks from arms to verdicts; training transform and Imagenette folders."""

import zlib
from collections import Counter

import numpy as np
import pytest
import torch

import saccade
from saccade import models, registry
from saccade.data.imagenette import imagenette
from saccade.data.images import Source
from saccade.lab import pipeline
from saccade.lab.table import Table
from saccade.probes.through_transforms import through_transforms
from saccade.report import draw
from saccade.spec import SCALES, SaccadeError, Scale, Settings
from saccade.studies.block_ablations import arms, measures
from saccade.studies.block_ablations.claims import STUDY
from saccade.study import judge
from saccade.subjects.subject import Subject

IDS = [
    "B-conv-v1",
    "B-conv-v2",
    "B-conv-v3",
    "B-vit-v1",
    "B-vit-vs-conv",
    "B-vit-v1b",
    "B-vit-v2",
    "B-vit-v2-depth",
    "B-vit-v3",
    "B-hp-dropout",
    "B-hp-patch16",
    "B-hp-embed180",
    "B-hp-depth24",
    "B-hp-heads8",
    "B-Q1-data",
    "B-Q2-conv",
    "B-Q2-vitblock",
    "B-Q2-convnet",
    "B-Q2-vit",
    "B-eval",
]


def planned(scale, **given):
    return STUDY.tasks(Scale(scale), STUDY.choose(given))


# -- the study as a value


def test_every_claim_stands_once():
    assert [c.id for c in STUDY.claims] == IDS
    assert all(set(d.touches) <= set(IDS) for d in STUDY.differs)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("data", ["cifar10", "imagenette"])
def test_every_run_is_listed_once_under_one_arm(scale, data):
    found = planned(scale, data=data)
    assert len({t.run.key for t in found}) == len(found)
    assert max(Counter((t.arm, t.run.data_args["p"], t.run.seed) for t in found).values()) == 1
    for task in found:
        for kind, args in (("model", task.run.model_args), ("data", task.run.data_args)):
            registry.check_args(kind, getattr(task.run, kind), args)
        for probe in task.probes:
            registry.check_args("probe", probe.name, probe.settings)


def test_one_recipe_for_all_and_the_same_order_of_pictures():
    found = planned("small")
    (recipe,) = {t.run.recipe for t in found}
    assert (recipe.optimizer, recipe.batch, recipe.warmup, recipe.label_smoothing) == ("adamw", 64, 0.05, 0.1)
    whole = [t for t in found if t.run.data_args["p"] == 8522]
    assert len({t.run.data_args for t in whole}) == 1  # data, order and augmentation depend on data and seed alone
    assert {t.run.seed for t in found} == set(range(5))


def test_one_thing_changes_at_a_time():
    nets = {t.arm: t.run.model_args for t in planned("paper") if t.run.data_args["p"] == 8522}
    base = nets["ViT v1"]
    assert (base["dim"], base["depth"], base["heads"]) == (128, 16, 4)
    for arm, change in (
        ("ViT v2", {"block": "v2"}),
        ("ViT v3, single skip", {"block": "single_skip"}),
        ("ViT, wider", {"dim": 180}),
        ("ViT v1, depth 24", {"depth": 24}),
        ("ViT, 8 heads", {"heads": 8}),
        ("ViT with dropout", {"dropout": 0.2, "attention_dropout": 0.2}),
        ("ViT, half the patch", {"patch": 2}),
        ("ViT v2, depth 24", {"block": "v2", "depth": 24}),
    ):
        assert dict(nets[arm]) == {**base, **change}


def test_imagenette_has_the_reports_patches():
    nets = {t.arm: t.run.model_args for t in planned("paper", data="imagenette")}
    assert nets["ViT v1"]["image"] == 224 and nets["ViT v1"]["patch"] == 32
    assert nets["ViT, half the patch"]["patch"] == 16 and nets["ConvNet v1"]["stem"] == "imagenet"
    assert arms.parameters_of_vit(**nets["ViT v1"]) == 3_573_770


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

    net = models.build(model, **args)
    parameters, operations = arms.cost(model, args, side)
    assert models.parameters(net) == parameters
    if model == "vit":
        net.dense = True  # the net as drawn; every query of the last block
    # The counter does not know the fused attention of a CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        net.eval()(torch.zeros(1, 3, side, side))
    assert counter.get_total_flops() == 2 * operations


def test_the_resnet18_layout_is_counted():
    assert arms.parameters_of_convnet(width=64, stages=(2, 2, 2, 2)) == 11_173_962
    assert arms.parameters_of_convnet(width=64, stages=(2, 2, 2, 2), stem="imagenet") == 11_181_642


# -- verdicts from made-up rows


def rows_of(arm, accuracy, p=8522, seeds=5, noise=0.004, split="test", transform="test", **more):
    random = np.random.default_rng(zlib.crc32(f"{arm}{p}{split}{transform}".encode()))
    model = "convnet" if arm.startswith("Conv") else "vit"
    net = (
        {"width": 8, "stages": [1, 1]}
        if model == "convnet"
        else {"patch": 8, "dim": 48, "depth": 4, "image": 32, "block": "v1"}
    )
    shared = {"arm": arm, "model": model, "p": p, "data": "photos", **net, **more}
    out = [{**shared, "metric": "parameters", "seed": s, "value": 1, "run": f"{arm}{p}{s}"} for s in range(seeds)]
    for metric, value in (("accuracy", accuracy), ("loss", 2.5 - accuracy)):
        out += [
            {
                **shared,
                "metric": metric,
                "seed": s,
                "split": split,
                "transform": transform,
                "n": 1000,
                "value": value + noise * random.standard_normal(),
                "run": f"{arm}{p}{s}",
            }
            for s in range(seeds)
        ]
    return out


def verdicts(*rows):
    table = Table(tuple(r for some in rows for r in some))
    return {v.claim: v for v in judge(STUDY, table, "paper")}


def test_block_claims_both_ways():
    base = rows_of("ConvNet v1", 0.6) + rows_of("ViT v1", 0.4)
    found = verdicts(
        base,
        rows_of("ConvNet v2", 0.55),
        rows_of("ConvNet v3", 0.605),
        rows_of("ViT v2", 0.39, block="v2"),
        rows_of("ViT v3", 0.45),
        rows_of("ViT, 8 heads", 0.3),
        rows_of("ViT, wider", 0.401),
    )
    for id in ("B-conv-v2", "B-conv-v3", "B-vit-vs-conv", "B-vit-v2", "B-vit-v3", "B-hp-embed180"):
        assert found[id].says == "reproduced", id
    assert found["B-hp-heads8"].says == "contradicted"
    assert "multiply-adds x 1.00" in found["B-hp-heads8"].remark
    other = verdicts(base, rows_of("ConvNet v2", 0.66), rows_of("ViT v2", 0.5, block="v2"), rows_of("ViT v3", 0.35))
    assert {other[i].says for i in ("B-conv-v2", "B-vit-v2", "B-vit-v3")} == {"contradicted"}
    assert found["B-conv-v1"].says == "undecided" and "Imagenette" in found["B-conv-v1"].remark


def test_an_untrained_arm_blocks():
    found = verdicts(rows_of("ConvNet v1", 0.6), rows_of("ViT v1", 0.12))
    assert found["B-vit-vs-conv"].says == "undecided" and "under-trained" in found["B-vit-vs-conv"].remark


def test_depth_and_data_size_are_slopes():
    apart = [rows_of("ViT v1" if d == 4 else f"ViT v1, depth {d}", 0.5, depth=d) for d in (2, 4, 8)]
    apart += [
        rows_of("ViT v2" if d == 4 else f"ViT v2, depth {d}", 0.5 - 0.02 * d, depth=d, block="v2") for d in (2, 4, 8)
    ]
    assert verdicts(*apart)["B-vit-v2-depth"].says == "reproduced"
    sizes = [
        rows_of(arm, a, p=p)
        for arm, values in (("ConvNet v1", (0.4, 0.5, 0.6)), ("ViT v1", (0.2, 0.4, 0.58)))
        for p, a in zip((500, 2000, 8522), values, strict=True)
    ]
    found = verdicts(*sizes)["B-Q1-data"]
    assert found.says == "reproduced" and "20" in found.remark
    widening = [r if r["arm"] == "ConvNet v1" else {**r, "value": 0.2} for some in sizes for r in some]
    assert verdicts(widening)["B-Q1-data"].says == "contradicted"


def test_run_to_run_variation():
    wide = rows_of("ViT v1", 0.5, noise=0.02, split="held_out") + rows_of("ViT v1", 0.5)
    still = rows_of("ViT v1", 0.5, noise=0.0002, split="held_out") + rows_of("ViT v1", 0.5)
    assert verdicts(wide)["B-vit-v1b"].says in ("reproduced", "undecided")
    assert verdicts(still)["B-vit-v1b"].says == "contradicted"
    spread = measures.spread_above({0: 0.0, 1: 0.02, 2: 0.04}, 0.02, "")
    assert spread.estimate.value == pytest.approx(0.02) and spread.p == pytest.approx(np.exp(-1))


def moved_rows(arm, seeds=5, **layers):
    """Errors by layer name: (scope, metric, move, amount, region) -> value."""
    return [
        {
            "arm": arm,
            "model": "vit",
            "p": 8522,
            "seed": s,
            "metric": metric,
            "layer": layer.replace("__", "."),
            "scope": scope,
            "move": move,
            "amount": amount,
            "region": region,
            "trained": trained,
            "value": value,
            "n": 8,
            "run": f"{arm}{s}",
        }
        for layer, found in layers.items()
        for (scope, metric, move, amount, region), value in found.items()
        for s in range(seeds)
        for trained in (True, False)
    ]


def test_equivariance_claims_are_read_from_the_layers():
    exact = {
        ("alone", m, k, 1.0, "whole"): 1e-16
        for m in ("equivariance_error", "largest_difference")
        for k in ("shift", "permute")
    }
    exact["alone", "invariance_error", "shift", 1.0, "whole"] = 0.5
    coded = {("network", "equivariance_error", "shift", a, "whole"): 2.0 for a in (1.0, 8.0)}
    logits = {("network", "invariance_error", "shift", a, "whole"): 0.6 for a in (1.0, 8.0)}
    vit = moved_rows("ViT v1", blocks__0={**exact, **coded}, blocks__3={**exact, **coded}, output=logits)
    found = verdicts(rows_of("ViT v1", 0.5), vit)
    assert found["B-Q2-vitblock"].says == "contradicted"
    assert "every order of its tokens" in found["B-Q2-vitblock"].remark
    assert found["B-Q2-vit"].says == "reproduced"
    at = {
        ("alone", metric, "shift", 1.0, region): value
        for metric, region, value in (
            ("equivariance_error", "interior", 1e-15),
            ("largest_difference", "interior", 1e-15),
            ("equivariance_error", "whole", 0.2),
            ("invariance_error", "interior", 0.7),
        )
    }
    last = {("network", "equivariance_error", "shift", a, "whole"): 0.3 for a in (1.0, 8.0)}
    conv = moved_rows("ConvNet v1", stem__0=at, blocks__3=last, output=logits)
    found = verdicts(rows_of("ConvNet v1", 0.5), conv)
    assert found["B-Q2-conv"].says == "reproduced" and found["B-Q2-convnet"].says == "contradicted"


def test_transform_claim():
    rows = [
        r
        for arm in ("ConvNet v1", "ViT v1")
        for r in rows_of(arm, 0.5)
        + rows_of(arm, 0.6, split="train")
        + rows_of(arm, 0.5, split="train", transform="training")
    ]
    assert verdicts(rows)["B-eval"].says == "reproduced"


def test_every_figure_is_made_from_nothing_and_from_little():
    some = Table(tuple(rows_of("ConvNet v1", 0.6) + rows_of("ViT v1", 0.4) + rows_of("ViT v2", 0.4, block="v2")))
    for table in (Table(), some):
        for figure in STUDY.figures:
            assert draw.render(figure.make(table), "svg")


# -- training transform, and pictures from folders


def test_through_transforms_shows_the_same_pictures_moved():
    class Corner(torch.nn.Module):  # right when the left column is bright: sees shifts and mirrors, nothing else
        def forward(self, x):
            return torch.stack([x[:, 0, :, 0].mean(-1), x[:, 0, :, -1].mean(-1)] + [x[:, 0, 0, 0] - 9] * 8, 1)

    data = Source("photos", Settings(of="procedural_textures", hold_out=100, p=200), 0)
    images = data("train")
    subject = Subject(Corner(), images.mean, images.std)
    first, again = (list(through_transforms(subject, data, n=50, train=64)) for _ in range(2))
    assert [r.value for r in first] == [r.value for r in again]
    assert [(r.at["split"], r.at["transform"]) for r in first if r.metric == "loss"] == [
        ("test", "test"),
        ("train", "test"),
        ("train", "training"),
    ]
    losses = [r.value for r in first if r.metric == "loss"]
    assert losses[1] != losses[2]
    plain = Source("photos", Settings(of="procedural_textures", hold_out=100, p=200, augment="none"), 0)
    rows = [r.value for r in through_transforms(subject, plain, n=50, train=64) if r.metric == "loss"]
    assert rows[1] == rows[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from PIL import Image

    root = tmp_path_factory.mktemp("imagenette")
    for part, count in (("train", 6), ("val", 2)):
        for label in range(3):
            (root / part / f"n{label}").mkdir(parents=True)
            for i in range(count):
                shade = np.full((20 + 4 * i, 30, 3), 80 * label, np.uint8)
                shade[:, :15] += 10
                Image.fromarray(shade).save(root / part / f"n{label}" / f"{i}.png")
    return str(root)


def test_imagenette_reads_class_folders(folder):
    shared = {"seed": 0, "size": 16, "hold_out": 3, "folder": folder}
    train, held, test = (imagenette(s, **shared) for s in ("train", "held_out", "test"))
    assert (len(train), len(held), len(test)) == (15, 3, 6) and train.classes == 3
    assert train.x.shape[1:] == (3, 16, 16) and torch.bincount(held.y).tolist() == [1, 1, 1]
    for images in (train, test):
        assert torch.equal(images.x[:, 0, 8, 12].long(), 80 * images.y)
        assert torch.equal(images.x[:, 0, 8, 2].long(), 80 * images.y + 10)
    moved = train.batch(torch.arange(15), torch.Generator().manual_seed(0))
    assert not torch.equal(moved, train.batch(torch.arange(15)))
    assert torch.equal(imagenette("train_plain", **shared).x, train.x)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"folder": "nowhere"}, "unpack Imagenette there"),
        ({"size": 2}, "size must be"),
        ({"crop": 0.0}, "crop in"),
        ({"hold_out": 99}, "must leave pictures"),
        ({"p": 99}, "must leave pictures"),
        ({"augment": "blur"}, "no augment"),
    ],
)
def test_imagenette_refuses_in_a_sentence(folder, change, says):
    with pytest.raises(SaccadeError, match=says):
        imagenette("train", **{"seed": 0, "size": 16, "hold_out": 3, "folder": folder, **change})


def test_a_broken_picture_gets_a_sentence(folder, tmp_path):
    for label in ("a", "b"):
        (tmp_path / "train" / label).mkdir(parents=True)
        (tmp_path / "train" / label / "0.jpg").write_bytes(b"no picture")
    with pytest.raises(SaccadeError, match="cannot be read as a picture"):
        imagenette("train", seed=0, folder=str(tmp_path))


# -- end to end


@pytest.mark.slow
def test_the_study_runs_at_smoke_on_drawn_data(tmp_path):
    ran = saccade.run("block_ablations", "smoke", lab=tmp_path / "lab", quiet=True, jobs=1, data="procedural_textures")
    table = ran.table()
    assert not table.gaps
    assert len(table.series("accuracy", arm="ViT v3", split="test", transform="test")) == 2
    found = {v.claim: v for v in ran.verdicts()}
    assert list(found) == IDS
    assert found["B-Q2-conv"].says == "reproduced" and found["B-Q2-vitblock"].says == "contradicted"
    assert all(v.says.startswith("needs") for c, v in found.items() if c not in ("B-Q2-conv", "B-Q2-vitblock"))
    report = pipeline.write(ran)["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "B-hp-patch16" in report
