"""Distributions from quantiles, against upstream's own and against distributions whose every number is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from tabicl._model.quantile_dist import QuantileDistribution

from tabgrpc.backbones.quantiles import at, draws, levels_of, mode, tails


def known(distribution, rows: int = 1, count: int = 999) -> np.ndarray:
    return np.tile(distribution.ppf(levels_of(count)), (rows, 1))


@pytest.mark.parametrize("count", [4, 9, 99, 999])
def test_any_level_is_upstreams(count):
    """Catches a grid that is off by one, a tail with the wrong side or sign, a line drawn between the wrong neighbours.

    Upstream in float64 has its levels from float64's linspace: an ulp off i / (n + 1), of which the tails make a few.
    """
    quantiles = np.sort(np.random.default_rng(count).normal(size=(7, count)) * 3, axis=1)
    levels = np.array([1e-9, 1e-4, 0.004, 0.1, 0.25, 0.5, 0.777, 0.96, 0.9995, 1 - 1e-9])
    upstream = QuantileDistribution(torch.from_numpy(quantiles))
    want = upstream.icdf(torch.from_numpy(levels)).numpy()
    got = at(np.tile(levels, (7, 1)), quantiles, tails(quantiles))
    # few quantiles: upstream rounds its fit of a tail otherwise (a minimum of 1e-6 under a variance of zero)
    assert np.abs(got - want).max() < 1e-9 * np.abs(want).max()


def test_one_quantile_is_a_distribution_too():
    assert mode(np.full((3, 1), 2.5)).tolist() == [2.5] * 3
    assert np.isfinite(draws(np.full((3, 1), 2.5), tails(np.full((3, 1), 2.5)), 5, 0, 0)).all()


@pytest.mark.parametrize(
    ("distribution", "want"),
    [(stats.norm(3, 2), 3.0), (stats.lognorm(0.8), np.exp(-0.64)), (stats.expon(), 0.0)],
    ids=["normal", "lognormal", "exponential"],
)
def test_the_mode_is_where_the_density_is_highest(distribution, want):
    """Within half the width of the interval that holds a tenth. Catches the median or the mean in its place."""
    quantiles = known(distribution)
    got = mode(quantiles)[0]
    assert abs(got - want) < 0.15 * distribution.std()
    if abs(distribution.median() - want) > 0.3 * distribution.std():
        assert abs(got - want) < 0.5 * abs(distribution.median() - want)


def test_draws_follow_the_distribution_and_only_seed_and_row():
    """Kolmogorov and Smirnov's distance of 10,000 draws is over 0.0163 once in a hundred seeds; this seed's is not."""
    distribution = stats.norm(3, 2)
    quantiles = known(distribution, 3)
    scales = tails((quantiles - 3) / 2) * 2
    drawn = draws(quantiles, scales, 10_000, 7, 5)
    for row in drawn:
        assert stats.kstest(row, distribution.cdf).statistic < 0.0163
    assert not np.array_equal(drawn[0], drawn[1])
    assert np.array_equal(draws(quantiles[1:2], scales[1:2], 10_000, 7, 6), drawn[1:2]), "a batch of its own, the same row of the table"
    assert np.array_equal(draws(quantiles, scales, 100, 7, 5), drawn[:, :100])
    assert not np.array_equal(draws(quantiles, scales, 100, 8, 5), drawn[:, :100])
