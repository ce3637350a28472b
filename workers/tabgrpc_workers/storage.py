"""A worker's shards to tile files and back. Each owner writes and reads its own chunks, straight to and from storage."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tabgrpc.backbones.protocol import InducingKV
from tabgrpc.store import tiles
from tabgrpc.store.files import DamagedModel, StoredFile
from tabgrpc_workers.device import Task
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.shard import ModelShards, Shard


def save(model: ModelShards, shard: Shard, directory: Path, folder: str, column: bool) -> Task[list[StoredFile]]:
    """Writes a member's owned chunks into ``directory/folder``, and its inducing K/V if ``column``; of all its nodes and digits."""
    files = []
    for digit, each in enumerate(shard.digits or [shard]):
        if column:
            pairs = {f"{name}/{block}": getattr(kv, name) for block, kv in enumerate(each.inducing) for name in ("k", "v")}
            pairs = {name: tensor.cpu() for name, tensor in pairs.items()}
            files.append(tiles.save(directory, tiles.column_path(folder, shard.member, digit), pairs))
            yield
    for node, each in shard.contexts().items():
        files += yield from _save_chunks(model.of(each), each, node, directory, folder)
    return files


def _save_chunks(model: ModelShards, shard: Shard, node: int, directory: Path, folder: str) -> Task[list[StoredFile]]:
    files = []
    geometry = model.geometry
    for chunk in range(geometry.chunks):
        blocks = geometry.chunk_blocks(chunk)
        tensors = {}
        for layer, runs in enumerate(shard.kv):
            for block in blocks:
                found = _block(runs, block)
                if found is not None:
                    tensors[f"k/{layer}/{block}"], tensors[f"v/{layer}/{block}"] = (part.cpu() for part in found)
        if tensors:
            files.append(tiles.save(directory, tiles.chunk_path(folder, shard.member, chunk, node), tensors))
            yield
    return files


def load(model: ModelShards, shard: Shard, directory: Path, files: dict[str, StoredFile], folder: str) -> Task[None]:
    """Fills an empty shard with its chunks from ``directory/folder``, and its nodes and digits. Raises DamagedModel."""
    for digit, each in enumerate(shard.digits or [shard]):
        pairs = _read(directory, files, tiles.column_path(folder, shard.member, digit), model.backbone.device)
        each.inducing = [
            InducingKV(_take(pairs, f"k/{block}", shard), _take(pairs, f"v/{block}", shard))
            for block in range(model.backbone.shape.column_blocks)
        ]
        yield
    for node, each in shard.contexts().items():
        yield from _load_chunks(model.of(each), each, node, directory, files, folder)


def _load_chunks(
    model: ModelShards, shard: Shard, node: int, directory: Path, files: dict[str, StoredFile], folder: str
) -> Task[None]:
    shape, geometry = model.backbone.shape, model.geometry
    kv: list[list[KVRun]] = [[] for _ in range(shape.icl_layers)]
    for run in shard.runs:
        full = sum(len(geometry.block_rows(block)) == geometry.block for block in range(run.start, run.stop))
        layers: list[KVRun] = []
        for block in range(run.start, run.stop):
            if block == run.start or block % geometry.blocks_per_chunk == 0:
                path = tiles.chunk_path(folder, shard.member, block // geometry.blocks_per_chunk, node)
                tensors = _read(directory, files, path, model.backbone.device)
                yield
            for layer in range(shape.icl_layers):
                k, v = (_take(tensors, f"{name}/{layer}/{block}", shard) for name in ("k", "v"))
                if k.ndim != 3 or k.shape != v.shape or k.shape[1] != len(geometry.block_rows(block)):
                    raise DamagedModel(f"block {block} of member {shard.member} has K/V of shape {tuple(k.shape)}")
                if block == run.start:
                    empty = [k.new_empty(full, k.shape[0], geometry.block, k.shape[2]) for _ in range(2)]
                    layers.append(KVRun(run.start, empty[0], empty[1], None))
                if len(geometry.block_rows(block)) == geometry.block:
                    layers[layer].k[block - run.start], layers[layer].v[block - run.start] = k, v
                else:
                    layers[layer].tail = (k, v)
        for layer, held in enumerate(layers):
            kv[layer].append(held)
    shard.kv = kv
    shard.layer = shape.icl_layers - 1


def _block(runs: list[KVRun], block: int) -> tuple[Tensor, Tensor] | None:
    for run in runs:
        at = block - run.start
        if 0 <= at < run.k.shape[0]:
            return run.k[at], run.v[at]
        if at == run.k.shape[0] and run.tail is not None:
            return run.tail
    return None


def _read(directory: Path, files: dict[str, StoredFile], path: str, device: torch.device) -> dict[str, Tensor]:
    if path not in files:
        raise DamagedModel(f"the manifest doesn't list {path}")
    return {name: tensor.to(device) for name, tensor in tiles.load(directory, files[path]).items()}


def _take(tensors: dict[str, Tensor], name: str, shard: Shard) -> Tensor:
    if name not in tensors:
        raise DamagedModel(f"a file of member {shard.member} has no {name}")
    return tensors[name]
