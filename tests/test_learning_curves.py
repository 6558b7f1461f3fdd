"""The sheet's parameter tables, mean-field nets, the exact one-block ViT, and the study from tasks to verdicts."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import saccade
from saccade import draw, models, session, stats
from saccade.spec import SCALES, SaccadeError, Scale
from saccade.studies.learning import measures, panels, sweeps
from saccade.studies.learning_curves import STUDY
from saccade.study import judge
from saccade.table import Table

IDS = [
    "L-F8-mnist-fit", "L-F9-cifar-fit", "L-F9-dd", "L-F9-noise", "L-F10-fit", "L-F11-fit", "L-F10-dd", "L-F10-weak",
    "L-A1-stop", "L-F12-mnist-alpha", "L-F12-mnist-order", "L-F12-cifar-slope", "L-F12-cifar-cross",
    "L-F12-cifar-cnn8192", "L-F12-cifar-vit8192", "L-F13-heads", "L-F13-mnist-opt", "L-F13-cifar-opt",
    "L-F14-mnist-slope", "L-F14-mnist-cross", "L-F14-cifar", "L-F15-cifar-best", "L-F15-cifar-cnn", "L-F15-mnist",
    "L-F16-maps", "L-F17-maps", "L-F18"]


# -- models

@pytest.mark.parametrize(("width", "grey", "colour"), [
    (2, 2_186, 2_286), (4, 8_410, 8_610), (6, 18_682, 18_982), (8, 33_002, 33_402), (10, 51_370, 51_870),
    (16, 130_762, 131_562), (32, 520_586, 522_186)])
def test_cnn_parameters_of_the_table(width, grey, colour):
    for channels, count in ((1, grey), (3, colour)):
        assert models.parameters(saccade.model("basic_cnn", width=width, channels=channels, bias=True)) == count
        assert 506 * width**2 + (25 * channels + 51) * width + 10 == count
        bare = models.parameters(saccade.model("basic_cnn", width=width, channels=channels))
        assert bare == sweeps.parameters_of_cnn(width, channels)


def test_cnn_without_biases():
    counts = [models.parameters(saccade.model("basic_cnn", channels=c)) for c in (1, 3)]
    assert counts == [51_250, 51_750]


@pytest.mark.parametrize(("dim", "depth", "grey", "colour"), [
    (128, 1, 144_650, 148_746), (128, 2, 277_130, 281_226), (128, 3, 409_610, 413_706), (120, 1, 127_930, 131_770),
    (32, 3, 28_682, 29_706), (48, 6, 118_330, 119_866)])
@pytest.mark.parametrize("heads", [1, 8])
def test_vit_parameters_of_the_table(dim, depth, grey, colour, heads):
    for channels, count in ((1, grey), (3, colour)):
        made = saccade.model("basic_vit", dim=dim, depth=depth, heads=heads, channels=channels)
        assert models.parameters(made) == count == sweeps.parameters_of_vit(dim, depth, channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_dial_is_set_by_the_budget(channels):
    same, work = sweeps.matched_dims(channels)
    wanted = sweeps.parameters_of_cnn(10, channels)
    assert abs(sweeps.parameters_of_vit(same, 1, channels) - wanted) < 0.02 * wanted
    assert abs(sweeps.operations_of_vit(work, 1, channels) / sweeps.operations_of_cnn(10, channels) - 1) < 0.03
    assert sweeps.nearest(lambda h: sweeps.parameters_of_cnn(h, 3), 148_746) == 17  # the pair matched the other way


def test_operations_are_those_of_the_layers():
    def count(layer, out):
        return out.numel() * layer.weight[0].numel()

    net = saccade.model("basic_cnn", width=5, parametrisation="default")
    x, seen = torch.zeros(1, 3, 32, 32), 0
    for conv in net.convs:
        seen += count(conv, conv(x))
        x = F.avg_pool2d(conv(x), 2)
    hidden = net.hidden(x.flatten(1))
    assert seen + count(net.hidden, hidden) + count(net.head, net.head(hidden)) == sweeps.operations_of_cnn(5, 3)


def test_mean_field_starts_as_said():
    net = models.build("basic_cnn", seed=0, width=20, bias=True)
    for p in net.parameters():
        if p.numel() > 1000:
            assert abs(float(p.detach().mean())) < 0.1 and float(p.detach().std()) == pytest.approx(1, abs=0.05)
    fans = [c.weight[0].numel() for c in net.convs] + [64 * 20]
    assert net.scales == pytest.approx([*(f**-0.5 for f in fans), 1 / 80])
    plain = models.build("basic_cnn", seed=0, parametrisation="default")
    assert plain.scales == [1.0] * 5 and float(plain.hidden.weight.detach().abs().max()) <= 1 / math.sqrt(640) + 1e-6


def test_mean_field_is_the_scaled_net():
    """Scaling weights is dividing each layer's sum, with biases at a tenth."""
    net, x = models.build("basic_cnn", seed=0, width=3, bias=True), torch.randn(2, 3, 32, 32)
    y = x
    for conv in net.convs:
        summed = F.conv2d(y, conv.weight, padding=2) / math.sqrt(conv.weight[0].numel())
        y = F.avg_pool2d(F.relu(summed + 0.1 * conv.bias[:, None, None]), 2)
    y = F.relu(F.linear(y.flatten(1), net.hidden.weight) / math.sqrt(64 * 3) + 0.1 * net.hidden.bias)
    y = F.linear(y, net.head.weight) / 12 + 0.1 * net.head.bias
    torch.testing.assert_close(net(x), y, atol=1e-5, rtol=1e-4)


