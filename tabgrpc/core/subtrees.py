"""Which subtrees of the reduction tree an owner's partials make up, known beforehand: nobody has to send their names."""

from __future__ import annotations

from collections.abc import Iterable

from tabgrpc.core.ownership import Run


def subtrees(runs: Iterable[Run], total: int) -> tuple[tuple[int, int], ...]:
    """(level, index) of the maximal subtrees that the runs' blocks make up in a tree over ``total`` blocks, in block order.

    The same ones, in the same order, as ``reduction.Tree`` has after the runs' partials were added to it. Raises ValueError if a block is
    none of the tree's or is given twice.
    """
    waiting: set[tuple[int, int]] = set()
    seen: set[int] = set()
    for run in runs:
        if run.start < 0 or run.stop > total:
            raise ValueError(f"blocks {run.start} to {run.stop} are not in a tree over {total} blocks")
        for block in range(run.start, run.stop):
            if block in seen:
                raise ValueError(f"block {block} is in two runs")
            seen.add(block)
            waiting.add(_risen(waiting, block, total))
    return tuple(sorted(waiting, key=lambda at: at[1] << at[0]))


def _risen(waiting: set[tuple[int, int]], index: int, total: int) -> tuple[int, int]:
    """How far up a block gets with the siblings that wait already; takes those out."""
    level = 0
    while (width := -(-total >> level)) > 1:
        if (sibling := index ^ 1) < width:
            if (level, sibling) not in waiting:
                break
            waiting.remove((level, sibling))
        level, index = level + 1, index // 2
    return level, index
