"""A convolution turned into attention that computes the same, and the nearest convolution of an attention layer."""

import torch
from torch import nn

from saccade.analysis import convolution


def main() -> float:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 8, 3, padding=1)
    attention = convolution.to_attention(conv)
    x = torch.rand(2, 3, 16, 16)
    error = (attention(x) - conv(x)).abs().max().item()
    print(f"largest difference between the convolution and its attention: {error:.1e}")
    nearest, distance = convolution.nearest_convolution(attention)
    print(
        f"the nearest convolution of that attention has {nearest.kernel_size} weights, distance {float(distance):.1e}"
    )
    return error


if __name__ == "__main__":
    main()