def test_mean_field_outputs_shrink_as_the_root_of_the_width():
    x = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    sizes = [np.mean([float(models.build("basic_cnn", seed=s, width=w)(x).detach().square().mean()) for s in range(20)])
             for w in (4, 16)]
    assert 1.6 < math.sqrt(sizes[0] / sizes[1]) < 2.5  # 2 = the root of 16 / 4


@pytest.mark.parametrize("width", [4, 10, 20])
def test_a_learning_rate_of_h_moves_every_width_and_breaks_none(width):
    from saccade.data.points import points

    images = points("train", seed=0, of="procedural_digits", p=128, only=(0, 1))
    x = (images.batch(torch.arange(128)) - images.mean[0]) / images.std[0]
    net = models.build("basic_cnn", 2, seed=0, width=width, channels=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=float(width))
    losses = []
    for step in range(120):
        part = slice(32 * (step % 4), 32 * (step % 4) + 32)
        loss = F.cross_entropy(net(x[part]), images.y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(math.isfinite(v) for v in losses) and max(losses) < 10
    assert sum(losses[-8:]) < 0.9 * sum(losses[:8])


@pytest.mark.parametrize(("dim", "heads"), [(16, 8), (32, 4), (64, 2)])
def test_narrow_heads_through_the_kernel_are_the_dense_net(dim, heads, monkeypatch):
    """Float32, output and gradients; where there is no compiler both are torch's own and this holds trivially."""
    net, x = models.build("basic_vit", seed=3, dim=dim, heads=heads, depth=3), torch.randn(3, 3, 32, 32)
    got = [net(x), *torch.autograd.grad(net(x).square().sum(), list(net.parameters()))]
    monkeypatch.setattr("saccade.models.basic_vit.has_kernel", lambda *_: False)
    want = [net(x), *torch.autograd.grad(net(x).square().sum(), list(net.parameters()))]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_the_order_of_grey_pixels_in_memory_changes_nothing():
    net, x = models.build("basic_cnn", seed=3, width=3, channels=1).double(), torch.randn(2, 1, 32, 32).double()
    want = x
    for conv, scale in zip(net.convs, net.scales, strict=False):
        want = F.avg_pool2d(F.relu(F.conv2d(want, conv.weight * scale, padding=2)), 2)
    want = F.relu(F.linear(want.flatten(1), net.hidden.weight * net.scales[-2]))
    torch.testing.assert_close(net(x), F.linear(want, net.head.weight * net.scales[-1]), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(("heads", "channels"), [(1, 3), (4, 3), (8, 1)])
def test_one_block_without_embedding_is_the_dense_net(heads, channels):
    """Output and every gradient, in float64, against the tokens' own path."""
    net = models.build("basic_vit", seed=3, dim=32, heads=heads, channels=channels).double()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))  # norms and biases away from their start
    x = torch.randn(3, channels, 32, 32, dtype=torch.double)
    dense = net.head(net.norm(net.last(net.tokens(x))[:, 0]))
    torch.testing.assert_close(net(x), dense, atol=1e-11, rtol=1e-11)
    want = torch.autograd.grad(dense.square().sum(), list(net.parameters()))
    got = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    for (name, _), a, b in zip(net.named_parameters(), got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-8, msg=name)


