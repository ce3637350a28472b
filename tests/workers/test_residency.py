"""K/V in host memory, in files, on the way: the same bits, within the budget, and in the right order out and in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from inprocess import Pool, backbone, identical, table
from tabgrpc_workers import away as away_module
from tabgrpc_workers import query, storage
from tabgrpc_workers.away import InHost
from tabgrpc_workers.device import FIT, LOAD, PREDICT, Device
from tabgrpc_workers.residency import Residency
from tabgrpc_workers.shard import Home, ModelShards, Shard

from tabgrpc.core.head import Head
from tabgrpc.store.files import DamagedModel
from tabgrpc.wire.errors import OutOfMemory

ROWS, FEATURES = 1_000, 4


class HostTier:
    """Three tiers where there are two kinds of memory only: host memory stands for a GPU's, and its copy for host memory."""

    tiers: tuple[str, ...] = ("device", "host", "disk")

    def to_device(self, run: object) -> object:
        return run

    def arrived(self, run: object) -> None:
        pass

    def to_host(self, run: object) -> object:
        return run


@pytest.fixture(scope="module")
def fitted() -> Iterator[tuple[Pool, torch.Tensor]]:
    """One owner of everything, fitted; rows to ask."""
    x, y, asked = table("classifier", ROWS, FEATURES)
    with Pool(backbone("classifier"), x, y).fit() as pool:
        yield pool, asked


def named(pool: Pool, name: str) -> ModelShards:
    """The fitted model once more, under another name, with its K/V in memory of its own."""
    old = pool.models[0]
    shard = old.shards[0]
    copy = Shard(0, shard.runs, inducing=shard.inducing, layer=shard.layer)
    copy.kv = [[type(run)(run.start, run.k.clone(), run.v.clone(), run.tail) for run in layer] for layer in shard.kv]
    return ModelShards(name, 1, old.backbone, old.geometry, old.features, old.store, {0: copy})


def kv_bytes(model: ModelShards) -> int:
    return sum(run.nbytes for layer in model.shards[0].kv for run in layer)


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


def answer(device: Device, residency: Residency, model: ModelShards, asked: torch.Tensor) -> torch.Tensor:
    model.stream = residency.stream
    return device.run(query.tile(model, model.shards[0], asked, Head()), PREDICT).clone()


@pytest.mark.parametrize("tier", ["disk", "host"])
@pytest.mark.parametrize("piece", [1, 100_000, 1 << 30])
def test_spilled_and_resident_answers_are_equal(
    fitted: tuple[Pool, torch.Tensor], device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str, piece: int
) -> None:
    """Of one block, some blocks, whole runs at a time, short last block included; moved up again, every tensor is what it was."""
    monkeypatch.setattr(away_module, "PIECE_BYTES", piece)
    pool, asked = fitted
    model = named(pool, "m")
    residency = Residency(1 << 30, tmp_path, 1 << 30)
    if tier == "host":
        residency.mover = HostTier()  # type: ignore[assignment]
    residency.put(model)
    expected, held, size = answer(device, residency, model, asked), [r for layer in model.shards[0].kv for r in layer], kv_bytes(model)
    device.run(residency.demote(model), LOAD)
    assert model.shards[0].kv == [] and model.shards[0].away is not None and model.shards[0].away.tier == tier
    assert isinstance(model.shards[0].away, InHost) == (tier == "host")
    assert residency.usage().tiers[tier] == size
    assert residency.used == model.nbytes < size, "what stays is the inducing K/V"
    assert identical([answer(device, residency, model, asked)], [expected])
    assert residency.meter.streamed_bytes == size
    assert residency.meter.stalled_seconds > 0
    device.run(residency.promote(model), LOAD)
    back = [r for layer in model.shards[0].kv for r in layer]
    assert identical([t for r in back for t in (r.k, r.v, *r.tail)], [t for r in held for t in (r.k, r.v, *r.tail)])  # type: ignore[misc]
    assert list(tmp_path.iterdir()) == [], "spilled files are gone with their last reader"


def test_shared_rows_are_streamed_too(fitted: tuple[Pool, torch.Tensor], device: Device, tmp_path: Path) -> None:
    """An owner of two runs of blocks: its subtrees are those of one whose K/V are in memory."""
    pool, _ = fitted
    model, residency = named(pool, "m"), Residency(1 << 30, tmp_path)
    q = torch.randn(model.shards[0].kv[0][0].k.shape[1], 64, model.shards[0].kv[0][0].k.shape[3])
    resident = query.attention(model, model.shards[0], 1, q)
    device.run(residency.demote(model), LOAD)
    model.stream = residency.stream
    streamed = device.run(query.streamed_attention(model, model.shards[0], 1, q), PREDICT)
    assert [(n.level, n.index) for n in streamed] == [(n.level, n.index) for n in resident]
    parts = ("acc", "sum", "peak")
    assert identical([getattr(n.partial, p) for n in streamed for p in parts], [getattr(n.partial, p) for n in resident for p in parts])


