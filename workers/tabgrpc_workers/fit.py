"""The stages of fitting a member, as device tasks. Each yields between quanta and may be repeated: done twice it gives the same.

One owner or many, the stages are the same; ``member`` strings them together where one worker owns all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as bind

import torch
from torch import Tensor

from tabgrpc.core.reduction import Node, Partial, Tree, complete, stack
from tabgrpc.wire.errors import NotReady
from tabgrpc_workers.device import Task
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.overlap import Quanta
from tabgrpc_workers.shard import Cells, ModelShards, RunData, Shard, run_rows

Progress = Callable[[str], None]
"""Called with a stage's name after each block of work."""


Finished = Callable[[], Task[None]]
"""Called after each stage."""


def _nothing_more() -> Task[None]:
    yield from ()


def member(model: ModelShards, shard: Shard, device: Quanta, progress: Progress, finished: Finished = _nothing_more) -> Task[None]:
    """All stages of a member whose rows this worker owns alone, or those that are left of them."""
    shape, total = model.backbone.shape, model.geometry.blocks
    if not shard.kv:
        for block in range(len(shard.inducing), shape.column_blocks):
            nodes = yield from column(model, shard, device, block, progress)
            column_end(model, shard, block, complete(nodes, total))
            yield from finished()
        yield from rows(model, shard, device, progress)
        yield from finished()
    for layer in range(len(shard.kv) - 1, shape.icl_layers - 1):
        yield from icl(model, shard, device, layer, [], progress)
        yield from finished()


def units(model: ModelShards, shard: Shard) -> int:
    """How often ``member`` or the same stages one by one call ``progress``."""
    shape = model.backbone.shape
    return sum(len(run) for run in shard.runs) * (shape.column_blocks + shape.icl_layers)


def _has_rows(shard: Shard) -> None:
    """A late repetition of a stage must not touch a shard that is fitted or was read from files."""
    if not shard.data:
        raise NotReady(f"member {shard.member} has no rows to fit: it is fitted already")
    if shard.layer:
        raise NotReady(f"member {shard.member} is in its ICL layers already")


# --- column stage ---


def column(model: ModelShards, shard: Shard, device: Quanta, block: int, progress: Progress) -> Task[list[Node]]:
    """Inducing attention of a column block over the owned rows: partials (G, H, I[, d]), folded as far as the runs allow."""
    _has_rows(shard)
    backbone, geometry = model.backbone, model.geometry
    q = backbone.inducing_queries(block, geometry.rows)
    tree = Tree(geometry.blocks)

    def one(data: RunData, at: int, groups: range) -> Partial:
        return model.recipe.gather(block, q, _cells(model, shard, data, at, groups, block))

    for data in shard.data:
        for at in range(data.run.start, data.run.stop):
            parts = []
            for part in device.map(bind(one, data, at), _chunks(model, at)):
                parts.append(part)
                yield
            tree.add(Node(0, at, stack(parts)))
            progress("column")
    return tree.nodes()


def column_end(model: ModelShards, shard: Shard, block: int, root: Partial) -> None:
    """Ends a column block: its inducing K/V from the partial over all rows."""
    _has_rows(shard)
    if len(shard.inducing) < block:
        raise NotReady(f"column block {block} of member {shard.member} ends before block {block - 1}")
    inducing = model.backbone.column_end(block, root.divide().to(model.backbone.hidden_dtype))
    shard.inducing[block:] = [type(inducing)(inducing.k.contiguous(), inducing.v.contiguous())]


def _chunks(model: ModelShards, at: int) -> list[range]:
    return list(model.geometry.feature_chunks(len(model.geometry.block_rows(at))))


