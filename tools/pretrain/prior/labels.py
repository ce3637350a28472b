"""From clean scores to what a table's target column holds: classes, or noisy values."""

from __future__ import annotations

import torch
from torch import Tensor

from tools.pretrain.prior.chance import choose, coin, fair, integer, spread, standard


def noise_level(like: Tensor, b: int, most: float) -> Tensor:
    """Noise per table (b, 1) relative to a signal of deviation 1; many tables have next to none. most: 0..1 caps it."""
    u = torch.rand(b, 1, device=like.device)
    kind = torch.rand(b, 1, device=like.device)
    level = torch.where(kind < 0.45, 0.02 * u, torch.where(kind < 0.8, 0.8 * u.square(), 0.4 + 1.4 * u))
    return level * most


def from_scores(t: Tensor, C: int, most: float) -> Tensor:
    """t: (b, T, K) standardised scores -> classes (b, T) in 0..C-1. K = C: the largest score wins; else cut t[..., 0]."""
    b, T, K = t.shape
    level = noise_level(t, b, most)
    if K == C and C > 1 and K > 1:
        gumbel = -torch.log(-torch.log(torch.rand_like(t).clamp(1e-6, 1 - 1e-6)))
        bias = torch.randn(b, 1, C, device=t.device) * spread(t, 0.05, 1.0, b, 1, 1)
        return (t + bias + level[..., None] * gumbel).argmax(-1)
    score = t[..., 0] + level * torch.randn(b, T, device=t.device)
    pieces = C if coin(0.7) else C * integer(2, 3)
    share = proportions(t, b, pieces)
    rank = score.argsort(1).argsort(1).float() / T
    piece = (rank[..., None] > share.cumsum(1)[:, None, :-1]).sum(-1)
    order = torch.rand(b, C, device=t.device).argsort(1)
    more = torch.randint(0, C, (b, pieces - C), device=t.device)
    owner = torch.cat([order, more], 1)
    if pieces > C:
        owner = owner.gather(1, torch.rand(b, pieces, device=t.device).argsort(1))
    elif coin(0.3):
        owner = torch.arange(C, device=t.device).expand(b, C)  # grades in order
    return owner.gather(1, piece)


def proportions(like: Tensor, b: int, pieces: int) -> Tensor:
    """Shares (b, pieces) that sum to 1, from even to very uneven."""
    even = choose([50.0, 8.0, 2.0, 0.8])
    gamma = torch._standard_gamma(torch.full((b, pieces), even, device=like.device)) + 0.01
    return gamma / gamma.sum(1, keepdim=True)


def flip(y: Tensor, C: int, most: float) -> Tensor:
    """Give some rows of some tables a random class."""
    b, T = y.shape
    chance = fair(y, 0.25, b, 1) * torch.rand(b, 1, device=y.device) * 0.3 * most
    return torch.where(torch.rand(b, T, device=y.device) < chance, torch.randint_like(y, 0, C), y)


def values(t: Tensor, most: float) -> Tensor:
    """t: (b, T) standardised signal -> target values with noise of some kind and, at times, another marginal."""
    b, T = t.shape
    shape = choose(["normal", "heavy", "uneven"], [6, 2, 2])
    noise = torch.randn_like(t)
    if shape == "heavy":
        noise = noise / (torch.rand_like(t) + 0.15)
    elif shape == "uneven":
        noise = noise * torch.exp(torch.randn(b, 1, device=t.device) * t.clamp(-3, 3) * 0.5)
    y = standard(t + noise_level(t, b, most) * noise)
    marginal = choose(["none", "skewed", "steep", "counts", "floor"], [12, 3, 1, 2, 1])
    if marginal == "skewed":
        y = torch.exp(y.clamp(-4, 4) * spread(y, 0.2, 1.2, b, 1))
    elif marginal == "steep":
        y = torch.sign(y) * y.abs() ** spread(y, 0.5, 2.5, b, 1)
    elif marginal == "counts":
        step = spread(y, 0.1, 0.8, b, 1)
        y = torch.round(y / step) * step
    elif marginal == "floor":
        y = torch.relu(y + torch.randn(b, 1, device=y.device) * 0.5 + 0.5)
    return y
