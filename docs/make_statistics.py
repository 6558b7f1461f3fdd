"""Pictures of statistics.md, simulated, with the figure code of the reports: python docs/make_statistics.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import stdtr, stdtrit

from saccade import stats
from saccade.report import draw
from saccade.report.figures import Bars, Curves, Line, Panel

FOLDER = Path(__file__).with_name("statistics")
SEEDS = (3, 5, 8, 10, 15, 20)
REPEATS = 4000
RESAMPLED = 400
EXAMPLES = {  # a contrast per seed, in share of one: what four verdicts rest on
    "reproduced": (0.08, 0.11, 0.06, 0.10, 0.09),
    "contradicted": (-0.07, -0.04, -0.09, -0.06, -0.08),
    "equivalent": (0.004, -0.006, 0.002, 0.007, -0.003),
    "undecided": (0.12, -0.05, 0.09, -0.02, 0.04),
}


def simulated(label: str, family: str, xs: tuple[float, ...], hits: list[int], dash: str = "solid") -> Line:
    """How often something happened, of REPEATS, at each x."""
    found = tuple(stats.proportion(h, REPEATS) for h in hits)
    return Line(label, family, xs, found, ((),) * len(xs), dash)


def coverage() -> Curves:
    """How often a 95 % interval over n seeds holds the truth: Student t against a percentile bootstrap."""
    draw_from = np.random.default_rng(1)
    t_hits, b_hits = [], []
    for n in SEEDS:
        x = draw_from.standard_normal((REPEATS, n))
        half = stdtrit(n - 1, 0.975) * x.std(1, ddof=1) / np.sqrt(n)
        t_hits.append(int((np.abs(x.mean(1)) <= half).sum()))
        held = 0
        for row in x:
            means = row[draw_from.integers(0, n, (RESAMPLED, n))].mean(1)
            low, high = np.percentile(means, (2.5, 97.5))
            held += bool(low <= 0 <= high)
        b_hits.append(held)
    xs = tuple(map(float, SEEDS))
    lines = (simulated("Student t", "cnn", xs, t_hits), simulated("bootstrap", "attention", xs, b_hits, "dashed"))
    panel = Panel("", lines, "seeds")
    return Curves("An interval that promises 95 %: how often it holds the truth", (panel,), "coverage", y_percent=True)


def pairing() -> Curves:
    """Power at five seeds for a difference of one standard deviation, by what the two models of a seed share."""
    draw_from = np.random.default_rng(2)
    shared = (0.0, 0.25, 0.5, 0.75, 0.9)
    paired, apart = [], []
    for rho in shared:
        common = np.sqrt(rho) * draw_from.standard_normal((REPEATS, 5))
        a, b = (common + np.sqrt(1 - rho) * draw_from.standard_normal((REPEATS, 5)) for _ in range(2))
        a = a + 1
        d = a - b
        t = d.mean(1) / (d.std(1, ddof=1) / np.sqrt(5))
        paired.append(int((2 * stdtr(4, -np.abs(t)) < stats.ALPHA).sum()))
        t = (a.mean(1) - b.mean(1)) / np.sqrt((a.var(1, ddof=1) + b.var(1, ddof=1)) / 5)
        apart.append(int((2 * stdtr(8, -np.abs(t)) < stats.ALPHA).sum()))
    lines = (
        simulated("paired on the seed", "cnn", shared, paired),
        simulated("as if independent", "attention", shared, apart, "dashed"),
    )
    panel = Panel("", lines, "correlation of two models over seeds")
    return Curves("A true difference of one standard deviation, five seeds", (panel,), "found", y_percent=True)


def verdicts() -> Bars:
    """Four contrasts over five seeds with their intervals: above 0, below 0, near 0, wide."""
    found = {name: stats.estimate(values) for name, values in EXAMPLES.items()}
    line = Line("contrast", "cnn", tuple(map(float, range(4))), tuple(found.values()), tuple(EXAMPLES.values()))
    return Bars("What four verdicts rest on", tuple(found), (line,), y_label="contrast", y_percent=True)


FIGURES = {"coverage": coverage, "pairing": pairing, "verdicts": verdicts}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in FIGURES.items():
        draw.save(make(), FOLDER / f"{name}.svg")
