"""Profiles of two shipped models, as Markdown and HTML: python docs/make_profiles.py (two minutes of a core)

The same as `saccade profile shipped:NAME --data digits_on_backgrounds --n 500 --to DIR`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import saccade as sc

HERE = Path(__file__).parent / "profiles"
NAMES = ("cnn_x64", "vit_x64")


def main() -> None:
    for name in NAMES:
        made = sc.profile(f"shipped:{name}", "digits_on_backgrounds", n=500)
        with tempfile.TemporaryDirectory() as folder:
            keep(name, {kind: path.read_text("utf-8") for kind, path in made.save(folder).items()})


def keep(name: str, texts: dict[str, str]) -> None:
    HERE.mkdir(exist_ok=True)
    (HERE / f"{name}.md").write_text(texts["md"], "utf-8")
    (HERE / f"{name}_page.html").write_text(texts["html"], "utf-8")


if __name__ == "__main__":
    main()
