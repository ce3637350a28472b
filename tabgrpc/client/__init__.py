"""What a user calls: ``Client`` for any pool, ``LocalPool`` for a pool of this process's own, and the scikit-learn estimators. Imports no
torch, and scikit-learn only with the estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabgrpc.client.client import Client
from tabgrpc.client.local import LocalPool

if TYPE_CHECKING:
    from tabgrpc.client.classifier import TabGRPCClassifier
    from tabgrpc.client.regressor import TabGRPCRegressor
    from tabgrpc.client.shared import shared_pool

__all__ = ["Client", "LocalPool", "TabGRPCClassifier", "TabGRPCRegressor", "shared_pool"]
_MODULES = {"TabGRPCClassifier": "classifier", "TabGRPCRegressor": "regressor", "shared_pool": "shared"}


def __getattr__(name: str) -> Any:
    """The estimators are imported when they are asked for."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"tabgrpc.client.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'tabgrpc.client' has no attribute {name!r}")
