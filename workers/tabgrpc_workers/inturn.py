"""Several tasks that exchange, as one: while one waits for its collective the next one computes. The order is the same on all workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

from tabgrpc.wire.errors import Cancelled
from tabgrpc_workers.device import Task
from tabgrpc_workers.exchange import Pending

Step = Generator[Any, None, None]
"""A task that also yields each collective (``Pending``) when it has started it, and goes on only when that is ready."""


def in_turn(tasks: Iterable[Step], at_once: int) -> Task[None]:
    """Runs tasks to their ends, ``at_once`` of them taking turns; one that ends leaves its place to the next one.

    A turn goes up to the next collective. Which task starts which collective when depends on the tasks' own sequences only, never on what
    is ready first, so that workers whose tasks have the same sequences start the same collectives in the same order.

    Cancelled is for what all workers decide at the same place: collectives under way are waited for before it is raised, and the group
    stays whole. Any other error leaves collectives behind that nobody waits for.
    """
    coming = iter(tasks)
    lanes: deque[tuple[Step, Pending | None]] = deque()
    try:
        while True:
            while len(lanes) < at_once and (task := next(coming, None)) is not None:
                lanes.append((task, None))
            if not lanes:
                return
            task, pending = lanes.popleft()
            if pending is not None:
                yield from pending.until()
            if (started := (yield from _turn(task))) is not None:
                lanes.append((task, started))
    except Cancelled:
        for _, pending in lanes:
            if pending is not None:
                yield from pending.until()
                pending.result()
        raise
    finally:
        for task, _ in lanes:
            task.close()


def _turn(task: Step) -> Task[Pending | None]:
    """A task up to its next collective, or to its end."""
    for step in task:
        if isinstance(step, Pending):
            return step
        yield step
    return None
