"""Sums over neighbourhoods, and the pairwise layer built on them, against everything unfolded."""

import copy

import pytest
import torch

from saccade.layers import kernels
from saccade.layers.kernels import neighbourhoods
from saccade.layers.local_aggregation import aggregate, padded, unfolded, views
from saccade.layers.pairwise_attention import PairwiseAttention


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gradients(out, tensors):
    return torch.autograd.grad((out * random(*out.shape, seed=9, dtype=out.dtype)).sum(), tensors)


@pytest.mark.parametrize(("size", "share"), [(3, 1), (3, 2), (7, 4)])
def test_shifted_views_equal_unfold(size, share):
    x, weights = random(2, 4, 4 + size, 5 + size), random(2, 4 // share, size**2, 5, 6)
    tensors = [x.requires_grad_(), weights.requires_grad_()]
    outs = [function(*tensors) for function in (aggregate, unfolded)]
    assert outs[0].shape == (2, 4, 5, 6)
    assert (outs[0] - outs[1]).abs().max() < 1e-12
    for a, b in zip(*(gradients(out, tensors) for out in outs), strict=True):
        assert (a - b).abs().max() < 1e-12


def test_aggregate_takes_views_and_broadcast_gradients():
    x, weights = random(7, 7, 4, 2).permute(3, 2, 0, 1), random(2, 9, 2, 5, 5).transpose(1, 2)
    tensors = [x.requires_grad_(), weights.requires_grad_()]
    for a, b in zip(*(torch.autograd.grad(f(*tensors).sum(), tensors) for f in (aggregate, unfolded)), strict=True):
        assert (a - b).abs().max() < 1e-12


needs_kernels = pytest.mark.skipif(bool(kernels.why_not()), reason=f"no native kernels: {kernels.why_not()}")


def close_to_exact(mine, theirs, exact):
    """As close to float64 as torch itself in float32."""
    for a, b, truth in zip(mine, theirs, exact, strict=True):
        allowed = 4 * (b.double() - truth).abs().max() + 2e-6 * truth.abs().max().clamp(min=1)
        assert (a.double() - truth).abs().max() <= allowed


@needs_kernels
@pytest.mark.parametrize(("groups", "share", "size"), [(8, 2, 7), (5, 3, 3), (1, 1, 3), (4, 1, 5)])
def test_native_sums_equal_unfold(groups, share, size):
    x, weights = random(2, groups * share, 3 + size, 8 + size), random(2, share, size**2, 4, 9)
    facts = []
    for function, dtype in ((aggregate, torch.float32), (unfolded, torch.float32), (unfolded, torch.float64)):
        tensors = [t.to(dtype).requires_grad_() for t in (x, weights)]
        out = function(*tensors)
        facts.append([out, *gradients(out, tensors)])
    close_to_exact(*facts)


@needs_kernels
def test_native_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="a kernel takes"):
        aggregate(torch.zeros(1, 2, 5, 5), torch.zeros(1, 2, 9, 5, 5))


@needs_kernels
def test_native_sums_take_a_broadcast_gradient():
    x, weights = random(1, 4, 6, 6, dtype=torch.float32), random(1, 2, 9, 4, 4, dtype=torch.float32)
    tensors = [x.requires_grad_(), weights.requires_grad_()]
    for a, b in zip(*(torch.autograd.grad(f(*tensors).sum(), tensors) for f in (aggregate, unfolded)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("share", "size", "h", "w"), [(4, 3, 6, 7), (8, 7, 8, 8), (1, 3, 4, 17), (2, 5, 3, 11), (4, 7, 5, 2), (8, 3, 2, 1)]
)  # also maps below the window
def test_native_pairwise_is_as_close_to_float64_as_the_naive_layer(training, share, size, h, w):
    exact, x = layer(size, share).train(training), random(2, 32, h, w)
    single = copy.deepcopy(exact).float()
    naive, facts = copy.deepcopy(single), []
    for net, function in ((single, single.forward), (naive, naive.dense), (exact, exact.dense)):
        z = x.to(next(net.parameters()).dtype).requires_grad_()
        out = function(z)
        facts.append([out, *gradients(out, [z, *net.parameters()])])
    close_to_exact(*facts)
    for a, b in zip(single.buffers(), naive.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_without_a_compiler_pure_torch_serves(monkeypatch):
    monkeypatch.setattr(neighbourhoods, "aggregation", lambda: None)
    monkeypatch.setattr(neighbourhoods, "pairwise", lambda inner, shared: None)
    net, x = layer().float(), random(2, 32, 5, 5, dtype=torch.float32)
    torch.testing.assert_close(net(x), copy.deepcopy(net).dense(x), rtol=1e-4, atol=1e-4)


def test_a_weight_of_one_at_one_place_is_a_shift():
    x, weights = random(1, 2, 5, 5), torch.zeros(1, 1, 9, 3, 3, dtype=torch.float64)
    weights[:, :, 5] = 1  # middle row, right
    torch.testing.assert_close(aggregate(x, weights), x[:, :, 1:4, 2:5])


def test_views_go_row_by_row():
    x = torch.arange(16).view(4, 4)
    assert [int(v[0, 0]) for v in views(x, 3)] == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert padded(x[None, None].float(), 3)[0, 0, 0, 0] == 5  # by reflection


@needs_kernels
def test_native_pairwise_takes_views_and_a_broadcast_gradient():
    net, x = layer().float(), random(2, 6, 32, 9, dtype=torch.float32).transpose(1, 2).requires_grad_()
    tensors = [x, net.beta.weight]
    for a, b in zip(*(torch.autograd.grad(f(x).sum(), tensors) for f in (net.forward, net.dense)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the kernel and pure torch
def test_pairwise_keeps_nan(dtype):
    net, x = layer(share=8).eval().to(dtype), random(2, 32, 9, 12, dtype=dtype)
    x[0, 0, 4, 6] = float("nan")
    out = net(x)
    assert torch.equal(out.isnan(), net.dense(x).isnan()) and out.isnan().any() and not out.isnan().all()
    assert net.train()(x).isnan().all()


def test_pairwise_learns_after_it_was_tried_in_inference_mode():
    net, x = layer(), random(2, 32, 13, 13)
    with torch.inference_mode():
        net(x)
    net(x).sum().backward()
    assert net.mix.weight.grad is not None


def layer(size=3, share=4, **args):
    torch.manual_seed(0)
    made = PairwiseAttention(32, size, share=share, **args).double()
    for p in made.parameters():  # away from zero biases: equal positions would lie on the kink of the ReLU
        torch.nn.init.normal_(p)
    return made


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_pairwise_equals_the_naive_layer(training, bias):
    mine, x = layer(bias=bias).train(training), random(3, 32, 5, 6).requires_grad_()
    with torch.no_grad():
        mine.norm1.running_mean.add_(0.2)
        mine.norm2.running_var.mul_(1.5)
    theirs = copy.deepcopy(mine)
    outs = mine(x), theirs.dense(x)
    assert (outs[0] - outs[1]).abs().max() < 1e-12
    pairs = zip(gradients(outs[0], [x, *mine.parameters()]), gradients(outs[1], [x, *theirs.parameters()]), strict=True)
    for a, b in pairs:
        assert (a - b).abs().max() <= 1e-11 * max(1.0, float(b.abs().max()))
    for a, b in zip(mine.buffers(), theirs.buffers(), strict=True):  # running statistics move alike
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_pairwise_weights_are_probabilities():
    w = layer().weights(random(2, 32, 4, 4))
    assert w.shape == (2, 2, 9, 4, 4)
    assert (w.sum(2) - 1).abs().max() < 1e-12
