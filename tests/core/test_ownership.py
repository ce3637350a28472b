"""Ownership maps: every block has one owner, runs are maximal, whatever the number of workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import OwnershipMap, by_members, by_rows, split_evenly

workers = st.integers(1, 64).map(lambda count: [f"w{at}" for at in range(count)])
geometries = st.integers(1, 1_500_000).map(lambda rows: Geometry.of(rows, 3))


def check_cover(ownership: OwnershipMap, geometry: Geometry) -> None:
    for member, chunks in enumerate(ownership.owners):
        assert len(chunks) == geometry.chunks
        runs = [(run, worker) for worker in ownership.owners_of(member) for run in ownership.runs(member, worker, geometry)]
        assert sorted(block for run, _ in runs for block in range(run.start, run.stop)) == list(range(geometry.blocks))
        assert sum(len(run) for run, _ in runs) == geometry.blocks
        for run, worker in runs:
            assert {chunks[block // geometry.blocks_per_chunk] for block in range(run.start, run.stop)} == {worker}
            if run.start:
                assert chunks[(run.start - 1) // geometry.blocks_per_chunk] != worker, "a run that isn't maximal"


@given(geometry=geometries, members=st.integers(1, 4), workers=workers)
def test_by_rows_covers_every_block_once(geometry, members, workers):
    """Catches a chunk without an owner, shares that differ by more than one, an owner out of order."""
    ownership = by_rows(3, members, geometry.chunks, workers)
    check_cover(ownership, geometry)
    assert ownership.epoch == 3
    assert len(ownership.owners) == members
    busy = min(len(workers), geometry.chunks)
    assert ownership.workers == tuple(workers[:busy]), "with more workers than chunks the last ones own nothing"
    assert all(len(ownership.runs(0, worker, geometry)) == (worker in ownership.workers) for worker in workers)
    counts = [ownership.owners[0].count(worker) for worker in ownership.workers]
    assert max(counts) - min(counts) <= 1


@given(geometry=geometries, members=st.integers(1, 70), workers=workers)
def test_by_members_gives_whole_members(geometry, members, workers):
    """Catches a member with two owners, which would be an exchange that the plan doesn't count."""
    ownership = by_members(1, members, geometry.chunks, workers)
    check_cover(ownership, geometry)
    assert all(len(ownership.owners_of(member)) == 1 for member in range(members))
    assert len(ownership.workers) == min(len(workers), members)


@given(geometry=st.integers(1, 3000).map(lambda rows: Geometry.of(rows, 3)), data=st.data())
def test_any_map_has_maximal_runs(geometry, data):
    """After repairs a worker's chunks lie anywhere."""
    names = st.sampled_from("abcde")
    chunks = st.lists(names, min_size=geometry.chunks, max_size=geometry.chunks).map(tuple)
    check_cover(OwnershipMap(1, (data.draw(chunks), data.draw(chunks))), geometry)


@given(count=st.integers(0, 300), parts=st.integers(1, 64))
def test_shares_are_even_and_in_order(count, parts):
    shares = split_evenly(count, parts)
    assert [at for share in shares for at in share] == list(range(count))
    sizes = [len(share) for share in shares]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_what_is_no_map_is_refused():
    for epoch, owners in ((0, (("a",),)), (1, ()), (1, ((),)), (1, (("a",), ()))):
        with pytest.raises(ValueError, match=r"epochs count|at least one chunk"):
            OwnershipMap(epoch, owners)
