"""The models of the learning curves: counts of the tables, parametrisation, and fast paths against plain ones."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import saccade
from saccade import models
from saccade.spec import SaccadeError
from saccade.studies.learning_curves import arms


@pytest.mark.parametrize(
    ("width", "grey", "colour"),
    [
        (2, 2_186, 2_286),
        (4, 8_410, 8_610),
        (6, 18_682, 18_982),
        (8, 33_002, 33_402),
        (10, 51_370, 51_870),
        (16, 130_762, 131_562),
        (32, 520_586, 522_186),
    ],
)
def test_cnn_parameters_of_the_table(width, grey, colour):
    for channels, count in ((1, grey), (3, colour)):
        assert models.parameters(saccade.model("basic_cnn", width=width, channels=channels, bias=True)) == count
        assert 506 * width**2 + (25 * channels + 51) * width + 10 == count
        bare = models.parameters(saccade.model("basic_cnn", width=width, channels=channels))
        assert bare == arms.parameters_of_cnn(width, channels)


def test_cnn_without_biases():
    counts = [models.parameters(saccade.model("basic_cnn", channels=c)) for c in (1, 3)]
    assert counts == [51_250, 51_750]


@pytest.mark.parametrize(
    ("dim", "depth", "grey", "colour"),
    [
        (128, 1, 144_650, 148_746),
        (128, 2, 277_130, 281_226),
        (128, 3, 409_610, 413_706),
        (120, 1, 127_930, 131_770),
        (32, 3, 28_682, 29_706),
        (48, 6, 118_330, 119_866),
    ],
)
@pytest.mark.parametrize("heads", [1, 8])
def test_vit_parameters_of_the_table(dim, depth, grey, colour, heads):
    for channels, count in ((1, grey), (3, colour)):
        made = saccade.model("basic_vit", dim=dim, depth=depth, heads=heads, channels=channels)
        assert models.parameters(made) == count == arms.parameters_of_vit(dim, depth, channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_dial_is_set_by_the_budget(channels):
    same, work = arms.matched_dims(channels)
    wanted = arms.parameters_of_cnn(10, channels)
    assert abs(arms.parameters_of_vit(same, 1, channels) - wanted) < 0.02 * wanted
    assert abs(arms.operations_of_vit(work, 1, channels) / arms.operations_of_cnn(10, channels) - 1) < 0.03
    assert arms.nearest(lambda h: arms.parameters_of_cnn(h, 3), 148_746) == 17  # the pair matched the other way


def test_operations_are_those_of_the_layers():
    def count(layer, out):
        return out.numel() * layer.weight[0].numel()

    net = saccade.model("basic_cnn", width=5, parametrisation="default")
    x, seen = torch.zeros(1, 3, 32, 32), 0
    for conv in net.convs:
        seen += count(conv, conv(x))
        x = F.avg_pool2d(conv(x), 2)
    hidden = net.hidden(x.flatten(1))
    assert seen + count(net.hidden, hidden) + count(net.head, net.head(hidden)) == arms.operations_of_cnn(5, 3)


def test_mean_field_starts_as_said():
    net = models.build("basic_cnn", seed=0, width=20, bias=True)
    for p in net.parameters():
        if p.numel() > 1000:
            assert abs(float(p.detach().mean())) < 0.1 and float(p.detach().std()) == pytest.approx(1, abs=0.05)
    fans = [c.weight[0].numel() for c in net.convs] + [64 * 20]
    assert net.scales == pytest.approx([*(f**-0.5 for f in fans), 1 / 80])
    plain = models.build("basic_cnn", seed=0, parametrisation="default")
    assert plain.scales == [1.0] * 5 and float(plain.hidden.weight.detach().abs().max()) <= 1 / math.sqrt(640) + 1e-6


def test_mean_field_is_the_scaled_model():
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
    sizes = [
        np.mean([float(models.build("basic_cnn", seed=s, width=w)(x).detach().square().mean()) for s in range(20)])
        for w in (4, 16)
    ]
    assert 1.6 < math.sqrt(sizes[0] / sizes[1]) < 2.5  # 2 = the root of 16 / 4


@pytest.mark.parametrize("width", [4, 20])
def test_a_learning_rate_of_h_moves_every_width_and_breaks_none(width):
    from saccade.data.points import points

    images = points("train", seed=0, of="procedural_digits", p=64, only=(0, 1))
    x = (images.batch(torch.arange(64)) - images.mean[0]) / images.std[0]
    net = models.build("basic_cnn", 2, seed=0, width=width, channels=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=float(width))
    losses = []
    for step in range(100):
        part = slice(16 * (step % 4), 16 * (step % 4) + 16)
        loss = F.cross_entropy(net(x[part]), images.y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(math.isfinite(v) for v in losses) and max(losses) < 10
    assert sum(losses[-8:]) < 0.9 * sum(losses[:8])


@pytest.mark.parametrize(("dim", "heads"), [(16, 8), (32, 4), (64, 2)])
def test_narrow_heads_through_the_kernel_are_the_dense_model(dim, heads, monkeypatch):
    """Float32, output and gradients; where there is no compiler both are torch's own and this holds trivially."""
    net, x = models.build("basic_vit", seed=3, dim=dim, heads=heads, depth=3), torch.randn(3, 3, 32, 32)
    got = [net(x), *torch.autograd.grad(net(x).square().sum(), list(net.parameters()))]
    monkeypatch.setattr("saccade.layers.few_tokens.has_kernel", lambda *_: False)
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
def test_one_block_without_embedding_is_the_dense_model(heads, channels):
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


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("basic_cnn", {"width": 0}, "width of basic_cnn must be a whole number from 1"),
        ("basic_cnn", {"parametrisation": "meanfield"}, "did you mean mean_field"),
        ("basic_vit", {"heads": 3}, "3 does not divide 128"),
        ("basic_vit", {"depth": 0}, "depth of basic_vit must be a whole number from 1"),
    ],
)
def test_bad_models_get_a_sentence(name, args, says):
    with pytest.raises(SaccadeError, match=says):
        saccade.model(name, **args)


def test_models_read_32_pixels():
    with pytest.raises(SaccadeError, match="32x32"):
        saccade.model("basic_cnn")(torch.zeros(1, 3, 28, 28))
