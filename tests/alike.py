"""A model trained with and without a kernel in C: the same gradients, and evaluation without the kernel."""

import torch

from saccade import models
from saccade.layers import kernels


def assert_trains_alike(kernel, name, settings, monkeypatch):
    """Evaluation takes torch's own path, so that a probe sees the operations that it looks for."""
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model, called, whole = models.build(name, 10, seed=0, **settings), [], getattr(kernels, kernel)
    monkeypatch.setattr(kernels, kernel, lambda: called.append(1) or whole())

    def gradients():
        model.zero_grad()
        model.train()(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    ours = gradients()
    assert called
    called.clear()
    model.eval()(x)
    assert not called
    monkeypatch.setattr(kernels, kernel, lambda: None)
    largest = max(float(g.abs().max()) for g in ours)
    for mine, theirs in zip(ours, gradients(), strict=True):
        assert (mine - theirs).abs().max() <= 1e-4 * largest
