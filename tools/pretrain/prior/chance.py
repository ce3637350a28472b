"""Random choices. The host picks what fixes shapes and code paths, the device picks what varies within a batch.

No function here waits for the device, so that the next batch is made while the step before it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


def coin(p: float) -> bool:
    """True with probability p (host)."""
    return torch.rand(()).item() < p


def integer(low: int, high: int) -> int:
    """Uniform in low..high, both included (host)."""
    return int(torch.randint(low, high + 1, ()).item())


def uniform(low: float, high: float) -> float:
    return low + (high - low) * torch.rand(()).item()


def choose(items: Sequence[Item], weights: Sequence[float] | None = None) -> Item:
    """One of `items`, by weight (host)."""
    chances = torch.ones(len(items)) if weights is None else torch.tensor(weights, dtype=torch.float)
    return items[int(torch.multinomial(chances, 1).item())]


def fair(like: Tensor, p: float, *shape: int) -> Tensor:
    """0/1 floats of `shape`, 1 with probability p, on the device of `like`."""
    return (torch.rand(shape, device=like.device) < p).float()


def spread(like: Tensor, low: float, high: float, *shape: int) -> Tensor:
    """Log-uniform in low..high, on the device of `like`."""
    return torch.exp(torch.empty(shape, device=like.device).uniform_(0, 1) * math.log(high / low)) * low


def standard(x: Tensor, dim: int = 1) -> Tensor:
    """x with mean 0 and deviation 1 along `dim`; a constant becomes 0."""
    mean = x.mean(dim, keepdim=True)
    return (x - mean) / (x.std(dim, keepdim=True) + 1e-4)


def pick(weights: Tensor, count: int) -> Tensor:
    """Columns drawn with replacement by weight. weights: (b, H) >= 0 -> (b, count) indices."""
    noise = torch.rand(weights.shape[0], count, weights.shape[1], device=weights.device)
    gumbel = -torch.log(-torch.log(noise.clamp(1e-9, 1 - 1e-7)))
    return (torch.log(weights[:, None] + 1e-9) + gumbel).argmax(-1)


def take(Z: Tensor, columns: Tensor) -> Tensor:
    """Z: (b, T, H), columns: (b, J) -> (b, T, J)."""
    return Z.gather(2, columns[:, None].expand(-1, Z.shape[1], -1))
