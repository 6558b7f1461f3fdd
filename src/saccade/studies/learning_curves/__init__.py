"""How does error fall with training points, for a CNN and a ViT with one size dial each?   Catteau, TP IV, EPFL

    saccade run learning_curves --scale smoke     under a minute, no verdicts
    saccade run learning_curves --scale small     five seeds, p up to 1024: at most 15 minutes on two cores
    saccade run learning_curves --scale large     deep nets, double descent, p up to 8192: two to three hours
    saccade run learning_curves --scale paper     the report's size
    saccade run learning_curves --set sweep=fig12     only the runs behind one figure; others re-use them

CNN(h) has h, 2h, 4h channels; ViT(d,H,L) has dimension d, H heads, L layers. Errors are fitted as a power alpha of the
number of points p, over the sizes at which a net interpolates (training error at most 1 %).
"""

from saccade.studies.learning_curves.claims import STUDY

__all__ = ["STUDY"]
