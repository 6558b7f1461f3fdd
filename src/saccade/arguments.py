"""What an argument accepts, read from a signature, and the one check of what a user gives.

Models, data, probes, recipes and the choices of studies are all checked here: type, accepted values, range.

    def mosaic(split: Literal["train", "test"], *, seed: int, n: Count = 2000, scale: Share = 0.25) -> Mosaic: ...

Signatures are read from their source, so that a wrong value is refused before anything is imported. An annotation that
is none of the known ones accepts anything.
"""

from __future__ import annotations

import ast
import difflib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from saccade.errors import SaccadeError, quoted, suggest


@dataclass(frozen=True, kw_only=True)
class Range:
    """Ends of a range; for text and lists, of their length."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def words(self) -> str:
        ends = {"at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        bounds = {word: f"{int(end) if end == int(end) else end:,}" for word, end in ends.items() if end is not None}
        if set(bounds) == {"at least", "at most"}:
            return f"from {bounds['at least']} to {bounds['at most']}"
        return " and ".join(f"{word} {end}" for word, end in bounds.items())


# What arguments of one kind have in common. The upper ends only keep out what no machine could hold.
Count = Annotated[int, Range(at_least=1, at_most=10**6)]  # images, repeats
AnyCount = Annotated[int, Range(at_least=0, at_most=10**6)]  # likewise; 0: none, or all
Label = Annotated[int, Range(at_least=0, at_most=10**6)]  # number of a class
Width = Annotated[int, Range(at_least=1, at_most=2**16)]  # channels, heads, pixels on a side
Pixels = Annotated[int, Range(at_least=0, at_most=2**16)]  # on a side; 0: as it is
Depth = Annotated[int, Range(at_least=1, at_most=1000)]  # layers, blocks
Side = Annotated[int, Range(at_least=2, at_most=4096)]  # pixels of an image that is made
AnySide = Annotated[int, Range(at_least=0, at_most=4096)]  # likewise; 0: as it is
Share = Annotated[float, Range(at_least=0, at_most=1)]
Chance = Annotated[float, Range(at_least=0, below=1)]  # of dropping something


@dataclass(frozen=True)
class Kind:
    """One of the things that an argument accepts: a type, a value, or a list of either."""

    name: str  # int, float, str, bool, none, list, mapping, value
    value: Any = None
    range: Range = Range()
    each: tuple[Kind, ...] = ()  # of a list's entries; empty: anything

    def fits(self, value: Any) -> bool:
        if self.name == "value":
            return type(value) is type(self.value) and bool(value == self.value)
        if self.name == "none":
            return value is None
        if self.name == "mapping":
            return isinstance(value, Mapping)
        if self.name == "list":
            listed = isinstance(value, (list, tuple, range))
            return listed and self.range.holds(len(value)) and all(fits(self.each, g) for g in value)
        if self.name == "str":
            return isinstance(value, str) and self.range.holds(len(value))
        if self.name == "bool":
            return isinstance(value, bool)
        number = isinstance(value, (int, float) if self.name == "float" else int) and not isinstance(value, bool)
        # A whole number may be too large to be a float at all.
        return number and (isinstance(value, int) or math.isfinite(value)) and self.range.holds(value)

    def words(self) -> str:
        ends = self.range.words()
        if self.name == "value":
            return str(self.value) if self.value != "" else '""'
        if self.name == "list":
            inside = " or ".join(k.several() for k in self.each) or "anything"
            return f"a list of {inside}" + (f", {ends} of them" if ends else "")
        what = {"int": "a whole number", "float": "a number", "str": "text", "bool": "True or False", "none": "None"}
        between = " of " if ends.startswith("at") else " "
        return what.get(self.name, f"a {self.name}") + (between + ends if ends else "")

    def several(self) -> str:
        many = {"int": "whole numbers", "float": "numbers", "str": "words", "bool": "True or False"}
        if self.name == "value":
            return self.words()
        return f"{many.get(self.name, self.name + 's')} {self.range.words()}".strip()


Accepted = tuple[Kind, ...]  # any of these; none: anything


def fits(accepted: Accepted, value: Any) -> bool:
    return not accepted or any(kind.fits(value) for kind in accepted)


def words(accepted: Accepted) -> str:
    """As in `one of pad, resize` or `a whole number of at least 1 or None`."""
    values = [k.words() for k in accepted if k.name == "value"]
    others = [k.words() for k in accepted if k.name != "value"]
    listed = [f"one of {', '.join(values)}" if len(values) > 1 else values[0]] if values else []
    return " or ".join(listed + others) or "anything"


def check(owner: str, accepted: Mapping[str, Accepted], values: Mapping[str, Any], where: str = "") -> None:
    """Refuse, in one sentence, an argument that is not there or does not accept its value."""
    for name, value in values.items():
        if name not in accepted:
            raise SaccadeError(suggest(f"argument of {owner}", name, accepted, where))
        check_value(name, accepted[name], value, owner)


def check_value(name: str, accepted: Accepted, value: Any, owner: str = "") -> None:
    if fits(accepted, value):
        return
    known = [k.value for k in accepted if k.name == "value" and isinstance(k.value, str)]
    near = difflib.get_close_matches(value, known, n=1, cutoff=0.5) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]}?" if near else "."
    of = f" of {owner}" if owner else ""
    raise SaccadeError(f"{name}{of} must be {words(accepted)}, not {quoted(value)}{hint}")


def one_of(values: Iterable[Any]) -> Accepted:
    """Exactly these values."""
    return tuple(Kind("value", value) for value in values)


def like(example: Any) -> Accepted:
    """Anything of the type of an example."""
    for name, kind in (("bool", bool), ("int", int), ("float", float), ("str", str), ("mapping", Mapping)):
        if isinstance(example, kind):
            return (Kind(name),)
    return (Kind("list"),) if isinstance(example, (list, tuple)) else ()


# -- reading a signature

LookUp = Callable[[str], Accepted]
PLAIN = {"int", "float", "str", "bool"}
LISTS = {"Sequence", "list", "tuple", "Iterable"}
MAPPINGS = {"Mapping", "dict", "Settings"}


def read(annotation: ast.expr | None, look_up: LookUp) -> Accepted:
    """What an annotation accepts; `look_up` knows the names that are defined beside it or imported."""
    match annotation:
        case ast.Constant(value=None):
            return (Kind("none"),)
        case ast.Constant(value=str(text)):
            return read(ast.parse(text, mode="eval").body, look_up)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            both = read(left, look_up), read(right, look_up)
            return both[0] + both[1] if all(both) else ()
        case ast.Name(id=name) if name in PLAIN:
            return (Kind(name),)
        case ast.Name(id=name) if name in MAPPINGS:
            return (Kind("mapping"),)
        case ast.Name(id=name) if name in LISTS:
            return (Kind("list"),)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return look_up(name)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inside):
            return _subscript(name, inside, look_up)
    return ()


def _subscript(name: str, inside: ast.expr, look_up: LookUp) -> Accepted:
    parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    if name == "Literal":
        return one_of(ast.literal_eval(part) for part in parts)
    if name == "Annotated":
        ends = next((r for part in parts[1:] if (r := _range(part)) is not None), Range())
        return tuple(k if k.name in ("none", "value") else replace(k, range=ends) for k in read(parts[0], look_up))
    if name == "Optional":
        return (*read(parts[0], look_up), Kind("none"))
    if name in LISTS:
        return (Kind("list", each=read(parts[0], look_up)),)
    return (Kind("mapping"),) if name in MAPPINGS else ()


def _range(node: ast.expr) -> Range | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Range":
        return Range(**{k.arg: _number(k.value) for k in node.keywords if k.arg})
    return None


def _number(node: ast.expr) -> float:
    """A number, also written as a power."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return float(_number(node.left) ** _number(node.right))
    return float(ast.literal_eval(node))


