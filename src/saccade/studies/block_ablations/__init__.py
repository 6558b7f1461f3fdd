"""ConvNet against ViT on few pictures, and what changes inside their blocks do.   Lehnhausen, Alves Brito, Matthes 2025

    saccade run block_ablations --scale smoke     under a minute, no verdicts
    saccade run block_ablations --scale small     five seeds, CIFAR-10, small nets: at most 15 minutes on two cores
    saccade run block_ablations --scale large     smaller patches, deeper nets, longer training: hours on two cores
    saccade run block_ablations --scale paper     ResNet-18 and the report's ViT: for a GPU
    saccade run block_ablations --set data=imagenette folder=DIR    the report's data, by inference

One thing changes at a time; all arms of a seed see the same pictures in the same order. Layers are also asked directly
whether they move with the picture, trained and untrained.
"""

from saccade.studies.block_ablations.claims import STUDY

__all__ = ["STUDY"]
