"""Shards on disk: the same bits for whoever loads them, and no file that isn't what the manifest says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from inprocess import Pool, backbone, identical, table
from tabgrpc_workers import storage
from tabgrpc_workers.device import FIT
from tabgrpc_workers.shard import ModelShards, Shard

from tabgrpc.core.ownership import by_rows
from tabgrpc.store.files import DamagedModel, StoredFile

ROWS, FEATURES = 1_000, 5


def saved(pool: Pool, directory: Path) -> list[StoredFile]:
    files: list[StoredFile] = []
    for part in pool.everywhere(lambda at, model, shard, _: storage.save(model, shard, directory, "v1-a", column=at == 0)):
        files += part
    return files


def loaded(pool: Pool, directory: Path, files: list[StoredFile]) -> Pool:
    """An empty pool of the same table filled from files, without its rows."""
    by_path = {file.path: file for file in files}
    for model in pool.models:
        old = model.shards[0]
        model.shards[0] = Shard(0, old.runs)
    pool.everywhere(lambda _, model, shard, device: storage.load(model, shard, directory, by_path, "v1-a"))
    return pool


@pytest.mark.parametrize("writers", [1, 2])
def test_saved_by_some_loaded_by_others(writers: int, tmp_path: Path) -> None:
    """Same files whoever wrote them, same bits on 1, 3 and 4 owners."""
    net = backbone("classifier")
    x, y, asked = table("classifier", ROWS, FEATURES)
    with Pool(net, x, y, writers).fit() as pool:
        files = saved(pool, tmp_path)
        held, answered = pool.held(), pool.predict(asked)
    assert sorted({file.path for file in files}) == sorted(file.path for file in files)
    for owners in (1, 3, 4):
        with Pool(net, x, y, owners) as empty:
            assert identical(loaded(empty, tmp_path, files).held(), held)
            assert identical([empty.predict(asked)], [answered])


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Pool, Path, list[StoredFile]]:
    x, y, _ = table("classifier", 300, FEATURES)
    with Pool(backbone("classifier"), x, y).fit() as pool:
        files = saved(pool, tmp_path)
    return Pool(backbone("classifier"), x, y), tmp_path, files


@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "link", "not listed", "outside"])
def test_every_damage_is_named(stored: tuple[Pool, Path, list[StoredFile]], damage: str) -> None:
    """One byte, one missing end, one missing file, one link: refused, naming the file; nothing outside of the model is read."""
    pool, directory, files = stored
    for at, file in enumerate(files):
        path, data = directory / file.path, (directory / file.path).read_bytes()
        listed = list(files)
        match damage:
            case "flipped":
                path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            case "short":
                path.write_bytes(data[:-1])
            case "gone":
                path.unlink()
            case "link":
                elsewhere = directory / f"elsewhere-{at}"
                elsewhere.write_bytes(data)
                path.unlink()
                os.symlink(elsewhere, path)
            case "not listed":
                listed.pop(at)
            case "outside":
                listed[at] = replace(file, path=f"../{file.path}")
        with pool, pytest.raises(DamagedModel, match=Path(file.path).name if damage != "outside" else "doesn't list"):
            loaded(pool, directory, listed)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        pool = Pool(backbone("classifier"), *table("classifier", 300, FEATURES)[:2])
    pool.__exit__()


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ""])
def test_paths_stay_within_the_model(path: str, tmp_path: Path) -> None:
    with pytest.raises(DamagedModel, match="not a path within"):
        StoredFile(path, 0, "").within(tmp_path)


def test_a_file_of_another_table_is_refused(tmp_path: Path) -> None:
    """Right digests, wrong shapes: blocks of another number of rows."""
    net = backbone("classifier")
    x, y, _ = table("classifier", 300, FEATURES)
    with Pool(net, x, y).fit() as pool:
        files = {file.path: file for file in saved(pool, tmp_path)}
    other = Pool(net, *table("classifier", 290, FEATURES)[:2])
    with other:
        geometry = other.geometry
        runs = by_rows(1, 1, geometry.chunks, ["0"]).runs(0, "0", geometry)
        model = ModelShards("m", 1, net, geometry, FEATURES, True, {0: Shard(0, runs)})
        with pytest.raises(DamagedModel, match="block 2"):
            other.devices[0].run(storage.load(model, model.shards[0], tmp_path, files, "v1-a"), FIT)
