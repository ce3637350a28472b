"""More classes than a network tells apart: labels as digits for the column stage, and a tree of groups for in-context learning.

Both are TabICL's (Qu et al., arXiv:2502.05564, section on many classes). A label becomes a few digits of a mixed radix, each of which the
column stage is shown in turn; what comes out is averaged. In-context learning goes down a tree: the root tells groups of labels apart,
each group is a node of its own over the rows that have its labels, until a node has few enough labels to tell them apart themselves.

A node is a context like a table's: its own row list, cut into its own canonical blocks and chunks, with its own K/V. Everything here is a
pure function of how often each label occurs, so that whoever knows the counts knows the tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import OwnershipMap

Labels = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def bases(classes: int, most: int) -> tuple[int, ...]:
    """Radices for ``classes`` labels, each at most ``most``, as TabICL balances them: the labels' digits, the first one the coarsest."""
    if classes <= most:
        return (classes,)
    digits = math.ceil(math.log(classes) / math.log(most))
    found = [min(math.ceil(classes ** (1.0 / digits)), most)] * digits
    for at in range(digits):
        if math.prod(found) >= classes:
            break
        found[at] = min(found[at] + 1, most)
    return tuple(found)


def digit(labels: Labels, at: int, radices: Sequence[int]) -> Labels:
    """Digit ``at`` of each label, in [0, radices[at])."""
    return (labels // math.prod(radices[at + 1 :])) % radices[at]


def groups(classes: int, most: int) -> tuple[int, ...]:
    """Sizes of the groups of consecutive labels that a node tells apart; with at most ``most`` labels each is its own."""
    if classes <= most:
        return (1,) * classes
    count = min(-(-classes // most), most)
    sizes, left = [], classes
    for remaining in range(count, 0, -1):
        sizes.append(-(-left // remaining))
        left -= sizes[-1]
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class ClassNode:
    """One context of a member.

    start, stop: its labels. sizes: of its groups of labels; output i of the network is group i. children: the node of each group, empty
    for a leaf. rows: context rows that have its labels. depth: 0 for the root.
    """

    start: int
    stop: int
    sizes: tuple[int, ...]
    children: tuple[int, ...]
    rows: int
    depth: int

    def targets(self, labels: Labels) -> Labels:
        """What the node's rows are shown as: labels (rows,) in [start, stop) to groups (rows,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)[labels - self.start]

    def of(self, labels: Labels) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The node's row list: the places, ascending, of its rows among all rows' labels (rows,)."""
        return np.flatnonzero((labels >= self.start) & (labels < self.stop))


Tree = tuple[ClassNode, ...]


def class_tree(counts: Sequence[int], most: int) -> Tree:
    """The nodes, level by level, root first. counts[label]: context rows of it, all at least 1. most: classes that the network tells apart.

    With at most ``most`` labels the root is all there is.
    """
    if most < 2 or not counts or min(counts) < 1:
        raise ValueError(f"a tree needs at least two classes a node and rows of every class, not {most} and {list(counts)}")
    pending = [(0, len(counts), 0)]
    nodes: list[ClassNode] = []
    for start, stop, depth in pending:  # grows while it is gone through
        sizes = groups(stop - start, most)
        children: list[int] = []
        if len(sizes) < stop - start:
            for at, size in enumerate(sizes):
                first = start + sum(sizes[:at])
                children.append(len(pending))
                pending.append((first, first + size, depth + 1))
        nodes.append(ClassNode(start, stop, sizes, tuple(children), sum(counts[start:stop]), depth))
    return tuple(nodes)


def ownership(tree: Tree, geometry: Geometry, owners: Sequence[str], epoch: int = 1) -> OwnershipMap:
    """Who owns the nodes' chunks, given the owners of the table's chunks: ``members`` of this map are the nodes.

    A level's nodes, one after the other, are laid along the table's chunks by their rows, and a chunk of a node goes to the owner of the
    table's chunk that it starts in. The root's chunks are the table's. A worker that owns no chunk of the table owns none of a node, and
    when a table's chunk moves, the nodes' chunks that go with it move too, and no others.
    """
    before: dict[int, int] = {}
    total: dict[int, int] = {}
    for node in tree:
        total[node.depth] = total.get(node.depth, 0) + node.rows
    found = []
    for node in tree:
        own, first = geometry.of_rows(node.rows), before.get(node.depth, 0)
        starts = (first + chunk * own.blocks_per_chunk * own.block for chunk in range(own.chunks))
        found.append(tuple(owners[start * geometry.chunks // total[node.depth]] for start in starts))
        before[node.depth] = first + node.rows
    return OwnershipMap(epoch, tuple(found))


@dataclass(frozen=True, slots=True)
class Contexts:
    """What there is to compute and hold of one member. rows: context rows of each node, the root's first. digits: column stages."""

    rows: tuple[int, ...]
    digits: int = 1


def contexts(rows: int, counts: Sequence[int], most: int) -> Contexts:
    """Of a table of ``rows`` whose classes occur ``counts`` times (none for regression), under a network that tells ``most`` apart.

    Members that are shown other labels for the same classes have other groups, of about as many rows.
    """
    if most < 1 or len(counts) <= most:
        return Contexts((rows,))
    return Contexts(tuple(node.rows for node in class_tree(counts, most)), len(bases(len(counts), most)))
