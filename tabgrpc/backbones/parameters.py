"""A TabICL network's weights by the names that kernels of our own use. With ``tabicl.py`` the place that knows upstream's modules."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tabgrpc.backbones.network import MultiheadAttentionBlock, TabICL


@dataclass(frozen=True, slots=True)
class BlockParameters:
    """A pre-norm transformer block of width E. in_weight: (3 E, E) queries, keys, values; ff1_weight: (FF, E); ff2_weight: (E, FF)."""

    heads: int
    norm1_gain: Tensor
    norm1_shift: Tensor
    in_weight: Tensor
    in_bias: Tensor
    out_weight: Tensor
    out_bias: Tensor
    norm2_gain: Tensor
    norm2_shift: Tensor
    ff1_weight: Tensor
    ff1_bias: Tensor
    ff2_weight: Tensor
    ff2_bias: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class QueryScaleParameters:
    """Query-aware scalable softmax of a layer (elementwise): w1: (inner, d), w2: (d, inner), as torch's linear layers hold them."""

    heads: int
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor


@dataclass(frozen=True, slots=True)
class Embedding:
    """Features to cells. weight: (features a group, E), bias: (E,). target: (classes, E), or (2, E) slope and offset for regression."""

    weight: Tensor
    bias: Tensor
    target: Tensor
    skip: float


class Parameters:
    """Of one network; tensors are the network's own or small ones made from them, in its dtype and on its device."""

    def __init__(self, net: TabICL) -> None:
        self._net = net

    def column(self, index: int, step: int) -> BlockParameters:
        """Step 1 (inducing points attend to cells) or 2 (cells attend to inducing points) of a column block."""
        block = self._net.col_embedder.tf_col.blocks[index]
        return _block(block.multihead_attn1 if step == 1 else block.multihead_attn2)

    def row(self, index: int) -> BlockParameters:
        return _block(self._net.row_interactor.tf_row.blocks[index])

    def row_tokens(self) -> Tensor:
        """The CLS tokens, (C, E)."""
        return self._net.row_interactor.cls_tokens

    def row_norm(self) -> tuple[Tensor, Tensor]:
        """Gain and shift of the norm after the last row block."""
        return _affine(self._net.row_interactor.out_ln)

    def row_rope(self) -> tuple[Tensor, bool]:
        """Rotary frequencies (d / 2,) and whether pairs are interleaved."""
        rope = self._net.row_interactor.tf_row.rope
        return rope.freqs, bool(rope.interleaved)

    def icl(self, index: int) -> BlockParameters:
        return _block(self._net.icl_predictor.tf_icl.blocks[index])

    def icl_scale(self, index: int) -> QueryScaleParameters | None:
        """None if the layer's softmax isn't scaled by an elementwise look at the query."""
        attention = self._net.icl_predictor.tf_icl.blocks[index].attn
        mlp = getattr(attention.ssmax_layer, "query_mlp", None)
        if mlp is None or not attention.ssmax_layer.elementwise:
            return None
        return QueryScaleParameters(attention.num_heads, mlp[0].weight, mlp[0].bias, mlp[2].weight, mlp[2].bias)

    def icl_base(self, index: int, log_rows: float) -> Tensor:
        """What a layer's scalable softmax multiplies all queries by, (H, d), given log(context rows)."""
        attention = self._net.icl_predictor.tf_icl.blocks[index].attn
        first = attention.ssmax_layer.base_mlp[0].weight
        at = torch.tensor([[log_rows]], dtype=first.dtype, device=first.device)
        return attention.ssmax_layer.base_mlp(at).view(attention.num_heads, -1)

    def icl_target(self) -> tuple[Tensor, Tensor]:
        """What a context row's target adds to its vector: ((classes, D), (D,)), or slope and offset ((1, D), (D,)) for regression."""
        encoder = self._net.icl_predictor.y_encoder
        return encoder.weight.T, encoder.bias

    def embedding(self) -> Embedding:
        column = self._net.col_embedder
        encoder, linear = column.y_encoder, column.in_linear
        if self._net.max_classes:
            target = encoder.weight.T + encoder.bias
        else:
            target = torch.stack([encoder.weight[:, 0], encoder.bias])
        return Embedding(linear.weight.T.contiguous(), linear.bias, target.contiguous(), float(linear.skip_value))

    def decoder(self) -> tuple[tuple[Tensor, Tensor, float], list[tuple[Tensor, Tensor]]]:
        """The last norm's gain, shift and epsilon; weight and bias of the two linear layers with a GELU between them."""
        predictor = self._net.icl_predictor
        return (*_affine(predictor.ln), predictor.ln.eps), [(m.weight, m.bias) for m in (predictor.decoder[0], predictor.decoder[2])]


def _affine(norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return norm.weight, torch.zeros_like(norm.weight) if norm.bias is None else norm.bias


def _block(layer: MultiheadAttentionBlock) -> BlockParameters:
    attention = layer.attn
    return BlockParameters(
        attention.num_heads,
        *_affine(layer.norm1),
        attention.in_proj_weight,
        attention.in_proj_bias,
        attention.out_proj.weight,
        attention.out_proj.bias,
        *_affine(layer.norm2),
        layer.linear1.weight,
        layer.linear1.bias,
        layer.linear2.weight,
        layer.linear2.bias,
        layer.norm1.eps,
    )
