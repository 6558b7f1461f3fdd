"""Every C kernel over random shapes, for a build with the address and undefined-behaviour sanitizers.

Run by test_kernels.py in a process of its own, with the sanitizer's library loaded before torch.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from saccade import rng
from saccade.data.images import Pasted
from saccade.layers import (
    content_attention,
    content_kernel,
    conv_average,
    conv_pool,
    few_tokens,
    kernels,
    local_aggregation,
    pairwise_attention,
    position_attention,
    separable_kernel,
    short_heads,
    token_maps,
)
from saccade.layers.kernels import neighbourhoods

CHECKS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def some(draw: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=draw))


def normal(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw)


def close(mine: Tensor, theirs: Tensor) -> None:
    far = (mine.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp(min=1)
    assert float(far) < 1e-3, float(far)


def same(ours, peer, *given: Tensor) -> None:
    """Values and gradients of two functions."""
    both = []
    for function in (ours, peer):
        inputs = [t.clone().requires_grad_() for t in given]
        out = function(*inputs)
        grads = torch.autograd.grad(out.square().sum(), inputs, allow_unused=True)
        both.append([out.detach(), *(g for g in grads if g is not None)])
    for mine, theirs in zip(*both, strict=True):
        close(mine, theirs)


def paste(draw: torch.Generator) -> None:
    size, channels, n = some(draw, 1, 40), some(draw, 1, 4), some(draw, 1, 5)
    small, inks, places = some(draw, 1, size), some(draw, 1, 7), some(draw, 1, 6)
    ink = torch.randint(256, (inks, small, small), generator=draw).byte()
    scenes = torch.randint(256, (places, channels, size, size), generator=draw).byte()
    which = torch.randint(places, (inks,), generator=draw)
    images = Pasted(torch.zeros(inks), 10, (0.0,), (1.0,), ink, scenes, which)
    index = torch.randint(inks, (n,), generator=draw)
    margin = (size - small) // 2
    plain = torch.zeros(n, 1, size, size)
    plain[:, 0, margin : margin + small, margin : margin + small] = ink[index] / 255
    close(images.batch(index), plain + (1 - plain) * scenes[which[index]] / 255)


def heads(draw: torch.Generator) -> None:
    shape = (some(draw, 1, 2), some(draw, 1, 3), some(draw, 1, 16), some(draw, 64, 200))
    q, k, v = (normal(draw, *shape) for _ in range(3))
    if some(draw, 0, 1):  # any strides
        q, k, v = (t.transpose(0, 1).contiguous().transpose(0, 1) for t in (q, k, v))
    same(short_heads.attend, short_heads.dense, q, k, v)


def tokens(draw: torch.Generator) -> None:
    n, count, each, width = some(draw, 1, 3), some(draw, 1, 128), some(draw, 1, 3), some(draw, 1, 70)
    x = normal(draw, n, count, 3 * each * width)
    same(lambda x: few_tokens.attend(x, each, native=True), lambda x: few_tokens.attend(x, each, native=False), x)
    parts = [normal(draw, n, count, each * width) for _ in range(3)]
    same(
        lambda *x: few_tokens.attend_apart(*x, each, native=True),
        lambda *x: few_tokens.attend_apart(*x, each, native=False),
        *parts,
    )


def content(draw: torch.Generator) -> None:
    size, dim, out, each = some(draw, 1, 11), some(draw, 1, 50), some(draw, 1, 50), some(draw, 1, 3)
    n, h, w, wide = some(draw, 1, 3), some(draw, 1, size), some(draw, 1, size), dim + 2 * (2 * size - 1)
    x, k, v = (normal(draw, n, h, w, dim) for _ in range(3))
    weights = normal(draw, each, dim, wide) / dim, normal(draw, each, wide), normal(draw, out, each * dim)
    given = (x, k, v, *weights[:2], weights[2] / (each * dim) ** 0.5)
    assert content_kernel.has_kernel(*given, size)
    ours, peer = content_kernel.Native, content_attention.Folded
    same(lambda *x: ours.apply(*x, size), lambda *x: peer.apply(*x, size), *given)


def maps(draw: torch.Generator) -> None:
    wide, inside, out = (some(draw, 1, 70) for _ in range(3))
    first, second, norm = torch.nn.Linear(wide, inside), torch.nn.Linear(inside, out), torch.nn.LayerNorm(wide)
    both, x = torch.nn.Sequential(first, torch.nn.GELU(), second), normal(draw, some(draw, 1, 200), wide)
    plus = normal(draw, len(x), out)
    same(lambda x, p: token_maps.mlp(x, both, norm, p), lambda x, p: both(norm(x)) + p, x, plus)
    same(lambda x: token_maps.linear(x, first, norm), lambda x: first(norm(x)), x)


def positions(draw: torch.Generator) -> None:
    n, h, w, each = some(draw, 1, 4), some(draw, 1, 16), some(draw, 1, 16), some(draw, 1, 5)
    wide, out = some(draw, 1, 90), some(draw, 1, 20)
    x, weight = normal(draw, n, h, w, wide), normal(draw, out, each * wide) / (each * wide) ** 0.5
    rows, columns = (normal(draw, each, some(draw, 1, side), side).softmax(-1) for side in (h, w))
    assert separable_kernel.has_kernel(x, rows, columns, weight)
    same(separable_kernel.attend, position_attention.separable, x, rows, columns, weight)


def convolution(draw: torch.Generator) -> None:
    channels, out, size = some(draw, 1, 16), some(draw, 1, 16), some(draw, 1, 7)
    x = normal(draw, some(draw, 1, 6), channels, some(draw, size + 1, size + 14), some(draw, size + 1, size + 14))
    if some(draw, 0, 1):
        x = x.to(memory_format=torch.channels_last)
    layer = torch.nn.Conv2d(channels, out, size)
    assert conv_pool.has_kernel(layer, x)
    peer = lambda x: torch.nn.functional.max_pool2d(torch.nn.functional.relu(layer(x)), 2)  # noqa: E731
    same(lambda x: conv_pool.conv_relu_pool(layer, x), peer, x)


def averages(draw: torch.Generator) -> None:
    channels, size = some(draw, 1, 32), some(draw, 0, 4) * 2 + 1
    out = some(draw, 1, min(32, conv_average.PAIRS // channels))
    side = conv_average.SIDES[some(draw, 0, 2)]
    x, weight = normal(draw, some(draw, 1, 6), channels, side, side), normal(draw, out, channels, size, size)
    weight /= size * channels**0.5
    bias = [normal(draw, out)] if some(draw, 0, 1) else []
    assert conv_average.has_kernel(x, weight, *bias)
    functional = torch.nn.functional
    same(
        lambda x, w, *b: conv_average.conv_relu_average(x, w, *b or [None]),
        lambda x, w, *b: functional.avg_pool2d(functional.relu(functional.conv2d(x, w, *b, padding=size // 2)), 2),
        *(x, weight, *bias),
    )


def aggregation(draw: torch.Generator) -> None:
    size, n, groups, shared = some(draw, 0, 3) * 2 + 1, some(draw, 1, 3), some(draw, 1, 13), some(draw, 1, 4)
    h, w = some(draw, 1, 20), some(draw, 1, 20)
    x = normal(draw, n, groups * shared, h + size - 1, w + size - 1)
    weights = normal(draw, n, shared, size * size, h, w)
    same(local_aggregation.aggregate, local_aggregation.unfolded, x, weights)


def pairwise(draw: torch.Generator) -> None:
    channels, size = 16 * some(draw, 2, 6), some(draw, 0, 3) * 2 + 1
    layer = pairwise_attention.PairwiseAttention(channels, size, share=4)
    layer.train(bool(some(draw, 0, 1)))
    with torch.no_grad():
        layer.norm1.running_mean.normal_(generator=draw)
    x = normal(draw, some(draw, 2, 3), channels, some(draw, 2, 12), some(draw, 2, 12))
    same(layer, layer.dense, x)


def outside() -> None:
    """What the checks in front of the kernels prevent: an array that ends too early. The sanitizer must notice."""
    short, index, out = torch.zeros(10, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), torch.zeros(3 * 32 * 32)
    kernels.paste().paste(*(t.data_ptr() for t in (short, short, index, index, out)), 1, 1, 1, 28, 32, 3)


def main() -> None:
    if sys.argv[2] == "sanitized":
        kernels.FLAGS = (*(flag for flag in kernels.FLAGS if flag != "-O3"), "-O1", *CHECKS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    assert kernels.paste() is not None, "the kernel could not be built with these flags"
    assert neighbourhoods.aggregation() is not None
    if sys.argv[1] == "outside":
        outside()
        return
    for trial in range(int(sys.argv[1])):
        for one in (paste, heads, tokens, content, maps, positions, convolution, averages, aggregation, pairwise):
            one(rng.stream(trial, one.__name__))
    print("clean")


if __name__ == "__main__":
    main()
