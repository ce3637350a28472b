"""Fit's attention of many rows to all rows: cuDNN over one canonical block of keys at a time, merged in tree order as the blocks come."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from tabgrpc.core.reduction import LOG2E, Partial
from tabgrpc_workers.cuda.attention import partials
from tabgrpc_workers.cuda.math import power_of_two
from tabgrpc_workers.kernels import KVRun

_VECTORS = 32


@triton.jit
def _join(  # type: ignore[no-untyped-def]
    acc_ptr, sum_ptr, peak_ptr, from_ptr, from_sum_ptr, from_peak_ptr, vectors, H, out_row, out_head, lse_row, lse_head, log2e,
    D: tl.constexpr, LEAF: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """acc, sum, peak = merge(acc, sum, peak; another partial, or a kernel's (out, log-sum-exp) made one). FIRST: there is nothing yet."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < vectors
    dims = tl.arange(0, D)
    if LEAF:
        row, head = at // H, at % H
        acc = tl.load(from_ptr + (row * out_row + head * out_head)[:, None] + dims[None, :], mask=mask[:, None], other=0.0).to(tl.float32)
        log2 = tl.load(from_sum_ptr + row * lse_row + head * lse_head, mask=mask, other=0.0) * log2e
        peak = tl.ceil(log2)
        total = tl.exp2(log2 - peak)
        acc = acc * total[:, None]
    else:
        acc = tl.load(from_ptr + at[:, None] * D + dims[None, :], mask=mask[:, None], other=0.0)
        total = tl.load(from_sum_ptr + at, mask=mask, other=0.0)
        peak = tl.load(from_peak_ptr + at, mask=mask, other=0.0)
    if not FIRST:
        left = tl.load(peak_ptr + at, mask=mask, other=0.0)
        higher = tl.maximum(left, peak)
        a, b = power_of_two(left - higher), power_of_two(peak - higher)
        acc = tl.load(acc_ptr + at[:, None] * D + dims[None, :], mask=mask[:, None], other=0.0) * a[:, None] + acc * b[:, None]
        total = tl.load(sum_ptr + at, mask=mask, other=0.0) * a + total * b
        peak = higher
    tl.store(acc_ptr + at[:, None] * D + dims[None, :], acc, mask=mask[:, None])
    tl.store(sum_ptr + at, total, mask=mask)
    tl.store(peak_ptr + at, peak, mask=mask)


class _Stack:
    """The tree over blocks that come in order: equal subtrees are merged as soon as there are two. Buffers are used again."""

    def __init__(self, rows: int, heads: int, width: int, device: torch.device) -> None:
        self._shape, self._device = (rows, heads, width), device
        self._free: list[Partial] = []
        self._held: list[tuple[int, Partial]] = []

    def leaf(self, out: Tensor, lse: Tensor) -> None:
        """The next block's attention output (H, R, d) and log-sum-exp (H, R)."""
        if self._held and self._held[-1][0] == 0:
            self._launch(self._held[-1][1], out, lse, lse, True, False, (out.stride(1), out.stride(0)), (lse.stride(1), lse.stride(0)))
            self._settle(1)
        else:
            part = self._buffer()
            self._launch(part, out, lse, lse, True, True, (out.stride(1), out.stride(0)), (lse.stride(1), lse.stride(0)))
            self._held.append((0, part))

    def partial(self, found: Partial) -> None:
        """The next block's partial (R, H[, d]), contiguous."""
        self._held.append((0, found))
        self._settle(0)

    def _settle(self, level: int) -> None:
        part = self._held.pop()[1]
        while self._held and self._held[-1][0] == level:
            self._merge(self._held[-1][1], part)
            part, level = self._held.pop()[1], level + 1
        self._held.append((level, part))

    def divided(self, dtype: torch.dtype) -> Tensor:
        """The whole tree's attention output, (R, H, d)."""
        while len(self._held) > 1:  # a last subtree without a sibling moves up as it is
            right = self._held.pop()[1]
            self._merge(self._held[-1][1], right)
        whole = self._held.pop()[1]
        return (whole.acc / whole.sum[..., None]).to(dtype)

    def _buffer(self) -> Partial:
        if self._free:
            return self._free.pop()
        acc = torch.empty(self._shape, dtype=torch.float32, device=self._device)
        return Partial(acc, *(torch.empty(self._shape[:2], dtype=torch.float32, device=self._device) for _ in range(2)))

    def _merge(self, left: Partial, right: Partial) -> None:
        self._launch(left, right.acc, right.sum, right.peak, False, False, (0, 0), (0, 0))
        self._free.append(right)

    def _launch(
        self,
        into: Partial,
        values: Tensor,
        sums: Tensor,
        peaks: Tensor,
        leaf: bool,
        first: bool,
        out: tuple[int, int],
        lse: tuple[int, int],
    ) -> None:
        rows, heads, width = self._shape
        _join[(triton.cdiv(rows * heads, _VECTORS),)](
            into.acc, into.sum, into.peak, values, sums, peaks, rows * heads, heads, *out, *lse, LOG2E,
            D=width, LEAF=leaf, FIRST=first, BLOCK=_VECTORS, num_warps=4,
        )  # fmt: skip


def attend(q: Tensor, runs: Sequence[KVRun], scale: float) -> Tensor:
    """Queries (R, H, d) of one canonical block against all blocks, in order: attention output (R, H, d).

    Full blocks in half precision go through cuDNN, one call a block; short ones and float32 through the kernel that predict uses too.
    """
    rows, heads, width = q.shape
    stack = _Stack(rows, heads, width, q.device)
    fast = q.dtype != torch.float32 and rows == runs[0].block
    for run in runs:
        for i in range(run.k.shape[0]):
            if fast:
                stack.leaf(*_cudnn(q, run.k[i], run.v[i], scale))
            else:
                stack.partial(_own(q, KVRun(run.start + i, run.k[i : i + 1], run.v[i : i + 1], None), scale))
        if run.tail is not None:
            stack.partial(_own(q, KVRun(run.start, run.k[:0], run.v[:0], run.tail), scale))
    return stack.divided(q.dtype)


def _cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    out = torch.ops.aten._scaled_dot_product_cudnn_attention(q.transpose(0, 1)[None], k[None], v[None], None, True, scale=scale)
    return out[0][0], out[1].reshape(q.shape[1], q.shape[0])


def _own(q: Tensor, run: KVRun, scale: float) -> Partial:
    found = partials(q.transpose(0, 1), [run], scale * LOG2E, run.block)[0]
    return Partial(found.acc.transpose(0, 1).contiguous(), found.sum.T.contiguous(), found.peak.T.contiguous())
