"""A profile's answers, shared by all probes, against what one would write: a DataLoader pass per change."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.measure import Pair
from saccade import registry, rng
from saccade.data import changes, pixels
from saccade.data.images import Images, Source
from saccade.lab import launch
from saccade.probes.patch_shuffle import shuffled
from saccade.spec import Settings
from saccade.subjects.faster import faster
from saccade.subjects.subject import Subject, standardise

N, SIDE = 1000, 32  # as many images as `saccade profile` asks of a model of this size
KINDS = ("blur", "contrast", "pixelate")
PROBES: dict[str, dict[str, object]] = {
    "accuracy": {},
    "calibration": {},
    "image_transforms": {},
    "patch_shuffle": {"grids": (2, 4, 8)},
    "occlusion": {},
    "corruptions": {"kinds": KINDS},
}
Change = Callable[[Tensor, int], Tensor]  # one image and its place


def lenet() -> nn.Module:
    """What a course begins with: 1.3 million operations per image, so that what lies around the model counts most."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        ).eval()


def three_convolutions() -> nn.Module:
    """5.6 million operations per image: at least two thirds of our time are its convolutions, which both sides do."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for a, b, stride in ((3, 16, 1), (16, 32, 2), (32, 64, 2)):
            layers += [nn.Conv2d(a, b, 3, stride, 1), nn.BatchNorm2d(b), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()


class Changed(Dataset[tuple[Tensor, int]]):
    """As in most evaluation scripts: one image at a time, changed, then standardised."""

    def __init__(self, images: Images, change: Change | None) -> None:
        self.images, self.change = images, change

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        x = self.images.batch(torch.tensor([place]))
        x = x if self.change is None else self.change(x, place)
        return standardise(x, self.images.mean, self.images.std)[0], int(self.images.y[place])


def answers(model: nn.Module, images: Images, change: Change | None) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(x).argmax(1) for x, _ in DataLoader(Changed(images, change), batch_size=64)])


def log_loss(model: nn.Module, images: Images) -> float:
    losses = []
    with torch.no_grad():
        for x, y in DataLoader(Changed(images, None), batch_size=64):
            losses.append(nn.functional.cross_entropy(model(x), y, reduction="none"))
    return float(torch.cat(losses).mean())


def convolved(sigma: float) -> Change:
    """A blur as torchvision does it, its kernel made once. Of four ways to convolve one image this took least time."""
    reach = max(1, math.ceil(3 * sigma))
    line = torch.exp(-0.5 * (torch.arange(-reach, reach + 1.0) / sigma) ** 2)
    line /= line.sum()
    kernel = (line[:, None] * line).expand(3, 1, -1, -1).contiguous()
    return lambda x, i: nn.functional.conv2d(nn.functional.pad(x, (reach,) * 4, mode="replicate"), kernel, groups=3)


def one_by_one(images: Images, seed: int) -> dict[str, list[Change]]:
    """The same changes as the probes make, for one image. Our functions, where nobody would write them otherwise."""
    colour = torch.tensor(images.mean)

    def moved(share: float) -> Change:
        way = torch.randint(4, (N,), generator=rng.stream(seed, "image_transforms", "translation"))
        down, right = (torch.tensor(s)[way] * max(1, round(share * SIDE)) for s in ((-1, 1, 0, 0), (0, 0, -1, 1)))
        return lambda x, i: changes.shifted(x, down[i : i + 1], right[i : i + 1], colour)

    def turned(degrees: float) -> Change:
        way = torch.randint(4, (N,), generator=rng.stream(seed, "image_transforms", "rotation"))
        maps = pixels.rotation(degrees * (1.0 - 2.0 * (way % 2)))
        return lambda x, i: changes.warped(x, maps[i : i + 1], colour)

    def scaled(factor: float) -> Change:
        return lambda x, i: changes.warped(x, pixels.scaling(torch.tensor([factor])), colour)

    def mixed(grid: int) -> Change:
        order = torch.rand(N, grid * grid, generator=rng.stream(seed, "patch_shuffle", grid)).argsort(1)
        return lambda x, i: shuffled(x, order[i : i + 1], grid)

    def covered(share: float) -> Change:
        place = torch.rand(2, N, generator=rng.stream(seed, "occlusion"))
        side = round((share * SIDE * SIDE) ** 0.5)
        top, left = ((place[k] * (SIDE - side + 1)).long() for k in (0, 1))
        return lambda x, i: changes.covered(x, top[i : i + 1], left[i : i + 1], side, colour)

    def worse(kind: str, strength: int) -> Change:
        if kind == "blur":
            return convolved(changes.BLUR[strength - 1] * SIDE)
        return lambda x, i: changes.corrupted(x, kind, strength)

    return {
        "image_transforms": [
            *map(moved, (1 / 32, 1 / 16, 1 / 8, 1 / 4)),
            *map(turned, (5, 15, 30, 45, 90)),
            *map(scaled, (1.5, 1.25, 0.8, 0.6, 0.4)),
        ],
        "patch_shuffle": [mixed(g) for g in (2, 4, 8)],
        "occlusion": [covered(s) for s in (0.1, 0.25, 0.5)],
        "corruptions": [worse(kind, s) for kind in KINDS for s in (1, 2, 3, 4, 5)],
    }


def with_threads(threads: int, action: Callable[[], list[float]]) -> Callable[[], list[float]]:
    def run() -> list[float]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return action()
        finally:
            torch.set_num_threads(before)

    return run


def shared_answers(words: str, model: nn.Module, threads: int) -> Pair:
    """One thread on both sides by processor time; more, as a script has them that sets nothing, by the wall clock."""
    data = Source("photos", Settings(of="procedural_textures", hold_out=1000), 0)
    images = data("test").head(N)

    def ours() -> list[float]:
        subject = faster(Subject(model, images.mean, images.std, kept={}), images)
        rows = [r for name, more in PROBES.items() for r in registry.find("probe", name)(subject, data, n=N, **more)]
        return [r.value for r in rows if r.metric in ("accuracy", "log_loss", "answer_kept")]

    def peer() -> list[float]:
        kept = [float((answers(model, images, None) == images.y).double().mean())]
        kept.append(log_loss(model, images))
        for several in one_by_one(images, data.seed).values():
            before = answers(model, images, None)
            kept += [float((answers(model, images, change) == before).double().mean()) for change in several]
        return kept

    return Pair(
        "profile: six probes, answers shared",
        f"{N} images, accuracy, calibration and 35 changes, {words}, "
        + (f"{threads} threads on both sides" if threads > 1 else "one thread"),
        f"a DataLoader pass per change, torch {torch.__version__.partition('+')[0]}",
        3.0,
        with_threads(threads, ours),
        with_threads(threads, peer),
        "accuracy, log loss, answers kept under each change",
        lambda: max(abs(a - b) for a, b in zip(ours(), peer(), strict=True)),
        2 / N,  # a tie between two classes may fall either way in a batch of another size
        clock="wall" if threads > 1 else "cpu",
    )


def cases(quick: bool) -> list[Callable[[], Pair | str]]:
    models = {"a LeNet": lenet(), "a net of three convolutions": three_convolutions()}
    each = [(words, model, threads) for words, model in models.items() for threads in sorted({1, launch.cores()})]
    return [functools.partial(shared_answers, *one) for one in each]
