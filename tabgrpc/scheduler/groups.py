"""Groups of workers that exchange by collectives: made where they can be, left when they break, made again. gRPC does the work in between.

A group is for the owners of some members of one model version under one epoch. Which path a fit or a tile takes is decided here, and never
changes a bit: ``auto`` takes collectives where all owners are on one machine (or told of a network that is trusted) and the group can be
made; ``grpc`` never; ``collective`` is ``auto`` with an error where the workers can't have a group at all.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tabgrpc.core.geometry import Geometry
from tabgrpc.internal.v1 import exchange_pb2 as pb
from tabgrpc.internal.v1.exchange_pb2_grpc import ExchangeServiceStub
from tabgrpc.scheduler.calls import Scope, unary
from tabgrpc.wire.errors import NotReady, ServiceError, Unavailable

if TYPE_CHECKING:
    from tabgrpc.scheduler.models import Placement
    from tabgrpc.scheduler.workers import Worker

logger = logging.getLogger("tabgrpc")

EXCHANGES = ("auto", "grpc", "collective")
JOIN_SECONDS = 20.0
COLLECTIVE_SECONDS = 120.0
_AGAIN_SECONDS = (5.0, 300.0)
_CALL_SECONDS = 10.0
FITS_AT_ONCE, ROUNDS_AT_ONCE = 2, 4
"""Jobs of all groups together. On a GPU every job at work may hold a collective's kernel, and only so many fit beside the computing."""


class GroupLost(Unavailable):
    """The group is broken; what was asked of it is to be asked over gRPC."""


@dataclass
class Exchanged:
    """What a group has exchanged so far, summed over its workers: jobs, collectives, bytes received, seconds of only waiting."""

    jobs: int = 0
    collectives: int = 0
    nbytes: int = 0
    waiting: float = 0.0


@dataclass(eq=False)
class Group:
    """Workers in the order of their ranks, joined."""

    name: str
    placement: Placement
    shards_name: str
    workers: tuple[Worker, ...]
    backend: str
    lost: str = ""
    exchanged: Exchanged = field(default_factory=Exchanged)
    on_loss: list[Callable[[], None]] = field(default_factory=list)
    _turn: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take_turn(self) -> int:
        """The number of the next job. Whoever takes it must ask every worker to run it, or lose the group."""
        with self._lock:
            self._turn += 1
            return self._turn - 1

    def stub(self, worker: Worker) -> ExchangeServiceStub:
        """The exchange service of a worker."""
        return ExchangeServiceStub(worker.channel)

    def count(self, answers: Iterable[pb.Exchanged]) -> None:
        """Adds up what a job has exchanged."""
        with self._lock:
            self.exchanged.jobs += 1
            for answer in answers:
                self.exchanged.collectives += answer.collectives
                self.exchanged.nbytes += answer.bytes
                self.exchanged.waiting += answer.seconds_waiting


@dataclass(eq=False)
class _Place:
    """Where a group is or could be."""

    group: Group | None = None
    failures: int = 0
    again: float = 0.0
    making: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wait_longer(self) -> None:
        """No new group for a while, longer each time: what breaks groups again and again is better left to gRPC."""
        first, last = _AGAIN_SECONDS
        self.again = time.monotonic() + min(first * 2**self.failures, last)
        self.failures += 1


_Key = tuple[str, int, tuple[str, ...]]


