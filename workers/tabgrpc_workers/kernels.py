"""Attention over canonical K/V blocks as partials, on the CPU.

PyTorch's own flash kernel for the CPU returns (out, lse). With fixed sizes of query and key blocks its result for one (batch, head) does
not depend on the others in the call (tests hold that), so any number of blocks may go into one call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tabgrpc.core.reduction import Node, Partial, Tree, fold, from_attention

_GROUP_BYTES = 32 << 20
"""Partials alive at once: a group of blocks is folded before the next one is computed."""


def partials(q: Tensor, k: Tensor, v: Tensor) -> Partial:
    """q, k, v: (B, H, n, d), q may be broadcast on B. Partials (B, H, n_q[, d]) of each batch entry's keys."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    return from_attention(out, lse)


class KVRun:
    """K/V of consecutive canonical blocks of one layer. k, v: (blocks, H, block, d); a short last block of the table lies apart.

    tail: K and V, each (H, r, d), of block ``start + len(k)`` if that is the table's short last one, else None.
    """

    __slots__ = ("k", "start", "tail", "v")

    def __init__(self, start: int, k: Tensor, v: Tensor, tail: tuple[Tensor, Tensor] | None) -> None:
        self.start, self.k, self.v, self.tail = start, k, v, tail

    @classmethod
    def of_rows(cls, start: int, block: int, k: Tensor, v: Tensor) -> KVRun:
        """From K and V (H, rows, d) of consecutive rows, the first of which starts block ``start``."""
        full = k.shape[1] // block
        head = [x[:, : full * block].unflatten(1, (full, block)).transpose(0, 1).contiguous() for x in (k, v)]
        tail = None if full * block == k.shape[1] else (k[:, full * block :].contiguous(), v[:, full * block :].contiguous())
        return cls(start, head[0], head[1], tail)

    @property
    def block(self) -> int:
        """Keys of a full block."""
        return self.k.shape[2]

    @property
    def nbytes(self) -> int:
        parts = [self.k, self.v, *(self.tail or ())]
        return sum(part.numel() * part.element_size() for part in parts)


def attend(q: Tensor, runs: Sequence[KVRun], total: int) -> list[Node]:
    """Queries (H, n, d) against the blocks of some runs: the maximal subtrees that the runs contain, of a tree over ``total`` blocks."""
    tree = Tree(total)
    per_block = q.numel() * 4 * 2
    group = 1 << max(0, (_GROUP_BYTES // per_block).bit_length() - 1)
    for run in runs:
        for at in range(0, run.k.shape[0], group):
            k, v = run.k[at : at + group], run.v[at : at + group]
            for node in fold(partials(q.expand(k.shape[0], -1, -1, -1), k, v), run.start + at, total):
                tree.add(node)
        if run.tail is not None:
            k, v = run.tail
            tree.add(Node(0, run.start + run.k.shape[0], partials(q[None], k[None], v[None])[0]))
    return tree.nodes()
