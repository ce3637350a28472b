"""`tabgrpc serve` as an operator knows it: status, a drain on SIGTERM, and no worker left behind, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from cli_support import Ended, Served, serve

from tabgrpc.client import Client
from tabgrpc.v1 import models_pb2
from tabgrpc.wire.errors import ServiceError, Unavailable


def worker_pids(client: Client) -> list[int]:
    return [worker.pid for worker in client.pool().workers]


def wait_until(true: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def alive(pids: list[int]) -> list[int]:
    """Those that run; a zombie doesn't."""
    running = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
        except psutil.NoSuchProcess:
            pass
    return running


def numbers(rows: int) -> pa.Table:
    columns = {
        name: pa.array([float((i * k) % 97) for i in range(rows)]) for k, name in ((3, "a"), (7, "b"), (11, "c"))
    }
    return pa.table({**columns, "y": pa.array([i % 2 for i in range(rows)])})


def fit_one(client: Client) -> None:
    client.fit("m", client.upload(numbers(200)), models_pb2.FitOptions(target="y", checkpoint="mini", n_estimators=2))


def test_status(pool: Served, here: Callable[..., Ended]) -> None:
    with Client(pool.address) as client:
        fit_one(client)
        pids = worker_pids(client)
    ended = here("status", "--pool", pool.address)
    assert ended.code == 0, ended.err
    for pid in pids:
        assert str(pid) in ended.out
    assert "models/m/versions/" in ended.out
    told = json.loads(here("status", "--json", "--pool", pool.address).out)
    assert len(told["workers"]) == 2
    assert told["policy"]
    assert told["ownership"][0]["epoch"]


def test_d07_no_worker_outlives_a_killed_server(tmp_path: Path) -> None:
    """D07: SIGKILL of the server; the workers are gone within 5 s."""
    served = serve(tmp_path)
    with Client(served.address) as client:
        pids = worker_pids(client)
    assert len(pids) == 2
    assert sorted(alive(pids)) == sorted(pids)
    served.process.kill()
    served.process.communicate(timeout=30)
    wait_until(lambda: not alive(pids), 5, "the workers' end")


def test_d10_sigterm_lets_a_running_predict_finish(tmp_path: Path) -> None:
    """D10: the call in flight is answered, new calls are refused, exit code 0, no worker left."""
    served = serve(tmp_path)
    with Client(served.address) as client:
        fit_one(client)
        pids = worker_pids(client)
        asked = numbers(3000).drop_columns("y")
        before = client.predict("m", asked)
        answers: list[pa.Table] = []
        running = threading.Thread(target=lambda: answers.append(client.predict("m", asked)))
        running.start()
        wait_until(lambda: any(worker.queued for worker in client.pool().workers), 30, "a predict under way")
        os.kill(served.process.pid, signal.SIGTERM)
        running.join(60)
        assert not running.is_alive()
        assert answers == [before]
        with pytest.raises(ServiceError) as refused:
            client.predict("m", asked)
        assert isinstance(refused.value, Unavailable)
    served.process.communicate(timeout=60)
    assert served.process.returncode == 0
    wait_until(lambda: not alive(pids), 5, "the workers' end")
