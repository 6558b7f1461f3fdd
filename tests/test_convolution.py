"""Attention that equals a given convolution, over random convolutions, and the way back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from saccade import models
from saccade.analysis.convolution import ShiftAttention, convert, nearest_convolution, to_attention
from saccade.layers.content_attention import ContentAttention
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention, separable
from saccade.spec import SaccadeError

LIMITS = {torch.float64: 1e-12, torch.float32: 1e-5}


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def made(*args, dtype=torch.float64, seed=0, **more):
    """A convolution with outputs of the order of one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Conv2d(*args, **more).to(dtype)


def error(conv, attention, x):
    with torch.no_grad():
        y = conv(x)
        assert attention(x).shape == y.shape
        return float((attention(x) - y).abs().max())


@st.composite
def convolutions(draw):
    kernel = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)) | st.integers(1, 7))
    stride, dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 2))), draw(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 2]))
    padding = draw(st.sampled_from([0, 1, (2, 0), 3, "valid", "same"]))
    mode = draw(st.sampled_from(["zeros", "replicate"]))
    return made(
        2 * draw(st.integers(1, 2)),
        2 * draw(st.integers(1, 2)),
        kernel,
        stride=1 if padding == "same" else stride,
        dilation=dilation,
        groups=groups,
        padding=padding,
        padding_mode=mode,
        bias=draw(st.booleans()),
        seed=draw(st.integers(0, 9)),
    )


pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch's own


@settings(max_examples=60, deadline=None, derandomize=True)
@given(convolutions(), st.sampled_from([torch.float64, torch.float32]))
def test_any_convolution_is_attention_and_comes_back(conv, dtype):
    conv, x = conv.to(dtype), random(2, conv.in_channels, 13, 14, dtype=dtype)
    attention = to_attention(conv)
    assert error(conv, attention, x) <= LIMITS[dtype]
    back, distance = nearest_convolution(attention)
    assert distance < 1e-6
    assert error(back, attention, x) <= LIMITS[dtype]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("kernel", range(1, 8))
@pytest.mark.parametrize("mode", ["zeros", "replicate", "valid"])
def test_every_kernel_and_padding(kernel, mode, dtype):
    padding, mode = ("valid", "zeros") if mode == "valid" else ("same", mode)
    conv = made(6, 5, kernel, padding=padding, padding_mode=mode, dtype=dtype)
    assert error(conv, to_attention(conv), random(2, 6, 12, 12, dtype=dtype)) <= LIMITS[dtype]


def test_without_the_extended_grid_zero_padding_would_be_wrong_at_the_border_only():
    conv, x = made(3, 4, 3, padding=1), random(1, 3, 8, 8)
    attention = to_attention(conv)
    attention.padding_mode = "replicate"
    with torch.no_grad():
        apart = (attention(x) - conv(x)).abs().amax((0, 1))
    assert apart[1:-1, 1:-1].max() < 1e-12 and apart[0].min() > 1e-3


def test_leakage_is_exp_of_minus_alpha():
    for alpha in (2.0, 5.0, 10.0):
        p = to_attention(made(1, 1, 3), alpha=alpha).probabilities(torch.zeros(1, 1, 7, 7))
        heads = p[0].unflatten(-1, (7, 7))[:, 12]  # the query in the middle, (heads, 7, 7)
        torch.testing.assert_close(heads[4, 3, 4] / heads[4, 3, 3], torch.tensor(-alpha).exp().double())
        torch.testing.assert_close(p.sum(-1), torch.ones_like(p[..., 0]))


def test_each_head_looks_at_its_own_shift():
    p = to_attention(made(2, 3, 3, padding=1, padding_mode="replicate")).probabilities(torch.zeros(2, 2, 5, 5))
    assert p.shape == (2, 9, 25, 25)
    where = p[0, :, 12].argmax(-1)  # from the middle
    assert where.tolist() == [6, 7, 8, 11, 12, 13, 16, 17, 18]
    assert p[0, :, 0].argmax(-1).tolist() == [0, 0, 1, 0, 0, 1, 5, 5, 6]  # at the border, the nearest inside


def test_it_is_trained_as_any_module():
    torch.manual_seed(0)
    conv, x = made(3, 4, 3, padding=1), random(2, 3, 8, 8)
    attention = to_attention(conv, alpha=3.0)
    assert {name for name, _ in attention.named_parameters()} == {"centre", "spread", "value.weight", "value.bias"}
    attention(x).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in attention.parameters())
    same = to_attention(conv)
    ours = torch.autograd.grad(same(x).square().sum(), same.value.weight)[0]
    theirs = torch.autograd.grad(conv(x).square().sum(), conv.weight)[0]
    assert (ours.view(4, 3, 3, 3).permute(0, 3, 1, 2) - theirs).abs().max() < 1e-10


