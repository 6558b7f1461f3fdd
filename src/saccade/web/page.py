"""The files of the page: HTML, style, modules. Read from the package, never from a path that a request names."""

from __future__ import annotations

from importlib import resources


def page_files() -> dict[str, bytes]:
    """By name."""
    folder = resources.files("saccade.web").joinpath("static")
    return {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()}
