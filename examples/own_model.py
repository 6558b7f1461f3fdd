"""A model of your own: registered by one decorator, trained over paired seeds, compared with a built-in one.

python examples/own_model.py
"""

from torch import nn

import saccade as sc
from saccade.registry import model


@model(family="cnn", dial="width")
def two_convolutions(classes: int = 10, *, width: int = 8) -> nn.Module:
    """Two convolutions and a mean over positions."""
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes),
    )


if __name__ == "__main__":
    net = two_convolutions()
    drawn = {"digits": "procedural_digits", "scenes": "procedural_textures"}  # leave this out for MNIST on CIFAR-10
    table = sc.probe(net, [sc.Probe("accuracy", splits=("id", "ood"), n=200)], "digits_on_backgrounds", data_args=drawn)
    print("untrained:", {row["split"]: row["value"] for row in table})
