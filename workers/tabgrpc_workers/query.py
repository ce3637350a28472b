"""A query tile through a member: all at once where one worker owns the member, step by step where several do.

The steps keep no state: what comes back is all that the next step needs, so that any step can be asked again, of any worker.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tabgrpc.core.head import Head
from tabgrpc.core.reduction import Node, Partial
from tabgrpc_workers.device import Task
from tabgrpc_workers.shard import ModelShards, Shard


def tile(model: ModelShards, shard: Shard, x: Tensor, asked: Head) -> Task[Tensor]:
    """x: (tile, F) to outputs (tile, O), for a member that this worker owns whole."""
    if (run := _captured(model, shard, asked.embeddings)) is not None:
        yield
        out = run(x)
        return out.clone() if asked.embeddings else model.backbone.outputs(out, asked)
    hidden = yield from vectors(model, shard, x.to(model.backbone.device))
    if asked.embeddings:
        return hidden
    for layer in range(model.backbone.shape.icl_layers):
        hidden = model.recipe.query(layer, hidden, shard.kv[layer], model.geometry)
        yield
    return model.backbone.head(hidden, asked)


def _captured(model: ModelShards, shard: Shard, embeddings: bool) -> Callable[[Tensor], Tensor] | None:
    if embeddings not in shard.captured:

        def run(x: Tensor) -> Tensor:
            hidden = _finished(vectors(model, shard, x))
            if embeddings:
                return hidden
            for layer in range(model.backbone.shape.icl_layers):
                hidden = model.recipe.query(layer, hidden, shard.kv[layer], model.geometry)
            return model.backbone.decode(hidden)

        if (captured := model.recipe.captured(run)) is None:
            return None
        shard.captured[embeddings] = captured
    return shard.captured[embeddings]


def _finished(task: Task[Tensor]) -> Tensor:
    """Runs a task to its end at once."""
    while True:
        try:
            next(task)
        except StopIteration as end:
            return end.value


def vectors(model: ModelShards, shard: Shard, x: Tensor) -> Task[Tensor]:
    """x: (tile, F) to row vectors (tile, D), by the column blocks' inducing K/V; where labels have digits, by the mean over them."""
    backbone = model.backbone
    cells = []
    for groups in model.geometry.feature_chunks(x.shape[0]):
        embedded = backbone.embed(x, None, groups)
        chunk = slice(groups.start, groups.stop)
        total: Tensor | None = None
        for digit in shard.digits or [shard]:
            part = embedded
            for block, inducing in enumerate(digit.inducing):
                part = backbone.column_apply(block, part, type(inducing)(inducing.k[chunk], inducing.v[chunk]))
            total = part if total is None else total + part
            yield
        assert total is not None
        cells.append(total / len(shard.digits) if shard.digits else total)
    return backbone.rows(torch.cat(cells))


def attention(model: ModelShards, shard: Shard, layer: int, q: Tensor) -> list[Node]:
    """Queries (H, tile, d) against what this worker owns of a layer."""
    return model.recipe.nodes(q, shard.kv[layer], model.geometry.blocks)


def end(model: ModelShards, layer: int, hidden: Tensor, root: Partial) -> Tensor:
    """Hidden rows after a layer, from the partial over all context rows."""
    return model.backbone.icl_end(layer, hidden, root.divide().to(model.backbone.dtype))
