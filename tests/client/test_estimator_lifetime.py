"""Where an estimator's model lives: shared, lost and made again, freed, and nothing left behind."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits import Fits

from tabgrpc import LocalPool, TabGRPCClassifier
from tabgrpc.client import Client
from tabgrpc.client.shared import Connection
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import NotFound

Fit = Callable[..., Any]


def names(pool: LocalPool) -> set[str]:
    """Models that a pool serves."""
    return {model.name.split("/")[1] for model in pool.client.models()}


def test_a_lost_model_is_fitted_again_once(
    fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = fit(X, y, random_state=101)
    want = m.predict_proba(X)
    pool.client.delete(m.model_.name)
    fits = Fits(monkeypatch)
    assert np.array_equal(m.predict_proba(X), want)
    assert np.array_equal(m.predict_proba(X), want)
    assert fits.count == 1


def test_a_model_that_cannot_be_kept_is_an_error_not_a_loop(
    fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = fit(X, y, random_state=102)
    pool.client.delete(m.model_.name)
    fits = Fits(monkeypatch)
    counted = Client.fit

    def lost(client: Client, name: str, *args: Any, **more: Any) -> pb.Model:
        model = counted(client, name, *args, **more)
        client.delete(name)
        return model

    monkeypatch.setattr(Client, "fit", lost)
    with pytest.raises(NotFound):
        m.predict_proba(X)
    assert fits.count == 1


def test_a_pool_that_has_the_files_loads_them(X: np.ndarray, y: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart of the pool on its store: no refit, the same bits."""
    with LocalPool(1, store=tmp_path) as first:
        m = TabGRPCClassifier(1, model_path="mini", pool=first).fit(X, y)
        want = m.predict_proba(X)
    fits = Fits(monkeypatch)
    with LocalPool(1, store=tmp_path) as second:
        assert np.array_equal(m.set_params(pool=second).predict_proba(X), want)
        assert np.array_equal(m.set_params(pool=second.address).predict_proba(X), want)
    assert fits.count == 0


def test_equal_estimators_share_a_model_and_the_last_one_frees_it(
    fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = Fits(monkeypatch)
    a, b = fit(X, y, random_state=103), fit(X, y, random_state=103)
    other = fit(X, 1 - y, random_state=103)
    assert a.model_.name == b.model_.name != other.model_.name and fits.count == 2
    a.close()
    a.close()
    assert b.model_.name in names(pool)
    b.close()
    assert b.model_.name not in names(pool)
    assert np.array_equal(b.predict_proba(X), fit(X, y, random_state=103).predict_proba(X)), "asked again, it is fitted again"


def test_the_last_user_leaves_while_the_next_one_comes(
    fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes an equal estimator between a fit's look for its model and its hold on it."""
    last = fit(X, y, random_state=110)
    want = last.predict_proba(X)
    real = Connection.serves

    def serves(connection: Connection, name: str) -> bool:
        found = real(connection, name)
        leaving = threading.Thread(target=last.close)
        leaving.start()
        leaving.join()
        return found

    monkeypatch.setattr(Connection, "serves", serves)
    m = fit(X, y, random_state=110)
    monkeypatch.undo()
    assert m.model_.name in names(pool) and np.array_equal(m.predict_proba(X), want)
    m.close()
    assert m.model_.name not in names(pool), "nor is it forgotten"


def test_context_manager_refits_and_garbage_free_models(fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray) -> None:
    with fit(X, y, random_state=104) as m:
        first = m.model_.name
        assert first in names(pool)
        m.fit(X[:30], y[:30])
        assert first not in names(pool), "the old version goes when the new one is there"
        second = m.model_.name
    assert second not in names(pool)
    n = fit(X, y, random_state=105)
    lost = n.model_.name
    del n
    gc.collect()
    fit(X, y, random_state=106)  # whoever calls next tidies up: a finaliser makes no calls
    assert lost not in names(pool)


def test_C06_many_fits_leave_nothing(fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray) -> None:
    gc.collect()
    fit(X, y, random_state=107).close()
    before = {worker.memory_used for worker in pool.client.pool().workers}, len(names(pool)), len(list(pool.store.iterdir()))
    for turn in range(8):
        m = fit(X, y, random_state=200 + turn)
        m.predict(X[:3])
        m.close()
    after = {worker.memory_used for worker in pool.client.pool().workers}, len(names(pool)), len(list(pool.store.iterdir()))
    assert after == before


def test_D09_a_forked_child_asks_and_stops_nothing(fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray) -> None:
    """Pools and estimators come along into a fork of a user's process; what they close there is not theirs."""
    m = fit(X, y, random_state=109)
    want = m.predict_proba(X[:3])

    def ask() -> None:
        same = np.array_equal(m.predict_proba(X[:3]), want)
        pool.close()
        os._exit(0 if same else 1)

    child = multiprocessing.get_context("fork").Process(target=ask)
    child.start()
    child.join(60)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0
    assert m.model_.name in names(pool) and pool.store.exists()
    assert np.array_equal(m.predict_proba(X[:3]), want)


SCRIPT = """
import json, sys
import numpy as np
from tabgrpc import TabGRPCClassifier, TabGRPCRegressor, shared_pool
if __name__ == "__main__":
    X = np.random.default_rng(0).normal(size=(40, 4))
    m = TabGRPCClassifier(1, model_path="mini").fit(X, X[:, 0] > 0)
    pool = shared_pool()
    r = TabGRPCRegressor(1, model_path="mini").fit(X, X[:, 0])
    r.predict(X)
    assert shared_pool() is pool and len(pool.client.models()) == 2
    loaded = sorted(name for name in ("torch", "tabicl") if name in sys.modules)
    pids = [worker.pid for worker in pool.client.pool().workers]
    print(json.dumps({"pids": pids, "store": str(pool.store), "address": pool.address, "loaded": loaded}))
"""


@pytest.mark.timeout(200)
def test_one_shared_pool_a_process_and_nothing_left_at_its_end(tmp_path: Path) -> None:
    """No close, no with: the interpreter just ends. And the client's process never loads torch."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr and "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    assert len(told["pids"]) == 2 and told["loaded"] == []
    for pid in told["pids"]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not Path(told["store"]).exists() and not Path(told["address"].removeprefix("unix:")).exists()
