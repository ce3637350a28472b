"""tabgrpc: one in-context tabular model over a pool of workers, with the same bits however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tabgrpc.client import Client, LocalPool

__version__ = "0.1.0"
__all__ = ["Client", "LocalPool", "__version__"]


def __getattr__(name: str) -> Any:
    """Client and LocalPool are imported when they are asked for, so that ``import tabgrpc`` costs nothing."""
    if name in ("Client", "LocalPool"):
        from tabgrpc import client

        return getattr(client, name)
    raise AttributeError(f"module 'tabgrpc' has no attribute {name!r}")
