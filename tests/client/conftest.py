"""One pool of two workers for all of these tests, and checkpoints that upstream can read too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tabgrpc import LocalPool, TabGRPCClassifier, TabGRPCRegressor
from tabgrpc.backbones.network import TabICL
from tabgrpc.checkpoints import load_checkpoint

SMALL = {"embed_dim": 16, "col_num_blocks": 2, "col_nhead": 2, "col_num_inds": 8, "row_num_blocks": 2, "row_nhead": 2}
SMALL |= {"icl_num_blocks": 3, "icl_nhead": 2}
KINDS = {"classification": "classifier", "regression": "regressor"}


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(2) as started:
        yield started


@pytest.fixture(scope="session")
def upstream_files(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """(weights, task) to a `.ckpt`: "mini" as it is packaged; "small" is quick, and random, so that no zero hides what it multiplies."""
    folder = tmp_path_factory.mktemp("upstream")
    found = {}
    for task, kind in KINDS.items():
        mini = load_checkpoint("mini", task)
        for weights, config, state in (("mini", mini.config, mini.state_dict()), ("small", *_small(kind))):
            path = folder / f"{weights}-{kind}.ckpt"
            torch.save({"config": config, "state_dict": state}, path)
            found[weights, task] = str(path)
    return found


def _small(kind: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """A small network's configuration and random weights."""
    classes = {"max_classes": 10, "num_quantiles": 0} if kind == "classifier" else {"max_classes": 0, "num_quantiles": 99}
    config = {**classes, **SMALL, "row_rope_interleaved": False, "zero_init": False}
    torch.manual_seed(7)
    network = TabICL(**config)
    for name, parameter in network.named_parameters():
        if "freqs" not in name:
            parameter.data.add_(torch.randn_like(parameter) * 0.08)
    return config, network.state_dict()


@pytest.fixture(scope="session")
def small(upstream_files: dict[tuple[str, str], str]) -> str:
    """The small network's classifier, for what doesn't hang on answers that are right."""
    return upstream_files["small", "classification"]


@pytest.fixture(scope="session")
def small_regressor(upstream_files: dict[tuple[str, str], str]) -> str:
    """The same, its regressor."""
    return upstream_files["small", "regression"]


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
