"""A fitted normalisation as plain arrays, applied row by row: standardise, normalise, clip outliers softly.

The formulas are scikit-learn's and upstream's, operation by operation, in float64, so that the bits are theirs too.
What a row
becomes never depends on other rows: where upstream retries a whole batch after one row overflowed, here that row is
retried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from tabgrpc.data.yeo_johnson import Logarithms

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
NORM_METHODS = ("none", "power", "quantile", "quantile_rtdl", "robust")
CLIP = 100.0  # upstream's CustomStandardScaler clips to this
_BOUND = 1e-7  # scikit-learn's BOUNDS_THRESHOLD
_LOWEST, _HIGHEST = ndtri(_BOUND - np.spacing(1)), ndtri(1 - (_BOUND - np.spacing(1)))
#: The arrays of each normalisation besides mean, scale, lower and upper.
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "power": ("lambdas", "center", "spread", "minimum", "maximum"),
    "quantile": ("quantiles", "references"),
    "quantile_rtdl": ("quantiles", "references", "center", "spread"),
    "robust": ("center", "spread"),
}


@dataclass(frozen=True)
class Transform:
    """One normalisation, fitted.

    mean, scale: float64 (F,), the first standardisation. parameters: `PARAMETERS[method]` by name, float64: lambdas,
    center, spread, minimum, maximum (F,); quantiles (Q, F); references (Q,). lower, upper: float64 (F,), beyond which
    values grow by their logarithm only.
    """

    method: str
    mean: FloatArray
    scale: FloatArray
    lower: FloatArray
    upper: FloatArray
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in PARAMETERS:
            raise ValueError(f"unknown normalisation {self.method!r}: use one of {', '.join(NORM_METHODS)}")
        if set(self.parameters) != set(PARAMETERS[self.method]):
            raise ValueError(
                f"normalisation {self.method!r} needs {PARAMETERS[self.method]}, got {sorted(self.parameters)}"
            )

    def __call__(self, X: FloatArray) -> FloatArray:
        """(n, F) float64, finite -> (n, F) float64."""
        with np.errstate(over="ignore", invalid="ignore"):  # overflows are looked for below
            values = np.clip((X - self.mean) / self.scale, -CLIP, CLIP)
            values = getattr(self, f"_{self.method}")(values)
        values = np.maximum(-np.log1p(np.abs(values)) + self.lower, values)
        return np.asarray(np.minimum(np.log1p(np.abs(values)) + self.upper, values))

    def _none(self, values: FloatArray) -> FloatArray:
        return values

    def _power(self, values: FloatArray) -> FloatArray:
        powered = self._yeo_johnson(values)
        overflowed = ~np.isfinite(powered).all(axis=1)
        if overflowed.any():
            clipped = np.clip(values[overflowed], self.parameters["minimum"], self.parameters["maximum"])
            powered[overflowed] = self._yeo_johnson(clipped)
        return self._standardised(powered)

    def _yeo_johnson(self, values: FloatArray) -> FloatArray:
        columns = zip(values.T, self.parameters["lambdas"].tolist(), strict=True)
        return np.stack(
            [Logarithms(np.ascontiguousarray(column)).transform(power) for column, power in columns], axis=1
        )

    def _quantile(self, values: FloatArray) -> FloatArray:
        """scikit-learn's QuantileTransformer to a normal distribution: interpolate up and down, take the mean, map by
        the normal's inverse."""
        quantiles, references = self.parameters["quantiles"], self.parameters["references"]
        out = np.empty_like(values)
        for place in range(values.shape[1]):
            x, known = np.ascontiguousarray(values[:, place]), quantiles[:, place]
            level = 0.5 * (np.interp(x, known, references) - np.interp(-x, -known[::-1], -references[::-1]))
            level[x + _BOUND > known[-1]] = 1.0
            level[x - _BOUND < known[0]] = 0.0
            out[:, place] = np.clip(ndtri(level), _LOWEST, _HIGHEST)
        return out

    def _quantile_rtdl(self, values: FloatArray) -> FloatArray:
        return self._standardised(self._quantile(values))

    def _robust(self, values: FloatArray) -> FloatArray:
        return self._standardised(values)

    def _standardised(self, values: FloatArray) -> FloatArray:
        return (values - self.parameters["center"]) / self.parameters["spread"]
