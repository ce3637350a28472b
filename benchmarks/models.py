"""What keeping a model costs: saved and loaded against a plain copy of the same bytes with the same hash, and asked while it is away.

save: K/V in memory to synced tile files. load: files that aren't in the page cache to K/V in memory, digests checked. copy: the same files,
read, hashed, written and synced, one after the other; cold like the load, or warm like the save, whose bytes are in memory. away: one query
tile through a model whose K/V are in files (CPU) or in pinned host memory (CUDA), against the time to move its bytes alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tabgrpc_workers import query, storage
from tabgrpc_workers.device import finished
from tabgrpc_workers.kernels import KVRun
from tabgrpc_workers.machines import machine
from tabgrpc_workers.movers import mover
from tabgrpc_workers.residency import Residency
from tabgrpc_workers.shard import ModelShards, Shard

from tabgrpc.backbones.protocol import InducingKV
from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import Run
from tabgrpc.store.files import StoredFile, sync_folders

LIMITS = {"save": 1.3, "load": 1.3, "away": 1.5}
FEATURES = 20
_PIECE_BYTES = 4 << 20


def run(runs: int, megabytes: int, device: str = "cpu") -> None:
    """Prints medians with spread, and ratios against the limits."""
    with torch.inference_mode(), tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        own = machine(device)
        own.enter()
        model = filled(megabytes << 20, device)
        took: dict[str, list[float]] = {name: [] for name in ("save", "warm copy", "load", "cold copy", "move", "away")}
        directory = Path(folder)
        files = saved(model, directory, "v0-files")
        for at in range(runs):
            took["save"].append(timed(saved, model, directory, f"v{at}-a"))
            shutil.rmtree(directory / f"v{at}-a")
            took["warm copy"].append(timed(copied, directory, files))
            for name, function in (("load", loaded), ("cold copy", copied)):
                for file in files:
                    forget(directory / file.path)
                took[name].append(timed(function, *((model,) if name == "load" else ()), directory, files))
        size = sum(file.size for file in files)
        print(f"models: {size / 2**20:.0f} MiB in {len(files)} files, {model.geometry.rows:,} rows, mini, {device}; {runs} runs each")
        for ours, theirs in (("save", "warm copy"), ("load", "cold copy")):
            report(ours, took[ours], theirs, took[theirs])
        away(model, directory, took, runs, device)
        where = "pinned host memory" if device != "cpu" else "files"
        report("away", took["away"], "move", took["move"], judged=device != "cpu")
        print(f"  (one query tile with K/V in {where}; move is the time to bring all of them, {size / 2**20:.0f} MiB)", flush=True)


def filled(size: int, device: str) -> ModelShards:
    """A member of the packaged classifier with about so many bytes of random K/V."""
    own, checkpoint = machine(device), load_checkpoint("mini", "classification")
    recipe = own.recipe(checkpoint.config, checkpoint.state_dict(), torch.float32)
    backbone, shape = recipe.backbone, recipe.backbone.shape
    rows = max(1, size // shape.context_bytes(1, 4))
    geometry = Geometry.of(rows, FEATURES, own.kind)
    heads = int(checkpoint.config["icl_nhead"])
    width = shape.icl // heads
    full = rows // geometry.block
    rest = rows - full * geometry.block

    def random(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=backbone.device)

    def one() -> KVRun:
        tail = (random(heads, rest, width), random(heads, rest, width)) if rest else None
        return KVRun(0, random(full, heads, geometry.block, width), random(full, heads, geometry.block, width), tail)

    shard = Shard(0, (Run(0, geometry.blocks),), layer=shape.icl_layers - 1)
    shard.kv = [[one()] for _ in range(shape.icl_layers)]
    points = int(checkpoint.config["col_nhead"])
    sizes = (FEATURES, points, shape.inducing, shape.embed // points)
    shard.inducing = [InducingKV(random(*sizes), random(*sizes)) for _ in range(shape.column_blocks)]
    return ModelShards("models/m/versions/1@v1-a", 1, backbone, geometry, FEATURES, True, {0: shard}, recipe)


def saved(model: ModelShards, directory: Path, folder: str) -> list[StoredFile]:
    files = finished(storage.save(model, model.shards[0], directory, folder, column=True))
    sync_folders(directory, files)
    return files


def loaded(model: ModelShards, directory: Path, files: list[StoredFile]) -> None:
    shard = Shard(0, model.shards[0].runs)
    finished(storage.load(model, shard, directory, {file.path: file for file in files}, files[0].path.split("/")[0]))


def copied(directory: Path, files: list[StoredFile]) -> None:
    """A plain copy: read, hashed, written, synced."""
    target = directory / "copy"
    target.mkdir()
    for at, file in enumerate(files):
        digest = hashlib.sha256()
        with (directory / file.path).open("rb", buffering=0) as source, (target / str(at)).open("wb", buffering=0) as copy:
            while data := source.read(_PIECE_BYTES):
                digest.update(data)
                copy.write(data)
            os.fsync(copy.fileno())
        if digest.hexdigest() != file.sha256:
            raise RuntimeError(f"{file.path} differs")
    shutil.rmtree(target)


def away(model: ModelShards, directory: Path, took: dict[str, list[float]], runs: int, device: str) -> None:
    """Moves the model's K/V away and asks it."""
    residency = Residency(1 << 62, directory, 1 << 62, mover(str(machine(device).device)))
    model.stream = residency.stream
    shard, layers = model.shards[0], range(model.backbone.shape.icl_layers)
    finished(residency.demote(model))
    x = torch.randn(model.geometry.tile, FEATURES)

    def moved() -> None:
        for _ in residency.stream(shard, layers):
            pass

    def asked() -> None:
        finished(query.tile(model, shard, x, Head())).cpu()

    for _ in range(runs):
        took["move"].append(timed(moved))
        took["away"].append(timed(asked))


def forget(path: Path) -> None:
    """Takes a file out of the page cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def timed(function: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def report(ours: str, mine: list[float], theirs: str, peer: list[float], judged: bool = True) -> None:
    ratio, limit = statistics.median(mine) / statistics.median(peer), LIMITS[ours]
    verdict = f"(limit {limit}) {'ok' if ratio <= limit else 'MISSED'}" if judged else "(computing it is most of it: no limit on a CPU)"
    spread = [f"{statistics.median(each):7.3f} s ({min(each):.3f} to {max(each):.3f})" for each in (mine, peer)]
    print(f"  {ours:5} {spread[0]}  {theirs:9} {spread[1]}  ratio {ratio:.3f} {verdict}")
