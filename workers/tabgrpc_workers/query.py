"""A query tile through a member: all at once where one worker owns the member, step by step where several do.

The steps keep no state: what comes back is all that the next step needs, so that any step can be asked again, of any worker.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tabgrpc.core.head import Head
from tabgrpc.core.reduction import Node, Partial, complete
from tabgrpc_workers.device import Task
from tabgrpc_workers.kernels import attend
from tabgrpc_workers.shard import ModelShards, Shard


def tile(model: ModelShards, shard: Shard, x: Tensor, asked: Head) -> Task[Tensor]:
    """x: (tile, F) to outputs (tile, O), for a member that this worker owns whole."""
    hidden = yield from vectors(model, shard, x)
    if asked.embeddings:
        return hidden
    for layer in range(model.backbone.shape.icl_layers):
        nodes = attention(model, shard, layer, model.backbone.icl_queries(layer, hidden, model.geometry.rows))
        hidden = end(model, layer, hidden, complete(nodes, model.geometry.blocks))
        yield
    return model.backbone.head(hidden, asked)


def vectors(model: ModelShards, shard: Shard, x: Tensor) -> Task[Tensor]:
    """x: (tile, F) to row vectors (tile, D), by the column blocks' inducing K/V."""
    backbone = model.backbone
    cells = []
    for groups in model.geometry.feature_chunks(x.shape[0]):
        part = backbone.embed(x, None, groups)
        chunk = slice(groups.start, groups.stop)
        for block, inducing in enumerate(shard.inducing):
            part = backbone.column_apply(block, part, type(inducing)(inducing.k[chunk], inducing.v[chunk]))
        cells.append(part)
        yield
    return backbone.rows(torch.cat(cells))


def attention(model: ModelShards, shard: Shard, layer: int, q: Tensor) -> list[Node]:
    """Queries (H, tile, d) against what this worker owns of a layer."""
    return attend(q, shard.kv[layer], model.geometry.blocks)


def end(model: ModelShards, layer: int, hidden: Tensor, root: Partial) -> Tensor:
    """Hidden rows after a layer, from the partial over all context rows."""
    return model.backbone.icl_end(layer, hidden, root.divide().to(model.backbone.dtype))
