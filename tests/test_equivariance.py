"""Layers whose answer is provable, then models, foreign models and bad input."""

import pytest
import torch
from torch import nn

import saccade
from saccade import models
from saccade.analysis import equivariance
from saccade.analysis.equivariance import KINDS, Move, measure, move_grid, read_grid, stride_of
from saccade.spec import Probe, SaccadeError

ROUNDING = 1e-12


def noise(n=6, c=3, side=16, seed=0):
    return torch.randn(n, c, side, side, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def conv(inside=3, out=5, kernel=3, stride=1, padding="same", mode="circular"):
    torch.manual_seed(kernel)
    return nn.Conv2d(inside, out, kernel, stride, kernel // 2 if padding == "same" else padding, padding_mode=mode)


def error(net, move, x=None, *, layer="0", scope="alone", kind="equivariance", region="whole"):
    found = measure(net, noise() if x is None else x, moves=[move])
    (one,) = found.at(layer=layer, scope=scope, measure=kind, region=region)
    return one.error


# -- known answers


@pytest.mark.parametrize("amount", [1, 4, -3, 0.5, 2.25])
def test_circular_convolution_is_equivariant_to_every_circular_shift(amount):
    for scope in ("alone", "network"):
        assert error(nn.Sequential(conv()), Move("shift", amount), scope=scope) < ROUNDING
    assert error(nn.Sequential(conv()), Move("shift", amount), kind="invariance") > 0.2  # and not invariant


def test_sub_pixel_shifts_are_lost_at_a_kink():
    net = nn.Sequential(conv(), nn.ReLU())
    assert error(net, Move("shift", 1), layer="1") < ROUNDING
    assert error(net, Move("shift", 0.5), layer="1") > 0.05


@pytest.mark.parametrize("kind", ["shift", "padded_shift"])
def test_zero_padding_is_exact_in_the_interior_only(kind):
    net = nn.Sequential(conv(mode="zeros"))
    assert error(net, Move(kind, 2), region="interior") < ROUNDING
    assert error(net, Move(kind, 2)) > 0.1


def test_without_padding_only_what_was_inside_counts():
    net = nn.Sequential(conv(padding=0, mode="zeros"))
    assert error(net, Move("padded_shift", 2), region="interior") < ROUNDING


@pytest.mark.parametrize("stride", [2, 4])
def test_stride_leaves_multiples_of_itself(stride):
    net = nn.Sequential(conv(stride=stride))
    for amount in range(1, 9):
        found = error(net, Move("shift", amount))
        assert found < ROUNDING if amount % stride == 0 else found > 0.1


def test_global_mean_is_invariant():
    net = nn.Sequential(conv(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4))
    assert error(net, Move("shift", 3), layer="output", scope="network", kind="invariance") < ROUNDING
    assert error(net, Move("shift", 3), layer="2", kind="invariance") < ROUNDING
    zeros = nn.Sequential(conv(mode="zeros"), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert error(zeros, Move("shift", 3), layer="output", scope="network", kind="invariance") > 1e-3


class OnePixel(nn.Module):
    def forward(self, x):
        return x[:, :, 0, 0]


def test_reading_one_pixel_is_as_sensitive_as_can_be():
    """Of white noise another pixel says as much as another image: error 1."""
    x = noise(n=400, c=1, side=4)
    found = error(OnePixel(), Move("shift", 1), x, layer="output", scope="network", kind="invariance")
    assert found == pytest.approx(1, abs=0.1)
    report = measure(OnePixel(), x, moves=[Move("shift", 1)])
    assert [f.verdict for f in report.findings] == ["no"]


def test_pointwise_layers_commute_with_everything_that_permutes_pixels():
    net = nn.Sequential(nn.ReLU())
    for move in (
        Move("shift", 3),
        Move("rotate", 90),
        Move("rotate", 180),
        Move("flip"),
        Move("flip_down"),
        Move("permute", 1),
    ):
        assert error(net, move) == 0
    linear = nn.Sequential(conv(kernel=1))
    for move in (Move("rotate", 20), Move("scale", 0.8), Move("scale", 1.3), Move("padded_shift", 1.5)):
        assert error(linear, move) < ROUNDING


def test_a_symmetric_kernel_turns_and_mirrors_and_another_does_not():
    net = nn.Sequential(conv(1, 1)).double()
    for move in (Move("rotate", 90), Move("flip"), Move("flip_down")):
        assert error(net, move, noise(c=1)) > 0.1
    with torch.no_grad():
        w = net[0].weight
        w.copy_(sum(torch.rot90(v, k, (2, 3)) for k in range(4) for v in (w, w.flip(-1))) / 8)
    for move in (Move("rotate", 90), Move("rotate", 270), Move("flip"), Move("flip_down")):
        assert error(net, move, noise(c=1)) < ROUNDING
    assert error(net, Move("permute"), noise(c=1)) > 0.1


def test_the_lie_error_of_a_circular_convolution_is_zero_and_of_a_pixel_code_is_not():
    smooth = nn.Sequential(conv(), nn.Tanh())
    for net, low, high in ((nn.Sequential(conv()), 0, 1e-9), (smooth, 1e-3, 5)):
        (last,) = measure(net, noise(), moves=[], lie=["shift"]).at(layer=str(len(net) - 1), region="whole")
        assert low <= last.error <= high

    class Codes(nn.Module):
        def forward(self, x):
            return x + torch.arange(x.shape[-1], dtype=x.dtype) ** 2

    (one,) = measure(nn.Sequential(Codes()), noise(), moves=[], lie=["shift"]).at(layer="0", region="interior")
    assert one.error > 1


def test_the_lie_error_is_the_limit_of_small_moves():
    """Invariance of an output: finite shift over its size, for ever smaller shifts."""
    net = nn.Sequential(conv(), nn.Tanh(), nn.Flatten(), nn.Linear(5 * 256, 4))
    (lie,) = [f for f in measure(net, noise(), moves=[], lie=["shift"]).findings if f.layer == "output"]
    small = error(net, Move("shift", 1e-4), layer="output", scope="network", kind="invariance") / 1e-4
    assert lie.error == pytest.approx(small, rel=1e-2)


@pytest.mark.parametrize("kind", ["rotate", "scale"])
def test_pointwise_linear_layers_have_no_lie_error(kind):
    found = measure(nn.Sequential(conv(kernel=1)), noise(), moves=[], lie=[kind]).at(layer="0")
    assert found and all(f.error < 1e-9 for f in found)


# -- transformers


def small_vit(**args):
    net = models.build("vit", 5, seed=1, dim=16, depth=2, heads=2, image=16, **args)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return net


@pytest.mark.parametrize("block", ["v1", "v2", "v3", "single_skip"])
def test_a_vit_block_is_equivariant_to_token_rolls_and_permutations(block):
    net = small_vit(block=block)
    report = measure(net, noise(), moves=[Move("shift", 1), Move("permute", 3)], layers=["blocks.?"], scopes=["alone"])
    found = [f for f in report.findings if f.measure == "equivariance" and f.layer.startswith("blocks")]
    assert {f.layer for f in found} == {"blocks.0", "blocks.1"} and all(f.verdict == "yes" for f in found)
    assert max(f.error for f in found) < ROUNDING


def test_position_codes_break_it():
    """After the codes are added a map no longer follows; without codes it does, for whole patches."""
    for positions in (True, False):
        report = measure(small_vit(positions=positions), noise(), moves=[Move("shift", 4)], layers=["blocks.1"])
        (one,) = report.at(layer="blocks.1", scope="network", measure="equivariance", region="whole")
        (out,) = report.at(layer="output", measure="invariance")
        assert (one.error > 0.5 and out.error > 0.1) if positions else (one.error < ROUNDING and out.error < ROUNDING)


def test_patch_embedding_follows_whole_patches_only():
    report = measure(small_vit(), noise(), moves=[Move("shift", a) for a in range(1, 9)], layers=["embed"])
    for one in report.at(layer="embed", scope="alone", measure="equivariance", region="whole"):
        assert one.error < ROUNDING if one.amount % 4 == 0 else one.error > 0.1


def test_mean_readout_without_positions_ignores_where_patches_are():
    net = small_vit(positions=False, readout="mean")
    assert error(net, Move("shift", 8), layer="output", scope="network", kind="invariance") < ROUNDING


def test_convnet_follows_its_total_stride_in_a_circle_when_padding_does():
    net = models.build("convnet", seed=0, width=4, stages=(1, 1))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.padding_mode = "circular"
            module._reversed_padding_repeated_twice = [module.padding[0]] * 4
    x = noise()
    assert error(net, Move("shift", 2), x, layer="output", scope="network", kind="invariance") < ROUNDING
    assert error(net, Move("shift", 1), x, layer="output", scope="network", kind="invariance") > 1e-3


# -- reading and moving


@pytest.mark.parametrize("kind", KINDS)
def test_moves_can_be_undone_or_repeated(kind):
    x = noise(2)
    one = Move(kind, {"rotate": 90.0, "scale": 1.0}.get(kind, 1.0))
    y = move_grid(one, x, (1.0, 1.0))[0]
    if kind == "rotate":
        y = move_grid(Move("rotate", 270), y, (1.0, 1.0))[0]
    elif kind in ("flip", "flip_down"):
        y = move_grid(one, y, (1.0, 1.0))[0]
    elif kind == "shift":
        for amount in (-1.75, 0.75):
            y = move_grid(Move("shift", amount), y, (1.0, 1.0))[0]
    elif kind == "padded_shift":
        assert torch.equal(y[..., 1:, 1:], x[..., :-1, :-1]) and not y[..., 0, :].any()
        return
    elif kind == "permute":
        assert not torch.equal(x, y)
        x, y = (t.flatten(2).sort(-1)[0] for t in (x, y))
    if kind == "shift":  # between pixels the highest frequency loses its phase; what is below it comes back
        x, y = (torch.fft.fft2(t)[..., :8, :8] for t in (x, y))
    assert float((x - y).abs().max()) < 1e-9


def test_grids_are_read_from_maps_tokens_and_channels_last():
    x = noise(2)
    assert read_grid(x, (32, 32)).layout == "map"
    assert read_grid(torch.zeros(2, 8, 8, 5), (32, 32)).map.shape == (2, 5, 8, 8)
    tokens = torch.arange(2 * 17 * 3.0).view(2, 17, 3)
    grid = read_grid(tokens, (32, 32))
    assert grid.map.shape == (2, 3, 4, 4) and grid.prefix.shape == (2, 1, 3)
    assert torch.equal(grid.back(grid.map), tokens)
    assert read_grid(torch.zeros(2, 8, 3), (16, 32)).map.shape == (2, 3, 2, 4)
    assert read_grid(torch.zeros(2, 3), (32, 32)) is None and read_grid((x,), (32, 32)) is None
    assert read_grid(torch.zeros(2, 15, 3), (8, 8)).prefix.shape == (2, 6, 3)


@pytest.mark.parametrize(
    ("inside", "out", "stride"),
    [(32, 8, 4), (32, 30, 1), (32, 14, 2), (32, 5, 4), (299, 8, 32), (16, 32, 0.5), (32, 33, 1)],
)
def test_stride(inside, out, stride):
    assert stride_of((inside, inside), (out, out)) == (stride, stride)


class Foreign(nn.Module):
    """Shares a layer, has one with two inputs, one that gives a tuple, and an unused one."""

    def __init__(self):
        super().__init__()
        self.conv, self.act, self.two = conv(3, 3), nn.ReLU(), nn.Bilinear(16, 16, 16)
        self.lstm, self.unused, self.head = nn.LSTM(16, 4, batch_first=True), nn.Linear(2, 2), nn.Linear(3, 7)

    def forward(self, x):
        x = self.act(self.conv(self.act(self.conv(x))))
        x = x + self.two(x, x)
        self.lstm(x[:, 0])
        return self.head(x.mean((2, 3)))


def test_foreign_models_are_read_and_what_cannot_be_is_listed():
    net = Foreign()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    report = measure(net, noise(), moves=[Move("shift", 1)], lie=["shift"])
    layers = {f.layer for f in report.findings}
    assert layers == {"conv", "conv#2", "act", "act#2", "two", "head", "output"}
    assert set(report.skipped) == {"lstm", "unused"}
    assert "tuple" in report.skipped["lstm"] and "not called" in report.skipped["unused"]
    assert net.training and not any(m._forward_hooks for m in net.modules())
    assert all(torch.equal(v, state[k]) and v.dtype == state[k].dtype for k, v in net.state_dict().items())


class InPlace(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.conv, self.act, self.dense, self.last = conv(3, 3), nn.ReLU(inplace), nn.Linear(16, 16), conv(3, 3)
        self.inplace = inplace

    def forward(self, x):
        y = self.conv(x)
        z = self.last(self.act(y))
        if self.inplace:
            z += y.relu() + x
            return z.mean((2, 3))
        return (z + y.relu() + x).mean((2, 3))


def test_layers_that_write_over_their_input_are_read_alike():
    torch.manual_seed(0)
    found = [
        measure(net, noise(), moves=[Move("shift", 0.5), Move("permute")]).findings
        for net in (InPlace(True), InPlace(False))
    ]
    assert {f.layer for f in found[0]} == {"conv", "act", "last", "output"}
    for a, b in zip(*found, strict=True):
        assert a.layer == b.layer and a.error == pytest.approx(b.error, abs=1e-9), a


def test_float32_has_a_wider_rounding():
    report = measure(nn.Sequential(conv()), noise(), moves=[Move("shift", 0.5)], precision="float32")
    found = report.at(layer="0", scope="alone", measure="equivariance")
    assert all(f.verdict == "yes" for f in found) and max(f.error for f in found) > 1e-12


def test_a_constant_layer_is_no_division_by_zero():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.ones_like(x)

    assert error(nn.Sequential(Constant()), Move("shift", 1)) == 0


def test_untrained_is_reset_and_the_same_for_a_seed():
    net = small_vit()
    a, b, c = (equivariance.untrained(net, seed=s).state_dict() for s in (0, 0, 1))
    assert all(torch.equal(a[k], b[k]) for k in a) and not torch.equal(a["head.weight"], c["head.weight"])
    assert not a["positions"].any() and net.positions.detach().any()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Move("turn"), 'no move "turn"'),
        (lambda: Move("scale", 0), "above 0"),
        (lambda: measure(nn.ReLU(), noise(1), moves=[]), "at least two images"),
        (lambda: measure(nn.ReLU(), noise(), moves=[], scopes=["layer"]), 'no scope "layer"'),
        (lambda: measure(nn.ReLU(), noise(), moves=[], lie=["flip"]), 'no generator "flip"'),
        (lambda: measure(nn.ReLU(), noise(), moves=[], precision="half"), 'no precision "half"'),
        (lambda: measure(nn.ReLU(), torch.rand(2, 1, 4, 8), moves=[Move("rotate", 20)]), "only a square image"),
    ],
)
def test_bad_questions_get_a_sentence(call, says):
    with pytest.raises(SaccadeError, match=says):
        call()


# -- the probe


def test_probe_on_any_model():
    asked = Probe("equivariance", n=4, shift=(1,), padded_shift=(), rotate=(90,), scale=(), fresh=True)
    table = saccade.probe(
        nn.Sequential(conv(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        [asked],
        "photos",
        data_args={"of": "procedural_textures", "hold_out": 100},
    )
    assert set(table.values("trained")) == {False, True}
    (same,) = table.at(
        metric="equivariance_error", layer="0", scope="alone", move="shift", region="whole", trained=True
    )
    assert same["value"] < ROUNDING and same["verdict"] == "yes"
    (answer,) = table.at(metric="invariance_error", layer="output", move="shift", trained=True)
    assert answer["value"] < 1e-9
    assert len(table.at(metric="lie_error", layer="output", trained=False)) == 3
    assert [r["value"] for r in table.at(metric="layers_skipped")] == [0, 0]
