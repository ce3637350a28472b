"""The Yeo-Johnson power of a column by maximum likelihood (Biometrika 87, 2000), to the bits of scikit-learn's and
scipy 1.17's.

scipy checks and wraps its arguments at every evaluation of the likelihood, 20 times the cost of a short column (30 s
for 1,500 columns of 30 rows), and takes the logarithms again each time; here they are taken once. `tests/data`
compares the results with `==`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import fminbound

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
_INFO = np.finfo(np.float64)
_TOLERANCE = 1.48e-08  # of the power, scipy's


class Logarithms:
    """log1p of the magnitudes of a column's positive (and zero) and negative cells: all that the transform needs of
    it."""

    def __init__(self, x: FloatArray) -> None:
        self.positive = x >= 0  # bool (n,)
        self.up = np.log1p(x[self.positive])
        self.down = np.log1p(-x[~self.positive])

    def transform(self, power: float) -> FloatArray:
        """(n,) the column under `power`; a cell that overflows is infinite."""
        out = np.empty(len(self.positive))
        out[self.positive] = self.up if abs(power) < _INFO.eps else np.expm1(power * self.up) / power
        out[~self.positive] = (
            -np.expm1((2 - power) * self.down) / (2 - power) if abs(power - 2) > _INFO.eps else -self.down
        )
        return out


def fit_power(x: FloatArray) -> float:
    """The likeliest power for (n,) finite float64 cells, within bounds that keep the variance from overflowing."""
    if np.all(x == 0):
        return 1.0
    logarithms = Logarithms(x)
    jacobian = np.sum(np.sign(x) * np.log1p(np.abs(x)))

    def negative_likelihood(power: float) -> float:
        variance = np.var(logarithms.transform(power))
        if not variance >= _INFO.smallest_normal:
            return np.inf  # everything on one point: no answer, however likely
        likelihood = -len(x) / 2 * np.log(variance) + (power - 1) * jacobian
        return float(np.inf if np.isinf(likelihood) else -likelihood)

    largest = np.log1p(20 * np.max(np.abs(x)))  # room for later cells up to 20 times as large
    low = (np.log(_INFO.tiny) - np.log(_INFO.eps)) / 2 / largest
    high = (np.log(_INFO.max) + np.log(_INFO.eps)) / 2 / largest
    if np.all(x < 0):
        low, high = 2 - high, 2 - low
    elif np.any(x < 0):
        low, high = max(2 - high, low), min(2 - low, high)
    return float(fminbound(negative_likelihood, low, high, xtol=_TOLERANCE))
