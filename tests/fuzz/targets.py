"""Everything that reads bytes from outside: seeds to start from, and what it may do with any other bytes.

A target may return or raise one of its own refusals. Anything else (another exception, a hang, a crash, memory without
bound) is a defect.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.cli import parsing
from saccade.data.fetch import formats
from saccade.data.fetch.formats import Unusable
from saccade.lab import export, lease, plan, registration
from saccade.lab.store import Lab, seal
from saccade.spec import Probe, Recipe, Run, SaccadeError, Settings, Task, plain
from saccade.subjects import scores


@dataclass(frozen=True)
class Target:
    """`parse` gets the bytes and a folder of its own. `words` are pieces that mean something to it."""

    name: str
    seeds: tuple[bytes, ...]
    parse: Callable[[bytes, Path], object]
    refusals: tuple[type[BaseException], ...]
    words: tuple[bytes, ...] = ()


PARSERS = (
    "spec",
    "done",
    "rows",
    "settings",
    "idx",
    "idx.gz",
    "CIFAR binary",
    "CIFAR pickle",
    "CIFAR PNG",
    "archive",
    "npz",
    "safetensors",
    "score CSV",
    "registration",
    "export",
    "export file",
    "lease",
)
RUN = Run("lenet", "points", Recipe(images=32, lr=0.01), 3, Settings(width=2, dims=(1, 2)), Settings(of="mnist"))
JSON = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"NaN",
    b"1" * 400,
    b"\\ud800",
    b"[" * 3000,
)


def sealed(change: bytes) -> bytes:
    """Whoever changes a file can also make its checksum right; what is no JSON stays as it is."""
    try:
        document = json.loads(change)
        return seal(document) if isinstance(document, dict) else change
    except (ValueError, RecursionError, SaccadeError, TypeError):
        return change


def spec(raw: bytes, folder: Path) -> None:
    """run.json, as `saccade lab verify` and every plan read it."""
    lab = Lab(folder)
    home = lab.folder(RUN.key)
    home.mkdir(parents=True, exist_ok=True)
    (home / "run.json").write_bytes(sealed(raw))
    lab.damage(RUN.key)


def done(raw: bytes, folder: Path) -> None:
    lab = Lab(folder)
    home = lab.folder(RUN.key)
    home.mkdir(parents=True, exist_ok=True)
    (home / "done.json").write_bytes(sealed(raw))
    lab.damage(RUN.key)
    lab.done(RUN.key)


def rows(raw: bytes, folder: Path) -> None:
    """A measurement, as a report reads it."""
    lab, probe = Lab(folder), Probe("accuracy")
    home = lab.folder(RUN.key)
    (home / "rows").mkdir(parents=True, exist_ok=True)
    (home / "rows" / f"{probe.key}.json").write_bytes(sealed(raw))
    (home / "done.json").write_bytes(
        seal({"outcome": "finished", "reason": "", "seconds": 1.0, "step": 1, "files": {}})
    )
    lab.damage(RUN.key)
    plan.table_of(lab, [Task(RUN, (probe,))]).to_csv()


def settings(raw: bytes, folder: Path) -> None:
    parsing.settings([raw.decode("utf-8", "replace")])


def idx(raw: bytes, folder: Path) -> None:
    formats.read_idx(lambda name: raw)


def idx_gz(raw: bytes, folder: Path) -> None:
    formats.read_idx(lambda name: raw, (".gz", ""))


def cifar_binary(raw: bytes, folder: Path) -> None:
    formats.read_binary(lambda name: raw)


def cifar_python(raw: bytes, folder: Path) -> None:
    formats.read_python(lambda name: raw)


def cifar_png(raw: bytes, folder: Path) -> None:
    formats.read_png(lambda name: b"[1, 2]" if name.endswith(".json") else raw)


def archive(raw: bytes, folder: Path) -> None:
    path = folder / "a.tar.gz"
    path.write_bytes(raw)
    formats.open_archive(path, "cifar")("data_batch_1.bin")


def npz(raw: bytes, folder: Path) -> None:
    """saccade writes such files and reads none; this is how one must be read."""
    with np.load(io.BytesIO(raw), allow_pickle=False) as kept:
        for name in kept.files:
            kept[name]


def safetensors(raw: bytes, folder: Path) -> None:
    from safetensors.torch import load

    load(raw)


def csv(raw: bytes, folder: Path) -> None:
    path = folder / "scores.csv"
    path.write_bytes(raw)
    sheet = scores.read_scores(path)
    scores.read_labels(path, sheet)


def registered(raw: bytes, folder: Path) -> None:
    (folder / registration.FILE).write_bytes(sealed(raw))
    registration.sentences(registration.read(folder), ())


def exported(raw: bytes, folder: Path) -> None:
    """The lines of an export, packed with a checksum that is right."""
    import hashlib

    text = raw + b"\n" if not raw.endswith(b"\n") else raw
    lines = json.dumps({"format": export.FORMAT}).encode() + b"\n" + text
    whole = lines + json.dumps({"sha256": hashlib.sha256(lines).hexdigest()}).encode() + b"\n"
    path = folder / "runs.jsonl.xz"
    path.write_bytes(lzma.compress(whole, preset=0))
    export.read(Lab(folder / "lab"), path)


def export_file(raw: bytes, folder: Path) -> None:
    path = folder / "runs.jsonl.xz"
    path.write_bytes(raw)
    export.read(Lab(folder / "lab"), path)


def leased(raw: bytes, folder: Path) -> None:
    path = folder / "lease"
    path.write_bytes(raw)
    sight = lease.look(path)
    if sight is not None:
        lease.alive(path, sight)


def _idx_seed(axes: int) -> bytes:
    shape = (2, 3, 3)[:axes]
    return b"\x00\x00\x08" + bytes([axes]) + b"".join(struct.pack(">I", n) for n in shape) + bytes(int(np.prod(shape)))


def _npz_seed() -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, a=np.arange(6), b=np.zeros((2, 2), bool))
    return out.getvalue()


def _tar_seed() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        entry = tarfile.TarInfo("cifar/data_batch_1.bin")
        entry.size = 3073
        made.addfile(entry, io.BytesIO(bytes(3073)))
    return out.getvalue()


def _png_seed() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (1024, 1)).save(out, "PNG")
    return out.getvalue()


def _safetensors_seed() -> bytes:
    import torch
    from safetensors.torch import save

    return save({"a": torch.zeros(2, 3), "b": torch.arange(4)})


def _pickle_seed() -> bytes:
    import pickle

    return pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [3]}, protocol=2)


def _registration_seed() -> bytes:
    entry = {
        "date": "2026-01-01",
        "version": "1",
        "runs": 3,
        "claims": {"A": {"declared": {"tested": "x"}, "test": ""}},
    }
    return json.dumps({"study": "s", "entries": [entry, entry]}).encode()


def _export_seed() -> bytes:
    document = {
        "key": RUN.key,
        "described": {"run": plain(RUN), "facts": {}},
        "done": {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 1},
        "rows": {f"{Probe('accuracy').key}.json": {"probe": "accuracy", "settings": {}, "version": 1, "rows": []}},
    }
    return json.dumps(document).encode()


def targets() -> Iterator[Target]:
    import pickle

    import safetensors as st

    run = json.dumps({"run": plain(RUN), "facts": {"versions": {}}}).encode()
    yield Target("spec", (run,), spec, (SaccadeError,), JSON)
    ended = {"outcome": "finished", "reason": "", "seconds": 1.0, "step": 1, "files": {"weights.safetensors": "ab"}}
    yield Target("done", (json.dumps(ended).encode(),), done, (SaccadeError,), JSON)
    row = {"metric": "accuracy", "value": 0.5, "n": 3, "at": {"split": "id"}}
    measured = {"probe": "accuracy", "settings": {}, "version": 1, "rows": [row, row]}
    yield Target("rows", (json.dumps(measured).encode(),), rows, (SaccadeError,), JSON)
    words = (b"=", b"(", b"[" * 200, b"1e9", b"'", b"**", b"-" * 50, b"\\N{", b"9" * 5000)
    yield Target(
        "settings", (b"heads=1", b"dims=(1, 2)", b"blend='max'", b"x={'a': [1]}"), settings, (SaccadeError,), words
    )
    huge = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00")
    yield Target("idx", (_idx_seed(1), _idx_seed(3)), idx, (Unusable,), huge)
    import gzip

    yield Target("idx.gz", (gzip.compress(_idx_seed(3)),), idx_gz, (Unusable,), huge)
    yield Target("CIFAR binary", (bytes(3073), bytes(6146)), cifar_binary, (Unusable,))
    names = (b"cos\nsystem\n", b"c__builtin__\neval\n", b"R", b"\x80\x02", b"(", b"t", b".")
    yield Target("CIFAR pickle", (_pickle_seed(),), cifar_python, (Unusable, pickle.UnpicklingError), names)
    yield Target("CIFAR PNG", (_png_seed(),), cifar_png, (Unusable,))
    yield Target("archive", (_tar_seed(),), archive, (Unusable,))
    broken = (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)
    broken += (MemoryError, SyntaxError, TypeError, RuntimeError)  # numpy checks little before it believes a header
    yield Target("npz", (_npz_seed(),), npz, broken, (b"'shape': (999999999999,)", b"'descr': '|O'"))
    lengths = (struct.pack("<Q", 2**63), struct.pack("<Q", 2**40), b'"data_offsets":[0,99999999]', b'"dtype":"F64"')
    refused = (st.SafetensorError, ValueError, KeyError, TypeError, RuntimeError)
    yield Target("safetensors", (_safetensors_seed(),), safetensors, refused, (*lengths, *JSON))
    table = (b"index,a,b\n0,0.5,0.5\n1,0.1,0.9\n", b"0.5 0.5\n0 1\n", b"0\n1\n", b"a;b\n1;0\n0;1\n")
    marks = (b",", b";", b"\t", b"\n", b"nan", b"inf", b"1e999", b"\xef\xbb\xbf", b"\x00")
    yield Target("score CSV", table, csv, (SaccadeError,), marks)
    yield Target("registration", (_registration_seed(),), registered, (SaccadeError,), JSON)
    yield Target("export", (_export_seed(),), exported, (SaccadeError,), JSON)
    yield Target("export file", (lzma.compress(b'{"format": 1}\n', preset=0),), export_file, (SaccadeError,))
    held = json.dumps({"token": "a", "host": "h", "machine": "m", "pid": 1, "born": 1.0}).encode() + b"\n000000000001"
    yield Target("lease", (held,), leased, (), JSON)
