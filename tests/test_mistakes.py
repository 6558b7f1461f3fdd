"""The sentence for refused words, from a command's signature."""

from typing import Annotated, Literal

import pytest
from tyro.conf import Positional, arg

from saccade.cli import mistakes


def walk(
    place: Positional[Annotated[str, arg(metavar="PLACE")]],
    kind: Literal["slow", "fast"] = "slow",
    steps: int | None = None,
    share: float = 0.5,
    names: tuple[str, ...] = (),
    quiet: bool = False,
) -> None:
    pass


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["wlk"], 'no command "wlk"; did you mean walk?'),
        (["walk"], "saccade walk needs PLACE."),
        (["walk", "home", "--step", "3"], "saccade walk has no option --step; did you mean --steps?"),
        (["walk", "home", "--steps", "few"], '--steps takes a whole number, not "few".'),
        (["walk", "home", "--steps=few"], '--steps takes a whole number, not "few".'),
        (["walk", "home", "--share", "-half"], '--share takes a number, not "-half".'),
        (["walk", "home", "--kind", "fats"], '--kind takes one of slow, fast, not "fats".'),
        (["walk", "home", "--steps"], "--steps needs a value."),
        (["walk", "home", "--names", "a", "b", "--quiet", "c"], 'saccade walk has no place for "c".'),
        (["walk", "home", "-x"], "saccade walk has no option -x."),
    ],
)
def test_each_mistake_is_one_sentence(words, says):
    assert mistakes.sentence({"walk": walk}, words).startswith(says)
