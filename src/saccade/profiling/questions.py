"""What a profile asks, in the order of the page: which probe, with which settings, which row of it, and what it means.

A question whose probe changes images shows how many answers stay as they were, and beside it how many are right: the
first can be asked of any model, also of one that does not know the data's classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saccade import stats
from saccade.spec import Estimate, Row

Where = Mapping[str, Any]
ONE_ANSWER = 0.9  # from this share of the images on


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a question may depend on: how many images, on how many pixels, and how many classes there are."""

    n: int
    side: int
    input_side: int  # of what the model itself gets
    classes: int
    labels: bool  # whether right and wrong are known
    set_name: str = ""  # the set that constructions may draw from
    commonest: float = 0.0  # share of the unchanged images that get the most frequent answer

    @property
    def says_one_thing(self) -> bool:
        """Then answers are kept because there is no other, as by most untrained models."""
        return self.commonest >= ONE_ANSWER


@dataclass(frozen=True, kw_only=True)
class Question:
    """`at` finds the row in the probe's rows; `right` the accuracy beside it."""

    key: str
    words: Callable[[Asked], str]
    probe: str
    metric: str
    unit: str
    says: Callable[[float, Asked], str]
    settings: Callable[[Asked], Where] = lambda context: {"n": context.n}
    at: Callable[[Asked], Where] = lambda context: {}
    right: str = ""
    needs_labels: bool = False
    needs_set: bool = False
    variants: int = 0  # times that n images are asked, for the plan
    part: str = ""  # the setting of the probe that is this question's alone, left out where nobody asks it

    @property
    def compares(self) -> bool:
        """Whether it counts answers that stay as they were."""
        return self.metric.endswith("answer_kept")

    def means(self, value: float, context: Asked) -> str:
        if self.compares and context.says_one_thing:
            return f"says nothing of this: {100 * context.commonest:.0f} % of the images get the same answer anyway"
        return self.says(value, context)


SHIFT, TURN, SHRINK, COVER, OBJECT = 0.125, 15.0, 0.6, 0.25, 0.5
GRIDS = (2, 4, 8)


def grids(context: Asked) -> tuple[int, ...]:
    return tuple(g for g in GRIDS if g <= context.side)


def grid(context: Asked) -> int:
    """Four by four, or the nearest that the image has pixels for."""
    return min(grids(context) or (1,), key=lambda g: abs(g - 4))


def kept(value: float, change: str) -> str:
    """A sentence on how many answers stay."""
    if value >= 0.9:
        return f"hardly minds {change}"
    if value >= 0.7:
        return f"mostly keeps its answer under {change}"
    if value >= 0.4:
        return f"often changes its answer under {change}"
    return f"loses its answer under {change}"


def _pixels(context: Asked, share: float) -> int:
    return max(1, round(share * context.side))


def _equivariance(context: Asked) -> Where:
    few = 8 if context.input_side <= 64 else 4  # every layer's maps are held, twice
    return {
        "n": few,
        "scopes": ("network",),
        "shift": (float(_pixels(context, SHIFT)),),
        "padded_shift": (),
        "rotate": (90.0,),
        "scale": (),
        "flip": False,
        "permute": False,
        "lie": False,
        "regions": ("whole",),
        "precision": "float32",
    }


def _accuracy_says(value: float, context: Asked) -> str:
    if value < 2 / context.classes:
        return "about as often right as a guess: what the other rows say of it means little"
    return f"{value * context.classes:.1f} times as often right as a guess"


def _gap_says(value: float, context: Asked) -> str:
    if abs(value) < 0.02:
        return "does not lean on the background"
    return "leans on the background" if value > 0 else "does better on foreign backgrounds, which asks for a look"


def _mosaic_says(value: float, context: Asked) -> str:
    chance = 16 / context.classes
    better = "finds several things at once" if value > 1.4 * chance else "hardly better than blind"
    return f"{better} ({chance:.2g} by chance)"


def _object_says(value: float, context: Asked) -> str:
    return "does not recognise small things" if value < 2 / context.classes else "recognises things at half their size"


def _equivariance_says(value: float, context: Asked) -> str:
    if value < 1e-3:
        return "the answer does not depend on where things are"
    return f"a shift moves the answer by {value:.2g} of the distance between two images"


def _shape_says(value: float, context: Asked) -> str:
    if value > 0.6:
        return "follows shape (phases) more than texture (amplitudes)"
    return "follows texture (amplitudes) more than shape (phases)" if value < 0.4 else "follows shape and texture alike"


def _calibration_says(value: float, context: Asked) -> str:
    if abs(value) < 0.03:
        return "is as sure as it may be"
    return "is surer than it is right" if value > 0 else "is more often right than it is sure"


def _entropy_says(value: float, context: Asked) -> str:
    return (
        "looks at nearly everything alike"
        if value > 0.9
        else "looks at few places"
        if value < 0.5
        else "chooses places"
    )


def _distance_says(value: float, context: Asked) -> str:
    return "looks far (all places alike would give about 0.52)" if value > 0.4 else "looks nearby"


