"""Power of looking at 5, 10 and 20 seeds against a fixed number: the table in statistics.md, simulated anew.

python docs/make_power.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import stdtr

from saccade.stats import ALPHA, sequential

PAGE = Path(__file__).with_name("statistics.md")
START, END = "<!-- power: made by docs/make_power.py -->", "<!-- end of power -->"
EFFECTS = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
REPEATS = 20_000


def p_values(values: np.ndarray) -> np.ndarray:
    """Two-sided p of a t test per row."""
    n = values.shape[1]
    t = values.mean(1) / (values.std(1, ddof=1) / np.sqrt(n))
    return 2 * stdtr(n - 1, -np.abs(t))


def table() -> str:
    draws = np.random.default_rng(0).standard_normal((REPEATS, sequential.LOOKS[-1]))
    lines = [
        "| true effect, in standard deviations of the paired difference | 5 seeds | 10 seeds | 20 seeds "
        "| until decided | seeds used, mean |",
        "|---|---|---|---|---|---|",
    ]
    for effect in EFFECTS:
        p = {n: p_values(draws[:, :n] + effect) for n in sequential.LOOKS}
        fixed = [f"{(p[n] < ALPHA).mean():.1%}" for n in sequential.LOOKS]
        decided, used = np.zeros(REPEATS, dtype=bool), np.full(REPEATS, float(sequential.LOOKS[-1]))
        for n, level in sequential.levels().items():
            now = ~decided & (p[n] < level)
            used[now] = n
            decided |= now
        lines.append(f"| {effect:g} | {' | '.join(fixed)} | {decided.mean():.1%} | {used.mean():.1f} |")
    return "\n".join(lines)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
