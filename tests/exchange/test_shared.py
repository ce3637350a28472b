"""The stages of a group against those of one owner, bit for bit: any ownership, any number of tiles, uneven shares, short last blocks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from inprocess import Pool, backbone, identical, no_progress, table
from members import everywhere, group_of
from tabgrpc_workers import shared_fit, shared_query
from tabgrpc_workers.device import PREDICT, Task
from tabgrpc_workers.exchange import Group
from tabgrpc_workers.inturn import in_turn
from tabgrpc_workers.packing import packed_partials
from torch import Tensor

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import OwnershipMap
from tabgrpc.core.reduction import Node, Partial, ReductionError
from tabgrpc.wire.errors import Cancelled, NotReady

NOBODY_GAVE_UP = (True, True, True)


def grouped(pool: Pool) -> list[Group]:
    names = pool.map.owners_of(0)
    return group_of(len(names), runs=[{0: pool.map.runs(0, name, pool.geometry)} for name in names])


def fit_all(pool: Pool, groups: Sequence[Group], wanted: Sequence[bool] = NOBODY_GAVE_UP) -> None:
    def job(rank: int) -> Task[None]:
        model, device = pool.models[rank], pool.devices[rank]
        tasks = [shared_fit.member(model, model.shards[0], device, groups[rank], lambda: wanted[rank], no_progress)]
        yield from in_turn(tasks, 2)

    everywhere(pool.devices, job)


def predict_all(pool: Pool, groups: Sequence[Group], tiles: Sequence[Tensor]) -> list[Tensor]:
    """Tiles through a round; their outputs in order."""

    def job(rank: int) -> Task[dict[tuple[int, int], Tensor]]:
        x = {(0, tile): tiles[tile] for tile in shared_query.homes(len(tiles), len(groups))[rank]}
        found = yield from shared_query.run(pool.models[rank], [0], groups[rank], len(tiles), x, Head(()))
        return {key: out.clone() for key, out in found.items()}

    found: dict[tuple[int, int], Tensor] = {}
    for part in everywhere(pool.devices, job, PREDICT):
        assert not set(part) & set(found), "a tile has two homes"
        found |= part
    return [found[0, tile] for tile in range(len(tiles))]


OWNERS = [("classifier", 300, "aab"), ("regressor", 1_000, "bacacbca"), ("classifier", 1_030, "abbbbcaab")]


@pytest.mark.parametrize(("kind", "rows", "owners"), OWNERS)
def test_any_ownership_gives_the_bits_of_one_owner(kind: str, rows: int, owners: str) -> None:
    """Catches partials cut at the wrong place, K/V of another rank taken for one's own, a share counted twice."""
    net = backbone(kind)
    x, y, asked = table(kind, rows, 5)
    chunks = Geometry.of(rows, net.groups(5)).chunks
    ownership = OwnershipMap(1, (tuple(owners[at % len(owners)] for at in range(chunks)),))
    tiles = [asked, asked.flip(0), asked * 2, asked - 1]
    with Pool(net, x, y).fit() as alone, Pool(net, x, y, ownership=ownership) as pool:
        groups = grouped(pool)
        fit_all(pool, groups)
        assert identical(pool.held(), alone.held())
        expected = [alone.predict(tile) for tile in tiles]
        for count in (4, 1):
            assert identical(predict_all(pool, groups, tiles[:count]), expected[:count]), f"{count} tiles on {len(groups)} workers"


def test_who_gives_up_stops_all_and_the_group_stays() -> None:
    """One of two callers is gone: both workers stop at the same place, and the same group then fits to the end."""
    net = backbone("classifier")
    x, y, asked = table("classifier", 300, 5)
    with Pool(net, x, y).fit() as alone, Pool(net, x, y, 2) as pool:
        groups = grouped(pool)
        with pytest.raises(Cancelled):
            fit_all(pool, groups, wanted=(True, False))
        assert not any(group.reason for group in groups)
        fit_all(pool, groups)
        assert identical(pool.held(), alone.held())


def test_a_fitted_or_foreign_shard_is_refused() -> None:
    """Nothing is computed from a stage whose input isn't there."""
    net = backbone("classifier")
    x, y, asked = table("classifier", 300, 5)
    with Pool(net, x, y, 2) as pool:
        groups = grouped(pool)
        with pytest.raises(NotReady, match="not fitted"):
            predict_all(pool, groups, [asked])


def test_subtrees_that_were_not_agreed_are_refused() -> None:
    """The message has no names: what isn't exactly what the others expect must not be sent."""
    part = Partial(torch.zeros(2, 3), torch.zeros(2), torch.zeros(2))
    assert packed_partials([Node(0, 4, part)], [(0, 4)]).numel() == 10
    for names in ([(0, 5)], [(1, 2)], [(0, 4), (0, 5)], []):
        with pytest.raises(ReductionError, match="agreed"):
            packed_partials([Node(0, 4, part)], names)
