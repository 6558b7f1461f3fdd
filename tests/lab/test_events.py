"""Events travel between processes as JSON and arrive as what they were."""

import json
import math

import pytest

from saccade.lab import events
from saccade.lab.events import Cost, Ended, Event, Progress, Refused, Stopped
from saccade.spec import Outcome


@pytest.mark.parametrize("kind", events._kinds.values(), ids=lambda kind: kind.name)
def test_every_kind_survives_the_way_between_processes(kind):
    event = kind(key="k")
    assert Event.parse(json.loads(json.dumps(event.plain()))) == event


def test_values_survive_too():
    for event in (Ended("k", Outcome.TIMEOUT, "too slow", 3.5), Progress("k", 3, 9, 0.5), Cost(at=2, values={"a": 1})):
        assert Event.parse(json.loads(json.dumps(event.plain()))) == event
    back = Event.parse(json.loads(json.dumps(Progress("k", 1, 2, math.nan).plain())))
    assert isinstance(back, Progress) and math.isnan(back.loss)  # a run that is about to diverge
    assert Ended("k", Outcome.TIMEOUT).kind == "timeout"


def test_what_a_worker_owes_after_each():
    assert Ended().ends and Ended().frees and Refused().ends and Stopped().frees
    assert not Stopped().ends and not Progress().frees


@pytest.mark.parametrize("line", ["3", "[]", "{}", '{"event": "unheard of"}', '{"event": "ended", "outcome": "well"}'])
def test_what_is_no_event_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"not an event|not a valid Outcome"):
        Event.parse(json.loads(line))