@pytest.mark.parametrize(("name", "args", "says"), [
    ("basic_cnn", {"width": 0}, "width must be at least 1"),
    ("basic_cnn", {"parametrisation": "meanfield"}, "did you mean mean_field"),
    ("basic_vit", {"heads": 3}, "3 does not divide 128"), ("basic_vit", {"depth": 0}, "depth must be at least 1")])
def test_bad_nets_get_a_sentence(name, args, says):
    with pytest.raises(SaccadeError, match=says):
        saccade.model(name, **args)


def test_nets_read_32_pixels():
    with pytest.raises(SaccadeError, match="32x32"):
        saccade.model("basic_cnn")(torch.zeros(1, 3, 28, 28))


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
    cells = Counter((t.arm, t.run.data_args["of"], t.run.data_args["p"], t.run.data_args["noise"], t.run.seed)
                    for t in found)
    assert max(cells.values()) == 1  # so that a table never has two rows for one question


@pytest.mark.parametrize("scale", ["smoke", "small", "large"])
def test_sweeps_share_their_runs(scale):
    """Every sweep's runs are the whole study's, and together they are all of it."""
    every = {t.run.key: t for t in planned(scale)}
    union = set()
    for name in sweeps.SWEEPS:
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
    return [{"metric": "accuracy", "split": split, "arm": arm, "channels": channels, "p": p, "noise": noise, "seed": s,
             "value": 1 - e * tilt[s, i], "n": 1000, "of": "mnist" if channels == 1 else "cifar10",
             "run": f"{arm}{channels}{p}{noise}{s}", **more}
            for i, (p, e) in enumerate(curve.items()) for s in range(seeds)]


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
    rows += [{"metric": "watched", "run": "a", "value": 1},
             {"metric": "accuracy", "split": "train", "run": "b", "value": 0.9}]
    words = measures.endings(Table(tuple(rows), ({"run": "c", "why": "timeout: 9 seconds were up"},)))
    assert words.startswith("1 of 2 runs ended with their last step, 1 with a settled training error, 1 timeout; 1 ")


def test_every_figure_is_made_from_nothing_and_from_little():
    for table in (Table(), fitted(("CNN(10)", power(1.5, -0.53)), ("ViT(128,1,1)", power(3.0, -0.53)))):
        for figure in STUDY.figures:
            assert draw.render(figure.make(table), "svg")


def test_maps_are_drawn_over_their_picture():
    row = {"metric": "picture", "arm": "ViT(128,1,1)", "channels": 1, "p": 64, "shown": "instance", "label": 3,
           "of": "mnist", "picture": [0] * 512 + [200] * 512, "map": [0.0] * 63 + [1.0], "rollout": [1 / 64] * 64}
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
    whole = session.open_session("learning_curves", "smoke", tmp_path / "lab", drawn)
    verdicts = whole.verdicts()
    assert [v.claim for v in verdicts] == IDS and all(v.says.startswith("needs") for v in verdicts)
    report = session.write(whole)["md"].read_text()
    assert report.startswith("> **DRAWN DATA") and "L-F12-cifar-cross" in report
