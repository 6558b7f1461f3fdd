"""Rows of a lab as a pandas frame: accuracy over seeds, mean and interval, without knowing where files lie.

saccade run digits_on_backgrounds --scale smoke
python examples/plot_over_seeds.py lab smoke
"""

import sys

from saccade import stats
from saccade.lab import pipeline


def main(lab: str = "lab", scale: str = "smoke") -> None:
    session = pipeline.open_session("digits_on_backgrounds", scale, lab)
    frame = session.table().to_pandas()
    ood = frame[(frame.metric == "accuracy") & (frame.split == "ood")]
    for (arm, x), group in ood.groupby(["arm", "backgrounds"]):
        print(f"{arm:<8} x={x:<3.0f} {stats.estimate(list(group.value)).short()} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
