"""Predict as one CUDA graph a batch size: hundreds of small launches cost one. Kernels and bits are those of an eager run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SMALLEST, TILE = 8, 64


def padded(rows: int) -> int:
    """The rows that a batch is computed with: few sizes, so that few graphs are kept. Rows don't depend on each other."""
    if rows <= TILE:
        return max(SMALLEST, 1 << (rows - 1).bit_length())
    return -(-rows // TILE) * TILE


class Graphs:
    """Captured runs of one function over rows, by number of rows. From the device thread only."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        """function: (R, F) to (R, O), on the device, without a synchronisation."""
        self._function = function
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, x: Tensor) -> Tensor:
        """x: (R, F) on any device. Returns (R, O) on the device; the next call of as many rows overwrites it."""
        rows = padded(x.shape[0])
        if rows not in self._captured:
            self._captured[rows] = self._capture(rows, x)
        graph, into, out = self._captured[rows]
        into[: x.shape[0]].copy_(x, non_blocking=True)
        graph.replay()
        return out[: x.shape[0]]

    def _capture(self, rows: int, like: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        into = torch.zeros(rows, like.shape[1], dtype=like.dtype, device="cuda")
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._function(into)  # kernels are compiled and loaded, constants made
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            out = self._function(into)
        return graph, into, out
