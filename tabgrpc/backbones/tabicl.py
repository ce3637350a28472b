"""TabICL v2 (Qu et al., arXiv:2502.05564, and its successor) as stages. Pinned to tabicl 2.2.0, whose private modules are used here.

Differences to upstream's own forward, none of which changes a number: the CLS columns of the column stage are left out (their cells are
skipped there too), context rows don't pass through the last ICL layer (nobody reads them), and attention over context rows takes the
number of all context rows for the scalable softmax, wherever the keys lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tabgrpc.backbones.network import MultiheadAttentionBlock, TabICL
from tabgrpc.backbones.protocol import InducingKV
from tabgrpc.backbones.shapes import shape_of
from tabgrpc.core.head import Head

_REQUIRED = {"norm_first": True, "col_affine": False, "col_target_aware": True, "activation": "gelu"}


class UnsupportedCheckpoint(ValueError):
    """The checkpoint's network has a part that this backbone does not compute."""


class TabICLBackbone:
    """A checkpoint's weights on one device, in one dtype."""

    def __init__(
        self,
        config: Mapping[str, Any],
        state: Mapping[str, Tensor],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """config: TabICL's constructor arguments. state: its state dict. Raises UnsupportedCheckpoint."""
        for name, wanted in _REQUIRED.items():
            if (found := config.get(name, wanted)) != wanted:
                raise UnsupportedCheckpoint(f"checkpoint has {name}={found!r}, only {wanted!r} is supported (TabICL v2)")
        if config.get("col_feature_group", "same") not in (True, "same"):
            raise UnsupportedCheckpoint("checkpoint groups features by padding or not at all, only 'same' is supported (TabICL v2)")
        try:
            net = TabICL(**config)
            net.load_state_dict(dict(state), strict=True, assign=True)
        except (TypeError, RuntimeError) as error:
            raise UnsupportedCheckpoint(f"the checkpoint is of another network: {' '.join(str(error).split())}") from error
        self._net = net.to(device=device, dtype=dtype).eval().requires_grad_(False)
        self.dtype = self.hidden_dtype = dtype
        self.device = torch.device(device)
        self.max_classes = net.max_classes
        self.shape = shape_of(config)
        self._distribution: Any = None if net.max_classes else net.quantile_dist
        self._columns = list(net.col_embedder.tf_col.blocks)
        self._layers = list(net.icl_predictor.tf_icl.blocks)

    def groups(self, features: int) -> int:
        return features

    # --- column stage ---

    def embed(self, x: Tensor, y: Tensor | None, groups: range) -> Tensor:
        column = self._net.col_embedder
        first = torch.arange(groups.start, groups.stop)
        index = torch.stack([(first + 2**i) % x.shape[1] for i in range(column.feature_group_size)], dim=-1)
        features = x[:, index].transpose(0, 1)
        cells = F.linear(features, column.in_linear.weight, column.in_linear.bias)
        skip = column.in_linear.skip_value  # as upstream: also where a clipped value happens to be the mark
        cells = torch.where((features == skip).all(-1, keepdim=True), skip, cells)
        return cells if y is None else cells + self._target(column.y_encoder, y)

    def _target(self, encoder: torch.nn.Linear, y: Tensor) -> Tensor:
        """(R,) to (R, width). Upstream's one-hot encoder casts to float32; this one keeps the policy's dtype."""
        if self.max_classes:
            return F.linear(F.one_hot(y.long(), self.max_classes).to(self.dtype), encoder.weight, encoder.bias)
        return encoder(y[:, None])

    def inducing_queries(self, block: int, rows: int) -> Tensor:
        b = self._columns[block]
        return _queries(b.multihead_attn1, b.ind_vectors, rows)

    def column_kv(self, block: int, cells: Tensor) -> tuple[Tensor, Tensor]:
        return _kv(self._columns[block].multihead_attn1, cells)

    def column_end(self, block: int, attended: Tensor) -> InducingKV:
        b = self._columns[block]
        hidden = _end(b.multihead_attn1, b.ind_vectors, attended)
        return InducingKV(*_kv(b.multihead_attn2, hidden))

    def column_apply(self, block: int, cells: Tensor, inducing: InducingKV) -> Tensor:
        layer = self._columns[block].multihead_attn2
        return _end(layer, cells, F.scaled_dot_product_attention(_queries(layer, cells, 0), inducing.k, inducing.v))

    # --- row interaction ---

    def rows(self, cells: Tensor) -> Tensor:
        interactor = self._net.row_interactor
        tokens = interactor.cls_tokens.expand(cells.shape[1], -1, -1)
        return interactor._aggregate_embeddings(torch.cat([tokens, cells.transpose(0, 1)], dim=1))

    # --- in-context learning ---

    def with_target(self, rows: Tensor, y: Tensor) -> Tensor:
        return rows + self._target(self._net.icl_predictor.y_encoder, y)

    def icl_kv(self, layer: int, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return _kv(self._layers[layer], hidden)

    def icl_queries(self, layer: int, hidden: Tensor, rows: int) -> Tensor:
        return _queries(self._layers[layer], hidden, rows)

    def icl_end(self, layer: int, hidden: Tensor, attended: Tensor) -> Tensor:
        return _end(self._layers[layer], hidden, attended)

    def head(self, hidden: Tensor, asked: Head) -> Tensor:
        return self.outputs(self.decode(hidden), asked)

    def decode(self, hidden: Tensor) -> Tensor:
        """Logits or unsorted quantiles (R, O) of hidden rows (R, D)."""
        predictor = self._net.icl_predictor
        return predictor.decoder(predictor.ln(hidden))

    def outputs(self, out: Tensor, asked: Head) -> Tensor:
        """What is asked, from the decoder's own outputs."""
        if self.max_classes:
            return out
        distribution = self._distribution(out)  # sorts them
        parts = [distribution.quantiles.mean(dim=-1, keepdim=True)]
        if asked.levels:
            parts.append(distribution.icdf(torch.tensor(asked.levels, dtype=out.dtype, device=out.device)))
        if asked.variance:
            parts.append(distribution.quantiles.var(dim=-1, keepdim=True))
        if asked.quantiles:
            parts.append(distribution.quantiles)
        return torch.cat(parts, dim=-1)


def _heads(x: Tensor, heads: int) -> Tensor:
    """(..., n, H * d) to (..., H, n, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def _queries(layer: MultiheadAttentionBlock, x: Tensor, rows: int) -> Tensor:
    """(..., n, width) to queries (..., H, n, d), scaled by log(rows) where the layer has a scalable softmax."""
    attention = layer.attn
    width = attention.embed_dim
    q = _heads(F.linear(layer.norm1(x), attention.in_proj_weight[:width], attention.in_proj_bias[:width]), attention.num_heads)
    if attention.ssmax_layer is None:
        return q
    return attention.ssmax_layer(q.reshape(-1, *q.shape[-3:]), rows).view(q.shape)


def _kv(layer: MultiheadAttentionBlock, x: Tensor) -> tuple[Tensor, Tensor]:
    """(..., n, width) to K and V, each (..., H, n, d)."""
    attention = layer.attn
    width = attention.embed_dim
    kv = F.linear(layer.norm1(x), attention.in_proj_weight[width:], attention.in_proj_bias[width:])
    return _heads(kv[..., :width], attention.num_heads), _heads(kv[..., width:], attention.num_heads)


def _end(layer: MultiheadAttentionBlock, x: Tensor, attended: Tensor) -> Tensor:
    """The rest of a pre-norm block: output projection, residual, feed-forward. attended: (..., H, n, d)."""
    out = layer.attn.out_proj
    x = x + F.linear(attended.transpose(-3, -2).flatten(-2), out.weight, out.bias)
    return x + layer.linear2(F.gelu(layer.linear1(layer.norm2(x))))
