"""A round of query tiles through members whose rows a group of workers own together.

Tile t of a round is at home on rank t modulo the group's size: that worker computes the tile's vectors, reduces its partials and gives its
outputs. The tiles t, one on each rank, that are computed together are a slot. A layer of a slot is two collectives: the queries of all its
tiles and members to everybody, and everybody's partials back to the tiles' homes, all members in one message. While the collective of one
slot is under way the next one computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tabgrpc.core.head import Head
from tabgrpc.core.reduction import complete
from tabgrpc.core.subtrees import subtrees
from tabgrpc_workers import query
from tabgrpc_workers.device import Task
from tabgrpc_workers.exchange import Group
from tabgrpc_workers.inturn import Step, in_turn
from tabgrpc_workers.packing import packed_partials, partial_numel, unpacked_partials
from tabgrpc_workers.shard import ModelShards

SLOTS_AT_ONCE = 2


def homes(tiles: int, size: int) -> list[range]:
    """The tiles of a round that each rank is home of."""
    return [range(rank, tiles, size) for rank in range(size)]


def run(
    model: ModelShards, members: Sequence[int], group: Group, tiles: int, x: Mapping[tuple[int, int], Tensor], asked: Head
) -> Task[dict[tuple[int, int], Tensor]]:
    """x[member, tile]: (tile, F) of the tiles that this rank is home of. Outputs by the same keys, (tile, O)."""
    out: dict[tuple[int, int], Tensor] = {}
    slots = [range(first, min(first + group.size, tiles)) for first in range(0, tiles, group.size)]
    yield from in_turn((_slot(model, members, group, slot, x, asked, out) for slot in slots), SLOTS_AT_ONCE)
    return out


def _slot(
    model: ModelShards,
    members: Sequence[int],
    group: Group,
    slot: range,
    x: Mapping[tuple[int, int], Tensor],
    asked: Head,
    out: dict[tuple[int, int], Tensor],
) -> Step:
    """One tile for each rank, or for the first of them. A rank without a tile takes part in the collectives all the same."""
    backbone, geometry, ranks = model.backbone, model.geometry, range(len(slot))
    shards = [model.shard(member, fitted=True) for member in members]
    names = [[subtrees(runs[member], geometry.blocks) for member in members] for runs in group.runs]  # [rank][member]
    home = group.rank in ranks
    hidden: list[Tensor] = []
    if home:
        for member, shard in zip(members, shards, strict=True):
            hidden.append((yield from query.vectors(model, shard, x[member, slot[group.rank]])))
    else:
        heads, width, dtype = shards[0].head_sizes
        nothing = torch.zeros(len(members), heads, geometry.tile, width, dtype=dtype, device=backbone.device)
    for layer in range(backbone.shape.icl_layers):
        queries = torch.stack([backbone.icl_queries(layer, rows, geometry.rows) for rows in hidden]) if home else nothing
        yield (pending := group.gather(queries))
        everyones = pending.result()
        parts = []
        for rank in ranks:
            for at, shard in enumerate(shards):
                nodes = query.attention(model, shard, layer, everyones[rank, at])
                parts.append(packed_partials(nodes, names[group.rank][at]))
                like = nodes[0].partial
                yield None
        each = partial_numel(like)
        sizes = [each * sum(map(len, owned)) for owned in names]
        sent = [sizes[group.rank] if rank in ranks else 0 for rank in range(group.size)]
        yield (pending := group.swap(torch.cat(parts), sent, sizes if home else [0] * group.size))
        flat = pending.result()
        if not home:
            continue
        lengths = [each * len(own) for owned in names for own in owned]
        pieces = flat.split(lengths)  # by rank, then member
        for at in range(len(members)):
            nodes = []
            for rank in range(group.size):
                nodes += unpacked_partials(pieces[rank * len(members) + at], names[rank][at], like)
            hidden[at] = query.end(model, layer, hidden[at], complete(nodes, geometry.blocks))
        yield None
    for at, member in enumerate(members if home else ()):
        out[member, slot[group.rank]] = backbone.head(hidden[at], asked)
