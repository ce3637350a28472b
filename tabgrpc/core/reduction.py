"""Why the bits are the same: partial attention, and the one tree in which partials are merged.

Attention over a set of keys is a softmax-weighted mean. Cut the keys into blocks and each block yields the kernel's output and its
log-sum-exp, (out, lse). A ``Partial`` keeps the same information undivided, in base two:

    peak = ceil(lse * log2 e)          an integer, held as a float
    sum  = 2 ** (lse * log2 e - peak)  in (1/2, 1]
    acc  = out * sum

Merging two partials scales both by ``2 ** (peak_i - max peak)`` and adds once. The scale is a power of two, so the products are exact and
the one addition is the only rounding: numpy, torch, CPU and GPU all give the same IEEE result, fused multiply-add or not. (The usual merge
with exp and log rounds differently in every library; see Dao et al., FlashAttention, section 3.1, and Milakov & Gimelshein,
arXiv:1805.02867, for the mathematics.)

Addition is not associative, so the order must be fixed too. It is fixed by a binary tree over the block numbers, which depends on the
number of blocks alone: node (level, index) covers blocks ``index * 2**level`` up to ``(index + 1) * 2**level``. An owner merges the
subtrees that it owns whole, whoever collects them merges the rest, and arrival order never matters.

Everything works on numpy arrays and on torch tensors alike.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray or torch.Tensor, float32 or float64

LOG2E = 1.4426950408889634
class ReductionError(ValueError):
    """The partials given don't make up the whole tree, or none of them has a key."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Attention over some of the keys, not yet divided.

    acc: (..., d) sum of softmax-weighted values, scaled by 2 ** -peak; sum: (...) sum of weights, same scale; peak: (...) integers held as
    floats. All of one dtype, float32 (float64 in the float64 policy). No keys: sum 0 and ``empty_peak``.
    """

    acc: Array
    sum: Array
    peak: Array

    def __getitem__(self, index: Any) -> Partial:
        return Partial(self.acc[index], self.sum[index], self.peak[index])

    def divide(self) -> Array:
        """The attention output, (..., d). Raises ReductionError where no key was seen at all."""
        if bool((self.sum == 0).any()):
            raise ReductionError("attention over no keys has no value")
        return self.acc / self.sum[..., None]


def namespace(array: Array) -> Any:
    """numpy or torch, whichever the array is of. Torch is looked up, never imported: whoever holds a tensor has imported it."""
    return np if isinstance(array, (np.ndarray, np.generic)) else sys.modules["torch"]


def empty_peak(dtype: Any) -> float:
    """The peak of a partial over no keys: the lowest finite number, so that no real peak is below it and it never makes a NaN."""
    return -float(np.finfo(str(dtype).removeprefix("torch.")).max)


def from_attention(out: Array, lse: Array) -> Partial:
    """The partial of a kernel's result. out: (..., d), lse: (...), natural logarithm, -inf where there was no key.

    Computed once, by the owner of the keys; float64 stays float64, everything else becomes float32.
    """
    xp = namespace(out)
    if out.dtype != xp.float64:
        out = _cast(out, xp.float32)
    log2 = _cast(lse, out.dtype) * LOG2E
    peak = xp.ceil(log2)
    total = _exp2(log2 - peak)
    empty = lse == -np.inf
    if bool(empty.any()):
        peak = xp.where(empty, xp.full_like(peak, empty_peak(peak.dtype)), peak)
        total = xp.where(empty, xp.zeros_like(total), total)
        out = xp.where(empty[..., None], xp.zeros_like(out), out)
    return Partial(out * total[..., None], total, peak)


def merge(left: Partial, right: Partial) -> Partial:
    """The partial over the keys of both: one exact scaling each and one addition."""
    xp = namespace(left.acc)
    peak = xp.maximum(left.peak, right.peak)
    a, b = _power_of_two(left.peak - peak), _power_of_two(right.peak - peak)
    return Partial(left.acc * a[..., None] + right.acc * b[..., None], left.sum * a + right.sum * b, peak)


def _power_of_two(exponent: Array) -> Array:
    """2 ** exponent for integers <= 0 held as floats, exact, and 0 below the smallest normal number.

    The bits of the float are written directly: no library's pow or ldexp is asked to be exact.
    """
    xp = namespace(exponent)
    integer, bias, shift = (xp.int64, 1023, 52) if exponent.dtype == xp.float64 else (xp.int32, 127, 23)
    biased = _cast(exponent.clip(-bias, 0) + bias, integer)
    return (biased << shift).view(exponent.dtype)


_LANES = 64


def _exp2(array: Array) -> Array:
    """2 ** array, each element by the same instructions wherever it lies.

    Torch's loops on the CPU compute whole vectors with one function and what is left over with another, which can differ in the last bit;
    so nothing is left over: the elements are laid out flat and padded to whole vectors.
    """
    xp = namespace(array)
    if xp is np:
        return xp.exp2(array)
    flat = array.reshape(-1)
    padded = xp.nn.functional.pad(flat, (0, -flat.shape[0] % _LANES))
    return xp.exp2(padded)[: flat.shape[0]].view(array.shape)


def _cast(array: Array, dtype: Any) -> Array:
    return array.astype(dtype, copy=False) if namespace(array) is np else array.to(dtype)


# --- the tree ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A subtree's partial. Covers the blocks from ``index << level`` up to ``(index + 1) << level``, or up to the last block."""

    level: int
    index: int
    partial: Partial