def _cells(
    model: ModelShards, shard: Shard, data: RunData, at: int, groups: range, level: int, part: range | None = None
) -> Tensor:
    """Cells (g, R, E) of a block of rows after ``level`` column blocks: stored ones advanced, or computed from the features.

    part: some of the block's rows only, where the recipe lets rows be cut.
    """
    if shard.digits:
        return _averaged(model, shard, data, at, groups, level, part)
    if len(shard.inducing) < level:
        raise NotReady(f"column block {level - 1} of member {shard.member} has not ended")
    backbone = model.backbone
    stored = shard.cells.get(_key(at, groups))
    if stored is not None and stored.level <= level:
        cells, reached = stored.values if part is None else stored.values[:, part.start : part.stop], stored.level
    else:
        first = data.run.start * model.geometry.block
        rows = model.geometry.block_rows(at)
        start = rows.start - first
        here = slice(start, rows.stop - first) if part is None else slice(start + part.start, start + part.stop)
        cells, reached = backbone.embed(data.x[here], data.y[here], groups), 0
    for block in range(reached, level):
        inducing = shard.inducing[block]
        chunk = slice(groups.start, groups.stop)
        cells = backbone.column_apply(block, cells, type(inducing)(inducing.k[chunk], inducing.v[chunk]))
    if model.store and part is None:
        shard.cells[_key(at, groups)] = Cells(level, cells)
    return cells


def _averaged(model: ModelShards, shard: Shard, data: RunData, at: int, groups: range, level: int, part: range | None) -> Tensor:
    """The mean of the cells under each digit of the labels, added in the digits' order."""
    total: Tensor | None = None
    for digit in shard.digits:
        own = next((each for each in digit.data if each.run == data.run), None)
        if own is None:
            raise NotReady(f"member {shard.member} has no rows to fit: it is fitted already")
        cells = _cells(model, digit, own, at, groups, level, part)
        if part is None:
            digit.cells.pop(_key(at, groups), None)  # nobody asks for these again
        total = cells if total is None else total + cells
    assert total is not None
    return total / len(shard.digits)


def _key(at: int, groups: range) -> int:
    return at << 32 | groups.start


# --- row interaction ---


def rows(model: ModelShards, shard: Shard, device: Quanta, progress: Progress) -> Task[None]:
    """Row vectors with targets added, then K/V of ICL layer 0. In a member with a tree the vectors only: every node has its own targets."""
    _has_rows(shard)
    backbone, geometry = model.backbone, model.geometry
    level = backbone.shape.column_blocks

    def vectors(cells: Tensor, y: Tensor) -> Tensor:
        found = backbone.rows(cells)
        return found if shard.tree else backbone.with_target(found, y)

    for data in shard.data:
        hidden = data.x.new_empty(data.x.shape[0], backbone.shape.icl, dtype=backbone.hidden_dtype)
        first = data.run.start * geometry.block
        for at in range(data.run.start, data.run.stop):
            block = geometry.block_rows(at)
            start = block.start - first
            y = data.y[start : block.stop - first]
            parts = list(geometry.quanta(range(len(block))))

            def whole(part: range | None, data: RunData = data, at: int = at) -> Task[Tensor]:
                cells = []
                for columns in device.map(bind(_cells, model, shard, data, at, level=level, part=part), _chunks(model, at)):
                    cells.append(columns)
                    yield
                return cells[0] if len(cells) == 1 else torch.cat(cells)

            if model.recipe.free_rows:
                for part in parts:
                    hidden[start + part.start : start + part.stop] = vectors((yield from whole(part)), y[part.start : part.stop])
            else:
                cells = yield from whole(None)

                def quantum(part: range, cells: Tensor = cells, y: Tensor = y) -> Tensor:
                    return vectors(cells[:, part.start : part.stop], y[part.start : part.stop])

                for part, out in zip(parts, device.map(quantum, parts), strict=True):
                    hidden[start + part.start : start + part.stop] = out
                    yield
            for groups in _chunks(model, at):
                shard.cells.pop(_key(at, groups), None)
            progress("row")
        data.hidden = hidden
        if model.keep_vectors:
            shard.vectors[data.run.start] = hidden
    if not shard.tree:
        yield from first_kv(model, shard, device)


def first_kv(model: ModelShards, shard: Shard, device: Quanta) -> Task[None]:
    """K/V of ICL layer 0, from row vectors with targets added."""
    shard.layer = 0
    shard.kv = []
    yield from _kv(model, shard, device, 0)


# --- in-context learning ---


