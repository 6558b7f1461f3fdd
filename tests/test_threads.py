"""One thread where several do not pay, and the user's number afterwards."""

import torch

from saccade.subjects import threads


def test_threads_are_as_before_afterwards(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for pays, inside in ((True, 2), (False, 1)):
            monkeypatch.setattr(threads, "_pay", lambda many, pays=pays: pays)
            with threads.that_pay() as used:
                assert used == torch.get_num_threads() == inside
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_threads_that_wait_do_not_pay(monkeypatch):
    """A clock that runs slower with several threads, as on a busy machine, and one that runs faster."""
    now = [0.0]
    before = torch.get_num_threads()
    try:
        for slower, pays in ((50.0, False), (0.5, True)):

            def clock(slower=slower):
                now[0] += slower if torch.get_num_threads() > 1 else 1.0
                return now[0]

            monkeypatch.setattr(threads.time, "perf_counter", clock)
            assert threads._pay(2) is pays
    finally:
        torch.set_num_threads(before)
