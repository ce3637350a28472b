"""The first and the gathering step of the column stage: features to cells, and inducing points over cells."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tabgrpc.core.reduction import Partial
from tabgrpc_workers.cuda.math import normalised, power_of_two
from tabgrpc_workers.cuda.weights import BlockWeights

ROWS = 128
"""Rows of a program of ``embed``."""


@triton.jit
def _embed(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, weight_ptr, bias_ptr, target_ptr, out_ptr, rows, features, first, skip,
    E: tl.constexpr, SIZE: tl.constexpr, TARGETS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    here = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < rows
    cols = tl.arange(0, E)
    cells = tl.zeros((BLOCK, E), tl.float32) + tl.load(bias_ptr + cols)[None, :]
    skipped = mask
    for i in tl.static_range(SIZE):
        column = (first + here + (1 << i)) % features
        value = tl.load(x_ptr + at.to(tl.int64) * features + column, mask=mask, other=0.0).to(tl.float32)
        cells += value[:, None] * tl.load(weight_ptr + i * E + cols)[None, :]
        skipped = skipped & (value == skip)
    cells = tl.where(skipped[:, None], skip, cells)
    if TARGETS > 1:
        y = tl.load(y_ptr + at, mask=mask, other=0.0).to(tl.int32)
        cells += tl.load(target_ptr + y[:, None] * E + cols[None, :], mask=mask[:, None], other=0.0)
    if TARGETS == 1:
        y = tl.load(y_ptr + at, mask=mask, other=0.0).to(tl.float32)
        cells += y[:, None] * tl.load(target_ptr + cols)[None, :] + tl.load(target_ptr + E + cols)[None, :]
    out = out_ptr + (here.to(tl.int64) * rows + at[:, None]) * E + cols[None, :]
    tl.store(out, cells.to(out_ptr.dtype.element_ty), mask=mask[:, None])


def embed(
    x: Tensor,
    y: Tensor | None,
    groups: range,
    weight: Tensor,
    bias: Tensor,
    target: Tensor,
    skip: float,
    dtype: torch.dtype,
    classes: int,
) -> Tensor:
    """x: (R, F), y: (R,) or None, both contiguous. weight: (features a group, E), bias: (E,), float32. Returns (g, R, E).

    target: (classes, E) a row for each class, or (2, E) slope and offset of a regression's targets, if ``classes`` is 0.
    """
    out = torch.empty(len(groups), x.shape[0], weight.shape[1], dtype=dtype, device=x.device)
    targets = 0 if y is None else max(classes, 2) if classes else 1
    _embed[(triton.cdiv(x.shape[0], ROWS), len(groups))](
        x, x if y is None else y, weight, bias, target, out, x.shape[0], x.shape[1], groups.start, skip,
        E=weight.shape[1], SIZE=weight.shape[0], TARGETS=targets, BLOCK=ROWS,
        num_warps=8,
    )  # fmt: skip
    return out


@triton.jit
def _gather(  # type: ignore[no-untyped-def]
    x_ptr, q_ptr, wk_ptr, bk_ptr, wv_ptr, bv_ptr, acc_ptr, sum_ptr, peak_ptr, rows, eps,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, POINTS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(0)
    group = tl.program_id(1).to(tl.int64)
    cols = tl.arange(0, E)
    dims = tl.arange(0, D)
    points = tl.arange(0, POINTS)
    dtype = x_ptr.dtype.element_ty
    q = tl.load(q_ptr + (h * POINTS + points[:, None]) * D + dims[None, :])
    weight = (h * E + cols[:, None]) * D + dims[None, :]
    wk, wv = tl.load(wk_ptr + weight), tl.load(wv_ptr + weight)
    bk, bv = tl.load(bk_ptr + h * D + dims)[None, :], tl.load(bv_ptr + h * D + dims)[None, :]
    peak = tl.full((POINTS,), -1e30, tl.float32)
    total = tl.zeros((POINTS,), tl.float32)
    acc = tl.zeros((POINTS, D), tl.float32)
    for start in range(0, rows, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < rows
        x = tl.load(x_ptr + (group * rows + at[:, None]) * E + cols[None, :], mask=mask[:, None], other=0.0).to(tl.float32)
        xn = normalised(x, eps, E).to(dtype)
        k = (tl.dot(xn, wk, input_precision=PRECISION) + bk).to(dtype)
        v = (tl.dot(xn, wv, input_precision=PRECISION) + bv).to(dtype)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        s = tl.where(mask[None, :], s, -float("inf"))
        higher = tl.maximum(peak, tl.ceil(tl.max(s, 1)))
        scale = power_of_two(peak - higher)
        p = tl.exp2(s - higher[:, None])
        total = total * scale + tl.sum(p, 1)
        acc = tl.dot(p.to(dtype), v, acc * scale[:, None], input_precision=PRECISION)
        peak = higher
    out = (group * H + h) * POINTS + points
    tl.store(acc_ptr + out[:, None] * D + dims[None, :], acc)
    tl.store(sum_ptr + out, total)
    tl.store(peak_ptr + out, peak)


def gather(q: Tensor, cells: Tensor, weights: BlockWeights) -> Partial:
    """Inducing queries (H, I, d), carrying log2(e) / sqrt(d), over all rows of cells (g, R, E): a partial (g, H, I[, d])."""
    groups, rows, embed = cells.shape
    heads, points, width = q.shape
    acc = torch.empty(groups, heads, points, width, dtype=torch.float32, device=q.device)
    total, peak = (torch.empty(groups, heads, points, dtype=torch.float32, device=q.device) for _ in range(2))
    single = cells.dtype == torch.float32
    _gather[(heads, groups)](
        cells, q, weights.wk, weights.bk, weights.wv, weights.bv, acc, total, peak, rows, weights.eps,
        E=embed, H=heads, D=width, POINTS=points, BLOCK=32 if single else 128, PRECISION="ieee",
        num_warps=4 if single else 8, num_stages=2,
    )  # fmt: skip
    return Partial(acc, total, peak)
