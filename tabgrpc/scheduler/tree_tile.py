"""A query tile through a member with a tree of classes over several owners: all nodes go up the layers side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tabgrpc.core import stripes
from tabgrpc.core.classes import ownership
from tabgrpc.core.reduction import complete
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.scheduler.partials import unpack

if TYPE_CHECKING:
    from tabgrpc.scheduler.predict import _Tile

Arrays = dict[str, np.ndarray]


def through(tile: _Tile, owners: tuple[str, ...], member: int, x: np.ndarray, at_once: int) -> Arrays:
    """x: (tile, F) to "out/<member>" (tile, nodes x classes a node). at_once: nodes whose arrays fit one message."""
    model, placement = tile._model, tile._placement
    tree, geometry = model.trees[member], model.manifest.geometry
    held = ownership(tree, geometry, placement.map.owners[member], placement.map.epoch)
    home = placement.workers[stripes.home(tile._turn, owners)]
    outputs: Arrays = {}
    first: Arrays = {f"x/{member}": x}
    for start in range(0, len(tree), at_once):
        numbers = range(start, min(start + at_once, len(tree)))
        state = tile._step(home, [member], pb.TILE_STEP_KIND_OPEN, 0, {**first, f"nodes/{member}": np.array(numbers)})
        vectors = state[f"hidden/{member}"]
        if tile._head.embeddings:
            return {f"out/{member}": vectors}
        first = {f"hidden/{member}": vectors}
        state |= {f"hidden/{member}.{number}": vectors for number in numbers}
        for layer in range(tile._shape.icl_layers):
            calls = []
            for name in owners:
                queries = {f"q/{member}.{n}": state[f"q/{member}.{n}"] for n in numbers if name in held.owners[n]}
                if queries:
                    calls.append(tile._call(placement.workers[name], [member], pb.TILE_STEP_KIND_ATTEND, layer, queries))
            parts = list(tile._predictor.everywhere(calls))
            sent: Arrays = {}
            for n in numbers:
                key = f"{member}.{n}"
                blocks = geometry.of_rows(tree[n].rows).blocks
                root = complete((node for part in parts for node in unpack(part, f"/{key}")), blocks)
                sent |= {f"hidden/{key}": state[f"hidden/{key}"], f"acc/{key}": root.acc, f"sum/{key}": root.sum, f"peak/{key}": root.peak}
            state = tile._step(home, [member], pb.TILE_STEP_KIND_ADVANCE, layer, sent)
        outputs |= state
    return {f"out/{member}": np.concatenate([outputs[f"out/{member}.{n}"] for n in range(len(tree))], axis=1)}
