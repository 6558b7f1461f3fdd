"""Does attention see the digit where a convolution sees the background?   de Kruijff 2022, TU Delft

    saccade run digits_on_backgrounds --scale smoke    under a minute, no verdicts
    saccade run digits_on_backgrounds --scale small    verdicts with five seeds, at most 15 minutes on two cores
    saccade run digits_on_backgrounds --scale large    about two hours on two cores
    saccade run digits_on_backgrounds --scale paper    the thesis' size: 140 trainings of both nets and the extra arms

Each digit class meets only x pictures in training. Tested on unseen digits over those pictures (in-distribution,
ID) and over unseen pictures (out-of-distribution, OOD), then with the digit alone moved, turned or shrunk.
"""

from saccade.studies.digits_on_backgrounds.claims import STUDY

__all__ = ["STUDY"]
