"""Cases A01 to A15 of the field end to end through the estimators: features of every kind, each under its id, with its neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from bits import same

from tabgrpc.data import DataWarning

pytestmark = pytest.mark.filterwarnings("ignore::tabgrpc.data.DataWarning")
Fit = Callable[..., Any]


def test_A01_missing_numbers_in_arrays_and_frames(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    X[3, 1] = np.nan
    Q = X[:3].copy()
    Q[0, 0] = np.nan
    m, n = fit(X, y), fit(pd.DataFrame(X), y)
    assert np.isfinite(m.predict_proba(Q)).all()
    assert same(m.predict_proba(Q), n.predict_proba(pd.DataFrame(Q)))
    assert np.isfinite(m.predict_proba(np.full((2, 4), np.nan))).all()


def test_A02_a_column_without_values_has_no_influence(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    X[:, 3] = np.nan
    with pytest.warns(DataWarning, match="'3'"):
        m = fit(X, y)
    Q, R = X[:3].copy(), X[:3].copy()
    R[:, 3] = [1, -7, 1e6]
    assert same(m.predict_proba(Q), m.predict_proba(R))
    texts = pd.DataFrame({"a": X[:, 0], "gone": pd.array([None] * 40, dtype="string")})
    n = fit(texts, y)
    assert same(n.predict_proba(texts[:3]), n.predict_proba(texts[:3].assign(gone=["x", "y", "z"])))


def test_A05_constant_features(fit: Fit, y: np.ndarray) -> None:
    with pytest.warns(DataWarning, match="constant"):
        m = fit(np.ones((40, 4)), y)
    p = m.predict_proba(np.ones((3, 4)))
    assert p.shape == (3, 2) and np.ptp(p, axis=0).max() < 1e-6 and np.isfinite(p).all()
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-6
    assert np.abs(p[0] - np.bincount(y) / 40).max() < 0.2, "near the prior"


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_A06_every_missing_value_is_the_same(fit: Fit, X: np.ndarray, y: np.ndarray, dtype: str) -> None:
    answers = []
    for na in (pd.NA, None, np.nan):
        d = pd.DataFrame({"s": pd.Series(["a", "b", na, "d"] * 10, dtype=object).astype(dtype), "n": X[:, 0]})
        answers.append(fit(d, y).predict_proba(d[:5]))
    assert same(answers[0], answers[1]) and same(answers[1], answers[2])


@pytest.mark.parametrize("holes", [False, True])
def test_A07_nullable_types_are_their_plain_equivalents(fit: Fit, y: np.ndarray, holes: bool) -> None:
    d = pd.DataFrame(
        {
            "i": pd.array(range(40), dtype="Int64"),
            "b": pd.array([True, False] * 20, dtype="boolean"),
            "f": pd.array(np.arange(40) / 7, dtype="Float64"),
            "s": pd.array(["x", "y", "z", "y"] * 10, dtype="string"),
        }
    )
    if holes:
        d.loc[0, "i"], d.loc[1, "b"], d.loc[2, "s"], d.loc[3, "f"] = pd.NA, pd.NA, pd.NA, pd.NA
    plain = pd.DataFrame(
        {
            "i": d["i"].to_numpy(np.float64, na_value=np.nan),
            "b": d["b"].astype(object),
            "f": d["f"].to_numpy(np.float64, na_value=np.nan),
            "s": d["s"].astype(object),
        }
    )
    arrow = d.convert_dtypes(dtype_backend="pyarrow")
    m = fit(d, y)
    want = m.predict_proba(d[:4])
    assert same(fit(plain, y).predict_proba(plain[:4]), want)
    assert same(fit(arrow, y).predict_proba(arrow[:4]), want)
    table = pa.Table.from_pandas(d, preserve_index=False)
    assert same(fit(table, y).predict_proba(table.slice(0, 4)), want)
    assert same(m.predict_proba(plain[:4]), want), "another dtype at predict, the same values"


def test_A08_booleans_are_used(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    d = pd.DataFrame({"a": X[:, 0], "b": y.astype(bool)})
    m = fit(d, y)
    q = d[:3].copy()
    p = m.predict_proba(q)
    q["b"] = ~q["b"]
    assert not np.allclose(p, m.predict_proba(q))
    only = pd.DataFrame({"b": y.astype(bool), "c": X[:, 1] > 0})
    assert fit(only, y).predict(only).tolist() == y.tolist()
    assert fit(only.to_numpy(), y).predict(only.to_numpy()).tolist() == y.tolist()


def test_A10_columns_are_found_by_name(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    d = pd.DataFrame(X, columns=list("abcd"))
    m = fit(d, y)
    assert same(m.predict_proba(d[list("dcba")]), m.predict_proba(d))
    e = pd.DataFrame(X)
    n = fit(e, y)
    assert same(n.predict_proba(e[[3, 2, 1, 0]]), n.predict_proba(e))
    places = fit(X, y)
    assert same(places.predict_proba(e[[3, 2, 1, 0]]), places.predict_proba(X)), "an array's places are integer names"
    assert same(places.predict_proba(e.rename(columns=lambda name: name + 7)), places.predict_proba(X)), "other names are none of them"
    assert m.feature_names_in_.tolist() == list("abcd") and not hasattr(n, "feature_names_in_")
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert same(m.predict_proba(X), m.predict_proba(d))


def test_A11_missing_columns_are_listed_and_others_ignored(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    d = pd.DataFrame(X, columns=list("abcd"))
    m = fit(d, pd.Series(y, name="y"))
    with pytest.raises(ValueError, match="'d'"):
        m.predict(d[["a", "b", "c"]])
    with pytest.raises(ValueError, match="3 features"):
        m.predict(X[:, :3])
    with pytest.warns(DataWarning, match="'e'"):
        assert same(m.predict_proba(d.assign(e=1)), m.predict_proba(d))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(m.predict_proba(d.assign(y=1 - y)), m.predict_proba(d)), "the target is never a feature, nor worth a warning"


def test_A13_everything_by_feature_is_in_the_users_order(fit: Fit, X: np.ndarray) -> None:
    """Permutation importance, of a table whose category stands second and is encoded first."""
    from sklearn.inspection import permutation_importance

    rng = np.random.default_rng(0)
    d = pd.DataFrame({"num": X[:, 0], "cat": rng.choice(["u", "v"], 40), "num2": X[:, 1]})
    t = (d["num"] > 0).astype(int).to_numpy()
    m = fit(d, t)
    assert m.feature_names_in_.tolist() == ["num", "cat", "num2"]
    assert permutation_importance(m, d, t, n_repeats=2, random_state=0).importances_mean.argmax() == 0


def test_A14_half_floats_are_their_values(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    h = (X * 6e4 / abs(X).max()).astype(np.float16)
    m = fit(h, y)
    assert same(m.predict_proba(h[:3]), fit(h.astype("f4"), y).predict_proba(h[:3].astype("f4")))
    with pa.ipc.open_stream(m.model_.data) as sent:
        assert sent.schema.field("0").type == pa.float16(), "the wire keeps the dtype"


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 1e200])
def test_A15_infinities_are_refused_by_name(fit: Fit, X: np.ndarray, y: np.ndarray, bad: float) -> None:
    m = fit(X, y)
    Q = X[:5].copy()
    Q[2, 1] = bad
    with pytest.raises(ValueError, match=r"'1'.*1 value.*row 3"):
        m.predict_proba(Q)
    with pytest.raises(ValueError, match=r"'1'.*1 value.*row 3"):
        fit(np.where(X[2, 1] == X, bad, X), y)
    Q[2] = 1e30
    rest = [0, 1, 3, 4]
    assert same(m.predict_proba(Q)[rest], m.predict_proba(X[:5])[rest]), "an odd row changes no other"
