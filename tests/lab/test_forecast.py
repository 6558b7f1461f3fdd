"""The forecast: known answers where there are any."""

import pytest

from saccade.lab import forecast
from saccade.lab.forecast import Figures, Sweep, simulate
from saccade.lab.store import Lab

FOREVER = 1e18
TEN_SECONDS = Figures((10.0,), overhead=0.0, index=0.001, bytes=1000.0, files=5.0)


def test_without_losses_it_is_a_division():
    told = simulate(TEN_SECONDS, Sweep(runs=8000, nodes=10, cores=8, life=FOREVER, price=2.0))
    assert told.ideal == 1000.0 and told.core_seconds == 80_000 and told.redone == 0
    assert told.ideal <= told.wall <= told.ideal + 80 * forecast.DISPATCH + 1e-6
    assert told.cost == pytest.approx(2.0 * told.wall * 80 / 3600)
    assert told.bytes == 8e6 and told.files == 40_000 and told.index == pytest.approx(8.0)


def test_the_longest_go_first_so_that_no_core_waits_for_them():
    told = simulate(Figures((1.0, 100.0), 0.0, 0.0, 0.0, 0.0), Sweep(runs=200, nodes=1, cores=100, life=FOREVER))
    assert told.wall == pytest.approx(101, abs=1)


def test_overhead_is_not_training():
    told = simulate(Figures((10.0,), 10.0, 0, 0, 0), Sweep(runs=1000, nodes=1, cores=10, life=FOREVER))
    assert told.busy == pytest.approx(0.5, abs=0.01)


def test_a_lost_node_costs_at_most_what_was_not_saved_and_loses_no_run():
    hour = Figures((3600.0,), 0.0, 0.0, 0.0, 0.0)
    told = simulate(hour, Sweep(runs=2000, nodes=100, cores=1, life=10 * 3600.0))
    expected = 2000 * 0.1  # losses, on average
    assert 0.8 * expected * 7.5 < told.redone < 1.25 * expected * 7.5  # half of the time between two saves
    assert told.wall > told.ideal


def test_more_runs_than_are_simulated_scale_in_proportion(monkeypatch):
    sweep = Sweep(runs=50_000, nodes=10, cores=10, life=FOREVER)
    whole = simulate(TEN_SECONDS, sweep)
    monkeypatch.setattr(forecast, "SIMULATED", 5000)
    assert simulate(TEN_SECONDS, sweep).wall == pytest.approx(whole.wall, rel=0.02)
    few = simulate(TEN_SECONDS, Sweep(runs=50_000, nodes=1, cores=2, life=FOREVER))
    assert few.wall == pytest.approx(250_000, rel=0.01)


def test_a_supervisor_that_is_too_slow_is_named():
    told = simulate(Figures((0.01,), 0.0, 0.0, 0.0, 1.0), Sweep(runs=100_000, nodes=1000, cores=64, life=FOREVER))
    assert told.wall >= 100_000 * forecast.DISPATCH and "supervisor" in told.warnings[0]


@pytest.mark.slow
def test_too_many_folders_files_and_requests_are_named():
    told = simulate(Figures((60.0,), 0, 0, 1e5, 9.0), Sweep(runs=10**8, nodes=10_000, cores=64, life=FOREVER))
    words = " ".join(told.warnings)
    assert "folders side by side" in words and "files are too many" in words and "requests per second" in words


@pytest.mark.slow
def test_figures_come_from_a_lab_that_has_runs(tmp_path):
    from benchmarks.lab import synthetic

    synthetic(tmp_path / "lab", 3)
    found = forecast.measure(Lab(tmp_path / "lab"), [1.0, 2.0])
    assert found.seconds == (1.0, 2.0) and found.files == 5 and 1000 < found.bytes < 20_000
    empty = forecast.measure(Lab(tmp_path / "none"), [1.0])
    assert empty.bytes > 500_000 and 0 < empty.overhead < 60 and empty.index > 0
