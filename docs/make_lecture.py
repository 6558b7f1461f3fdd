"""Writes examples/lecture.ipynb, without outputs: python docs/make_lecture.py

The cells stand here as text, because a notebook is hard to review. tests/test_lecture.py runs the notebook.
"""

from __future__ import annotations

import json
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "lecture.ipynb"

CELLS = (
    (
        "markdown",
        """# Does attention see like a convolution?

One lecture on inductive bias, with questions for students and answers from the lab. Everything runs at `smoke`
scale on images that a program draws, in minutes on a laptop, offline. `smoke` shows how things are done; it
gives no verdicts, and its numbers say nothing of MNIST or CIFAR-10. Set `DRAWN = {}` and `SCALE = "small"` for
real data and verdicts.""",
    ),
    (
        "code",
        """import torch
from torch import nn

import saccade as sc
from saccade import shipped, stats
from saccade.analysis import convolution, equivariance

SCALE, LAB = "smoke", "lecture_lab"
DRAWN = {"digits": "procedural_digits", "scenes": "procedural_textures"}""",
    ),
    (
        "markdown",
        """## 1. What is the difference, exactly?

**Question.** A convolution adds up neighbours with fixed weights. Attention adds up everything with weights
that depend on content. Can attention compute a convolution? How many heads does a 3x3 kernel take?""",
    ),
    (
        "code",
        """conv = nn.Conv2d(3, 8, 3, padding=1)
attention = convolution.to_attention(conv)
x = torch.rand(2, 3, 16, 16)
with torch.no_grad():
    print("largest difference:", float((attention(x) - conv(x)).abs().max()))""",
    ),
    (
        "markdown",
        """**Answer from the lab.** Yes: one head per offset of the kernel, nine for 3x3, and the largest difference is
rounding. So attention is not weaker. What differs is what it starts from and what it is free to become.

## 2. What does a layer know before it has seen an image?

**Question.** Shift the input by one pixel: which layers shift with it? Which do not, and why? Guess before
running.""",
    ),
    (
        "code",
        """untrained = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(8 * 64, 10),
)
found = equivariance.measure(untrained, torch.rand(4, 3, 16, 16), moves=[equivariance.Move("shift", 1)])
for f in found.at(scope="alone", measure="equivariance", region="whole"):
    print(f"{f.layer:<3} {f.move} error {f.error:.3g} {f.verdict}")
print(found.skipped)""",
    ),
    (
        "markdown",
        """**Answer from the lab.** The convolution and the ReLU move with the image exactly. Pooling with stride
2 cannot
follow a shift by one. The flattened read-out has no map left to speak of: LeNet's own head is where translation
is lost.

## 3. A study, end to end

**Question.** Each digit class meets only a few backgrounds in training. What can a model do that never looks at
the digit? What would you measure to catch it?""",
    ),
    (
        "code",
        """session = sc.run("digits_on_backgrounds", SCALE, lab=LAB, jobs=1, quiet=True, **DRAWN)
table = session.table()
for arm in ("CNN", "MHA"):
    for split in ("id", "ood"):
        print(arm, split, table.series("accuracy", arm=arm, split=split, backgrounds=8))""",
    ),
    (
        "markdown",
        """**Answer from the lab.** Test the same digits on the class's own backgrounds (`id`) and on unseen ones
(`ood`):
the gap is what the background gave away. With two seeds and 320 images nothing has been learned, and the lab
says so instead of giving a verdict:""",
    ),
    (
        "code",
        """for verdict in session.verdicts()[:5]:
    print(f"{verdict.claim:<12} {verdict.label:<40} {verdict.remark}")""",
    ),
    (
        "markdown",
        """## 4. When is a difference a difference?

**Question.** Model A is right in 71, 69, 72, 70 and 71 % of cases over five seeds, model B in 68, 67, 70, 66
and 69 %. Is A better? What if the seeds were not paired? How many seeds would half of this difference need?""",
    ),
    (
        "code",
        """a = {0: 0.71, 1: 0.69, 2: 0.72, 3: 0.70, 4: 0.71}
b = {0: 0.68, 1: 0.67, 2: 0.70, 3: 0.66, 4: 0.69}
found = stats.greater(a, b)
print("paired:", found.estimate.text(), "p =", round(found.p, 5))
print("seeds for an effect of one standard deviation:", stats.seeds_needed(1.0))
print("equal within 2 points? p =", round(stats.equivalent(a, b, margin=0.02).p, 3))""",
    ),
    (
        "markdown",
        """**Answer from the lab.** Paired, the difference per seed is the observation, and five of them are
enough here.
That a difference is not found would not make the two equal: that needs a margin, stated before looking.

## 5. Trained models

**Question.** These came with saccade, trained on MNIST over CIFAR-10 with x backgrounds per digit class. Which
one looks at the digit? What does x do?""",
    ),
    (
        "code",
        """for card in shipped.cards().values():
    (seen, n), (unseen, _) = card.accuracy("id"), card.accuracy("ood")
    print(f"{card.name:<9} seen backgrounds {seen:.1%}, unseen {unseen:.1%} of {n:,} images")""",
    ),
    (
        "markdown",
        """**Answer from the lab.** Compare the two columns: a model can be nearly perfect on backgrounds it knows
and lost
on others. One model of each kind is an illustration, not evidence; the study over seeds is
`results/digits_on_backgrounds`. Now look for yourself: `saccade demo --look`.

## Homework

1. Add an arm of your own to the study (`docs/tutorials/extend.md`), register a claim before you run it, and
   report whatever comes out.
2. Profile a model of your own (`docs/tutorials/profile.md`). Which of its answers surprise you, and which test
   would show that you are wrong?""",
    ),
)


def notebook() -> str:
    cells = []
    for i, (kind, text) in enumerate(CELLS):
        run = {"execution_count": None, "outputs": []} if kind == "code" else {}
        source = text.splitlines(keepends=True)
        cell = {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, **run, "source": source}
        cells.append(dict(sorted(cell.items())))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
