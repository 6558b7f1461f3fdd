"""Training accuracy through both transforms."""

import torch

from saccade.data.images import Source
from saccade.probes.through_transforms import through_transforms
from saccade.spec import Settings
from saccade.subjects.subject import Subject


def test_through_transforms_shows_the_same_images_moved():
    class Corner(torch.nn.Module):  # right when the left column is bright: sees shifts and mirrors, nothing else
        def forward(self, x):
            return torch.stack([x[:, 0, :, 0].mean(-1), x[:, 0, :, -1].mean(-1)] + [x[:, 0, 0, 0] - 9] * 8, 1)

    data = Source("photos", Settings(of="procedural_textures", hold_out=100, p=200), 0)
    images = data("train")
    subject = Subject(Corner(), images.mean, images.std)
    first, again = (list(through_transforms(subject, data, n=50, train=64)) for _ in range(2))
    assert [r.value for r in first] == [r.value for r in again]
    assert [(r.at["split"], r.at["transform"]) for r in first if r.metric == "loss"] == [
        ("test", "test"),
        ("train", "test"),
        ("train", "training"),
    ]
    losses = [r.value for r in first if r.metric == "loss"]
    assert losses[1] != losses[2]
    plain = Source("photos", Settings(of="procedural_textures", hold_out=100, p=200, augment="none"), 0)
    rows = [r.value for r in through_transforms(subject, plain, n=50, train=64) if r.metric == "loss"]
    assert rows[1] == rows[2]
