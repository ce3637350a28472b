"""tabgrpc: one in-context tabular model over a pool of workers, with the same bits however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tabgrpc.client import Client, LocalPool, TabGRPCClassifier, TabGRPCRegressor, shared_pool

__version__ = "0.1.0"
__all__ = ["Client", "LocalPool", "TabGRPCClassifier", "TabGRPCRegressor", "__version__", "shared_pool"]


def __getattr__(name: str) -> Any:
    """All but the version is imported when it is asked for, so that ``import tabgrpc`` costs nothing."""
    if name in __all__:
        from tabgrpc import client

        return getattr(client, name)
    raise AttributeError(f"module 'tabgrpc' has no attribute {name!r}")
