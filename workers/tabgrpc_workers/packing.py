"""What a collective moves: partials and K/V as one flat tensor and back. Sizes are known on both sides; no names or shapes travel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import Run
from tabgrpc.core.reduction import Node, Partial, ReductionError
from tabgrpc_workers.kernels import KVRun

Names = Sequence[tuple[int, int]]
"""(level, index) of subtrees, in block order."""


def partial_numel(like: Partial) -> int:
    """Elements of a partial."""
    return like.acc.numel() + like.sum.numel() + like.peak.numel()


def packed_partials(nodes: Sequence[Node], names: Names) -> Tensor:
    """Subtrees as a flat tensor. Raises ReductionError if they aren't those that the others will take them for."""
    found = [(node.level, node.index) for node in nodes]
    if found != list(names):
        raise ReductionError(f"subtrees {found} where {list(names)} are agreed")
    return torch.cat([part.reshape(-1) for node in nodes for part in (node.partial.acc, node.partial.sum, node.partial.peak)])


def unpacked_partials(flat: Tensor, names: Names, like: Partial) -> list[Node]:
    """Subtrees of a flat tensor, which may be longer. like: a partial of the same shapes."""
    nodes, each, vectors = [], partial_numel(like), like.sum.numel()
    for at, (level, index) in enumerate(names):
        acc, total, peak = flat[at * each : (at + 1) * each].split([like.acc.numel(), vectors, vectors])
        nodes.append(Node(level, index, Partial(acc.view(like.acc.shape), total.view(like.sum.shape), peak.view(like.peak.shape))))
    return nodes


def kv_numel(runs: Iterable[Run], geometry: Geometry, like: KVRun) -> int:
    """Elements of the K/V of some runs at one layer."""
    rows = sum(len(geometry.block_rows(at)) for run in runs for at in range(run.start, run.stop))
    return 2 * rows * like.k.shape[1] * like.k.shape[3]


def packed_kv(runs: Sequence[KVRun]) -> Tensor:
    """K/V runs as a flat tensor."""
    return torch.cat([part.reshape(-1) for run in runs for part in (run.k, run.v, *(run.tail or ()))])


def unpacked_kv(flat: Tensor, runs: Iterable[Run], geometry: Geometry, like: KVRun) -> list[KVRun]:
    """K/V runs as views of a flat tensor, which may be longer. like: a run of the same heads and widths."""
    heads, width = like.k.shape[1], like.k.shape[3]
    found, at = [], 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        size = torch.Size(shape).numel()
        at += size
        return flat[at - size : at].view(shape)

    for run in runs:
        lengths = [len(geometry.block_rows(block)) for block in range(run.start, run.stop)]
        full = sum(length == geometry.block for length in lengths)
        k, v = (take(full, heads, geometry.block, width) for _ in range(2))
        tail = None if full == len(lengths) else (take(heads, lengths[-1], width), take(heads, lengths[-1], width))
        found.append(KVRun(run.start, k, v, tail))
    return found
