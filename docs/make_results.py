"""Writes RESULTS.md, the scoreboard of all claims and other findings, from results/: python docs/make_results.py

No number is typed here: verdicts come from results/*/verdicts.json, findings from the CSV files of the figures. A test
fails when the page does not say what the results say.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import make_readme as readme
import public_recipes

from saccade import stats
from saccade.cli.terminal import duration
from saccade.lab.table import Series, minus, per_seed
from saccade.report.document import ours, unit_of
from saccade.spec import Estimate, Reason, Says, Verdict
from saccade.study import takes

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "RESULTS.md"
REMARK = 200  # characters of the reason in the table; the report has all of it
SHORTEST = 30  # a note of fewer would say nothing


def page() -> str:
    known = readme.results()
    parts = [
        "# Results",
        "Made by `python docs/make_results.py` from `results/`.",
        readme.scoreboard(""),
        "Open means: no verdict, with the reason beside it. A verdict needs at least five seeds, models that have "
        "learned, and a contrast that no longer moves with training ([how](docs/statistics.md)); where seeds were "
        "added after a first look, the study's report says at which level each claim was decided. *Family* joins "
        "claims that rest on one observation. *Required* counts the requirements that were met, of those that arms of "
        "this scale can meet. A claim that lacks seeds gets them with "
        "`saccade run STUDY --scale large --until decided --claims ID`.",
        fixed(known),
        "\n".join(studies(known)),
        "## What the papers did not know",
        "Measurements beside the claims: none was planned as a test, and no requirement of learning or settling was "
        "applied. Where a planned claim asks nearly the same, its verdict is named. The scale stands behind each.",
        *filter(None, (finding.text() for finding in FINDINGS if finding.ready())),
        "\n".join(public_recipes.section()),
        "## All claims",
    ]
    for name, told in known.items():
        parts += [f"### {name} ({told['scale']})", "\n".join(claims(told["verdicts"], name, told["scale"]))]
    return "\n\n".join(parts) + "\n"


def studies(known: dict[str, Any]) -> Iterator[str]:
    yield "| study | scale | runs | training, one core | wall time | verdicts |"
    yield "|---|---|---|---|---|---|"
    for name, told in known.items():
        facts = json.loads((ROOT / "results" / name / "environment.json").read_text("utf-8"))
        core, wall = (facts.get(f"{kind} seconds") for kind in ("training core", "wall"))
        lasted = f"{duration(wall)}, {facts['jobs']} processes" if wall else "–"
        yield (
            f"| [{name}](results/{name}/report.md) | {told['scale']} | {facts['done']} of {facts['runs']} | "
            f"{duration(core) if core else '–'} | {lasted} | "
            f"{readme.listed(readme.count(told['verdicts']))} |"
        )


def why_open(v: Verdict, study: str, scale: str) -> str:
    """The reason and what it would take, both whole; further notes as far as there is room."""
    first, *more = v.remark.split("; ")
    commands = [part for part in more if "saccade run" in part or part.startswith("takes ")]
    if v.reason in (Reason.NOT_LEARNED, Reason.STILL_MOVING, Reason.NOT_MEASURED) and not commands:
        commands = [takes(study, v.reason, scale)]  # older verdicts lack it
    notes = "; ".join(part for part in more if part not in commands)
    room = REMARK - len("; ".join([first, *commands, ""]))
    if len(notes) > room:
        notes = notes[: room - 1].rstrip() + "…" if room > SHORTEST else ""
    return "; ".join(filter(None, (first, notes, *commands)))


def claims(verdicts: readme.Verdicts, study: str, scale: str) -> Iterator[str]:
    yield "| claim | the paper | ours | verdict | why open, what it takes | required | registered | family |"
    yield "|---|---|---|---|---|---|---|---|"
    for told in verdicts:
        v = readme.verdict(told)
        met = [r["met"] for r in told["requirements"] if not (r["met"] and r["reason"] == Reason.NOT_MEASURED)]
        remark = "" if v.decided else why_open(v, study, scale)
        cells = (
            f"{v.claim}: {v.statement}",
            v.paper or "–",
            measured(v),
            v.label,
            remark,
            f"{sum(met)} of {len(met)}" if met else "–",
            when_fixed(told),
            v.family if v.family != v.claim else "",
        )
        yield "| " + " | ".join(map(escaped, cells)) + " |"


def when_fixed(told: dict[str, Any]) -> str:
    """As in `before the runs`, `after 9 runs` or `changed after 9 runs: tested`."""
    return re.sub(r" \([^)]*\)", "", told["registered"].removeprefix("registered "))


def fixed(known: dict[str, Any]) -> str:
    """When the decided claims that rest on training were written down, and when changed."""
    decided = [
        v for told in known.values() for v in told["verdicts"] if v["says"] != Says.UNDECIDED and v["requirements"]
    ]
    words = [when_fixed(v) for v in decided]
    changed = sorted(v["claim"] for v, word in zip(decided, words, strict=True) if word.startswith("changed"))
    before = sum(word.startswith("before") for word in words)
    return (
        f"*Registered* says when a claim's test was written down. Of the {len(decided)} decided claims that rest on "
        f"training, {before} were registered before the first run of their study, "
        f"{len(decided) - before - len(changed)} when some runs of the study were in, and {len(changed)} were changed "
        f"later ({', '.join(changed)}): read these with more doubt."
    )


def measured(v: Verdict) -> str:
    """The number, its unit where that is not percentage points, and of a claim made of parts which one it is of."""
    if v.evidence is None:
        return ours(None)
    said = " ".join(filter(None, (ours(v.evidence), unit_of(v.evidence).removeprefix("percentage points").strip())))
    part = stats.deciding(v.evidence)
    there = part.note in v.remark and not v.decided  # the next cell but one says it
    return f"{said}; {part.note}" if v.evidence.parts and part.note and not there else said


def escaped(text: str) -> str:
    return re.sub(r"([\\`*_|~<>])", r"\\\1", " ".join(text.split()))


@dataclass(frozen=True)
class Finding:
    """Something that was measured and that no paper reports; `sentence` is filled with numbers of the figure."""

    title: str
    study: str
    figure: str
    sentence: Callable[[Rows], str]

    def ready(self) -> bool:
        return self.file(".csv").exists()

    def file(self, suffix: str) -> Path:
        return ROOT / "results" / self.study / "figures" / f"{self.figure}{suffix}"

    def text(self) -> str:
        with self.file(".csv").open(encoding="utf-8", newline="") as handle:
            rows = Rows(list(csv.DictReader(handle)))
        try:
            said = self.sentence(rows)
        except LookupError:  # an arm that this scale has not run yet
            return ""
        shown = self.file(".svg").relative_to(ROOT).as_posix()
        scale = readme.results()[self.study]["scale"]
        caption = readme.caption(self.study, self.figure, "")
        return "\n\n".join(
            (f"### {self.title}", f"{said} ({self.study}, {scale}.)", f"![{self.title}]({shown})", caption)
        )


@dataclass(frozen=True)
class Rows:
    """The numbers behind a figure."""

    rows: list[dict[str, str]]

    def at(self, **where: str) -> Series:
        """The single seeds of one point."""
        (row,) = [r for r in self.rows if all(r[k] == v for k, v in where.items())] or [None]
        if row is None:
            raise LookupError(f"the figure has no {where}")
        # a first number below 0 stands behind an apostrophe, which keeps spreadsheets from reading a formula
        return dict(enumerate(map(float, row["seeds"].lstrip("'").split())))

    def ends(self, **where: str) -> tuple[str, str]:
        """The first and the last x of a line."""
        xs = [r["x"] for r in self.rows if all(r[k] == v for k, v in where.items())]
        return min(xs, key=float), max(xs, key=float)


def verdict_of(claim: str) -> str:
    """As in `claim L-F9-dd: contradicted`."""
    every = (v for told in readme.results().values() for v in told["verdicts"])
    return next(f"claim {claim}: {readme.verdict(v).label}" for v in every if v["claim"] == claim)


def points(series: Series) -> str:
    return stats.estimate(series).text("points") + " points"


def percent(series: Series) -> str:
    e: Estimate = stats.estimate(series)
    return f"{e.value:.1%} [{e.low:.1%}, {e.high:.1%}] n={e.n}"


def shortcut(rows: Rows) -> str:
    line = {"panel": "x = 8", "line": "CNN, OOD"}
    first, last = rows.ends(**line)
    early, late = rows.at(**line, x=first), rows.at(**line, x=last)

    def lead(x: str) -> str:
        cnn, attention = (rows.at(panel="x = 64", line=f"{arm}, OOD", x=x) for arm in ("CNN", "MHA"))
        return points(minus(cnn, attention))

    return (
        "On the 256 test images that are watched during training: with eight backgrounds per digit class, accuracy on "
        f"unseen backgrounds is {percent(early)} after "
        f"{float(first):,.0f} images and {percent(late)} after {float(last):,.0f}: {points(minus(late, early))}. "
        f"With 64, its lead over attention is {lead(first)} after {float(first):,.0f} images and {lead(last)} after "
        f"{float(last):,.0f}. A study that stops early and one that stops late disagree."
    )


def recoloured(rows: Rows) -> str:
    varied = ", varied colours"
    _, x = rows.ends(panel="x = 8", line=f"MHA{varied}")

    def change(arm: str, panel: str) -> str:
        plain, other = (rows.at(panel=panel, line=arm + extra, x=x) for extra in ("", varied))
        return f"{percent(plain)} without and {percent(other)} with it"

    return (
        "Contrast and colours of the training images were varied at random, which the thesis does not try. On the 256 "
        "test images that are watched during training, with eight "
        f"backgrounds per digit class and after {float(x):,.0f} images, attention is right on unseen backgrounds in "
        f"{change('MHA', 'x = 8')}, the CNN in {change('CNN', 'x = 8')}: part of what both took from few backgrounds "
        "instead of the digit was their colour. With 64 backgrounds, which mislead less, attention learns slower for "
        f"it: {change('MHA', 'x = 64')}; the CNN hardly: {change('CNN', 'x = 64')}."
    )


def static(rows: Rows) -> str:
    fixed, dynamic = rows.at(category="depth-wise"), rows.at(category="dynamic depth-wise")
    return (
        "The paper names its local model a Local ViT; the code that it trains holds no attention but a depth-wise "
        "convolution whose weights are computed from the image. The same model with weights that are not computed "
        f"reaches {percent(fixed)} against {percent(dynamic)}: {points(minus(fixed, dynamic))}."
    )


def shuffled(rows: Rows) -> str:
    def kept(line: str) -> Series:
        return rows.at(panel="answers that stay as they were", line=line, x="8.0")

    return (
        f"When the 64 squares of 4x4 pixels are shuffled, the small ViT keeps {percent(kept('ViT'))} of its answers; "
        f"the ResNet keeps {percent(kept('ResNet'))}: the ViT has position codes and leans on them less than the "
        "ResNet leans on its neighbourhoods."
    )


def windowed(rows: Rows) -> str:
    def gain(line: str, of: str) -> str:
        return points(rows.at(category=of, line=line))

    shuffled = "kept after shuffling 4 x 4"
    return (
        "In the small attention model that differs in three switches only, windows instead of the whole map change "
        f"test accuracy by {gain('test accuracy', 'locality')}, and weights shared by all places instead of weights of "
        f"their own by {gain('test accuracy', 'sharing')}. What windows do change is what the model leans on: the "
        "share of its accuracy above chance that is kept when the squares of a 4x4 grid are shuffled changes by "
        f"{gain(shuffled, 'locality')}."
    )


def slips(rows: Rows) -> str:
    changes = []
    for r in rows.rows:
        who, _, what = r["category"].partition(": ")
        changes.append(f"{what} ({who}) {points(rows.at(category=r['category']))}")
    return (
        f"Test accuracy with each slip minus without it: {'; '.join(changes)}. An interval that holds 0 shows no "
        "change. Added centre: the second centre of a Gaussian head is added where it should multiply; training mode: "
        "tested without the switch to evaluation, so that batch norms use the test images. Slips that are not named "
        "were not trained at this scale."
    )


def stretched(rows: Rows) -> str:
    def factor(x: str) -> str:
        e = stats.estimate(rows.at(line="trained", x=x))
        return f"{math.exp(e.value):.1f} [{math.exp(e.low):.1f}, {math.exp(e.high):.1f}] n={e.n} times"

    first, last = map(factor, rows.ends(line="trained"))
    return (
        "The paper sees non-isotropic heads become long and thin mostly in the last layers. Here the larger of a "
        f"head's two precisions is {first} the smaller one in the first layer and {last} in the last (means of "
        f"logarithms); before training the two are nearly equal ({verdict_of('R-F2-noniso')})."
    )


def more_images(rows: Rows) -> str:
    def lead(seen: str) -> str:
        line = {"panel": f"{seen}: difference", "line": "ConvNet − ViT, paired"}
        first, last = rows.ends(**line)
        few, many = (points(rows.at(**line, x=x)) for x in (first, last))
        return f"{few} with {float(first):,.0f} training images and {many} with {float(last):,.0f}"

    return (
        "The paper expects that more data closes the gap between ConvNet and ViT. Here the small ViT falls further "
        f"behind: at equal epochs the ConvNet leads by {lead('equal epochs')}, at equal images seen by "
        f"{lead('equal images seen')}. At equal epochs this still moves while they train, so the claim on it "
        "(B-Q1-data) is open; nothing is said of far more images."
    )


def no_peak(rows: Rows) -> str:
    def error(x: str, split: str = "test") -> Series:
        return rows.at(panel="CIFAR-10, p = 1024", line=f"20 % noise, {split}", x=x)

    widths = ["2.0", "3.0", "4.0", "5.0", "6.0", "8.0", "16.0"]
    fits = next(x for x in widths if stats.estimate(error(x, "train")).value <= 0.01)
    narrow, fitting, wide = (error(x) for x in (widths[0], fits, widths[-1]))
    return (
        "The paper sees test error peak where a CNN begins to fit noisy labels, and fall again beyond. On 1,024 "
        "photographs, 20 % of them with wrong labels, and at the paper's own learning rate, test error only falls: "
        f"{percent(narrow)} at width 2, {percent(fitting)} at width {float(fits):g}, the first that fits its labels, "
        f"{percent(wide)} at width 16; from one to the next {points(minus(fitting, narrow))} and "
        f"{points(minus(wide, fitting))} ({verdict_of('L-F9-dd')})."
    )


def permuted(rows: Rows) -> str:
    digits = stats.estimate(rows.at(category="permuted", line="ViT block"))
    return (
        "The paper says that a ViT block is neither equivariant nor invariant. When tokens are permuted, its output "
        f"is permuted in the same way to {digits.value:.1f} digits (n={digits.n}), so it is equivariant to every "
        f"shift by whole patches; the patch embedding and the borders are not ({verdict_of('B-Q2-vitblock')})."
    )


def positions(rows: Rows) -> str:
    return (
        "Without position embeddings a ViT sees its patches as a set, without their order. Trained so from the start, "
        f"the small ViT of this study changes its test accuracy by {points(rows.at(category='no positions'))}, and "
        "reaches the rest without them."
    )


def post_norm(rows: Rows) -> str:
    def lead(depth: str) -> str:
        post, pre = (rows.at(line=line, x=depth) for line in ("v2, post-norm", "v1, pre-norm"))
        return f"{points(minus(post, pre))} with {float(depth):g} blocks"

    return (
        "The paper expects that post-norm loses more to pre-norm the larger the network. In this small ViT the test "
        f"accuracy of post-norm is higher, except where there is little depth: by {lead('2.0')}, {lead('4.0')}, "
        f"{lead('8.0')} ({verdict_of('B-vit-v2-depth')}). Depths at which training with post-norm is known to fail are "
        "not reached."
    )


def few_images(rows: Rows) -> str:
    def lead(line: str) -> str:
        isotropic, learned, content = (
            rows.at(kind="estimate", line=line, category=arm) for arm in ("isotropic", "learned", "learned + content")
        )
        return points(per_seed(lambda a, b, c: (a + b) / 2 - c, isotropic, learned, content))

    return (
        "The paper guesses that attention to content falls behind because it lacks the bias of position-only attention "
        "to what is near, so that more data would help it most. Here position-only attention (mean of isotropic and "
        f"learned) leads by {lead('few distinct images')} on 2,000 distinct images and by {lead('many')} on 45,000, at "
        f"equal images seen: no head start on few images is seen ({verdict_of('R-O1')})."
    )


FINDINGS = (
    Finding("The CNN learns the background shortcut late", "digits_on_backgrounds", "images_seen", shortcut),
    Finding("Few backgrounds mislead by their colour", "digits_on_backgrounds", "varied_colours", recoloured),
    Finding("“Local ViT” holds no attention, and static weights are better", "local_structure", "fig4_final", static),
    Finding("A small ViT is nearer to a bag of patches", "local_structure", "shuffled_squares", shuffled),
    Finding("Windows alone do not make small attention better", "local_structure", "ablation_effects", windowed),
    Finding("Heads grow thin in the first layer", "attention_as_convolution", "fig2_anisotropy", stretched),
    Finding("What each slip of the published code changes", "attention_as_convolution", "slips", slips),
    Finding(
        "On few images position-only attention has no lead over content",
        "attention_as_convolution",
        "data_size",
        few_images,
    ),
    Finding("On noisy photographs a wider CNN is only better", "learning_curves", "fig9_cnn_cifar", no_peak),
    Finding("What positions are worth to a small ViT", "block_ablations", "changes_of_sizes", positions),
    Finding("More images do not bring the small ViT nearer", "block_ablations", "data_size", more_images),
    Finding("Post-norm does not fall behind in a deeper small ViT", "block_ablations", "depth", post_norm),
    Finding("A ViT block is equivariant to permutations", "block_ablations", "alone", permuted),
)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
