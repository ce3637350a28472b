"""Class (a) of the field's cases and X2 to X9, end to end through the estimators: each under its id, with its neighbours."""

from __future__ import annotations

import datetime
import time
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn
import torch

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor
from tabgrpc.client import client, pieces
from tabgrpc.data import DataWarning, read_table

pytestmark = pytest.mark.filterwarnings("ignore::tabgrpc.data.DataWarning")
Fit = Callable[..., Any]


def same(left: Any, right: Any) -> bool:
    """Bit for bit: the same numbers reach the same network."""
    return bool(np.array_equal(left, right))


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


def test_A26_many_columns_in_seconds(fit: Fit, y: np.ndarray, X: np.ndarray) -> None:
    Z = np.random.default_rng(0).normal(size=(30, 1500))
    began = time.monotonic()
    m = fit(Z, y[:30], n_estimators=1)
    assert m.predict(Z[:2]).shape == (2,)
    # the shuffles alone took upstream 8 s; a fit of 45,000 cells on a busy machine of two cores takes most of this
    assert time.monotonic() - began < 60


def test_X2_a_failed_refit_leaves_the_old_model(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    """Whatever the refit fails of: before it is sent, at the pool's schema, at the checkpoint."""
    d = pd.DataFrame(X, columns=list("abcd"))
    m = fit(d, y)
    want, before = m.predict_proba(d), dict(vars(m))
    for bad, t, more in ((X * np.inf, y, {}), (X, y[:-1], {}), (d.assign(a=np.inf), y, {}), (d, y, {"model_path": "/nowhere.ckpt"})):
        with np.errstate(invalid="ignore"), pytest.raises(ValueError):
            m.set_params(**more).fit(bad, t)
        m.set_params(model_path="mini")
        assert dict(vars(m)) == before
        assert same(m.predict_proba(d), want)


def test_X4_X5_files_with_shifted_rows_and_ids(tmp_path: Any, fit: Fit, y: np.ndarray) -> None:
    shifted, ids = tmp_path / "shifted.csv", tmp_path / "ids.csv"
    shifted.write_text("a,y\n1,0,\n2,1,\n3,0,\n")
    with pytest.raises(ValueError, match=r"shifted\.csv"):
        read_table(shifted)
    ids.write_text("zip,n\n" + "".join(f"0050{i % 4},{i}\n" for i in range(40)))
    table = read_table(ids)
    m = fit(table, y)
    with pa.ipc.open_stream(m.model_.data) as sent:
        assert pa.types.is_string(sent.schema.field("zip").type)


def test_X5_whole_numbers_that_floats_would_merge(fit: Fit, y: np.ndarray) -> None:
    big = 2**62 + np.arange(40) % 2
    with pytest.warns(DataWarning, match="ids"):
        m = fit(pd.DataFrame({"id": big}), big % 2)
    assert m.predict(pd.DataFrame({"id": big[:4]})).tolist() == [0, 1, 0, 1]
    n = fit(pd.DataFrame({"id": pd.array(big, dtype="UInt64")}), big % 2)
    assert same(n.predict_proba(pd.DataFrame({"id": big[:4]})), m.predict_proba(pd.DataFrame({"id": big[:4]})))


def test_X6_names_that_clash_or_mix(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    with pytest.raises(ValueError, match="'a'"):
        fit(pd.DataFrame(X, columns=list("abca")), y)
    with pytest.raises(TypeError, match="mixed"):
        fit(pd.DataFrame(X, columns=["a", 1, 2, 3]), y)
    m = fit(pd.DataFrame(X, columns=["target", "target_", "y", "x"]), pd.Series(y, name="y"))
    assert m.predict(pd.DataFrame(X, columns=["target", "target_", "y", "x"])).tolist() == y.tolist()


def test_X7_decimals_are_numbers(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    plain = pd.DataFrame({"d": np.round(X[:, 0], 3), "a": X[:, 1]})
    exact = plain.assign(d=[Decimal(str(value)) for value in plain["d"]])
    with pytest.warns(DataWarning, match="'d'"):
        m = fit(exact, y)
    unseen = pd.DataFrame({"d": [Decimal("1.2345"), Decimal("-9")], "a": [0.0, 0.0]})
    assert same(m.predict_proba(unseen), fit(plain, y).predict_proba(unseen.astype(float)))
    assert not same(*m.predict_proba(unseen))
    assert same(fit(X.astype(str), y).predict_proba(X[:3].astype(str)), fit(X, y).predict_proba(X[:3])), "text of numbers in an array"


def test_X8_mistakes_are_found_before_the_fit(fit: Fit, fitreg: Fit, X: np.ndarray, y: np.ndarray, upstream_files: Any) -> None:
    for bad in (0, -1, 1025):
        with pytest.raises(ValueError, match="n_estimators"):
            fit(X, y, n_estimators=bad)
    with pytest.raises(TypeError, match="n_estimators"):
        fit(X, y, n_estimators=2.5)
    with pytest.raises(ValueError, match="regressor"):
        fit(X, y, model_path=upstream_files["mini", "regression"])
    with pytest.raises(ValueError, match="classifier"):
        fitreg(X, X[:, 0], model_path=upstream_files["mini", "classification"])
    for wrong in ({"norm_methods": "no"}, {"feat_shuffle_method": "no"}, {"outlier_threshold": 0}, {"softmax_temperature": -1}):
        with pytest.raises(ValueError):
            fit(X, y, **wrong)
    old = {"checkpoint_version": "tabicl-classifier-v1-20250208.ckpt", "model_path": None}
    seeds = [{"random_state": seed} for seed in ("x", 2**64, 0.5)]
    for wrong in ({"kv_cache": "no"}, {"device": "tpu"}, old, *seeds, {"random_state": -1, "norm_methods": "quantile"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            fit(X, y, **wrong)


def test_X9_arrays_of_every_make(fit: Fit, X: np.ndarray, y: np.ndarray) -> None:
    m = fit(X, y)
    want = m.predict_proba(X)
    locked = X.copy()
    locked.setflags(write=False)
    wide = np.zeros((80, 8))
    wide[::2, ::2] = X
    makes = [
        X.tolist(), locked, np.asfortranarray(X), wide[::2, ::2], torch.from_numpy(X), X.astype(object), X.astype(">f8"),
        X.astype(np.longdouble), np.ma.masked_array(X), pd.DataFrame(X), pa.table({str(i): X[:, i] for i in range(4)}),
    ]  # fmt: skip
    for made in makes:
        assert same(m.predict_proba(made), want), type(made)
        assert same(fit(made, y).predict_proba(X), want), type(made)
    with pytest.raises(ValueError, match="array must hold numbers"):
        fit(np.array([["a", "b"]] * 40, dtype=object), y)
    with pytest.raises(ValueError, match="Complex"):
        fit(X + 1j, y)
    for one in (X[:, 0], pd.Series(X[:, 0])):
        with pytest.raises(ValueError, match="2D"):
            fit(one, y)
    for kind in (">i4", "g"):
        assert same(fit(X, y.astype(kind)).predict_proba(X), want)


def test_dates_durations_and_times_are_expanded_and_told(fit: Fit, X: np.ndarray) -> None:
    """Not dropped in silence: the month decides here, and every source of the same instants gives the same bits."""
    days = pd.date_range("2020-01-15", periods=40, freq="30D")
    t = (days.month > 6).astype(int)
    d = pd.DataFrame({"when": days, "a": X[:, 0]})
    with pytest.warns(DataWarning, match=r"'when'.*month"):
        m = fit(d, t)
    want = m.predict_proba(d)
    assert (m.predict(d) == t).mean() > 0.9
    objects = days.to_pydatetime().astype(object)
    for other in (days.astype("datetime64[s]"), days.tz_localize("UTC"), objects, days.strftime("%Y-%m-%d")):
        assert same(m.predict_proba(d.assign(when=other)), want)
    seconds = np.arange(40) % 7 * 3.5
    plain = pd.to_timedelta(seconds, unit="s")
    spans = [plain, [datetime.timedelta(seconds=each) for each in seconds], plain.astype("timedelta64[ms]")]
    answers = [fit(pd.DataFrame({"span": span}), seconds > 10).predict_proba(pd.DataFrame({"span": span})) for span in spans]
    assert same(answers[0], answers[1]) and same(answers[1], answers[2])


def test_unseen_categories_and_mixed_columns(fit: Fit, y: np.ndarray) -> None:
    d = pd.DataFrame({"k": ["a", "b", "c", "b"] * 10, "m": [1, "1", True, None] * 10})
    m = fit(d, y)
    unseen = d[:1].assign(k="never")
    assert np.isfinite(m.predict_proba(unseen)).all()
    assert same(m.predict_proba(unseen), m.predict_proba(d[:1].assign(k="other")))
    with pytest.raises(ValueError, match=r"'n', row 2"):
        fit(pd.DataFrame({"n": np.arange(40.0)}), y).predict(pd.DataFrame({"n": [1, "abc"]}))


LABELS = {
    "ints": np.array([3, 7]), "small ints": np.array([3, 7], dtype="u1"), "bools": np.array([False, True]), "text": np.array(["no", "yes"]),
    "objects": np.array(["no", "yes"], dtype=object), "floats": np.array([0.0, 1.0]),
    "nullable ints": pd.array([3, 7], dtype="Int64"), "nullable bools": pd.array([False, True], dtype="boolean"),
    "strings": pd.array(["no", "yes"], dtype="string"), "categories": pd.Categorical(["no", "yes"]),
    "numbers as text": np.array(["10", "9"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_as_they_went_in(fit: Fit, X: np.ndarray, y: np.ndarray, kind: str) -> None:
    labels = LABELS[kind].take(y)
    m = fit(X, labels)
    plain = np.asarray(labels.astype(object)) if not isinstance(labels, np.ndarray) else labels
    got = m.predict(X)
    assert set(got.tolist()) == set(plain.tolist()) and type(got.tolist()[0]) is type(plain.tolist()[0])
    assert (got == plain).mean() > 0.9
    if isinstance(labels, np.ndarray):
        assert got.dtype.kind == labels.dtype.kind and m.classes_.dtype == labels.dtype
    p = m.predict_proba(X)
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-6 and m.classes_.tolist() == sorted(set(plain.tolist()))


def test_the_import_is_all_that_changes(pool: LocalPool) -> None:
    import tabgrpc

    assert tabgrpc.TabGRPCClassifier is TabGRPCClassifier and tabgrpc.TabGRPCRegressor is TabGRPCRegressor
