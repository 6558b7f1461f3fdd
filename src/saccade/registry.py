"""What can be named: models, data sets, probes, studies.

Names, arguments, versions and first docstring lines are read from the source with `ast`, so that `saccade list`,
a study's plan and the sentence for a misspelt name need no torch. The functions themselves are imported when used.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saccade import arguments
from saccade.arguments import Accepted
from saccade.errors import SaccadeError, in_words, suggest

KINDS = ("model", "data", "probe", "study")
FOLDERS = {"model": "models", "data": "data", "probe": "probes", "study": "studies"}
REQUIRED = "required"  # stands for an argument without a default
FROM_DATA = "as the data"  # stands for what a factory is given by the images that its model is for
# What authors call the three things that a factory may ask for.
CLASSES = ("classes", "num_classes", "n_classes", "num_labels", "n_class", "nclass")
SIZES = ("size", "image_size", "img_size", "input_size", "resolution")
CHANNELS = ("channels", "in_channels", "in_chans", "num_channels", "input_channels")


@dataclass(frozen=True)
class Card:
    """What is known of a name without importing it."""

    kind: str
    name: str
    about: str
    module: str
    version: int = 1
    args: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    accepts: Mapping[str, Accepted] = field(default_factory=dict)  # by name of an argument; `split` is among them

    @property
    def splits(self) -> tuple[str, ...]:
        """Of data: the splits there are; empty where the signature does not say."""
        return tuple(k.value for k in self.accepts.get("split", ()) if k.name == "value") if self.kind == "data" else ()


_registered: dict[tuple[str, str], Callable[..., Any]] = {}
_plugins: dict[tuple[str, str], Card] = {}
_imported: dict[str, str] = {}  # files that users imported and that registered something, and their modules
_unread: dict[str, str] = {}  # those of them whose cards have not been read since
PLUGIN = "saccade_plugin_"  # begins the names of modules that are loaded from files


def model(*, family: str, version: int = 1, dial: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function (classes, *, ...) -> nn.Module under its own name."""
    return _register("model")


