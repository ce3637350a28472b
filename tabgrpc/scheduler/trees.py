"""Members of more classes than the network tells apart, as the scheduler sees them: trees that follow from the classes' counts."""

from __future__ import annotations

from collections.abc import Sequence

from tabgrpc.core.classes import bases, class_tree
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.plan import BackboneShape
from tabgrpc.data.members import Members


def label_counts(members: Members, class_counts: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Of each member, the context rows of each label as it is shown them; empty where the network tells all classes apart itself."""
    if most < 1 or len(class_counts) <= most:
        return [()] * len(members)
    found = []
    for member in members:
        assert member.class_shuffle is not None
        shown = [0] * len(class_counts)
        for code, label in enumerate(member.class_shuffle):
            shown[int(label)] = class_counts[code]
        found.append(tuple(shown))
    return found


def units(counts: Sequence[int], geometry: Geometry, shape: BackboneShape) -> int:
    """Units of progress of fitting a member, as workers and scheduler count them. counts: as ``label_counts`` gives them."""
    if not counts:
        return geometry.blocks * (shape.column_blocks + shape.icl_layers)
    digits = len(bases(len(counts), shape.max_classes))
    nodes = sum(geometry.of_rows(node.rows).blocks for node in class_tree(counts, shape.max_classes))
    return geometry.blocks * (digits * shape.column_blocks + 1) + nodes * (shape.icl_layers - 1)
