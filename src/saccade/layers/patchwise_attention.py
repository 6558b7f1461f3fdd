"""SAN's patchwise self-attention (concatenation), after Zhao, Jia, Koltun (CVPR 2020), on shifted views.

Weights of a whole neighbourhood come from [phi(x_i); psi(x_j) for all j in it] by two normalisations and two 1x1 maps;
no softmax and no positions, so they are weights and no probabilities.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.local_aggregation import aggregate, padded, views
from saccade.layers.pairwise_attention import NeighbourhoodMaps, side_by_side


class PatchwiseAttention(NeighbourhoodMaps):
    """`share` channels have one weight."""

    def __init__(
        self, channels: int, size: int = 7, *, share: int = 8, bias: bool = True, own_keys: bool = True
    ) -> None:
        super().__init__(channels, size, bias, own_keys)
        wide, narrow = self.inner * (size**2 + 1), self.out // share
        self.norm1, self.norm2 = nn.BatchNorm2d(wide), nn.BatchNorm2d(narrow)
        self.mix, self.last = nn.Conv2d(wide, narrow, 1, bias=False), nn.Conv2d(narrow, narrow * size**2, 1)

    def branch(self, phi: Tensor, psi: Tensor) -> Tensor:
        """(n, out / share, size size, h, w)."""
        z = torch.cat([phi, *views(padded(psi, self.size), self.size)], 1)
        z = side_by_side(F.relu(self.norm1(z)), self.mix)[0]
        return side_by_side(F.relu(self.norm2(z)), self.last)[0].unflatten(1, (-1, self.size**2))

    def weights(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        return self.branch(*self.maps(x, keys)[:2])

    def attend(self, phi: Tensor, psi: Tensor, beta: Tensor) -> Tensor:
        return aggregate(padded(beta, self.size), self.branch(phi, psi))

    def forward(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        return self.attend(*self.maps(x, keys))
