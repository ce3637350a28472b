"""Fitted on two workers, kept in each of the three ways, loaded on one, three and four: the same bits, and nothing fitted anew for K/V.

Cases E01 and E05.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from tables import numbers, options, queries, random_checkpoint, table, wait_until

from tabgrpc import LocalPool
from tabgrpc.store.model import ModelDirectory
from tabgrpc.v1 import pool_pb2

ASKED = queries(20)
SAVES = ("kv", "repr", "data")
PLACEMENTS = {"rows": "classification", "members": "regression"}
NAMES = [f"{save}-{placement}" for save in SAVES for placement in PLACEMENTS]


@pytest.fixture(scope="module")
def fitted(pair: LocalPool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """One model for each way of keeping and of placing, fitted on two workers; their answers."""
    folder = tmp_path_factory.mktemp("weights")
    found = {}
    for placement, task in PLACEMENTS.items():
        checkpoint = random_checkpoint(folder / task, "classifier" if task == "classification" else "regressor")
        sent = pair.client.upload(table(300, task))
        for save in SAVES:
            want = options(task, n_estimators=3, placement=placement, save=save, checkpoint=str(checkpoint))
            pair.client.fit(f"{save}-{placement}", sent, want)
            found[f"{save}-{placement}"] = numbers(pair.client.predict(f"{save}-{placement}", ASKED))
    return found


def test_how_it_is_kept_changes_no_bit(fitted: dict[str, np.ndarray]) -> None:
    for placement in PLACEMENTS:
        assert all(np.array_equal(fitted[f"{save}-{placement}"], fitted[f"kv-{placement}"]) for save in SAVES)


@pytest.mark.parametrize("workers", [1, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_E01_loaded_on_another_number_of_workers(pair: LocalPool, fitted: dict[str, np.ndarray], workers: int) -> None:
    """Every way of keeping gives the bits that two workers gave. Catches a file that knows how many owners there were."""
    with LocalPool(workers, store=pair.store) as other:
        for name, expected in fitted.items():
            other.client.load(name, strict_bits=True)
            assert np.array_equal(numbers(other.client.predict(name, ASKED)), expected), name
        if workers == 1:
            first_predict_is_like_any_other(other)


def first_predict_is_like_any_other(pool: LocalPool) -> None:
    """Case E05: after a load of K/V no stage of a fit is run. The half second: a busy machine."""
    pool.client.load("kv-rows")
    took = []
    for _ in range(4):
        start = time.perf_counter()
        pool.client.predict("kv-rows", ASKED)
        took.append(time.perf_counter() - start)
    assert took[0] < 1.5 * max(took[1:]) + 0.5, took


def test_E01_size_on_disk_follows_the_table_and_not_the_workers(pair: LocalPool, fitted: dict[str, np.ndarray], tmp_path: Path) -> None:
    """K/V are 2 x layers times the vectors; the same fit on another number of workers writes the same files, byte for byte."""
    about = {name: ModelDirectory(pair.store / name).manifest() for name in fitted}
    kv, vectors = (sum(f.size for f in about[f"{save}-rows"].files if "/column" not in f.path) for save in ("kv", "repr"))
    layers = 5  # of the random checkpoint
    assert 2 * layers * 0.9 < kv / vectors <= 2 * layers * 1.1
    assert about["data-rows"].files == () and about["data-rows"].data_files
    assert not about["kv-rows"].data_files
    with LocalPool(1, store=tmp_path) as alone:
        sent = alone.client.upload(table(300, "classification"))
        checkpoint = about["kv-rows"].checkpoint["path"]
        alone.client.fit("m", sent, options("classification", n_estimators=3, save="kv", checkpoint=checkpoint))
    again = ModelDirectory(tmp_path / "m").manifest()
    assert sorted((f.size, f.sha256) for f in again.files) == sorted((f.size, f.sha256) for f in about["kv-rows"].files)


def test_a_lost_worker_is_made_good(pair: LocalPool, fitted: dict[str, np.ndarray]) -> None:
    """From K/V, vectors or rows: the replacement computes what it lacks, with what the healthy one lends; the same bits."""
    os.kill(pair.client.pool().workers[1].pid, signal.SIGKILL)
    for name, expected in fitted.items():
        assert np.array_equal(numbers(pair.client.predict(name, ASKED, timeout=120)), expected), name
    wait_until(lambda: all(w.state == pool_pb2.WORKER_STATE_SERVING for w in pair.client.pool().workers), 60, "the replacement")
    epochs = {each.model_version: each.epoch for each in pair.client.pool().ownership}
    assert all(epochs[f"models/{name}/versions/1"] == 2 for name in NAMES), "each was moved once"
