"""How K/V get from one kind of memory to another. On a CPU worker host memory is what computes, and nothing has to move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from tabgrpc_workers.kernels import KVRun


class Mover(Protocol):
    """tiers: the kinds of memory, the one that computes first, files last."""

    tiers: tuple[str, ...]

    def to_device(self, run: KVRun) -> KVRun:
        """A run in host memory to where it is computed with; it may still be on its way. Called from a reader's thread."""

    def arrived(self, run: KVRun) -> None:
        """Makes sure that a run that ``to_device`` gave can be computed with. Called from the device thread."""

    def to_host(self, run: KVRun) -> KVRun:
        """A run to host memory from where it is computed with."""


class CpuMover:
    """Host memory and files."""

    tiers: tuple[str, ...] = ("host", "disk")

    def to_device(self, run: KVRun) -> KVRun:
        return run

    def arrived(self, run: KVRun) -> None:
        pass

    def to_host(self, run: KVRun) -> KVRun:
        return run


class CudaMover:
    """A GPU's memory, pinned host memory and files. Copies run on a stream of their own, beside what computes."""

    tiers: tuple[str, ...] = ("device", "host", "disk")

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def to_device(self, run: KVRun) -> KVRun:
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            moved = _each(run, self._sent)
            self._stream.synchronize()  # in the reader's thread: what is handed over is there, and the pinned copy can go
        return moved

    def _sent(self, tensor: Tensor) -> Tensor:
        pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
        return pinned.to(self._device, non_blocking=True)

    def arrived(self, run: KVRun) -> None:
        stream = torch.cuda.current_stream(self._device)
        for tensor in (run.k, run.v, *(run.tail or ())):
            tensor.record_stream(stream)  # its memory isn't given to the next copy while this stream still reads it

    def to_host(self, run: KVRun) -> KVRun:
        def taken(tensor: Tensor) -> Tensor:
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            return pinned.copy_(tensor)

        return _each(run, taken)


def _each(run: KVRun, function: Callable[[Tensor], Tensor]) -> KVRun:
    tail = None if run.tail is None else (function(run.tail[0]), function(run.tail[1]))
    return KVRun(run.start, function(run.k), function(run.v), tail)


def mover(device: str) -> Mover:
    """Of the device that computes: "cpu", "cuda" or "cuda:N"."""
    return CpuMover() if device == "cpu" else CudaMover(torch.device(device))
