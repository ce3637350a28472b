"""A fit's finished stages in files, so that one that dies can go on: column blocks, then the vectors that enter each ICL layer.

Vectors are half of their layer's K/V, and K/V follow from them to the bit, block by block as in the fit.
"""

from __future__ import annotations

from pathlib import Path

from tabgrpc.store import paths, tiles
from tabgrpc.store.files import StoredFile
from tabgrpc_workers import fit, storage
from tabgrpc_workers.device import Device, Task
from tabgrpc_workers.shard import ModelShards, Shard


def reached(model: ModelShards, shard: Shard) -> tuple[int, int]:
    """Column blocks that have ended, and ICL layers whose vectors are there."""
    return len(shard.inducing), shard.layer + 1 if shard.kv else 0


def save(model: ModelShards, shard: Shard, directory: Path, folder: str, column: bool) -> Task[list[StoredFile]]:
    """Writes the stage that a shard has just finished. column: this owner writes what all of them hold.

    After the last one nobody needs the rows any more, and they are let go.
    """
    blocks, layers = reached(model, shard)
    files = []
    if not layers:
        if column:
            files.append(storage.save_column(shard, directory, paths.stage_path(folder, shard.member, blocks)))
            yield
        return files
    vectors = {data.run.start: data.hidden for data in shard.data if data.hidden is not None}
    for chunk in range(model.geometry.chunks):
        tensors = storage.vectors_of(model.geometry, shard, model.geometry.chunk_blocks(chunk), vectors)
        if tensors:
            files.append(tiles.save(directory, paths.layer_path(folder, shard.member, layers - 1, chunk), tensors))
            yield
    if layers == model.backbone.shape.icl_layers:
        shard.data = []
    return files


def restore(
    model: ModelShards,
    shard: Shard,
    device: Device,
    directory: Path,
    folder: str,
    files: storage.Files,
    blocks: int,
    layers: int,
) -> Task[None]:
    """Takes an opened shard to where a fit stopped: ``blocks`` column blocks, vectors of ``layers`` ICL layers. Raises DamagedModel."""
    yield from storage.load_column(model, shard, directory, files, paths.stage_path(folder, shard.member, blocks), blocks)
    shard.kv = []
    for layer in range(layers):

        def path_of(chunk: int, layer: int = layer) -> str:
            return paths.layer_path(folder, shard.member, layer, chunk)

        yield from storage.load_rows(model, shard, directory, files, path_of)
        if layer == 0 and model.keep_vectors:
            shard.vectors = {data.run.start: data.hidden for data in shard.data if data.hidden is not None}
        shard.layer = layer
        yield from fit.context_kv(model, shard, device, layer)
    if layers == model.backbone.shape.icl_layers:
        shard.data = []
