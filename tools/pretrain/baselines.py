"""The models that the mini checkpoints are held against, and their scores on the suite, kept in baselines.json.

They don't change with the checkpoints and take minutes, so they are computed once for each scikit-learn version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from tools.pretrain.suite import Table

CACHE = Path(__file__).with_name("baselines.json")
Scores = dict[str, dict[str, float]]  # model: metric: mean over folds


def linear(table: Table, model: Any) -> Any:
    """Standardised numbers, one-hot categories."""
    numbers = [c for c in table.X.columns if c not in table.categorical]
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), table.categorical), (StandardScaler(), numbers))
    return make_pipeline(encode, model)


def forest(table: Table, model: Any) -> Any:
    """Categories as codes."""
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    return make_pipeline(make_column_transformer((encoder, table.categorical), remainder="passthrough"), model)


def models(table: Table, classification: bool) -> dict[str, Callable[[], Any]]:
    """Fresh estimators by name; boosting gets its native treatment of categories."""
    boosting = {"categorical_features": "from_dtype", "random_state": 0}
    if classification:
        return {
            "linear": lambda: linear(table, LogisticRegression(max_iter=2000)),
            "forest": lambda: forest(table, RandomForestClassifier(300, random_state=0)),
            "boosting": lambda: HistGradientBoostingClassifier(**boosting),
        }
    return {
        "linear": lambda: linear(table, Ridge()),
        "forest": lambda: forest(table, RandomForestRegressor(300, random_state=0)),
        "boosting": lambda: HistGradientBoostingRegressor(**boosting),
    }


def cached(table: Table, classification: bool, score: Callable[[Callable[[], Any]], dict[str, float]]) -> Scores:
    """The baselines' scores on a table, from the cache where this scikit-learn wrote it, else computed and kept."""
    kept = json.loads(CACHE.read_text(encoding="utf-8")) if CACHE.exists() else {}
    if kept.get("scikit-learn") != sklearn.__version__:
        kept = {"scikit-learn": sklearn.__version__, "scores": {}}
    scores = kept["scores"]
    if table.name not in scores:
        scores[table.name] = {name: score(make) for name, make in models(table, classification).items()}
        CACHE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return scores[table.name]
