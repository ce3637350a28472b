"""Members on one device side by side: they overlap, they keep their bits, and small predicts still get in between."""

from __future__ import annotations

import threading
from functools import partial as bind

import pytest
import torch
from inprocess import backbone, identical, no_progress, table
from tabgrpc_workers import fit, query
from tabgrpc_workers.device import FIT, PREDICT, Device, Task
from tabgrpc_workers.models import Models
from tabgrpc_workers.overlap import Quanta, together
from tabgrpc_workers.policy import cpu_policy
from tabgrpc_workers.service import ShardService
from tabgrpc_workers.shard import ModelShards, Shard

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import Run


@pytest.fixture
def device():
    device = Device(threads=3)
    yield device
    device.close()


def model_of(members: int, rows: int = 300) -> ModelShards:
    """A model whose members, of the same rows seen in other orders of features, are ready to be fitted."""
    net = backbone("classifier")
    x, y, _ = table("classifier", rows, 5)
    geometry = Geometry.of(rows, 5)
    shards = {member: Shard(member, (Run(0, geometry.blocks),)) for member in range(members)}
    model = ModelShards("models/m/versions/1", 1, net, geometry, 5, True, shards)
    for member, shard in shards.items():
        fit.open_shard(model, shard, {0: x.roll(member, 1).contiguous()}, {0: y})
    return model


def fitted(device: Device, at_once: int) -> ModelShards:
    model = model_of(4)
    starts = [bind(fit.member, model, shard, progress=no_progress) for shard in model.shards.values()]
    device.run(together(starts, device, at_once), FIT)
    return model


def test_side_by_side_gives_the_same_bits(device):
    """Catches anything that members share, and a thread that computes under another setting."""

    def held(model: ModelShards) -> list[torch.Tensor]:
        runs = [run for shard in model.shards.values() for layer in shard.kv for run in layer]
        return [t for run in runs for t in (run.k, run.v, *(run.tail or ()))]

    models = [fitted(device, at_once) for at_once in (1, 2, 3)]
    assert identical(held(models[0]), held(models[1]))
    assert identical(held(models[0]), held(models[2]))
    queries = table("classifier", 300, 5)[2]
    starts = [bind(lambda shard, _: query.tile(models[0], shard, queries, Head()), shard) for shard in models[0].shards.values()]
    assert identical(*(device.run(together(starts, device, at_once), PREDICT) for at_once in (1, 3)))


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_as_many_at_once_as_memory_allows(device, at_once):
    """With two or more, two tasks meet in the same step; with one they never do. Results come in order, whoever ends first."""
    lock = threading.Lock()
    meeting = threading.Barrier(at_once)
    count, most = 0, 0

    def start(number: int, _: Quanta) -> Task[int]:
        nonlocal count, most
        for step in range(6):
            with lock:
                count += 1
                most = max(most, count)
            if step == 0 and number < at_once:
                meeting.wait(timeout=30)  # none goes on before all of the first ones are in
            with lock:
                count -= 1
            yield
        return number

    assert device.run(together([bind(start, number) for number in range(5)], device, at_once), FIT) == list(range(5))
    assert most == at_once


def test_a_predict_gets_in_between_the_members(device):
    """A large fit doesn't starve a small predict: it waits for one step of the members that run, not for their end."""
    model = model_of(3, rows=700)
    stages: list[str] = []
    begun = threading.Event()

    def progress(stage: str) -> None:
        stages.append(stage)
        begun.set()

    def predict() -> Task[int]:
        yield
        return len(stages)

    total = sum(fit.units(model, shard) for shard in model.shards.values())
    starts = [bind(fit.member, model, shard, progress=progress) for shard in model.shards.values()]
    fitting = threading.Thread(target=lambda: device.run(together(starts, device, 3), FIT))
    fitting.start()
    assert begun.wait(60)
    seen = []
    for _ in range(3):
        before = len(stages)
        seen.append(device.run(predict(), PREDICT))
        assert seen[-1] - before <= 2 * 3, "at most the steps that ran when it came, one for each member, and those it came too late for"
    fitting.join(120)
    assert seen[-1] < total <= len(stages)


def test_an_error_ends_the_others_too(device):
    """Nothing goes on in the background of a fit that failed."""
    ended = threading.Event()

    def endless(_: Quanta) -> Task[None]:
        try:
            while True:
                yield
        finally:
            ended.set()

    def broken(_: Quanta) -> Task[None]:
        yield
        raise KeyError("broken")

    with pytest.raises(KeyError):
        device.run(together([endless, broken], device, 2), FIT)
    assert ended.wait(10)


def test_members_follow_one_another_where_memory_is_short(device):
    """The count follows the free bytes, and is never less than one."""
    model = model_of(2)
    shards = list(model.shards.values())
    counts = [ShardService(Models(budget), device, cpu_policy())._at_once(model, shards) for budget in (0, 20 << 20, 1 << 40)]
    assert counts[0] == 1
    assert 1 < counts[1] < counts[2]
