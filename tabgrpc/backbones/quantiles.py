"""A distribution given by its quantiles: any level of it, its mode, numbers drawn from it. numpy, float64, row by row.

As TabICL reads its quantiles: n of them at the levels i / (n + 1), straight lines between them, exponential tails outside, whose scale is
fitted to the outermost quantiles. The ensemble's distribution is the one whose quantile at each level is the members' mean; every statistic
but the variance is that distribution's.
"""

from __future__ import annotations

import numpy as np

_TAIL = 20  # outermost quantiles that a tail is fitted to
_LEAST, _MOST = 0.01, 100.0  # bounds of a tail's scale, of the standardised target
_LEVEL = 1e-6  # levels beyond this, and beyond 1 minus this, are taken for it
_MODE_SHARE = 0.1
MAX_DRAWS = 10_000


def levels_of(count: int) -> np.ndarray:
    """(count,) levels of the network's own quantiles."""
    return np.arange(1, count + 1) / (count + 1)


def tails(quantiles: np.ndarray) -> np.ndarray:
    """(rows, n) ascending quantiles of the standardised target to the scales (rows, 2) of the tails below and above.

    Least squares of the outermost quantiles over log(level), and over log(1 - level).
    """
    count = quantiles.shape[1]
    used = min(_TAIL, count // 4)
    if not used:
        return np.full((len(quantiles), 2), _LEAST)
    logs = np.log(levels_of(count)[:used])
    centred = logs - logs.mean()
    spread = max(float((centred**2).mean()), 1e-6)
    scales = []
    for side in (quantiles[:, :used], quantiles[:, ::-1][:, :used]):
        slope = np.zeros(len(quantiles))
        for place in range(used):
            slope += side[:, place] * centred[place]
        scales.append(np.clip(np.abs(slope / used / spread), _LEAST, _MOST))
    return np.stack(scales, axis=1)


def at(levels: np.ndarray, quantiles: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Values (rows, k) at levels (rows, k) of distributions with quantiles (rows, n) and tails of scales (rows, 2)."""
    count = quantiles.shape[1]
    known = levels_of(count)
    place = levels * (count + 1) - 1
    low = np.clip(np.floor(place), 0, max(count - 2, 0)).astype(np.int64)
    high = np.minimum(low + 1, count - 1)
    share = np.clip(place - low, 0.0, 1.0)
    below, above = np.take_along_axis(quantiles, low, 1), np.take_along_axis(quantiles, high, 1)
    inside = below + share * (above - below)
    left = quantiles[:, :1] + scales[:, :1] * (np.log(np.maximum(levels, _LEVEL)) - np.log(known[0]))
    right = quantiles[:, -1:] - scales[:, 1:] * (np.log(np.maximum(1 - levels, _LEVEL)) - np.log(1 - known[-1]))
    return np.where(levels < known[0], left, np.where(levels > known[-1], right, inside))


def mode(quantiles: np.ndarray) -> np.ndarray:
    """(rows, n) ascending quantiles to (rows,): the middle of the narrowest interval that holds a tenth of the distribution."""
    count = quantiles.shape[1]
    steps = min(max(1, round(_MODE_SHARE * (count + 1))), count - 1)
    if not steps:
        return quantiles[:, 0].copy()
    first = np.argmin(quantiles[:, steps:] - quantiles[:, :-steps], axis=1)
    rows = np.arange(len(quantiles))
    return 0.5 * (quantiles[rows, first] + quantiles[rows, first + steps])


def draws(quantiles: np.ndarray, scales: np.ndarray, count: int, seed: int, first_row: int) -> np.ndarray:
    """(rows, count) numbers drawn from each row's distribution, by the seed and the row's number alone: batches don't matter."""
    levels = np.empty((len(quantiles), count))
    for row in range(len(quantiles)):
        bits = np.random.Philox(key=seed, counter=[0, 0, 0, first_row + row])
        levels[row] = np.random.Generator(bits).random(count)
    return at(levels, quantiles, scales)
