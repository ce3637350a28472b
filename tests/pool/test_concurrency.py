"""Many callers at once: each gets what it would have got alone."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tables import numbers, options, queries, table

from tabgrpc import LocalPool
from tabgrpc.wire.errors import DeadlineExceeded, InvalidArgument, NotFound

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(2) as pool:
        name = pool.client.upload(table(300, "classification"))
        pool.client.fit("shared", name, options("classification", n_estimators=2, placement="rows"))
        yield pool


def test_B01_one_call_and_row_by_row_give_the_same_bits(pool: LocalPool) -> None:
    """Catches any shape or statistic that follows the batch."""
    asked = queries(70)
    whole = numbers(pool.client.predict("shared", asked))
    for size in (1, 7, 64):
        parts = [asked.slice(at, size) for at in range(0, 70, size)]
        assert np.array_equal(np.concatenate([numbers(a) for a in pool.client.stream_predict("shared", parts)]), whole)


def test_B02_concurrent_predicts_equal_sequential_ones(pool: LocalPool) -> None:
    """Catches state kept on the network between calls: upstream's cache on the module gave 118 of 120 wrong answers."""
    asked = [queries(3, seed) for seed in range(8)]
    alone = [numbers(pool.client.predict("shared", each)) for each in asked]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda turn: numbers(pool.client.predict("shared", asked[turn % 8])), range(120)))
    assert all(np.array_equal(answer, alone[turn % 8]) for turn, answer in enumerate(found))


def test_a_bad_request_fails_alone(pool: LocalPool) -> None:
    """One caller's failure never fails another's request, and says which column."""
    asked, expected = queries(5), None
    expected = numbers(pool.client.predict("shared", asked))

    def one(turn: int) -> np.ndarray | None:
        if turn % 3:
            return numbers(pool.client.predict("shared", asked))
        with pytest.raises(InvalidArgument, match="f2"):
            pool.client.predict("shared", asked.drop_columns(["f2"]))
        return None

    with ThreadPoolExecutor(6) as threads:
        assert all(answer is None or np.array_equal(answer, expected) for answer in threads.map(one, range(30)))


def test_X3_a_failed_predict_leaves_thread_counts_alone(pool: LocalPool) -> None:
    """Upstream leaves torch's thread count changed in the whole process after a predict that raised: other bits from then on."""
    asked = queries(5)
    before = numbers(pool.client.predict("shared", asked))
    policies = [worker.policy for worker in pool._server.scheduler.pool.serving()]
    with pytest.raises(InvalidArgument):
        pool.client.predict("shared", asked.rename_columns([f"g{i}" for i in range(asked.num_columns)]))
    assert [worker.policy for worker in pool._server.scheduler.pool.serving()] == policies
    assert np.array_equal(numbers(pool.client.predict("shared", asked)), before)


def test_D13_work_of_a_caller_whose_time_is_over_is_dropped(pool: LocalPool) -> None:
    """The next caller gets the devices within a tile, not after 100,000 rows."""
    with pytest.raises(DeadlineExceeded):
        pool.client.predict("shared", queries(20_000), timeout=1.0)
    expected = numbers(pool.client.predict("shared", queries(3), timeout=30.0))
    assert expected.shape == (3, 3)
    assert all(worker.queued == 0 for worker in pool.client.pool().workers), "tasks of nobody are still queued"


def test_unknown_models_and_bad_levels(pool: LocalPool) -> None:
    with pytest.raises(NotFound, match="models/nobody"):
        pool.client.predict("nobody", queries(1))
    with pytest.raises(InvalidArgument, match="no quantiles"):
        pool.client.predict("shared", queries(1), quantiles=[0.5])


_SCRIPT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from tables import numbers, options, queries, table
from tabgrpc import LocalPool
if __name__ == "__main__":
    with LocalPool(2) as pool:
        name = pool.client.upload(table(40, "classification"))
        pool.client.fit("m", name, options("classification", n_estimators=8, placement="rows"))
        members = pool._server.scheduler.models.get("models/m").members
        order = [(m.norm_method, m.feature_shuffle.tolist(), m.class_shuffle.tolist()) for m in members]
        print(hashlib.sha256(repr(order).encode() + numbers(pool.client.predict("m", queries(5))).tobytes()).hexdigest())
"""


def test_B06_member_order_and_bits_do_not_follow_the_hash_seed() -> None:
    """Upstream orders normalisations by a set of strings: member k was another member in another process."""
    digests = set()
    for seed in ("0", "1", "3"):  # upstream's order differs between these
        run = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(HERE)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
        digests.add(run.stdout.strip())
    assert len(digests) == 1
    assert len(digests.pop()) == hashlib.sha256().digest_size * 2
