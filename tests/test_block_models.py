"""vit and convnet: counts of the papers, the orders inside a block, the exact last block, sentences for bad sizes."""

from typing import get_args

import pytest
import torch
from torch.nn import functional as F

from saccade import models
from saccade.analysis import attention
from saccade.models.convnet import Block as ConvBlock
from saccade.models.vit import Block, Form
from saccade.spec import SaccadeError

BASE = {"patch": 32, "dim": 128, "depth": 16, "heads": 4}


def count(name, **args):
    with torch.device("meta"):
        return models.parameters(models.build(name, **args))


@pytest.mark.parametrize(
    ("change", "at_128", "at_224"),
    [
        ({}, 3_569_546, 3_573_770),
        ({"patch": 16}, 3_280_778, 3_297_674),
        ({"dim": 180}, 6_816_790, 6_822_730),
        ({"depth": 24}, 5_155_722, 5_159_946),
        ({"heads": 8}, 3_569_546, 3_573_770),
    ],
)
@pytest.mark.parametrize("block", get_args(Form))
def test_vit_counts_of_the_table(change, at_128, at_224, block):
    for image, wanted in ((128, at_128), (224, at_224)):
        assert count("vit", image=image, block=block, **{**BASE, **change}) == wanted


def test_vit_b16_layout():
    assert count("vit", patch=16, dim=768, depth=12, heads=12, image=224) == 85_806_346


@pytest.mark.parametrize("block", ["v1", "v2", "v3"])
def test_convnet_is_resnet18_in_size(block):
    assert count("convnet", block=block) == 11_173_962
    assert count("convnet", block=block, stem="imagenet") == 11_181_642


def test_convnet_v1_is_the_published_resnet18():
    vision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    ours, theirs = models.build("convnet", 5, stem="imagenet").eval(), vision.models.resnet18(num_classes=5).eval()
    ours.load_state_dict(dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True)))
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-4)


def small(**args):
    net = models.build("vit", 5, seed=1, **{"dim": 16, "depth": 2, "heads": 2, "image": 16, **args}).double()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return net


