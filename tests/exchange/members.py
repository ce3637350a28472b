"""Groups whose members are threads of the test's process: the real library over real sockets, and nothing to start."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from tabgrpc_workers.device import FIT, Device, Task
from tabgrpc_workers.exchange import LOOPBACK, Group, Rendezvous

from tabgrpc.core.ownership import Run

Runs = Sequence[dict[int, tuple[Run, ...]]]


def group_of(size: int, seconds: float = 30.0, runs: Runs = ()) -> list[Group]:
    """Connected members, by rank."""
    meeting, name = Rendezvous(LOOPBACK), uuid.uuid4().hex
    groups = [Group(name, "m", 1, rank, list(runs) or [{}] * size, seconds, torch.device("cpu")) for rank in range(size)]
    with ThreadPoolExecutor(size) as threads:
        list(threads.map(lambda group: group.connect((meeting.host, meeting.port), LOOPBACK, 30.0), groups))
    return groups


def everywhere(devices: Sequence[Device], task: Callable[[int], Task[Any]], urgency: int = FIT) -> list[Any]:
    """A task on every device at once; the results by rank."""
    with ThreadPoolExecutor(len(devices)) as threads:
        return list(threads.map(lambda rank: devices[rank].run(task(rank), urgency), range(len(devices))))
