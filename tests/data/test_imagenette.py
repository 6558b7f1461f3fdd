"""Images from class folders."""

import numpy as np
import pytest
import torch

from saccade.data.imagenette import imagenette
from saccade.spec import SaccadeError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from PIL import Image

    root = tmp_path_factory.mktemp("imagenette")
    for part, count in (("train", 6), ("val", 2)):
        for label in range(3):
            (root / part / f"n{label}").mkdir(parents=True)
            for i in range(count):
                shade = np.full((20 + 4 * i, 30, 3), 80 * label, np.uint8)
                shade[:, :15] += 10
                Image.fromarray(shade).save(root / part / f"n{label}" / f"{i}.png")
    return str(root)


def test_imagenette_reads_class_folders(folder):
    shared = {"seed": 0, "size": 16, "hold_out": 3, "folder": folder}
    train, held, test = (imagenette(s, **shared) for s in ("train", "held_out", "test"))
    assert (len(train), len(held), len(test)) == (15, 3, 6) and train.classes == 3
    assert train.x.shape[1:] == (3, 16, 16) and torch.bincount(held.y).tolist() == [1, 1, 1]
    for images in (train, test):
        assert torch.equal(images.x[:, 0, 8, 12].long(), 80 * images.y)
        assert torch.equal(images.x[:, 0, 8, 2].long(), 80 * images.y + 10)
    moved = train.batch(torch.arange(15), torch.Generator().manual_seed(0))
    assert not torch.equal(moved, train.batch(torch.arange(15)))
    assert torch.equal(imagenette("train_plain", **shared).x, train.x)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"folder": "nowhere"}, "unpack Imagenette there"),
        ({"size": 2}, "size of imagenette must be"),
        ({"crop": 0.0}, "crop of imagenette must be"),
        ({"hold_out": 99}, "must leave images"),
        ({"p": 99}, "must leave images"),
        ({"augment": "blur"}, "augment of imagenette must be one of"),
    ],
)
def test_imagenette_refuses_in_a_sentence(folder, change, says):
    with pytest.raises(SaccadeError, match=says):
        imagenette("train", **{"seed": 0, "size": 16, "hold_out": 3, "folder": folder, **change})


def test_a_broken_image_gets_a_sentence(folder, tmp_path):
    for label in ("a", "b"):
        (tmp_path / "train" / label).mkdir(parents=True)
        (tmp_path / "train" / label / "0.jpg").write_bytes(b"no image")
    with pytest.raises(SaccadeError, match="cannot be read as an image"):
        imagenette("train", seed=0, folder=str(tmp_path))
