"""Rows: whole nets, one training step each, against the modules that one would put together instead."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.metadata
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measure import Pair, difference
from benchmarks.pure import without_kernels
from saccade import models
from saccade.layers import kernels
from saccade.models.basic_vit import PATCH, BasicViT, Block
from saccade.models.lenet import Skeleton
from saccade.models.mha_lenet import PatchAttention
from saccade.spec import Recipe
from saccade.training.optimizer import make_optimizer

TORCH = f"torch {torch.__version__}"
Facts = Sequence[Tensor]


def pictures(n: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, 32, 32, generator=g, dtype=dtype), torch.randint(10, (n,), generator=g)


def step_of(model: nn.Module, n: int) -> Callable[[], None]:
    """A training step: forward, loss, backward, optimiser. The same optimiser on both sides of a row."""
    x, y = pictures(n)
    optimizer = make_optimizer(Recipe(images=1), model)

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def facts_of(model: nn.Module, n: int, gather: Callable[[nn.Module], Facts]) -> Facts:
    """Logits of a batch, and the gradients of the loss in the order that `gather` gives them."""
    x, y = pictures(n, next(model.parameters()).dtype)
    model.zero_grad()
    logits = model(x)
    torch.autograd.backward(F.cross_entropy(logits, y))
    return [logits, *gather(model)]


def gradients(model: nn.Module) -> Facts:
    return [p.grad for p in model.parameters() if p.grad is not None]


class LibraryAttention(nn.Module):
    """Patches cut out, three linear maps, nn.MultiheadAttention with its defaults: what PatchAttention equals."""

    def __init__(self, ours: PatchAttention) -> None:
        super().__init__()
        out, wide = ours.qkv.out_channels // 3, ours.qkv.weight[0].numel()
        self.maps = nn.ModuleList(nn.Linear(wide, out) for _ in range(3))
        self.attention = nn.MultiheadAttention(out, ours.heads, batch_first=True)
        weights, biases = ours.qkv.weight.view(3, out, wide), ours.qkv.bias
        assert biases is not None and ours.out.bias is not None
        with torch.no_grad():
            for layer, weight, bias in zip(self.maps, weights, biases.view(3, out), strict=True):
                layer.weight.copy_(weight)  # type: ignore[operator]
                layer.bias.copy_(bias)  # type: ignore[operator]
            # The layer projects once more by itself; with the identity there the two nets are one function.
            self.attention.in_proj_weight.copy_(torch.eye(out).repeat(3, 1))
            self.attention.in_proj_bias.zero_()
            self.attention.out_proj.weight.copy_(ours.out.weight[:, :, 0, 0])
            self.attention.out_proj.bias.copy_(ours.out.bias)
        self.attention.in_proj_weight.requires_grad_(False)
        self.attention.in_proj_bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = F.unfold(x, 5).transpose(1, 2)
        mixed, _ = self.attention(*(layer(tokens) for layer in self.maps))
        y: Tensor = mixed.transpose(1, 2).reshape(len(x), -1, x.shape[2] - 4, x.shape[3] - 4)
        return y


def library_net(ours: nn.Module) -> nn.Module:
    theirs = copy.deepcopy(ours)
    assert isinstance(theirs, Skeleton) and isinstance(theirs.first, PatchAttention)
    assert isinstance(theirs.second, PatchAttention)
    theirs.first, theirs.second = LibraryAttention(theirs.first), LibraryAttention(theirs.second)
    return theirs


def _attention_gradients(net: nn.Module) -> Facts:
    """In one order for both nets. Queries', keys' and values' biases as one tensor: the keys' gradient is zero."""
    assert isinstance(net, Skeleton)
    found: list[Tensor | None] = []
    for layer in (net.first, net.second):
        if isinstance(layer, LibraryAttention):
            found += [torch.cat([getattr(m, name).grad for m in layer.maps]) for name in ("weight", "bias")]
            found += [layer.attention.out_proj.weight.grad, layer.attention.out_proj.bias.grad]
        elif isinstance(layer, PatchAttention):
            found += [g if g is None else g.flatten(1) for g in (layer.qkv.weight.grad,)]
            assert layer.out.bias is not None and layer.qkv.bias is not None and layer.out.weight.grad is not None
            found += [layer.qkv.bias.grad, layer.out.weight.grad.flatten(1), layer.out.bias.grad]
    found += [p.grad for p in net.readout.parameters()]
    return [g for g in found if g is not None]


def thesis_net(heads: int, native: bool) -> Pair | str:
    name, aim = "thesis attention net, training step", 7.0 if native else 3.0
    setting = f"batch 16, {heads} head{'s' * (heads > 1)}, {'C kernel' if native else 'pure torch'}"
    if native and (why := kernels.why_not()):
        return f"{name} ({setting}): no kernel, {why}"
    net = models.build("mha_lenet", seed=0, reading="A", heads=heads)
    theirs = library_net(net)
    # Copies are checked: the timed nets move on. The kernel knows float32 only, pure torch is exact in float64.
    pair = [copy.deepcopy(m).to(torch.float32 if native else torch.float64) for m in (net, theirs)]
    path = contextlib.nullcontext if native else without_kernels

    def error() -> float:
        with path():
            return difference(*(facts_of(m, 4, _attention_gradients) for m in pair))

    inner = step_of(net, 16)

    def ours() -> None:
        with path():
            inner()

    return Pair(
        name,
        setting,
        f"nn.MultiheadAttention as it comes, {TORCH}",
        aim,
        ours,
        step_of(theirs, 16),
        f"logits and all gradients, {'float32' if native else 'float64'}",
        error,
        1e-3 if native else 1e-11,
        counted=not native,
    )


class PlainViT(nn.Module):
    """Every token through every block; the class token is picked at the end."""

    def __init__(self, ours: BasicViT) -> None:
        super().__init__()
        self.net = copy.deepcopy(ours)

    def forward(self, x: Tensor) -> Tensor:
        x = self.net.tokens(x)
        for block in (*self.net.early, self.net.last):
            x = block(x)
        return self.net.head(self.net.norm(x[:, 0]))  # type: ignore[no-any-return]


def vit(depth: int, dim: int, heads: int, n: int, aim: float) -> Pair:
    ours = models.build("basic_vit", seed=0, depth=depth, dim=dim, heads=heads)
    assert isinstance(ours, BasicViT)
    plain = PlainViT(ours)
    pair = [copy.deepcopy(m).double() for m in (ours, plain)]
    return Pair(
        f"{_count(depth)}-layer class-token ViT, training step",
        f"batch {n}, width {dim}",
        f"the plain module (all tokens in the last block), {TORCH}",
        aim,
        step_of(ours, n),
        step_of(plain, n),
        "logits and all gradients, float64",
        lambda: difference(*(facts_of(m, 3, gradients) for m in pair)),
        1e-11,
    )


def vit_of_transformers(n: int) -> Pair | str:
    name = "six-layer class-token ViT, training step, against transformers"
    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return f"{name}: absent, transformers is not installed (extra `bench`)"
    if int(version.partition(".")[0]) < 5:
        return f"{name}: absent, transformers {version} names its layers differently (5 or later is needed)"
    ours = models.build("basic_vit", seed=0, depth=6, dim=192, heads=3)
    assert isinstance(ours, BasicViT)
    theirs = _Transformers(ours)
    pair = [copy.deepcopy(m).double() for m in (ours, theirs)]

    def error() -> float:
        with torch.no_grad():
            x, _ = pictures(3, torch.float64)
            return difference([pair[0](x)], [pair[1](x)])

    return Pair(
        "six-layer class-token ViT, training step",
        f"batch {n}, width 192",
        f"transformers {version}, {TORCH}",
        1.15,
        step_of(ours, n),
        step_of(theirs, n),
        "logits, float64",
        error,
        1e-10,
    )


class _Transformers(nn.Module):
    """transformers' ViT of the same size with the weights of ours."""

    def __init__(self, ours: BasicViT) -> None:
        super().__init__()
        import transformers  # type: ignore[import-not-found, unused-ignore]

        dim, heads, depth = ours.cls.shape[-1], ours.last.heads, len(ours.early) + 1
        config = transformers.ViTConfig(  # type: ignore[call-arg, unused-ignore]
            hidden_size=dim,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=2 * dim,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            image_size=32,
            patch_size=PATCH,
            layer_norm_eps=1e-5,
            num_labels=10,
        )
        self.net = transformers.ViTForImageClassification(config)
        theirs = {
            "vit.embeddings.cls_token": ours.cls,
            "vit.embeddings.position_embeddings": ours.positions,
            "vit.embeddings.patch_embeddings.projection.weight": ours.embed.weight.view(dim, 3, PATCH, PATCH),
            "vit.embeddings.patch_embeddings.projection.bias": ours.embed.bias,
        }
        named: list[tuple[str, nn.Module]] = [("vit.layernorm", ours.norm), ("classifier", ours.head)]
        for i, block in enumerate((*ours.early, ours.last)):
            assert isinstance(block, Block)
            at = f"vit.layers.{i}."
            named += [
                (at + "layernorm_before", block.norm1),
                (at + "layernorm_after", block.norm2),
                (at + "attention.o_proj", block.out),
                (at + "mlp.fc1", block.mlp[0]),
                (at + "mlp.fc2", block.mlp[2]),
            ]
            for part, w, b in zip("qkv", block.qkv.weight.chunk(3), block.qkv.bias.chunk(3), strict=True):
                theirs |= {f"{at}attention.{part}_proj.weight": w, f"{at}attention.{part}_proj.bias": b}
        theirs |= {f"{name}.{k}": v for name, layer in named for k, v in layer.state_dict().items()}
        self.net.load_state_dict(theirs)  # of every name, or it says which one is missing

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).logits  # type: ignore[no-any-return]


def _count(depth: int) -> str:
    return {1: "one", 6: "six"}.get(depth, str(depth))


def cases(quick: bool) -> list[Callable[[], Pair | str]]:
    made: list[Callable[[], Pair | str]] = [
        functools.partial(thesis_net, heads, native) for heads in (1, 2) for native in (False, True)
    ]
    deep = 16 if quick else 64
    return [
        *made,
        lambda: vit(1, 128, 1, 32, 5.5),
        lambda: vit(6, 192, 3, deep, 1.15),
        lambda: vit_of_transformers(deep),
    ]
