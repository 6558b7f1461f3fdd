"""The few values that travel between files, their canonical JSON, and the keys made from it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from saccade import arguments
from saccade.arguments import Chance, Range
from saccade.errors import DamagedFile as DamagedFile
from saccade.errors import SaccadeError as SaccadeError
from saccade.errors import suggest as suggest

# Part of every run's key. Bump when training gives other numbers for the same specification
# (tests/test_train.py holds golden losses and fails then).
TRAINING_VERSION = 1

SCALES = ("smoke", "demo", "small", "large", "paper")
MILESTONES = (0.5, 0.75)  # shares of the budget at which a run keeps its weights, to see whether a result still moves


class Outcome(StrEnum):
    """How a training ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    TIMEOUT = "timeout"
    FAILED = "failed"


class Says(StrEnum):
    """What a verdict says. The last two are for claims that no paper has settled before."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"


class Reason(StrEnum):
    """Why a claim is undecided, or what decided that it is equivalent."""

    NOT_LEARNED = "not learned"
    STILL_MOVING = "still moving"
    NOT_IN_USE = "not in use"
    NOT_RUN = "not run yet"
    TOO_FEW_SEEDS = "too few seeds"
    NO_EFFECT = "no effect seen"
    EFFECT_SMALL = "effect small"
    OUT_OF_REACH = "out of reach at this scale"
    NOT_MEASURED = "not measured"


def plain(value: Any) -> Any:
    """The value in JSON's own types; refuses what has no exact text form."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SaccadeError(f"a setting must be finite, not {value}.")
        return value
    raise SaccadeError(f"a setting must be a number, text, list or mapping, not {type(value).__name__}.")