QUESTIONS: tuple[Question, ...] = (
    Question(
        key="accuracy",
        words=lambda context: "right answers to unchanged images",
        probe="accuracy",
        metric="accuracy",
        unit="percent",
        says=_accuracy_says,
        needs_labels=True,
        variants=1,
    ),
    Question(
        key="background",
        words=lambda context: "lost on a background of another class",
        probe="background_reliance",
        metric="background_gap",
        unit="points",
        says=_gap_says,
        variants=3,
    ),
    Question(
        key="translation",
        words=lambda context: (
            f"answers kept when the image moves by {_pixels(context, SHIFT)} of {context.side} pixels"
        ),
        probe="image_transforms",
        metric="answer_kept",
        unit="percent",
        at=lambda context: {"transform": "translation", "severity": SHIFT},
        right="transformed_accuracy",
        says=lambda value, context: kept(value, "a shift"),
        variants=4,
        part="translation",
    ),
    Question(
        key="rotation",
        words=lambda context: f"answers kept when it turns by {TURN:g} degrees",
        probe="image_transforms",
        metric="answer_kept",
        unit="percent",
        at=lambda context: {"transform": "rotation", "severity": TURN},
        right="transformed_accuracy",
        says=lambda value, context: kept(value, "a turn"),
        variants=5,
        part="rotation",
    ),
    Question(
        key="scale",
        words=lambda context: f"answers kept when it shrinks to {100 * SHRINK:.0f} %",
        probe="image_transforms",
        metric="answer_kept",
        unit="percent",
        at=lambda context: {"transform": "scale", "severity": SHRINK},
        right="transformed_accuracy",
        says=lambda value, context: kept(value, "a change of size"),
        variants=5,
        part="scale",
    ),
    Question(
        key="patch_shuffle",
        words=lambda context: f"answers kept when the squares of a {grid(context)} x {grid(context)} grid are shuffled",
        probe="patch_shuffle",
        metric="answer_kept",
        unit="percent",
        settings=lambda context: {"n": context.n, "grids": grids(context)},
        at=lambda context: {"grid": grid(context)},
        right="shuffled_accuracy",
        says=lambda value, context: "sees pieces, not their order" if value > 0.7 else "needs the whole in its order",
        variants=3,
    ),
    Question(
        key="occlusion",
        words=lambda context: f"answers kept when {100 * COVER:.0f} % of the area is covered",
        probe="occlusion",
        metric="answer_kept",
        unit="percent",
        at=lambda context: {"share": COVER},
        right="occluded_accuracy",
        says=lambda value, context: kept(value, "a covered quarter"),
        variants=3,
    ),
    Question(
        key="mosaics",
        words=lambda context: "of four things in one image, among the four best answers",
        probe="top_k_matching",
        metric="top_k_matching",
        unit="of 4",
        at=lambda context: {"k": 4},
        says=_mosaic_says,
        needs_labels=True,
        needs_set=True,
        variants=1,
    ),
    Question(
        key="small_objects",
        words=lambda context: "right answers at half the size, on a texture",
        probe="small_object_accuracy",
        metric="object_accuracy",
        unit="percent",
        settings=lambda context: {"n": context.n, "scales": (1.0, 0.5, 0.25)},
        at=lambda context: {"scale": OBJECT},
        says=_object_says,
        needs_labels=True,
        needs_set=True,
        variants=3,
    ),
    Question(
        key="equivariance",
        words=lambda context: (
            f"change of the answer when the image is shifted round by {_pixels(context, SHIFT)} pixels"
        ),
        probe="equivariance",
        metric="invariance_error",
        unit="share",
        settings=_equivariance,
        at=lambda context: {"layer": "output", "move": "shift"},
        says=_equivariance_says,
    ),
    Question(
        key="shape_bias",
        words=lambda context: "shape among answers that follow one of two cues in conflict",
        probe="cue_conflict",
        metric="shape_bias",
        unit="percent",
        says=_shape_says,
        variants=1,
    ),
    Question(
        key="corruptions",
        words=lambda context: "answers kept on bad images (noise, blur, contrast, pixels; mean of 20)",
        probe="corruptions",
        metric="mean_answer_kept",
        unit="percent",
        right="mean_corrupted_accuracy",
        says=lambda value, context: kept(value, "bad images"),
        variants=20,
    ),
    Question(
        key="calibration",
        words=lambda context: "confidence minus accuracy",
        probe="calibration",
        metric="over_confidence",
        unit="points",
        says=_calibration_says,
        needs_labels=True,
    ),
    Question(
        key="attention_entropy",
        words=lambda context: "how evenly attention looks (0: one place, 1: all alike)",
        probe="attention_span",
        metric="mean_attention_entropy",
        unit="share",
        settings=lambda context: {"n": 16 if context.input_side > 64 else 32},
        says=_entropy_says,
    ),
    Question(
        key="attention_distance",
        words=lambda context: "how far attention looks, in sides of the image",
        probe="attention_span",
        metric="mean_attention_distance",
        unit="sides",
        settings=lambda context: {"n": 16 if context.input_side > 64 else 32},
        says=_distance_says,
    ),
)
VARIANTS = sum(q.variants for q in QUESTIONS)


def pick(rows: Sequence[Row], metric: str, at: Where) -> Row | None:
    """The one row of this metric and condition."""
    matches = [r for r in rows if r.metric == metric and all(r.at.get(k) == v for k, v in at.items())]
    return matches[0] if matches else None


def estimate(row: Row) -> Estimate:
    """With its interval over images: Wilson for shares, t for other means; none where there is one number only."""
    if row.each is None:
        return Estimate(row.value, float("nan"), float("nan"), row.n, "one number")
    if row.each.dtype == bool:
        return stats.proportion(int(row.each.sum()), int(row.each.size))
    mean = stats.estimate([float(v) for v in row.each])
    low, high = mean.low, mean.high
    if row.each.min() >= 0 and row.each.max() <= 1:  # a mean of shares is one
        low, high = max(0.0, low), min(1.0, high)
    return Estimate(mean.value, low, high, mean.n, "t, images", mean.level)
