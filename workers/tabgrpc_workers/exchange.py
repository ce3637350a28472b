"""Collectives between workers: one group for the owners of a model version under one epoch. Bytes are moved, nothing is computed.

Two collectives only, all-gather and all-to-all, the same code over NCCL (tensors stay on the device) and Gloo (on the CPU). Both are
asynchronous: a task starts one, goes on computing, and when it needs the result yields ``Pending.ready`` until it is there. It never waits
on the device's thread, nor lets the device's stream wait for another worker. So whatever the others need of this worker can go on, and the
only order that all must keep is that of the collectives within a group: jobs by their turn, and within a job a fixed sequence.

Anything that goes wrong aborts the group on this worker, for good. The scheduler then has the others leave it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tabgrpc.core.ownership import Run
from tabgrpc.wire.errors import Unavailable
from tabgrpc_workers.device import Task

LOOPBACK = "127.0.0.1"


@dataclass
class Cost:
    """What a job has exchanged: bytes received from others, seconds in which it could only wait, collectives."""

    nbytes: int = 0
    waiting: float = 0.0
    collectives: int = 0


class Rendezvous:
    """Where the members of a group meet. Listens on one address only; the library would by itself listen on all."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as listener:
            listener.bind((host, 0))
            listener.listen()
            self.host, self.port = host, int(listener.getsockname()[1])
            self.store = dist.TCPStore(
                host, self.port, is_master=True, wait_for_workers=False, master_listen_fd=os.dup(listener.fileno())
            )


