"""Is local structure what a CNN knows and attention has to learn?   Feer, Hilmarsson, Noruišis, Ray, ETH Zurich 2022

    saccade run local_structure --scale smoke     under a minute, no verdicts
    saccade run local_structure --scale small     five seeds, 32 pixels, one recipe: at most 15 minutes on two cores
    saccade run local_structure --scale large     twelve times the training and a second ablation: about three hours
    saccade run local_structure --scale paper     the report's nets and recipes at 224 pixels: needs GPUs
    torchrun --nproc-per-node 4 -m saccade run local_structure --scale paper     one run at a time over four of them

A CNN, a ViT and local nets are trained on CIFAR-10 from scratch, then asked about pictures of four things, about small
things on large backgrounds and about shuffled pictures. An ablation switches locality, weight sharing and dynamic
weights one by one.
"""

from saccade.studies.local_structure.claims import STUDY

__all__ = ["STUDY"]
