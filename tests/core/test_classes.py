"""The tree of class groups and the digits of labels: upstream's, and fit to be owned in parts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tabicl._model.embedding import ColEmbedding
from tabicl._model.learning import ICLearning

from tabgrpc.core.classes import bases, class_tree, digit, groups, ownership
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import by_rows

MOST = (2, 3, 7, 10)


@pytest.mark.parametrize("most", MOST)
def test_digits_and_groups_are_upstreams(most):
    """Catches another rounding of the radices, digits in another order, groups of other sizes."""
    upstream = SimpleNamespace(max_classes=most)
    for classes in [*range(2, 130), 172, 343, 500, 999, 1000, 1001]:
        radices = ColEmbedding._compute_mixed_radix_bases(upstream, classes)
        assert list(bases(classes, most)) == radices, classes
        labels = np.arange(classes)
        for at in range(len(radices)):
            want = ColEmbedding._extract_mixed_radix_digit(upstream, torch.from_numpy(labels), at, radices)
            assert (digit(labels, at, radices) == want.numpy()).all()
            assert digit(labels, at, radices).max() < most
        if classes > most:
            assignment, count = ICLearning._grouping(upstream, classes)
            assert list(groups(classes, most)) == np.bincount(assignment.numpy(), minlength=count).tolist()


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=400), most=st.sampled_from(MOST))
def test_a_tree_tells_every_label_apart_once(counts, most):
    """Catches a label in no leaf or in two, a node wider than the network, rows that are counted twice or not at all."""
    tree = class_tree(counts, most)
    leaves = sorted(label for node in tree if not node.children for label in range(node.start, node.stop))
    assert leaves == list(range(len(counts)))
    assert (len(tree) == 1) == (len(counts) <= most)
    for node in tree:
        assert 1 <= len(node.sizes) <= most
        assert sum(node.sizes) == node.stop - node.start
        assert node.rows == sum(counts[node.start : node.stop])
        if node.children:
            inner = [tree[child] for child in node.children]
            assert [child.stop - child.start for child in inner] == list(node.sizes)
            assert sum(child.rows for child in inner) == node.rows
            assert {child.depth for child in inner} == {node.depth + 1}


def test_rows_and_targets_of_a_node():
    """Upstream's walk down the tree, by its own labels: 25 classes are groups of 9, 8 and 8."""
    labels = np.random.default_rng(0).permutation(np.arange(25).repeat(3))
    tree = class_tree(np.bincount(labels).tolist(), 10)
    assert [(node.start, node.stop) for node in tree] == [(0, 25), (0, 9), (9, 17), (17, 25)]
    assert (tree[0].targets(labels) == np.digitize(labels, [9, 17])).all()
    for node in tree[1:]:
        rows = node.of(labels)
        assert (np.diff(rows) > 0).all(), "in the table's order"
        assert (node.targets(labels[rows]) == labels[rows] - node.start).all()


@given(
    counts=st.lists(st.integers(1, 90), min_size=2, max_size=60),
    most=st.sampled_from((3, 10)),
    workers=st.integers(1, 6),
    groups=st.integers(1, 40),
)
def test_nodes_are_owned_by_owners_of_the_table_and_move_with_its_chunks(counts, most, workers, groups):
    geometry = Geometry.of(sum(counts), groups)
    names = [f"w{at}" for at in range(workers)]
    table = by_rows(1, 1, geometry.chunks, names)
    tree = class_tree(counts, most)
    nodes = ownership(tree, geometry, table.owners[0])
    assert nodes.owners[0] == table.owners[0], "the root is the table"
    for node, owners in zip(tree, nodes.owners, strict=True):
        assert len(owners) == geometry.of_rows(node.rows).chunks
    moved = tuple("heir" if owner == names[0] else owner for owner in table.owners[0])
    after = ownership(tree, geometry, moved, 2)
    for old, new in zip(nodes.owners, after.owners, strict=True):
        assert new == tuple("heir" if owner == names[0] else owner for owner in old)


def test_small_nodes_are_spread_over_the_owners():
    """Catches all leaves at one worker: they are what a predict waits for."""
    counts = [100] * 50
    geometry = Geometry.of(5000, 10)
    nodes = ownership(class_tree(counts, 10), geometry, by_rows(1, 1, geometry.chunks, ["a", "b"]).owners[0])
    first = [owners[0] for owners in nodes.owners[1:]]
    assert abs(first.count("a") - first.count("b")) <= 1


@pytest.mark.parametrize(("counts", "most"), [((), 10), ((3, 0), 10), ((1, 1), 1)])
def test_no_tree_of_nothing(counts, most):
    with pytest.raises(ValueError, match="rows of every class"):
        class_tree(counts, most)
