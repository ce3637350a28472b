"""The workers of the pool, by slot: who serves there now. A lost local worker is replaced; an attached one is waited for."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import grpc

from tabgrpc.core.policy import NumericPolicy
from tabgrpc.internal.v1 import shards_pb2 as pb
from tabgrpc.internal.v1.shards_pb2_grpc import ShardServiceStub
from tabgrpc.scheduler.calls import Scope, unary
from tabgrpc.scheduler.groups import Groups
from tabgrpc.scheduler.supervisor import WorkerProcess
from tabgrpc.v1 import pool_pb2
from tabgrpc.wire.channels import connect, private_directory
from tabgrpc.wire.errors import NotReady, ServiceError, Unavailable

logger = logging.getLogger("tabgrpc")

_POLL_SECONDS = 0.05
_ATTACHED_POLL_SECONDS = 1.0
_CALL_SECONDS = 10.0
_REPLACEMENT_SECONDS = 120.0
_GIVEN_UP = "not restarted"
MAX_RESTARTS = 5
RESTART_WINDOW_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process that serves. stub: its shard service."""

    slot: int
    incarnation: str
    address: str
    device: str
    policy: NumericPolicy
    memory_budget: int
    pid: int
    threads: int
    stub: ShardServiceStub
    channel: grpc.Channel


@dataclass(slots=True)
class _Slot:
    number: int
    address: str = ""
    process: WorkerProcess | None = None
    worker: Worker | None = None
    reason: str = "starting"
    restarts: list[float] | None = None
    busy: bool = False