class Group:
    """One worker's membership. ``runs[rank][member]``: what each rank owns of each member of the ensemble."""

    def __init__(
        self,
        name: str,
        model_version: str,
        epoch: int,
        rank: int,
        runs: Sequence[dict[int, tuple[Run, ...]]],
        seconds: float,
        device: torch.device,
    ) -> None:
        """seconds: that a collective may take, the delay of whoever comes last included. Nothing is connected before ``connect``."""
        self.name, self.model_version, self.epoch = name, model_version, epoch
        self.rank, self.size, self.runs = rank, len(runs), tuple(runs)
        self.seconds, self.device = seconds, device
        self.reason = ""
        self.turn = 0
        self.cost = Cost()
        self._held: list[Any] = []
        self._lock = threading.Lock()

    def connect(self, rendezvous: tuple[str, int], host: str, seconds: float) -> None:
        """Meets the others and exchanges something, within ``seconds``. host: address of this worker that the others reach.

        Blocks; not for the device's thread. Raises Unavailable.
        """
        end = time.monotonic() + seconds
        try:
            store = dist.TCPStore(*rendezvous, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))
            group = _nccl(store, self, host) if self.device.type == "cuda" else _gloo(store, self, host, seconds)
        except (RuntimeError, ValueError, OSError) as error:
            raise Unavailable(f"group {self.name} can't be joined: {error}") from error
        with self._lock:
            if self.reason:
                raise Unavailable(self.reason)
            self._held = [group, store]
        mine = torch.full((1,), self.rank, dtype=torch.int64, device=self.device)
        everybody = self.gather(mine)
        while not everybody.ready() and time.monotonic() < end:
            time.sleep(1e-3)
        if not everybody.ready():
            self.abort(f"group {self.name}: not everybody was there within {seconds:.0f} s")
        if everybody.result().flatten().tolist() != list(range(self.size)):
            self.abort(f"group {self.name} exchanges something else than was sent")
            self.check()

    # --- collectives ---

    def gather(self, part: Tensor) -> Pending:
        """All-gather. part: contiguous, of one shape and dtype on all ranks; gives (size, *part.shape), by rank."""
        out = part.new_empty(self.size * part.numel())
        work = self._start("_allgather_base", out, part.view(-1))
        return Pending(self, work, out.view(self.size, *part.shape), part, (self.size - 1) * part.nbytes)

    def swap(self, parts: Tensor, sent: Sequence[int], received: Sequence[int]) -> Pending:
        """All-to-all. parts: flat, ``sent[r]`` elements for rank r after one another; gives flat, ``received[r]`` elements of rank r."""
        out = parts.new_empty(sum(received))
        work = self._start("alltoall_base", out, parts, list(received), list(sent))
        return Pending(self, work, out, parts, (out.numel() - received[self.rank]) * out.itemsize)

    def _start(self, collective: str, *arguments: Any) -> Any:
        with self._lock:
            group = self._held[0] if self._held and not self.reason else None
        if group is None:
            raise Unavailable(self.reason or f"group {self.name} is not connected")
        try:
            return getattr(group, collective)(*arguments)
        except RuntimeError as error:
            self.abort(f"group {self.name}: {error}")
            raise Unavailable(self.reason) from error

    # --- jobs ---

    def begin(self, turn: int) -> Task[Cost]:
        """Waits for a job's turn. Raises Unavailable if the group is aborted first, or the turn is over already."""
        end = time.monotonic() + self.seconds
        if turn > self.turn:
            yield lambda: self.turn >= turn or bool(self.reason) or time.monotonic() > end
        if turn != self.turn:
            self.abort(f"group {self.name}: job {turn} while it is the turn of {self.turn}")
        self.check()
        self.cost = Cost()
        return self.cost

    def end(self) -> None:
        """The job that began has made all its collectives."""
        self.turn += 1

    def check(self) -> None:
        """Raises Unavailable if the group is aborted."""
        if self.reason:
            raise Unavailable(self.reason)

    @contextmanager
    def breaking(self, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Aborts the group if what is done inside fails: the others must not wait for a member that has stopped half-way.

        but: an error that stops all members at the same place.
        """
        try:
            yield
        except but:
            raise
        except BaseException as error:
            self.abort(f"group {self.name} is broken on rank {self.rank}: {error}")
            raise

    def abort(self, reason: str) -> None:
        """Gives up for good; whoever waits here is woken. The first reason stays."""
        with self._lock:
            if self.reason:
                return
            self.reason = reason
            held, self._held = self._held, []
        if held:
            threading.Thread(target=_let_go, args=[held], name="leave", daemon=True).start()


@dataclass
class Pending:
    """A collective under way. Holds what it reads and writes until then."""

    group: Group
    work: Any
    out: Tensor
    sent: Tensor
    nbytes: int

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.group.seconds

    def ready(self) -> bool:
        """Whether ``result`` has something to say: it is done, it failed, or it takes too long."""
        return bool(self.group.reason) or time.monotonic() > self._end or self.work.is_completed()

    def until(self) -> Task[None]:
        """Waits until it is ready; meanwhile other tasks have the device."""
        if not self.ready():
            before = time.monotonic()
            yield self.ready
            self.group.cost.waiting += time.monotonic() - before

    def result(self) -> Tensor:
        """What was received. Raises Unavailable, and aborts the group, if it failed or is not there in time."""
        group = self.group
        group.check()
        if not self.work.is_completed():
            group.abort(f"group {group.name}: an exchange is not done after {group.seconds:.0f} s")
            group.check()
        try:
            self.work.wait()  # returns at once; on CUDA it orders this stream after the collective's
        except RuntimeError as error:
            group.abort(f"group {group.name}: an exchange failed: {error}")
            raise Unavailable(group.reason) from error
        group.cost.nbytes += self.nbytes
        group.cost.collectives += 1
        return self.out


def backend(device: torch.device) -> str:
    """What this worker would exchange by: "nccl", "gloo", or "" if this build of torch has neither."""
    if not dist.is_available():
        return ""
    if device.type == "cuda":
        return "nccl" if dist.is_nccl_available() else ""
    return "gloo" if dist.is_gloo_available() else ""


def meeting_place() -> str:
    """Equal in processes that share a kernel and a loopback interface; a container has its own interface."""
    with open("/proc/sys/kernel/random/boot_id") as boot:
        return f"{boot.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"


def accelerator(device: torch.device) -> str:
    """The GPU's own name, so that two workers on the same one are seen: NCCL can't connect them. Empty on a CPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def _gloo(store: dist.Store, group: Group, host: str, seconds: float) -> Any:
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]  # never the interface of this host's name
    options._timeout = timedelta(seconds=max(group.seconds, seconds))
    options._threads = 2
    return dist.ProcessGroupGloo(store, group.rank, group.size, options)


def _nccl(store: dist.Store, group: Group, host: str) -> Any:
    """NCCL's own sockets are kept to the loopback interface by the environment that ``__main__`` sets."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=2 * group.seconds)  # ours comes first; its watchdog ends the process
    made = dist.ProcessGroupNCCL(store, group.rank, group.size, options)
    made.eager_connect_single_device(group.device)
    return made


def _let_go(held: list[Any]) -> None:
    """Ends a library's group. NCCL aborts what is under way; Gloo waits until it fails or its time is over, which nobody waits for here."""
    group = held[0]
    if dist.is_nccl_available() and isinstance(group, dist.ProcessGroupNCCL):
        group.abort()
    held.clear()
    del group
