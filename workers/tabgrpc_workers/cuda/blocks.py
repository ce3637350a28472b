"""Transformer blocks over cells: a tile of rows against keys that are there already, everything between load and store on the chip.

Two stages are of this kind. In the column stage a feature's cells attend to its inducing points; in the row stage a table row's tokens
attend to each other. Layer norms' affine parts and the softmax's scale are folded into the projections (``weights.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from tabgrpc_workers.cuda.math import gelu, normalised, rotated
from tabgrpc_workers.cuda.weights import BlockWeights


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary tables, each (positions, d / 2) float32."""

    cos: Tensor
    sin: Tensor
    interleaved: bool


@triton.jit
def _tokens(x_ptr, first_ptr, base, stride, at, mask, E: tl.constexpr, FIRST: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows ``at`` of a group, (n, E) float32; the first FIRST of them come from another table."""
    cols = tl.arange(0, E)
    at = at.to(tl.int64)  # a quantum of a table with thousands of features has more than 2 ** 31 numbers
    if FIRST > 0:
        x = tl.load(x_ptr + base + (at - FIRST)[:, None] * stride + cols[None, :], mask=(mask & (at >= FIRST))[:, None], other=0.0)
        head = tl.load(first_ptr + at[:, None] * E + cols[None, :], mask=(at < FIRST)[:, None], other=0.0)
        return tl.where((at < FIRST)[:, None], head.to(tl.float32), x.to(tl.float32))
    return tl.load(x_ptr + base + at[:, None] * stride + cols[None, :], mask=mask[:, None], other=0.0).to(tl.float32)


@triton.jit
def _block(  # type: ignore[no-untyped-def]
    x_ptr, first_ptr, out_ptr, k_ptr, v_ptr,
    wq_ptr, bq_ptr, wo_ptr, bo_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, gain_ptr, shift_ptr, cos_ptr, sin_ptr,
    rows, keys, x_group, x_row, out_group, out_row, eps,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, FF: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK: tl.constexpr, KEYS: tl.constexpr, ONE: tl.constexpr, EVEN: tl.constexpr,
    FIRST: tl.constexpr, ROPE: tl.constexpr, INTERLEAVED: tl.constexpr, NORM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < rows
    cols = tl.arange(0, E)
    dims = tl.arange(0, D)
    dtype = k_ptr.dtype.element_ty

    xn = normalised(_tokens(x_ptr, first_ptr, group * x_group, x_row, at, mask, E, FIRST), eps, E).to(dtype)
    kv = group * (H * D) * keys
    mixed = tl.zeros((BLOCK, E), tl.float32)
    for h in range(H):
        q = tl.dot(xn, tl.load(wq_ptr + (h * E + cols[:, None]) * D + dims[None, :]), input_precision=PRECISION)
        q += tl.load(bq_ptr + h * D + dims)[None, :]
        if ROPE:
            q = rotated(q, cos_ptr, sin_ptr, tl.where(mask, at, 0), BLOCK, D, INTERLEAVED)
        q = q.to(dtype)
        here = kv + h * D * keys
        n = tl.arange(0, KEYS)
        if ONE:
            if EVEN:
                k = tl.load(k_ptr + here + n[None, :] * D + dims[:, None])
                v = tl.load(v_ptr + here + n[:, None] * D + dims[None, :])
            else:
                k = tl.load(k_ptr + here + n[None, :] * D + dims[:, None], mask=(n < keys)[None, :], other=0.0)
                v = tl.load(v_ptr + here + n[:, None] * D + dims[None, :], mask=(n < keys)[:, None], other=0.0)
            s = tl.dot(q, k, input_precision=PRECISION)
            if not EVEN:
                s = tl.where((n < keys)[None, :], s, -float("inf"))
            p = tl.exp2(s - tl.max(s, 1)[:, None])
            total = tl.sum(p, 1)
            o = tl.dot(p.to(dtype), v, input_precision=PRECISION)
        else:
            peak = tl.full((BLOCK,), -1e30, tl.float32)
            total = tl.zeros((BLOCK,), tl.float32)
            o = tl.zeros((BLOCK, D), tl.float32)
            for start in range(0, keys // KEYS * KEYS, KEYS):
                k = tl.load(k_ptr + here + (start + n)[None, :] * D + dims[:, None])
                v = tl.load(v_ptr + here + (start + n)[:, None] * D + dims[None, :])
                s = tl.dot(q, k, input_precision=PRECISION)
                higher = tl.maximum(peak, tl.max(s, 1))
                scale = tl.exp2(peak - higher)
                p = tl.exp2(s - higher[:, None])
                total = total * scale + tl.sum(p, 1)
                o = tl.dot(p.to(dtype), v, o * scale[:, None], input_precision=PRECISION)
                peak = higher
            if not EVEN:
                n += keys // KEYS * KEYS
                k = tl.load(k_ptr + here + n[None, :] * D + dims[:, None], mask=(n < keys)[None, :], other=0.0)
                v = tl.load(v_ptr + here + n[:, None] * D + dims[None, :], mask=(n < keys)[:, None], other=0.0)
                s = tl.dot(q, k, input_precision=PRECISION)
                s = tl.where((n < keys)[None, :], s, -float("inf"))
                higher = tl.maximum(peak, tl.max(s, 1))
                scale = tl.exp2(peak - higher)
                p = tl.exp2(s - higher[:, None])
                total = total * scale + tl.sum(p, 1)
                o = tl.dot(p.to(dtype), v, o * scale[:, None], input_precision=PRECISION)
        o = (o / total[:, None]).to(dtype)
        mixed = tl.dot(o, tl.load(wo_ptr + (h * D + dims[:, None]) * E + cols[None, :]), mixed, input_precision=PRECISION)
    x = _tokens(x_ptr, first_ptr, group * x_group, x_row, at, mask, E, FIRST)  # again, rather than kept in registers till here
    x += mixed + tl.load(bo_ptr + cols)[None, :]
    xn = normalised(x, eps, E).to(dtype)
    mixed = tl.zeros((BLOCK, E), tl.float32)
    for c in range(0, FF, CHUNK):
        f = c + tl.arange(0, CHUNK)
        inner = tl.dot(xn, tl.load(w1_ptr + cols[:, None] * FF + f[None, :]), input_precision=PRECISION)
        inner = gelu(inner + tl.load(b1_ptr + f)[None, :]).to(dtype)
        mixed = tl.dot(inner, tl.load(w2_ptr + f[:, None] * E + cols[None, :]), mixed, input_precision=PRECISION)
    x += mixed + tl.load(b2_ptr + cols)[None, :]
    if NORM:
        x = normalised(x, eps, E) * tl.load(gain_ptr + cols)[None, :] + tl.load(shift_ptr + cols)[None, :]
    out = out_ptr + group * out_group + at[:, None] * out_row + cols[None, :]
    tl.store(out, x.to(out_ptr.dtype.element_ty), mask=mask[:, None])


@triton.jit
def _keys(  # type: ignore[no-untyped-def]
    x_ptr, first_ptr, k_ptr, v_ptr, wk_ptr, bk_ptr, wv_ptr, bv_ptr, cos_ptr, sin_ptr,
    rows, x_group, x_row, eps,
    E: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    FIRST: tl.constexpr, INTERLEAVED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < rows
    cols = tl.arange(0, E)
    dims = tl.arange(0, D)
    dtype = k_ptr.dtype.element_ty
    xn = normalised(_tokens(x_ptr, first_ptr, group * x_group, x_row, at, mask, E, FIRST), eps, E).to(dtype)
    safe = tl.where(mask, at, 0)
    for h in range(H):
        weight = (h * E + cols[:, None]) * D + dims[None, :]
        k = tl.dot(xn, tl.load(wk_ptr + weight), input_precision=PRECISION) + tl.load(bk_ptr + h * D + dims)[None, :]
        k = rotated(k, cos_ptr, sin_ptr, safe, BLOCK, D, INTERLEAVED)
        v = tl.dot(xn, tl.load(wv_ptr + weight), input_precision=PRECISION) + tl.load(bv_ptr + h * D + dims)[None, :]
        out = (group * H + h) * rows * D + at[:, None] * D + dims[None, :]
        tl.store(k_ptr + out, k.to(dtype), mask=mask[:, None])
        tl.store(v_ptr + out, v.to(dtype), mask=mask[:, None])


def _tile(dtype: torch.dtype, tokens: int = 0) -> int:
    """Rows of a program: always the same where rows are a batch's; smaller for a group that always has so few ``tokens``."""
    most = 32 if dtype == torch.float32 else 64
    return min(max(16, triton.next_power_of_2(tokens)), most) if tokens else most


def block(
    x: Tensor, k: Tensor, v: Tensor, weights: BlockWeights, out: Tensor, *,
    rows: int, first: Tensor | None = None, rope: Rope | None = None, norm: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """``rows`` rows of each group through a block. x, out: (groups, >= rows, E), any strides but the last. k, v: (groups, H, keys, d).

    first: tokens (FIRST, E) that stand before x's own. norm: a last layer norm's gain and shift, applied to what is stored.
    """
    groups, heads, keys, width = k.shape
    dtype = k.dtype
    embed = x.shape[-1]
    tile = _tile(dtype, rows if rope else 0)
    most = 32 if dtype == torch.float32 else 128
    span = min(triton.next_power_of_2(max(keys, 16)), most)
    gain, shift = norm or (weights.b2, weights.b2)
    cos, sin = (rope.cos, rope.sin) if rope else (weights.b2, weights.b2)
    _block[(triton.cdiv(rows, tile), groups)](
        x, x if first is None else first, out, k, v,
        weights.wq, weights.bq, weights.wo, weights.bo, weights.w1, weights.b1, weights.w2, weights.b2, gain, shift, cos, sin,
        rows, keys, x.stride(0), x.stride(1), out.stride(0), out.stride(1), weights.eps,
        E=embed, H=heads, D=width, FF=weights.w1.shape[1], CHUNK=min(weights.w1.shape[1], 32 if dtype == torch.float32 else 64),
        BLOCK=tile, KEYS=span, ONE=keys <= span, EVEN=keys % span == 0,
        FIRST=0 if first is None else first.shape[0], ROPE=rope is not None, INTERLEAVED=bool(rope and rope.interleaved),
        NORM=norm is not None, PRECISION="ieee",
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def keys(x: Tensor, weights: BlockWeights, rope: Rope, *, rows: int, first: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """K (rotated) and V, each (groups, H, rows, d), of ``rows`` tokens of each group; x and first as in ``block``."""
    heads, embed, width = weights.wk.shape
    k, v = (torch.empty(x.shape[0], heads, rows, width, dtype=weights.wk.dtype, device=x.device) for _ in range(2))
    tile = _tile(k.dtype, rows)
    _keys[(triton.cdiv(rows, tile), x.shape[0])](
        x, x if first is None else first, k, v, weights.wk, weights.bk, weights.wv, weights.bv, rope.cos, rope.sin,
        rows, x.stride(0), x.stride(1), weights.eps,
        E=embed, H=heads, D=width, BLOCK=tile, FIRST=0 if first is None else first.shape[0], INTERLEAVED=rope.interleaved, PRECISION="ieee",
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return k, v
