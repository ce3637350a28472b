"""Fits the ensemble's members: the numbers of TabICL 2.2.0's EnsembleGenerator to the bit, straight into plain arrays.

Written out rather than taken from fitted upstream objects: upstream's fit needs torch, takes minutes at thousands of
features, and keeps a copy of the training table for each normalisation. `tests/data` holds every number against
upstream's with `==`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sklearn
from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

from tabgrpc.data.errors import UserError
from tabgrpc.data.members import Member, Members
from tabgrpc.data.shuffles import METHODS, draws
from tabgrpc.data.transforms import CLIP, NORM_METHODS, FloatArray, Transform
from tabgrpc.data.yeo_johnson import Logarithms, fit_power

_EPS = 1e-6  # upstream's, added to the first scale and the least deviation of the last


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
    """The members of a training table: those of upstream's EnsembleGenerator for the same arguments, in the order of
    `Members`.

    X: (n, F) float64, finite, as `Schema.encode` gives it. y: (n,) int64 class codes 0..K-1 that all occur, or
    float64 values. The target of a regression is standardised in float64; upstream rounds it to float32 first, which
    loses a target like 1e9 + x (case A25). There may be fewer members than n_estimators where there aren't as many
    different ones. Raises `UserError` for arguments that no ensemble can be made of.
    """
    methods = [norm_methods] if isinstance(norm_methods, str) else list(norm_methods or ("none", "power"))
    _check(n_estimators, methods, feat_shuffle_method, class_shuffle_method)
    if random_state is not None and not 0 <= random_state < 2**32 and any(method.startswith("quantile") for method in methods):
        raise UserError(f"random_state must lie between 0 and 2^32 - 1 for quantile normalisations, not {random_state}")
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
    transforms = {method: fit_transform(kept, method, outlier_threshold, random_state) for method in used}
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
    """Upstream's UniqueFeatureFilter: constant features go, but all stay with one row, and the first stays if all are
    constant."""
    if len(X) <= 1:
        return np.ones(X.shape[1], bool)
    keep = np.asarray(X.min(axis=0) != X.max(axis=0))
    if not keep.any():
        keep[0] = True
    return keep


def fit_transform(X: FloatArray, method: str, outlier_threshold: float, random_state: int | None) -> Transform:
    """Upstream's PreprocessingPipeline fitted on (n, F) float64."""
    with sklearn.config_context(transform_output="default"), np.errstate(all="ignore"):
        mean, scale = np.mean(X, axis=0), np.std(X, axis=0) + _EPS
        scaled = np.clip((X - mean) / scale, -CLIP, CLIP)
        parameters, normalised = _normalise(scaled, method, random_state)
        lower, upper = _outlier_bounds(normalised, outlier_threshold)
    return Transform(method, mean, scale, lower, upper, parameters)


def _normalise(X: FloatArray, method: str, random_state: int | None) -> tuple[Mapping[str, FloatArray], FloatArray]:
    """The parameters of one normalisation of the standardised (n, F), and X under it."""
    if method == "none":
        return {}, X
    if method == "power":
        return _power(X)
    if method == "robust":
        robust = RobustScaler(unit_variance=True)
        normalised = robust.fit_transform(X)
        return {"center": robust.center_, "spread": robust.scale_}, normalised
    if method == "quantile":
        quantile = QuantileTransformer(
            n_quantiles=min(1000, len(X)), output_distribution="normal", random_state=random_state
        )
        normalised = quantile.fit_transform(X)
        return {"quantiles": quantile.quantiles_, "references": quantile.references_}, normalised
    return _quantile_rtdl(X, random_state)


def _power(X: FloatArray) -> tuple[Mapping[str, FloatArray], FloatArray]:
    """scikit-learn's PowerTransformer("yeo-johnson", standardize=True)."""
    rows = len(X)
    mean, variance = np.mean(X, axis=0), np.var(X, axis=0)
    eps = np.finfo(np.float64).eps
    constant = variance <= rows * eps * variance + (rows * mean * eps) ** 2
    powered, lambdas = X.copy(order="K"), np.ones(X.shape[1])
    for place in np.flatnonzero(~constant):
        column = np.ascontiguousarray(X[:, place])
        lambdas[place] = fit_power(column)
        powered[:, place] = Logarithms(column).transform(lambdas[place])
    scaler = StandardScaler(copy=False)
    normalised = scaler.fit_transform(powered)
    found = {"lambdas": lambdas, "center": scaler.mean_, "spread": scaler.scale_}
    return found | {"minimum": X.min(axis=0), "maximum": X.max(axis=0)}, normalised


def _quantile_rtdl(X: FloatArray, random_state: int | None) -> tuple[Mapping[str, FloatArray], FloatArray]:
    """Upstream's RTDLQuantileTransformer and StandardScaler: quantiles of the table with a little seeded noise."""
    quantile = QuantileTransformer(
        n_quantiles=min(max(min(len(X) // 30, 1000), 10), len(X)),
        output_distribution="normal",
        subsample=1_000_000_000,
        random_state=random_state,
    )
    deviation = np.std(X, axis=0, keepdims=True)
    noise = 1e-3 / np.maximum(deviation, 1e-3)
    quantile.fit(X + noise * np.random.default_rng(random_state).standard_normal(X.shape))
    scaler = StandardScaler()
    normalised = scaler.fit_transform(quantile.transform(X))
    found = {"quantiles": quantile.quantiles_, "references": quantile.references_}
    return found | {"center": scaler.mean_, "spread": scaler.scale_}, normalised


def _outlier_bounds(X: FloatArray, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Upstream's OutlierRemover: mean and deviation, again without what lies beyond the first bounds."""
    ddof = 1 if len(X) > 1 else 0

    def bounds(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        center = np.nanmean(values, axis=0)
        spread = threshold * np.maximum(np.nanstd(values, axis=0, ddof=ddof), _EPS)
        return center - spread, center + spread

    lower, upper = bounds(X)
    clean = X.copy()  # C order, as upstream's: the order decides how a mean is summed
    clean[(lower > X) | (upper < X)] = np.nan
    return bounds(clean)
