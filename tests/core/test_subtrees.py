"""Subtrees known beforehand are those that the tree has: a worker cuts a flat message by them, so a difference would mix up partials."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import OwnershipMap, Run
from tabgrpc.core.reduction import Node, Partial, Tree
from tabgrpc.core.subtrees import subtrees


def one() -> Partial:
    return Partial(np.ones((1,), np.float32), np.float32(1), np.float32(0))


@st.composite
def owned(draw: st.DrawFn) -> tuple[Geometry, OwnershipMap]:
    """Any division of chunks among up to five workers, scattered ones included."""
    rows = draw(st.integers(1, 40_000))
    geometry = Geometry.of(rows, 3)
    owners = draw(st.lists(st.sampled_from("abcde"), min_size=geometry.chunks, max_size=geometry.chunks))
    return geometry, OwnershipMap(1, (tuple(owners),))


@given(owned())
def test_they_are_the_trees_own(case: tuple[Geometry, OwnershipMap]) -> None:
    """For every owner, in the same order; and all owners' together are the whole tree."""
    geometry, ownership = case
    everyone = Tree(geometry.blocks)
    for name in ownership.owners_of(0):
        runs = ownership.runs(0, name, geometry)
        tree = Tree(geometry.blocks)
        for run in runs:
            for block in range(run.start, run.stop):
                tree.add(Node(0, block, one()))
        found = subtrees(runs, geometry.blocks)
        assert list(found) == [(node.level, node.index) for node in tree.nodes()]
        for level, index in found:
            everyone.add(Node(level, index, one()))
    everyone.root()


@pytest.mark.parametrize("runs", [[Run(0, 4), Run(3, 5)], [Run(0, 2), Run(0, 1)], [Run(0, 9)], [Run(6, 8), Run(6, 8)]])
def test_runs_that_are_none_are_refused(runs: list[Run]) -> None:
    with pytest.raises(ValueError, match="block"):
        subtrees(runs, 8)