class WorkerPool:
    """Slots and their workers. ``on_change`` is called, from a thread of its own, after a slot's worker was lost or replaced."""

    def __init__(
        self,
        spawn: int = 0,
        attach: Sequence[str] = (),
        device: str = "cpu",
        threads: int = 1,
        memory: int = 0,
        exchange: str = "auto",
    ) -> None:
        """spawn: local workers to start. attach: addresses of workers that something else started. exchange: see ``groups.EXCHANGES``.

        Raises Unavailable if one can't be had, NotReady if they don't compute alike.
        """
        if spawn + len(attach) < 1:
            raise ValueError("a pool needs at least one worker")
        self._settings = (device, threads, memory, spawn)
        self.groups = Groups(exchange)
        self._directory = private_directory()
        self._lock = threading.Condition()
        self._closed = False
        self.on_change: Callable[[], None] = lambda: None
        self._slots = [_Slot(i, restarts=[]) for i in range(spawn)]
        self._slots += [_Slot(spawn + i, address) for i, address in enumerate(attach)]
        try:
            self._start()
        except BaseException:
            self.close(0)
            raise
        self._watcher = threading.Thread(target=self._watch, name="worker-watch", daemon=True)
        self._watcher.start()

    def _start(self) -> None:
        for slot in self._slots:
            if not slot.address:
                slot.process = WorkerProcess(slot.number, self._directory, *self._settings)
        with ThreadPoolExecutor(len(self._slots)) as threads:
            workers = list(threads.map(self._greet, self._slots))
        for slot, worker in zip(self._slots, workers, strict=True):
            self._admit(slot, worker)

    def _greet(self, slot: _Slot) -> Worker:
        """Connects to whoever serves a slot's address."""
        if slot.process is not None:
            slot.process.wait_ready()
            slot.address = slot.process.address
        channel = connect(slot.address)
        try:
            stub = ShardServiceStub(channel)
            info = unary(stub.GetWorker, pb.GetWorkerRequest(), Scope(_CALL_SECONDS))
            policy = NumericPolicy.from_dict(json.loads(info.policy_json))
        except BaseException:
            channel.close()
            raise
        return Worker(
            slot.number, info.incarnation, slot.address, info.device, policy, info.memory_budget, info.pid, info.threads, stub, channel
        )

    def _admit(self, slot: _Slot, worker: Worker) -> None:
        """Takes a worker in, if it computes as the others do: another canary or library is another answer."""
        with self._lock:
            others = [other.worker for other in self._slots if other.worker is not None and other is not slot]
            if others and others[0].policy != worker.policy:
                worker.channel.close()
                differences = "; ".join(others[0].policy.differences(worker.policy))
                raise NotReady(f"worker {worker.address} computes differently from the pool and is refused: {differences}")
            slot.worker, slot.reason = worker, ""
            self._lock.notify_all()

    # --- who is there ---

    def serving(self) -> list[Worker]:
        """The workers that serve, in slot order."""
        with self._lock:
            return [slot.worker for slot in self._slots if slot.worker is not None]

    def wait_serving(self, scope: Scope) -> list[Worker]:
        """The workers that serve, waiting for the first one while some are being replaced. Raises Unavailable, saying why there is none."""
        end = time.monotonic() + _REPLACEMENT_SECONDS
        with self._lock:
            while not (found := [slot.worker for slot in self._slots if slot.worker is not None]):
                if self._closed or self.given_up or time.monotonic() > end:
                    reasons = "; ".join(f"worker {slot.number}: {slot.reason}" for slot in self._slots)
                    raise Unavailable(f"no worker serves ({reasons})")
                self._lock.wait(min(0.5, scope.remaining()))
        return found

    @property
    def given_up(self) -> bool:
        """Whether no worker serves and none is being replaced any more."""
        return all(slot.worker is None and slot.reason.startswith(_GIVEN_UP) for slot in self._slots)

    def awaited(self) -> frozenset[int]:
        """Slots whose worker is lost and whose replacement is on its way."""
        with self._lock:
            return frozenset(
                slot.number
                for slot in self._slots
                if slot.process is not None and slot.worker is None and not slot.reason.startswith(_GIVEN_UP)
            )

    def describe(self) -> list[pool_pb2.Worker]:
        """Every slot's worker as callers see it; memory and queue are asked for now."""
        with self._lock:
            slots = [(slot.address, slot.worker, slot.reason) for slot in self._slots]
        described = []
        for address, worker, reason in slots:
            if worker is not None:
                try:
                    info = unary(worker.stub.GetWorker, pb.GetWorkerRequest(), Scope(2.0))
                except ServiceError as error:
                    reason = str(error)
                else:
                    described.append(
                        pool_pb2.Worker(
                            incarnation=info.incarnation,
                            device=info.device,
                            state=pool_pb2.WORKER_STATE_SERVING,
                            pid=info.pid,
                            memory_budget=info.memory_budget,
                            memory_used=info.memory_used,
                            queued=info.queued,
                            stalled_seconds=info.stalled_seconds,
                            streamed_bytes=info.streamed_bytes,
                        )
                    )
                    continue
            described.append(pool_pb2.Worker(state=pool_pb2.WORKER_STATE_LOST, reason=reason or f"{address} does not answer"))
        return described

    def room(self, workers: Sequence[Worker]) -> int:
        """Bytes for a model's shards that each of these workers could make room of: what isn't pinned or in a fit."""

        def one(worker: Worker) -> int:
            try:
                info = unary(worker.stub.GetWorker, pb.GetWorkerRequest(), Scope(_CALL_SECONDS))
            except Unavailable:  # it died just now: a plan goes by what its replacement will have, and who needs it waits for that
                return worker.memory_budget
            return max(int(info.memory_budget) - int(info.memory_fixed), 0)

        with ThreadPoolExecutor(len(workers)) as threads:
            return min(threads.map(one, workers))

    def policy(self) -> NumericPolicy:
        """The policy that all workers share, in float32. Raises Unavailable if none serves."""
        workers = self.serving()
        if not workers:
            raise Unavailable("no worker serves")
        return replace(workers[0].policy, dtype="float32")

    @property
    def size(self) -> int:
        """Slots, whether their workers serve or not."""
        return len(self._slots)

    # --- watching and repair ---

    def _watch(self) -> None:
        last_poll = time.monotonic()
        while True:
            with self._lock:
                self._lock.wait(_POLL_SECONDS)
                if self._closed:
                    return
            try:
                changed = self._look(last_poll)
            except Exception:  # whatever it was, the next look must come: without it no loss is noticed any more
                logger.exception("looking after the workers failed")
                changed = True
            if time.monotonic() - last_poll > _ATTACHED_POLL_SECONDS:
                last_poll = time.monotonic()
            if changed:
                self._tell()

    def _look(self, last_poll: float) -> bool:
        """One look at all slots; whether something changed. Replacements are started on threads of their own."""
        changed = False
        for slot in self._slots:
            if slot.process is not None and not slot.busy and slot.process.process.poll() is not None:
                changed |= self._lose(slot, slot.process.reason())
                slot.busy = True
                threading.Thread(target=self._replace, args=[slot], name=f"replace-{slot.number}", daemon=True).start()
        if time.monotonic() - last_poll > _ATTACHED_POLL_SECONDS:
            for slot in self._slots:
                if slot.process is None and slot.address:
                    changed |= self._poll_attached(slot)
        return changed

    def _tell(self) -> None:
        if not self._closed:
            threading.Thread(target=self.on_change, name="repair", daemon=True).start()

    def _lose(self, slot: _Slot, reason: str) -> bool:
        with self._lock:
            worker, slot.worker = slot.worker, None
            if worker is None:
                return False
            slot.reason = reason
        logger.warning("worker %d (%s) is lost: %s", slot.number, worker.incarnation[:8], reason)
        self.groups.lost_worker(worker.incarnation)
        worker.channel.close()
        return True

    def _replace(self, slot: _Slot) -> None:
        """Starts a replacement, unless one died too often of late. A failed one is ended, and the next look tries again."""
        assert slot.process is not None
        assert slot.restarts is not None
        now = time.monotonic()
        slot.restarts = [at for at in slot.restarts if now - at < RESTART_WINDOW_SECONDS]
        if len(slot.restarts) >= MAX_RESTARTS:
            slot.reason = f"{_GIVEN_UP}: died {MAX_RESTARTS} times in {RESTART_WINDOW_SECONDS:.0f} s, last: {slot.reason}"
            logger.error("worker %d is %s", slot.number, slot.reason)
            self._tell()
            return  # it stays busy: nobody looks after it any more
        slot.restarts.append(now)
        slot.process.stop(0)
        with self._lock:
            if self._closed:
                return
            slot.process = WorkerProcess(slot.number, self._directory, *self._settings)
        try:
            self._admit(slot, self._greet(slot))
        except Exception as error:  # also a worker of another version, whose policy can't be read
            slot.reason = str(error)
            logger.warning("the replacement of worker %d failed: %s", slot.number, error)
            slot.process.stop(0)
        else:
            logger.warning("worker %d is replaced", slot.number)
            self._tell()
        slot.busy = False

    def _poll_attached(self, slot: _Slot) -> bool:
        """Whether an attached worker was lost, came back, or is another process than before."""
        worker = slot.worker
        try:
            if worker is None:
                self._admit(slot, self._greet(slot))
                return True
            info = unary(worker.stub.GetWorker, pb.GetWorkerRequest(), Scope(_CALL_SECONDS))
        except ServiceError as error:
            return self._lose(slot, str(error))
        return info.incarnation != worker.incarnation and self._lose(slot, "another process serves its address")

    def close(self, grace: float = 35.0) -> None:
        """Stops the local workers, drained if ``grace`` is positive, and lets go of the attached ones."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self.groups.close()
        if hasattr(self, "_watcher"):
            self._watcher.join(timeout=30)
        processes = [slot.process for slot in self._slots if slot.process is not None]
        if grace > 0:
            for process in processes:
                process.drain()
        end = time.monotonic() + grace
        for process in processes:  # they end side by side; a thread for each can't be started at interpreter exit
            process.stop(max(end - time.monotonic(), 0.0))
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.channel.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(self._directory)
