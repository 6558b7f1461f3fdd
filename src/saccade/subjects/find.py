"""A word to a model: file.py:function, a registered name, a run of a lab, a checkpoint, timm:, hf: or torchvision:.

What the source itself says of its input (size, channels, mean and std) is kept beside the model; `fit` finds out the
rest. Nothing is downloaded unless asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saccade import models, registry, rng, shipped
from saccade.data.images import Source, Triple
from saccade.lab import identity
from saccade.lab.store import Lab
from saccade.spec import SaccadeError, Settings, suggest
from saccade.subjects import build, checkpoints

GRAMMAR = (
    "file.py:function, a registered name (saccade list models), the key of a run in the lab, a .safetensors file with "
    "--factory, timm:NAME, hf:NAME, torchvision:NAME or shipped:NAME"
)
KEY = re.compile(r"[0-9a-f]{6,12}")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True, kw_only=True)
class Found:
    """A model as it was found. `size`, `channels`, `mean` and `std` are None where its source does not say."""

    model: nn.Module
    name: str
    origin: str  # where from, in words
    size: int | None = None
    channels: int | None = None
    mean: Triple | None = None
    std: Triple | None = None
    trained: bool | None = None  # None: not known
    run: str = ""  # the key of the run in the lab
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a factory is given when it asks: the data's classes, size and channels, and the user's own arguments."""

    classes: int = 10
    size: int = 32
    channels: int = 3
    args: Mapping[str, Any] = field(default_factory=dict)
    lab: str = "lab"
    data: Source | None = None
    factory: str = ""
    weights: str = ""
    download: bool = False


def find(subject: str | nn.Module | Callable[..., nn.Module], wanted: Wanted) -> Found:
    """The model behind a word, a class, a function or a module."""
    if isinstance(subject, nn.Module):
        name = type(_as_written(subject)).__name__
        found = Found(model=subject, name=name, origin="a module in this process")
    elif not isinstance(subject, str):
        found = Found(model=_call(subject, wanted, _called(subject)), name=_called(subject), origin="a function")
    else:
        found = _named(subject.strip(), wanted)
    found = replace(found, model=_as_written(found.model))
    if wanted.weights:
        checkpoints.load_into(found.model, wanted.weights)
        found = replace(found, trained=True, origin=f"{found.origin}, weights of {wanted.weights}")
    return found


def _as_written(model: nn.Module) -> nn.Module:
    """Without the wrapper of torch.compile: its answers are the same but for rounding, and its layers have names."""
    inside = getattr(model, "_orig_mod", None)
    return inside if isinstance(inside, nn.Module) else model


def _named(text: str, wanted: Wanted) -> Found:
    kind, colon, name = text.partition(":")
    if colon and kind in SOURCES:
        if not name:
            raise SaccadeError(f'"{text}" names no model; write {kind}:NAME.')
        return SOURCES[kind](name, wanted)
    path, colon, function = text.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path).expanduser(), function, wanted)
    if text.endswith(".py"):
        raise SaccadeError(f"{text} needs the name of a function or class in it, as in {text}:net.")
    if Path(text).suffix in checkpoints.ENDINGS:
        return _checkpoint(text, wanted)
    if KEY.fullmatch(text) and (found := _run(text, wanted)):
        return found
    if text.replace("-", "_") in registry.cards("model"):
        return _registered(text, wanted)
    if Path(text).is_file():
        raise SaccadeError(
            f"{text} is no checkpoint by its name ({', '.join(checkpoints.ENDINGS)}); save model.state_dict() as one, "
            "best as .safetensors."
        )
    raise SaccadeError(f"{suggest('model', text, registry.cards('model'))} A subject is {GRAMMAR}.")


# -- a user's file


def _from_file(file: Path, function: str, wanted: Wanted) -> Found:
    if trained := _runs_of_file(file, function, wanted):
        return trained
    module = load_file(file)
    known = [n for n, v in vars(module).items() if _usable(v) and getattr(v, "__module__", "") == module.__name__]
    known += [n for n, v in vars(module).items() if isinstance(v, nn.Module)]
    made = getattr(module, function, None)
    if made is None or not (_usable(made) or isinstance(made, nn.Module)):
        raise SaccadeError(suggest(f"function or class in {file}", function or "(none)", known))
    model = made if isinstance(made, nn.Module) else _call(made, wanted, f"{file}:{function}")
    return Found(model=model, name=f"{file.name}:{function}", origin=f"{function} of {file}")


