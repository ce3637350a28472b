"""A block's weights as the kernels want them: in the policy's dtype, heads apart, affine norms and the softmax's scale folded in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tabgrpc.backbones.parameters import BlockParameters
from tabgrpc.core.reduction import LOG2E


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """Of a pre-norm transformer block. wq, wk, wv: (H, E, d). wo: (H * d, E). w1: (E, FF). w2: (FF, E). Biases float32.

    A norm's gain multiplies the columns of the product that follows, its shift goes into that product's bias; wq and bq carry
    log2(e) / sqrt(d), so that a score's weight is a bare power of two.
    """

    wq: Tensor
    bq: Tensor
    wk: Tensor
    bk: Tensor
    wv: Tensor
    bv: Tensor
    wo: Tensor
    bo: Tensor
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor
    eps: float

    @classmethod
    def of(cls, p: BlockParameters, dtype: torch.dtype) -> BlockWeights:
        """p: float32 parameters, on the device."""
        width = p.in_weight.shape[1]
        scale = LOG2E / (width // p.heads) ** 0.5
        weight = p.in_weight * p.norm1_gain
        bias = p.in_bias + p.in_weight @ p.norm1_shift
        wq, wk, wv = (part.unflatten(0, (p.heads, -1)).transpose(1, 2) for part in weight.chunk(3))
        bq, bk, bv = bias.chunk(3)

        def cast(x: Tensor) -> Tensor:
            return x.to(dtype).contiguous()

        return cls(
            wq=cast(wq * scale), bq=(bq * scale).contiguous(),
            wk=cast(wk), bk=bk.contiguous(), wv=cast(wv), bv=bv.contiguous(),
            wo=cast(p.out_weight.T), bo=p.out_bias,
            w1=cast((p.ff1_weight * p.norm2_gain).T), b1=p.ff1_bias + p.ff1_weight @ p.norm2_shift,
            w2=cast(p.ff2_weight.T), b2=p.ff2_bias,
            eps=p.eps,
        )  # fmt: skip
