"""Both data paths over real processes: the same bits, and gRPC goes on where collectives break."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pool"))
from tables import numbers, options, queries, table, wait_until

from tabgrpc import LocalPool
from tabgrpc.scheduler.fit import Fit
from tabgrpc.scheduler.groups import Group, Groups
from tabgrpc.wire.errors import Cancelled, DeadlineExceeded, NotReady

ASKED = queries(64 * 2 + 3)


def groups_of(pool: LocalPool) -> Groups:
    return pool._server.scheduler.pool.groups


def group_of(pool: LocalPool, name: str) -> Group:
    """The group that serves a model, when it is there."""

    def living() -> list[Group]:
        shards_name = pool._server.scheduler.models.get(f"models/{name}").shards_name
        return [group for group in groups_of(pool).find(shards_name) if not group.lost]

    wait_until(lambda: bool(living()), 60, f"a group for {name}")
    return living()[0]


def by_rounds(pool: LocalPool, name: str, asked: pa.Table = ASKED, **more: object) -> np.ndarray:
    """A prediction that went through the model's group. Fails if it went over gRPC."""
    group = group_of(pool, name)
    before = group.exchanged.jobs
    found = numbers(pool.client.predict(name, asked, **more))
    assert group.exchanged.jobs > before, f"{name} was not asked by collectives"
    return found


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(3, exchange="grpc") as pool:
        yield pool


CASES = {"classification": (300, 3), "regression": (1_100, 1)}
"""task: (rows, members). 300 rows are three blocks, one a worker, with a short last one; 1,100 nine."""


@pytest.fixture(scope="module")
def expected(pool: LocalPool) -> dict[str, np.ndarray]:
    """What gRPC alone gives; from then on the pool takes collectives where it can."""
    found = {}
    for task in CASES:
        fitted(pool, f"{task}-grpc", task)
        found[task] = numbers(pool.client.predict(f"{task}-grpc", ASKED))
    assert not groups_of(pool)._places, "exchange=grpc makes no group"
    groups_of(pool).exchange = "auto"
    return found


def fitted(pool: LocalPool, name: str, task: str, **more: object) -> None:
    rows, members = CASES[task]
    want = options(task, n_estimators=members, placement="rows")
    pool.client.fit(name, pool.client.upload(table(rows, task)), want, **more)


