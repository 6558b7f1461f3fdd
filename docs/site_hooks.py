"""What mkdocs does beside its own: RESULTS.md and the reports and figures of results/ become part of the site.

As plain files the pages link to ../RESULTS.md and ../results; in the site these stand beside them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
KEPT = (".md", ".svg", ".csv", ".json")


def on_files(files: Any, config: Any) -> Any:
    for file in (ROOT / "RESULTS.md", *sorted((ROOT / "results").rglob("*"))):
        if file.is_file() and file.suffix in KEPT:
            at = file.relative_to(ROOT).as_posix()
            inclusion = InclusionLevel.NOT_IN_NAV if file.suffix == ".md" else InclusionLevel.INCLUDED
            files.append(File.generated(config, at, abs_src_path=str(file), inclusion=inclusion))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to the copies; details of a report are Markdown inside."""
    up = "../" * page.file.src_uri.count("/")
    if page.file.src_uri.startswith("results/"):
        return markdown.replace("<details>", '<details markdown="1">')
    if page.file.src_uri == "RESULTS.md":
        return markdown.replace("](docs/", "](")
    return re.sub(r"\]\((?:\.\./)+(results/|RESULTS\.md)", rf"]({up}\1", markdown)
