"""The way into C: nothing gets there unchecked, and a build with sanitizers finds nothing to object to."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from saccade.data.images import Pasted, Source
from saccade.layers import kernels
from saccade.spec import SaccadeError, Settings

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "saccade"


def test_every_pointer_comes_from_one_place():
    told = re.compile(r"(?<!untyped_storage\(\))\.data_ptr\(")  # which tensors share memory may be asked elsewhere
    users = [p.relative_to(SOURCE) for p in SOURCE.rglob("*.py") if told.search(p.read_text("utf-8"))]
    assert users == [Path("layers/kernels/__init__.py")]


@pytest.mark.parametrize(
    "wrong",
    [
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 4),
        torch.zeros(6),
        torch.zeros(3, 2).T,
        torch.zeros(2, 6)[:, ::2],
        torch.zeros(2, 3, device="meta"),
    ],
    ids=["dtype", "size", "rank", "strides", "gaps", "device"],
)
def test_a_kernel_gets_no_address_of_a_tensor_that_does_not_fit(wrong):
    assert kernels.address(torch.zeros(2, 3), (2, 3)) > 0
    with pytest.raises(ValueError, match="a kernel takes"):
        kernels.address(wrong, (2, 3))


@pytest.mark.parametrize("kernel", ["on", "off"])
@pytest.mark.parametrize("swapped", [{"scenes": "procedural_digits"}, {"digits": "procedural_textures"}])
def test_sets_of_the_wrong_shape_are_refused_alike_with_and_without_the_kernel(swapped, kernel, monkeypatch):
    if kernel == "off":
        monkeypatch.setattr(kernels, "paste", lambda: None)
    drawn = {"digits": "procedural_digits", "scenes": "procedural_textures", "backgrounds": 2}
    with pytest.raises(SaccadeError) as error:
        Source("digits_on_backgrounds", Settings({**drawn, **swapped}), 0)("train")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("small", "size", "channels"), [(5, 8, 1), (4, 9, 3), (7, 7, 2)])
def test_pasting_gives_the_same_bits_with_and_without_the_kernel(small, size, channels, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    ink = torch.randint(256, (6, small, small), generator=draw).byte()
    scenes = torch.randint(256, (4, channels, size, size), generator=draw).byte()
    images = Pasted(torch.zeros(6), 10, (0.0,), (1.0,), ink, scenes, torch.arange(6) % 4)
    by_kernel = images.batch(torch.arange(6))
    monkeypatch.setattr(kernels, "paste", lambda: None)
    assert torch.equal(images.batch(torch.arange(6)), by_kernel)


def _sanitized(folder, *words):
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no address sanitizer here")
    env = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "SACCADE_DATA": str(folder)}
    command = [sys.executable, str(HERE / "sanitized.py"), *words, "sanitized"]
    return subprocess.run(command, env={**env, "CC": "gcc"}, capture_output=True, text=True, timeout=1200)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_all_kernels_are_clean_over_random_shapes_under_sanitizers(tmp_path):
    caught = _sanitized(tmp_path, "outside")
    assert caught.returncode and "heap-buffer-overflow" in caught.stderr  # so it does watch torch's memory
    done = _sanitized(tmp_path, "12")
    assert done.stdout.endswith("clean\n"), done.stderr[-3000:]


@pytest.mark.skipif(bool(kernels.why_not()), reason="needs a C compiler")
@pytest.mark.parametrize("damage", ["empty", "half", "flipped", "no checksum", "a folder for a checksum"])
def test_a_damaged_kernel_in_the_cache_is_built_again_and_never_loaded(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    assert kernels.load("paste.c", ()) is not None
    (library,) = (tmp_path / "kernels").glob("paste-*.so")
    whole = library.read_bytes()
    spoiled = {"empty": b"", "half": whole[: len(whole) // 2], "flipped": bytes(b ^ 0x55 for b in whole)}
    library.unlink()  # this process has it open
    library.write_bytes(spoiled.get(damage, whole))
    if "checksum" in damage:
        library.with_suffix(".sha256").unlink()
    if "folder" in damage:
        library.with_suffix(".sha256").mkdir()
    assert (kernels.load("paste.c", ()) is None) == ("folder" in damage)
    assert library.read_bytes() == whole