def icl(
    model: ModelShards, shard: Shard, device: Quanta, layer: int, foreign: Sequence[KVRun], progress: Progress
) -> Task[None]:
    """ICL layer ``layer`` for the owned rows against the K/V of all rows, then K/V of the next layer.

    foreign: the other owners' K/V of this layer. After the last but one layer the rows' vectors are let go: the last needs K/V only.
    """
    if layer == shard.layer - 1 and len(shard.kv) >= layer + 1:  # asked again; the first time may have ended before the K/V
        if len(shard.kv) == layer + 1:
            yield from _next_kv(model, shard, device, layer, progress)
        return
    if layer != shard.layer or len(shard.kv) != layer + 1:
        raise NotReady(f"member {shard.member} is at ICL layer {shard.layer}, not {layer}")
    geometry = model.geometry
    runs = sorted([*shard.kv[layer], *foreign], key=lambda run: run.start)

    def block(hidden: Tensor) -> Tensor:
        return model.recipe.context(layer, hidden, runs, geometry)

    for data in shard.data:
        if data.hidden is None:
            raise NotReady(f"member {shard.member} has no row vectors")
        if shard.vectors.get(data.run.start) is data.hidden:  # these are kept as they are
            data.hidden = data.hidden.clone()
        first = data.run.start * geometry.block
        parts = [geometry.block_rows(at) for at in range(data.run.start + data.advanced, data.run.stop)]
        blocks = [data.hidden[part.start - first : part.stop - first] for part in parts]
        for part, result in zip(parts, device.map(block, blocks), strict=True):
            data.hidden[part.start - first : part.stop - first] = result  # in place: the others' K/V are all that this block is read by
            data.advanced += 1
            progress("icl")
            yield
    for data in shard.data:
        data.advanced = 0
        data.x = data.x[:0].clone()  # the features are needed no more, and theirs is the memory of a layer's K/V
    shard.layer = layer + 1
    yield from _next_kv(model, shard, device, layer, progress)


def _next_kv(model: ModelShards, shard: Shard, device: Quanta, layer: int, progress: Progress) -> Task[None]:
    """The end of ICL layer ``layer``: K/V of the next one, the last that needs the rows' vectors."""
    yield from _kv(model, shard, device, layer + 1)
    if layer + 2 == model.backbone.shape.icl_layers:
        if not model.staged:
            shard.data = []
        progress("done")


def _kv(model: ModelShards, shard: Shard, device: Quanta, layer: int) -> Task[None]:
    """K/V of the owned rows at a layer, block by block, laid out for attention."""
    backbone, geometry = model.backbone, model.geometry
    runs = []
    for data in shard.data:
        assert data.hidden is not None
        first = data.run.start * geometry.block
        full = sum(len(geometry.block_rows(at)) == geometry.block for at in range(data.run.start, data.run.stop))
        keys = values = None
        tail = None
        for at in range(data.run.start, data.run.stop):
            part = geometry.block_rows(at)
            k, v = backbone.icl_kv(layer, data.hidden[part.start - first : part.stop - first])
            if keys is None:
                heads, _, width = k.shape
                keys, values = (k.new_empty(full, heads, geometry.block, width) for _ in range(2))
            if len(part) == geometry.block:
                keys[at - data.run.start], values[at - data.run.start] = k, v  # type: ignore[index]
            else:
                tail = (k.contiguous(), v.contiguous())
            yield
        assert keys is not None and values is not None
        runs.append(KVRun(data.run.start, keys, values, tail))
    shard.kv[layer:] = [runs]


def context_kv(model: ModelShards, shard: Shard, device: Quanta, layer: int) -> Task[None]:
    """K/V of a layer from the vectors that enter it, of a shard whose vectors were read from files."""
    yield from _kv(model, shard, device, layer)


def open_shard(model: ModelShards, shard: Shard, x: dict[int, Tensor], y: dict[int, Tensor]) -> None:
    """Gives a shard its rows: x[run.start] (rows, F), y[run.start] (rows,). Raises ValueError on another shape."""
    for run in shard.runs:
        wanted = (len(run_rows(model.geometry, run)), model.features)
        if run.start not in x or run.start not in y or x[run.start].shape != wanted or y[run.start].shape != wanted[:1]:
            raise ValueError(f"member {shard.member} blocks {run.start} to {run.stop} need {wanted[0]} x {wanted[1]} features and targets")
        backbone = model.backbone
        rows, targets = x[run.start].to(backbone.device, backbone.dtype), y[run.start].to(backbone.device, backbone.hidden_dtype)
        shard.data.append(RunData(run, rows, targets))
