"""Many models in one pool, more than its memory holds: all of them answer, with their bits; what can't fit is refused first. Case C04."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tables import numbers, options, queries, table

from tabgrpc import LocalPool
from tabgrpc.internal.v1.shards_pb2 import GetWorkerRequest
from tabgrpc.wire.errors import OutOfMemory

ROWS, MEMBERS = 1_500, 2
ASKED = queries(5)
EACH = MEMBERS * ROWS * 6 * 2 * 256 * 4  # K/V of `mini`: 6 layers, 256 wide
WORKER_BYTES = int(3.2 * EACH / 2)  # each of two workers has room for the halves of three models, or to fit one


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalPool, dict[str, np.ndarray]]]:
    """Four models in a pool that holds three, and the answers that each gave when it was fitted."""
    with LocalPool(2, store=tmp_path_factory.mktemp("store"), memory=WORKER_BYTES) as pool:
        found = {}
        for at, (name, save) in enumerate({"a": "kv", "b": "kv", "c": "repr", "d": "kv"}.items()):
            sent = pool.client.upload(table(ROWS, "classification", at))
            placement = "rows" if at % 2 else "members"
            pool.client.fit(name, sent, options("classification", n_estimators=MEMBERS, save=save, placement=placement))
            found[name] = numbers(pool.client.predict(name, ASKED))
        yield pool, found


def tiers(pool: LocalPool, name: str) -> dict[str, int]:
    return {each.tier: each.bytes for each in pool.client.model(name).tiers}


def used(pool: LocalPool) -> list[int]:
    return [int(worker.memory_used) for worker in pool.client.pool().workers]


def test_all_of_them_answer_with_their_bits(crowded: tuple[LocalPool, dict[str, np.ndarray]]) -> None:
    """In memory or in files, fitted as K/V or as vectors, shared rows or whole members; and never more bytes than the budget."""
    pool, expected = crowded
    away = [name for name in expected if tiers(pool, name).get("disk")]
    assert away, "nothing was moved: the test shows nothing"
    for name in "abcdacbddbca":
        assert np.array_equal(numbers(pool.client.predict(name, ASKED)), expected[name]), name
        assert all(count <= WORKER_BYTES for count in used(pool))
    workers = pool.client.pool().workers
    assert sum(worker.streamed_bytes for worker in workers) > 0
    assert all(worker.stalled_seconds > 0 for worker in workers if worker.streamed_bytes)


def test_at_the_same_time(crowded: tuple[LocalPool, dict[str, np.ndarray]]) -> None:
    """Queries of all models at once, moving each other out in the middle of their tiles."""
    pool, expected = crowded
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda name: (name, numbers(pool.client.predict(name, ASKED))), "abcdabcdaabbccdd"))
    assert all(np.array_equal(answer, expected[name]) for name, answer in answers)
    assert all(count <= WORKER_BYTES for count in used(pool))


def test_a_pinned_model_stays(crowded: tuple[LocalPool, dict[str, np.ndarray]]) -> None:
    pool, expected = crowded
    pool.client.pin("a")
    assert not tiers(pool, "a").get("disk")
    for name in "bcdbcdbcd":
        assert np.array_equal(numbers(pool.client.predict(name, ASKED)), expected[name])
    assert not tiers(pool, "a").get("disk")
    for name in "bc":
        pool.client.pin(name)
    with pytest.raises(OutOfMemory, match=r"bytes don't fit: .* of .* bytes can be had"):
        pool.client.pin("d")
    assert not pool.client.model("d").pinned
    assert np.array_equal(numbers(pool.client.predict("d", ASKED)), expected["d"]), "a refused pin breaks nothing"
    for name in "abc":
        pool.client.unpin(name)


def test_C04_what_cannot_fit_is_refused_before_anything_is_allocated(crowded: tuple[LocalPool, dict[str, np.ndarray]]) -> None:
    """All shards added up: each would fit, together they don't. Both numbers are told, and nothing was moved or held for it."""
    pool, expected = crowded
    before = {name: tiers(pool, name) for name in expected}
    sent = pool.client.upload(table(ROWS, "classification"))
    want = options("classification", n_estimators=32)
    with pytest.raises(OutOfMemory, match=r"needs [\d,]+ bytes a worker and there are [\d,]+"):
        pool.client.plan(sent, want)
    with pytest.raises(OutOfMemory, match=r"needs [\d,]+ bytes a worker and there are [\d,]+"):
        pool.client.fit("large", sent, want)
    assert {name: tiers(pool, name) for name in expected} == before
    assert not (pool.store / "large").exists()


def test_C04_the_estimate_is_what_is_held(crowded: tuple[LocalPool, dict[str, np.ndarray]]) -> None:
    """Told before the fit, and measured after."""
    pool, _ = crowded
    model = pool.client.model("a")
    assert model.context_bytes == pytest.approx(EACH, rel=0.2)
    assert sum(each.bytes for each in model.tiers) == pytest.approx(model.context_bytes, rel=0.2)
    plan = pool.client.plan(pool.client.upload(table(ROWS, "classification")), options("classification", n_estimators=MEMBERS, save="kv"))
    assert plan.stored_bytes == pytest.approx(model.stored_bytes, rel=0.2)
    small = options("classification", n_estimators=MEMBERS, save="auto", kv_limit_bytes=EACH // 2)
    plan = pool.client.plan(pool.client.upload(table(ROWS, "classification")), small)
    assert plan.save == "repr" and plan.stored_bytes < EACH / 4 and plan.load_seconds > 0


def test_a_model_larger_than_the_pools_memory_is_served_from_its_files(
    crowded: tuple[LocalPool, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """Fitted where there was room, loaded where there is none: the same bits, within the budget."""
    pool, expected = crowded
    small = EACH // 4
    with LocalPool(1, store=pool.store, memory=small) as tiny:
        for name in "ad":
            tiny.client.load(name, strict_bits=True)
            assert np.array_equal(numbers(tiny.client.predict(name, ASKED)), expected[name])
            assert tiers(tiny, name)["disk"] >= EACH
        assert used(tiny)[0] <= small
        with pytest.raises(OutOfMemory, match=r"needs [\d,]+ bytes"):
            tiny.client.load("c")  # its K/V would have to be computed, and there is no room for them
        assert np.array_equal(numbers(tiny.client.predict("a", ASKED)), expected["a"])


@pytest.mark.parametrize("times", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_C06_fit_and_delete_leave_memory_flat(crowded: tuple[LocalPool, dict[str, np.ndarray]], times: int) -> None:
    """Again and again; what the workers hold and what the system says they take."""
    import psutil

    pool, _ = crowded
    sent = pool.client.upload(table(300, "classification"))
    want = options("classification", n_estimators=2)
    processes = [psutil.Process(worker.pid) for worker in pool.client.pool().workers]

    def cycle() -> None:
        pool.client.fit("passing", sent, want)
        pool.client.predict("passing", ASKED)
        pool.client.delete("passing")

    for _ in range(4):
        cycle()
    before, taken = used(pool), [process.memory_info().rss for process in processes]
    for _ in range(times):
        cycle()
    assert [abs(now - was) < EACH for now, was in zip(used(pool), before, strict=True)] == [True, True]
    grown = [process.memory_info().rss - was for process, was in zip(processes, taken, strict=True)]
    assert max(grown) < 32 << 20, grown
    for worker in pool._server.scheduler.pool.serving():
        assert not [name for name in worker.stub.GetWorker(GetWorkerRequest()).model_versions if "passing" in name]
