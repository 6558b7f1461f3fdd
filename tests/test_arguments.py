"""One check of arguments from signatures, for models, data, probes, recipes and choices: a mistake is a sentence."""

import ast
import os
from pathlib import Path
from typing import get_args

import pytest

from saccade import arguments, models, registry
from saccade.arguments import Kind, Range
from saccade.data.fetch import sources
from saccade.data.images import AnySet, Source
from saccade.spec import Probe, Recipe, SaccadeError, Settings
from saccade.study import Choice

DRAWN = {
    "digits_on_backgrounds": {"digits": "procedural_digits", "scenes": "procedural_textures", "backgrounds": 2},
    "points": {"of": "procedural_digits", "p": 50},
    "photos": {"of": "procedural_textures", "hold_out": 50},
    "mosaic": {"of": "procedural_textures", "n": 4},
    "small_object": {"of": "procedural_textures", "n": 4},
    "imagenette": {},
}
# What a user may type by mistake, of every kind.
MISTAKES = ("", "nonsense", -1, 0, 1, 2.5, -0.5, 1e30, 10**20, True, None, (), (1, "a"), ((1,),), {"a": 1}, "1")


def accepted_of(kind):
    return {
        (card.name, argument): card.accepts[argument]
        for card in registry.cards(kind).values()
        if card.module.startswith("saccade.")
        for argument in card.args
    }


def wrong(kind):
    """Every argument with each value that it does not accept."""
    for (name, argument), accepted in accepted_of(kind).items():
        for value in MISTAKES:
            if not arguments.fits(accepted, value):
                yield name, argument, value


def sentence(caught):
    text = str(caught.value)
    assert ("\n" not in text and text.rstrip(")?").endswith((".", "?"))) or text.endswith((".", "?", ")"))
    assert len(text) < 300
    return text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "data", "probe"])
def test_every_wrong_value_of_every_argument_is_one_sentence_that_names_it(kind):
    cases = list(wrong(kind))
    assert len(cases) >= 172
    for name, argument, value in cases:
        with pytest.raises(SaccadeError) as caught:
            registry.check_args(kind, name, {argument: value})
        assert f"{argument} of {name} must be" in sentence(caught)


@pytest.mark.parametrize("kind", ["model", "data", "probe"])
def test_every_argument_says_what_it_accepts_and_accepts_its_default(kind):
    for card in registry.cards(kind).values():
        if not card.module.startswith("saccade."):
            continue
        for argument, default in card.args.items():
            accepted = card.accepts[argument]
            assert accepted, f"{card.name} says nothing of {argument}"
            assert arguments.fits(accepted, default), (card.name, argument, default)
            assert accepted != (Kind("str"),) or argument in FREE_TEXT, (
                f"{card.name}: which words does {argument} take?"
            )


FREE_TEXT = {"folder", "backdrop", "model", "split", "recipe", "checkpoint", "layer", "source"}


def test_a_function_that_is_called_by_itself_is_checked_too():
    from saccade.data.points import points
    from saccade.probes.accuracy import accuracy

    for call in (
        lambda: points("train", seed=0, of="procedural_digits", p="many"),
        lambda: points("dev", seed=0, of="procedural_digits"),
        lambda: accuracy(None, None, n=-3),
        lambda: models.build("vit", dim=12.5),
        lambda: models.build("vit", classes=1),
    ):
        with pytest.raises(SaccadeError, match="must be"):
            call()


@pytest.mark.parametrize(
    "bad",
    [
        {"images": "many"},
        {"images": 10, "lr": "fast"},
        {"images": 10, "lr": float("nan")},
        {"images": 10, "batch": 2.5},
        {"images": 10, "optimizer": 3},
        {"images": 10, "nesterov": 1},
        {"images": 10**30},
        {"images": 10, "watch": True},
        {"images": 10, "warmup": 1},
    ],
)
def test_a_recipe_of_the_wrong_type_is_one_sentence(bad):
    with pytest.raises(SaccadeError, match="of the recipe must be"):
        Recipe(**bad)


