"""TabICL v2's network, written for training: the parameters carry upstream's names, so its state dict loads there.

What differs from upstream's training forward is speed only (a test holds the outputs equal): the CLS slots skip the
column stage, whose result for them is overwritten anyway; the inducing points' queries are computed once, not once a
column; the last ICL block computes the query rows only; nothing branches on the data, so blocks compile.

Sizes: B tables, T rows of which n are context, G columns, C CLS tokens, E = embed_dim, D = C * E.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class NetworkConfig:
    """The constructor arguments that vary between our checkpoints; `upstream()` adds the ones v2 fixes."""

    max_classes: int = 10
    num_quantiles: int = 0
    embed_dim: int = 64
    col_num_blocks: int = 2
    col_nhead: int = 4
    col_num_inds: int = 32
    row_num_blocks: int = 3
    row_nhead: int = 4
    row_num_cls: int = 4
    icl_num_blocks: int = 6
    icl_nhead: int = 8

    def upstream(self) -> dict[str, Any]:
        """Upstream TabICL's constructor arguments, v2's choices spelled out."""
        return asdict(self) | {
            "col_affine": False,
            "col_feature_group": "same",
            "col_feature_group_size": 3,
            "col_target_aware": True,
            "col_ssmax": "qassmax-mlp-elementwise",
            "row_rope_base": 100000,
            "row_rope_interleaved": False,
            "icl_ssmax": "qassmax-mlp-elementwise",
            "ff_factor": 2,
            "dropout": 0.0,
            "activation": "gelu",
            "norm_first": True,
            "bias_free_ln": False,
            "zero_init": False,
        }


class ScalableSoftmax(nn.Module):
    """Query-aware scalable softmax: q * base(log n) * (1 + tanh(query(q))), elementwise per head dimension."""

    def __init__(self, heads: int, head_dim: int, hidden: int = 64) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.base_mlp = nn.Sequential(nn.Linear(1, hidden), nn.GELU(), nn.Linear(hidden, heads * head_dim))
        self.query_mlp = nn.Sequential(nn.Linear(head_dim, hidden), nn.GELU(), nn.Linear(hidden, head_dim))
        nn.init.zeros_(self.query_mlp[-1].weight)
        nn.init.zeros_(self.query_mlp[-1].bias)

    def forward(self, q: Tensor, logn: Tensor) -> Tensor:
        """q: (..., heads, L, head_dim), logn: (1, 1) -> q scaled, same shape."""
        base = self.base_mlp(logn).view(self.heads, 1, self.head_dim)
        return q * (base * (1 + torch.tanh(self.query_mlp(q))))


class Attention(nn.Module):
    """Multi-head attention with the packed in-projection of nn.MultiheadAttention."""

    def __init__(self, dim: int, heads: int, ssmax: bool) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out_proj = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)
        self.ssmax_layer = ScalableSoftmax(heads, dim // heads) if ssmax else None

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.dim // self.heads)).transpose(-3, -2)

    def forward(self, q: Tensor, kv: Tensor, logn: Tensor | None, rope: tuple[Tensor, Tensor] | None) -> Tensor:
        """q: (N, Lq, dim) or (1, Lq, dim) shared by all, kv: (N, Lk, dim) -> (N, Lq, dim)."""
        d = self.dim
        queries = self._split(F.linear(q, self.in_proj_weight[:d], self.in_proj_bias[:d]))
        keys, values = F.linear(kv, self.in_proj_weight[d:], self.in_proj_bias[d:]).chunk(2, -1)
        keys, values = self._split(keys), self._split(values)
        if rope is not None:
            queries, keys = rotate(queries, rope), rotate(keys, rope)
        if self.ssmax_layer is not None:
            queries = self.ssmax_layer(queries, logn)
        if queries.shape[0] != keys.shape[0]:
            queries = queries.expand(keys.shape[0], -1, -1, -1)
        queries, keys = queries.to(values.dtype), keys.to(values.dtype)
        out = F.scaled_dot_product_attention(queries, keys, values)
        return self.out_proj(out.transpose(-3, -2).flatten(-2))


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions, halves not interleaved. x: (N, heads, L, h), rope: cos and sin (>= L, h / 2)."""
    cos, sin = rope[0][: x.shape[-2]], rope[1][: x.shape[-2]]
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, dim: int, heads: int, ssmax: bool) -> None:
        super().__init__()
        self.attn = Attention(dim, heads, ssmax)
        self.linear1, self.linear2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(
        self,
        x: Tensor,
        kv: Tensor | None = None,
        logn: Tensor | None = None,
        rope: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """x: (N, Lq, dim) attends to kv: (N, Lk, dim), to itself without kv -> (N, Lq, dim)."""
        q = self.norm1(x)
        x = x + self.attn(q, q if kv is None else self.norm1(kv), logn, rope)
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


class InducedBlock(nn.Module):
    """The column stage's induced attention: inducing points read the context rows, all rows read them."""

    def __init__(self, dim: int, heads: int, points: int) -> None:
        super().__init__()
        self.multihead_attn1, self.multihead_attn2 = Block(dim, heads, ssmax=True), Block(dim, heads, ssmax=False)
        self.ind_vectors = nn.Parameter(torch.empty(points, dim))
        nn.init.trunc_normal_(self.ind_vectors, std=0.02)

    def forward(self, src: Tensor, n: int, logn: Tensor) -> Tensor:
        """src: (N, T, E) -> (N, T, E)."""
        hidden = self.multihead_attn1(self.ind_vectors[None], src[:, :n], logn)
        return self.multihead_attn2(src, hidden)


class Stack(nn.Module):
    """Blocks under the name that upstream's encoders use; with `rope_dim` the frequencies of a rotary embedding too."""

    def __init__(self, blocks: list[nn.Module], rope_dim: int = 0, base: float = 100000.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        if rope_dim:
            self.rope = nn.Module()
            powers = torch.arange(0, rope_dim, 2).float() / rope_dim
            self.rope.freqs = nn.Parameter(1.0 / base**powers, requires_grad=False)


class Network(nn.Module):
    """The three stages. Target: class indices (classifier) or standardised values (regressor)."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = c = config
        e, d = c.embed_dim, c.embed_dim * c.row_num_cls
        outputs = c.max_classes or c.num_quantiles
        self.col_embedder, self.row_interactor, self.icl_predictor = nn.Module(), nn.Module(), nn.Module()
        col, row, icl = self.col_embedder, self.row_interactor, self.icl_predictor
        col.in_linear = nn.Linear(3, e)
        col.y_encoder = nn.Linear(c.max_classes or 1, e)
        col.tf_col = Stack([InducedBlock(e, c.col_nhead, c.col_num_inds) for _ in range(c.col_num_blocks)])
        row.cls_tokens = nn.Parameter(torch.empty(c.row_num_cls, e))
        nn.init.trunc_normal_(row.cls_tokens, std=0.02)
        row.tf_row = Stack([Block(e, c.row_nhead, False) for _ in range(c.row_num_blocks)], e // c.row_nhead)
        row.out_ln = nn.LayerNorm(e)
        icl.y_encoder = nn.Linear(c.max_classes or 1, d)
        icl.tf_icl = Stack([Block(d, c.icl_nhead, True) for _ in range(c.icl_num_blocks)])
        icl.ln = nn.LayerNorm(d)
        icl.decoder = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, outputs))

    def _targets(self, y: Tensor) -> Tensor:
        """y: (B, n) -> (B, n, classes or 1), float32."""
        classes = self.config.max_classes
        return F.one_hot(y.long(), classes).float() if classes else y[..., None].float()

    def columns(self, X: Tensor, y: Tensor, logn: Tensor) -> Tensor:
        """X: (B, T, G), y: (B, n, classes or 1) -> embeddings (B, T, G, E)."""
        B, T, G = X.shape
        n, stage = y.shape[1], self.col_embedder
        at = torch.arange(G, device=X.device)
        groups = torch.stack([X[:, :, (at + 2**i) % G] for i in range(3)], -1).transpose(1, 2)  # (B, G, T, 3)
        with torch.autocast(X.device.type, enabled=False):  # the one product that sees raw values keeps their digits
            src = stage.in_linear(groups)
            target = stage.y_encoder(y)[:, None]
            src = torch.cat([src[:, :, :n] + target, src[:, :, n:]], 2)
        dtype = torch.get_autocast_dtype(X.device.type) if torch.is_autocast_enabled(X.device.type) else src.dtype
        src = src.to(dtype).flatten(0, 1)
        for block in stage.tf_col.blocks:
            src = block(src, n, logn)
        return src.unflatten(0, (B, G)).transpose(1, 2)

    def rows(self, embeddings: Tensor) -> Tensor:
        """embeddings: (B, T, G, E) -> row vectors (B, T, D)."""
        B, T, G, E = embeddings.shape
        stage, C = self.row_interactor, self.config.row_num_cls
        angles = torch.arange(G + C, device=embeddings.device).float()[:, None] * stage.tf_row.rope.freqs
        rope = (angles.cos(), angles.sin())
        tokens = stage.cls_tokens.to(embeddings.dtype).expand(B, T, C, E)
        x = torch.cat([tokens, embeddings], 2).flatten(0, 1)
        *blocks, last = stage.tf_row.blocks
        for block in blocks:
            x = block(x, None, None, rope)
        out = stage.out_ln(last(x[:, :C], x, None, rope))
        return out.flatten(-2).unflatten(0, (B, T))

    def forward(self, X: Tensor, y: Tensor) -> Tensor:
        """X: (B, T, G) prepared features, context rows first; y: (B, n) -> (B, T - n, classes or quantiles)."""
        n, y = y.shape[1], self._targets(y)
        logn = torch.full((1, 1), math.log(n), device=X.device)
        stage = self.icl_predictor
        x = self.rows(self.columns(X, y, logn)).float()
        x = torch.cat([x[:, :n] + stage.y_encoder(y), x[:, n:]], 1)
        *blocks, last = stage.tf_icl.blocks
        for block in blocks:
            x = block(x, x[:, :n], logn)
        x = last(x[:, n:], x[:, :n], logn)
        return stage.decoder(stage.ln(x))

    def compile_blocks(self) -> None:
        """Compile each block's forward, sizes symbolic: one graph serves all shapes and all blocks of a kind."""
        import torch._dynamo.config as dynamo
        import torch.fx.experimental._config as symbols

        symbols.use_duck_shape = False  # two sizes that happen to be equal once stay two sizes
        dynamo.recompile_limit = 64
        dynamo.suppress_errors = True  # a block that can't be compiled here runs as written
        for module in self.modules():
            if isinstance(module, Block):
                module.compile(dynamic=True)
