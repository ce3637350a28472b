"""Fitted estimators as files: what is kept, what is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fits import Fits

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor
from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.wire.errors import NotReady

Fit = Callable[..., Any]


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
