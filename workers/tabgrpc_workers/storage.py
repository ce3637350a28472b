"""A worker's shards to tile files and back. Each owner writes and reads its own chunks, straight to and from storage."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from tabgrpc.backbones.protocol import InducingKV
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.ownership import Run
from tabgrpc.store import paths, tiles
from tabgrpc.store.files import DamagedModel, StoredFile
from tabgrpc.store.layout import Place
from tabgrpc_workers import fit
from tabgrpc_workers.arrays import inducing_tensors
from tabgrpc_workers.away import OnDisk, Spot, checksum, open_file
from tabgrpc_workers.device import Device, Task
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.shard import Home, ModelShards, RunData, Shard, run_rows

Files = Mapping[str, StoredFile]


def save(model: ModelShards, shard: Shard, directory: Path, folder: str, column: bool, vectors: bool = False) -> Task[list[StoredFile]]:
    """Writes a member's owned chunks into ``directory/folder``, of all its nodes, and its inducing K/V, of all its digits, if ``column``.

    vectors: the rows' vectors instead of their K/V; the model must have kept them.
    """
    files = []
    for digit, each in enumerate(shard.digits or [shard]):
        if column:
            files.append(save_column(each, directory, paths.column_path(folder, shard.member, digit)))
            yield
    for node, each in shard.contexts().items():
        files += yield from _save_chunks(model.of(each), each, node, directory, folder, vectors)
    return files


def _save_chunks(
    model: ModelShards, shard: Shard, node: int, directory: Path, folder: str, vectors: bool
) -> Task[list[StoredFile]]:
    files = []
    for chunk in range(model.geometry.chunks):
        path = paths.rows_path(folder, shard.member, chunk) if vectors else paths.chunk_path(folder, shard.member, chunk, node)
        blocks = model.geometry.chunk_blocks(chunk)
        tensors = vectors_of(model.geometry, shard, blocks, shard.vectors) if vectors else _kv(shard, blocks)
        if tensors:
            files.append(tiles.save(directory, path, tensors))
            yield
    return files


def save_column(shard: Shard, directory: Path, path: str) -> StoredFile:
    return tiles.save(directory, path, inducing_tensors(shard.inducing))


def _kv(shard: Shard, blocks: range) -> dict[str, Tensor]:
    """Owned K/V of a chunk, layer after layer: a layer's K of all blocks, then its V."""
    tensors: dict[str, Tensor] = {}
    for layer, runs in enumerate(shard.kv):
        found = {block: pair for block in blocks if (pair := _block(runs, block)) is not None}
        tensors |= {f"k/{layer}/{block}": k for block, (k, _) in found.items()}
        tensors |= {f"v/{layer}/{block}": v for block, (_, v) in found.items()}
    return tensors


def _block(runs: list[KVRun], block: int) -> tuple[Tensor, Tensor] | None:
    for run in runs:
        at = block - run.start
        if 0 <= at < run.k.shape[0]:
            return run.k[at], run.v[at]
        if at == run.k.shape[0] and run.tail is not None:
            return run.tail
    return None


def vectors_of(geometry: Geometry, shard: Shard, blocks: range, vectors: Mapping[int, Tensor]) -> dict[str, Tensor]:
    """Owned rows of a chunk; vectors[run.start] (rows, D)."""
    tensors = {}
    for run in shard.runs:
        first = run.start * geometry.block
        for block in blocks:
            if run.start <= block < run.stop:
                rows = geometry.block_rows(block)
                tensors[f"hidden/{block}"] = vectors[run.start][rows.start - first : rows.stop - first]
    return tensors


# --- reading ---


def load(model: ModelShards, shard: Shard, directory: Path, files: Files, folder: str) -> Task[None]:
    """Fills an empty shard, with its nodes and digits, from ``directory/folder``. Raises DamagedModel."""
    blocks = model.backbone.shape.column_blocks
    for digit, each in enumerate(shard.digits or [shard]):
        yield from load_column(model, each, directory, files, paths.column_path(folder, shard.member, digit), blocks)
    for node, each in shard.contexts().items():
        yield from _load_chunks(model.of(each), each, node, directory, files, folder)
    if not shard.tree:
        shard.home = Home(directory, folder, files)


