"""Memory and its limits: cases C01, C03, C08 and C09 (C04 and C06 are in test_tiers)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import psutil
import pyarrow as pa
import pytest
from tabgrpc_workers import query
from tabgrpc_workers.device import Device
from tabgrpc_workers.models import Models
from tabgrpc_workers.service import ShardService
from tables import numbers, options, queries, table, wait_until

from tabgrpc import LocalPool, machine
from tabgrpc.client import Client
from tabgrpc.internal.v1.shards_pb2_grpc import add_ShardServiceServicer_to_server
from tabgrpc.scheduler.scheduler import Scheduler
from tabgrpc.scheduler.server import Server
from tabgrpc.scheduler.workers import WorkerPool
from tabgrpc.wire.channels import SERVER_OPTIONS, bind
from tabgrpc.wire.errors import OutOfMemory

MIB = 1 << 20


@pytest.mark.parametrize("version", [1, 2])
def test_C01_the_control_groups_limit_counts(tmp_path: Path, version: int) -> None:
    """450 GB of the host, 102 GB of the container: the smaller one, less what is used of it, and of every group above."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 471859200 kB\nMemFree: 1 kB\nMemAvailable: 461373440 kB\n")
    root = groups if version == 2 else groups / "memory"
    inner = root / "outer" / "inner"
    inner.mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/outer/inner\n" if version == 2 else "4:memory:/outer/inner\n")
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, text in zip(names, (str(102 << 30), str(2 << 30)), strict=True):
        (root / "outer" / name).write_text(text)
    for name, text in zip(names, ("max" if version == 2 else str(2**63 - 4096), str(1 << 30)), strict=True):
        (inner / name).write_text(text)
    found = machine.memory(proc, groups)
    assert found is not None and found.limited
    assert (found.total, found.free) == (102 << 30, 100 << 30)


def test_C01_a_worker_killed_by_the_system_is_said_to_be(pair: LocalPool) -> None:
    """Not a clean exit: the reason names the signal, and that memory is the likely cause."""
    scheduler_pool = pair._server.scheduler.pool
    slot = scheduler_pool._slots[1]
    assert slot.process is not None
    process = slot.process
    os.kill(process.process.pid, signal.SIGKILL)
    wait_until(lambda: process.process.poll() is not None, 30, "the worker's end")
    assert process.reason() == "killed (signal 9 SIGKILL, likely out of memory)"
    assert process.process.returncode == -9
    wait_until(lambda: len(scheduler_pool.serving()) == 2, 90, "the replacement")


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[tuple[Client, ShardService]]:
    """A pool over one worker's service in this process, over real sockets, so that a fault can be put into it."""
    models = Models(1 << 30)
    service = ShardService(models, Device(), models.machine.policy())
    server = grpc.server(ThreadPoolExecutor(8), options=SERVER_OPTIONS)
    add_ShardServiceServicer_to_server(service, server)
    address = bind(server, f"unix:{tmp_path}/w")
    server.start()
    pool = Server(Scheduler(WorkerPool(0, [address]), tmp_path / "store"), f"unix:{tmp_path}/p")
    (tmp_path / "store").mkdir()
    with Client(pool.address) as client:
        yield client, service
    pool.stop(1)
    server.stop(0).wait(10)
    service.device.close()


def test_C03_out_of_memory_at_one_tile_ends_at_once(attached: tuple[Client, ShardService], monkeypatch: pytest.MonkeyPatch) -> None:
    """Halving queries can't help when the context is too big: said within two seconds, with what to do, and not retried for ever."""
    client, _ = attached
    client.fit("m", client.upload(table(100, "classification")), options("classification", n_estimators=1))
    expected = numbers(client.predict("m", queries(300)))
    tile = query.tile
    calls: list[int] = []

    def full(*_: object) -> Iterator[None]:
        calls.append(1)
        raise OutOfMemory("tried to allocate 2,000 bytes, 1,000 are free")
        yield

    monkeypatch.setattr(query, "tile", full)
    for rows in (1, 300):
        began = time.monotonic()
        with pytest.raises(OutOfMemory, match=r"the context of models/m/versions/1 does not fit .*2,000 bytes, 1,000.*add workers"):
            client.predict("m", queries(rows))
        assert time.monotonic() - began < 2
    assert len(calls) < 60
    monkeypatch.setattr(query, "tile", tile)
    assert np.array_equal(numbers(client.predict("m", queries(300))), expected), "it is over when there is memory again"


class Peak:
    """The most memory that each process of a pool takes while it lasts, beyond what it took before."""

    def __init__(self, pool: LocalPool) -> None:
        self.processes = [psutil.Process(), *(psutil.Process(worker.pid) for worker in pool._server.scheduler.pool.serving())]
        self.before = [process.memory_info().rss for process in self.processes]
        self.most = list(self.before)
        self._done = threading.Event()

    def look(self) -> None:
        self.most = [max(most, process.memory_info().rss) for most, process in zip(self.most, self.processes, strict=True)]

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.look()

    def __enter__(self) -> Peak:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def grown(self) -> list[int]:
        return [most - before for most, before in zip(self.most, self.before, strict=True)]


def fitted(pool: LocalPool, name: str) -> None:
    """Forty rows of four features, one member: cheap to ask."""
    x = np.random.default_rng(0).normal(size=(40, 4))
    columns = {f"f{i}": x[:, i] for i in range(4)}
    sent = pool.client.upload(pa.table(columns | {"y": (x[:, 0] > 0).astype(int)}))
    pool.client.fit(name, sent, options("classification", n_estimators=1))


def parts(rows: int, each: int = 8192) -> Iterator[pa.Table]:
    rng = np.random.default_rng(1)
    for start in range(0, rows, each):
        x = rng.normal(size=(min(each, rows - start), 4))
        yield pa.table({f"f{i}": x[:, i] for i in range(4)})


@pytest.mark.parametrize("rows", [6_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])])
def test_C08_any_number_of_query_rows_in_bounded_memory(pair: LocalPool, rows: int) -> None:
    """Client, scheduler and workers hold what is under way, with no option set."""
    fitted(pair, "asked")
    for _ in pair.client.stream_predict("asked", parts(2_000)):
        pass
    answered = 0
    with Peak(pair) as peak:
        for answer in pair.client.stream_predict("asked", parts(rows)):
            assert answer.column_names == ["prediction", "proba_0", "proba_1"]
            answered += answer.num_rows
    assert answered == rows
    assert max(peak.grown) < 128 * MIB, [f"{grown / MIB:.0f} MiB" for grown in peak.grown]
    assert max(peak.most[1:]) < 1024 * MIB


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])])
def test_C09_memory_is_flat_over_many_requests(pair: LocalPool, count: int) -> None:
    """Requests of a megabyte each (a wide column that the model doesn't use): nothing of them is kept."""
    fitted(pair, "often")
    rows = next(parts(4))
    large = rows.append_column("note", pa.array(["x" * (MIB // 4)] * 4))
    expected = numbers(pair.client.predict("often", rows))
    with ThreadPoolExecutor(4) as threads:

        def ask(times: int) -> None:
            for answer in threads.map(lambda _: pair.client.predict("often", large), range(times)):
                assert np.array_equal(numbers(answer), expected)

        ask(max(50, count // 20))
        peak = Peak(pair)
        ask(count)
        peak.look()
    assert max(peak.grown) < 50e6, [f"{grown / MIB:.0f} MiB" for grown in peak.grown]
