"""A study's model as one would write it without saccade: torch's own modules, every token computed, nothing folded.

The same parameters and the same function; what is undone is the exact algebra that the layers describe (one query for
the class token, maps of attention as products, patches as convolutions, one matrix per channel) and the memory layout.
Where a model has no such shortcut, its plain form is a copy of it.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.layers import by_map
from benchmarks.nets import LibraryAttention, PlainViT
from saccade.layers.content_attention import ContentAttention
from saccade.layers.depthwise import Depthwise
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention
from saccade.models.basic_cnn import BasicCNN
from saccade.models.basic_vit import BasicViT
from saccade.models.convnet import ConvNet
from saccade.models.lenet import Skeleton
from saccade.models.mha_lenet import PatchAttention
from saccade.models.vit import ViT
from saccade.spec import Recipe
from saccade.training.optimizer import make_optimizer


def plain(model: nn.Module) -> nn.Module:
    """A copy of the model that computes what it computes by the modules and calls that one would choose first."""
    if isinstance(model, BasicViT):
        return PlainViT(model)
    made = copy.deepcopy(model)
    if isinstance(made, ViT):
        made.dense = True
    if isinstance(made, Skeleton):
        for name in ("first", "second"):
            if isinstance(layer := getattr(made, name), PatchAttention):
                setattr(made, name, LibraryAttention(layer))
    for module in made.modules():
        if hasattr(module, "channels_last"):
            module.channels_last = False  # type: ignore[assignment]
        for kind, forward in FORWARDS.items():
            if isinstance(module, kind):
                module.forward = functools.partial(forward, module)  # type: ignore[method-assign]
    return made


def optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimiser as torch makes it when nothing is said of fusing."""
    ours = make_optimizer(recipe, model)
    return type(ours)([{**group, "fused": None} for group in ours.param_groups], recipe.lr)


def _convolved(layer: Any, x: Tensor) -> Tensor:
    """The static depth-wise mixing of every map as torch's grouped convolution, where one kernel serves all places."""
    if layer.generate is not None or not layer.shared:
        return Depthwise.forward(layer, x)
    n, window = x.shape[3], layer.window
    kernel = layer.kernel.view(n, 1, window, window)
    mixed = F.conv2d(x.permute(0, 3, 1, 2), kernel, layer.bias, padding=window // 2, groups=n)
    return mixed.permute(0, 2, 3, 1)


def _cnn(net: Any, x: Tensor) -> Tensor:
    *deep, hidden, head = net.scales
    for conv, scale in zip(net.convs, deep, strict=True):
        weight, bias = net.parts(conv, scale)
        x = F.avg_pool2d(F.relu(F.conv2d(x, weight, bias, padding=2)), 2)
    x = F.relu(F.linear(x.flatten(1), *net.parts(net.hidden, hidden)))
    return F.linear(x, *net.parts(net.head, head))


def _convnet(net: Any, x: Tensor) -> Tensor:
    x = net.stem(x)
    for block in net.blocks:
        x = block(x)
    y: Tensor = net.head(net.pool(x).flatten(1))
    return y


FORWARDS: dict[type[nn.Module], Any] = {
    QuadraticAttention: by_map,
    LearnedPositionAttention: by_map,
    ContentAttention: by_map,
    Depthwise: _convolved,
    BasicCNN: _cnn,
    ConvNet: _convnet,
}
