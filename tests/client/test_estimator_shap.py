"""``tabicl.shap`` on our estimators, as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("shap")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.fixture
def d(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X[:, :3], columns=["weak", "strong", "none"])


def test_shap_values_add_up_and_find_the_feature(fit: Callable[..., Any], d: pd.DataFrame) -> None:
    """Values of a row sum to its probability less that of a row of missing values; the feature that decides has the largest."""
    from tabicl.shap import get_shap_values

    m = fit(d, (d["strong"] > 0).astype(int), n_estimators=1)
    explained = get_shap_values(m, d[:4])
    assert explained.feature_names == list(d.columns)
    assert explained.values.shape == (4, 3, 2)
    assert np.abs(explained.values.sum(axis=1) + explained.base_values - m.predict_proba(d[:4])).max() < 1e-6
    assert np.abs(explained.values[:, :, 1]).mean(axis=0).argmax() == 1


def test_shap_values_of_a_regressor(fitreg: Callable[..., Any], d: pd.DataFrame) -> None:
    from tabicl.shap import get_shap_values

    r = fitreg(d, 2 * d["strong"].to_numpy() + 5, n_estimators=1)
    explained = get_shap_values(r, d[:4])
    assert np.abs(explained.values.sum(axis=1) + explained.base_values - r.predict(d[:4])).max() < 1e-6 * 10


def test_shapiq_explains_too(fit: Callable[..., Any], d: pd.DataFrame) -> None:
    """``imputer="nan"`` asks for upstream's base class; the imputer itself doesn't, and other imputers don't either."""
    from tabicl.shap import get_shapiq_explainer
    from tabicl.shap._shapiq import _NaNImputer

    X = d.to_numpy()
    m = fit(X, (X[:, 1] > 0).astype(int), n_estimators=1)
    for imputer in (_NaNImputer(m, X, class_index=1), "baseline"):
        found = get_shapiq_explainer(m, X, imputer=imputer, class_index=1, index="SV", max_order=1).explain(X[0], budget=8)
        singles = [abs(found[(feature,)]) for feature in range(3)]
        assert int(np.argmax(singles)) == 1
