"""Local models: counts of the papers, mixing against plain convolution and loops, the switches one by one."""

import pytest
import torch
from torch.nn import functional as F

import saccade
from saccade import models
from saccade.layers.depthwise import Depthwise
from saccade.layers.window_attention import WindowAttention
from saccade.spec import SaccadeError

MINI = {"size": "mini", "dims": (8, 16), "depths": (1, 2)}


@pytest.mark.parametrize(
    ("name", "args", "count"),
    [
        ("resnet50", {}, 23_528_522),
        ("local_dw", {}, 160_583_178),
        ("local_dw", {"size": "base", "dynamic": True}, 160_583_178),
        ("local_dw", {"size": "base", "dynamic": False}, 73_332_362),
        ("local_dw", {"size": "tiny"}, 50_370_442),
        ("local_dw", {"size": "tiny", "dynamic": False}, 23_411_434),
    ],
)
def test_counts_of_the_papers(name, args, count):
    with torch.device("meta"):  # shapes without numbers
        assert models.parameters(saccade.model(name, **args)) == count


def test_switches_change_the_mixing_alone():
    def count(**args):
        return models.parameters(saccade.model("local_dw", **{**MINI, "depths": (1, 1), "dynamic": False, **args}))

    plain = count()
    assert plain - count(window=3) == 40 * (8 + 16)
    assert count(window=0) - plain == (15**2 - 49) * 8  # 7x7 spans a 4x4 map already
    assert count(shared=False, window=0) - count(window=0) == (64**2 - 15**2) * 8 + (16**2 - 49) * 16
    for shared in (True, False):  # what computes the dynamic part is the same beside either static part
        assert count(shared=shared, dynamic=True) - count(shared=shared) == sum(12.5 * c * c + c / 2 for c in (8, 16))


def _convolved(x, kernel, bias):
    side = round(kernel.shape[-1] ** 0.5)
    return F.conv2d(
        x.permute(0, 3, 1, 2), kernel.view(len(kernel), 1, side, side), bias, padding=side // 2, groups=len(kernel)
    ).permute(0, 2, 3, 1)


@pytest.mark.parametrize(("side", "window"), [(8, 7), (8, 3), (4, 7), (8, 0), (10, 5), (9, 0)])
def test_shared_static_mixing_is_a_convolution(side, window):
    torch.manual_seed(0)
    layer, x = Depthwise(6, side, window).double(), torch.randn(3, side, side, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x), _convolved(x, layer.kernel, layer.bias))


