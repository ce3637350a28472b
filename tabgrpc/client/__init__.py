"""What a user calls: ``Client`` for any pool, ``LocalPool`` for a pool of this process's own. Imports no torch."""

from tabgrpc.client.client import Client
from tabgrpc.client.local import LocalPool

__all__ = ["Client", "LocalPool"]
