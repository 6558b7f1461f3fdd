"""The file formats that MNIST, Fashion-MNIST and CIFAR-10 are handed around in, decoded from untrusted bytes.

A reader gives the bytes of a named file, or None when it is not there; a decoder makes the four arrays
train_x, train_y, test_x, test_y from a reader, or gives None when its files are not there.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import math
import pickle
import pickletools
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

Bytes = NDArray[np.uint8]
Reader = Callable[[str], bytes | None]
Decoder = Callable[[Reader], dict[str, Bytes] | None]

# The largest file of any of these sets has 47 MB; a compressed one that grows beyond this is something else.
LARGEST = 64 * 2**20

# And of a whole archive: the six batches of CIFAR-10 are 184 MB.
MOST_UNPACKED, MOST_MEMBERS, LONGEST_HEAD = 512 * 2**20, 1000, 2**16

MOST_ROWS = 10_000  # images in a batch of CIFAR-10

# Both spellings are in use: the hyphens are the original, the dots come from an old unpacking tool.
IDX = {
    "train_x": ("train-images-idx3-ubyte", "train-images.idx3-ubyte"),
    "train_y": ("train-labels-idx1-ubyte", "train-labels.idx1-ubyte"),
    "test_x": ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"),
    "test_y": ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"),
}
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # spelled so in the package


class Unusable(Exception):
    """This source cannot be used; the text says why, for the list of what was tried."""


def places(
    root: Path, layout: str, subfolders: tuple[str, ...], archives: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[], Reader]]]:
    """Where the files of a set may lie below `root` (a folder, or an archive itself), likeliest first."""
    if root.is_file():
        yield root.name, partial(open_archive, root, layout)
        return
    for sub in ("", *subfolders):
        folder = root / sub
        if folder.is_dir():
            yield sub or root.name or str(root), partial(open_folder, folder)
            for name in archives:
                if (folder / name).is_file():
                    yield str(Path(sub) / name), partial(open_archive, folder / name, layout)


def open_folder(folder: Path) -> Reader:
    def read(name: str) -> bytes | None:
        path = folder / name
        if not path.is_file():
            return None
        try:
            with path.open("rb") as file:
                return _limited(file, name)
        except OSError as error:
            raise Unusable(f"{name} cannot be read: {error.strerror or error}") from error

    return read


def open_archive(path: Path, layout: str) -> Reader:
    """The set's files in a tar, read to memory: nothing is unpacked, so no member chooses where it lands."""
    found: dict[str, bytes] = {}
    try:
        with _unpacked(path) as stream, tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= MOST_MEMBERS:
                    raise Unusable(f"{path.name} has too many files to be this set")
                name = member.name.rsplit("/", 1)[-1]
                if member.isreg() and name in WANTED[layout] and name not in found:
                    file = archive.extractfile(member)
                    assert file is not None  # so for every regular file
                    with stream.reading(LARGEST + 1):
                        found[name] = _limited(file, name)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise Unusable(f"{path.name} is not a whole archive: {error}") from error
    return found.get


PACKED: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


class _unpacked:
    """The bytes of a packed file, but not more than any of these sets has, and heads of members in small pieces only.

    A head may say that a gigabyte of names follows, which the reader of archives would take into memory at once.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            start = file.read(6)
        opened = next((opened for mark, opened in PACKED.items() if start.startswith(mark)), None)
        self.file, self.most = opened(path) if opened else path.open("rb"), LONGEST_HEAD

    def __enter__(self) -> _unpacked:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    @contextlib.contextmanager
    def reading(self, most: int) -> Iterator[None]:
        before, self.most = self.most, most
        try:
            yield
        finally:
            self.most = before

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.most:
            raise tarfile.ReadError("a head of a file in it is too long")
        return bytes(self.file.read(size))

    def seek(self, to: int, whence: int = 0) -> int:
        if whence or to > MOST_UNPACKED:
            raise tarfile.ReadError("it unpacks to too much")
        return int(self.file.seek(to))

    def tell(self) -> int:
        return int(self.file.tell())


def _limited(file: IO[bytes], name: str) -> bytes:
    raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise Unusable(f"{name} is too large to belong to this set")
    return raw


def read_idx(read: Reader, suffixes: tuple[str, str] = ("", ".gz")) -> dict[str, Bytes] | None:
    """The MNIST family's own format, plain or gzipped, in the order of preference `suffixes`."""
    arrays = {}
    for array, spellings in IDX.items():
        names = [spelling + suffix for suffix in suffixes for spelling in spellings]
        found = next(((name, raw) for name in names if (raw := read(name)) is not None), None)
        if found is None:
            return None
        arrays[array] = _parse_idx(*found)
    return arrays


def _parse_idx(name: str, raw: bytes) -> Bytes:
    if name.endswith(".gz"):
        try:
            with gzip.open(io.BytesIO(raw)) as file:
                raw = _limited(cast("IO[bytes]", file), name)
        except (EOFError, zlib.error, OSError) as error:
            raise Unusable(f"{name} is not a whole gzip file: {error}") from error
    # Two zero bytes, 8 for unsigned bytes, the number of axes, then each axis as a big-endian 32-bit number.
    axes = raw[3] if raw[:3] == b"\x00\x00\x08" and len(raw) > 3 else 0
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    pixels = np.frombuffer(raw, np.uint8)[4 + 4 * axes :]
    if axes not in (1, 3) or pixels.size != math.prod(shape) or not pixels.size:
        raise Unusable(f"{name} is not a whole idx file of bytes")
    return pixels.reshape(shape)


