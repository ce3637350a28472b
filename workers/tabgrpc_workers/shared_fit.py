"""Fitting a member whose rows a group of workers own together: the stages of ``fit``, with collectives between them.

Every worker starts the same collectives: one all-gather of partials a column block, one of K/V an ICL layer. Each carries one number more,
whether that worker's caller still wants the fit; so all of them learn of a caller who gave up at the same place, and stop there together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from torch import Tensor

from tabgrpc.core.reduction import complete
from tabgrpc.core.subtrees import subtrees
from tabgrpc.wire.errors import Cancelled
from tabgrpc_workers import fit
from tabgrpc_workers.device import Device
from tabgrpc_workers.exchange import Group
from tabgrpc_workers.inturn import Step
from tabgrpc_workers.packing import kv_numel, packed_kv, packed_partials, partial_numel, unpacked_kv, unpacked_partials
from tabgrpc_workers.shard import ModelShards, Shard

_ALIGNED = 64
"""Elements."""


def member(
    model: ModelShards, shard: Shard, device: Device, group: Group, wanted: Callable[[], bool], progress: fit.Progress
) -> Step:
    """All stages of a member whose owners are the group's workers. The same bits as the stages one by one over gRPC."""
    shape, geometry = model.backbone.shape, model.geometry
    everyone = [runs[shard.member] for runs in group.runs]
    names = [subtrees(runs, geometry.blocks) for runs in everyone]
    for block in range(shape.column_blocks):
        nodes = yield from fit.column(model, shard, device, block, progress)
        like = nodes[0].partial
        flat = packed_partials(nodes, names[group.rank])
        received = yield from _gathered(group, flat, max(map(len, names)) * partial_numel(like), wanted)
        everyones = [node for part, own in zip(received, names, strict=True) for node in unpacked_partials(part, own, like)]
        fit.column_end(model, shard, block, complete(everyones, geometry.blocks))
    yield from fit.rows(model, shard, device, progress)
    for layer in range(shape.icl_layers - 1):
        kv = shard.kv[layer][0]
        longest = max(kv_numel(runs, geometry, kv) for runs in everyone)
        received = yield from _gathered(group, packed_kv(shard.kv[layer]), longest, wanted)
        others = [rank for rank in range(group.size) if rank != group.rank]
        foreign = [run for rank in others for run in unpacked_kv(received[rank], everyone[rank], geometry, kv)]
        yield from fit.icl(model, shard, device, layer, foreign, progress)


def _gathered(group: Group, flat: Tensor, longest: int, wanted: Callable[[], bool]) -> Generator[Any, None, Tensor]:
    """All ranks' flat tensors, (size, at least longest + 1), each filled up to a length that keeps every rank's aligned for vector loads.

    Raises Cancelled, on all ranks, if one of them is no longer wanted.
    """
    part = flat.new_zeros((longest // _ALIGNED + 1) * _ALIGNED)
    part[: flat.numel()] = flat
    part[-1] = 0.0 if wanted() else 1.0
    pending = group.gather(part)
    yield pending
    received = pending.result()
    if bool(received[:, -1].any()):
        raise Cancelled("the caller gave up")
    return received
