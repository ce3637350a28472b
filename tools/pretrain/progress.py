"""Small named problems that show what a run has learnt so far. None of them is in the evaluation suite.

Each is a function of a generator and a row count that returns X (rows, columns) and classes, or values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tools.pretrain.prior.prepare import prepare

Table = tuple[NDArray[np.float64], NDArray[np.float64]]
Generator = np.random.Generator


def shell(rng: Generator, rows: int) -> Table:
    """Inside or outside a sphere in six of nine columns."""
    X = rng.normal(size=(rows, 9))
    size = (X[:, :6] ** 2).sum(1)
    return X, (size > np.median(size)).astype(float)


def xor(rng: Generator, rows: int) -> Table:
    X = rng.uniform(-1, 1, (rows, 5))
    return X, (X[:, 0] * X[:, 3] > 0).astype(float)


def checkerboard(rng: Generator, rows: int) -> Table:
    X = rng.uniform(0, 3, (rows, 2))
    return X, (np.floor(X).sum(1) % 2).astype(float)


def spirals(rng: Generator, rows: int) -> Table:
    y, angle = rng.integers(0, 2, rows), rng.uniform(0.5, 2.5, rows) * np.pi
    X = np.c_[np.cos(angle + np.pi * y), np.sin(angle + np.pi * y)] * angle[:, None]
    return X + 0.2 * rng.normal(size=(rows, 2)), y.astype(float)


def blobs(rng: Generator, rows: int) -> Table:
    """Ten classes in forty columns, two overlapping blobs each."""
    centres, at = rng.normal(size=(20, 40)), rng.integers(0, 20, rows)
    return centres[at] + 1.6 * rng.normal(size=(rows, 40)), (at // 2).astype(float)


def rules(rng: Generator, rows: int) -> Table:
    """A depth-three tree over codes and numbers, a tenth of the labels wrong."""
    X = np.c_[rng.integers(0, 5, (rows, 4)), rng.normal(size=(rows, 8))]
    y = np.where(np.isin(X[:, 0], (1, 4)), X[:, 5] > 0.3, (X[:, 6] > 0) ^ (X[:, 1] == 2)).astype(float)
    return X, np.where(rng.uniform(size=rows) < 0.1, 1 - y, y)


def smooth(rng: Generator, rows: int) -> Table:
    X = rng.normal(size=(rows, 6))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)


def stairs(rng: Generator, rows: int) -> Table:
    X = rng.uniform(size=(rows, 8))
    return X, np.floor(4 * X[:, 0]) + 2 * (X[:, 1] > X[:, 2]) + 0.2 * rng.normal(size=rows)


def noisy(rng: Generator, rows: int) -> Table:
    X = rng.normal(size=(rows, 10))
    return X, X[:, 0] + 0.5 * np.abs(X[:, 1]) + 1.2 * rng.normal(size=rows)


CLASSES: list[Callable[[Generator, int], Table]] = [shell, xor, checkerboard, spirals, blobs, rules]
VALUES: list[Callable[[Generator, int], Table]] = [smooth, stairs, noisy]


@torch.no_grad()
def scores(network: nn.Module, classifier: bool, device: torch.device) -> dict[str, float]:
    """Accuracy or R2 over four tables of 600 rows, 400 of them context, per problem; one member, no shuffles."""
    found = {}
    for problem in CLASSES if classifier else VALUES:
        tables = [problem(np.random.default_rng(seed), 600) for seed in range(4)]
        X = prepare(torch.tensor(np.stack([t[0] for t in tables]), dtype=torch.float32, device=device), 400, False)
        y = torch.tensor(np.stack([t[1] for t in tables]), dtype=torch.float32, device=device)
        if not classifier:
            y = (y - y[:, :400].mean(1, keepdim=True)) / y[:, :400].std(1, keepdim=True)
        out = network(X, y[:, :400]).float()
        if classifier:
            found[problem.__name__] = (out.argmax(-1) == y[:, 400:]).float().mean().item()
        else:
            error = (out.mean(-1) - y[:, 400:]).square().mean(1) / y[:, 400:].var(1)
            found[problem.__name__] = 1 - error.mean().item()
    return {name: round(score, 3) for name, score in found.items()}
