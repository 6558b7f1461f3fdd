"""The API page from signatures and docstrings: python docs/make_api.py"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
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


WIDEST = 96  # characters of a signature in one line


def signature(value: Any) -> str:
    """As one would write it: types without quotes, one parameter per line where one line is too long."""
    whole = inspect.signature(value)
    short = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(whole))  # annotations are text; defaults keep their quotes
    if len(short) <= WIDEST:
        return short
    parts, star = [], False
    for one in whole.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        parts.append(re.sub(r": '([^']*)'", r": \1", str(one)))
    returns = short.rpartition(" -> ")[2] if " -> " in short else ""
    return "(\n" + "".join(f"    {p},\n" for p in parts) + ")" + (f" -> {returns}" if returns else "")


def entry(name: str, value: Any) -> Iterator[str]:
    yield f"### `{name}`"
    if callable(value) and not inspect.isclass(value):
        yield f"```py\n{name.rpartition('.')[2]}{signature(value)}\n```"
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
