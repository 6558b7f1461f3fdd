"""Does a layer's map move with the image? Shifts, turns, mirrors, scale and permutations, for any torch module.

    import saccade
    found = saccade.analysis.equivariance.measure(model, x, moves=[Move("shift", 1), Move("rotate", 90)])
    found.at(layer="blocks.0", scope="alone")

A layer is asked in two ways: as part of the network ("network": the image is moved) and on its own ("alone": its own
input is moved). Its map after the move is compared with the moved map, and with the map as it was (invariance).

An error of 0 is no difference; 1 is the distance between the maps of two different images. The verdict is yes up to
rounding, approximately up to 0.1, else no. The Lie error is the same for an infinitely small move, per pixel, per 10
degrees or per 10 % of size: the local error of Gruver et al. 2023, by central differences in float64.
"""

from __future__ import annotations

import copy
import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from saccade.data import pixels
from saccade.errors import in_words
from saccade.spec import SaccadeError, suggest

KINDS = ("shift", "padded_shift", "rotate", "flip", "flip_down", "scale", "permute")
LIE = {"shift": 1.0, "rotate": math.pi / 18, "scale": 0.1}  # generators, and the unit of each
SCOPES = ("network", "alone")
EXACT = {torch.float64: 1e-9, torch.float32: 1e-4}  # rounding of a deep model in this precision
CLOSE = 0.1  # up to here a map moves approximately with the image
STEP = 1e-4  # of the finite difference; in float64 rounding then adds 1e-12
MOST_PREFIX = 8  # class, distillation and register tokens before the grid
STILL = (nn.Identity, nn.Dropout, nn.Softmax)  # these do nothing to positions, or give attention maps

Sides = tuple[int, int]


@dataclass(frozen=True)
class Move:
    """shift: pixels down and right, what leaves comes in again; padded_shift: the mean colour comes in. Whole or not.

    rotate: degrees counter-clockwise about the centre, multiples of 90 exactly. flip: left and right; flip_down: top
    and bottom. scale: about the centre. permute: positions of a layer's own input, by seed.
    """

    kind: str
    amount: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SaccadeError(suggest("move", self.kind, KINDS))
        if self.kind == "scale" and not self.amount > 0:
            raise SaccadeError(f"scale must be above 0, not {self.amount}.")


@dataclass(frozen=True)
class Finding:
    """`region` is whole, or interior: the middle half of each side. `largest` is the greatest difference anywhere."""

    layer: str
    type: str
    scope: str
    move: str
    amount: float
    measure: str  # equivariance, invariance or lie
    region: str
    error: float
    largest: float
    verdict: str
    n: int


@dataclass(frozen=True)
class Report:
    """`skipped` has the layers that could not be read, with the reason."""

    findings: tuple[Finding, ...]
    skipped: Mapping[str, str]

    def at(self, **where: Any) -> list[Finding]:
        return [f for f in self.findings if all(getattr(f, k) == v for k, v in where.items())]


def measure(
    model: nn.Module,
    x: Tensor,
    *,
    moves: Sequence[Move],
    layers: Sequence[str] = (),
    scopes: Sequence[str] = SCOPES,
    lie: Sequence[str] = (),
    precision: str = "float64",
) -> Report:
    """Ask every layer whose name matches one of `layers` (* and ? allowed; empty: all), and the output.

    x: standardised images (n, c, h, w), at least two different ones. The model itself is not touched.
    """
    if x.ndim != 4 or len(x) < 2:
        raise SaccadeError(f"equivariance needs at least two images (n, c, h, w), not {tuple(x.shape)}.")
    for name, values, known in (
        ("scope", scopes, SCOPES),
        ("generator", lie, LIE),
        ("precision", (precision,), ("float64", "float32")),
    ):
        for value in values:
            if value not in known:
                raise SaccadeError(suggest(name, value, known))
    dtype: torch.dtype = getattr(torch, precision)
    try:
        with torch.no_grad():  # what a scripted module copies would otherwise have a history
            network = copy.deepcopy(model).to(dtype).eval()
    except Exception as error:
        raise SaccadeError(
            f"equivariance asks a copy of the model in {precision}, and it cannot be copied ({in_words(error)})."
        ) from error
    if getattr(network, "dense", None) is False:  # it computes only what its readout needs; ask for everything
        cast(Any, network).dense = True
    for module in network.modules():  # what a layer got and gave must not be written over by the next one
        if getattr(module, "inplace", None) is True:
            cast(Any, module).inplace = False
    x = x.to(dtype)
    modules = dict(_selected_modules(network, layers))
    with torch.no_grad():
        before, skipped = _read(modules, network, x)
        findings: list[Finding] = []
        for move in moves:
            if "network" in scopes and move.kind != "permute":
                after, _ = _read(modules, network, move_grid(move, x, (1.0, 1.0))[0])
                for name, layer in before.items():
                    if name in after:
                        findings += _compare(move, "network", layer, layer.out, after[name].out, x.shape[-2:])
            if "alone" in scopes:
                for layer in before.values():
                    findings += _alone(move, layer, skipped)
        for kind in lie:
            findings += _lie(kind, network, modules, x, before)
    return Report(tuple(findings), skipped)


