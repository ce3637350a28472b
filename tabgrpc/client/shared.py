"""Which pool an estimator's calls go to: its own address, a running pool, or the one local pool that this process shares."""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from tabgrpc.client.client import Client
from tabgrpc.wire.errors import NotFound, ServiceError

if TYPE_CHECKING:
    from tabgrpc.client.local import LocalPool

_DELETE_SECONDS = 10.0


class Connection:
    """A client of one pool, and how many estimators of this process use each of its models: the last one deletes it."""

    def __init__(self, address: str) -> None:
        self.client = Client(address)
        self._pid = os.getpid()
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._left: deque[str] = deque()
        self._fitting: WeakValueDictionary[str, Any] = WeakValueDictionary()

    def alone(self, model: str) -> Any:
        """A lock under which one thread at a time fits or loads a model."""
        with self._lock:
            return self._fitting.setdefault(model, threading.RLock())

    def hold(self, model: str) -> None:
        """One user more."""
        with self._lock:
            self._users[model] += 1

    def held(self, model: str) -> bool:
        """Whether an estimator of this process uses a model."""
        with self._lock:
            return self._users[model] > 0

    def leave(self, model: str) -> None:
        """One user less, from a finaliser: nothing but a note is made, since a call could wait for a lock that is held below it."""
        self._left.append(model)

    def tidy(self) -> None:
        """Deletes the models that were left by their last users. In a forked child nothing: its parent uses them still."""
        if self._pid != os.getpid():
            return
        busy = []
        with suppress(IndexError):
            while True:
                model = self._left.popleft()
                with self._lock:
                    self._users[model] -= 1
                if not self._delete_unused(model):
                    busy.append(model)
        with self._lock:
            self._users.update(busy)
        self._left.extend(busy)

    def _delete_unused(self, model: str) -> bool:
        """Deletes a model that nobody uses. False, and nothing done, while a thread fits or loads it, who will be its user."""
        lock = self.alone(model)
        if not lock.acquire(blocking=False):
            return False
        try:
            with self._lock:
                if self._users[model] > 0:
                    return True
                del self._users[model]
            with suppress(ServiceError):  # the pool may have ended, or dropped it by itself
                self.client.delete(model)
        finally:
            lock.release()
        return True

    def serves(self, model: str) -> bool:
        """Whether the pool has the model ready, not only its files."""
        try:
            return self.client.model(model).loaded
        except NotFound:
            return False


class Pools:
    """This process's shared local pools, one for each kind of device, and its connections. A forked child has none of its parent's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._local: dict[str, LocalPool] = {}
        self._connections: dict[str, Connection] = {}

    def local(self, device: str) -> LocalPool:
        """The shared pool of a device ("auto", "cpu", "cuda"), started by the first who asks, stopped at interpreter exit."""
        from tabgrpc.client.local import LocalPool

        with self._lock:
            self._own()
            pool = self._local.get(device)
            if pool is None or pool.closed:
                pool = self._local[device] = LocalPool(device=device)
            return pool

    def connection(self, address: str) -> Connection:
        """The connection to a pool."""
        with self._lock:
            self._own()
            if address not in self._connections:
                self._connections[address] = Connection(address)
            return self._connections[address]

    def _own(self) -> None:
        if self._pid != os.getpid():
            self._pid, self._local, self._connections = os.getpid(), {}, {}


_POOLS = Pools()  # the process's, which is what "started once and shared in the process" means


def connection_of(pool: LocalPool | str | None, device: str = "auto") -> Connection:
    """pool: a running pool, an address ("host:port", "unix:/path"), or None for the shared local one. Raises TypeError for others."""
    if pool is None:
        pool = _POOLS.local(device)
    if not isinstance(pool, str) and not hasattr(pool, "address"):
        raise TypeError(f"pool must be an address, a LocalPool or None, not {pool!r}")
    return _POOLS.connection(pool if isinstance(pool, str) else pool.address)


def store_of(pool: LocalPool | str | None, device: str = "auto") -> str | None:
    """The directory of a pool's models, where it is a pool of this process's own."""
    if pool is None:
        pool = _POOLS.local(device)
    return None if isinstance(pool, str) else str(pool.store)


def shared_pool(device: str = "auto") -> LocalPool:
    """The local pool that estimators without ``pool=`` share in this process; starts it if there is none yet."""
    return _POOLS.local(device)