@pytest.mark.parametrize("window", [3, 0])
def test_own_weights_that_are_equal_are_a_convolution_and_are_their_own(window):
    torch.manual_seed(0)
    shared, own = Depthwise(4, 5, window).double(), Depthwise(4, 5, window, shared=False).double()
    x = torch.randn(2, 5, 5, 4, dtype=torch.float64)
    with torch.no_grad():
        reach, kernel = (window or 9) // 2, shared.kernel.view(4, window or 9, -1)
        near = [
            kernel[:, a // 5 - b // 5 + reach, a % 5 - b % 5 + reach]
            for a in range(25)
            for b in range(25)
            if max(abs(a // 5 - b // 5), abs(a % 5 - b % 5)) <= reach
        ]
        own.kernel.copy_(torch.stack(near, 1))
        own.bias.copy_(shared.bias)
    torch.testing.assert_close(own(x), shared(x))
    with torch.no_grad():
        own.kernel[:, 0] += 1  # from the first position to itself
    changed = (own(x) - shared(x)).abs().amax((0, 3)) > 1e-9
    assert changed[0, 0] and changed.sum() == 1


@pytest.mark.parametrize("shared", [True, False])
def test_dynamic_kernels_are_one_per_image(shared):
    torch.manual_seed(0)
    layer = Depthwise(16, 6, 3, shared, dynamic=True).double().eval()
    x = torch.randn(3, 6, 6, 16, dtype=torch.float64)
    made = layer.generate(x.mean((1, 2))).view(3, 16, 9)
    static = layer.static(x)
    expected = torch.cat([_convolved(x[i : i + 1], made[i], None) for i in range(3)]) + static
    torch.testing.assert_close(layer(x), expected)
    assert not torch.allclose(made[0], made[1])


@pytest.mark.parametrize(("window", "reach"), [(3, 1), (5, 2), (0, 7)])
def test_a_position_is_seen_as_far_as_the_window_goes(window, reach):
    torch.manual_seed(0)
    x = torch.randn(1, 8, 8, 3, requires_grad=True)
    for shared in (True, False):
        (grad,) = torch.autograd.grad(Depthwise(3, 8, window, shared)(x)[0, 0, 0].sum(), x)
        seen = grad[0].abs().amax(-1) > 0
        assert seen[: reach + 1, : reach + 1].all() and seen.sum() == (reach + 1) ** 2


def _attended(layer, x):
    """Query by query, key by key: the definition, on the unrolled map."""
    n, h, w, c = x.shape
    heads, win, d = layer.heads, layer.window, c // layer.heads
    parts = layer.qkv(layer.norm(x)).unflatten(-1, (-1, heads, d))
    out = torch.zeros(n, h, w, heads, d, dtype=x.dtype)
    group = lambda i: (i - layer.shift) // win  # noqa: E731  windows of the rolled map, none wraps round
    for i in range(h):
        for j in range(w):
            keys = [(a, b) for a in range(h) for b in range(w) if (group(a), group(b)) == (group(i), group(j))]
            offset = [(i - a + win - 1) * (2 * win - 1) + j - b + win - 1 for a, b in keys]
            for e in range(heads):
                query = parts[:, i, j, 0, e] * d**-0.5
                score = torch.stack([(query * parts[:, a, b, 1, e]).sum(-1) for a, b in keys], 1)
                share = (score + layer.bias[e, offset]).softmax(-1)
                out[:, i, j, e] = sum(share[:, m, None] * parts[:, a, b, 2, e] for m, (a, b) in enumerate(keys))
    return layer.out(out.flatten(-2))


@pytest.mark.parametrize(("window", "shift"), [(2, False), (2, True), (3, True), (0, False)])
def test_window_attention_is_its_definition(window, shift):
    torch.manual_seed(0)
    layer = WindowAttention(4, 2, 6, window, shift=shift).double()
    x = torch.randn(2, 6, 6, 4, dtype=torch.float64)
    torch.testing.assert_close(layer(x), _attended(layer, x), atol=1e-9, rtol=1e-9)


def test_attention_without_content_is_linear_and_without_sharing_has_its_own_biases():
    torch.manual_seed(0)
    layer = WindowAttention(4, 2, 6, 3, dynamic=False, shared=False).double()
    layer.norm = torch.nn.Identity()
    x, y = torch.randn(2, 1, 6, 6, 4, dtype=torch.float64)
    zero = layer(torch.zeros_like(x))
    torch.testing.assert_close(layer(x + y) - zero, (layer(x) - zero) + (layer(y) - zero))
    assert layer.bias.shape == (4, 2, 9, 9)
    before = layer(x)
    with torch.no_grad():
        layer.bias[0, :, 0] += torch.arange(9.0)
    changed = (layer(x) - before).abs().amax((0, 3)) > 1e-9
    assert changed[0, 0] and changed.sum() == 1


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("resnet50", {"stem": "cifar", "width": 4, "stages": (1, 1)}),
        ("resnet50", {"stem": "half", "width": 4, "stages": (1, 1)}),
        ("local_dw", {**MINI, "window": 0, "dynamic": False, "drop_path": 0.5}),
        ("local_dw", {**MINI, "window": 3, "shared": False, "dynamic": False, "channels": 1}),
        ("local_dw", {**MINI, "window": 3, "shared": False, "dynamic": True, "patch": 2}),
        ("local_attn", {**MINI, "head_dim": 8, "patch": 2}),
        ("local_attn", {**MINI, "head_dim": 4, "window": 0, "dynamic": False}),
        ("local_attn", {**MINI, "head_dim": 8, "window": 2, "shared": False}),
    ],
)
def test_small_ones_learn_one_batch(name, args):
    model = models.build(name, 4, seed=0, **args)
    x = torch.randn(8, args.get("channels", 3), 32, 32, generator=torch.Generator().manual_seed(0))
    y, optimizer, losses = torch.arange(8) % 4, torch.optim.Adam(model.parameters(), 3e-3), []
    for _ in range(30):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_resolution_is_free_where_no_weight_belongs_to_a_place():
    x = torch.rand(2, 3, 64, 64)
    for name, args in (("local_dw", {}), ("local_attn", {"head_dim": 8}), ("resnet50", {"width": 4, "stages": (1, 1)})):
        small = {} if name == "resnet50" else MINI
        assert models.build(name, seed=0, **small, **args).eval()(x).shape == (2, 10)


def test_branches_are_dropped_in_training_only():
    model = models.build("local_dw", seed=0, **MINI, drop_path=0.9).eval()
    x = torch.rand(4, 3, 32, 32)
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("local_dw", {"size": "bass"}, "did you mean base"),
        ("local_dw", {**MINI, "window": 4}, "window must be odd"),
        ("local_dw", {**MINI, "depths": (1,)}, "same stages"),
        ("local_dw", {**MINI, "image": 36}, "use a multiple of 8"),
        ("local_dw", {**MINI, "drop_path": 1.0}, "drop_path"),
        ("local_attn", {**MINI, "head_dim": 3}, "3 does not divide 8"),
        ("local_attn", {**MINI, "head_dim": 8, "window": 3}, "windows of 3 do not divide a map of 8x8"),
        ("resnet50", {"stem": "cifr"}, "did you mean cifar"),
        ("resnet50", {"stages": ()}, "at least 1"),
    ],
)
def test_one_sentence_for_bad_arguments(name, args, says):
    with pytest.raises(SaccadeError, match=says):
        saccade.model(name, **args)


@pytest.mark.parametrize(
    ("name", "args", "pixels", "says"),
    [
        ("local_dw", MINI, 30, "30 pixels does not divide into patches of 4"),
        ("local_dw", {**MINI, "window": 0, "dynamic": False}, 64, "maps of 8x8 positions, not 16x16"),
        ("local_attn", {**MINI, "head_dim": 8}, 24, "windows of 4 do not divide a map of 6x6"),
        ("local_attn", {**MINI, "head_dim": 8, "shared": False}, 64, "maps of 8x8 positions"),
    ],
)
def test_one_sentence_for_images_that_do_not_fit(name, args, pixels, says):
    with pytest.raises(SaccadeError, match=says):
        saccade.model(name, **args)(torch.zeros(2, 3, pixels, pixels))