def _load_chunks(model: ModelShards, shard: Shard, node: int, directory: Path, files: Files, folder: str) -> Task[None]:
    shape, geometry = model.backbone.shape, model.geometry
    kv: list[list[KVRun]] = [[] for _ in range(shape.icl_layers)]
    for run in shard.runs:
        layers: list[KVRun] = []
        for blocks in _chunks(geometry, run):
            path = paths.chunk_path(folder, shard.member, blocks.start // geometry.blocks_per_chunk, node)
            tensors = _read(directory, files, path)
            yield
            for layer in range(shape.icl_layers):
                for block in blocks:
                    pair = [_take(tensors, f"{name}/{layer}/{block}", path) for name in ("k", "v")]
                    _check_kv(model, pair, block, path)
                    if block == run.start:
                        layers.append(_empty_run(model, run, pair[0]))
                    _place(layers[layer], pair, block, geometry)
            del tensors
        for layer, held in enumerate(layers):
            kv[layer].append(held)
    shard.kv = kv
    shard.layer = shape.icl_layers - 1


def load_vectors(model: ModelShards, shard: Shard, device: Device, directory: Path, files: Files, folder: str) -> Task[None]:
    """Fills an empty shard with its inducing K/V and its rows' vectors, ready for ICL layer 0. Raises DamagedModel."""
    blocks = model.backbone.shape.column_blocks
    yield from load_column(model, shard, directory, files, paths.column_path(folder, shard.member), blocks)
    yield from load_rows(model, shard, directory, files, lambda chunk: paths.rows_path(folder, shard.member, chunk))
    yield from fit.context_kv(model, shard, device, 0)


def load_column(model: ModelShards, shard: Shard, directory: Path, files: Files, path: str, blocks: int) -> Task[None]:
    shape, tensors = model.backbone.shape, _read(directory, files, path)
    yield
    shard.inducing = []
    for block in range(blocks):
        k, v = (_take(tensors, f"{name}/{block}", path) for name in ("k", "v"))
        width = k.shape[1] * k.shape[3] if k.ndim == 4 else 0
        if k.shape != v.shape or (k.shape[0], k.shape[2], width) != (model.groups, shape.inducing, shape.embed) or k.dtype != v.dtype:
            raise DamagedModel(f"{path}: block {block} has inducing K/V of shape {tuple(k.shape)}")
        _check_dtype(k, model.backbone.dtype, path)
        shard.inducing.append(InducingKV(*(tensor.to(model.backbone.device, copy=True) for tensor in (k, v))))


def load_rows(model: ModelShards, shard: Shard, directory: Path, files: Files, path_of: Callable[[int], str]) -> Task[None]:
    """Row vectors of every run, from one file a chunk; the rows' features and targets are not known, or stay as they are."""
    geometry, backbone, width = model.geometry, model.backbone, model.backbone.shape.icl
    known = {data.run.start: data for data in shard.data}
    data = []
    for run in shard.runs:
        hidden = torch.empty(len(run_rows(geometry, run)), width, dtype=backbone.hidden_dtype, device=backbone.device)
        for blocks in _chunks(geometry, run):
            path = path_of(blocks.start // geometry.blocks_per_chunk)
            tensors = _read(directory, files, path)
            yield
            for block in blocks:
                rows, part = geometry.block_rows(block), _take(tensors, f"hidden/{block}", path)
                if part.shape != (len(rows), width):
                    raise DamagedModel(f"{path}: block {block} has vectors of shape {tuple(part.shape)}")
                _check_dtype(part, backbone.hidden_dtype, path)
                hidden[rows.start - run.start * geometry.block : rows.stop - run.start * geometry.block] = part
        before = known.get(run.start)
        none = hidden[:0]
        data.append(RunData(run, before.x if before else none, before.y if before else none, hidden))
    shard.data = data


def _chunks(geometry: Geometry, run: Run) -> Iterator[range]:
    """A run's blocks, chunk by chunk."""
    for chunk in range(run.start // geometry.blocks_per_chunk, -(-run.stop // geometry.blocks_per_chunk)):
        blocks = geometry.chunk_blocks(chunk)
        yield range(max(blocks.start, run.start), min(blocks.stop, run.stop))


def _empty_run(model: ModelShards, run: Run, like: Tensor) -> KVRun:
    geometry = model.geometry
    full = sum(len(geometry.block_rows(block)) == geometry.block for block in range(run.start, run.stop))
    sizes, device = (full, like.shape[0], geometry.block, like.shape[2]), model.backbone.device
    k, v = (torch.empty(sizes, dtype=like.dtype, device=device) for _ in range(2))
    return KVRun(run.start, k, v, None)


def _place(run: KVRun, pair: list[Tensor], block: int, geometry: Geometry) -> None:
    if len(geometry.block_rows(block)) == geometry.block:
        run.k[block - run.start], run.v[block - run.start] = pair
    else:
        run.tail = (pair[0].to(run.k.device, copy=True), pair[1].to(run.k.device, copy=True))


def _check_kv(model: ModelShards, pair: list[Tensor], block: int, path: str) -> None:
    k, v = pair
    rows = len(model.geometry.block_rows(block))
    if k.ndim != 3 or k.shape != v.shape or k.dtype != v.dtype or k.shape[1] != rows or k.shape[0] * k.shape[2] != model.backbone.shape.icl:
        raise DamagedModel(f"{path}: block {block} of member's K/V has shape {tuple(k.shape)}, not that of {rows} rows")
    _check_dtype(k, model.backbone.dtype, path)


def _check_dtype(tensor: Tensor, wanted: torch.dtype, path: str) -> None:
    if tensor.dtype != wanted:
        raise DamagedModel(f"{path} holds {tensor.dtype}, the model's are {wanted}")


def _read(directory: Path, files: Files, path: str) -> dict[str, Tensor]:
    if path not in files:
        raise DamagedModel(f"the manifest doesn't list {path}")
    return tiles.load(directory, files[path])


def _take(tensors: dict[str, Tensor], name: str, path: str) -> Tensor:
    if name not in tensors:
        raise DamagedModel(f"{path} has no {name}")
    return tensors[name]


# --- K/V that stay in files ---


def load_away(model: ModelShards, shard: Shard, directory: Path, files: Files, folder: str) -> Task[None]:
    """As ``load``, but K/V stay in the files, which are read once to be checked. Raises DamagedModel."""
    shape = model.backbone.shape
    yield from load_column(model, shard, directory, files, paths.column_path(folder, shard.member), shape.column_blocks)
    spots: dict[str, Spot] = {}
    handles: list[int] = []
    try:
        for chunk in _owned_chunks(model.geometry, shard):
            path = paths.chunk_path(folder, shard.member, chunk)
            if path not in files:
                raise DamagedModel(f"the manifest doesn't list {path}")
            found = tiles.scan(directory, files[path])
            yield
            handles.append(open_file(files[path].within(directory)))
            _add_spots(model, model.geometry.chunk_blocks(chunk), found, handles[-1], path, spots)
    except BaseException:
        for handle in handles:
            os.close(handle)
        raise
    shard.away = OnDisk(model.geometry, shard.runs, shape.icl_layers, model.backbone.dtype, spots, handles)


def to_disk(model: ModelShards, shard: Shard, spill: Path) -> Task[OnDisk]:
    """A shard's K/V as they lie in its files, or in new ones, which are gone when nobody reads them any more. Raises DamagedModel."""
    home = shard.home
    if home is None:
        folder = f"spill-{uuid.uuid4().hex[:8]}"
        files = yield from save(model, shard, spill, folder, column=False)
        home = Home(spill, folder, {file.path: file for file in files})
    spots: dict[str, Spot] = {}
    handles: list[int] = []
    try:
        for chunk in _owned_chunks(model.geometry, shard):
            path = paths.chunk_path(home.folder, shard.member, chunk)
            blocks = model.geometry.chunk_blocks(chunk)
            sums = {name: checksum(tensor) for name, tensor in _kv(shard, blocks).items()}
            handles.append(open_file(home.files[path].within(home.directory)))
            found = {name: (place, sums.get(name, -1)) for name, place in tiles.layout(handles[-1], home.files[path], path).items()}
            _add_spots(model, blocks, found, handles[-1], path, spots)
            yield
    except BaseException:
        for handle in handles:
            os.close(handle)
        raise
    finally:
        if shard.home is None:
            shutil.rmtree(spill / home.folder, ignore_errors=True)  # open files stay readable
    return OnDisk(model.geometry, shard.runs, len(shard.kv), model.backbone.dtype, spots, handles)


def _owned_chunks(geometry: Geometry, shard: Shard) -> list[int]:
    return [blocks.start // geometry.blocks_per_chunk for run in shard.runs for blocks in _chunks(geometry, run)]


def _add_spots(
    model: ModelShards, blocks: range, found: Mapping[str, tuple[Place, int]], handle: int, path: str, spots: dict[str, Spot]
) -> None:
    """Where a chunk's tensors are in a file; they must be those of the table."""
    width = model.backbone.shape.icl
    for layer in range(model.backbone.shape.icl_layers):
        for block in blocks:
            rows = len(model.geometry.block_rows(block))
            for name in (f"k/{layer}/{block}", f"v/{layer}/{block}"):
                if name not in found:
                    raise DamagedModel(f"{path} has no {name}")
                place, sum_ = found[name]
                shape = place.shape
                if len(shape) != 3 or shape[1] != rows or shape[0] * shape[2] != width or tiles.dtype_of(place) != model.backbone.dtype:
                    raise DamagedModel(f"{path}: {name} is {place.dtype} {shape}, not that of {rows} rows")
                spots[name] = Spot(handle, path, place, sum_)


def joined(geometry: Geometry, runs: Sequence[Run], held: list[KVRun], piece: KVRun) -> list[KVRun]:
    """Runs put together from their pieces, which come in order; ``held`` is what there is so far."""
    at = next(at for at, run in enumerate(runs) if run.start <= piece.start < run.stop)
    run = runs[at]
    if len(held) == at:
        full = sum(len(geometry.block_rows(block)) == geometry.block for block in range(run.start, run.stop))
        k, v = (piece.k.new_empty(full, *piece.k.shape[1:]) for _ in range(2))
        held.append(KVRun(run.start, k, v, None))
    first, count = piece.start - run.start, piece.k.shape[0]
    held[at].k[first : first + count], held[at].v[first : first + count] = piece.k, piece.v
    if piece.tail is not None:
        held[at].tail = (piece.tail[0].clone(), piece.tail[1].clone())
    return held