def once_at(stage: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Acts when the next fit is first at a stage: where the scheduler counts, since what a client is told may skip a whole stage."""
    count, done = Fit._count, threading.Event()

    def counted(fit: Fit, at: str, units: int) -> None:
        count(fit, at, units)
        if at == stage and not done.is_set():
            done.set()
            act()

    monkeypatch.setattr(Fit, "_count", counted)


def test_both_paths_give_the_same_bits(pool: LocalPool, expected: dict[str, np.ndarray]) -> None:
    """Fit and predict by collectives against gRPC, in batches of other sizes. Catches anything that a group adds up in its own way.

    A round of five rows is one tile, and the other workers are home of none; one of 131 rows has as many tiles as workers.
    """
    for task, whole in expected.items():
        fitted(pool, task, task)
        jobs = group_of(pool, task).exchanged
        assert jobs.jobs == 1 and jobs.collectives > 0 and jobs.nbytes > 0, "the fit went over gRPC"
        assert np.array_equal(by_rounds(pool, task), whole), task
        assert np.array_equal(by_rounds(pool, task, ASKED.slice(0, 5)), whole[:5])
        for size in (1, 70):
            parts = [ASKED.slice(at, size) for at in range(0, 140, size)][:2]
            found = np.concatenate([numbers(answer) for answer in pool.client.stream_predict(task, parts)])
            assert np.array_equal(found, whole[: len(found)]), f"{task} in batches of {size}"


def test_a_group_is_reachable_from_this_machine_only(pool: LocalPool, expected: dict[str, np.ndarray]) -> None:
    """Collectives have no authentication: whatever a worker listens on is the loopback interface."""
    fitted(pool, "local", "classification")
    group = group_of(pool, "local")
    for worker in group.workers:
        heard = [each.laddr.ip for each in psutil.Process(worker.pid).net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        assert heard, "nothing listens: this test looks at the wrong process"
        assert set(heard) == {"127.0.0.1"}


def test_a_frozen_worker_is_not_waited_for(pool: LocalPool, expected: dict[str, np.ndarray]) -> None:
    """Its sockets stay open, so no collective fails by itself; the others leave long before their time limit of two minutes."""
    fitted(pool, "frozen", "classification")
    group = group_of(pool, "frozen")
    victim = group.workers[2].pid
    os.kill(victim, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as threads:
            answer = threads.submit(lambda: numbers(pool.client.predict("frozen", ASKED, timeout=200)))
            wait_until(lambda: bool(group.lost), 60, "the loss of the group")
            os.kill(victim, signal.SIGCONT)
            assert np.array_equal(answer.result(120), expected["classification"])
    finally:
        os.kill(victim, signal.SIGCONT)


def test_a_worker_killed_during_a_collective_fit(
    pool: LocalPool, expected: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group breaks for the survivor too, the fit begins again under the next epoch, and its bits are those of a quiet one."""
    struck = threading.Event()

    def kill() -> None:
        struck.set()
        os.kill(pool._server.scheduler.pool.serving()[1].pid, signal.SIGKILL)

    once_at("icl", kill, monkeypatch)
    fitted(pool, "struck", "regression", timeout=240)
    assert struck.is_set()
    assert np.array_equal(numbers(pool.client.predict("struck", ASKED)), expected["regression"])
    epochs = {each.model_version: each.epoch for each in pool.client.pool().ownership}
    assert epochs["models/struck/versions/1"] >= 2
    wait_until(lambda: len(pool._server.scheduler.pool.serving()) == 3, 60, "the replacement")


def test_a_worker_killed_during_rounds(pool: LocalPool, expected: dict[str, np.ndarray]) -> None:
    """Every request is answered with the exact bits; then there is a new group, under the next epoch."""
    fitted(pool, "rounds", "classification")
    first = group_of(pool, "rounds")
    begun = first.exchanged.jobs
    parts = [ASKED] * 6
    with ThreadPoolExecutor(1) as threads:
        answers = threads.submit(lambda: [numbers(each) for each in pool.client.stream_predict("rounds", parts)])
        wait_until(lambda: first.exchanged.jobs > begun, 60, "the first round")
        os.kill(first.workers[0].pid, signal.SIGKILL)
        for found in answers.result(120):
            assert np.array_equal(found, expected["classification"])
    wait_until(lambda: bool(first.lost), 30, "the loss of the group")

    def again() -> bool:
        pool.client.predict("rounds", ASKED.slice(0, 1))  # who asks has the group made
        shards_name = pool._server.scheduler.models.get("models/rounds").shards_name
        return any(group.placement.map.epoch > first.placement.map.epoch and not group.lost for group in groups_of(pool).find(shards_name))

    wait_until(again, 90, "a group under the next epoch")
    assert np.array_equal(by_rounds(pool, "rounds"), expected["classification"])


@pytest.mark.parametrize("stage", ["column", "icl"])
def test_a_broken_group_costs_no_attempt(
    pool: LocalPool, expected: dict[str, np.ndarray], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers live: the fit goes on over gRPC from where it was, in the same epoch."""
    broken: list[Group] = []

    def lose() -> None:
        broken.extend(group for group in groups_of(pool)._all() if f"models/{stage}-break/" in group.shards_name)
        groups_of(pool).lose(broken[0], "the test says so")

    once_at(stage, lose, monkeypatch)
    fitted(pool, f"{stage}-break", "regression", timeout=240)
    assert broken and broken[0].exchanged.jobs == 0, "the fit had ended before"
    epochs = {each.model_version: each.epoch for each in pool.client.pool().ownership}
    assert epochs[f"models/{stage}-break/versions/1"] == 1
    assert np.array_equal(numbers(pool.client.predict(f"{stage}-break", ASKED)), expected["regression"])


def test_two_fits_and_predicts_at_once(pool: LocalPool, expected: dict[str, np.ndarray]) -> None:
    """Two groups' fits and a third one's rounds on the same workers. Catches any wait of one for another."""
    fitted(pool, "served", "classification")
    with ThreadPoolExecutor(3) as threads:
        fits = [threads.submit(fitted, pool, f"at-once-{task}", task, timeout=200) for task in CASES]
        during = 0
        while not all(fit.done() for fit in fits):
            assert np.array_equal(numbers(pool.client.predict("served", ASKED, timeout=100)), expected["classification"])
            during += 1
        for fit in fits:
            fit.result()
    assert during
    for task, whole in expected.items():
        assert np.array_equal(by_rounds(pool, f"at-once-{task}"), whole)


def test_callers_who_give_up_leave_nothing_hanging(pool: LocalPool, expected: dict[str, np.ndarray]) -> None:
    """A predict past its deadline and a cancelled fit: the groups of others go on, no task is left, the next caller is served."""
    fitted(pool, "patient", "classification")
    group = group_of(pool, "patient")
    with pytest.raises(DeadlineExceeded):
        pool.client.predict("patient", queries(20_000), timeout=1.0)
    assert np.array_equal(by_rounds(pool, "patient"), expected["classification"])
    assert not group.lost, "one caller's deadline has cost everybody the group"
    scheduler = pool._server.scheduler
    name = pool.client.upload(table(4_000, "regression"))

    def cancel(progress: object) -> None:
        if getattr(progress, "stage", "") == "column":
            scheduler.drain()
            scheduler.draining = False

    with pytest.raises(Cancelled):
        pool.client.fit("given-up", name, options("regression", n_estimators=2, placement="rows"), progress=cancel)
    began = time.monotonic()
    assert np.array_equal(by_rounds(pool, "patient"), expected["classification"])
    assert time.monotonic() - began < 20
    wait_until(lambda: all(worker.queued == 0 for worker in pool.client.pool().workers), 20, "the end of the fit's tasks")
    assert not group.lost


def test_workers_that_cannot_meet(pool: LocalPool, expected: dict[str, np.ndarray]) -> None:
    """On several machines, and of no trusted network: ``auto`` uses gRPC, ``collective`` says why not."""
    groups, serving = groups_of(pool), pool._server.scheduler.pool.serving()
    groups._terms(serving)
    groups._peers[serving[0].incarnation].machine = "another"
    fitted(pool, "apart", "classification")
    assert np.array_equal(numbers(pool.client.predict("apart", ASKED)), expected["classification"])
    assert not groups.find(pool._server.scheduler.models.get("models/apart").shards_name)
    assert any("several machines" in reason for reason in groups._told)
    groups.exchange = "collective"
    with pytest.raises(NotReady, match="several machines"):
        fitted(pool, "demanded", "classification")
