"""Workers die: nobody waits for ever, nothing is left behind, and the bits stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from tables import numbers, options, queries, table, wait_until

from tabgrpc import LocalPool
from tabgrpc.v1 import pool_pb2
from tabgrpc.wire.errors import AlreadyExists, ServiceError

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(2) as pool:
        yield pool


@pytest.mark.parametrize("placement", ["rows", "members"])
def test_D04_a_killed_worker_costs_nobody_an_answer(pool: LocalPool, placement: str) -> None:
    """SIGKILL in the middle of a stream: every request is answered with the exact bits, after the shard was loaded again."""
    asked = queries(64 * 6)
    name = pool.client.upload(table(300, "classification"))
    pool.client.fit(placement, name, options("classification", n_estimators=4, placement=placement))
    expected = numbers(pool.client.predict(placement, asked))
    version = f"models/{placement}/versions/1"

    def epoch() -> int:
        return {each.model_version: each.epoch for each in pool.client.pool().ownership}[version]

    assert epoch() == 1
    found: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: found.append(numbers(pool.client.predict(placement, asked))))
    thread.start()
    victim = pool.client.pool().workers[0].pid
    os.kill(victim, signal.SIGKILL)
    thread.join(120)
    assert not thread.is_alive(), "a predict waits for a dead worker"
    assert np.array_equal(found[0], expected)
    wait_until(lambda: all(worker.state == pool_pb2.WORKER_STATE_SERVING for worker in pool.client.pool().workers), 60, "the replacement")
    assert victim not in [worker.pid for worker in pool.client.pool().workers]
    wait_until(lambda: epoch() == 2, 60, "the next epoch")
    owners = {owner for each in pool.client.pool().ownership if each.model_version == version for m in each.members for owner in m.owners}
    assert owners == {worker.incarnation for worker in pool.client.pool().workers}, "the replacement has taken over, nobody else"
    assert np.array_equal(numbers(pool.client.predict(placement, asked)), expected)


def test_D04_a_fit_survives_a_killed_worker(pool: LocalPool) -> None:
    """The fit starts again under the next epoch; its model has the bits of a fit that nothing happened to."""
    name = pool.client.upload(table(2_000, "regression"))
    want = options("regression", n_estimators=2, placement="rows")
    pool.client.fit("quiet", name, want)
    seen = threading.Event()

    def kill_once(progress: object) -> None:
        if not seen.is_set():
            seen.set()
            os.kill(pool.client.pool().workers[1].pid, signal.SIGKILL)

    pool.client.fit("struck", name, want, progress=kill_once, timeout=240)
    assert seen.is_set()
    asked = queries(10)
    assert np.array_equal(numbers(pool.client.predict("struck", asked)), numbers(pool.client.predict("quiet", asked)))


def test_a_worker_that_dies_at_start_up_says_why() -> None:
    """Not restarted for ever, not waited for: an error with the exit code, and nothing left."""
    before = len(psutil.Process().children(recursive=True))
    with pytest.raises(ServiceError, match=r"died at start-up: exit code 3"):
        LocalPool(1, device="no-such-device")
    assert len(psutil.Process().children(recursive=True)) == before


_PARENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tables import options, table
from tabgrpc import LocalPool
if __name__ == "__main__":
    pool = LocalPool(2)
    print(*[worker.pid for worker in pool.client.pool().workers], flush=True)
    name = pool.client.upload(table(20_000, "classification"))
    pool.client.fit("long", name, options("classification", n_estimators=8))
"""


def test_D07_workers_do_not_outlive_a_killed_parent() -> None:
    """SIGKILL of the parent while its workers compute: they are gone within five seconds."""
    with subprocess.Popen([sys.executable, "-c", _PARENT, str(HERE)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        busy = [worker.cpu_times().user for worker in workers]
        wait_until(lambda: any(w.cpu_times().user > was + 0.5 for w, was in zip(workers, busy, strict=True)), 60, "the fit")
        parent.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive, f"{len(alive)} workers live {time.monotonic() - killed:.1f} s after their parent"


def test_a_closed_pool_leaves_nothing() -> None:
    """Processes, sockets and the temporary store are gone."""
    pool = LocalPool(2)
    workers = [psutil.Process(worker.pid) for worker in pool.client.pool().workers]
    paths = [pool.store, pool._sockets, pool._server.scheduler.pool._directory]
    assert all(path.exists() for path in paths)
    pool.close()
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive
    assert not any(path.exists() for path in paths)


def test_a_model_served_is_loaded_again_after_a_repair(pool: LocalPool) -> None:
    """A load of the version that is served is its next epoch; as epoch 1 the workers would refuse it as stale."""
    name = pool.client.upload(table(300, "classification"))
    pool.client.fit("again", name, options("classification", n_estimators=2, placement="rows"))
    asked = queries(5)
    expected = numbers(pool.client.predict("again", asked))
    for _ in range(3):
        pool.client.load("again", strict_bits=True)
        assert np.array_equal(numbers(pool.client.predict("again", asked)), expected)
    epochs = {each.model_version: each.epoch for each in pool.client.pool().ownership}
    assert epochs["models/again/versions/1"] >= 4


def test_one_fit_of_a_name_at_a_time(pool: LocalPool) -> None:
    """Two would write the same version; the second is refused, the first one ends well."""
    name = pool.client.upload(table(3_000, "regression"))
    want = options("regression", n_estimators=2, placement="rows")
    refused: list[ServiceError] = []

    def second(_: object) -> None:
        if not refused:
            try:
                pool.client.fit("twin", name, want)
            except AlreadyExists as error:
                refused.append(error)

    assert pool.client.fit("twin", name, want, progress=second).rows == 3_000
    assert "already" in str(refused[0])


def test_the_only_worker_is_replaced_under_a_fit_and_a_predict() -> None:
    """With nobody left for a while, callers wait for the replacement inside their deadline."""
    with LocalPool(1) as alone:
        name = alone.client.upload(table(300, "classification"))
        want = options("classification", n_estimators=2)
        alone.client.fit("m", name, want)
        expected = numbers(alone.client.predict("m", queries(5)))
        os.kill(alone.client.pool().workers[0].pid, signal.SIGKILL)
        assert np.array_equal(numbers(alone.client.predict("m", queries(5), timeout=120)), expected)
        os.kill(alone.client.pool().workers[0].pid, signal.SIGKILL)
        alone.client.fit("m", name, want, timeout=180)
        assert np.array_equal(numbers(alone.client.predict("m", queries(5), timeout=120)), expected)
