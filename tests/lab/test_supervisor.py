"""What the supervisor makes of Ray's errors, without a cluster."""

import collections
import threading
from types import SimpleNamespace

import pytest

from saccade.lab import launch
from saccade.lab import supervisor as module
from saccade.lab.store import Lab
from saccade.lab.supervisor import Flight, Order, Supervisor
from saccade.spec import Recipe, Run, SaccadeError, Settings, Task, plain

errors = pytest.importorskip("ray.exceptions")
TASK = Task(Run("lenet", "points", Recipe(images=32), 0, data_args=Settings(of="procedural_textures", p=32)), ())
KEY = TASK.run.key


def supervisor(tmp_path, error):
    """One whose bundles end with this error; `nodes` are those that Ray knows."""

    def get(ref):
        raise error

    made = object.__new__(Supervisor)
    made.nodes = []
    made.ray = SimpleNamespace(exceptions=errors, get=get, nodes=lambda: made.nodes)
    made.order, made.lab = Order(str(tmp_path)), Lab(tmp_path / "lab").open()
    made.pending, made.news = collections.deque(), collections.deque()
    made.deaths, made.losses = collections.Counter(), collections.Counter()
    made.suspects, made.dead, made.fatal, made.elsewhere = [], {}, set(), {}
    made.sent, made.changed, made.stopping = 0, threading.Condition(), False
    return made


def land(made, node="n1"):
    made.pending.clear()
    made._land(None, Flight({KEY: TASK}, node=node))
    return made.news[-1]


@pytest.mark.parametrize(
    "error",
    [
        errors.NodeDiedError("gone"),
        errors.LocalRayletDiedError(),
        errors.OwnerDiedError("00", None, ""),
        errors.ObjectLostError("00", None, ""),
        errors.RaySystemError("?"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_whatever_is_lost_with_a_node_is_tried_again_and_not_held_against_the_run(tmp_path, error):
    made = supervisor(tmp_path, error)
    assert "node was lost" in land(made).how
    assert list(made.pending) == [TASK] and made.losses[KEY] == 1 and not made.deaths[KEY]


def test_a_crashed_worker_is_held_against_its_run(tmp_path):
    made = supervisor(tmp_path, errors.WorkerCrashedError())
    made.nodes = [{"NodeID": "n1", "Alive": True}]
    told = [land(made).kind for _ in range(launch.RETRIES + 1)]
    assert told == ["worker died"] * launch.RETRIES + ["failed"]


def test_a_crashed_worker_whose_node_turns_out_to_be_lost_is_not(tmp_path):
    made = supervisor(tmp_path, errors.WorkerCrashedError())
    made.nodes = [{"NodeID": "n1", "Alive": False}]
    assert [land(made).kind for _ in range(3 * launch.RETRIES)] == ["worker died"] * (3 * launch.RETRIES)
    assert made.deaths[KEY] <= launch.RETRIES and made.losses[KEY] > launch.RETRIES


def test_a_node_that_cannot_do_the_work_refuses_it(tmp_path):
    made = supervisor(tmp_path, errors.RuntimeEnvSetupError("no such environment"))
    told = land(made)
    assert told.kind == "refused" and "runtime environment" in told.reason and not made.pending


def test_a_worker_that_does_not_see_the_lab_says_so(tmp_path):
    order = plain(Order(str(tmp_path / "elsewhere")))
    with pytest.raises(SaccadeError, match="folder that all nodes share"):
        module._check(order, [TASK])


def test_of_a_printed_traceback_the_sentence_is_kept():
    printed = "The actor died because of an error.\n  File x\nsaccade.errors.SaccadeError: the lab is away; look.\n"
    assert module.reason_of(RuntimeError(printed)) == "the lab is away; look."
    assert module.reason_of(RuntimeError("one\ntwo")) == "one"
