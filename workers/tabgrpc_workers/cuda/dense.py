"""Products over rows of the ICL stage: layer norm, linear with its epilogues, and the query-aware scalable softmax."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from tabgrpc_workers.cuda.math import gelu, normalised, tanh


@triton.jit
def _norm(x_ptr, out_ptr, rows, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = at[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    mask = (at < rows)[:, None]
    x = tl.load(x_ptr + index, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + index, normalised(x, eps, WIDTH).to(out_ptr.dtype.element_ty), mask=mask)


def norm(x: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Rows (R, D) less their mean over their deviation; a layer norm whose affine part is folded into what follows."""
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    _norm[(triton.cdiv(x.shape[0], 4),)](x, out, x.shape[0], eps, WIDTH=x.shape[1], BLOCK=4, num_warps=4)
    return out


@triton.jit
def _linear(  # type: ignore[no-untyped-def]
    a_ptr, w_ptr, b_ptr, base_ptr, out_ptr, rows, a_row, out_row, out_head, columns,
    K: tl.constexpr, HEAD: tl.constexpr, GELU: tl.constexpr, ADD: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(1) * BM + tl.arange(0, BM)
    col = tl.program_id(0) * BN + tl.arange(0, BN)
    mask = at < rows
    there = col < columns
    wide = at.to(tl.int64)[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + wide * a_row + inner[None, :], mask=mask[:, None], other=0.0)
        w = tl.load(w_ptr + col[None, :] * K + inner[:, None], mask=there[None, :], other=0.0)
        acc = tl.dot(a, w, acc, input_precision=PRECISION)
    acc += tl.load(b_ptr + col, mask=there, other=0.0)[None, :]
    if GELU:
        acc = gelu(acc)
    out = wide * out_row + ((col // HEAD) * out_head + col % HEAD)[None, :]
    both = mask[:, None] & there[None, :]
    if ADD:
        acc += tl.load(base_ptr + out, mask=both, other=0.0)
    tl.store(out_ptr + out, acc.to(out_ptr.dtype.element_ty), mask=both)


@dataclass(frozen=True, slots=True)
class Linear:
    """weight: (N, K) in the policy's dtype, bias: (N,) float32."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Linear:
        return cls(weight.to(dtype).contiguous(), bias.float().contiguous())

    def __call__(
        self,
        a: Tensor,
        out: Tensor,
        *,
        gelu: bool = False,
        add: Tensor | None = None,
        few: bool = False,
        heads: tuple[int, int] | None = None,
    ) -> Tensor:
        """a: (R, K). out: (R, N), or with ``heads`` = (head width, stride of a head) each head's columns that far apart.

        add: what is added to the result, laid out as ``out`` (it may be ``out``). few: tiles for a few rows, whose bits are not those of
        the tiles for many.
        """
        columns, inner = self.weight.shape
        single = self.weight.dtype == torch.float32
        bm, bn, bk = (32, 32, 32) if single else (64, 32, 128) if few else (128, 128, 64)
        width, stride = heads or (columns, 0)
        _linear[(triton.cdiv(columns, bn), triton.cdiv(a.shape[0], bm))](
            a, self.weight, self.bias, out if add is None else add, out, a.shape[0], a.stride(0), out.stride(0), stride, columns,
            K=inner, HEAD=width, GELU=gelu, ADD=add is not None, BM=bm, BN=bn, BK=min(bk, inner), PRECISION="ieee",
            num_warps=8 if bm == 128 else 4, num_stages=3,
        )  # fmt: skip
        return out


@triton.jit
def _scaled(  # type: ignore[no-untyped-def]
    q_ptr, out_ptr, base_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, count,
    D: tl.constexpr, INNER: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    dims = tl.arange(0, D)
    inner = tl.arange(0, INNER)
    index = at.to(tl.int64)[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + index, mask=mask[:, None], other=0.0)
    hidden = tl.dot(q, tl.load(w1_ptr + dims[:, None] * INNER + inner[None, :]), input_precision=PRECISION)
    hidden = gelu(hidden + tl.load(b1_ptr + inner)[None, :]).to(q_ptr.dtype.element_ty)
    out = tl.dot(hidden, tl.load(w2_ptr + inner[:, None] * D + dims[None, :]), input_precision=PRECISION)
    out = 1.0 + tanh(out + tl.load(b2_ptr + dims)[None, :])
    out = q.to(tl.float32) * tl.load(base_ptr + (at % H)[:, None] * D + dims[None, :]) * out
    tl.store(out_ptr + index, out.to(out_ptr.dtype.element_ty), mask=mask[:, None])


@dataclass(frozen=True, slots=True)
class QueryScale:
    """Scalable softmax that looks at the query: q * base(log n) * (1 + tanh(mlp(q))). w1: (d, inner), w2: (inner, d)."""

    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor

    def __call__(self, q: Tensor, base: Tensor) -> Tensor:
        """q: (R, H, d), contiguous. base: (H, d) float32. Returns the scaled queries."""
        out = torch.empty_like(q)
        count = q.shape[0] * q.shape[1]
        single = q.dtype == torch.float32
        block = 32 if single else 128
        _scaled[(triton.cdiv(count, block),)](
            q, out, base, self.w1, self.b1, self.w2, self.b2, count,
            D=q.shape[2], INNER=self.w1.shape[1], H=q.shape[1], BLOCK=block, PRECISION="ieee",
            num_warps=4, num_stages=2,
        )  # fmt: skip
        return out
