"""Cases A16 to A26 of the field end to end through the estimators: tables, targets and classes, each under its id, with its neighbours."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn
from bits import same

from tabgrpc import LocalPool
from tabgrpc.client import client, pieces

pytestmark = pytest.mark.filterwarnings("ignore::tabgrpc.data.DataWarning")
Fit = Callable[..., Any]


def test_A16_one_row_one_class_and_fewer_rows_than_workers(fit: Fit, fitreg: Fit, X: np.ndarray) -> None:
    p = fit(X[:1], np.array(["only"])).predict_proba(X[:3])
    assert p.shape == (3, 1) and (p == 1).all()
    assert fit(X[:1], np.array(["only"])).predict(X[:2]).tolist() == ["only"] * 2
    assert fit(X[:3], np.array([0, 1, 0])).predict(X[:2]).shape == (2,)
    assert np.isfinite(fitreg(X[:1], [3.0]).predict(X[:2])).all()


@pytest.mark.parametrize("K", [10, 11, 12, 101])
def test_A17_classes_up_to_ten_and_beyond(fit: Fit, pool: LocalPool, K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that sum to 1, from the estimator and from a plain client, whose answers come in pieces that fit a message."""
    Z = np.random.default_rng(0).normal(size=(3 * K, 4))
    m = fit(Z, np.arange(3 * K) % K, n_estimators=1)
    p = m.predict_proba(Z[:3])
    assert p.shape == (3, K) and abs(p.sum(1) - 1).max() < 1e-6
    monkeypatch.setattr(client, "_FEW_ROWS", 0)
    monkeypatch.setattr(pieces, "_ANSWER_BYTES", 8 * (2 + 2 * K) * 2)  # room for two rows
    found = pool.client.predict(m.model_.name, pa.table({str(i): Z[:3, i] for i in range(4)}))
    assert np.array_equal(np.stack([found[f"proba_{each}"] for each in range(K)], axis=1), p)
    assert max(len(each) for each in found["prediction"].chunks) <= 2
    if K > 10:
        with pytest.raises(ValueError, match="support_many_classes"):
            fit(Z, np.arange(3 * K) % K, support_many_classes=False)


def test_A18_the_shape_is_always_rows_by_classes(fit: Fit, fitreg: Fit, X: np.ndarray, y: np.ndarray) -> None:
    m, r = fit(X, y), fitreg(X, X[:, 0])
    for n in (0, 1, 2, 7):
        assert m.predict_proba(X[:n]).shape == (n, 2) and m.predict(X[:n]).shape == (n,)
        assert m.predict(X[:n]).dtype == m.classes_.dtype
        assert m.predict_logits(X[:n]).shape == (n, 2) and m.transform(X[:n]).shape[0] == n
        out = r.predict(X[:n], ["mean", "quantiles", "draws", "raw_quantiles"], n_draws=3)
        assert [each.shape for each in out.values()] == [(n,), (n, 9), (n, 3), (n, out["raw_quantiles"].shape[1])]


def test_A20_global_options_have_no_effect(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    d = pd.DataFrame(X, columns=list("abcd"))
    want = fit(d, y).predict_proba(d[:3])
    with sklearn.config_context(transform_output="pandas"), pd.option_context("display.precision", 1):
        m = fit(d, y)
        got = m.predict_proba(d[:3])
        assert isinstance(got, np.ndarray) and same(got, want)
        assert list(m.transform(d[:3]).columns) == m.get_feature_names_out().tolist()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_A21_missing_targets_are_refused_with_their_count(fit: Fit, fitreg: Fit, X: np.ndarray, y: np.ndarray, missing: Any) -> None:
    b = np.where(y, "p", "n").astype(object)
    b[0] = b[7] = missing
    with pytest.raises(ValueError, match="2 missing values, the first in row 1"):
        fit(X, b)
    a = X[:, 0].astype(object)
    a[4] = missing
    with pytest.raises(ValueError, match="1 missing value, the first in row 5"):
        fitreg(X, a)
    with pytest.raises(ValueError, match="1 infinite value"):
        fitreg(X, np.r_[np.inf, X[1:, 0]])
    with pytest.raises(ValueError, match="1 missing value, the first in row 5"):
        fit(X, np.ma.masked_array(y, np.arange(40) == 4))
    with pytest.raises(ValueError, match="1 infinite value"):
        fit(X, np.r_[np.inf, y[1:]])


def test_A23_sparse_data_is_a_type_error_at_once(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    m = fit(X, y)
    for make in (scipy.sparse.csr_matrix, scipy.sparse.coo_array, scipy.sparse.dok_matrix):
        with pytest.raises(TypeError, match="toarray"):
            fit(make(X), y)
        with pytest.raises(TypeError, match="toarray"):
            m.predict(make(X[:3]))
    frame = pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(X))
    for ask in (lambda: fit(frame, y), lambda: m.predict(frame)):
        with pytest.raises(TypeError, match="to_dense"):
            ask()


def test_A24_large_offsets(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    Z = np.c_[X, np.random.default_rng(0).integers(1950, 2010, 40)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert np.isfinite(fit(Z, y).predict_proba(Z[:3])).all()
        # an offset of 1e8 leaves 8 of 16 digits, of which the network makes 1e-7 or so
        assert np.allclose(fit(X + 1e8, y).predict_proba(X + 1e8), fit(X, y).predict_proba(X), atol=1e-4)


def test_A25_a_constant_target_comes_back(fitreg: Fit, X: np.ndarray) -> None:
    answers = [fitreg(X, np.full(40, 5000).astype(t)).predict(X[:3]) for t in ("f4", "f8", "i8", "u2", object)]
    for p in answers:
        assert abs(p - 5000).max() < 5 and same(p, answers[0])
    near, far = (fitreg(X, X[:, 0] + shift).predict(X[:3]) for shift in (0.0, 1e9))
    assert abs(far - 1e9 - near).max() < 1e-3, "upstream rounds the target to float32 and is off by 0.09"


def test_A26_many_columns_in_seconds(fit: Fit, small: str, y: np.ndarray) -> None:
    Z = np.random.default_rng(0).normal(size=(30, 1500))
    began = time.monotonic()
    m = fit(Z, y[:30], n_estimators=1, model_path=small)
    assert m.predict(Z[:2]).shape == (2,)
    # the shuffles alone took upstream 8 s; a fit of 45,000 cells on a busy machine of two cores takes most of this
    assert time.monotonic() - began < 60
