"""The promise: the same bits, however many workers. Real processes, real sockets, ``==``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tables import numbers, options, queries, random_checkpoint, table

from tabgrpc import LocalPool

pytestmark = pytest.mark.timeout(1_200)  # eleven worker processes after one another, on however few cores

WORKERS = (1, 2, 3, 5)
TASKS = ("classification", "regression")
BATCHES = (1, 7, 64, 70)
LEVELS = (0.1, 0.5, 0.9)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    folder = tmp_path_factory.mktemp("checkpoints")
    found = {("trained", task): "mini" for task in ("classification", "regression")}
    for task, kind in (("classification", "classifier"), ("regression", "regressor")):
        found["random", task] = str(random_checkpoint(folder / kind, kind))
    return found


def cases() -> list[tuple[str, str, int, int]]:
    """(weights, task, rows, members): every size with one or eight members, on trained and on random weights."""
    sizes = {"trained": ((1, 1), (7, 1), (300, 8), (1_500, 1)), "random": ((1, 1), (7, 8), (300, 1), (300, 8), (1_500, 1))}
    return [(weights, task, rows, members) for weights in sizes for task in TASKS for rows, members in sizes[weights]]


def answers(workers: int, placement: str, checkpoints: dict[tuple[str, str], str], store: Path) -> dict[tuple[object, ...], np.ndarray]:
    """Predictions of every case, in every batch size; equal ones are compared here, so that one array a case comes back."""
    out: dict[tuple[object, ...], np.ndarray] = {}
    asked = queries(max(BATCHES))
    with LocalPool(workers, store=store) as pool:
        for weights, task, rows, members in cases():
            name = f"{weights}-{task}-{rows}-{members}"
            tables = pool.client.upload(table(rows, task))
            want = options(task, checkpoint=checkpoints[weights, task], n_estimators=members, placement=placement)
            fitted = pool.client.fit(name, tables, want)
            assert fitted.rows == rows
            levels = LEVELS if task == "regression" else ()
            whole = numbers(pool.client.predict(name, asked, quantiles=levels))
            assert np.isfinite(whole).all()
            for batch in BATCHES:
                count = min(asked.num_rows, 2 * batch)  # two requests of every size, the second one short where rows run out
                parts = [asked.slice(at, min(batch, count - at)) for at in range(0, count, batch)]
                pieces = [numbers(piece) for piece in pool.client.stream_predict(name, parts, quantiles=levels)]
                assert np.array_equal(np.concatenate(pieces), whole[:count]), f"{name}: batches of {batch} give other bits"
            out[weights, task, rows, members] = whole
            pool.client.delete(name)
    return out


def test_bits_do_not_depend_on_the_number_of_workers(checkpoints: dict[tuple[str, str], str], tmp_path: Path) -> None:
    """Catches any sum that follows the shards, any shape that follows the batch, any statistic that is local."""
    reference = answers(1, "rows", checkpoints, tmp_path / "1")
    for workers in WORKERS[1:]:
        found = answers(workers, "rows", checkpoints, tmp_path / str(workers))
        for case, expected in reference.items():
            assert np.array_equal(found[case], expected), f"{workers} workers give other bits for {case}"


def test_bits_do_not_depend_on_placement_or_reload(checkpoints: dict[tuple[str, str], str], tmp_path: Path) -> None:
    """Whole members on workers, rows over workers, and the files of one pool loaded by pools of other sizes."""
    asked = queries(100)
    store = tmp_path / "store"
    with LocalPool(2, store=store) as pool:
        name = pool.client.upload(table(1_000, "classification"))
        found = []
        for placement in ("rows", "members"):
            fitted = pool.client.fit(f"by-{placement}", name, options("classification", placement=placement, n_estimators=4))
            assert fitted.placement == placement
            found.append(numbers(pool.client.predict(f"by-{placement}", asked)))
        assert np.array_equal(*found)
    for workers in (1, 3, 4):
        with LocalPool(workers, store=store) as pool:
            for placement in ("rows", "members"):
                pool.client.load(f"by-{placement}", strict_bits=True)
                assert np.array_equal(numbers(pool.client.predict(f"by-{placement}", asked)), found[0])


def test_float64_is_closer_to_itself_than_float32(checkpoints: dict[tuple[str, str], str], tmp_path: Path) -> None:
    """The float64 policy is another policy: same bits within it, not those of float32."""
    asked = queries(10)
    with LocalPool(2, store=tmp_path) as pool:
        name = pool.client.upload(table(300, "regression"))
        by_dtype = {}
        for dtype in ("float32", "float64"):
            for placement in ("rows", "members"):
                pool.client.fit("m", name, options("regression", dtype=dtype, placement=placement, n_estimators=2))
                by_dtype[dtype, placement] = numbers(pool.client.predict("m", asked))
    assert np.array_equal(by_dtype["float64", "rows"], by_dtype["float64", "members"])
    assert not np.array_equal(by_dtype["float64", "rows"], by_dtype["float32", "rows"])
    # float32 carries 24 bits through some thirty layers; 1e-3 of the target's spread would be a fault, not rounding
    assert np.abs(by_dtype["float64", "rows"] - by_dtype["float32", "rows"]).max() < 1e-3 * 7
