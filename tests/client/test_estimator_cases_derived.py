"""Cases X2 to X9 end to end through the estimators, dates, unseen categories and labels."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from bits import same

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor
from tabgrpc.data import DataWarning, read_table

pytestmark = pytest.mark.filterwarnings("ignore::tabgrpc.data.DataWarning")
Fit = Callable[..., Any]


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
    with pytest.raises(TypeError, match="pool must be"):
        fit(X, y, pool=7)
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
