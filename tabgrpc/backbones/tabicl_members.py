"""Fits the ensemble's members with TabICL's own preprocessing (private modules of tabicl 2.2.0) and keeps plain arrays of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sklearn
from sklearn.preprocessing import StandardScaler
from tabicl._sklearn.preprocessing import PreprocessingPipeline

from tabgrpc.data.errors import UserError
from tabgrpc.data.members import Member, Members
from tabgrpc.data.shuffles import METHODS, draws
from tabgrpc.data.transforms import NORM_METHODS, FloatArray, Transform


def fit_members(
    X: FloatArray,
    y: np.ndarray[Any, Any],
    *,
    classification: bool,
    n_estimators: int = 8,
    norm_methods: str | Sequence[str] | None = None,
    feat_shuffle_method: str = "latin",
    class_shuffle_method: str = "shift",
    outlier_threshold: float = 4.0,
    random_state: int | None = 0,
) -> Members:
    """The members of a training table: those of upstream's EnsembleGenerator for the same arguments, in the order of `Members`.

    X: (n, F) float64, finite, as `Schema.encode` gives it. y: (n,) int64 class codes 0..K-1 that all occur, or float64 values. The target of a
    regression is standardised in float64; upstream rounds it to float32 first, which loses a target like 1e9 + x (case A25).
    There may be fewer members than n_estimators where there aren't as many different ones. Raises `UserError` for arguments
    that no ensemble can be made of.
    """
    methods = [norm_methods] if isinstance(norm_methods, str) else list(norm_methods or ("none", "power"))
    _check(n_estimators, methods, feat_shuffle_method, class_shuffle_method)
    X = np.asarray(X, dtype=np.float64)
    keep = _not_constant(X)
    kept = X[:, keep]
    chosen = draws(
        kept.shape[1],
        len(np.unique(y)) if classification else None,
        n_estimators=n_estimators,
        norm_methods=methods,
        feat_shuffle_method=feat_shuffle_method,
        class_shuffle_method=class_shuffle_method,
        seed=random_state,
    )
    members = tuple(
        Member(index, draw.norm_method, draw.feature_shuffle, draw.class_shuffle) for index, draw in enumerate(chosen)
    )
    used = dict.fromkeys(member.norm_method for member in members)
    transforms = {method: _fit_transform(kept, method, outlier_threshold, random_state) for method in used}
    if classification:
        return Members(members, transforms, keep)
    scaler = StandardScaler().fit(np.asarray(y, dtype=np.float64).reshape(-1, 1))
    return Members(members, transforms, keep, float(scaler.mean_[0]), float(scaler.scale_[0]))


def _check(n_estimators: int, methods: Sequence[str], feat_shuffle_method: str, class_shuffle_method: str) -> None:
    if n_estimators < 1:
        raise UserError(f"n_estimators must be at least 1, not {n_estimators}")
    for method in methods:
        if method not in NORM_METHODS:
            raise UserError(f"unknown normalisation {method!r}: use one of {', '.join(NORM_METHODS)}")
    for method in (feat_shuffle_method, class_shuffle_method):
        if method not in METHODS:
            raise UserError(f"unknown shuffle method {method!r}: use one of {', '.join(METHODS)}")


def _not_constant(X: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Upstream's UniqueFeatureFilter: constant features go, but all stay with one row, and the first stays if all are constant."""
    if len(X) <= 1:
        return np.ones(X.shape[1], bool)
    keep = X.min(axis=0) != X.max(axis=0)
    if not keep.any():
        keep[0] = True
    return np.asarray(keep)


def _fit_transform(X: FloatArray, method: str, outlier_threshold: float, random_state: int | None) -> Transform:
    """Fits one upstream pipeline and takes its numbers out of it."""
    with sklearn.config_context(transform_output="default"), np.errstate(all="ignore"):
        pipeline = PreprocessingPipeline(method, outlier_threshold, random_state).fit(X)
    scaler, normalizer, remover = pipeline.standard_scaler_, pipeline.normalizer_, pipeline.outlier_remover_
    found: dict[str, Any] = {}
    if method == "power":
        inner = normalizer._scaler
        found = {"lambdas": normalizer.lambdas_, "center": inner.mean_, "spread": inner.scale_}
        found |= {"minimum": pipeline.X_min_[0], "maximum": pipeline.X_max_[0]}
    elif method == "quantile":
        found = {"quantiles": normalizer.quantiles_, "references": normalizer.references_}
    elif method == "quantile_rtdl":
        inner, last = normalizer[0].normalizer_, normalizer[1]
        found = {"quantiles": inner.quantiles_, "references": inner.references_}
        found |= {"center": last.mean_, "spread": last.scale_}
    elif method == "robust":
        found = {"center": normalizer.center_, "spread": normalizer.scale_}
    plain = {name: np.array(array, dtype=np.float64) for name, array in found.items()}
    return Transform(method, scaler.mean_, scaler.scale_, remover.lower_bounds_, remover.upper_bounds_, plain)