def data(
    *, version: int = 1, watch: str = "test", sets: tuple[str, ...] = (), folder: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function (split, *, seed, ...) -> Images under its own name.

    `watch` is the split looked at during training; `sets` names the arguments that name fetched data sets;
    `folder` is where images are looked for in the cache unless the argument of that name says otherwise.
    """
    return _register("data")


def probe(
    *, version: int = 1, milestones: bool = True, fact_seconds: float = 0.0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a generator (subject, data, *, ...) -> rows under its own name.

    `milestones`: whether it also measures the weights kept on the way; not for what training does not change.
    `fact_seconds`: above 0, it looks at no model (its subject may be None) and takes about so many seconds of a core.
    """
    return _register("probe")


def _register(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Keeps the function under its name, behind a check of its arguments, so that none has to check them itself."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            if (entry := cards(kind).get(function.__name__)) is not None:
                values = {k: v for k, v in keywords.items() if k != "seed"}
                if kind == "data" and args:
                    values["split"] = args[0]
                arguments.check(entry.name, entry.accepts, values, f"saccade show {entry.name}")
            return function(*args, **keywords)

        _registered[kind, function.__name__] = checked
        _note_import(function)
        return checked

    return keep


def _note_import(function: Callable[..., Any]) -> None:
    """A file that a user imported and that registers something is a plug-in like one named by --plugin."""
    module = function.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if module.startswith(("saccade.", PLUGIN)) or file is None:
        return
    path = str(Path(file).resolve())
    _imported[path] = _unread[path] = module


def imported() -> tuple[str, ...]:
    """The files of such plug-ins, for processes that have to import them too."""
    for file, module in list(_unread.items()):  # once: every look at a card comes by here
        for entry in _read_cards(Path(file), module):
            _plugins.setdefault((entry.kind, entry.name), entry)
        _unread.pop(file, None)
    return tuple(_imported)


def cards(kind: str) -> dict[str, Card]:
    """Every known name of a kind."""
    imported()
    card_by_name = dict(_built_in(kind))
    card_by_name.update({name: card for (k, name), card in _plugins.items() if k == kind})
    return dict(sorted(card_by_name.items()))


def built_in(kind: str) -> dict[str, Card]:
    """The names that come with the package; nothing that a plug-in added."""
    return dict(sorted(_built_in(kind).items()))


def card(kind: str, name: str) -> Card:
    card_by_name = cards(kind)
    canonical_name = name.replace("-", "_")
    if canonical_name not in card_by_name:
        raise SaccadeError(suggest(kind, name, card_by_name, f"saccade list {FOLDERS[kind]}"))
    return card_by_name[canonical_name]


def find(kind: str, name: str) -> Callable[..., Any]:
    """The registered function; imports its module."""
    entry = card(kind, name)
    if (kind, entry.name) not in _registered:
        importlib.import_module(entry.module)
    return _registered[kind, entry.name]


def study(name: str) -> Any:
    """A built-in study by name, or the STUDY of a Python file."""
    if name.endswith(".py"):
        value = getattr(_load_file(Path(name)), "STUDY", None)
        if value is None:
            raise SaccadeError(f"{name} has no STUDY at its end; see CONTRIBUTING.md for the shape of a study.")
        if not all(hasattr(value, part) for part in ("name", "question", "tasks", "claims", "figures", "choose")):
            raise SaccadeError(
                f"STUDY of {name} is {type(value).__name__} and not a saccade.study.Study; see CONTRIBUTING.md for "
                "the shape of a study."
            )
        return value
    return importlib.import_module(card("study", name).module).STUDY


def check_args(kind: str, name: str, values: Mapping[str, Any]) -> None:
    """Refuse an argument that the function does not have, or a value that it does not accept."""
    entry = card(kind, name)
    accepted = {argument: entry.accepts.get(argument, ()) for argument in entry.args}
    outside = entry.extra.get("family") == "outside"  # nobody else knows it by this name
    arguments.check(entry.name, accepted, values, "" if outside else f"saccade show {entry.name}")
    for argument, default in entry.args.items():
        if default == REQUIRED and argument not in values:
            raise SaccadeError(f"{entry.name} needs the argument {argument}; give it as in {argument}=VALUE.")


def adopt(text: str) -> str:
    """A model of a file that registers nothing, file.py:function or file.py:Class, becomes known as FILE_FUNCTION."""
    path, _, function = text.rpartition(":")
    module = _load_file(Path(path).expanduser())
    factory: Any = getattr(module, function, None)
    defined_in_file = [
        n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__
    ]
    if function not in defined_in_file:
        raise SaccadeError(suggest(f"function or class in {path}", function or "(none)", defined_in_file))
    name = re.sub(r"\W", "_", f"{Path(path).stem}_{function}").lower()
    parameters = inspect.signature(factory).parameters

    def build(classes: int = 10, **values: Any) -> Any:
        return factory(**{**{a: classes for a in CLASSES if a in parameters}, **values})

    build.__name__, build.__module__ = name, module.__name__
    settable = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in CLASSES
    ]
    args = {
        p.name: FROM_DATA if p.name in SIZES + CHANNELS else REQUIRED if p.default is p.empty else p.default
        for p in settable
    }
    about = (inspect.getdoc(factory) or f"{function} of {path}, from outside.").partition("\n")[0]
    _registered["model", name] = build
    _plugins["model", name] = Card("model", name, about, module.__name__, 1, args, {"family": "outside"})
    return name


def load_plugin(path: str) -> None:
    """Import a user's file; whatever it registers becomes known by name, or the one model of file.py:function."""
    if path.rpartition(":")[0].endswith(".py"):
        adopt(path)
        return
    file = Path(path)
    module = _load_file(file)
    for entry in _read_cards(file, module.__name__):
        function = _registered.get((entry.kind, entry.name))
        if function is not None:  # else a decorator of the same name from elsewhere
            actual = inspect.signature(function).parameters  # defaults that are no literals are known now
            args = {a: d if d == REQUIRED else actual[a].default for a, d in entry.args.items()}
            _plugins[entry.kind, entry.name] = replace(entry, args=args)


def _load_file(file: Path) -> Any:
    if not file.is_file():
        raise SaccadeError(f"no file {file}; give the path of a Python file.")
    name = f"{PLUGIN}{file.stem}"
    module_spec = importlib.util.spec_from_file_location(name, file)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        trace = traceback.extract_tb(error.__traceback__)
        line = next((f" (line {f.lineno})" for f in reversed(trace) if Path(f.filename).name == file.name), "")
        raise SaccadeError(f"{file} cannot be imported{line}: {in_words(error)}.") from error
    return module


@functools.cache
def _built_in(kind: str) -> dict[str, Card]:
    folder = Path(__file__).parent / FOLDERS[kind]
    card_by_name: dict[str, Card] = {}
    if kind == "study":
        for package in sorted(folder.glob("*/__init__.py")):
            name, text = package.parent.name, ast.get_docstring(ast.parse(package.read_text("utf-8"))) or ""
            card_by_name[name] = Card("study", name, text.partition("\n")[0], f"saccade.{FOLDERS[kind]}.{name}")
        return card_by_name
    for file in sorted(folder.glob("*.py")):
        module = f"saccade.{FOLDERS[kind]}.{file.stem}"
        card_by_name.update({c.name: c for c in _read_cards(file, module) if c.kind == kind})
    return card_by_name


def _read_cards(file: Path, module: str) -> list[Card]:
    out = []
    for node in ast.parse(file.read_bytes()).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            kind = _decorator(mark)
            if kind not in KINDS:
                continue
            assert isinstance(mark, ast.Call)
            extra = {k.arg: _literal(k.value) for k in mark.keywords if k.arg}
            version = extra.pop("version", 1)
            about = (ast.get_docstring(node) or "").partition("\n")[0]
            accepts = arguments.of_function(node, arguments.names_in(file))
            out.append(Card(kind, node.name, about, module, version, _arguments(node), extra, accepts))
    return out


def _decorator(mark: ast.expr) -> str:
    if not isinstance(mark, ast.Call):
        return ""
    if isinstance(mark.func, ast.Attribute):
        return mark.func.attr
    return mark.func.id if isinstance(mark.func, ast.Name) else ""


def _arguments(node: ast.FunctionDef) -> dict[str, Any]:
    """Keyword-only arguments with their defaults: what a study or a user may set."""
    out = {}
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if argument.arg != "seed":
            out[argument.arg] = REQUIRED if default is None else _literal(default)
    return out


def _literal(node: ast.expr) -> Any:
    """The value of an expression where it can be read without running it, else its text."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
