"""Attention over context rows on a CUDA device, as partials over canonical blocks, and the reduction tree in which they are merged."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from tabgrpc.core.reduction import Node, Partial, Tree, empty_peak, fold
from tabgrpc_workers.cuda.math import power_of_two
from tabgrpc_workers.kernels import KVRun

LEAF = 4096
"""Keys of a leaf in predict: a canonical block is a whole subtree of them. Enough leaves keep every multiprocessor loading."""
_MOST = 64
"""Partials that one program of the tree merges."""


@triton.jit
def _leaves(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, acc_ptr, sum_ptr, peak_ptr, queries, keys, per_block, block, first, scale,
    q_head, q_row, H: tl.constexpr, D: tl.constexpr, LEAF: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    h = tl.program_id(1)
    leaf = tl.program_id(2).to(tl.int64)
    at = tile * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    dtype = k_ptr.dtype.element_ty
    mask = at < queries
    q = tl.load(q_ptr + h * q_head + at[:, None] * q_row + dims[None, :], mask=mask[:, None], other=0.0)
    start = (leaf % per_block) * LEAF
    rows = ((leaf // per_block) * H + h) * block + start
    count = tl.minimum(LEAF, keys - start)
    peak = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n0 in range(0, count, BN):
        n = n0 + tl.arange(0, BN)
        there = n < count
        k = tl.load(k_ptr + (rows + n)[None, :] * D + dims[:, None], mask=there[None, :], other=0.0)
        s = tl.dot(q, k, input_precision=PRECISION) * scale
        s = tl.where(there[None, :], s, -float("inf"))
        higher = tl.maximum(peak, tl.ceil(tl.max(s, 1)))
        factor = power_of_two(peak - higher)
        p = tl.exp2(s - higher[:, None])
        total = total * factor + tl.sum(p, 1)
        v = tl.load(v_ptr + (rows + n)[:, None] * D + dims[None, :], mask=there[:, None], other=0.0)
        acc = tl.dot(p.to(dtype), v, acc * factor[:, None], input_precision=PRECISION)
        peak = higher
    out = ((first + leaf) * H + h) * queries + at
    tl.store(acc_ptr + out[:, None] * D + dims[None, :], acc, mask=mask[:, None])
    tl.store(sum_ptr + out, total, mask=mask)
    tl.store(peak_ptr + out, peak, mask=mask)


@triton.jit
def _tree(  # type: ignore[no-untyped-def]
    acc_ptr, sum_ptr, peak_ptr, out_ptr, out_sum_ptr, out_peak_ptr, count, vectors, out_group, out_head, out_row, queries, low,
    D: tl.constexpr, WIDTH: tl.constexpr, LEVELS: tl.constexpr, DIVIDE: tl.constexpr,
):  # fmt: skip
    """Merges up to WIDTH partials of one query vector in tree order; a missing right sibling changes nothing."""
    vector = tl.program_id(0)
    group = tl.program_id(1)
    dims = tl.arange(0, D)
    i = tl.arange(0, WIDTH)
    here = (group * WIDTH + i).to(tl.int64)
    there = here < count
    index = here * vectors + vector
    acc = tl.load(acc_ptr + index[:, None] * D + dims[None, :], mask=there[:, None], other=0.0)
    total = tl.load(sum_ptr + index, mask=there, other=0.0)
    peak = tl.load(peak_ptr + index, mask=there, other=low)
    for level in tl.static_range(LEVELS):
        left, right = tl.split(tl.permute(tl.reshape(acc, (WIDTH >> (level + 1), 2, D)), (0, 2, 1)))
        left_sum, right_sum = tl.split(tl.reshape(total, (WIDTH >> (level + 1), 2)))
        left_peak, right_peak = tl.split(tl.reshape(peak, (WIDTH >> (level + 1), 2)))
        peak = tl.maximum(left_peak, right_peak)
        a, b = power_of_two(left_peak - peak), power_of_two(right_peak - peak)
        acc = left * a[:, None] + right * b[:, None]
        total = left_sum * a + right_sum * b
    if DIVIDE:
        acc = tl.div_rn(acc, tl.broadcast_to(total[:, None], (1, D)))
        row = (vector % queries) * out_row + (vector // queries) * out_head
        tl.store(out_ptr + row + dims[None, :], acc.to(out_ptr.dtype.element_ty))
    else:
        one = tl.arange(0, 1)
        out = group.to(tl.int64) * vectors + vector + one
        tl.store(out_ptr + out[:, None] * D + dims[None, :], acc)
        tl.store(out_sum_ptr + out, total)
        tl.store(out_peak_ptr + out, peak)


def _merged(parts: Partial, width: int, divide: Tensor | None = None) -> Partial:
    """Partials (n, H, q[, d]) merged in groups of ``width`` consecutive ones; or all of them, divided into ``divide`` (q, H, d)."""
    count, heads, queries, d = parts.acc.shape
    groups = triton.cdiv(count, width)
    vectors = heads * queries
    if divide is None:
        out = torch.empty(groups, heads, queries, d, dtype=torch.float32, device=parts.acc.device)
        total, peak = (torch.empty(groups, heads, queries, dtype=torch.float32, device=out.device) for _ in range(2))
    else:
        out, total, peak = divide, parts.sum, parts.peak
    low = empty_peak(torch.float32)
    _tree[(vectors, groups)](
        parts.acc, parts.sum, parts.peak, out, total, peak, count, vectors, 0, out.stride(1), out.stride(0), queries, low,
        D=d, WIDTH=width, LEVELS=width.bit_length() - 1, DIVIDE=divide is not None,
        num_warps=min(8, max(1, width * d // 1024)),
    )  # fmt: skip
    return Partial(out, total, peak)


def partials(q: Tensor, runs: Sequence[KVRun], scale: float, leaf: int) -> Partial:
    """Queries (H, n, d) against consecutive runs: a partial (blocks, H, n[, d]) for each canonical block, in their order.

    Every block is cut into leaves of ``leaf`` keys, merged in tree order; the cut doesn't depend on who owns the block.
    """
    heads, queries, d = q.shape
    block = runs[0].block
    per_block = max(1, block // leaf)
    leaf = min(leaf, block)
    counts = [run.k.shape[0] * per_block + (0 if run.tail is None else per_block) for run in runs]
    acc = torch.empty(sum(counts), heads, queries, d, dtype=torch.float32, device=q.device)
    total, peak = (torch.empty(sum(counts), heads, queries, dtype=torch.float32, device=q.device) for _ in range(2))
    at = 0

    def launch(k: Tensor, v: Tensor, keys: int, leaves: int) -> None:
        nonlocal at
        single = k.dtype == torch.float32
        _leaves[(triton.cdiv(queries, 32 if single else 64), heads, leaves)](
            q, k, v, acc, total, peak, queries, keys, per_block, keys, at, scale, q.stride(0), q.stride(1),
            H=heads, D=d, LEAF=leaf, BM=32 if single else 64, BN=32 if single else 128, PRECISION="ieee",
            num_warps=4, num_stages=3,
        )  # fmt: skip
        at += leaves

    for run in runs:
        if run.k.shape[0]:
            launch(run.k, run.v, block, run.k.shape[0] * per_block)
        if run.tail is not None:
            k, v = run.tail
            leaves = triton.cdiv(k.shape[1], leaf)
            launch(k[None], v[None], k.shape[1], leaves)
            if at < sum(counts):  # the rest of a short block has no keys
                acc[at:], total[at:], peak[at:] = 0.0, 0.0, empty_peak(torch.float32)
    found = Partial(acc, total, peak)
    return found if per_block == 1 else _merged(found, per_block)


def attend(q: Tensor, runs: Sequence[KVRun], scale: float, dtype: torch.dtype) -> Tensor:
    """Queries (H, n, d) against runs that make up the whole table, in order: attention output (n, H, d)."""
    found = partials(q, runs, scale, LEAF)
    while found.sum.shape[0] > _MOST:
        found = _merged(found, _MOST)
    out = torch.empty(q.shape[1], q.shape[0], q.shape[2], dtype=dtype, device=q.device)
    _merged(found, triton.next_power_of_2(found.sum.shape[0]), out)
    return out


def nodes(q: Tensor, runs: Sequence[KVRun], total: int, scale: float) -> list[Node]:
    """Queries (H, n, d) against some runs: the maximal subtrees that the runs contain, of a tree over ``total`` blocks."""
    tree = Tree(total)
    for run in runs:
        for node in fold(partials(q, [run], scale, LEAF), run.start, total):
            tree.add(node)
    return tree.nodes()