def read_binary(read: Reader) -> dict[str, Bytes] | None:
    """CIFAR-10's binary version: records of a label byte and 3072 pixels, no header."""

    def parse(name: str, raw: bytes) -> tuple[Bytes, Bytes]:
        if len(raw) % 3073:
            raise Unusable(f"{name} is not a whole number of records")
        records = np.frombuffer(raw, np.uint8).reshape(-1, 3073)
        return records[:, 1:], records[:, 0]

    return _join(read, ".bin", parse)


def read_python(read: Reader) -> dict[str, Bytes] | None:
    """CIFAR-10's Python version: pickles, read without running anything that they name."""
    return _join(read, "", _parse_pickle)


def _join(read: Reader, suffix: str, parse: Callable[[str, bytes], tuple[Bytes, Bytes]]) -> dict[str, Bytes] | None:
    arrays = {}
    for split, batches in BATCHES.items():
        raws = {batch + suffix: read(batch + suffix) for batch in batches}
        parsed = [parse(name, raw) for name, raw in raws.items() if raw is not None]
        if len(parsed) < len(batches):
            return None
        arrays[f"{split}_x"] = np.concatenate([x for x, _ in parsed]).reshape(-1, 3, 32, 32)
        arrays[f"{split}_y"] = np.concatenate([y for _, y in parsed])
    return arrays


class _PickledArray:
    """Stands in for numpy.ndarray: keeps the state as it comes, so that numpy never sees unchecked state."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _PickledType:
    """Stands in for numpy.dtype."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass


def _reconstruct(*_: Any) -> _PickledArray:
    return _PickledArray()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    # Python 3 writes bytes to old protocols this way. Other codecs include decompressors, so only this one.
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("an encoding other than latin1")
    return text.encode("latin1")


class _Restricted(pickle.Unpickler):
    allowed = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _PickledArray,
        ("numpy", "dtype"): _PickledType,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no CIFAR-10 batch needs")
        return self.allowed[module, name]


def _check_memo(raw: bytes) -> None:
    """A number of a few bytes would make the unpickler keep room for that many objects."""
    for opcode, argument, _ in pickletools.genops(raw):
        if "PUT" in opcode.name and argument is not None and int(argument) > len(raw):
            raise pickle.UnpicklingError("it numbers more objects than it can hold")


def _parse_pickle(name: str, raw: bytes) -> tuple[Bytes, Bytes]:
    try:
        _check_memo(raw)
        batch = _Restricted(io.BytesIO(raw), encoding="bytes").load()
        batch = {k.decode() if isinstance(k, bytes) else k: v for k, v in batch.items()}
        _, shape, kind, fortran, pixels = batch["data"].state
        if kind.code not in ("u1", b"u1"):
            raise ValueError("its pixels are not bytes")
        x = np.frombuffer(pixels, np.uint8).reshape(shape, order="F" if fortran else "C")
        return x.reshape(-1, 3072), np.array(batch["labels"], np.uint8)
    # A broken or hostile pickle can raise nearly anything; all of it means the same here.
    except Exception as error:
        raise Unusable(f"{name} is refused: {error or type(error).__name__}") from error


def _opened(raw: bytes) -> Image.Image:
    """The header of a PNG, without Pillow's warning about its size, which is checked here."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(raw), formats=["PNG"])


def read_png(read: Reader) -> dict[str, Bytes] | None:
    """CIFAR-10 as wide PNGs: a row of 1024 RGB pixels for each image; labels as JSON lists."""
    arrays = {}
    for split, batches in BATCHES.items():
        raws = {f"{batch}.png": read(f"{batch}.png") for batch in batches}
        labels = read(LABELS[split])
        pages = []
        for name, raw in raws.items():
            if raw is None or labels is None:
                return None
            try:
                with _opened(raw) as image:
                    # Before a pixel is decoded: a header of half a megabyte can ask for gigabytes.
                    if image.mode != "RGB" or image.width != 1024 or not 0 < image.height <= MOST_ROWS:
                        raise Unusable(f"{name} is not an RGB image 1024 pixels wide and at most {MOST_ROWS} high")
                    pages.append(np.asarray(image).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
            except Unusable:
                raise
            # A broken or hostile PNG (malformed text chunks, say) raises nearly anything; all of it means the same.
            except Exception as error:
                raise Unusable(f"{name} is not a whole PNG file") from error
        arrays[f"{split}_x"] = np.concatenate(pages)
        try:
            arrays[f"{split}_y"] = np.array(json.loads(labels or b""), np.uint8)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unusable(f"{LABELS[split]} is not a list of labels") from error
    return arrays


# Both orders for idx: a folder often has the plain and the gzipped file, and one of them may be damaged.
DECODERS: dict[str, tuple[Decoder, ...]] = {
    "idx": (read_idx, partial(read_idx, suffixes=(".gz", ""))),
    "cifar": (read_binary, read_python, read_png),
}
WANTED: dict[str, frozenset[str]] = {
    "idx": frozenset(s + end for spellings in IDX.values() for s in spellings for end in ("", ".gz")),
    "cifar": frozenset(b + end for bs in BATCHES.values() for b in bs for end in ("", ".bin", ".png"))
    | frozenset(LABELS.values()),
}
