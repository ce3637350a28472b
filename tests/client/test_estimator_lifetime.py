"""Where an estimator's model lives: shared, lost and made again, freed, saved and loaded, and nothing left behind."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor
from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.client import Client
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import NotFound, NotReady

Fit = Callable[..., Any]


def names(pool: LocalPool) -> set[str]:
    """Models that a pool serves."""
    return {model.name.split("/")[1] for model in pool.client.models()}


class Fits:
    """Counts the fits of a pool's connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = Client.fit

        def counted(client: Client, *args: Any, **more: Any) -> pb.Model:
            self.count += 1
            return real(client, *args, **more)

        monkeypatch.setattr(Client, "fit", counted)


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
    with LocalPool(2, store=tmp_path) as second:
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


@pytest.mark.parametrize(
    ("kept", "inside"),
    [
        ({}, {"table.arrow", "model"}),
        ({"save_training_data": False}, {"model"}),
        ({"save_kv_cache": False}, {"table.arrow"}),
    ],
    ids=str,
)
def test_save_and_load(
    fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, tmp_path: Path, kept: Any, inside: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain files in an archive; with the cache nothing is fitted again; without the data none of its cells is in there."""
    labels = np.where(y, "yes", "no")
    X[5, 2] = 0.1234567890123
    m = fit(X, labels, random_state=108, n_jobs=2)
    want = m.predict_proba(X)
    path = tmp_path / "deep" / "model.tabgrpc"
    m.save(path, **kept)
    with zipfile.ZipFile(path) as archive:
        found = {name.split("/")[0] for name in archive.namelist()} - {"estimator.json"}
        assert found == inside and not any(name.endswith((".pkl", ".pickle")) for name in archive.namelist())
    if not kept.get("save_training_data", True):
        assert np.float64(0.1234567890123).tobytes() not in path.read_bytes()
    m.close()
    fits = Fits(monkeypatch)
    n = TabGRPCClassifier.load(path, pool=pool)
    assert fits.count == (0 if "model" in inside else 1)
    assert np.array_equal(n.predict_proba(X), want) and n.classes_.tolist() == ["no", "yes"]
    assert n.predict(X).dtype.kind == "U" and n.n_jobs == 2 and n.random_state == 108
    assert (n.n_features_in_, n.n_samples_in_) == (4, 40)
    n.close()


def test_a_regressor_with_names_is_saved_too(fitreg: Fit, pool: LocalPool, X: np.ndarray, tmp_path: Path) -> None:
    import pandas as pd

    d = pd.DataFrame(X, columns=list("abcd"))
    r = fitreg(d, X[:, 0])
    r.save(tmp_path / "r")
    n = TabGRPCRegressor.load(str(tmp_path / "r"), pool=pool)
    assert n.feature_names_in_.tolist() == list("abcd")
    assert np.array_equal(n.predict(d[list("dcba")], "draws"), r.predict(d, "draws"))


def test_what_cannot_be_saved_or_loaded_is_said(fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, tmp_path: Path) -> None:
    m = fit(X, y)
    with pytest.raises(ValueError, match="Cannot exclude training data"):
        m.save(tmp_path / "none", save_training_data=False, save_kv_cache=False)
    with pytest.raises(ValueError, match="Cannot exclude training data"):
        m.set_params(pool=pool.address).save(tmp_path / "none", save_training_data=False)
    assert list(tmp_path.iterdir()) == []
    m.set_params(pool=pool).save(tmp_path / "m", save_training_data=False)
    with pytest.raises(NotReady, match="no training data"):
        TabGRPCClassifier.load(tmp_path / "m", pool=pool.address)
    with pytest.raises(ValueError, match="holds a TabGRPCClassifier, not a TabGRPCRegressor"):
        TabGRPCRegressor.load(tmp_path / "m", pool=pool)
    (tmp_path / "torn").write_bytes((tmp_path / "m").read_bytes()[:-100])
    with pytest.raises(ValueError, match="torn is not an estimator"):
        TabGRPCClassifier.load(tmp_path / "torn", pool=pool)


def edited(path: Path, target: Path, change: Callable[[dict[str, Any]], None], more: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "estimator.json":
                header = json.loads(data)
                change(header)
                data = json.dumps(header).encode()
            new.writestr(name, data)
        for name, data in (more or {}).items():
            new.writestr(name, data)
    return target


def test_E02_other_formats_and_hostile_members_are_refused_first(
    fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, tmp_path: Path
) -> None:
    m = fit(X, y)
    m.save(tmp_path / "m")
    newer = edited(tmp_path / "m", tmp_path / "newer", lambda header: header.update(format=99, options="?"))
    with pytest.raises(ValueError, match=r"format 99.*format 1"):
        TabGRPCClassifier.load(newer, pool=pool)
    before = set(pool.store.iterdir())
    for name in ("model/../../../escaped", "/etc/escaped", "model/.hidden", "other/file"):
        hostile = edited(tmp_path / "m", tmp_path / "hostile", lambda header: None, {name: b"x"})
        with pytest.raises(ValueError, match="is not an estimator"):
            TabGRPCClassifier.load(hostile, pool=pool)
    hostile = edited(tmp_path / "m", tmp_path / "hostile", lambda header: header.update(model="../escaped"))
    with pytest.raises(ValueError, match="name"):
        TabGRPCClassifier.load(hostile, pool=pool)
    assert set(pool.store.iterdir()) == before and not (pool.store.parent / "escaped").exists()


@pytest.mark.parametrize("kept", [{}, {"save_kv_cache": False}], ids=str)
def test_E02_another_checkpoint_under_the_same_name_is_refused(
    fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, tmp_path: Path, kept: dict[str, bool]
) -> None:
    checkpoint = load_checkpoint("mini", "classification")
    path = tmp_path / "weights.ckpt"
    torch.save({"config": checkpoint.config, "state_dict": checkpoint.state_dict()}, path)
    m = fit(X, y, model_path=path, n_estimators=1)
    m.save(tmp_path / "m", **kept)
    m.close()
    torch.save({"config": checkpoint.config, "state_dict": {k: t * 1.01 for k, t in checkpoint.state_dict().items()}}, path)
    with pytest.raises((ValueError, NotReady), match="checkpoint"):
        TabGRPCClassifier.load(tmp_path / "m", pool=pool)


def test_weights_can_come_along(fit: Fit, pool: LocalPool, X: np.ndarray, y: np.ndarray, tmp_path: Path) -> None:
    checkpoint = load_checkpoint("mini", "classification")
    path = tmp_path / "weights.ckpt"
    torch.save({"config": checkpoint.config, "state_dict": checkpoint.state_dict()}, path)
    m = fit(X, y, model_path=path, n_estimators=1)
    want = m.predict_proba(X)
    m.save(tmp_path / "m", save_model_weights=True, save_kv_cache=False)
    m.close()
    path.unlink()
    assert np.array_equal(TabGRPCClassifier.load(tmp_path / "m", pool=pool).predict_proba(X), want)