def _runs_of_file(file: Path, function: str, wanted: Wanted) -> Found | None:
    """The first finished run of this lab that `saccade train file.py:function` made of the same code."""
    lab = Lab(wanted.lab)
    if wanted.args or wanted.weights or not file.is_file() or not (lab.root / "runs").is_dir():
        return None
    name = re.sub(r"\W", "_", f"{file.stem}_{function}").lower()
    keys = runs_of(name, wanted)
    if not keys or registry.adopt(f"{file}:{function}") != name:
        return None
    same = [k for k in keys if identity.identified(lab.run(k)).code == lab.run(k).code]
    if not same:
        return None
    found = _of_run(same[0], wanted)
    more = f"; {len(same)} finished runs of it in the lab, of which this is the first" if same[1:] else ""
    return replace(found, name=f"{file.name}:{function}", origin=found.origin + more)


def _usable(value: Any) -> bool:
    return inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, nn.Module))


def load_file(file: Path) -> Any:
    """Import a user's file; an error in it is named with its own line. Its folder can be imported from meanwhile."""
    if not file.is_file():
        raise SaccadeError(f"no file {file}; give the path of a Python file, as in mynet.py:net.")
    name = f"saccade_subject_{file.stem}"
    found = importlib.util.spec_from_file_location(name, file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with torch.random.fork_rng(devices=[]):  # a model built at import draws from global random state
            torch.manual_seed(rng.seed_of(0, "init", "subject"))
            found.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script without `if __name__ == "__main__"` may end itself
        del sys.modules[name]
        raise SaccadeError(f"{file} cannot be imported: {_where(error, file)}") from None
    finally:
        sys.path.remove(folder)
    return module


def _where(error: BaseException, file: Path | None = None) -> str:
    """The kind of error, its first line, and the last line of the user's own file that it passed."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}."
    frames = traceback.extract_tb(error.__traceback__)
    here = file.resolve() if file else None
    own = [f for f in frames if (Path(f.filename).resolve() == here if here else not f.filename.startswith(_HERE))]
    first = (str(error).splitlines() or [""])[0]
    line = f"line {own[-1].lineno}: " if own and file else f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    return f"{line}{type(error).__name__}: {first.rstrip('.')}."


_HERE = str(Path(__file__).parent.parent)


def _call(made: Callable[..., Any], wanted: Wanted, name: str) -> nn.Module:
    """The factory's module, built from a seeded stream. It is given classes, size and channels if it asks for them."""
    given = _arguments(made, wanted, name)
    with torch.random.fork_rng(devices=[]):  # layers start from global random state, which is put back
        torch.manual_seed(rng.seed_of(0, "init", "subject"))
        try:
            model = made(**given)
        except SaccadeError:
            raise
        except (Exception, SystemExit) as error:
            raise SaccadeError(f"{name} raised an error when it was called: {_where(error)}") from None
    if not isinstance(model, nn.Module):
        raise SaccadeError(f"{name} returned {type(model).__name__}, not a torch module; return the model.")
    return model


def _arguments(made: Callable[..., Any], wanted: Wanted, name: str) -> dict[str, Any]:
    try:
        parameters = inspect.signature(made).parameters
    except (TypeError, ValueError):
        return dict(wanted.args)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for argument in wanted.args:
        if argument not in known and not open_ended:
            raise SaccadeError(suggest(f"argument of {name}", argument, known))
    given = dict(wanted.args)
    for names, value in (
        (registry.CLASSES, wanted.classes),
        (registry.SIZES, wanted.size),
        (registry.CHANNELS, wanted.channels),
    ):
        for argument in names:
            if argument in known:
                given.setdefault(argument, value)
    missing = [p.name for p in parameters.values() if p.name in known and p.default is p.empty and p.name not in given]
    if missing:
        raise SaccadeError(
            f"{name} needs {', '.join(missing)}, and nothing says what; give it as --set {missing[0]}=VALUE."
        )
    return given


def _called(made: Any) -> str:
    return str(getattr(made, "__name__", type(made).__name__))


# -- ours


def _registered(text: str, wanted: Wanted) -> Found:
    """A run of the lab where there is one on this data, else fresh weights, and said."""
    name = registry.card("model", text).name
    finished = [] if wanted.args or wanted.weights else runs_of(name, wanted)
    if finished:
        found = _of_run(finished[0], wanted)
        more = f"; {len(finished)} finished runs of it in the lab, of which this is the first" if finished[1:] else ""
        return replace(found, name=name, origin=found.origin + more)
    registry.check_args("model", name, wanted.args)
    model = models.build(name, wanted.classes, seed=0, **wanted.args)
    note = () if wanted.weights else (f"untrained: no run of {name} on this data in the lab (saccade train {name})",)
    return Found(model=model, name=name, origin="a registered model", trained=False, notes=note)


def runs_of(name: str, wanted: Wanted) -> list[str]:
    """Keys of the finished runs of a model on the wanted data, seeds in order."""
    lab = Lab(wanted.lab)
    if not (lab.root / "runs").is_dir():
        return []
    out = []
    for key in lab.keys():  # noqa: SIM118
        done = lab.done(key)
        if done is None or done["outcome"] != "finished":
            continue
        run = lab.run(key)
        same = wanted.data is None or (run.data, run.data_args.get("of")) == (
            wanted.data.name,
            wanted.data.args.get("of"),
        )
        if run.model == name and same:
            out.append((run.seed, key))
    return [key for _, key in sorted(out)]


def _run(text: str, wanted: Wanted) -> Found | None:
    lab = Lab(wanted.lab)
    keys = [k for k in lab.keys() if k.startswith(text)] if (lab.root / "runs").is_dir() else []  # noqa: SIM118
    if len(keys) > 1:
        raise SaccadeError(f"{text} begins the keys of {len(keys)} runs: {', '.join(keys[:4])}; give more of it.")
    return _of_run(keys[0], wanted) if keys else None


def _of_run(key: str, wanted: Wanted) -> Found:
    import safetensors.torch

    lab = Lab(wanted.lab)
    done = lab.done(key)
    if done is None or done["outcome"] != "finished":
        state = "not finished" if done is None else f"{done['outcome']} ({done['reason']})"
        raise SaccadeError(f"run {key} is {state}, so it has no weights to look at; choose a finished run.")
    run = lab.run(key)
    images = Source(run.data, run.data_args, run.seed)("train")
    model = build.build(run, images)
    model.load_state_dict(safetensors.torch.load(lab.weights(key)))
    shape = images.batch(torch.arange(1)).shape
    return Found(
        model=model,
        name=f"{run.model} seed {run.seed}",
        origin=f"run {key} of {lab.root}, {run.model} on {run.data} {Settings(run.data_args)!r}".rstrip(),
        size=shape[-1],
        channels=shape[1],
        mean=images.mean,
        std=images.std,
        trained=True,
        run=key,
    )


def _checkpoint(text: str, wanted: Wanted) -> Found:
    if not wanted.factory:
        raise SaccadeError(
            f"{text} holds weights, not the model; say what builds it, as in --factory mynet.py:net or --factory vit."
        )
    found = _named(wanted.factory, replace(wanted, weights=text, factory=""))
    checkpoints.load_into(found.model, text)
    return replace(found, name=Path(text).stem, origin=f"{text} in {wanted.factory}", trained=True, notes=())


# -- other libraries


def _timm(name: str, wanted: Wanted) -> Found:
    timm = _library("timm")
    if not wanted.download and not timm.is_model(name.partition(".")[0]):
        raise SaccadeError(suggest("model of timm", name, timm.list_models()))
    model = _made(lambda: timm.create_model(name, pretrained=wanted.download, **wanted.args), f"timm:{name}")
    said: Mapping[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    channels, size, _ = said.get("input_size") or (None, None, None)
    if "img_size" in wanted.args:
        size = wanted.args["img_size"]
    return Found(
        model=model,
        name=f"timm:{name}",
        origin=f"timm {timm.__version__}",
        size=size,
        channels=wanted.args.get("in_chans", channels),
        mean=said.get("mean"),
        std=said.get("std"),
        trained=wanted.download,
        notes=_random(wanted),
    )


def _torchvision(name: str, wanted: Wanted) -> Found:
    vision = _library("torchvision")
    known = vision.models.list_models(module=vision.models)
    if name not in known:
        raise SaccadeError(suggest("model of torchvision", name, known))
    weights = vision.models.get_model_weights(name).DEFAULT if wanted.download else None
    model = _made(lambda: vision.models.get_model(name, weights=weights, **wanted.args), f"torchvision:{name}")
    said = vision.models.get_model_weights(name).DEFAULT.transforms()
    return Found(
        model=model,
        name=f"torchvision:{name}",
        origin=f"torchvision {vision.__version__}",
        size=said.crop_size[0],
        channels=3,
        mean=tuple(said.mean),
        std=tuple(said.std),
        trained=wanted.download,
        notes=_random(wanted),
    )


def _transformers(name: str, wanted: Wanted) -> Found:
    """A local folder with config.json, a kind of model (vit, swin, ...) from its own default, or a name on the hub."""
    hf = _library("transformers")
    folder, source, trained = Path(name).expanduser(), f"hf:{name}", False
    auto = hf.AutoModelForImageClassification
    local = (folder / "config.json").is_file()
    if local and not any(folder.glob("*.safetensors")) and any(folder.glob("*.bin")):
        raise SaccadeError(f"{folder} has its weights as a pickle (.bin); save them with safe_serialization=True.")
    if (local and any(folder.glob("*.safetensors"))) or wanted.download:
        model = _made(
            lambda: auto.from_pretrained(
                name, local_files_only=not wanted.download, use_safetensors=True, **wanted.args
            ),
            source,
        )
        trained = True
    elif local:
        model = _made(lambda: auto.from_config(hf.AutoConfig.from_pretrained(folder, **wanted.args)), source)
    elif name in hf.CONFIG_MAPPING:
        model = _made(lambda: auto.from_config(hf.CONFIG_MAPPING[name](**wanted.args)), source)
    elif "/" in name:
        raise SaccadeError(f"{source} is not a folder here; --download fetches it from the hub, with its weights.")
    else:
        raise SaccadeError(suggest("kind of model of transformers", name, hf.CONFIG_MAPPING.keys(), "or a folder"))
    size = getattr(model.config, "image_size", None)
    mean, std = _processor(folder) if local else (None, None)
    return Found(
        model=model,
        name=source,
        origin=f"transformers {hf.__version__}",
        size=size[0] if isinstance(size, (tuple, list)) else size,
        channels=getattr(model.config, "num_channels", None),
        mean=mean,
        std=std,
        trained=trained,
        notes=() if trained else _random(wanted),
    )


def _processor(folder: Path) -> tuple[Triple | None, Triple | None]:
    import json

    file = folder / "preprocessor_config.json"
    try:
        said = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise SaccadeError(f"{file} is no JSON ({error}); save the image processor again.") from None
    if not said.get("do_normalize", True):
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    mean, std = said.get("image_mean"), said.get("image_std")
    return (tuple(mean), tuple(std)) if mean and std else (None, None)


def _shipped(name: str, wanted: Wanted) -> Found:
    card = shipped.card(name)
    return Found(
        model=shipped.load(name),
        name=f"shipped:{name}",
        origin=f"shipped with saccade, {card.run.model} on {card.run.data} {Settings(card.run.data_args)!r}",
        size=card.size,
        channels=card.channels,
        mean=card.mean,
        std=card.std,
        trained=True,
    )


SOURCES: dict[str, Callable[[str, Wanted], Found]] = {
    "timm": _timm,
    "hf": _transformers,
    "torchvision": _torchvision,
    "shipped": _shipped,
}


def _random(wanted: Wanted) -> tuple[str, ...]:
    return () if wanted.download or wanted.weights else ("random weights: --download fetches trained ones",)


def _library(name: str) -> Any:
    """timm and torchvision raise RuntimeError, not ImportError, where their binaries do not fit torch."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on that package's own installation, which is not what was asked
            return importlib.import_module(name)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise SaccadeError(
            f"{name} cannot be imported here ({type(error).__name__}: {first}); pip install {name}, in a version that "
            f"fits torch {torch.__version__}."
        ) from None


def _made(make: Callable[[], nn.Module], name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.seed_of(0, "init", "subject"))
        try:
            return make()
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise SaccadeError(f"{name} cannot be built ({type(error).__name__}: {first}).") from None
