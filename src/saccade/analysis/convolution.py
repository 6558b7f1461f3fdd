"""Convolution as attention by position, after the proof of Cordonnier, Loukas, Jaggi (ICLR 2020), and the way back.

    attention = saccade.analysis.convolution.to_attention(conv)     # computes what conv computes, and can be trained on
    conv, distance = saccade.analysis.convolution.nearest_convolution(attention)

One head a kernel entry: its Gaussian stands on that entry's shift, so narrow that all its mass is there, and its value
map is that slice of the kernel. Outside the image the nearest pixel inside wins, which is replicate padding; for zero
padding the grid is extended by zeros. Gaussians separate, so a head is one small matrix for rows and one for columns.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.content_attention import ContentAttention
from saccade.layers.position_attention import LearnedPositionAttention, QuadraticAttention, product, separable
from saccade.spec import SaccadeError

ALPHA = {torch.float32: 20.0, torch.float64: 50.0}  # leakage to a neighbour is exp(-alpha): below rounding
PADDINGS = ("zeros", "replicate")
Pair = tuple[int, int]


class ShiftAttention(nn.Module):
    """(n, c, h, w) -> (n, out, h', w'): quadratic attention with the queries and the border of a convolution.

    `centre` (heads, 2) and `spread` (heads,) in pixels, rows first; `value` maps the heads' averages, side by side.
    A query stands where the middle of the kernel would, `stride` apart.
    """

    undecayed = ("centre", "spread")

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: Pair,
        *,
        stride: Pair = (1, 1),
        dilation: Pair = (1, 1),
        padding: tuple[Pair, Pair] = ((0, 0), (0, 0)),
        padding_mode: str = "zeros",
        bias: bool = True,
        alpha: float = 20.0,
    ) -> None:
        super().__init__()
        self.kernel, self.stride, self.dilation = kernel, stride, dilation
        self.padding, self.padding_mode = padding, padding_mode
        middle = self.middle()
        at = torch.cartesian_prod(
            *(d * (torch.arange(k) - m) for k, d, m in zip(kernel, dilation, middle, strict=True))
        )
        self.centre = nn.Parameter(at.to(torch.get_default_dtype()))
        self.spread = nn.Parameter(torch.full((len(at),), math.sqrt(2 * alpha)))
        self.value = nn.Linear(len(at) * channels, out, bias=bias)

    def middle(self) -> Pair:
        """The entry of the kernel that a query stands on; before the middle in even kernels."""
        return (self.kernel[0] - 1) // 2, (self.kernel[1] - 1) // 2

    def extended(self, x: Tensor) -> Tensor:
        """The grid of tokens: with zeros around it where the convolution has them."""
        if self.padding_mode == "zeros" and self.padding != ((0, 0), (0, 0)):
            return F.pad(x, (*self.padding[1], *self.padding[0]))
        return x

    def factors(self, h: int, w: int) -> tuple[Tensor, Tensor]:
        """(heads, queries, keys) over rows and over columns, for images of h x w."""
        out = []
        for axis, size in enumerate((h, w)):
            reach, (before, after) = self.dilation[axis] * (self.kernel[axis] - 1), self.padding[axis]
            count = (size + before + after - reach - 1) // self.stride[axis] + 1
            if count < 1:
                raise SaccadeError(f"an image of {h}x{w} is smaller than the kernel; give a larger one.")
            zeros = self.padding_mode == "zeros"
            keys = torch.arange(size + before + after if zeros else size, device=self.centre.device)
            queries = torch.arange(count, device=keys.device) * self.stride[axis]
            queries = queries + self.dilation[axis] * self.middle()[axis] - (0 if zeros else before)
            far = (keys[None] - queries[:, None]).to(self.centre) - self.centre[:, axis, None, None]
            out.append(torch.softmax(-0.5 * self.spread.square()[:, None, None] * far.square(), -1))
        return out[0], out[1]

    def probabilities(self, x: Tensor) -> Tensor:
        """(n, heads, queries, keys); keys are the extended grid's, row by row."""
        return product(*self.factors(*x.shape[2:])).expand(len(x), -1, -1, -1)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.factors(*x.shape[2:])
        x = self.extended(x)
        if x.shape[1] < columns.shape[1]:  # few channels: matrix products over pixels are the larger ones
            return _by_channel(x, rows, columns, self.value.weight, self.value.bias)
        tokens = rearrange(x, "n c h w -> n h w c")
        return rearrange(separable(tokens, rows, columns, self.value.weight, self.value.bias), "n h w c -> n c h w")


