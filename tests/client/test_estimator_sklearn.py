"""scikit-learn's own checks and tools on the estimators."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from tabicl import TabICLClassifier

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor

ESTIMATORS = (TabGRPCClassifier, TabGRPCRegressor)
EXPECTED_FAILURES: dict[str, str] = {}  # check to reason; docs/differences.md names the one check that scikit-learn doesn't run here


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scikit_learns_checks(estimator: Any, pool: LocalPool) -> None:
    results = check_estimator(
        estimator(1, model_path="mini", pool=pool), on_fail=None, on_skip=None, expected_failed_checks=EXPECTED_FAILURES
    )
    found = {each["check_name"]: each["status"] for each in results}
    assert len(found) > 40
    wrong = {each["check_name"]: each["exception"] for each in results if each["status"] == "failed"}
    assert not wrong
    assert {name for name, status in found.items() if status == "skipped"} <= {"check_array_api_input"}
    assert {name for name, status in found.items() if status == "xfail"} == set(EXPECTED_FAILURES)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_clone_pickle_and_parameters(estimator: Any, pool: LocalPool, X: np.ndarray) -> None:
    e = estimator(3, norm_methods=["none"], pool=pool, random_state=1)
    assert clone(e).get_params() == e.get_params() and clone(e).pool is pool
    assert pickle.loads(pickle.dumps(estimator(3))).get_params() == estimator(3).get_params()
    assert pickle.loads(pickle.dumps(e)).pool == pool.address, "in another process a pool is its address"
    assert "n_estimators=3" in repr(e)
    with pytest.raises(Exception, match="not fitted"):
        e.predict(X)


def test_fitted_estimators_are_copied_and_pickled(fit: Any, X: np.ndarray, y: np.ndarray) -> None:
    m = fit(X, y)
    want = m.predict_proba(X)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert np.array_equal(other.predict_proba(X), want)


def test_pipelines_searches_and_calibration(pool: LocalPool, X: np.ndarray, y: np.ndarray) -> None:
    m = TabGRPCClassifier(1, model_path="mini", pool=pool)
    pipeline = make_pipeline(StandardScaler(), m)
    assert pipeline.fit(X, y).score(X, y) > 0.9
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.7
    search = GridSearchCV(m, {"n_estimators": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["n_estimators"] in (1, 2)
    assert CalibratedClassifierCV(m, cv=2).fit(X, y).predict_proba(X[:3]).shape == (3, 2)


def test_cross_validation_is_upstreams(pool: LocalPool, X: np.ndarray, upstream_files: dict[tuple[str, str], str]) -> None:
    """The change of one import, as in a user's script; log loss moves with every probability."""
    y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
    path = upstream_files["small", "classification"]
    scores = [
        cross_val_score(each, X, y, cv=3, scoring="neg_log_loss")
        for each in (TabICLClassifier(2, model_path=path, device="cpu"), TabGRPCClassifier(2, model_path=path, pool=pool))
    ]
    assert np.abs(scores[0] - scores[1]).max() < 1e-4 * max(1.0, np.abs(scores[0]).max())  # 5e-5 of probabilities, in logarithms


@pytest.mark.slow
def test_D09_jobs_in_other_processes(X: np.ndarray, y: np.ndarray) -> None:
    """Each process starts a pool of its own; none is left behind (test_estimator_lifetime)."""
    assert len(cross_val_score(TabGRPCClassifier(1, model_path="mini"), X, y, cv=2, n_jobs=2)) == 2


def test_set_output_names_the_embeddings(fit: Callable[..., Any], X: np.ndarray, y: np.ndarray) -> None:
    m = fit(X, y)
    plain = m.transform(X[:5])
    frame = m.set_output(transform="pandas").transform(pd.DataFrame(X[:5]))
    assert isinstance(frame, pd.DataFrame) and frame.columns.tolist() == m.get_feature_names_out().tolist()
    assert np.array_equal(frame.to_numpy(), plain)
    assert np.ptp(plain, axis=0).max() > 0.1


def test_attributes(fit: Callable[..., Any], fitreg: Callable[..., Any], X: np.ndarray, y: np.ndarray) -> None:
    m = fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert (m.n_features_in_, m.n_samples_in_, m.n_classes_) == (4, 40, 2)
    assert m.feature_names_in_.tolist() == list("abcd") and m.classes_.tolist() == [0, 1]
    m.fit(X, y)
    assert not hasattr(m, "feature_names_in_"), "those of an earlier fit"
    assert not hasattr(TabGRPCClassifier(), "classes_") and not hasattr(fitreg(X, X[:, 0]), "classes_")
