"""Members of more classes than the network tells apart: a tree of contexts over one column stage a digit.

Every node is a shard with its own geometry and goes through the same stages as a table's (``fit.icl``, ``query.attention``), seen through
``ModelShards.of``. What is here sets them up, gives them their rows, and takes a query tile through all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tabgrpc.core.classes import bases, class_tree, digit, ownership
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import Run
from tabgrpc.core.reduction import complete
from tabgrpc.wire.errors import InvalidArgument, NotReady
from tabgrpc_workers import fit, query
from tabgrpc_workers.device import Task
from tabgrpc_workers.fit import Progress
from tabgrpc_workers.overlap import Quanta
from tabgrpc_workers.shard import ModelShards, RunData, Shard, run_rows

_OWN, _FOREIGN = "own", "foreign"


def prepared(member: int, runs: tuple[Run, ...], geometry: Geometry, counts: Sequence[int], most: int) -> Shard:
    """An empty shard that owns some runs of a member. counts: rows of each label, if there are more labels than ``most``, else nothing.

    Raises InvalidArgument for counts that aren't the table's.
    """
    shard = Shard(member, runs)
    if not counts:
        return shard
    if sum(counts) != geometry.rows or len(counts) <= most:
        raise InvalidArgument(f"{len(counts)} classes of {sum(counts)} rows are no tree over {geometry.rows} rows")
    try:
        shard.tree = class_tree(counts, most)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    shard.digits = [Shard(member, runs) for _ in bases(len(counts), most)]
    owned = {chunk for chunk in range(geometry.chunks) for run in runs if run.start <= geometry.chunk_blocks(chunk).start < run.stop}
    owners = [_OWN if chunk in owned else _FOREIGN for chunk in range(geometry.chunks)]
    nodes = ownership(shard.tree, geometry, owners)
    for number, node in enumerate(shard.tree):
        own = geometry.of_rows(node.rows)
        if number and (held := nodes.runs(number, _OWN, own)):
            shard.nodes[number] = Shard(member, held, geometry=own)
    return shard


def open_digits(model: ModelShards, shard: Shard) -> None:
    """After the rows have come: each digit's column stage is shown its digit of the labels. Raises ValueError for labels out of range."""
    if not shard.tree:
        return
    labels = shard.tree[0].stop
    if any(len(data.y) and not 0 <= int(data.y.min()) <= int(data.y.max()) < labels for data in shard.data):
        raise ValueError(f"member {shard.member} has labels outside of {labels} classes")
    radices = bases(labels, model.backbone.shape.max_classes)
    for at, each in enumerate(shard.digits):
        each.data = [RunData(data.run, data.x, _tensor(digit(_labels(data.y), at, radices), data.y)) for data in shard.data]


def rows_of(model: ModelShards, shard: Shard) -> int:
    """Rows whose K/V are held, in all contexts."""
    return sum(len(run_rows(model.of(each).geometry, run)) for each in shard.contexts().values() for run in each.runs)


def context(shard: Shard, number: int) -> Shard:
    """A node. Raises NotReady if none of it is owned."""
    found = shard.contexts().get(number)
    if found is None:
        raise NotReady(f"this worker owns nothing of node {number} of member {shard.member}")
    return found


# --- fit ---


def member(model: ModelShards, shard: Shard, device: Quanta, progress: Progress) -> Task[None]:
    """All stages of a member whose rows this worker owns alone."""
    blocks = model.geometry.blocks
    for each in shard.digits:
        for block in range(model.backbone.shape.column_blocks):
            nodes = yield from fit.column(model, each, device, block, progress)
            fit.column_end(model, each, block, complete(nodes, blocks))
    yield from fit.rows(model, shard, device, progress)
    whole = shard.data[0].hidden
    assert whole is not None
    labels = _labels(shard.data[0].y)
    for number in shard.contexts():
        node = shard.tree[number]
        rows = node.of(labels)
        targets = _tensor(node.targets(labels[rows]), whole)
        yield from spread(model, shard, number, {0: whole[torch.from_numpy(rows)]}, {0: targets}, device)
    for each in shard.contexts().values():
        yield from layers(model, each, device, progress)


def layers(model: ModelShards, node: Shard, device: Quanta, progress: Progress) -> Task[None]:
    """All ICL layers of a node that this worker owns alone."""
    for layer in range(model.backbone.shape.icl_layers - 1):
        yield from fit.icl(model.of(node), node, device, layer, [], progress)


def units(model: ModelShards, shard: Shard) -> int:
    """How often ``member`` calls ``progress``."""
    shape = model.backbone.shape
    column = sum(len(run) for run in shard.runs) * (len(shard.digits) * shape.column_blocks + 1)
    icl = sum(len(run) for node in shard.contexts().values() for run in node.runs) * (shape.icl_layers - 1)
    return column + icl


def spread(
    model: ModelShards, shard: Shard, number: int, vectors: dict[int, Tensor], targets: dict[int, Tensor], device: Quanta
) -> Task[None]:
    """Gives a node the vectors (rows, D) and targets (rows,) of its runs, by first block, and computes its K/V of layer 0.

    With the root's the member's features are let go.
    """
    node = context(shard, number)
    view, backbone = model.of(node), model.backbone
    found = []
    for run in node.runs:
        rows = run_rows(view.geometry, run)
        if run.start not in vectors or run.start not in targets or len(targets[run.start]) != len(rows):
            raise InvalidArgument(f"node {number} of member {shard.member}, blocks {run.start} to {run.stop}, needs {len(rows)} rows")
        plain, y = (each[run.start].to(backbone.device, backbone.hidden_dtype) for each in (vectors, targets))
        if plain.shape != (len(rows), backbone.shape.icl):
            raise InvalidArgument(f"vectors of node {number} of member {shard.member} are of shape {tuple(plain.shape)}")
        hidden = torch.empty_like(plain)
        for block in range(run.start, run.stop):
            for quantum in view.geometry.quanta(view.geometry.block_rows(block)):
                part = slice(quantum.start - rows.start, quantum.stop - rows.start)
                hidden[part] = backbone.with_target(plain[part], y[part])
            yield
        found.append(RunData(run, plain[:0], y, hidden))
    if number == 0:
        for each in shard.digits:
            each.data, each.cells = [], {}
    node.data = found
    yield from fit.first_kv(view, node, device)


def _labels(y: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return y.cpu().numpy().astype(np.int64)


def _tensor(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]], like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device, like.dtype)


# --- predict ---


def tile(model: ModelShards, shard: Shard, x: Tensor, asked: Head) -> Task[Tensor]:
    """x: (tile, F) to the outputs of all nodes side by side, (tile, nodes x classes a node), for a member that this worker owns whole."""
    vectors = yield from query.vectors(model, shard, x.to(model.backbone.device))
    if asked.embeddings:
        return vectors
    outputs = []
    for node in shard.contexts().values():
        geometry, hidden = model.of(node).geometry, vectors
        for layer in range(model.backbone.shape.icl_layers):
            hidden = model.recipe.query(layer, hidden, node.kv[layer], geometry)
            yield
        outputs.append(model.backbone.head(hidden, asked))
    return torch.cat(outputs, dim=1)