def names_in(file: Path) -> LookUp:
    """The names of a file's top level: what it assigns there, and what it imports from files of this package."""

    def look_up(name: str) -> Accepted:
        assigned, imported = _top_level(file)
        if name in assigned:
            return read(assigned[name], look_up)
        module, original = imported.get(name, ("", ""))
        path = PACKAGE.joinpath(*module.split(".")[1:])
        source = next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None)
        return names_in(source)(original) if module and source else ()

    return look_up


PACKAGE = Path(__file__).parent


@functools.cache
def _top_level(file: Path) -> tuple[dict[str, ast.expr], dict[str, tuple[str, str]]]:
    assigned: dict[str, ast.expr] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("saccade."):
            imported |= {a.asname or a.name: (str(node.module), a.name) for a in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            assigned[node.target.id] = node.value
    return assigned, imported


def of_function(node: ast.FunctionDef, look_up: LookUp) -> dict[str, Accepted]:
    """What every named argument of a function accepts."""
    return {a.arg: read(a.annotation, look_up) for a in [*node.args.args, *node.args.kwonlyargs]}


@functools.cache
def of_class(file: Path, name: str) -> dict[str, Accepted]:
    """What the fields of a dataclass accept."""
    tree = ast.parse(file.read_text("utf-8"))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return {
        node.target.id: read(node.annotation, names_in(file))
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
