"""Mixing of positions channel by channel, with three independent switches: window, weight sharing, dynamic weights.

The weight from one position to another is a static part, the same for all positions (a convolution) or their own, plus
if dynamic a part computed from the image. With a shared static part this is exactly the dynamic depth-wise
convolution of Han et al. 2022, whose last bias is the static kernel.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.pyramid import BatchNorm
from saccade.spec import SaccadeError

MANY = 1024  # positions beyond which one matrix a channel would not fit into memory


@functools.lru_cache(maxsize=64)
def pairs(h: int, w: int, window: int, shared: bool) -> Tensor:
    """For every input and output position, (h w, h w), the number of the weight between them.

    Shared weights are numbered by offset, row by row in the window; own ones one after another. A pair too far apart
    gets the last number, which is that of no weight.
    """
    with torch.device("cpu"):  # also while a model is counted on the meta device: what is remembered needs numbers
        y, x = (t.flatten() for t in torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij"))
        dy, dx = (t[:, None] - t[None, :] + window // 2 for t in (y, x))
        near = (dy >= 0) & (dy < window) & (dx >= 0) & (dx < window)
        number = dy * window + dx if shared else near.flatten().cumsum(0).view_as(near) - 1
        return torch.where(near, number, window**2 if shared else int(near.sum()))


def check_side(side: int, h: int, w: int) -> None:
    """For layers whose weights belong to positions of one map."""
    if (h, w) != (side, side):
        raise SaccadeError(
            f"these weights are for maps of {side}x{side} positions, not {h}x{w}; give the model the "
            "size of its images (image=)."
        )


class Depthwise(nn.Module):
    """(n, h, w, c) to the same shape. Outside the map is 0. window=0 spans the whole map."""

    def __init__(self, dim: int, side: int, window: int = 7, shared: bool = True, dynamic: bool = False) -> None:
        super().__init__()
        if window < 0 or (window and window % 2 == 0):
            raise SaccadeError(f"window must be odd, so that it has a middle, or 0 for the whole map, not {window}.")
        self.window, self.side, self.shared = window or 2 * side - 1, side, shared
        self.fixed = not (shared and window)  # whether there are weights for one size of map only
        area = self.window**2
        reach = self.window // 2
        near = sum(min(i + reach, side - 1) - max(i - reach, 0) + 1 for i in range(side))  # pairs along one axis
        weights = area if shared else near**2
        bound = min(area, side**2) ** -0.5  # as torch does for a convolution, but for the positions that exist
        self.kernel = nn.Parameter(torch.empty(dim, weights).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))
        self.generate = None
        if dynamic:
            hidden = max(1, dim // 4)
            self.generate = nn.Sequential(
                nn.Linear(dim, hidden, bias=False),
                BatchNorm(hidden),
                nn.ReLU(),
                nn.Linear(hidden, area * dim, bias=False),
            )

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        if self.fixed:
            check_side(self.side, h, w)
        if self.generate is None:
            return self.static(x)
        made = self.generate(x.mean((1, 2))).view(n, c, -1)
        if not self.shared:
            return self.static(x) + self.own_kernels(x, made)
        return self.own_kernels(x, made + self.kernel) + self.bias

    def static(self, x: Tensor) -> Tensor:
        _, h, w, c = x.shape
        # One matrix a channel is four times faster for 7x7 on 4x4, eight times for a kernel over the whole of 16x16.
        if self.shared and h * w > min(MANY, self.window**2):
            kernel = self.kernel.view(c, 1, self.window, self.window)
            mixed = F.conv2d(x.permute(0, 3, 1, 2), kernel, self.bias, padding=self.window // 2, groups=c)
            return mixed.permute(0, 2, 3, 1)
        index = pairs(h, w, self.window, self.shared).to(x.device)
        matrix = F.pad(self.kernel, (0, 1)).index_select(1, index.flatten()).view(c, h * w, h * w)
        mixed = torch.bmm(x.flatten(1, 2).permute(2, 0, 1), matrix)
        return mixed.permute(1, 2, 0).reshape(x.shape) + self.bias

    def own_kernels(self, x: Tensor, kernels: Tensor) -> Tensor:
        """One kernel per image and channel, (n, c, k k): a convolution with as many groups."""
        n, h, w, c = x.shape
        flat = x.permute(0, 3, 1, 2).reshape(1, n * c, h, w)
        kernels = kernels.reshape(n * c, 1, self.window, self.window)
        return F.conv2d(flat, kernels, padding=self.window // 2, groups=n * c).view(n, c, h, w).permute(0, 2, 3, 1)