@pytest.mark.parametrize(
    ("choice", "value"),
    [
        (Choice("heads", 2, (1, 2), ""), "2"),
        (Choice("heads", 2, (1, 2), ""), True),
        (Choice("images", 10, (), ""), "x"),
        (Choice("images", 10, (), ""), False),
        (Choice("blend", "add", ("add", "hard"), ""), "haard"),
        (Choice("classes", (1, 2), (), ""), 3),
    ],
)
def test_choices_go_through_the_same_check(choice, value):
    with pytest.raises(SaccadeError, match=f"{choice.name} must be"):
        arguments.check_value(choice.name, choice.accepts, value)


def test_the_nearest_word_is_offered():
    with pytest.raises(
        SaccadeError, match=r"must be one of opacity, maximum, hard, add, not \"opactiy\"; did you mean op"
    ):
        registry.check_args("data", "digits_on_backgrounds", {"blend": "opactiy"})


def test_sets_that_may_be_named_are_the_ones_there_are():
    assert {name for part in get_args(AnySet) for name in get_args(part)} == set(sources.known())


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("int", [0, -3], [True, 1.0, "1", None]),
        ("float", [0, 1.5], [True, float("inf"), float("nan"), "1"]),
        ("bool", [True], [1, 0, None]),
        ("int | None", [1, None], ["", 2.5]),
        ('Literal["a", 2]', ["a", 2], ["b", 2.0, True, ["a"]]),
        ('Literal["a"] | int', ["a", 5], ["b"]),
        ("Annotated[int, Range(at_least=1, below=10**2)]", [1, 99], [0, 100]),
        ("Annotated[float, Range(above=0)]", [1e-9], [0, -1]),
        ("Sequence[int]", [(), [1], (2, 3)], ["12", 1, (1, "a"), {"a": 1}]),
        ("Annotated[Sequence[float], Range(at_least=1)]", [(1,)], [()]),
        ("Sequence[Annotated[int, Range(at_least=0)]]", [(0,)], [(-1,)]),
        ("Mapping[str, Any]", [{"a": 1}, Settings(a=1)], [(), "a"]),
        ("Count", [1], [0]),
        ("Anything", ["x", None, 3], []),
    ],
)
def test_annotations_are_read_as_they_are_meant(text, good, bad):
    look_up = arguments.names_in(Path(arguments.__file__))
    accepted = arguments.read(ast.parse(text, mode="eval").body, look_up)
    for value in good:
        assert arguments.fits(accepted, value), value
    for value in bad:
        assert not arguments.fits(accepted, value), value


def test_words_are_plain():
    one = (Kind("int", range=Range(at_least=1, at_most=5)), Kind("none"))
    assert arguments.words(one) == "a whole number from 1 to 5 or None"
    several = (Kind("list", each=(Kind("float", range=Range(above=0)),), range=Range(at_least=1)),)
    assert arguments.words(several) == "a list of numbers above 0, at least 1 of them"


@pytest.mark.slow
def test_whatever_a_data_argument_is_set_to_data_or_a_sentence_come_out(monkeypatch, tmp_path):
    """All mistakes, also those that the signature accepts; nothing but a SaccadeError may come out."""
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    told = []
    for name, argument in accepted_of("data"):
        for value in (*MISTAKES, str(tmp_path), os.devnull, 3, 1e-3, (0, 1), (9, 9)):
            try:
                images = Source(name, Settings({**DRAWN.get(name, {}), argument: value}), 0)("train")
                images.batch(images.y[:2] * 0)
            except SaccadeError as error:
                told.append(str(error))
    assert len(told) >= 172 and not any("\n" in sentence for sentence in told)


@pytest.mark.slow
def test_whatever_a_model_argument_is_set_to_a_model_or_a_sentence_come_out():
    import torch

    told = []
    for name, argument in accepted_of("model"):
        for value in (*MISTAKES, 3, 5, 7, 33, 0.5, (1,), (3, 5)):
            try:
                with torch.device("meta"):  # sizes without memory
                    models.build(name, **{argument: value})
            except SaccadeError as error:
                told.append(str(error))
    assert len(told) >= 172 and not any("\n" in sentence for sentence in told)


def test_probes_are_checked_before_they_are_asked():
    from saccade.lab import pipeline

    assert pipeline.open_session("digits_on_backgrounds", "smoke").tasks
    with pytest.raises(SaccadeError, match="n of accuracy must be"):
        registry.check_args("probe", "accuracy", Probe("accuracy", n="all").settings)
