"""A query tile through a member: all at once where one worker owns the member, step by step where several do.

The steps keep no state: what comes back is all that the next step needs, so that any step can be asked again, of any worker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from weakref import ref

import torch
from torch import Tensor

from tabgrpc.core.head import Head
from tabgrpc.core.reduction import Node, Partial, Tree
from tabgrpc_workers.device import Task, finished
from tabgrpc_workers.shard import ModelShards, Shard


def tile(model: ModelShards, shard: Shard, x: Tensor, asked: Head) -> Task[Tensor]:
    """x: (tile, F) to outputs (tile, O), for a member that this worker owns whole."""
    yield
    if shard.away is None and (run := _captured(model, shard, asked.embeddings)) is not None:  # no other task between this and its run
        out = run(x)
        return out.clone() if asked.embeddings else model.backbone.outputs(out, asked)
    hidden = yield from vectors(model, shard, x.to(model.backbone.device))
    if asked.embeddings:
        return hidden
    for layer in range(model.backbone.shape.icl_layers):
        if shard.away is not None:  # also if they were moved away since the layer before
            hidden = yield from _streamed(model, shard, layer, hidden)
            break
        hidden = model.recipe.query(layer, hidden, shard.kv[layer], model.geometry)
        yield
    return model.backbone.head(hidden, asked)


def _captured(model: ModelShards, shard: Shard, embeddings: bool) -> Callable[[Tensor], Tensor] | None:
    """What a shard keeps must not keep the shard: a dropped one's K/V would stay until the garbage collector comes by."""
    if embeddings not in shard.captured:
        bare, held = replace(model, shards={}), ref(shard)  # of an epoch that may be gone when another batch size is asked for

        def run(x: Tensor) -> Tensor:
            own = held()
            assert own is not None  # whoever runs this has it
            hidden = finished(vectors(bare, own, x))
            if embeddings:
                return hidden
            for layer in range(bare.backbone.shape.icl_layers):
                hidden = bare.recipe.query(layer, hidden, own.kv[layer], bare.geometry)
            return bare.backbone.decode(hidden)

        if (captured := model.recipe.captured(run)) is None:
            return None
        shard.captured[embeddings] = captured
    return shard.captured[embeddings]


def _streamed(model: ModelShards, shard: Shard, first: int, hidden: Tensor) -> Task[Tensor]:
    """Hidden rows after the last layer, from those before layer ``first``; each layer's K/V come and go in pieces."""
    rows, blocks, layer = model.geometry.rows, model.geometry.blocks, first
    q, tree = model.backbone.icl_queries(layer, hidden, rows), Tree(blocks)
    with closing(model.pieces(shard, range(first, model.backbone.shape.icl_layers))) as pieces:
        for at, run in pieces:
            if at != layer:
                hidden = end(model, layer, hidden, tree.root())
                layer, tree = at, Tree(blocks)
                q = model.backbone.icl_queries(layer, hidden, rows)
            for node in model.recipe.nodes(q, [run], blocks):
                tree.add(node)
            yield
    return end(model, layer, hidden, tree.root())


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
    """Queries (H, tile, d) against what this worker owns of a layer, wherever it is."""
    if shard.away is not None:
        return finished(streamed_attention(model, shard, layer, q))
    return model.recipe.nodes(q, shard.kv[layer], model.geometry.blocks)


def streamed_attention(model: ModelShards, shard: Shard, layer: int, q: Tensor) -> Task[list[Node]]:
    """As ``attention``, giving way to other tasks between pieces of K/V that are away."""
    if shard.away is None:
        yield
        return attention(model, shard, layer, q)
    tree = Tree(model.geometry.blocks)
    with closing(model.pieces(shard, range(layer, layer + 1))) as pieces:
        for _, run in pieces:
            for node in model.recipe.nodes(q, [run], model.geometry.blocks):
                tree.add(node)
            yield
    return tree.nodes()


def end(model: ModelShards, layer: int, hidden: Tensor, root: Partial) -> Tensor:
    """Hidden rows after a layer, from the partial over all context rows."""
    return model.backbone.icl_end(layer, hidden, root.divide().to(model.backbone.dtype))
