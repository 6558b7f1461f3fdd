"""The API page from signatures and docstrings: python docs/make_api.py"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import saccade

PAGE = Path(__file__).with_name("api.md")
MORE = {
    "saccade.stats": "Tests and intervals over seeds",
    "saccade.registry": "Registering models, data and probes",
    "saccade.analysis.convolution": "Convolutions and attention",
    "saccade.analysis.equivariance": "Equivariance of any module",
}


def entry(name: str, value: Any) -> Iterator[str]:
    yield f"### `{name}`"
    if callable(value) and not inspect.isclass(value):
        yield f"```text\n{name.rpartition('.')[2]}{inspect.signature(value)}\n```"
    elif dataclasses.is_dataclass(value):
        fields = "\n".join(f"    {f.name}: {f.type}" for f in dataclasses.fields(value) if not f.name.startswith("_"))
        yield f"```text\n{name}\n{fields}\n```"
    yield inspect.cleandoc(value.__doc__ or "")


def page() -> str:
    parts = ["# API", "The public names of `import saccade as sc`, then the modules behind them. Made from docstrings."]
    for name in saccade.__all__:
        parts += entry(f"sc.{name}", getattr(saccade, name))
    for module, title in MORE.items():
        parts.append(f"## {title}: `{module}`")
        home = importlib.import_module(module)
        public = getattr(home, "__all__", None) or [
            n for n, v in vars(home).items() if not n.startswith("_") and getattr(v, "__module__", "") == module
        ]
        for name in public:
            value = getattr(home, name)
            if callable(value) and inspect.getdoc(value):
                parts += entry(f"{module}.{name}", value)
    return "\n\n".join(p for p in parts if p) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
