"""TabICL's stages by this package's kernels. float16, bfloat16 and float32; hidden rows and sums are float32 in all of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tabgrpc.backbones.parameters import Parameters
from tabgrpc.backbones.protocol import InducingKV
from tabgrpc.backbones.tabicl import TabICLBackbone, UnsupportedCheckpoint
from tabgrpc.core.head import Head
from tabgrpc.core.reduction import LOG2E, Partial
from tabgrpc_workers.cuda import blocks, cells, dense
from tabgrpc_workers.cuda.graphs import TILE
from tabgrpc_workers.cuda.weights import BlockWeights

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class _Layer:
    """An ICL layer's products; norms' affine parts folded in."""

    q: dense.Linear
    kv: dense.Linear
    out: dense.Linear
    ff1: dense.Linear
    ff2: dense.Linear
    scale: dense.QueryScale
    heads: int
    eps: float


class CudaTabICL(TabICLBackbone):
    """A checkpoint on one CUDA device. ``dtype`` is that of cells, K/V and products; the network itself stays float32 for what is small."""

    def __init__(
        self,
        config: Mapping[str, Any],
        state: Mapping[str, Tensor],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cuda",
    ) -> None:
        super().__init__(config, state, torch.float32, device)
        self.dtype = dtype  # hidden rows stay float32
        self._check_widths()
        with torch.inference_mode():
            own = self._own = Parameters(self._net)
            self._gathers = [BlockWeights.of(own.column(i, 1), dtype) for i in range(self.shape.column_blocks)]
            self._applies = [BlockWeights.of(own.column(i, 2), dtype) for i in range(self.shape.column_blocks)]
            self._rows = [BlockWeights.of(own.row(i), dtype) for i in range(self.shape.row_blocks)]
            self._icl = [self._layer(i) for i in range(self.shape.icl_layers)]
            self._cls = own.row_tokens().to(dtype).contiguous()
            self._embedding = own.embedding()
            self._target_weight, self._target_bias = (part.contiguous() for part in own.icl_target())
            (self._gain, self._shift, self._eps), linears = own.decoder()
            self._decoder = [dense.Linear.of(weight, bias, torch.float32) for weight, bias in linears]
        self._distribution = copy.deepcopy(self._distribution).cpu() if self._distribution is not None else None
        self._ropes: dict[int, blocks.Rope] = {}
        self._bases: dict[tuple[int, int], Tensor] = {}

    def _check_widths(self) -> None:
        """The tensor cores' products have at least 16 columns, and tiles are powers of two wide."""
        column, row, icl = Parameters(self._net).column(0, 1), Parameters(self._net).row(0), Parameters(self._net).icl(0)
        for stage, width, heads in (
            ("column", self.shape.embed, column.heads),
            ("row", self.shape.embed, row.heads),
            ("ICL", self.shape.icl, icl.heads),
        ):
            head = width // heads
            if head < 16 or head & (head - 1) or width & (width - 1):
                raise UnsupportedCheckpoint(
                    f"the {stage} stage has heads of {head} in rows of {width}; on CUDA both are powers of two, heads of at least 16"
                )

    def _layer(self, index: int) -> _Layer:
        p, scale = self._own.icl(index), self._own.icl_scale(index)
        if scale is None:
            raise UnsupportedCheckpoint("only the query-aware scalable softmax (qassmax-mlp-elementwise) is computed on CUDA")
        width = p.in_weight.shape[1]
        weight, bias = p.in_weight * p.norm1_gain, p.in_bias + p.in_weight @ p.norm1_shift
        dtype = self.dtype
        return _Layer(
            q=dense.Linear.of(weight[:width], bias[:width], dtype),
            kv=dense.Linear.of(weight[width:], bias[width:], dtype),
            out=dense.Linear.of(p.out_weight, p.out_bias, dtype),
            ff1=dense.Linear.of(p.ff1_weight * p.norm2_gain, p.ff1_bias + p.ff1_weight @ p.norm2_shift, dtype),
            ff2=dense.Linear.of(p.ff2_weight, p.ff2_bias, dtype),
            scale=dense.QueryScale(scale.w1.T.to(dtype).contiguous(), scale.b1, scale.w2.T.to(dtype).contiguous(), scale.b2),
            heads=scale.heads,
            eps=p.eps,
        )

    # --- column stage ---

    def embed(self, x: Tensor, y: Tensor | None, groups: range) -> Tensor:
        e = self._embedding
        return cells.embed(x, y, groups, e.weight, e.bias, e.target, e.skip, self.dtype, self.max_classes)

    def inducing_queries(self, block: int, rows: int) -> Tensor:
        q = super().inducing_queries(block, rows)
        return (q * (LOG2E / q.shape[-1] ** 0.5)).to(self.dtype).contiguous()

    def column_partial(self, block: int, q: Tensor, values: Tensor) -> Partial:
        return cells.gather(q, values, self._gathers[block])

    def column_end(self, block: int, attended: Tensor) -> InducingKV:
        found = super().column_end(block, attended.float())
        return InducingKV(found.k.to(self.dtype).contiguous(), found.v.to(self.dtype).contiguous())

    def column_apply(self, block: int, values: Tensor, inducing: InducingKV) -> Tensor:
        return blocks.block(
            values, inducing.k, inducing.v, self._applies[block], torch.empty_like(values), rows=values.shape[1]
        )

    # --- row interaction ---

    def rows(self, values: Tensor) -> Tensor:
        """(G, R, E) to row vectors (R, D), float32."""
        groups, rows, embed = values.shape
        tokens = groups + self.shape.cls
        rope = self._rope(tokens)
        here = values.transpose(0, 1)
        first: Tensor | None = self._cls
        for i, weights in enumerate(self._rows):
            k, v = blocks.keys(here, weights, rope, rows=tokens, first=first)
            if i + 1 == len(self._rows):
                out = torch.empty(rows, self.shape.cls, embed, dtype=torch.float32, device=values.device)
                return blocks.block(
                    here, k, v, weights, out, rows=self.shape.cls, first=first, rope=rope, norm=self._own.row_norm()
                ).view(rows, -1)
            out = torch.empty(rows, tokens, embed, dtype=self.dtype, device=values.device)
            here = blocks.block(here, k, v, weights, out, rows=tokens, first=first, rope=rope)
            first = None
        raise UnsupportedCheckpoint("a backbone needs a row block")

    def _rope(self, tokens: int) -> blocks.Rope:
        if tokens not in self._ropes:
            frequencies, interleaved = self._own.row_rope()
            angle = torch.arange(tokens, device=self.device, dtype=torch.float32)[:, None] * frequencies[None, :]
            self._ropes[tokens] = blocks.Rope(angle.cos().contiguous(), angle.sin().contiguous(), interleaved)
        return self._ropes[tokens]

    # --- in-context learning ---

    def with_target(self, rows: Tensor, y: Tensor) -> Tensor:
        if self.max_classes:
            return rows + (self._target_weight[y.long()] + self._target_bias)
        return rows + (y.float()[:, None] * self._target_weight + self._target_bias)

    def icl_norm(self, layer: int, hidden: Tensor) -> Tensor:
        """Hidden rows (R, D) float32, normalised for a layer's products."""
        return dense.norm(hidden, self._icl[layer].eps, self.dtype)

    def icl_kv_into(self, layer: int, hidden: Tensor, k: Tensor, v: Tensor) -> None:
        """K and V of hidden rows (R, D) into (H, R, d) tensors of one layout, side by side: v must follow k by a whole number of heads."""
        found = self._icl[layer].kv
        half = found.weight.shape[0] // 2
        normal = self.icl_norm(layer, hidden)
        for out, part in ((k, slice(0, half)), (v, slice(half, None))):
            dense.Linear(found.weight[part], found.bias[part])(
                normal, out.transpose(0, 1)[:, 0], heads=(out.shape[2], out.stride(0))
            )

    def icl_kv(self, layer: int, hidden: Tensor) -> tuple[Tensor, Tensor]:
        width = hidden.shape[1]
        heads = self._icl[layer].heads
        k, v = (torch.empty(heads, hidden.shape[0], width // heads, dtype=self.dtype, device=hidden.device) for _ in range(2))
        self.icl_kv_into(layer, hidden, k, v)
        return k, v

    def icl_queries(self, layer: int, hidden: Tensor, rows: int, few: bool = True) -> Tensor:
        """(H, R, d), a view of (R, H, d)."""
        it = self._icl[layer]
        q = torch.empty(hidden.shape, dtype=self.dtype, device=hidden.device)
        it.q(self.icl_norm(layer, hidden), q, few=few)
        return it.scale(q.unflatten(1, (it.heads, -1)), self._base(layer, rows)).transpose(0, 1)

    def _base(self, layer: int, rows: int) -> Tensor:
        """(H, d) float32, the part of the scalable softmax that knows the number of rows only."""
        if (layer, rows) not in self._bases:
            self._bases[layer, rows] = self._own.icl_base(layer, math.log(max(rows, 1))).contiguous()
        return self._bases[layer, rows]

    def icl_end(self, layer: int, hidden: Tensor, attended: Tensor, few: bool = True) -> Tensor:
        """attended: (H, R, d), any layout."""
        it = self._icl[layer]
        mixed = attended.transpose(0, 1).reshape(hidden.shape).to(self.dtype)
        hidden = it.out(mixed, torch.empty_like(hidden), add=hidden, few=few)
        normal = dense.norm(hidden, it.eps, self.dtype)
        inner = it.ff1(normal, torch.empty(len(hidden), it.ff1.weight.shape[0], dtype=self.dtype, device=hidden.device), gelu=True, few=few)
        return it.ff2(inner, hidden, add=hidden, few=few)

    def decode(self, hidden: Tensor) -> Tensor:
        inner = dense.norm(hidden, self._eps, torch.float32) * self._gain + self._shift
        first, second = self._decoder
        inner = first(inner, torch.empty(len(hidden), first.weight.shape[0], dtype=torch.float32, device=hidden.device), gelu=True)
        return second(inner, torch.empty(len(hidden), second.weight.shape[0], dtype=torch.float32, device=hidden.device))

    def outputs(self, out: Tensor, asked: Head) -> Tensor:
        """On the CPU, a tile at a time: sorting and interpolating are small, and there the shape is always the same."""
        tiles = out.cpu().split(TILE)
        return torch.cat([super(CudaTabICL, self).outputs(F.pad(tile, (0, 0, 0, TILE - len(tile))), asked)[: len(tile)] for tile in tiles])
