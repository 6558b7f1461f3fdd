"""Several processes train one run together: `torchrun --nproc-per-node 2 -m saccade train ...`.

Every process draws the same batch with the same augmentation and learns from its share of it; gradients are averaged.
So the result is that of one process at the same batch, up to the order of sums, and to dropout, which each process
draws for itself. Batch norm is over the whole batch.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.nn.modules.batchnorm import _BatchNorm

from saccade.spec import SaccadeError

PATIENCE = datetime.timedelta(days=2)  # others wait for the first while it measures; torchrun ends them if it dies
NONE = "none"
NOTICE = "saccade/notice"  # where the first informs the others, before they have met, whether there is work


class Closed(Exception):
    """The first process has left the run: it was asked to save and stop."""


@dataclass(frozen=True)
class Group:
    """This process among those of its run. Alone, every method gives back what it was given."""

    rank: int = 0
    size: int = 1

    def part(self, batch: int) -> slice:
        """This process' share of a batch."""
        if batch % self.size:
            raise SaccadeError(
                f"a batch of {batch} cannot be shared equally by {self.size} processes; set batch to a "
                f"multiple of {self.size}."
            )
        each = batch // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model to call in training; parameters and buffers stay those of `model`."""
        if self.size == 1:
            return model
        share_batch_norm(model)
        return nn.parallel.DistributedDataParallel(model)

    def mean(self, value: Tensor) -> Tensor:
        return value if self.size == 1 else self.sum(value) / self.size

    def sum(self, value: Tensor) -> Tensor:
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def agree(self, value: float = 1.0) -> float:
        """The first process' value, so that all decide alike; the others end here when it has left."""
        if self.size == 1:
            return value
        sent = torch.tensor(value, dtype=torch.float64)  # on the CPU: a GPU need not be waited for
        dist.broadcast(sent, 0)
        if self.rank and math.isnan(sent.item()):
            raise Closed
        return sent.item()

    def leave(self) -> None:
        """Called by the first process when it goes no further with a run."""
        if self.size > 1 and self.rank == 0:
            dist.broadcast(torch.tensor(math.nan, dtype=torch.float64), 0)


ALONE = Group()


class Total(torch.autograd.Function):
    """The sum over all processes. Every one's loss depends on it, so that gradients are summed likewise."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return current().sum(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return current().sum(grads[0].contiguous())


class SharedBatchNorm(_BatchNorm):
    """Batch norm over the whole batch of all processes, on any device (torch's own is for GPUs only)."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or current().size == 1:
            return super().forward(input)
        self._check_input_dim(input)
        x, dims, shape = input.float(), [0, *range(2, input.ndim)], [1, -1] + [1] * (input.ndim - 2)
        n = x.numel() // x.shape[1] * current().size
        mean = Total.apply(x.sum(dims)) / n
        centred = x - mean.view(shape)
        variance = Total.apply((centred * centred).sum(dims)) / n
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            with torch.no_grad():
                self.running_mean.lerp_(mean, rate)
                self.running_var.lerp_(variance * (n / max(1, n - 1)), rate)
        out = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(input.dtype)


def share_batch_norm(model: nn.Module) -> None:
    """Make every batch norm below `model` a shared one, in place. A kind with a forward of its own keeps it."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, SharedBatchNorm):
            kind = type(module)  # SharedBatchNorm comes after it and before what it derives from
            module.__class__ = type(f"Shared{kind.__name__}", (kind, SharedBatchNorm), {})


def current() -> Group:
    """The group that this process has joined; else alone."""
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    return Group(dist.get_rank(), dist.get_world_size())


def started() -> bool:
    """Whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def place(device: str) -> str:
    """This process' own device, of the kind that the first one has."""
    local = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return local if device.startswith("cuda") else device


def join(device: str = "cpu") -> Group:
    """Meet the other processes. Small decisions travel over the CPU, gradients over the device."""
    if not (dist.is_available() and dist.is_initialized()):
        if device.startswith("cuda"):
            torch.cuda.set_device(place(device))
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
    return current()


def send(order: Mapping[str, Any] | None, payload: bytes = b"") -> None:
    """To all others: what to train next with a saved state, or None: go home. Text and bytes, nothing is unpickled."""
    text = json.dumps(order).encode()
    dist.broadcast(torch.tensor([len(text), len(payload)]), 0)
    for part in (text, payload):
        if part:
            dist.broadcast(torch.frombuffer(bytearray(part), dtype=torch.uint8), 0)


def receive() -> tuple[Any, bytes]:
    sizes = torch.zeros(2, dtype=torch.long)
    dist.broadcast(sizes, 0)
    parts = []
    for size in sizes.tolist():
        part = torch.zeros(size, dtype=torch.uint8)
        if size:
            dist.broadcast(part, 0)
        parts.append(part.numpy().tobytes())
    return json.loads(parts[0]), parts[1]


def give_notice(text: str) -> None:
    """Tell waiting processes that there is work, by the device for it, or NONE. The first notice counts."""
    with contextlib.suppress(RuntimeError):  # dist.DistError is one: torchrun is gone, and so are the others
        _store().compare_set(NOTICE, "", text)


def await_notice() -> str:
    store = _store()
    store.wait([NOTICE], PATIENCE)
    return bytes(store.get(NOTICE)).decode()


def _store() -> Any:
    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=PATIENCE)


def leave() -> None:
    """Leave the group of processes, if this one joined it."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