def test_moved_away_in_the_middle_of_a_tile(fitted: tuple[Pool, torch.Tensor], device: Device, tmp_path: Path) -> None:
    """A query that has begun goes on from files at the next layer."""
    pool, asked = fitted
    model, residency = named(pool, "m"), Residency(1 << 30, tmp_path)
    expected = answer(device, residency, model, asked)

    def task() -> Iterator[None]:
        tile = query.tile(model, model.shards[0], asked, Head())
        for at in range(1000):
            if at == 4:
                yield from residency.demote(model)
            try:
                next(tile)
            except StopIteration as end:
                return end.value
            yield
        raise AssertionError("no end")

    assert identical([device.run(task(), PREDICT)], [expected])  # type: ignore[arg-type]
    assert model.shards[0].away is not None


@pytest.mark.parametrize("damage", ["flipped", "short"])
def test_a_file_that_changes_while_it_is_served_is_named(
    fitted: tuple[Pool, torch.Tensor], device: Device, tmp_path: Path, damage: str
) -> None:
    """Not a bus error, not a wrong answer."""
    pool, asked = fitted
    model, residency = named(pool, "m"), Residency(1 << 30, tmp_path)
    files = device.run(storage.save(model, model.shards[0], tmp_path, "v1-a", column=True), FIT)
    model.shards[0].home = Home(tmp_path, "v1-a", {file.path: file for file in files})
    device.run(residency.demote(model), LOAD)
    path = sorted(tmp_path.rglob("chunk-*"))[-1]
    with path.open("r+b") as file:
        if damage == "flipped":
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        else:
            file.truncate(path.stat().st_size - 8)
    with pytest.raises(DamagedModel, match=path.name):
        answer(device, residency, model, asked)


def test_least_recently_used_go_first_and_pinned_never(fitted: tuple[Pool, torch.Tensor], device: Device, tmp_path: Path) -> None:
    pool, _ = fitted
    models = {name: named(pool, name) for name in "abc"}
    each, columns = kv_bytes(models["a"]), models["a"].nbytes - kv_bytes(models["a"])
    residency = Residency(3 * (each + columns), tmp_path)

    def resident() -> str:
        return "".join(name for name, model in models.items() if model.shards[0].kv)

    def touch(name: str) -> None:
        device.run(residency.touch(models[name]), LOAD)

    for model in models.values():
        residency.put(model)
    for name in "bac":
        touch(name)
    device.run(residency.reserve("new", each), LOAD)
    assert resident() == "ac", "b was used longest ago"
    device.run(residency.pin(models["a"], True), LOAD)
    with pytest.raises(OutOfMemory, match=rf"{3 * each:,} bytes don't fit.* {2 * each + 3 * columns:,} are pinned"):
        device.run(residency.reserve("other", 3 * each), LOAD)
    assert resident() == "ac", "a refusal moves nothing"
    device.run(residency.pin(models["a"], False), LOAD)
    touch("b")  # no room, and everything else was used since its last use: it stays away
    assert resident() == "ac"
    touch("b")  # used twice in a row: in the place of the one that wasn't used since
    assert resident() == "bc"
    residency.settle("new")
    touch("a")
    assert resident() == "abc", "there is room again"
    residency.drop("a")
    assert residency.used == 2 * (each + columns)


def test_what_is_set_aside_counts_until_it_is_used(fitted: tuple[Pool, torch.Tensor], device: Device, tmp_path: Path) -> None:
    """Two fits that are let in one after the other must not count on the same bytes. Adds up all shards of a model."""
    residency = Residency(1_000, tmp_path)
    device.run(residency.reserve("first", 600), LOAD)
    with pytest.raises(OutOfMemory, match=r"shards of 500 bytes don't fit: 400 of 1,000"):
        device.run(residency.reserve("second", 500), LOAD)
    device.run(residency.reserve("first", 700), LOAD)
    assert residency.used == 700
    residency.settle("first")
    assert residency.used == 0
    device.run(residency.reserve("second", 1_000), LOAD)
    residency.drop("second")
    assert residency.used == 0


def test_an_epoch_that_is_being_loaded_counts_beside_the_one_that_serves(
    fitted: tuple[Pool, torch.Tensor], device: Device, tmp_path: Path
) -> None:
    """Both are in memory until the new one takes over. Catches a repair that is let in on the bytes of the shards it keeps."""
    pool, _ = fitted
    model = named(pool, "m")
    held = model.nbytes
    residency = Residency(2 * held, tmp_path)
    residency.put(model)
    assert residency.held("m") == held
    with pytest.raises(OutOfMemory, match=rf"shards of {held + held + 1:,} bytes don't fit"):
        device.run(residency.reserve("m", residency.held("m") + held + 1), LOAD)
    device.run(residency.reserve("m", residency.held("m") + held), LOAD)
    assert residency.used == 2 * held
    device.run(residency.pin(model, False), LOAD)
    with pytest.raises(OutOfMemory):
        device.run(residency.reserve("other", held + 1), LOAD)
    residency.put(model)  # the new epoch is there
    assert residency.used == held
    device.run(residency.reserve("other", held), LOAD)