def fold(blocks: Partial, start: int, total: int) -> list[Node]:
    """Merge a run of consecutive blocks as far as the tree allows.

    blocks: partials stacked on the first axis, of blocks start, start + 1, ... of a tree over ``total`` blocks. Returns the maximal
    subtrees that lie within the run, in block order; one node, the root, if the run is the whole tree.
    """
    stop = start + blocks.sum.shape[0]
    if not 0 <= start < stop <= total:
        raise ReductionError(f"blocks {start} to {stop} are not a run of a tree over {total} blocks")
    left: list[Node] = []
    right: list[Node] = []
    level = 0
    while True:
        width = -(-total >> level)  # nodes at this level
        if width == 1:
            return [Node(level, 0, blocks[0])]
        if start % 2 == 1:  # its left sibling is somebody else's
            left.append(Node(level, start, blocks[0]))
            blocks, start = blocks[1:], start + 1
        if (stop - start) % 2 == 1 and stop < width:  # its right sibling is
            right.append(Node(level, stop - 1, blocks[-1]))
            blocks, stop = blocks[:-1], stop - 1
        if start == stop:
            return [*left, *reversed(right)]
        blocks = _merge_pairs(blocks)
        start, stop, level = start // 2, -(-stop // 2), level + 1


def _merge_pairs(blocks: Partial) -> Partial:
    """Siblings merged; a last node without a sibling moves up as it is."""
    count = blocks.sum.shape[0]
    if count == 1:
        return blocks
    even = count - count % 2
    merged = merge(blocks[0:even:2], blocks[1:even:2])
    return merged if even == count else stack([merged, blocks[even:]])


def stack(parts: Sequence[Partial]) -> Partial:
    """Partials joined on their first axis."""
    if len(parts) == 1:
        return parts[0]
    xp = namespace(parts[0].acc)
    return Partial(*(xp.concatenate([getattr(p, name) for p in parts]) for name in ("acc", "sum", "peak")))


class Tree:
    """The tree over ``total`` blocks, filled from below in any order; siblings are merged as soon as both are there."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ReductionError("a tree needs at least one block")
        self.total = total
        self._waiting: dict[tuple[int, int], Partial] = {}

    def add(self, node: Node) -> None:
        """Takes a subtree. Raises ReductionError if it is there already or none of this tree's."""
        level, index, partial = node.level, node.index, node.partial
        if level < 0 or not 0 <= index < -(-self.total >> level):
            raise ReductionError(f"no subtree at level {level}, index {index} of a tree over {self.total} blocks")
        while (width := -(-self.total >> level)) > 1:
            if (sibling := index ^ 1) < width:
                other = self._waiting.pop((level, sibling), None)
                if other is None:
                    break
                partial = merge(partial, other) if index < sibling else merge(other, partial)
            level, index = level + 1, index // 2
        if (level, index) in self._waiting:
            raise ReductionError(f"two partials for the subtree at level {level}, index {index}")
        self._waiting[level, index] = partial

    def nodes(self) -> list[Node]:
        """The maximal subtrees so far, in block order."""
        return [Node(*at, partial) for at, partial in sorted(self._waiting.items(), key=lambda item: item[0][1] << item[0][0])]

    def root(self) -> Partial:
        """The whole. Raises ReductionError if a subtree is missing or was given twice: no partial is lost or counted twice in silence."""
        nodes = self.nodes()
        if len(nodes) != 1 or -(-self.total >> nodes[0].level) != 1:
            found = [(node.level, node.index) for node in nodes]
            raise ReductionError(f"subtrees (level, index) {found} are not the whole tree over {self.total} blocks")
        return nodes[0].partial


def complete(nodes: Iterable[Node], total: int) -> Partial:
    """The root of a tree over ``total`` blocks from its subtrees, given in any order. Raises ReductionError."""
    tree = Tree(total)
    for node in nodes:
        tree.add(node)
    return tree.root()
