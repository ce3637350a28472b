"""Geometry: sizes from rows, groups and device alone, and everything covered exactly once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabgrpc.core.geometry import MAX_CHUNKS, Geometry
from tabgrpc.core.ownership import by_rows

rows = st.one_of(st.integers(1, 5000), st.integers(1, 50_000_000), st.sampled_from([1, 127, 128, 129, 2048 * 256, 2048 * 256 + 1]))
groups = st.integers(1, 600)
devices = st.sampled_from(["cpu", "cuda"])


@given(rows=rows, groups=groups, device=devices)
def test_sizes_are_a_pure_function_and_survive_json(rows, groups, device):
    """Catches a size that depends on anything but the arguments, and a field that a manifest would lose."""
    geometry = Geometry.of(rows, groups, device)
    assert geometry == Geometry.of(rows, groups, device) == Geometry(**geometry.as_dict())
    assert geometry.block % geometry.quantum == 0
    # nothing but the count of feature chunks may follow the groups
    other = Geometry.of(rows, groups + 1, device).as_dict()
    assert {k: v for k, v in geometry.as_dict().items() if k != "groups"} == {k: v for k, v in other.items() if k != "groups"}


@given(rows=rows, device=devices)
def test_chunks_and_blocks_cover_the_rows_once(rows, device):
    """Catches a row in no block or in two, a short block that isn't the last, and more chunks than an ownership map may have."""
    geometry = Geometry.of(rows, 3, device)
    assert 1 <= geometry.chunks <= MAX_CHUNKS == 256
    chunks = [geometry.chunk_blocks(chunk) for chunk in range(geometry.chunks)]
    assert chunks[0].start == 0
    assert chunks[-1].stop == geometry.blocks
    assert all(left.stop == right.start for left, right in itertools.pairwise(chunks))
    assert all(len(chunk) == geometry.blocks_per_chunk for chunk in chunks[:-1])
    ends = [geometry.block_rows(at) for at in (0, geometry.blocks - 1)]
    assert ends[0].start == 0
    assert ends[1].stop == rows
    assert 0 < len(ends[1]) <= geometry.block
    middle = geometry.blocks // 2
    assert geometry.block_rows(middle).start == middle * geometry.block


@given(rows=rows, device=devices)
def test_a_chunk_is_a_whole_subtree(rows, device):
    """The level of blocks_per_chunk has one node a chunk. Catches a chunk that would need another owner's block to merge its own."""
    geometry = Geometry.of(rows, 3, device)
    level = geometry.blocks_per_chunk.bit_length() - 1
    assert 1 << level == geometry.blocks_per_chunk
    for chunk in {0, geometry.chunks // 2, geometry.chunks - 1}:
        blocks = geometry.chunk_blocks(chunk)
        assert (blocks.start, blocks.stop) == (chunk << level, min((chunk + 1) << level, geometry.blocks))


@given(rows=st.integers(1, 5000), groups=groups, device=devices)
def test_quanta_and_feature_chunks_cover_a_block_once(rows, groups, device):
    """Catches a row or a column that is computed twice or not at all, and a product larger than promised."""
    geometry = Geometry.of(rows, groups, device)
    for block in {0, geometry.blocks - 1}:
        part = geometry.block_rows(block)
        quanta = list(geometry.quanta(part))
        assert [row for quantum in quanta for row in quantum] == list(part)
        assert all(len(quantum) == geometry.quantum for quantum in quanta[:-1])
        chunks = list(geometry.feature_chunks(len(part)))
        assert [group for chunk in chunks for group in chunk] == list(range(groups))
        assert all(len(chunk) == 1 or len(chunk) * len(part) <= geometry.cells for chunk in chunks)


@given(rows=rows, groups=groups, one=st.integers(1, 64), other=st.integers(1, 64))
def test_the_number_of_workers_is_no_argument(rows, groups, one, other):
    """Two pools' maps are over the same chunks."""
    geometry = Geometry.of(rows, groups)
    maps = [by_rows(1, 1, geometry.chunks, [str(at) for at in range(count)]) for count in (one, other)]
    assert len(maps[0].owners[0]) == len(maps[1].owners[0]) == geometry.chunks


@pytest.mark.parametrize(("rows", "groups"), [(0, 3), (3, 0), (-1, 3), (0, 0)])
def test_no_rows_or_no_features_are_refused(rows, groups):
    with pytest.raises(ValueError, match="needs rows and features"):
        Geometry.of(rows, groups)


@pytest.mark.parametrize(
    "change", [{"quantum": 48}, {"blocks_per_chunk": 3}, {"quantum": 0}, {"block": 0}, {"tile": -1}, {"blocks_per_chunk": 0}]
)
def test_a_geometry_that_cannot_be_is_refused(change):
    """It comes over the wire and from disk. Catches a division by zero in place of an error that names the value."""
    with pytest.raises(ValueError, match="|".join(change) if min(change.values()) < 1 else "must divide"):
        Geometry(**{**Geometry.of(300, 7).as_dict(), **change})
