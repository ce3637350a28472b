"""Preparation of drawn tables as upstream's ensemble members prepare theirs, from the context rows alone.

Standardise; for the `power` member a Yeo-Johnson transform (the exponent from a grid by maximum likelihood, where
scikit-learn searches) and standardise again; pull values beyond four deviations in logarithmically.
"""

from __future__ import annotations

import torch
from torch import Tensor

EXPONENTS = [-2.02, -1.52, -1.02, -0.52, -0.27, 0.02, 0.23, 0.48, 0.73, 0.98, 1.23, 1.48, 1.73, 2.02, 2.52, 3.02, 4.02]


def prepare(X: Tensor, n: int, power: bool) -> Tensor:
    """X: (b, T, H) raw, the first n rows context -> (b, T, H) as the network is fed."""
    X = torch.where(X[:, :n].std(1, keepdim=True) < 1e-4, torch.randn_like(X), X)  # a constant column is never fed
    X = scale(X, n).clamp(-100, 100)
    if power:
        X = scale(yeo_johnson(X, n), n)
    return pull_in(X, n)


def scale(X: Tensor, n: int) -> Tensor:
    context = X[:, :n]
    return (X - context.mean(1, keepdim=True)) / (context.std(1, keepdim=True, unbiased=False) + 1e-6)


def bend(X: Tensor, exponent: Tensor) -> Tensor:
    """Yeo-Johnson; exponent never 0 or 2, where the formula changes."""
    size = torch.log1p(X.abs())
    right = torch.expm1((exponent * size).clamp(-30, 30)) / exponent
    left = -torch.expm1(((2 - exponent) * size).clamp(-30, 30)) / (2 - exponent)
    return torch.where(X >= 0, right, left)


def yeo_johnson(X: Tensor, n: int) -> Tensor:
    context = X[:, :n]
    growth = (torch.sign(context) * torch.log1p(context.abs())).mean(1)  # (b, H)
    grid = torch.tensor(EXPONENTS, device=X.device)
    likelihood = [-0.5 * torch.log(bend(context, e).var(1) + 1e-12) + (e - 1) * growth for e in grid]
    best = grid[torch.stack(likelihood).argmax(0)]
    # Query rows far outside the context must not overflow.
    low, high = context.amin(1, keepdim=True), context.amax(1, keepdim=True)
    return bend(X.clamp(low - 3, high + 3), best[:, None])


def pull_in(X: Tensor, n: int, threshold: float = 4.0) -> Tensor:
    context = X[:, :n]
    mean, std = context.mean(1, keepdim=True), context.std(1, keepdim=True).clamp(min=1e-6)
    inside = ((context - mean).abs() <= threshold * std).float()
    count = inside.sum(1, keepdim=True).clamp(min=2)
    mean = (context * inside).sum(1, keepdim=True) / count
    std = (((context - mean).square() * inside).sum(1, keepdim=True) / (count - 1)).sqrt().clamp(min=1e-6)
    size = torch.log1p(X.abs())
    X = torch.maximum(X, mean - threshold * std - size)
    return torch.minimum(X, mean + threshold * std + size)