def canonical(value: Any) -> str:
    """One text for one value: sorted keys, no spaces. What keys and checksums are made from."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: Any, length: int = 12) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]


class Settings(Mapping[str, Any]):
    """An immutable, hashable mapping of named settings; lists become tuples."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        merged = {**(items or {}), **more}
        self._items = {k: _freeze(merged[k]) for k in sorted(merged)}

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(canonical(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and canonical(self) == canonical(other)

    def __repr__(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self._items.items())


def _freeze(value: Any) -> Any:
    if isinstance(value, (list, tuple, range)):
        return tuple(_freeze(v) for v in value)
    return Settings(value) if isinstance(value, Mapping) else value


NotNegative = Annotated[float, Range(at_least=0)]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. The budget is `images`: images seen, the same for every arm."""

    images: Annotated[int, Range(at_least=1, at_most=10**12)]
    batch: Annotated[int, Range(at_least=1, at_most=10**6)] = 16
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Annotated[float, Range(above=0)] = 1e-3
    momentum: Chance = 0.0
    weight_decay: NotNegative = 0.0
    schedule: Literal["constant", "cosine", "one_cycle", "steps"] = "constant"  # steps: to a tenth at 1/3, 2/3 and 5/6
    warmup: Chance = 0.0  # share of the budget
    clip: NotNegative = 0.0  # largest gradient norm; 0 is off
    label_smoothing: Chance = 0.0
    precision: Literal["float32", "mixed"] = "float32"  # mixed where the device has it
    watch: Annotated[int, Range(at_least=0)] = 8  # how often held-out accuracy is looked at on the way
    settle: Annotated[int, Range(at_least=0)] = 0  # stop when the error on an epoch's batches has not moved for so many
    max_seconds: NotNegative = 0.0  # stop after this much training; such a run counts as missing; 0 is off
    nesterov: bool = False  # momentum looks ahead

    def __post_init__(self) -> None:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arguments.check("the recipe", arguments.of_class(Path(__file__), "Recipe"), values)
        if self.nesterov and not self.momentum:
            raise SaccadeError("nesterov of the recipe needs a momentum above 0.")

    def essence(self) -> dict[str, Any]:
        """The settings that are not at their default."""
        return {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != f.default}

    @property
    def steps(self) -> int:
        return max(1, self.images // self.batch)


def recipe_of(*sources: Mapping[str, Any]) -> Recipe:
    """A recipe from what a user names, the later over the earlier; an unknown name is a sentence."""
    settings = {name: value for source in sources for name, value in source.items()}
    arguments.check("the recipe", arguments.of_class(Path(__file__), "Recipe"), settings)
    return Recipe(**settings)


@dataclass(frozen=True)
class Run:
    """One training, by what it is made of. Its key is its name, its folder and its cache entry.

    Without a model it is a fact: nothing is trained, and its probes look at the data alone (`Run.fact`).
    """

    model: str
    data: str
    recipe: Recipe
    seed: int
    model_args: Settings = field(default_factory=Settings)
    data_args: Settings = field(default_factory=Settings)
    version: int = TRAINING_VERSION
    code: str = ""  # fingerprint of model and data code from outside the package
    content: str = ""  # fingerprint of data in a user's folder

    @functools.cached_property
    def key(self) -> str:
        """From every setting that differs from its default: a field added later leaves the keys of old runs alone.

        So a changed default is a changed meaning, and needs a new TRAINING_VERSION.
        """
        outside = [{"code": self.code, "content": self.content}] if self.code or self.content else []
        identity = [self.version, self.model, self.model_args, self.data, self.data_args, self.seed]
        return digest([*identity, self.recipe.essence(), *outside])

    @staticmethod
    def fact(data: str, data_args: Settings, seed: int = 0) -> Run:
        return Run("", data, Recipe(images=1), seed, data_args=data_args)

    @property
    def is_fact(self) -> bool:
        return not self.model

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Kind and name of everything registered that it is made of."""
        return (("data", self.data),) if self.is_fact else (("model", self.model), ("data", self.data))

    @functools.cached_property
    def kind(self) -> str:
        """What runs that may be trained in lock-step have in common."""
        return digest([self.model, self.model_args, self.data, self.recipe])

    @staticmethod
    def parse(values: Mapping[str, Any]) -> Run:
        """The run that `plain(run)` was made from."""
        return Run(
            model=values["model"],
            data=values["data"],
            recipe=Recipe(**values["recipe"]),
            seed=values["seed"],
            model_args=Settings(values["model_args"]),
            data_args=Settings(values["data_args"]),
            version=values["version"],
            code=values.get("code", ""),
            content=values.get("content", ""),
        )


@dataclass(frozen=True, init=False)
class Probe:
    """Which question, asked how: Probe("digit_transforms", n=500)."""

    name: str
    settings: Settings

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "settings", Settings(settings, **more))

    @functools.cached_property
    def key(self) -> str:
        return f"{self.name}-{digest(self, 8)}"


@dataclass(frozen=True)
class Task:
    """One run, what to measure on it, and the arm of the study that it belongs to."""

    run: Run
    probes: tuple[Probe, ...] = ()
    arm: str = ""
    before: str = ""  # of a fact: key of the run that carried its rows in labs made before facts had their own folder

    @staticmethod
    def parse(values: Mapping[str, Any]) -> Task:
        """The task that `plain(task)` was made from."""
        probes = tuple(Probe(p["name"], Settings(p["settings"])) for p in values["probes"])
        return Task(Run.parse(values["run"]), probes, values["arm"], values.get("before", ""))


@dataclass(frozen=True)
class Row:
    """One measured number. `at` is its condition; `each` the per-image outcomes it was computed from."""

    metric: str
    value: float
    n: int
    at: Settings = field(default_factory=Settings)
    each: Any = None  # numpy array or None

    @staticmethod
    def mean(metric: str, each: Any, **at: Any) -> Row:
        """A row from per-image outcomes (a numpy or torch array, one entry per image)."""
        return Row(metric, float(each.mean(dtype=float)), int(each.size), Settings(at), each)


@dataclass(frozen=True)
class Estimate:
    """A number with its interval. n counts trained models unless `method` says otherwise."""

    value: float
    low: float
    high: float
    n: int
    method: str = "t"
    level: float = 0.95

    def text(self, unit: str = "points") -> str:
        """As in `+4.4 [2.9, 5.9] n=5`; unit `points` shows shares of one in percentage points."""
        if self.method == "exact":
            return _exactly(self.value)
        k = 100 if unit == "points" else 1
        digits = 1 if unit == "points" or abs(self.value) >= 10 else 3
        return f"{k * self.value:+.{digits}f} [{k * self.low:.{digits}f}, {k * self.high:.{digits}f}] n={self.n}"

    def short(self) -> str:
        """As in `78.1 ± 1.0`, in percent; a bare value when there is one seed only."""
        half = (self.high - self.low) / 2
        if not math.isfinite(half) or (self.method == "t" and self.n < 3):  # two seeds give intervals of ± 100 points
            return f"{100 * self.value:.1f} (n={self.n})"
        return f"{100 * self.value:.1f} ± {100 * half:.1f}"


ROUNDING = 1e-12  # what double precision leaves of a computed zero is below this


def _exactly(value: float) -> str:
    """As people write it: `1.6 (exact)`, `11.17 million (exact)`, `0 (to rounding, 2e-15)`."""
    if 0 < abs(value) < ROUNDING:
        power = f"{value:.0e}".replace("e-0", "e-")
        return f"0 (to rounding, {power})"
    return f"{value / 1e6:,.4g} million (exact)" if abs(value) >= 1e6 else f"{value:,.4g} (exact)"


@dataclass(frozen=True)
class Evidence:
    """What a claim's test found, before correction for the number of claims.

    `p` is one-sided, for "the relation does not hold"; `p_against` for "the opposite does not hold".
    `each` is the contrast per seed, `null` the value that separates the two sides, `margin` that of an equality test.
    `per` completes the unit of a slope or share, as in "per doubling of x".
    """

    estimate: Estimate
    p: float
    p_against: float
    method: str
    unit: str = "points"
    seeds_needed: int | None = None
    note: str = ""
    parts: tuple[Evidence, ...] = ()
    limit: str = ""  # what this test leaves out, so that it can contradict the claim but not reproduce it
    excuse: str = ""  # what would explain a contradiction by the test's own design, so that it is none
    each: tuple[tuple[int, float], ...] = ()
    null: float = 0.0
    margin: float | None = None
    per: str = ""

    @property
    def fewest(self) -> int:
        """Seeds behind it: of a claim made of parts, those of the sampled part that has fewest."""
        if self.estimate.method == "exact":
            return self.estimate.n
        return min((part.fewest for part in self.parts if part.estimate.method != "exact"), default=self.estimate.n)


@dataclass(frozen=True)
class Met:
    """One requirement of a claim: what it asks, whether that holds, what was found."""

    reason: Reason  # the word for a verdict that fails it
    asks: str
    met: bool
    found: str

    @property
    def applies(self) -> bool:
        """False for what is asked of an arm that this scale leaves out."""
        return not (self.met and self.reason is Reason.NOT_MEASURED)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one claim, with everything that it rests on."""

    claim: str
    says: Says
    statement: str
    tested: str
    reason: Reason | None = None
    paper: str = ""
    concluded: str = ""
    evidence: Evidence | None = None
    p_adjusted: float | None = None
    remark: str = ""
    differs: tuple[str, ...] = ()
    family: str = ""  # claims of one family rest on one observation
    requirements: tuple[Met, ...] = ()
    by_budget: tuple[tuple[float, Evidence], ...] = ()  # at shares of the training budget, the whole one last
    registered: str = ""  # before the runs, or changed after so many
    look: str = ""  # where seeds were added in looks: the one that speaks here, and its level

    @property
    def label(self) -> str:
        """As in `undecided, still moving`."""
        return f"{self.says}, {self.reason}" if self.says is Says.UNDECIDED and self.reason else str(self.says)

    @property
    def decided(self) -> bool:
        return self.says is not Says.UNDECIDED

    @property
    def wants_runs(self) -> bool:
        """Whether more runs of the same kind may decide it; the remark then begins with how many there are."""
        return not self.decided and self.reason in (Reason.NOT_RUN, Reason.TOO_FEW_SEEDS, Reason.NO_EFFECT)


@dataclass(frozen=True)
class Paper:
    citation: str
    url: str = ""


@dataclass(frozen=True)
class Difference:
    """Where a study departs from its paper, and the claims that this may touch (empty: all)."""

    text: str
    touches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scale:
    """Chooses a value by the size the user asked for: scale(smoke=1, small=5, large=10, paper=10)."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in SCALES:
            raise SaccadeError(suggest("scale", self.name, SCALES))

    def __call__(self, *, smoke: Any, small: Any, large: Any, paper: Any, demo: Any = None) -> Any:
        return {
            "smoke": smoke,
            "demo": smoke if demo is None else demo,
            "small": small,
            "large": large,
            "paper": paper,
        }[self.name]