class Groups:
    """All groups of a pool."""

    def __init__(self, exchange: str = "auto") -> None:
        """exchange: one of EXCHANGES. Raises ValueError for another."""
        if exchange not in EXCHANGES:
            raise ValueError(f"exchange {exchange!r} is none of {', '.join(EXCHANGES)}")
        self.exchange = exchange
        self.fits = threading.Semaphore(FITS_AT_ONCE)
        self.rounds = threading.Semaphore(ROUNDS_AT_ONCE)
        self._places: dict[_Key, _Place] = {}
        self._peers: dict[str, pb.GetPeerResponse] = {}
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False

    def opened(
        self, shards_name: str, placement: Placement, owners: Sequence[str], geometry: Geometry, seconds: float = COLLECTIVE_SECONDS
    ) -> Group | None:
        """The group of some owners, made if there is none; None where there can't be one, or not now.

        seconds: that a collective may take, the others' delay included. Raises NotReady if collectives are demanded and can't be had.
        """
        if self.exchange == "grpc" or len(owners) < 2:
            return None
        workers = [placement.workers[name] for name in owners]
        place = self._place((shards_name, placement.map.epoch, tuple(owners)))
        with place.lock:
            if place.group is not None and not place.group.lost:
                return place.group
            if self._closed or time.monotonic() < place.again:
                return None
            try:
                backend, trusted = self._terms(workers)
                place.group = self._made(shards_name, placement, workers, geometry, backend, trusted, seconds)
            except NotReady as error:
                if self.exchange == "collective":
                    raise
                self._tell(f"{error}; gRPC is used")
                place.again = float("inf")
                return None
            except ServiceError as error:
                place.wait_longer()
                logger.warning("no group for %s, gRPC is used: %s", shards_name, error)
                return None
            return place.group

    def ready(self, shards_name: str, placement: Placement, owners: Sequence[str], geometry: Geometry) -> Group | None:
        """The group of some owners if it is there. If not it is made meanwhile; only with ``collective`` does who asks first wait."""
        if self.exchange == "grpc" or len(owners) < 2:
            return None
        place = self._place((shards_name, placement.map.epoch, tuple(owners)))
        group = place.group
        if group is not None and not group.lost:
            return group
        if self.exchange == "collective":
            return self.opened(shards_name, placement, owners, geometry)
        with self._lock:
            if place.making or time.monotonic() < place.again:
                return None
            place.making = True

        def make() -> None:
            try:
                self.opened(shards_name, placement, owners, geometry)
            finally:
                place.making = False

        threading.Thread(target=make, name="group", daemon=True).start()
        return None

    def used(self, shards_name: str) -> str:
        """What a model version's owners exchange by now: "gloo", "nccl" or "grpc"."""
        with self._lock:
            found = [place.group for key, place in self._places.items() if key[0] == shards_name]
        return next((group.backend for group in found if group is not None and not group.lost), "grpc")

    def find(self, shards_name: str) -> list[Group]:
        """The groups of a model version, broken ones included."""
        with self._lock:
            return [place.group for key, place in self._places.items() if key[0] == shards_name and place.group is not None]

    # --- ends ---

    def lose(self, group: Group, reason: str) -> None:
        """Gives a group up; its workers are told, so that none waits for another."""
        with group._lock:
            if group.lost:
                return
            group.lost = reason
            told = list(group.on_loss)
        with self._lock:
            for place in self._places.values():
                if place.group is group:
                    place.wait_longer()
        logger.warning("group %s of %s is lost, gRPC goes on: %s", group.name, group.shards_name, reason)
        for callback in told:
            callback()
        self._leave(group.name, group.workers)

    def lost_worker(self, incarnation: str) -> None:
        """Gives up all groups of a worker."""
        for group in self._all():
            if any(worker.incarnation == incarnation for worker in group.workers):
                self.lose(group, f"worker {incarnation[:8]} is lost")

    def forget(self, shards_name: str, before: int | None = None) -> None:
        """Leaves the groups of a model version, or of its epochs before one."""
        with self._lock:
            keys = [key for key in self._places if key[0] == shards_name and (before is None or key[1] < before)]
            groups = [place.group for place in map(self._places.pop, keys) if place.group is not None]
        for group in groups:
            if not group.lost:
                group.lost = "no longer needed"
                for callback in group.on_loss:
                    callback()
                self._leave(group.name, group.workers)

    def close(self) -> None:
        """No more groups; workers needn't be told, they end."""
        self._closed = True
        for group in self._all():
            group.lost = group.lost or "the pool is closing"
            for callback in group.on_loss:
                callback()

    # --- making one ---

    def _place(self, key: _Key) -> _Place:
        with self._lock:
            known = key in self._places
            place = self._places.setdefault(key, _Place())
        if not known:
            self.forget(key[0], before=key[1])
        return place

    def _all(self) -> list[Group]:
        with self._lock:
            return [place.group for place in self._places.values() if place.group is not None]

    def _terms(self, workers: Sequence[Worker]) -> tuple[str, bool]:
        """(backend, over a trusted network) for a group of workers. Raises NotReady, saying why they can't have one."""
        peers = []
        for worker in workers:
            if worker.incarnation not in self._peers:
                answer = unary(ExchangeServiceStub(worker.channel).GetPeer, pb.GetPeerRequest(), Scope(_CALL_SECONDS))
                self._peers[worker.incarnation] = answer
            peers.append(self._peers[worker.incarnation])
        backends = {peer.backend for peer in peers}
        if backends not in ({"gloo"}, {"nccl"}):
            raise NotReady(f"the workers have no common backend for collectives: {', '.join(sorted(each or 'none' for each in backends))}")
        shared = [peer.accelerator for peer in peers if peer.accelerator]
        if len(set(shared)) < len(shared):
            raise NotReady("some of the workers compute on the same GPU")
        same = len({peer.machine for peer in peers}) == 1
        if not same and not all(peer.trusted_host for peer in peers):
            raise NotReady("the workers are on several machines and were not told of a trusted network between them (--trusted-network)")
        return backends.pop(), not same

    def _made(
        self,
        shards_name: str,
        placement: Placement,
        workers: Sequence[Worker],
        geometry: Geometry,
        backend: str,
        trusted: bool,
        seconds: float,
    ) -> Group:
        from tabgrpc.scheduler.placing import owned

        name = uuid.uuid4().hex[:12]
        scope = Scope(JOIN_SECONDS + _CALL_SECONDS)
        members = [pb.GroupMember(shards=owned(placement.map, worker, geometry)) for worker in workers]
        try:
            meeting = unary(
                ExchangeServiceStub(workers[0].channel).OpenGroup,
                pb.OpenGroupRequest(ref=placement.ref(shards_name, workers[0]), group=name, trusted_network=trusted),
                scope,
            )

            def join(rank: int) -> None:
                request = pb.JoinGroupRequest(
                    ref=placement.ref(shards_name, workers[rank]),
                    group=name,
                    rank=rank,
                    size=len(workers),
                    host=meeting.host,
                    port=meeting.port,
                    trusted_network=trusted,
                    join_seconds=JOIN_SECONDS,
                    collective_seconds=seconds,
                    members=members,
                )
                unary(ExchangeServiceStub(workers[rank].channel).JoinGroup, request, scope)

            with ThreadPoolExecutor(len(workers)) as threads:
                list(threads.map(join, range(len(workers))))
        except ServiceError:
            self._leave(name, workers)
            raise
        return Group(name, placement, shards_name, tuple(workers), backend)

    @staticmethod
    def _leave(name: str, workers: Sequence[Worker]) -> None:
        """Has workers leave a group; whoever doesn't answer is dead or finds out by itself."""

        def leave(worker: Worker) -> None:
            with suppress(ServiceError):
                unary(ExchangeServiceStub(worker.channel).LeaveGroup, pb.LeaveGroupRequest(group=name), Scope(_CALL_SECONDS))

        for worker in workers:
            threading.Thread(target=leave, args=[worker], name="leave", daemon=True).start()

    def _tell(self, message: str) -> None:
        """Says something once."""
        with self._lock:
            new = message not in self._told
            self._told.add(message)
        if new:
            logger.info("%s", message)
