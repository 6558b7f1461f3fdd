"""What a run costs, before it is trained: operations counted, large models never built."""

import time

import pytest
import torch

from saccade import models
from saccade.spec import Recipe, Run, Settings
from saccade.training import cost


def test_operations_of_lenet_are_those_of_its_layers():
    macs = 28 * 28 * 6 * 75 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    counted = cost.count("lenet", Settings(), 10, (3, 32, 32))
    assert (counted.operations, counted.parameters) == (2 * macs, 62_006)


def test_a_large_model_is_priced_without_a_step(monkeypatch):
    monkeypatch.setattr(cost, "make_optimizer", lambda *_: pytest.fail("a step was taken"))
    run = Run("conv_stem_vit", "photos", Recipe(images=64, batch=32), 0, data_args=Settings(of="procedural_textures"))
    known = cost.cost(run)
    assert known["parameters"] > 30e6 and known["image_seconds"] > 2 * known["answer_seconds"] > 0


@pytest.mark.parametrize(("device", "counts"), [("cpu", False), ("cuda", True)])
def test_waiting_for_other_programs_counts_on_a_gpu_only(device, counts):
    """There the host waits for the device; on a processor a plan made beside other work must not be longer for it."""
    assert (cost._time(lambda: time.sleep(0.05), device) > 0.025) == counts


def test_a_model_that_needs_numbers_is_not_counted():
    assert cost.count("lenet", Settings(), 10, (3, 16, 16)) is None


def test_a_model_that_was_counted_still_runs_on_numbers():
    """Layers remember their index tables; those made while counting must serve the model that is trained."""
    for name, args in (("local_attn", Settings(size="mini", window=2)), ("local_dw", Settings(size="mini", window=0))):
        cost.count(name, args, 10, (3, 32, 32))
        model = models.build(name, 10, seed=0, **args)
        assert torch.isfinite(model(torch.zeros(2, 3, 32, 32))).all()
