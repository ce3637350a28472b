"""One pool of two workers for all of these tests, and checkpoints that upstream can read too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor
from tabgrpc.checkpoints import load_checkpoint

KINDS = {"classification": "classifier", "regression": "regressor"}


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(2) as started:
        yield started


@pytest.fixture(scope="session")
def upstream_files(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """(weights, task) to a `.ckpt`: "mini" as it is packaged; "perturbed" with no zero left that would hide what it multiplies."""
    folder = tmp_path_factory.mktemp("upstream")
    found = {}
    for task, kind in KINDS.items():
        checkpoint = load_checkpoint("mini", task)
        for weights in ("mini", "perturbed"):
            state, generator = checkpoint.state_dict(), torch.Generator().manual_seed(7)
            if weights == "perturbed":
                state = {
                    name: t + torch.randn(t.shape, generator=generator) * (0.05 if t.ndim < 2 else 0.1 / t.shape[-1] ** 0.5)
                    for name, t in sorted(state.items())  # a file gives them in no order
                }
            path = folder / f"{weights}-{kind}.ckpt"
            torch.save({"config": checkpoint.config, "state_dict": state}, path)
            found[weights, task] = str(path)
    return found


@pytest.fixture
def fit(pool: LocalPool) -> Callable[..., TabGRPCClassifier]:
    """fit(X, y, **parameters) on the shared pool."""

    def fitted(X: Any, y: Any, **more: Any) -> TabGRPCClassifier:
        return TabGRPCClassifier(**{"n_estimators": 2, "model_path": "mini", "pool": pool, **more}).fit(X, y)

    return fitted


@pytest.fixture
def fitreg(pool: LocalPool) -> Callable[..., TabGRPCRegressor]:
    """The same for regression."""

    def fitted(X: Any, y: Any, **more: Any) -> TabGRPCRegressor:
        return TabGRPCRegressor(**{"n_estimators": 2, "model_path": "mini", "pool": pool, **more}).fit(X, y)

    return fitted


@pytest.fixture
def X() -> np.ndarray:
    """(40, 4), the cases' table."""
    return np.random.default_rng(0).normal(size=(40, 4))


@pytest.fixture
def y(X: np.ndarray) -> np.ndarray:
    return (X[:, 0] > 0).astype(int)


@pytest.fixture
def Q(X: np.ndarray) -> np.ndarray:
    """(50, 4) query rows."""
    rng = np.random.default_rng(0)
    rng.normal(size=(40, 4))
    return rng.normal(size=(50, 4))