def pictures(n=3, side=16):
    return torch.randn(n, 3, side, side, dtype=torch.double, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("block", get_args(Form))
@pytest.mark.parametrize("heads", [1, 4])
def test_last_block_for_the_class_token_alone_is_exact(block, heads):
    """Output and every gradient against the dense path."""
    net, x = small(block=block, heads=heads), pictures()
    fast = net(x)
    got = torch.autograd.grad(fast.square().sum(), list(net.parameters()))
    net.dense = True
    dense = net(x)
    want = torch.autograd.grad(dense.square().sum(), list(net.parameters()))
    torch.testing.assert_close(fast, dense, atol=1e-12, rtol=1e-12)
    for (name, _), a, b in zip(net.named_parameters(), got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-8, msg=name)


def _attend(block, x):
    a = block.attention
    maps = a.probabilities(x)
    v = a.qkv(x).chunk(3, -1)[2].unflatten(-1, (a.heads, -1)).transpose(1, 2)
    return a.out((maps @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("form", get_args(Form))
def test_order_inside_the_block(form):
    torch.manual_seed(0)
    block, x = Block(form, 8, 2, 4, 0.0, 0.0).double(), torch.randn(2, 5, 8, dtype=torch.double)
    one, two, mlp = block.norm1, block.norm2, block.mlp
    if form == "v1":
        y = x + _attend(block, one(x))
        want = y + mlp(two(y))
    elif form == "v2":
        y = one(x + _attend(block, x))
        want = two(y + mlp(y))
    elif form == "v3":
        want = x + _attend(block, one(x)) + mlp(two(x))
    else:
        want = x + mlp(two(_attend(block, one(x))))
    torch.testing.assert_close(block(x), want, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("form", ["v1", "v2", "v3"])
def test_order_inside_the_convolution_block(form):
    torch.manual_seed(0)
    block, x = ConvBlock(form, 3, 4, 2).double(), torch.randn(2, 3, 8, 8, dtype=torch.double)
    c1, n1, c2, n2, s, relu = block.conv1, block.norm1, block.conv2, block.norm2, block.skip(x), F.relu
    want = {
        "v1": lambda: relu(n2(c2(relu(n1(c1(x))))) + s),
        "v2": lambda: relu(n2(relu(c2(n1(c1(x))))) + s),
        "v3": lambda: relu(n2(c2(relu(n1(c1(x)))))) + s,
    }[form]()
    torch.testing.assert_close(block(x), want, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("width", [3, 5])
def test_narrow_models_train(width):
    """1x1 convolutions with a stride crash in torch, channels last, below 8 channels."""
    net = models.build("convnet", seed=0, width=width, stages=(1, 1))
    for _ in range(3):
        net(torch.randn(16, 3, 32, 32)).square().sum().backward()
    skip, x = net.blocks[1].skip, torch.randn(2, width, 8, 8)
    torch.testing.assert_close(skip[1](skip[0](x)), F.conv2d(x, skip[1].weight, stride=2))


def test_v3_of_the_convnet_may_be_negative_and_only_grows():
    block, x = ConvBlock("v3", 4, 4, 1), torch.randn(2, 4, 8, 8)
    assert float((block(x) - x).detach().min()) >= 0 and float(block(x).detach().min()) < 0


def test_patch_embedding_is_a_strided_convolution():
    net, x = small(), pictures()
    weight = net.embed.linear.weight.view(-1, 3, 4, 4)
    want = F.conv2d(x, weight, net.embed.linear.bias, stride=4).flatten(2).transpose(1, 2)
    torch.testing.assert_close(net.embed(x), want)


@pytest.mark.parametrize("block", get_args(Form))
def test_attention_maps(block):
    net, x = small(block=block).float(), pictures().float()
    layers = net.attention(x)
    assert [m.shape for m in layers] == [(3, 2, 17, 17)] * 2
    torch.testing.assert_close(layers[1].sum(-1), torch.ones(3, 2, 17))
    assert attention.maps(net, x).last.shape == (3, 4, 4)


def test_without_positions_the_patches_may_be_shuffled():
    x = pictures()
    mixed = torch.cat([x[..., 8:], x[..., :8]], -1)  # whole patches change places
    for readout in ("class_token", "mean"):
        net = small(positions=False, readout=readout)
        torch.testing.assert_close(net(x), net(mixed), atol=1e-12, rtol=1e-12)
        assert net.positions is None
    assert not torch.allclose(small()(x), small()(mixed))


def test_dropout_acts_in_training_only_and_in_the_last_block_too():
    net, x = small(depth=1, attention_dropout=0.5), pictures()
    assert torch.equal(net.eval()(x), net(x))
    torch.manual_seed(0)
    assert not torch.allclose(net.train()(x), net(x))
    assert sum(
        m.p for m in models.build("vit", dropout=0.2, depth=1).modules() if isinstance(m, torch.nn.Dropout)
    ) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("vit", {"patch": 5}, "5 does not divide 32"),
        ("vit", {"heads": 3}, "3 does not divide 128"),
        ("vit", {"patch": 64}, "64 does not divide 32"),
        ("vit", {"depth": 0}, "depth of vit must be"),
        ("vit", {"block": "v4"}, "block of vit must be one of v1"),
        ("vit", {"readout": "max"}, "readout of vit must be"),
        ("vit", {"dropout": 1.0}, "dropout of vit must be"),
        ("vit", {"ratio": 0}, "ratio of vit must"),
        ("convnet", {"block": "v4"}, "block of convnet must be"),
        ("convnet", {"stem": "cifr"}, "did you mean cifar"),
        ("convnet", {"width": 0}, "width of convnet must be"),
        ("convnet", {"stages": ()}, "stages of convnet must be a list of whole numbers"),
    ],
)
def test_bad_sizes_get_a_sentence(name, args, says):
    with pytest.raises(SaccadeError, match=says):
        models.build(name, **args)


def test_an_image_of_another_size_gets_a_sentence():
    with pytest.raises(SaccadeError, match="build it with image=24"):
        models.build("vit", dim=8, depth=1, heads=1)(torch.zeros(1, 3, 24, 24))
    with pytest.raises(SaccadeError, match="class token"):
        small(readout="mean").attention(pictures())