def untrained(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy with every layer that can be reset as it starts, batch statistics included."""
    model_copy = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in model_copy.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return model_copy


# -- moves


def move_grid(move: Move, grid: Tensor, stride: tuple[float, float]) -> tuple[Tensor, Tensor | None]:
    """A map (n, c, h, w) moved, and where it holds what was in the map before (None: everywhere)."""
    h, w = grid.shape[-2:]
    if move.kind == "shift":
        return _rolled(_rolled(grid, move.amount / stride[0], -2), move.amount / stride[1], -1), None
    if move.kind == "padded_shift":
        ones = torch.ones_like(grid[:1, :1])
        both = [
            _shifted_with_zeros(_shifted_with_zeros(t, move.amount / stride[0], -2), move.amount / stride[1], -1)
            for t in (grid, ones)
        ]
        return both[0], both[1][0, 0] > 1 - 1e-9
    if move.kind == "flip":
        return grid.flip(-1), None
    if move.kind == "flip_down":
        return grid.flip(-2), None
    if move.kind == "permute":
        order = torch.randperm(h * w, generator=torch.Generator().manual_seed(int(move.amount))).to(grid.device)
        return grid.flatten(2)[..., order].view(grid.shape), None
    if move.kind == "rotate" and move.amount % 90 == 0 and (h == w or move.amount % 180 == 0):
        return torch.rot90(grid, int(move.amount // 90), (-2, -1)), None
    if move.kind == "rotate" and h != w:
        raise SaccadeError(f"only a square image can be turned by {move.amount:g} degrees, not {h}x{w}.")
    size = torch.full((len(grid),), float(move.amount), dtype=grid.dtype, device=grid.device)
    maps = pixels.rotation(size) if move.kind == "rotate" else pixels.scaling(size)
    valid = pixels.warp(torch.ones_like(grid[:1, :1]), maps[:1])[0, 0] > 1 - 1e-9
    return pixels.warp(grid, maps), valid


def _rolled(grid: Tensor, by: float, axis: int) -> Tensor:
    """Circular shift; between pixels by the trigonometric polynomial through them."""
    if abs(by - round(by)) < 1e-12:
        return grid.roll(round(by), axis)
    n = grid.shape[axis]
    turns = torch.fft.fftfreq(n, dtype=torch.float64) * by
    phase = torch.polar(torch.ones_like(turns), -2 * math.pi * turns)
    if n % 2 == 0:  # the frequency without a partner stays real
        phase[n // 2] = math.cos(math.pi * by)
    basis = torch.fft.fft(torch.eye(n, dtype=torch.float64), dim=0) * phase[:, None]
    step: Tensor = torch.fft.ifft(basis, dim=0).real.to(grid)
    return step @ grid if axis == -2 else grid @ step.T


def _shifted_with_zeros(grid: Tensor, by: float, axis: int) -> Tensor:
    """Shift with zeros coming in; between pixels linearly."""
    low = math.floor(by + 1e-12)
    share = by - low
    if share < 1e-12:
        out = grid.roll(low, axis)
        empty = min(abs(low), grid.shape[axis])
        out.narrow(axis, 0 if low >= 0 else grid.shape[axis] - empty, empty).zero_()
        return out
    return (1 - share) * _shifted_with_zeros(grid, float(low), axis) + share * _shifted_with_zeros(
        grid, low + 1.0, axis
    )


def generator(kind: str, grid: Tensor, stride: tuple[float, float]) -> Tensor:
    """How a map changes under an infinitely small move of one unit (see LIE)."""
    h, w = grid.shape[-2:]
    if kind == "shift":  # the derivative of `_rolled`
        return -(_slope(h).to(grid) @ grid / stride[0] + grid @ _slope(w).to(grid).T / stride[1])
    down, right = torch.gradient(grid, dim=[-2, -1])
    y = (torch.arange(h, dtype=grid.dtype, device=grid.device) - (h - 1) / 2)[:, None]
    x = torch.arange(w, dtype=grid.dtype, device=grid.device) - (w - 1) / 2
    return LIE[kind] * (y * right - x * down if kind == "rotate" else -(x * right + y * down))


def _slope(n: int) -> Tensor:
    turns = torch.fft.fftfreq(n, dtype=torch.float64)
    if n % 2 == 0:
        turns[n // 2] = 0.0
    basis = torch.fft.fft(torch.eye(n, dtype=torch.float64), dim=0) * (2j * math.pi * turns)[:, None]
    slope: Tensor = torch.fft.ifft(basis, dim=0).real
    return slope


# -- reading layers


@dataclass(frozen=True)
class Grid:
    """A layer's tensor as a map (n, c, h, w), and how to put a moved map back into the tensor's own layout."""

    map: Tensor
    layout: str  # map, channels_last, tokens
    prefix: Tensor | None = None

    def back(self, moved: Tensor) -> Tensor:
        if self.layout == "tokens":
            tokens = moved.flatten(2).transpose(1, 2)
            return tokens if self.prefix is None else torch.cat([self.prefix, tokens], 1)
        return moved.permute(0, 2, 3, 1) if self.layout == "channels_last" else moved


@dataclass(frozen=True)
class Layer:
    name: str
    module: nn.Module
    out: Grid | Tensor  # a tensor: (n, features), which can only be invariant
    given: Grid | None  # its own input, where that is one map


def read_grid(t: Any, sides: Sides) -> Grid | None:
    """A tensor as a map of an image with these sides; None if it is none."""
    if not isinstance(t, Tensor) or not t.is_floating_point() or t.ndim not in (3, 4):
        return None
    height, width = sides
    if t.ndim == 4:
        if t.shape[2] * width != t.shape[3] * height and t.shape[1] * width == t.shape[2] * height:
            return Grid(t.permute(0, 3, 1, 2), "channels_last") if t.shape[1] > 1 else None
        return Grid(t, "map") if t.shape[2] * t.shape[3] > 1 else None
    for prefix in range(MOST_PREFIX + 1):
        tokens = t.shape[1] - prefix
        h = math.isqrt(tokens * height // width) if tokens > 1 else 0
        w = tokens // h if h else 0
        if h and h * w == tokens and h * width == w * height:
            grid = t[:, prefix:].transpose(1, 2).reshape(len(t), -1, h, w)
            return Grid(grid, "tokens", t[:, :prefix] if prefix else None)
    return None


def _selected_modules(network: nn.Module, layers: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    for name, module in network.named_modules():
        selected = not layers or any(fnmatch.fnmatchcase(name, pattern) for pattern in layers)
        if name and selected and not isinstance(module, STILL):
            yield name, module
    yield "output", network


def _read(modules: Mapping[str, nn.Module], network: nn.Module, x: Tensor) -> tuple[dict[str, Layer], dict[str, str]]:
    """Every watched layer in one forward pass; a module called again gets #2, #3, ... after its name."""
    layers: dict[str, Layer] = {}
    skipped: dict[str, str] = {}
    sides = (x.shape[-2], x.shape[-1])

    def hook(name: str) -> Any:
        def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            call_number = 1 + sum(n == name or n.startswith(f"{name}#") for n in (*layers, *skipped))
            call_name = name if call_number == 1 else f"{name}#{call_number}"
            out = out.clone() if isinstance(out, Tensor) else out
            grid: Grid | Tensor | None = read_grid(out, sides)
            if (
                grid is None
                and isinstance(out, Tensor)
                and out.is_floating_point()
                and len(out) == len(x)
                and (out.ndim == 2 or math.prod(out.shape[2:]) == 1)
            ):
                grid = out.flatten(1)
            if grid is None:
                skipped[call_name] = f"its output {_shape(out)} is no map of the image"
                return
            single_input = len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
            layer_input = read_grid(args[0].clone(), sides) if single_input else None
            layers[call_name] = Layer(call_name, module, grid, layer_input)

        return keep

    handles = [module.register_forward_hook(hook(name), with_kwargs=True) for name, module in modules.items()]
    try:
        network(x)
    finally:
        for handle in handles:
            handle.remove()
    for name in modules:
        if name not in layers and name not in skipped:
            skipped[name] = "it was not called"
    return layers, skipped


def _shape(out: Any) -> str:
    return str(tuple(out.shape)) if isinstance(out, Tensor) else type(out).__name__


def stride_of(inside: Sequence[int], out: Sequence[int]) -> tuple[float, float]:
    """Pixels of the input for one of the map; a map that lost its border has the power of two below."""

    def one(a: int, b: int) -> float:
        if a % b == 0 or b % a == 0:
            return a / b
        return float(2 ** max(0, math.floor(math.log2(a / b))))

    return one(inside[0], out[0]), one(inside[1], out[1])


# -- comparing


def _alone(move: Move, layer: Layer, skipped: dict[str, str]) -> Iterable[Finding]:
    if layer.given is None or layer.name == "output":
        return []
    try:
        inside = move_grid(move, layer.given.map, (1.0, 1.0))[0]
        out = layer.module(layer.given.back(inside))
    except SaccadeError:
        raise
    except Exception as error:  # a foreign layer may need more than its input
        skipped[f"{layer.name} alone"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return []
    sides = (inside.shape[-2], inside.shape[-1])
    after: Grid | Tensor | None = read_grid(out, sides) if isinstance(layer.out, Grid) else out.flatten(1)
    if after is None or isinstance(after, Tensor) is not isinstance(layer.out, Tensor):
        return []
    if move.kind == "permute" and isinstance(layer.out, Grid) and layer.out.map.shape[-2:] != sides:
        return []  # positions of another grid cannot be permuted alike
    return _compare(move, "alone", layer, layer.out, after, sides)


def _compare(
    move: Move, scope: str, layer: Layer, before: Grid | Tensor, after: Grid | Tensor, inside: Sequence[int]
) -> list[Finding]:
    blank = Finding(
        layer.name,
        type(layer.module).__name__,
        scope,
        move.kind,
        move.amount,
        "",
        "whole",
        0.0,
        0.0,
        "",
        len(before if isinstance(before, Tensor) else before.map),
    )
    if isinstance(before, Tensor) or isinstance(after, Tensor):
        assert isinstance(before, Tensor) and isinstance(after, Tensor)
        return [_with_error(replace(blank, measure="invariance"), after - before, before)]
    expected, valid = move_grid(move, before.map, stride_of(inside, before.map.shape[-2:]))
    out = []
    for region, mask in _regions(expected.shape[-2], expected.shape[-1], valid):
        where = mask.to(expected.device)
        for name, target in (("equivariance", expected), ("invariance", before.map)):
            a, b = after.map[..., where], target[..., where]
            out.append(_with_error(replace(blank, measure=name, region=region), a - b, b))
    return out


def _regions(h: int, w: int, valid: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """The whole map, and its middle half where border and padding of one layer cannot be seen."""
    whole = torch.ones(h, w, dtype=torch.bool) if valid is None else valid.cpu()
    if whole.any():
        yield "whole", whole
    middle = torch.zeros(h, w, dtype=torch.bool)
    middle[h // 4 : h - h // 4, w // 4 : w - w // 4] = True
    if h >= 4 and w >= 4 and (whole & middle).any():
        yield "interior", whole & middle


def _with_error(blank: Finding, difference: Tensor, maps: Tensor) -> Finding:
    """Relative to the distance between different images' maps; all sums in float64."""
    exact = EXACT[torch.float64 if difference.dtype == torch.float64 else torch.float32]
    maps, difference = maps.double(), difference.double()
    spread = (2 * maps.var(0)).mean().sqrt()
    size = maps.square().mean().sqrt()
    difference_size = difference.square().mean().sqrt()
    # A layer that gives every image the same map has no spread; then its own size is the measure.
    unit = float(spread) if spread > 1e-12 * size else float(size)
    error = float(difference_size) / unit if unit > 0 else (math.inf if difference_size > 0 else 0.0)
    verdict = "yes" if error <= exact else "approximately" if error <= CLOSE else "no"
    return replace(blank, error=error, largest=float(difference.abs().max()), verdict=verdict)


def _lie(
    kind: str, network: nn.Module, modules: Mapping[str, nn.Module], x: Tensor, before: Mapping[str, Layer]
) -> Iterator[Finding]:
    direction = generator(kind, x, (1.0, 1.0))
    forward, backward = (_read(modules, network, x + sign * STEP * direction)[0] for sign in (1, -1))
    for name, layer in before.items():
        if name not in forward or name not in backward:
            continue
        maps = [a.map if isinstance(a, Grid) else a for a in (layer.out, forward[name].out, backward[name].out)]
        change = (maps[1] - maps[2]) / (2 * STEP)
        blank = Finding(name, type(layer.module).__name__, "network", kind, 0.0, "lie", "whole", 0.0, 0.0, "", len(x))
        if isinstance(layer.out, Tensor):
            yield replace(_with_error(blank, change, maps[0]), verdict="")
            continue
        change = change - generator(kind, maps[0], stride_of(x.shape[-2:], maps[0].shape[-2:]))
        for region, mask in _regions(change.shape[-2], change.shape[-1], None):
            where = mask.to(change.device)
            yield replace(
                _with_error(replace(blank, region=region), change[..., where], maps[0][..., where]), verdict=""
            )