@pytest.mark.parametrize(("padding", "mode"), [(0, "zeros"), (2, "zeros"), (2, "replicate")])
def test_few_and_many_channels_are_computed_alike(padding, mode):
    attention = to_attention(made(3, 4, (3, 2), padding=padding, padding_mode=mode, stride=(1, 2)), alpha=2.0)
    x = random(2, 3, 9, 12).requires_grad_()
    tensors = [x, *attention.parameters()]
    y = attention(x)  # 3 channels, more columns
    rows, columns = attention.factors(9, 12)
    tokens = attention.extended(x).permute(0, 2, 3, 1)
    other = separable(tokens, rows, columns, attention.value.weight, attention.value.bias).permute(0, 3, 1, 2)
    weight = random(*y.shape, seed=1)
    for a, b in zip(
        [y, *torch.autograd.grad((y * weight).sum(), tensors)],
        [other, *torch.autograd.grad((other * weight).sum(), tensors)],
        strict=True,
    ):
        assert (a - b).abs().max() < 1e-12


def test_conversion_leaves_no_trace_in_global_random_state():
    conv, before = made(2, 2, 3), torch.get_rng_state()
    nearest_convolution(to_attention(conv))
    assert torch.equal(before, torch.get_rng_state())


def test_a_distance_grows_with_the_width_of_heads():
    attention = to_attention(made(2, 2, 3, padding=1))
    found = []
    for spread in (6.0, 3.0, 1.5, 0.7):
        with torch.no_grad():
            attention.spread.fill_(spread)
        found.append(nearest_convolution(attention)[1])
    assert found == sorted(found) and found[0] < 1e-3 < 0.3 < found[-1] < 1


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"isotropic": False},
        {"additive_centre": True},
        {"value_maps": True},
        {"isotropic": False, "additive_centre": True},
    ],
)
def test_attention_layers_come_near_a_convolution_inside_the_image(args):
    torch.manual_seed(0)
    layer = QuadraticAttention(3, 9, 4, **args).double()
    with torch.no_grad():
        layer.centre.copy_(torch.cartesian_prod(torch.arange(-1.0, 2), torch.arange(-1.0, 2)))
        layer.spread.mul_(5)
        if args.get("additive_centre"):
            layer.centre[:, 1] = layer.precision()[:, 1, 1] * (layer.centre[:, 1] - 1)
        if not args.get("isotropic", True):
            layer.spread.copy_(5 * torch.eye(2))
            if "additive_centre" in args:
                layer.centre[:, 1] = 25.0 * torch.arange(-2.0, 1).repeat(3)
        conv, distance = nearest_convolution(layer)
        x = random(1, 12, 12, 3)
        apart = (layer(x) - conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)).abs().amax((0, 3))
    assert distance < 1e-3 and apart.max() < 1e-3


def test_learned_positions_have_a_nearest_convolution_too():
    torch.manual_seed(0)
    layer = LearnedPositionAttention(3, 4, 2, size=6, width=5).double()
    whole, distance = nearest_convolution(layer, 11)
    assert distance == 0 and whole.weight.shape == (2, 3, 11, 11)
    near, apart = nearest_convolution(layer)
    assert near.weight.shape == (2, 3, 2, 2) and 0.3 < apart < 1
    assert (whole.weight[:, :, 5:7, 5:7] - near.weight).abs().max() < 1e-15


def test_a_whole_model_is_converted():
    for name, args in (("lenet", {}), ("resnet18", {"width": 2})):
        net = models.build(name, seed=0, **args).double().eval()
        changed, x = convert(net), random(3, 3, 32, 32)
        assert not any(isinstance(m, nn.Conv2d) for m in changed.modules())
        assert sum(isinstance(m, nn.Conv2d) for m in net.modules()) == sum(
            isinstance(m, ShiftAttention) for m in changed.modules()
        )
        assert not changed.training
        with torch.no_grad():
            assert (changed(x) - net(x)).abs().max() < 1e-11


def test_a_convolution_used_twice_stays_one():
    conv = made(2, 2, 3, padding=1)
    changed = convert(nn.Sequential(conv, nn.ReLU(), conv))
    assert changed[0] is changed[2]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: to_attention(made(2, 2, 3, padding=1, padding_mode="reflect")), "reflect padding cannot"),
        (lambda: to_attention(made(2, 2, 3, padding=1, padding_mode="circular")), "circular padding cannot"),
        (lambda: to_attention(nn.Linear(2, 2)), "not Linear"),
        (lambda: to_attention(nn.ConvTranspose2d(2, 2, 3)), "not ConvTranspose2d"),
        (lambda: to_attention(made(2, 2, 3).half()), "float32 or float64"),
        (lambda: to_attention(made(2, 2, 3), alpha=-1.0), "alpha must be above 0"),
        (lambda: to_attention(made(2, 2, 5))(torch.zeros(1, 2, 3, 3)), "smaller than the kernel"),
        (lambda: convert(nn.Linear(2, 2)), "no nn.Conv2d"),
        (lambda: nearest_convolution(ContentAttention(4, 4, 4)), "with content"),
        (lambda: nearest_convolution(nn.Linear(2, 2)), "not Linear"),
        (lambda: nearest_convolution(QuadraticAttention(2, 5, 2)), "give the size"),
        (lambda: nearest_convolution(to_attention(made(2, 2, 3)), 3), "its kernel's"),
        (lambda: nearest_convolution(LearnedPositionAttention(2, 4, 2, size=2), 5), "smaller size"),
    ],
)
def test_what_cannot_be_expressed_is_refused_in_one_sentence(act, says):
    with pytest.raises(SaccadeError, match=says):
        act()