def _by_channel(x: Tensor, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What `separable` computes, with channels first: 3.7 times faster for the 3 and 6 channels of a LeNet."""
    n, c, height, width = x.shape
    flat, (h, w) = x.reshape(-1, width), (rows.shape[1], columns.shape[1])
    averages = [
        torch.bmm(row.expand(n * c, h, height), (flat @ column.T).view(n * c, height, w)).view(n, c, h * w)
        for row, column in zip(rows, columns, strict=True)
    ]
    y = torch.bmm(weight.expand(n, -1, -1), torch.cat(averages, 1)).view(n, -1, h, w)
    return y if bias is None else y + bias[:, None, None]


def to_attention(conv: nn.Conv2d, *, alpha: float | None = None) -> ShiftAttention:
    """Attention that computes what the convolution computes: any kernel, bias, stride, dilation, groups; padding by
    zeros, by replication, or none.

    The leakage of a head to each neighbour is exp(-alpha); by default it is below rounding, and so is the gradient
    that reaches centres and spreads. A small alpha (5) leaves both room to move, at the price of equality.
    """
    if not isinstance(conv, nn.Conv2d):
        raise SaccadeError(f"to_attention takes an nn.Conv2d, not {type(conv).__name__}.")
    if conv.padding_mode not in PADDINGS:
        raise SaccadeError(
            f"{conv.padding_mode} padding cannot be expressed: beyond the border, a head sees the "
            "nearest pixel; use zeros, replicate or no padding."
        )
    if conv.weight.dtype not in ALPHA:
        raise SaccadeError(f"to_attention takes float32 or float64 weights, not {str(conv.weight.dtype)[6:]}.")
    if alpha is not None and not alpha > 0:
        raise SaccadeError(f"alpha must be above 0, not {alpha}.")
    with _no_draws():
        attention = ShiftAttention(
            conv.in_channels,
            conv.out_channels,
            _pair(conv.kernel_size),
            stride=_pair(conv.stride),
            dilation=_pair(conv.dilation),
            padding=_padding(conv),
            padding_mode=conv.padding_mode,
            bias=conv.bias is not None,
            alpha=alpha or ALPHA[conv.weight.dtype],
        ).to(conv.weight)
    with torch.no_grad():
        attention.value.weight.copy_(rearrange(_whole(conv), "o i a b -> o (a b i)"))
        if conv.bias is not None:
            attention.value.bias.copy_(conv.bias)
    return attention.train(conv.training)


def nearest_convolution(attention: nn.Module, size: int | None = None) -> tuple[nn.Conv2d, float]:
    """The convolution nearest to attention by position, and how far it is.

    Away from the border such a layer is a convolution with a kernel as large as the image: the sum over heads of
    probability of a shift times value map. Its part on size x size shifts is the nearest kernel of that size for
    inputs without correlation; the distance is the norm of the rest over the norm of the whole, from 0 to 1. The size
    is the root of the number of heads if not given (of ShiftAttention: its kernel, with stride and dilation).
    """
    if isinstance(attention, ShiftAttention):
        if size is not None:
            raise SaccadeError("size is not for attention made from a convolution; it has its kernel's.")
        return _nearest_of_shifts(attention)
    if isinstance(attention, ContentAttention):
        raise SaccadeError(
            "attention with content has no fixed kernel, so no convolution is near it; give attention by position."
        )
    if not isinstance(attention, (QuadraticAttention, LearnedPositionAttention)):
        raise SaccadeError(
            f"nearest_convolution takes attention by position, not {type(attention).__name__}; "
            "models have theirs in model.layers()."
        )
    with torch.no_grad():
        value = attention.value.folded()
        heads = len(attention.centre) if isinstance(attention, QuadraticAttention) else attention.row_heads.out_features
        if size is None:
            size = math.isqrt(heads)
            if size**2 != heads:
                raise SaccadeError(f"{heads} heads are no square kernel; give the size.")
        probabilities = _shift_probabilities(attention, size)  # (heads, side, side) around the query in the middle
        whole = torch.einsum("eab,oei->oiab", probabilities, value.view(len(value), heads, -1))
        first = probabilities.shape[1] // 2 - (size - 1) // 2
        if first < 0 or first + size > probabilities.shape[1]:
            raise SaccadeError(
                f"a kernel of {size} exceeds the {probabilities.shape[1]} shifts known; give a smaller size."
            )
        at = slice(first, first + size), slice(first, first + size)
        return _filled(whole[:, :, *at], attention.value.bias), _share_outside(whole, *at)


def convert(model: nn.Module, *, alpha: float | None = None) -> nn.Module:
    """A copy of a model with every nn.Conv2d replaced by the attention that computes the same.

    For models that call their convolutions; one that reads the weights out of them cannot be converted.
    """
    if isinstance(model, nn.Conv2d):
        return to_attention(model, alpha=alpha)
    model_copy = copy.deepcopy(model)
    converted: dict[nn.Module, nn.Module] = {}  # a convolution used in two places stays one
    for parent in list(model_copy.modules()):
        for name, child in list(parent._modules.items()):  # named_children() would name a child once only
            if isinstance(child, nn.Conv2d):
                if child not in converted:
                    converted[child] = to_attention(child, alpha=alpha)
                setattr(parent, name, converted[child])
    if not converted:
        raise SaccadeError(f"{type(model).__name__} has no nn.Conv2d to convert.")
    return model_copy


def _nearest_of_shifts(attention: ShiftAttention) -> tuple[nn.Conv2d, float]:
    with torch.no_grad():
        heads = len(attention.centre)
        value = attention.value.weight.view(attention.value.out_features, heads, -1)
        reach = max(d * k for d, k in zip(attention.dilation, attention.kernel, strict=True))
        probabilities = _gaussians(
            attention.centre, attention.spread.square()[:, None, None] * torch.eye(2).to(value), reach
        )
        whole = torch.einsum("eab,oei->oiab", probabilities, value)
        middle = probabilities.shape[1] // 2
        rows, columns = (
            middle + d * (torch.arange(k, device=value.device) - m)
            for k, d, m in zip(attention.kernel, attention.dilation, attention.middle(), strict=True)
        )
        at = rows[:, None], columns
        padding = attention.padding
        even = all(before == after for before, after in padding)
        conv = _filled(
            whole[:, :, *at],
            attention.value.bias,
            attention.stride,
            (padding[0][0], padding[1][0]) if even else "same",
            attention.dilation,
            attention.padding_mode,
        )
        return conv, _share_outside(whole, *at)


def _shift_probabilities(attention: QuadraticAttention | LearnedPositionAttention, least: int) -> Tensor:
    """(heads, side, side): probability of each shift for a query in the middle, as far as shifts are known."""
    if isinstance(attention, QuadraticAttention):
        centre, precision = attention.centre, attention.precision()
        if attention.additive_centre:  # the centre that the slip amounts to
            c, at = precision[:, 1, 1], centre[:, 1]
            added = torch.stack([torch.zeros_like(c), c + at - c * at], 1)
            centre = centre + torch.linalg.solve(precision, added[..., None])[..., 0]
        return _gaussians(centre, precision, least)
    # Codes reach size - 1 to each side; on that many places all keys are seen from the middle one.
    rows, columns = (
        F.softmax(heads(codes).T, -1)
        for heads, codes in (
            (attention.row_heads, attention.row_codes),
            (attention.column_heads, attention.column_codes),
        )
    )
    return torch.einsum("ea,eb->eab", rows, columns)


def _gaussians(centre: Tensor, precision: Tensor, least: int, most: int = 32) -> Tensor:
    """(heads, side, side), each summing to one, on a window of six deviations, but of `least` to `most` a side."""
    widest = torch.linalg.eigvalsh(precision)[:, 0].clamp_min(1e-6).rsqrt()
    reach = max(least, min(most, math.ceil(float((centre.abs().amax(1) + 6 * widest).max()))))
    at = torch.arange(-reach, reach + 1).to(centre)
    grid = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1)  # (side, side, 2)
    far = grid - centre[:, None, None]
    scores = torch.einsum("eabi,eij,eabj->eab", far, precision, far)
    return F.softmax(-0.5 * scores.flatten(1), -1).view_as(scores)


def _filled(
    kernel: Tensor,
    bias: Tensor | None,
    stride: Pair = (1, 1),
    padding: Pair | str = "same",
    dilation: Pair = (1, 1),
    mode: Any = "replicate",
) -> nn.Conv2d:
    with _no_draws():
        conv = nn.Conv2d(
            kernel.shape[1],
            kernel.shape[0],
            _pair(kernel.shape[2:]),
            stride,
            padding,
            dilation,
            bias=bias is not None,
            padding_mode=mode,
        ).to(kernel)
    conv.weight.copy_(kernel)
    if conv.bias is not None and bias is not None:
        conv.bias.copy_(bias)
    return conv


def _no_draws() -> Any:
    """torch draws new weights from global random state; here they are overwritten at once, and it is put back."""
    return torch.random.fork_rng(devices=[])


def _share_outside(whole: Tensor, rows: Any, columns: Any) -> float:
    """Norm of what lies elsewhere, over the norm of all; summed itself, not by a difference, which would round."""
    outside = whole.clone()
    outside[:, :, rows, columns] = 0
    total = float(whole.norm())
    return float(outside.norm()) / total if total else 0.0


def _whole(conv: nn.Conv2d) -> Tensor:
    """(out, in, a, b): the kernel of a grouped convolution with its zeros written out."""
    if conv.groups == 1:
        return conv.weight
    parts = conv.weight.chunk(conv.groups)
    whole = conv.weight.new_zeros(conv.out_channels, conv.in_channels, *conv.weight.shape[2:])
    for g, part in enumerate(parts):
        whole[g * len(part) : (g + 1) * len(part), g * part.shape[1] : (g + 1) * part.shape[1]] = part
    return whole


def _padding(conv: nn.Conv2d) -> tuple[Pair, Pair]:
    """Before and after, for rows and for columns."""
    if conv.padding == "valid":
        return (0, 0), (0, 0)
    if conv.padding == "same":  # the odd one goes behind
        total = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        return (total[0] // 2, total[0] - total[0] // 2), (total[1] // 2, total[1] - total[1] // 2)
    assert not isinstance(conv.padding, str)
    rows, columns = _pair(conv.padding)
    return (rows, rows), (columns, columns)


def _pair(values: tuple[int, ...]) -> Pair:
    return values[0], values[1]
