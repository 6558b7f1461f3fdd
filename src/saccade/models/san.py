"""Self-attention networks over small neighbourhoods, after Zhao, Jia, Koltun (CVPR 2020), and their hierarchical form
by Varma and Prabhu (2020). Plain torch on any device, with kernels where the CPU's compiler makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.arguments import Depth, Width
from saccade.layers.local_aggregation import scattered
from saccade.layers.pairwise_attention import PairwiseAttention
from saccade.layers.passes import Passes, switches
from saccade.layers.patchwise_attention import PatchwiseAttention
from saccade.registry import model
from saccade.spec import SaccadeError


@dataclass(frozen=True)
class Plan:
    """Stages of channels, blocks and footprints, each behind a 2x2 max-pooling; and the hierarchical model's width and
    pooling, which is all of one width and resolution."""

    channels: tuple[int, ...]
    blocks: tuple[int, ...]
    footprints: tuple[int, ...]
    stem: int = 64
    flat: int = 256
    pool: int = 1


PLANS = {
    "san10": Plan((64, 256, 512, 1024, 2048), (2, 1, 2, 4, 1), (3, 7, 7, 7, 7)),
    "san15": Plan((64, 256, 512, 1024, 2048), (3, 2, 3, 5, 2), (3, 7, 7, 7, 7)),
    "san19": Plan((64, 256, 512, 1024, 2048), (3, 3, 4, 6, 3), (3, 7, 7, 7, 7)),
    # What the reproduction's baseline of 3.74M must have been: SAN10 without its last stage, for 32 pixels.
    "truncated": Plan((64, 256, 512, 1024), (2, 1, 2, 4), (3, 3, 3, 3)),
    "small": Plan((64, 128, 256), (1, 1, 1), (3, 3, 3), flat=64, pool=4),
    "tiny": Plan((32, 64), (1, 1), (3, 3), stem=32, flat=32, pool=4),
}


class Bottleneck(nn.Module):
    """x + map(relu norm attention(relu norm x)). With `raw`, as published once, attention sees x itself."""

    def __init__(self, pairwise: bool, channels: int, size: int, *, bias: bool, own_keys: bool, raw: bool) -> None:
        super().__init__()
        kind = PairwiseAttention if pairwise else PatchwiseAttention
        self.raw = raw
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels // 4)
        self.attention = kind(channels, size, bias=bias, own_keys=own_keys)
        self.out = nn.Conv2d(channels // 4, channels, 1)

    def seen(self, x: Tensor) -> Tensor:
        return x if self.raw else F.relu(self.norm1(x))

    def forward(self, x: Tensor, keys: Any = None) -> tuple[Tensor, Any]:
        phi, keys, beta = self.attention.maps(self.seen(x), keys)
        return x + self.out(F.relu(self.norm2(self.attention.attend(phi, keys, beta)))), keys

    def maps(self, x: Tensor, keys: Any = None) -> list[Tensor]:
        return [scattered(self.attention.weights(self.seen(x), keys))]


class Pair(nn.Module):
    """Two bottlenecks, what hierarchical passes share. With `one`, the first one's keys serve both."""

    def __init__(self, first: Bottleneck, second: Bottleneck, one: bool) -> None:
        super().__init__()
        self.first, self.second, self.one = first, second, one

    def forward(self, x: Tensor, keys: Any = None) -> tuple[Tensor, Any]:
        mine, other = keys or (None, None)
        x, mine = self.first(x, mine)
        x, other = self.second(x, mine if self.one else other)
        return x, (mine, other)

    def maps(self, x: Tensor, keys: Any = None) -> list[Tensor]:
        mine, other = keys or (None, None)
        found = self.first.maps(x, mine)
        x, mine = self.first(x, mine)
        return found + self.second.maps(x, mine if self.one else other)


class San(nn.Module):
    """(n, c, h, w) -> (n, classes). `attention(x)`: (n, weight channels, queries, keys) of every attention, in order.

    Weight channels stand for heads; patchwise ones are weights of any sign, not probabilities.
    """

    def __init__(self, classes: int, stem: int, stages: list[nn.Module], width: int, channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, stem, 1, bias=False), nn.BatchNorm2d(stem), nn.ReLU())
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))

    def attention(self, x: Tensor) -> list[Tensor]:
        x, found = self.stem(x), []
        for stage in self.stages:
            if isinstance(stage, Passes):
                found += stage.maps(x)
            x = stage(x)
        return found


@model(family="attention")
def san(
    classes: int = 10,
    *,
    pairwise: bool = True,
    plan: Literal["san10", "san15", "san19", "truncated", "small", "tiny"] = "san10",
    hierarchical: bool = False,
    shared: bool = False,
    frozen_keys: bool = False,
    flat: bool = False,
    depth: Depth = 4,
    raw_attention: bool = False,
    one_key_map: bool = False,
    channels: Width = 3,
) -> nn.Module:
    """Attention over footprints with a weight vector a neighbour; SAN10 has 10.53M parameters for 1000 classes.

    Plans: san10, san15, san19, truncated (3 737 056), small and tiny for a CPU. hierarchical (shared and frozen_keys
    at once) takes the plan's flat form: one width and resolution, `depth` passes of two blocks, 3x3; 352 750
    parameters, 356 282 patchwise. flat=True alone is that form with neither. raw_attention and one_key_map are slips
    of the published hierarchical models: attention before the norm, and the first block's keys for the second too.
    """
    one, frozen = switches(hierarchical, shared, frozen_keys)
    if one_key_map and not frozen:
        raise SaccadeError(
            "one_key_map needs frozen_keys=True; keys that are made in every block belong to their own block."
        )
    chosen = PLANS[plan]
    if not (flat or one or frozen):
        if raw_attention or depth != 4:
            raise SaccadeError("raw_attention and depth are for the flat form; set flat=True or hierarchical=True.")
        return San(classes, chosen.stem, _stages(chosen, pairwise), chosen.channels[-1], channels)

    width = chosen.flat

    def block(own_keys: bool) -> nn.Module:
        first, second = (
            Bottleneck(pairwise, width, 3, bias=False, own_keys=own_keys, raw=raw_attention) for _ in range(2)
        )
        return Pair(first, second, one_key_map)

    def around() -> tuple[nn.Module, nn.Module]:
        return nn.Conv2d(width, width, 1, bias=False), nn.Sequential(nn.BatchNorm2d(width), nn.ReLU())

    passes = Passes(block, depth, shared=one, frozen_keys=frozen, around=around)
    first: list[nn.Module] = [nn.MaxPool2d(chosen.pool)] if chosen.pool > 1 else []
    return San(classes, width, [*first, passes], width, channels)


def _stages(plan: Plan, pairwise: bool) -> list[nn.Module]:
    made: list[nn.Module] = []
    for before, width, blocks, size in zip(
        (plan.stem, *plan.channels), plan.channels, plan.blocks, plan.footprints, strict=False
    ):
        made += [
            nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(before, width, 1, bias=False)),
            Passes(
                lambda own, width=width, size=size: Bottleneck(  # type: ignore[misc]
                    pairwise, width, size, bias=True, own_keys=own, raw=False
                ),
                blocks,
            ),
            nn.Sequential(nn.BatchNorm2d(width), nn.ReLU()),
        ]
    return made
